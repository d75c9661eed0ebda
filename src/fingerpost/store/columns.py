"""Column types that mean the same on SQLite and PostgreSQL.

SQLite has no time zones, PostgreSQL no NUL in text, and neither takes half a
character. Tool names come from strangers, so all three turn up.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import BigInteger, Dialect, Text
from sqlalchemy.types import TypeDecorator

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_UNSTORABLE = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\([0-9a-f]{4})")

if TYPE_CHECKING:
    _Moment = TypeDecorator[datetime]
    _ExactText = TypeDecorator[str]
else:
    _Moment = _ExactText = TypeDecorator


def to_microseconds(moment: datetime) -> int:
    """Microseconds since 1970. A time without a zone is refused: nobody could say which moment it is."""
    if moment.tzinfo is None:
        message = f"{moment} has no time zone"
        raise ValueError(message)
    since = moment - EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds  # dividing takes longer


def from_microseconds(count: int) -> datetime:
    return EPOCH + count * MICROSECOND


def escape(text: str) -> str:
    """`text` with what a database cannot hold written as `\\0000`; `unescape` is its inverse."""
    if text.isascii() and "\\" not in text and "\0" not in text:
        return text  # nearly always, and much quicker to find out than by the pattern
    return _UNSTORABLE.sub(lambda match: f"\\{ord(match[0]):04x}", text)


def unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)


class Moment(_Moment):
    """A point in time, kept as microseconds so that it sorts and compares the same everywhere."""

    impl = BigInteger
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> int | None:
        return None if value is None else to_microseconds(value)

    def process_result_value(self, value: int | None, dialect: Dialect) -> datetime | None:
        return None if value is None else from_microseconds(value)


class ExactText(_ExactText):
    """Any Python string, NUL and half characters included, back exactly as it went in."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else escape(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else unescape(str(value))  # SQLite lets a column hold any type
