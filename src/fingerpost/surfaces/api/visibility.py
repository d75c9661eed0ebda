"""Which requests, tools and servers a caller may see, decide about and manage: bounded by the scope and
profiles of their key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fingerpost.call.paths import PatternFit, match_exactly
from fingerpost.call.visibility import is_within_scopes
from fingerpost.events import Event, RequestNarrowed
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Narrowing, Principal, Right, Scope
from fingerpost.router.profiles import Profiles
from fingerpost.surfaces.api.operation import ApiProblem
from fingerpost.surfaces.http.access import AccessScope, resolve_access_scope
from fingerpost.surfaces.http.asgi import HttpError


def get_visible_caller(principal: Principal, *also: Right) -> str | None:
    """None: they see everybody's. Else the name of the caller whose requests they see: their own.

    `also` are rights that let one see everything here, beside that to watch. Raises `ApiProblem`.
    """
    if any(principal.may(right) for right in (Right.WATCH, *also)):
        return None
    if principal.may(Right.USE):
        return principal.name
    raise build_missing_right(Right.WATCH)


def is_scoped(principal: Principal) -> bool:
    """Whether they may use some tools alone: requests of others may name any, and so may the settings."""
    scope = principal.scope
    return bool(scope.servers or scope.tools or scope.effects or principal.profiles)


def check_unscoped(principal: Principal) -> None:
    """Raises `ApiProblem` for who is bound, where an answer speaks of everything there is."""
    if is_scoped(principal):
        detail = "Your key is bound to certain tools or profiles, and this speaks of all there are."
        raise ApiProblem(403, "You may not see this", detail)


def get_request_owner(principal: Principal) -> str | None:
    """Whose requests they see, with everything that was considered for them; None: everybody's.

    Who is bound sees their own, whatever their rights. Raises `ApiProblem`.
    """
    own = get_visible_caller(principal)
    return principal.name if own is None and is_scoped(principal) else own


def filter_narrowing(narrowing: Narrowing, principal: Principal) -> Narrowing:
    """What was found for a request, as this caller may hear it.

    Which tools are hidden from them, and by which rule, is for those who may watch everything.
    """
    if principal.may(Right.WATCH) and not is_scoped(principal):
        return narrowing
    return replace(narrowing, shortlist=replace(narrowing.shortlist, hidden=()))


def filter_event(event: Event, principal: Principal) -> Event:
    """The event, as this caller may hear it."""
    if isinstance(event, RequestNarrowed):
        return replace(event, narrowing=filter_narrowing(event.narrowing, principal))
    return event


def build_missing_right(right: Right) -> ApiProblem:
    """What somebody hears who lacks a right."""
    return ApiProblem(403, "You may not do this", f"Your key does not give you the right `{right}`.")


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
