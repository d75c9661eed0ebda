"""What a path means: its mode, its profile, and what may be used there."""

from __future__ import annotations

from typing import Final

from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import Principal, Scope
from fingerpost.router import Router
from fingerpost.router.profiles import build_scope
from fingerpost.settings import ProfileSettings
from fingerpost.surfaces.gateway.exchange import JsonRpcError
from fingerpost.surfaces.web.gate import Endpoint

INVALID_REQUEST: Final = -32600
_MAX_CACHED_CONFIGS: Final = 1000  # callers


class UnknownProfile(JsonRpcError):
    """The path names a profile that is not there for this caller: as good as a path that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(
            INVALID_REQUEST,
            f"there is no profile {name[:80]!r} here; ask whoever runs this gateway for the right address",
        )


@frozen
class EndpointConfig:
    """One endpoint, as the settings describe it."""

    mode: str  # auto, route, all
    profile: str | None = None
    scope: Scope | None = None
    pinned: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()  # in the words of whoever set this up

    def get_scopes(self, principal: Principal) -> tuple[Scope, ...]:
        """What bounds this caller here. Mostly nothing does."""
        own = get_principal_scopes(principal)
        return own if self.scope is None else (*own, self.scope)


def get_principal_scopes(principal: Principal) -> tuple[Scope, ...]:
    """What bounds this caller everywhere."""
    return (principal.scope,) if principal.scope.bounded else ()


class EndpointConfigs:
    """The endpoints there are, with the profiles as they are now."""

    def __init__(self, router: Router) -> None:
        self._settings = router.settings
        self._profiles = router.profiles
        self._version = self._profiles.version
        self._known: dict[tuple[str, str | None, str | None], EndpointConfig] = {}
        self._names: dict[tuple[str | None, str, tuple[str, ...]], str | None] = {}  # by path and caller

    def get_config(self, endpoint: Endpoint, principal: Principal) -> EndpointConfig:
        """What this endpoint means to this caller. Raises `UnknownProfile`."""
        if self._version != self._profiles.version:
            self._version = self._profiles.version
            self._known.clear()
            self._names.clear()
        name = self._resolve_profile(endpoint, principal)
        key = (endpoint.mode, endpoint.profile, name)
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = self._build_config(endpoint, name)
        return place

    def _resolve_profile(self, endpoint: Endpoint, principal: Principal) -> str | None:
        """The profile of the path; where it has none, the one this caller gets."""
        if not self._profiles and endpoint.profile is None:
            return None
        key = (endpoint.profile, principal.name, principal.profiles)
        if key not in self._names:
            if len(self._names) >= _MAX_CACHED_CONFIGS:
                self._names.clear()
            try:
                self._names[key] = self._profiles.resolve_profile(
                    endpoint.profile, caller=principal.name, among=principal.profiles
                )
            except FingerpostError:
                raise UnknownProfile(endpoint.profile or "") from None
        return self._names[key]

    def _build_config(self, endpoint: Endpoint, name: str | None) -> EndpointConfig:
        gateway = self._settings.gateway
        common = (gateway.instructions,) if gateway.instructions else ()
        mode = gateway.mode if endpoint.mode == "auto" else endpoint.mode
        if name is None:
            return EndpointConfig(mode=mode, pinned=gateway.pinned, instructions=common)
        profile = self._profiles[name]
        return EndpointConfig(
            mode=mode if endpoint.profile is None else profile.mode,
            profile=name,
            scope=build_scope(name, profile),
            pinned=profile.pinned or (gateway.pinned if endpoint.profile is None else ()),
            instructions=(*common, *_get_profile_instructions(profile)),
        )


def _get_profile_instructions(profile: ProfileSettings) -> tuple[str, ...]:
    return tuple(words for words in (profile.description, profile.instructions) if words)
