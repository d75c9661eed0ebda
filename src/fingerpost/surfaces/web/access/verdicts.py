"""What looking at a credential can come to."""

from __future__ import annotations

from fingerpost.frozen import frozen
from fingerpost.records import Principal


@frozen(kw_only=False)
class KnownCredential:
    """Somebody we know."""

    principal: Principal


@frozen(kw_only=False)
class UnknownCredential:
    """Not a credential of ours. `reason` is for the audit trail; the caller never hears it."""

    reason: str


@frozen(kw_only=False)
class InsufficientCredential:
    """A good token that may not do this. `scopes` are what it would need."""

    reason: str
    scopes: tuple[str, ...] = ()
    principal: str | None = None


@frozen(kw_only=False)
class UndecidedCredential:
    """We cannot tell at the moment; `seconds` is when to ask again."""

    reason: str
    seconds: int = 5


CredentialVerdict = KnownCredential | UnknownCredential | InsufficientCredential | UndecidedCredential
