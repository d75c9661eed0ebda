"""What of the house somebody may see, decide and manage.

What bounds a key where it uses tools bounds it here, too: its own scope, and its profiles. A key for several
profiles reaches what any of them reaches; a profile that is gone, or is for others, reaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fingerpost.call.patterns import PatternFit, match_exactly
from fingerpost.call.scopes import is_within_scopes
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Principal, Scope
from fingerpost.router.profiles import Profiles
from fingerpost.surfaces.web.asgi import HttpError
from fingerpost.surfaces.web.reach import AccessScope, resolve_access_scope


@frozen(kw_only=False)
class ManagedScope:
    """Within them lies what is within every scope of any one reach."""

    access_scopes: tuple[AccessScope, ...]

    def covers_tool(self, server: str, key: str) -> bool:
        """Whether the tool lies within them. What it does to the world is the policy's matter."""
        return any(
            all(_covers_tool(scope, server, key) for scope in reach.scopes) for reach in self.access_scopes
        )

    def covers_call(self, key: str, effect: Effect) -> bool:
        """Whether a call of the tool that does this to the world lies within them."""
        server = key.partition("/")[0]
        return any(is_within_scopes(reach.scopes, server, key, effect) for reach in self.access_scopes)

    def covers_server(self, server: str) -> bool:
        """Whether any tool of the server may lie within them."""
        return any(
            all(_covers_server(scope, server) for scope in reach.scopes) for reach in self.access_scopes
        )

    def for_profile(self, profile: str) -> ManagedScope:
        """The same through the eyes of one profile: nothing, where the key is for others."""
        mine = (reach for reach in self.access_scopes if reach.profile in (None, profile))
        return ManagedScope(tuple(replace(reach, profile=profile) for reach in mine))


def build_managed_scope(principal: Principal, profiles: Profiles) -> ManagedScope:
    """What bounds them now: profiles can change while somebody looks."""
    if principal.profiles:
        return ManagedScope(tuple(_resolve_profile_scopes(principal, profiles)))
    own = (principal.scope,) if principal.scope.bounded else ()
    return ManagedScope((AccessScope(profile=None, scopes=own),))


def _resolve_profile_scopes(principal: Principal, profiles: Profiles) -> Iterator[AccessScope]:
    for name in principal.profiles:
        try:
            yield resolve_access_scope(principal, name, profiles)
        except HttpError:  # it is gone, or for others
            continue


def _covers_tool(scope: Scope, server: str, key: str) -> bool:
    return _matches_any(scope.servers, server) and _matches_any(scope.tools, key)


def _covers_server(scope: Scope, server: str) -> bool:
    owners = tuple(pattern.partition("/")[0] for pattern in scope.tools)
    return _matches_any(scope.servers, server) and _matches_any(owners, server)


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)
