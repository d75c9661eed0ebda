"""What a caller may use: the bounds of their key, and those of the profile they name."""

from __future__ import annotations

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import Principal, Scope
from fingerpost.router.profiles import Profiles, build_scope
from fingerpost.surfaces.web.asgi import HttpError

VERSION_HEADER = "x-api-version"


@frozen
class AccessScope:
    """What a request may touch. Empty scopes set no bound."""

    profile: str | None
    scopes: tuple[Scope, ...]


def resolve_access_scope(
    principal: Principal, profile: str | None, profiles: Profiles, *, api_version: str | None = None
) -> AccessScope:
    """What this caller may touch under this profile. Raises `Fault` where they may not use it.

    Whoever may use one profile alone means that one when they name none; others mean the one of the
    API version they name, or the one they get by default.
    """
    if profile is None and len(principal.profiles) == 1:
        profile = principal.profiles[0]
    if profile is None or principal.may_use(profile):
        profile = _resolve_profile(principal, profile, profiles, api_version)
    if not principal.may_use(profile):
        yours = ", ".join(principal.profiles)
        raise HttpError(403, f"Your key or token is for certain profiles alone. Name one of them: {yours}.")
    own = (principal.scope,) if principal.scope.bounded else ()
    scope = None if profile is None else build_scope(profile, profiles[profile])
    return AccessScope(profile=profile, scopes=own if scope is None else (*own, scope))


def _resolve_profile(
    principal: Principal, profile: str | None, profiles: Profiles, api_version: str | None
) -> str | None:
    """One that is for others is as good as none."""
    try:
        return profiles.resolve_profile(
            profile, caller=principal.name, api_version=api_version, among=principal.profiles
        )
    except FingerpostError:
        raise HttpError(404, f"There is no profile {(profile or '')[:80]!r} here.") from None


def build_conversation_id(principal: Principal, name: str) -> str:
    """The id of a conversation its caller named: the same name from another caller is another conversation.

    What a person allowed for a conversation, they allowed to the caller who asked in it.
    """
    if principal.kind == "local":
        return escape_slashes(name)
    return f"{escape_slashes(principal.name)}/{name}"


def escape_slashes(name: str) -> str:
    """The name without a "/" in it; no two names become the same."""
    return name.replace("%", "%25").replace("/", "%2F")
