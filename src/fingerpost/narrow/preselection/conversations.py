"""What was decided for each conversation, kept for all its turns.

Turns of one conversation that arrive together share one decision: the first one
makes it, the others wait. When the first is cancelled, the next one takes over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from fingerpost.frozen import frozen


@frozen
class Decision:
    """The servers a conversation keeps, and those there were when it was decided."""

    kept: frozenset[str]
    known: frozenset[str]
    by: str
    reasoning: str
    lasting: bool = True  # False: nothing was decided, the next turn may


@dataclass(slots=True)
class _Running:
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Decision | None = None


class Conversations:
    """The newest conversations, the longest unused forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._decided: OrderedDict[str, Decision] = OrderedDict()
        self._running: dict[str, _Running] = {}

    def __contains__(self, conversation: str) -> bool:
        return conversation in self._decided

    async def decided(self, conversation: str, decide: Callable[[], Awaitable[Decision]]) -> Decision:
        """The decision of this conversation, made by `decide` if there is none."""
        while (known := self._decided.get(conversation)) is None:
            running = self._running.get(conversation)
            if running is None:
                return await self._decide(conversation, decide)
            await running.done.wait()
            if running.result is not None:
                return running.result
        self._decided.move_to_end(conversation)
        return known

    async def _decide(self, conversation: str, decide: Callable[[], Awaitable[Decision]]) -> Decision:
        running = self._running[conversation] = _Running()
        try:
            running.result = await decide()
            if running.result.lasting:
                self.keep(conversation, running.result)
            return running.result
        finally:
            del self._running[conversation]
            running.done.set()

    def keep(self, conversation: str, decision: Decision) -> None:
        self._decided[conversation] = decision
        self._decided.move_to_end(conversation)
        while len(self._decided) > self._limit:
            self._decided.popitem(last=False)

    def end(self, conversation: str) -> None:
        """This conversation is over; whoever takes up its id begins anew."""
        self._decided.pop(conversation, None)
