"""What of the house somebody may see, decide and manage.

What bounds a key where it uses tools bounds it here, too: its own scope, and its profiles. A key for several
profiles reaches what any of them reaches; a profile that is gone, or is for others, reaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fingerpost.call.patterns import Fit, fits_exactly
from fingerpost.call.scopes import within
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Principal, Scope
from fingerpost.router.profiles import Profiles
from fingerpost.surfaces.web.asgi import Fault
from fingerpost.surfaces.web.reach import Reach, reach_of


@frozen(kw_only=False)
class Bounds:
    """Within them lies what is within every scope of any one reach."""

    reaches: tuple[Reach, ...]

    def hold_tool(self, server: str, key: str) -> bool:
        """Whether the tool lies within them. What it does to the world is the policy's matter."""
        return any(all(_holds_tool(scope, server, key) for scope in reach.scopes) for reach in self.reaches)

    def hold_call(self, key: str, effect: Effect) -> bool:
        """Whether a call of the tool that does this to the world lies within them."""
        server = key.partition("/")[0]
        return any(within(reach.scopes, server, key, effect) for reach in self.reaches)

    def hold_server(self, server: str) -> bool:
        """Whether any tool of the server may lie within them."""
        return any(all(_holds_server(scope, server) for scope in reach.scopes) for reach in self.reaches)

    def through(self, profile: str) -> Bounds:
        """The same through the eyes of one profile: nothing, where the key is for others."""
        mine = (reach for reach in self.reaches if reach.profile in (None, profile))
        return Bounds(tuple(replace(reach, profile=profile) for reach in mine))


def bounds_of(principal: Principal, profiles: Profiles) -> Bounds:
    """What bounds them now: profiles can change while somebody looks."""
    if principal.profiles:
        return Bounds(tuple(_through_profiles(principal, profiles)))
    own = (principal.scope,) if principal.scope.bounded else ()
    return Bounds((Reach(profile=None, scopes=own),))


def _through_profiles(principal: Principal, profiles: Profiles) -> Iterator[Reach]:
    for name in principal.profiles:
        try:
            yield reach_of(principal, name, profiles)
        except Fault:  # it is gone, or for others
            continue


def _holds_tool(scope: Scope, server: str, key: str) -> bool:
    return _one_of(scope.servers, server) and _one_of(scope.tools, key)


def _holds_server(scope: Scope, server: str) -> bool:
    owners = tuple(pattern.partition("/")[0] for pattern in scope.tools)
    return _one_of(scope.servers, server) and _one_of(owners, server)


def _one_of(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(fits_exactly(pattern, name) is Fit.YES for pattern in patterns)
