"""What a request holds that an argument could be made of: a thing, where it stands and what stands around it.

One stretch of text can be several things (`Rome` is a city and names a time zone).
Each reading is a value of its own; whoever uses one has used the stretch.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

from fingerpost.frozen import frozen


class ValueKind(StrEnum):
    """What a value is, and so which parameters could take it."""

    PATH = "path"
    URL = "address"
    HOST = "host"
    EMAIL = "e-mail address"
    DATE = "date"
    MOMENT = "date with time"
    TIME = "time"
    ID = "id"
    REVISION = "revision"
    NUMBER = "number"
    TEXT = "quoted text"
    NAME = "name"
    PATTERN = "pattern"
    SQL = "SQL statement"
    ZONE = "time zone"
    CITY = "city"
    LANGUAGE = "language"
    CURRENCY = "currency"
    OPTION = "listed value"


class ValueRole(Enum):
    """Where something comes from and where it goes: "from Rome to Athens"."""

    FROM = auto()
    TO = auto()


@frozen
class RequestValue:
    """One reading of one stretch of the request."""

    kind: ValueKind
    text: str  # as it is written
    start: int
    end: int
    reading: str | float | None = None  # what it means: an ISO date, a zone, a code; None: nothing certain
    unit: str = ""  # of a number: "minutes"
    role: ValueRole | None = None
    before: tuple[str, ...] = ()  # the last words before it, the nearest first
    label: str = ""  # the word right before it: "issue" in "issue 42"
    noun: str = ""  # the word right behind it: "lines" in "20 lines"
    behind: tuple[str, ...] = ()  # the next words, in the singular
    cue: str = ""  # first, last, top: how many of what
    denied: bool = False  # "not b.txt", "except b.txt": named to be left alone

    def overlaps_with(self, other: RequestValue) -> bool:
        return self.start < other.end and other.start < self.end
