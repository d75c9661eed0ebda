"""What a database error means, and what a person can do about it.

Nothing above the store ever sees an error of SQLite, psycopg or SQLAlchemy.
"""

from __future__ import annotations

import errno
import shutil

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, StatementError

from fingerpost.errors import StoreUnavailable
from fingerpost.redaction import scrub
from fingerpost.store.locations import StoreLocation

_LOCKED = (
    "is locked by another program",
    "Close the program that holds it (a database browser, a backup) and try again.",
)
_DAMAGED = (
    "is damaged or not a database",
    "Move the file away to start afresh, together with its anchor {anchor}, or restore it from a backup.",
)
_FULL = ("cannot be written: the disk is full", "Free some space; the store goes on by itself.")
_UNWRITABLE = (
    "cannot be written",
    "Check who owns the file and its folder, and whether the disk is mounted read-only.",
)
_UNREACHABLE = ("cannot be reached", "Check that the database server runs and that the URL is right.")
_REFUSED = ("refused the work", "See the reason; the store tries again by itself.")

# SQLite's own names, the most telling part of them.
_SQLITE = {
    "SQLITE_BUSY": _LOCKED,
    "SQLITE_LOCKED": _LOCKED,
    "SQLITE_PROTOCOL": _LOCKED,
    "SQLITE_CORRUPT": _DAMAGED,
    "SQLITE_NOTADB": _DAMAGED,
    "SQLITE_FULL": _FULL,
    "SQLITE_IOERR": _UNWRITABLE,
    "SQLITE_READONLY": _UNWRITABLE,
    "SQLITE_CANTOPEN": _UNWRITABLE,
    "SQLITE_PERM": _UNWRITABLE,
}

# PostgreSQL's SQLSTATE: the full code, or its class (the first two characters).
_POSTGRESQL = {
    "55P03": _LOCKED,
    "57014": _LOCKED,  # statement_timeout: something held it for too long
    "53100": _FULL,
    "25006": _UNWRITABLE,  # read-only transaction, such as on a standby
    "08": _UNREACHABLE,
    "28": _UNREACHABLE,
    "3D": _UNREACHABLE,
    "57": _UNREACHABLE,
}


def is_database_failure(error: BaseException) -> bool:
    """Whether the database is to blame, not the one write it was working on."""
    if isinstance(error, StoreUnavailable):
        return True
    return isinstance(error, DBAPIError) and not isinstance(error, DataError | IntegrityError)


def get_cause(error: BaseException) -> BaseException:
    """What lies under SQLAlchemy's wrapping, whose text repeats the statement and its values."""
    return error.orig if isinstance(error, StatementError) and error.orig is not None else error


def explain(error: BaseException, location: StoreLocation) -> StoreUnavailable:
    """The error for whoever runs this: which database it is, and what it said."""
    if isinstance(error, StoreUnavailable):
        return error
    what, hint = _find_meaning(get_cause(error), location)
    message = f"the database {location.label} {what} ({_describe_cause(error)})"
    return StoreUnavailable(message, hint=hint.format(anchor=location.anchor))


def explain_without_location(error: BaseException, location: StoreLocation) -> StoreUnavailable:
    """The error for whoever asked for something: where the database is may be no business of theirs."""
    if isinstance(error, StoreUnavailable):
        return error
    what, hint = _find_meaning(get_cause(error), location)
    reason = "" if what in _SELF_EXPLAINING else f" ({_describe_cause(error)})"
    return StoreUnavailable(f"the database {what}{reason}", hint=hint.format(anchor=location.anchor.name))


# What the database itself says of these names files or hosts.
_SELF_EXPLAINING = frozenset({_FULL[0], _UNREACHABLE[0]})


def _describe_cause(error: BaseException) -> str:
    return scrub(" ".join(str(get_cause(error)).split()))[:300]


def _find_meaning(cause: BaseException, location: StoreLocation) -> tuple[str, str]:
    if isinstance(cause, OSError):
        return _FULL if cause.errno in (errno.ENOSPC, errno.EDQUOT) else _UNWRITABLE
    name: str | None = getattr(cause, "sqlite_errorname", None)
    if name is not None:
        # SQLITE_IOERR_WRITE says more than SQLITE_IOERR, but asks for the same remedy.
        found = _SQLITE.get("_".join(name.split("_")[:2]), _REFUSED)
        return _FULL if found is _UNWRITABLE and _is_full(location) else found
    if type(cause).__module__.startswith("psycopg"):
        state: str | None = getattr(cause, "sqlstate", None)
        if state is None:  # the server never answered
            return _UNREACHABLE
        return _POSTGRESQL.get(state) or _POSTGRESQL.get(state[:2]) or _REFUSED
    return _REFUSED


def _is_full(location: StoreLocation) -> bool:
    """SQLite calls it an I/O error when there is no room for its log or its shared memory."""
    if location.file is None:
        return False
    try:
        return shutil.disk_usage(location.file.parent).free < _MIN_FREE_BYTES
    except OSError:
        return False


_MIN_FREE_BYTES = 64 * 1024  # less than SQLite needs to open a database
