"""What looking at a credential can come to."""

from __future__ import annotations

from dataclasses import dataclass

from fingerpost.records import Principal


@dataclass(frozen=True, slots=True)
class Known:
    """Somebody we know."""

    principal: Principal


@dataclass(frozen=True, slots=True)
class Unknown:
    """Not a credential of ours. `reason` is for the audit trail; the caller never hears it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Insufficient:
    """A good token that may not do this. `scopes` are what it would need."""

    reason: str
    scopes: tuple[str, ...] = ()
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class Undecided:
    """We cannot tell at the moment; `seconds` is when to ask again."""

    reason: str
    seconds: int = 5


Verdict = Known | Unknown | Insufficient | Undecided
