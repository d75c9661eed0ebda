"""What a path means: its mode, its profile, and what may be used there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fingerpost.records import Principal, Scope
from fingerpost.settings import ProfileSettings, Settings
from fingerpost.surfaces.gateway.exchange import Refusal
from fingerpost.surfaces.web.gate import Endpoint
from fingerpost.surfaces.web.reach import scope_of

INVALID_REQUEST: Final = -32600


class UnknownProfile(Refusal):
    """The path names a profile that is not configured: as good as a path that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(
            INVALID_REQUEST,
            f"there is no profile {name[:80]!r} here; ask whoever runs this gateway for the right address",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One endpoint, as the settings describe it."""

    mode: str  # auto, route, all
    profile: str | None = None
    scope: Scope | None = None
    pinned: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()  # in the words of whoever set this up

    def scopes(self, principal: Principal) -> tuple[Scope, ...]:
        """What bounds this caller here. Mostly nothing does."""
        own = (principal.scope,) if principal.scope.bounded else ()
        return own if self.scope is None else (*own, self.scope)


class Places:
    """The endpoints there are."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[tuple[str, str | None], Place] = {}

    def of(self, endpoint: Endpoint) -> Place:
        """What this endpoint means. Raises `UnknownProfile`."""
        key = (endpoint.mode, endpoint.profile)
        place = self._known.get(key)
        if place is None:
            place = self._read(endpoint)
            self._known[key] = place
        return place

    def _read(self, endpoint: Endpoint) -> Place:
        gateway = self._settings.gateway
        common = (gateway.instructions,) if gateway.instructions else ()
        if endpoint.profile is None:
            mode = gateway.mode if endpoint.mode == "auto" else endpoint.mode
            return Place(mode=mode, pinned=gateway.pinned, instructions=common)
        profile = self._settings.profiles.get(endpoint.profile)
        if profile is None:
            raise UnknownProfile(endpoint.profile)
        return Place(
            mode=profile.mode,
            profile=endpoint.profile,
            scope=scope_of(profile),
            pinned=profile.pinned,
            instructions=(*common, *_words(profile)),
        )


def _words(profile: ProfileSettings) -> tuple[str, ...]:
    return tuple(words for words in (profile.description, profile.instructions) if words)
