"""Whether a tool lies within what a caller may use at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fingerpost.call.patterns import Fit, fits_exactly
from fingerpost.records import Effect, Scope


def bounded_by(
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


def within(scopes: Iterable[Scope], server: str, key: str, effect: Effect) -> bool:
    """Whether every one of these scopes holds the tool."""
    return all(_holds(scope, server, key, effect) for scope in scopes)


def _holds(scope: Scope, server: str, key: str, effect: Effect) -> bool:
    return (
        (not scope.effects or effect in scope.effects)
        and _one_of(scope.servers, server)
        and _one_of(scope.tools, key)
    )


def _one_of(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(fits_exactly(pattern, name) is Fit.YES for pattern in patterns)
