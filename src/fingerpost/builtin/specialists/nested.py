"""Asking on a caller's behalf: within their bounds, for their packet, with a share of what it may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Unpack

from fingerpost.builtin.kit import ToolCaller
from fingerpost.builtin.premises import BuiltinHost
from fingerpost.frozen import frozen
from fingerpost.records import RouteOutcome, Scope
from fingerpost.router.wanted import RouteOptions

if TYPE_CHECKING:
    from fingerpost.router import Route

SERVER: Final = "specialists"
_RESERVED_SHARE: Final = 0.95  # of the caller's time: the rest is for telling what came of it
_MAX_SHOWN_LENGTH: Final = 300


@frozen
class RequestShare:
    """What one nested request may cost. Its parent's own limits hold as well."""

    tokens: int
    seconds: float
    turns: int

    def take_part(self, of_tokens: float, of_seconds: float) -> RequestShare:
        """A part of it."""
        return RequestShare(
            tokens=max(1, int(self.tokens * of_tokens)),
            seconds=self.seconds * of_seconds,
            turns=self.turns,
        )


class NestedRequests:
    """Nested requests of one call."""

    def __init__(self, host: BuiltinHost, caller: ToolCaller) -> None:
        self._router = host.required_router
        self._context = caller.context
        self._limits = host.settings.builtin.subagents

    @property
    def has_model(self) -> bool:
        return bool(self._router.models.prime)

    @property
    def share(self) -> RequestShare:
        """All that the call may cost."""
        seconds, limits = self._limits.max_seconds, self._limits
        given = None if self._context is None else self._context.seconds
        if given is not None:
            seconds = min(seconds, given * _RESERVED_SHARE)
        return RequestShare(tokens=limits.max_tokens, seconds=seconds, turns=limits.max_turns)

    @property
    def max_parallel(self) -> int:
        return self._limits.at_once

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that may be used: a specialist that asks specialists would never end."""
        return tuple(status.name for status in self._router.servers.statuses if status.name != SERVER)

    @property
    def agent_scope(self) -> tuple[Scope, ...]:
        """What the profile gives to agents, where it gives them more than to its models."""
        profile = None if self._context is None else self._context.profile
        scope = self._router.profiles.get_agent_scope(profile)
        return () if scope is None else (scope,)

    async def ask(
        self,
        text: str,
        share: RequestShare,
        *,
        bounds: tuple[Scope, ...] = (),
        **options: Unpack[RouteOptions],
    ) -> Route:
        """One nested request. `bounds` come on top of what bounds the caller."""
        context = self._context
        options["tokens"], options["seconds"], options["max_turns"] = share.tokens, share.seconds, share.turns
        if context is None:
            options["scopes"] = bounds
            return await self._router.route(text, **options)
        options["parent"] = context.packet_id
        options["caller"], options["profile"] = context.caller, context.profile
        options["scopes"] = (*context.scopes, *bounds)
        options["working_directory"], options["dry_run"] = context.working_directory, context.dry_run
        return await self._router.route(text, **options)


def describe_problem(route: Route) -> str:
    """Why a nested request brought no answer; empty where it did."""
    if route.failure is not None:  # a model that failed; what was found without one is no answer here
        return f"{route.failure}"[:_MAX_SHOWN_LENGTH]
    if route.outcome is RouteOutcome.ANSWERED:
        return ""
    if route.outcome is RouteOutcome.LIMITED:
        return f"it ran out of its share: {route.detail}"[:_MAX_SHOWN_LENGTH]
    return (route.detail or route.answer)[:_MAX_SHOWN_LENGTH]
