"""Whoever calls a tool of our own, as far as the tool may know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fingerpost.frozen import frozen
from fingerpost.records import CallContext, JsonObject

ReportProgress = Callable[[float, float | None, str | None], Awaitable[None]]


async def _ignore_progress(done: float, total: float | None, message: str | None) -> None:
    """Nobody wants to know how far it has come."""


@frozen
class ToolCaller:
    """One call, seen from the tool."""

    # Who calls, in which conversation, for which packet. None where the call did not come through our
    # call path: somebody runs this server alone.
    context: CallContext | None = None
    progress: ReportProgress = _ignore_progress
    granted: bool = False  # a person granted this very call
    can_be_asked: bool = False  # a `Question` would reach a person
    # What the person said to the `Question` of the round before: an object that fits its schema; None where
    # this is the first round, or (`declined`) where they would not say.
    answer: JsonObject | None = None
    declined: bool = False
    state: str = ""  # of that question

    @property
    def user(self) -> str | None:
        """The person, where we know one."""
        return None if self.context is None else self.context.caller

    @property
    def conversation(self) -> str | None:
        return None if self.context is None else self.context.conversation
