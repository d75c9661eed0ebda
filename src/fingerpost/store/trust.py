"""Pins, known servers, disabled tools and servers, sign-in tokens, and the installation's secret."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

import anyio.to_thread
from pydantic_core import from_json as parse_json
from sqlalchemy import Connection, delete, insert, select, update

from fingerpost.errors import ConfigError, StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import (
    DisabledEntry,
    DisabledKind,
    DroppedTool,
    KnownServer,
    Listing,
    Pin,
    ServerResources,
    utc_now,
)
from fingerpost.records.codec import from_json, to_json
from fingerpost.store.database import Database, StoreLocation, insert_ignoring, make_private, upsert
from fingerpost.store.schema import disabled_entries, known_servers, pin_revision, pins, tokens
from fingerpost.store.writer import StoreWriter

logger = logging.getLogger("fingerpost.store")

# Names in the table of tokens. No server can have them, because they contain a `/`.
SECRET_NAME: Final = "gateway/request-state"  # noqa: S105 - a name
SECRET_DIGEST_NAME: Final = "gateway/request-state-digest"  # noqa: S105 - a name

_SECRET_BYTES: Final = 32


@frozen
class PinChanges:
    """Changes of pins since the last check."""

    changed: Mapping[str, Pin]  # includes new ones
    gone: frozenset[str]


NO_ENTRY: Final = ""  # of pins from before entries were recorded


class PinStore:
    """Stores one pin per tool key and entry of its server: two projects may use one name for two servers."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer
        self._entries: Mapping[str, str] = {}  # hash of the entry of each server, by the server part of keys
        self._revision: int | None = None  # at the last check
        self._seen: dict[str, int] = {}  # hash of each record at the last check; the records are large
        self._put: set[str] = set()  # stored by this process since the last check

    async def use_entries(self, entries: Mapping[str, str]) -> frozenset[str]:
        """Use the pins of these entries from now on. `entries` has hashes by the server part of keys.

        Pins from before entries were recorded become those of the first entry of their server. Return the
        servers that have pins under another entry only.
        """
        self._entries, self._revision = dict(entries), None
        is_old = select(pins.c.key).where(pins.c.entry == NO_ENTRY).limit(1)
        if await self._database.read(lambda connection: connection.execute(is_old).first() is not None):
            with contextlib.suppress(StoreUnavailable):  # a store that is only read
                await self._writer.write(_adopt_pins, self._entries)
        return await self._database.read(partial(_find_changed_entries, self._entries))

    async def list_all(self) -> dict[str, Pin]:
        """Return the pins of the entries in use, and of servers that are not configured; sorted by key."""
        return _parse_pins(await self._database.read(partial(_read_pin_records, self._entries)))

    async def put(self, *new: Pin) -> None:
        """Store these pins, replacing older ones with the same keys and entries."""
        if new:
            entries = self._entries
            rows = tuple((entries.get(_get_server(pin.key), NO_ENTRY), pin) for pin in new)
            await self._writer.write(_put_pins, rows)
            self._put.update(pin.key for pin in new)

    async def remove(self, key: str) -> bool:
        """Delete a pin, under every entry of its server. Return False if there was none."""
        return await self._writer.write(_remove_pins, key)

    async def take_changes(self) -> PinChanges | None:
        """Return the changes by any process since the last call, or None. The first call returns all pins."""
        ours = frozenset(self._put)  # stored before this read: if one is missing, it was removed since
        changes = await self._database.read(partial(self._find_changes, ours))
        self._put -= ours
        return changes

    def _find_changes(self, known: frozenset[str], connection: Connection) -> PinChanges | None:
        revision = connection.execute(select(pin_revision.c.number)).scalar_one()
        if revision == self._revision:
            return None
        records = _read_pin_records(self._entries, connection)
        seen = {key: hash(record) for key, record in records.items()}
        changed = {key: record for key, record in records.items() if seen[key] != self._seen.get(key)}
        gone = (self._seen.keys() | known) - seen.keys()
        self._revision, self._seen = revision, seen
        return PinChanges(changed=_parse_pins(changed), gone=frozenset(gone))


class KnownServerStore:
    """What servers listed when they were last connected, so that they need not run to be known."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def find(self, entries: Mapping[str, str]) -> dict[str, KnownServer]:
        """Return what is known of these servers. `entries` has the hash of each server's entry."""

        def read(connection: Connection) -> dict[str, KnownServer]:
            query = select(known_servers).where(known_servers.c.entry.in_(set(entries.values())))
            rows = [row for row in connection.execute(query) if entries.get(row.server) == row.entry]
            known = {row.server: _parse_known_server(row.record) for row in rows}
            return {server: found for server, found in known.items() if found is not None}

        return await self._database.read(read) if entries else {}

    async def put(self, *known: tuple[str, KnownServer]) -> None:
        """Store what servers list now, each with the hash of its entry."""
        if known:
            await self._writer.write(_put_known_servers, known)


