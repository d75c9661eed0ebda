"""Scopes of keys and profiles: which tools they contain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fingerpost.policy.paths import PatternFit, match_exactly
from fingerpost.records import Effect, Scope

SCOPE_RULE: Final = "scope of the caller"


def add_profile_scope(
    scopes: tuple[Scope, ...], profile: str | None, bounds: Mapping[str, Scope]
) -> tuple[Scope, ...]:
    """Return the scopes with the scope of the profile added.

    If the profile defines tools for agents, those replace the profile's scope for an agent. The scope of the
    caller's key still applies.
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
    """Return whether all scopes contain the tool."""
    return all(_is_in_scope(scope, server, key, effect) for scope in scopes)


def _is_in_scope(scope: Scope, server: str, key: str, effect: Effect) -> bool:
    return (
        (not scope.effects or effect in scope.effects)
        and _matches_any(scope.servers, server)
        and _matches_any(scope.tools, key)
    )


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)
