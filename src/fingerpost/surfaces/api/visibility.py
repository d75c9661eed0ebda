"""Which requests, tools and servers a caller may see and manage, by the scope and profiles of its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fingerpost.events import Event, RequestNarrowed
from fingerpost.frozen import frozen
from fingerpost.policy.paths import PatternFit, match_exactly
from fingerpost.policy.rules import is_within_scopes
from fingerpost.records import Effect, Narrowing, Principal, Right, Scope
from fingerpost.router.profiles import Profiles
from fingerpost.surfaces.api.operation import ApiProblem
from fingerpost.surfaces.http.access import AccessScope, resolve_access_scope
from fingerpost.surfaces.http.asgi import HttpError


def get_visible_caller(principal: Principal, *also: Right) -> str | None:
    """Return None if the principal sees the requests of all callers, else its own name.

    `also` are rights that permit this besides the right to watch. Raises `ApiProblem`.
    """
    if any(principal.may(right) for right in (Right.WATCH, *also)):
        return None
    if principal.may(Right.USE):
        return principal.name
    raise build_missing_right_problem(Right.WATCH)


def is_scoped(principal: Principal) -> bool:
    """Return whether the principal is limited to some tools."""
    scope = principal.scope
    return bool(scope.servers or scope.tools or scope.effects or principal.profiles)


def check_unscoped(principal: Principal) -> None:
    """Raise `ApiProblem` for a limited principal, if the answer covers all tools."""
    if is_scoped(principal):
        detail = "Your key is limited to certain tools or profiles, and this answer covers all of them."
        raise ApiProblem(403, "You may not see this", detail)


def get_request_owner(principal: Principal) -> str | None:
    """Return the caller whose requests the principal may see in full, or None for all callers.

    A limited principal sees only its own requests. Raises `ApiProblem`.
    """
    own = get_visible_caller(principal)
    return principal.name if own is None and is_scoped(principal) else own


def filter_narrowing(narrowing: Narrowing, principal: Principal) -> Narrowing:
    """Return the narrowing without the details this caller may not see.

    Hidden tools and their rules are only for callers that may watch everything.
    """
    if principal.may(Right.WATCH) and not is_scoped(principal):
        return narrowing
    return replace(narrowing, shortlist=replace(narrowing.shortlist, hidden=()))


def filter_event(event: Event, principal: Principal) -> Event:
    """Return the event without the details this caller may not see."""
    if isinstance(event, RequestNarrowed):
        return replace(event, narrowing=filter_narrowing(event.narrowing, principal))
    return event


def build_missing_right_problem(right: Right) -> ApiProblem:
    """Build the problem for a missing right."""
    return ApiProblem(403, "You may not do this", f"Your key does not give you the right `{right}`.")


@frozen(kw_only=False)
class ManagedScope:
    """What a caller may manage: everything within all scopes of at least one of its access scopes."""

    access_scopes: tuple[AccessScope, ...]

    def covers_tool(self, key: str, server: str | None = None) -> bool:
        """Return whether the tool is within the scope. Effects are not checked here; the policy does that."""
        server = server or key.partition("/")[0]
        return self._covers(
            lambda scope: _matches_any(scope.servers, server) and _matches_any(scope.tools, key)
        )

    def covers_call(self, key: str, effect: Effect) -> bool:
        """Return whether a call of the tool with this effect is within the scope."""
        server = key.partition("/")[0]
        return any(
            is_within_scopes(access_scope.scopes, server, key, effect) for access_scope in self.access_scopes
        )

    def covers_server(self, server: str) -> bool:
        """Return whether any tool of the server may be within the scope."""
        return self._covers(
            lambda scope: (
                _matches_any(scope.servers, server)
                and _matches_any([pattern.partition("/")[0] for pattern in scope.tools], server)
            )
        )

    def _covers(self, matches: Callable[[Scope], bool]) -> bool:
        return any(all(map(matches, access_scope.scopes)) for access_scope in self.access_scopes)

    def for_profile(self, profile: str) -> ManagedScope:
        """Return the scope limited to one profile. Empty if the key is for other profiles."""
        matching = (
            access_scope for access_scope in self.access_scopes if access_scope.profile in (None, profile)
        )
        return ManagedScope(tuple(replace(access_scope, profile=profile) for access_scope in matching))

    @classmethod
    def from_principal(cls, principal: Principal, profiles: Profiles) -> ManagedScope:
        """Return the current scope of a principal. Profiles may change at run time."""
        if principal.profiles:
            return cls(tuple(_resolve_profile_scopes(principal, profiles)))
        own = (principal.scope,) if principal.scope.bounded else ()
        return cls((AccessScope(profile=None, scopes=own),))


def _resolve_profile_scopes(principal: Principal, profiles: Profiles) -> Iterator[AccessScope]:
    for name in principal.profiles:
        try:
            yield resolve_access_scope(principal, name, profiles)
        except HttpError:  # deleted, or not for this caller
            continue


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)
