"""What a caller may use: the bounds of their key, and those of the profile they name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fingerpost.records import Principal, Scope
from fingerpost.settings import ProfileSettings
from fingerpost.surfaces.web.asgi import Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a request may touch. Empty scopes set no bound."""

    profile: str | None
    scopes: tuple[Scope, ...]


def reach_of(principal: Principal, profile: str | None, profiles: Mapping[str, ProfileSettings]) -> Reach:
    """What this caller may touch under this profile. Raises `Fault` where they may not use it.

    Whoever may use one profile alone means that one when they name none.
    """
    if profile is None and len(principal.profiles) == 1:
        profile = principal.profiles[0]
    if not principal.may_use(profile):
        yours = ", ".join(principal.profiles)
        raise Fault(403, f"Your key or token is for certain profiles alone. Name one of them: {yours}.")
    own = (principal.scope,) if principal.scope.bounded else ()
    if profile is None:
        return Reach(profile=None, scopes=own)
    settings = profiles.get(profile)
    if settings is None:
        raise Fault(404, f"There is no profile {profile[:80]!r} here.")
    scope = scope_of(settings)
    return Reach(profile=profile, scopes=own if scope is None else (*own, scope))


def scope_of(profile: ProfileSettings) -> Scope | None:
    """What a profile bounds; None where it bounds nothing."""
    scope = Scope(servers=profile.servers, tools=profile.tools, effects=profile.effects)
    return scope if scope.bounded else None