def _parse_known_server(record: str) -> KnownServer | None:
    """Parse one record. Definitions are not validated again, because they can be long."""
    try:
        values = parse_json(record)
        resources = values.pop("resources")
        listing = values.pop("listing")
        dropped = tuple(DroppedTool(**one) for one in listing.pop("dropped"))
        return KnownServer(
            listing=Listing(**_freeze_lists(listing), dropped=dropped),
            resources=None if resources is None else ServerResources(**_freeze_lists(resources)),
            listed_at=datetime.fromisoformat(values.pop("listed_at")),
            **values,
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:  # the row was edited from outside
        logger.warning("a stored list of tools cannot be read: %s", error)
        return None


def _freeze_lists(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(cast("list[Any]", value)) if isinstance(value, list) else value
        for name, value in fields.items()
    }


MAX_ENTRIES: Final = 20  # kept for one name: projects may use it for different servers


def _put_known_servers(
    connection: Connection, groups: Sequence[Sequence[tuple[str, KnownServer]]]
) -> list[None]:
    table = known_servers
    for entry, known in chain.from_iterable(groups):
        server = known.listing.server
        row = {"server": server, "entry": entry, "listed_at": known.listed_at}
        connection.execute(upsert(connection, table), {**row, "record": to_json(known).decode()})
        newest = select(table.c.entry).where(table.c.server == server).order_by(table.c.listed_at.desc())
        old = [one.entry for one in connection.execute(newest.offset(MAX_ENTRIES))]
        if old:
            connection.execute(delete(table).where(table.c.server == server, table.c.entry.in_(old)))
    return [None] * len(groups)


def _read_pin_records(entries: Mapping[str, str], connection: Connection) -> dict[str, str]:
    """Return the pins of these entries and of all other servers, by key. They are sorted here, because
    databases sort text differently.
    """
    rows = sorted(connection.execute(select(pins)), key=lambda row: (row.key, row.entry))
    # Sorted by entry, too: a pin without one counts only if there is no other.
    return {
        row.key: row.record
        for row in rows
        if row.entry in (NO_ENTRY, entries.get(_get_server(row.key), row.entry))
    }


def _find_changed_entries(entries: Mapping[str, str], connection: Connection) -> frozenset[str]:
    pinned: dict[str, set[str]] = {}
    for row in connection.execute(select(pins.c.key, pins.c.entry)):
        pinned.setdefault(_get_server(row.key), set()).add(row.entry)
    return frozenset(
        server
        for server, entry in entries.items()
        if pinned.get(server, {entry}).isdisjoint((entry, NO_ENTRY))
    )


def _get_server(key: str) -> str:
    """Return the server part of a key."""
    return key.partition("/")[0]


def _adopt_pins(connection: Connection, groups: Sequence[Mapping[str, str]]) -> list[None]:
    for entries in groups:
        for row in connection.execute(select(pins).where(pins.c.entry == NO_ENTRY)).all():
            entry = entries.get(_get_server(row.key), NO_ENTRY)
            if entry != NO_ENTRY:
                new = {"entry": entry, "key": row.key, "record": row.record}
                connection.execute(insert_ignoring(connection, pins), new)
                connection.execute(delete(pins).where(pins.c.entry == NO_ENTRY, pins.c.key == row.key))
    _increment_revision(connection)
    return [None] * len(groups)


def _parse_pins(records: Mapping[str, str]) -> dict[str, Pin]:
    return {key: from_json(Pin, record) for key, record in records.items()}


def _put_pins(connection: Connection, groups: Sequence[tuple[tuple[str, Pin], ...]]) -> list[None]:
    # The last pin of a key counts. PostgreSQL refuses to update a row twice in one statement.
    latest = {(entry, pin.key): to_json(pin).decode() for group in groups for entry, pin in group}
    rows = [{"entry": entry, "key": key, "record": record} for (entry, key), record in latest.items()]
    connection.execute(upsert(connection, pins), rows)
    _increment_revision(connection)
    return [None] * len(groups)


def _remove_pins(connection: Connection, keys: Sequence[str]) -> list[bool]:
    removed = [connection.execute(delete(pins).where(pins.c.key == key)).rowcount > 0 for key in keys]
    if any(removed):
        _increment_revision(connection)
    return removed


def _increment_revision(connection: Connection) -> None:
    connection.execute(update(pin_revision).values(number=pin_revision.c.number + 1))


class DisabledStore:
    """Disabled tools and servers, shared by all processes."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def list_all(self) -> tuple[DisabledEntry, ...]:
        """Return all disabled tools and servers, sorted by name."""
        return await self._database.read(_list_disabled)

    async def disable(self, entry: DisabledEntry) -> bool:
        """Disable it. Return False if it was already disabled; the first entry is kept."""
        return await self._writer.write(_disable_entries, entry)

    async def enable(self, what: DisabledKind, name: str) -> bool:
        """Enable it. Return False if it was not disabled."""
        return await self._writer.write(_enable_entries, (what, name))


def _list_disabled(connection: Connection) -> tuple[DisabledEntry, ...]:
    rows = connection.execute(select(disabled_entries)).all()
    found = [
        DisabledEntry(
            what=DisabledKind(row.what), name=row.name, by=row.by_whom, at=row.at, reason=row.reason
        )
        for row in rows
    ]
    return tuple(sorted(found, key=lambda entry: (entry.what, entry.name)))


def _disable_entries(connection: Connection, wanted: Sequence[DisabledEntry]) -> list[bool]:
    return [_disable_entry(connection, entry) for entry in wanted]


def _disable_entry(connection: Connection, entry: DisabledEntry) -> bool:
    """Add the entry if there is none. The transaction holds the write lock, so no other process can add one
    meanwhile.
    """
    there = select(disabled_entries.c.at).where(
        disabled_entries.c.what == entry.what, disabled_entries.c.name == entry.name
    )
    if connection.execute(there).one_or_none() is not None:
        return False
    row = asdict(entry)
    row["by_whom"] = row.pop("by")
    connection.execute(insert(disabled_entries), row)
    return True


def _enable_entries(connection: Connection, wanted: Sequence[tuple[DisabledKind, str]]) -> list[bool]:
    return [
        connection.execute(
            delete(disabled_entries).where(disabled_entries.c.what == what, disabled_entries.c.name == name)
        ).rowcount
        > 0
        for what, name in wanted
    ]


class TokenStore:
    """Stores one secret value per server."""

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        self._database = database
        self._writer = writer

    async def get(self, server: str) -> bytes | None:
        query = select(tokens.c.data).where(tokens.c.server == server)
        return await self._database.read(lambda connection: connection.execute(query).scalar())

    async def put(self, server: str, data: bytes) -> None:
        """Store the token, replacing an older one."""
        await self._writer.write(_put_tokens, (server, data))

    async def put_if_absent(self, name: str, data: bytes) -> bytes:
        """Store `data` if there is no value yet. Return the stored value."""
        return await self._writer.write(_put_tokens_if_absent, (name, data))

    async def remove(self, server: str) -> bool:
        """Delete the token. Return False if there was none."""
        return await self._writer.write(_remove_tokens, server)


def _put_tokens(connection: Connection, items: Sequence[tuple[str, bytes]]) -> list[None]:
    for server, data in items:
        row = {"server": server, "data": data, "saved": utc_now()}
        connection.execute(upsert(connection, tokens), row)
    return [None] * len(items)


def _put_tokens_if_absent(connection: Connection, items: Sequence[tuple[str, bytes]]) -> list[bytes]:
    stored: list[bytes] = []
    for name, data in items:
        row = {"server": name, "data": data, "saved": utc_now()}
        connection.execute(insert_ignoring(connection, tokens), row)
        stored.append(connection.execute(select(tokens.c.data).where(tokens.c.server == name)).scalar_one())
    return stored


def _remove_tokens(connection: Connection, servers: Sequence[str]) -> list[bool]:
    return [
        connection.execute(delete(tokens).where(tokens.c.server == name)).rowcount > 0 for name in servers
    ]


class InstallationSecret:
    """The secret that encrypts approval states.

    It is in a separate file, so that a copy of the database decrypts nothing: beside an SQLite database, or
    where `store.secret_file` says. Hosts that share a PostgreSQL database without that setting share the
    secret in it.
    """

    def __init__(self, tokens: TokenStore, location: StoreLocation) -> None:
        self._tokens = tokens
        self._location = location

    async def load(self) -> bytes:
        """Return the secret, and create it if there is none. The first process wins.

        If it belongs in a file, a secret in the database is not used again, because deleted rows can be
        recovered. Raises `ConfigError` if `store.secret_file` cannot be used.
        """
        file = self._location.secret
        if file is None:
            if await self._tokens.get(SECRET_DIGEST_NAME) is not None:
                logger.warning("%s", _NOT_SET)
            return await self._tokens.put_if_absent(SECRET_NAME, os.urandom(_SECRET_BYTES))
        if self._location.secret_file is None:
            secret = await anyio.to_thread.run_sync(_read_or_create_secret, file)
        else:
            secret = await self._load_shared_file(file)
        await self._tokens.remove(SECRET_NAME)
        return secret

    async def find_fault(self) -> tuple[str, str] | None:
        """Return what is wrong with the place of the secret and how to fix it. Creates nothing."""
        digest = await self._tokens.get(SECRET_DIGEST_NAME)
        file = self._location.secret_file
        if file is not None:
            try:
                secret = await anyio.to_thread.run_sync(_read_shared_file, file)
            except ConfigError as error:
                return str(error), error.hint or ""
            differs = None not in (secret, digest) and _hash_secret(secret or b"") != digest
            return _describe_difference(file) if differs else None
        if self._location.secret is not None:
            return None
        if digest is not None:
            return _UNSET
        return None if await self._tokens.get(SECRET_NAME) is None else _IN_DATABASE

    async def _load_shared_file(self, file: Path) -> bytes:
        """Return the secret in the file. Creates the file only if no host has used one with this store."""
        digest = await self._tokens.get(SECRET_DIGEST_NAME)
        secret = await anyio.to_thread.run_sync(_read_shared_file, file)
        if secret is None and digest is not None:
            message = f"store.secret_file {file} is missing, and this store was used with one before"
            raise ConfigError(
                message,
                hint="copy the file from a host that has it, with mode 0600. If it is lost: "
                f"head -c 32 /dev/urandom > {file} && chmod 600 {file}",
            )
        if secret is None:
            try:
                secret = await anyio.to_thread.run_sync(_read_or_create_secret, file)
            except OSError as error:
                raise _explain_unusable(file, error) from None
        if await self._tokens.put_if_absent(SECRET_DIGEST_NAME, _hash_secret(secret)) != _hash_secret(secret):
            logger.warning("%s", _describe_difference(file)[0])
            await self._tokens.put(SECRET_DIGEST_NAME, _hash_secret(secret))
        return secret


_SET_IT: Final = "set store.secret_file to a file with mode 0600 that is the same on every host"
_IN_DATABASE: Final = ("the database contains the secret that encrypts approval states", _SET_IT)
_NOT_SET: Final = (
    "store.secret_file is not set, but other processes on this store keep the secret for approval states in "
    "a file. They do not accept approval states of this one, which puts its own secret into the database"
)
_UNSET: Final = (_NOT_SET, _SET_IT)


def _describe_difference(file: Path) -> tuple[str, str]:
    what = (
        f"the secret in {file} differs from the one that was last used with this store: hosts with different "
        "secrets do not accept each other's approvals"
    )
    return what, "copy the same file to every host and restart them"


def _hash_secret(secret: bytes) -> bytes:
    return hashlib.sha256(b"fingerpost/installation-secret/1\n" + secret).hexdigest().encode()


def _read_shared_file(file: Path) -> bytes | None:
    """Return the secret in a file that a person named, or None if there is none."""
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            secret = opened.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _explain_unusable(file, error) from None
    # Orchestrators give a program a file of root that its group can read.
    forbidden = stat.S_IRWXO | (stat.S_IRWXG if status.st_uid else stat.S_IWGRP | stat.S_IXGRP)
    if os.name == "posix" and status.st_mode & forbidden:
        message = f"store.secret_file {file} can be read by others"
        raise ConfigError(message, hint=f"make a new secret, and: chmod 600 {file}")
    if len(secret) < _SECRET_BYTES:
        message = (
            f"store.secret_file {file} has {len(secret)} bytes; a secret has at least {_SECRET_BYTES} bytes"
        )
        raise ConfigError(message, hint=f"head -c 32 /dev/urandom > {file}")
    return secret


def _explain_unusable(file: Path, error: OSError) -> ConfigError:
    message = f"store.secret_file {file} cannot be used: {error.strerror}"
    return ConfigError(message, hint="name a file that the account of Fingerpost can read, or can create")


def _read_or_create_secret(file: Path) -> bytes:
    """Return the secret in this file. Create it, readable by its owner only, if missing. Raises `OSError`."""
    if file.exists():
        make_private(file)
        return file.read_bytes()
    made = os.urandom(_SECRET_BYTES)
    draft = file.with_name(f"{file.name}.{os.getpid()}.{made[:4].hex()}")
    descriptor = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as writing:
            writing.write(made)
            writing.flush()
            os.fsync(descriptor)
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)  # atomic, and only the first process succeeds
    finally:
        draft.unlink()
    return file.read_bytes()
