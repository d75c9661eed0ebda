"""Whether a tool lies within what a caller may use at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fingerpost.call.patterns import PatternFit, match_exactly
from fingerpost.records import Effect, Scope


def add_profile_scope(
    scopes: tuple[Scope, ...], profile: str | None, bounds: Mapping[str, Scope]
) -> tuple[Scope, ...]:
    """The scopes, and with them what bounds the profile: nobody has to remember to say it.

    For an agent that the profile gives tools of its own, those stand for the profile's bounds; what bounds
    the caller's key holds for the agent as well.
    """
    bound = None if profile is None else bounds.get(profile)
    if bound is not None and bound not in scopes:
        scopes = (*scopes, bound)
    delegated = {scope.profile for scope in scopes if scope.delegated}
    if not delegated:
        return scopes
    return tuple(
        scope
        for scope in scopes
        if scope.delegated or scope.profile is None or scope.profile not in delegated
    )


def is_within_scopes(scopes: Iterable[Scope], server: str, key: str, effect: Effect) -> bool:
    """Whether every one of these scopes holds the tool."""
    return all(_is_in_scope(scope, server, key, effect) for scope in scopes)


def _is_in_scope(scope: Scope, server: str, key: str, effect: Effect) -> bool:
    return (
        (not scope.effects or effect in scope.effects)
        and _matches_any(scope.servers, server)
        and _matches_any(scope.tools, key)
    )


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)
