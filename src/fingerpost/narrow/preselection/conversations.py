"""The servers a model chose for each conversation, kept for its later turns.

Turns of one conversation that arrive together share one model call: the first one
makes it, the others wait. When the first is cancelled, the next one takes over. A choice
that is not used for a while is forgotten, and so is the oldest when there are too many.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio

from fingerpost.frozen import frozen

ConversationKey = tuple[str | None, str]  # caller and conversation


@frozen
class ServerDecision:
    """The servers that are kept, and those there were when it was decided."""

    kept: frozenset[str]
    known: frozenset[str]
    by: str
    reasoning: str
    widened: tuple[str, ...] = ()  # of `kept`: added by later turns, in this order


@dataclass(slots=True)
class _RunningDecision:
    done: anyio.Event = field(default_factory=anyio.Event)
    result: ServerDecision | None = None


class ServerDecisionCache:
    """The newest conversations: at most `limit`, each until it was not used for `seconds`."""

    def __init__(
        self, limit: int, *, seconds: Callable[[], float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._decided: OrderedDict[ConversationKey, tuple[ServerDecision, float]] = OrderedDict()
        self._running: dict[ConversationKey, _RunningDecision] = {}

    def __contains__(self, conversation: ConversationKey) -> bool:
        return self._find(conversation) is not None

    def _find(self, conversation: ConversationKey) -> ServerDecision | None:
        found = self._decided.get(conversation)
        if found is not None and self._clock() - found[1] > self._seconds():
            del self._decided[conversation]
            return None
        return None if found is None else found[0]

    async def get_or_decide(
        self, conversation: ConversationKey, decide: Callable[[], Awaitable[ServerDecision]]
    ) -> ServerDecision:
        """The decision of this conversation, made by `decide` if there is none."""
        while (known := self._find(conversation)) is None:
            running = self._running.get(conversation)
            if running is None:
                return await self._decide(conversation, decide)
            await running.done.wait()
            if running.result is not None:
                return running.result
        self.put(conversation, known)
        return known

    async def _decide(
        self, conversation: ConversationKey, decide: Callable[[], Awaitable[ServerDecision]]
    ) -> ServerDecision:
        running = self._running[conversation] = _RunningDecision()
        try:
            running.result = await decide()
            self.put(conversation, running.result)
            return running.result
        finally:
            del self._running[conversation]
            running.done.set()

    def put(self, conversation: ConversationKey, decision: ServerDecision) -> None:
        self._decided[conversation] = (decision, self._clock())
        self._decided.move_to_end(conversation)
        while len(self._decided) > self._limit:
            self._decided.popitem(last=False)
