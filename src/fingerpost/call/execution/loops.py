"""Noticing that a conversation goes round in circles.

A step is a call and its result. A loop is the same step again and again, or the
same few steps in turn (A B A B), with nothing new coming of it. Whoever polls
is not in a loop while the results change; a tool that only reads may be asked
more often, one that reports progress more often still; and a pause between two
steps begins a new count, for a loop does not wait.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from itertools import islice

from fingerpost.call.execution.door import Clock
from fingerpost.call.execution.polling import is_polling
from fingerpost.frozen import frozen
from fingerpost.records import Call, Effect

READ_FACTOR = 2
POLLING_FACTOR = 10
LONGEST_ROUND = 4  # steps that take turns
STEPS = 240  # remembered of one conversation
CONVERSATIONS = 1000
PAUSE_SECONDS = 60.0


@frozen(kw_only=False)
class Step:
    """One call that was made, and what came of it."""

    tool: str
    call: str  # its fingerprint
    result: str  # its imprint
    limit: int
    at: float

    def same(self, other: Step) -> bool:
        return self.call == other.call and self.result == other.result


class LoopGuard:
    """The latest steps of every conversation, and whether the next call would go round again."""

    def __init__(self, *, repeat_limit: int, clock: Clock, conversations: int = CONVERSATIONS) -> None:
        self._repeat_limit = repeat_limit
        self._clock = clock
        self._conversations = conversations
        self._steps: OrderedDict[str, deque[Step]] = OrderedDict()

    def check(self, conversation: str, call: Call) -> str | None:
        """Why this call must not be made again, or None when it may."""
        steps = self._steps.get(conversation)
        if steps is None:
            return None
        for step in islice(reversed(steps), LONGEST_ROUND):
            if step.call == call.fingerprint:
                return self._round(self._since_pause(steps), call)
        return None  # most calls are new: they need no closer look

    def _round(self, steps: list[Step], call: Call) -> str | None:
        for length in range(1, LONGEST_ROUND + 1):
            rounds = self._rounds(steps, length)
            if rounds and steps[-length].call == call.fingerprint:
                return _words(steps[-length:], rounds)
        return None

    def note(self, conversation: str, call: Call, result: str, *, patience: int = 1) -> None:
        """Remember what came of a call; `result` is the same for the same result.

        `patience` is how many times more often than usual it may come again.
        """
        steps = self._steps.setdefault(conversation, deque(maxlen=STEPS))
        self._steps.move_to_end(conversation)
        limit = self._limit(call) * patience
        steps.append(Step(call.tool, call.fingerprint, result, limit, self._clock()))
        while len(self._steps) > self._conversations:
            self._steps.popitem(last=False)

    def _limit(self, call: Call) -> int:
        if call.effect is not Effect.READ:
            return self._repeat_limit
        factor = POLLING_FACTOR if is_polling(call.name) else READ_FACTOR
        return self._repeat_limit * factor

    def _since_pause(self, steps: Iterable[Step]) -> list[Step]:
        since: list[Step] = []
        for step in steps:
            if since and step.at - since[-1].at > PAUSE_SECONDS:
                since.clear()
            since.append(step)
        return since if self._clock() - since[-1].at <= PAUSE_SECONDS else []

    def _rounds(self, steps: list[Step], length: int) -> int:
        """How often the last `length` steps were made, when that is too often; otherwise 0."""
        if len(steps) < length:
            return 0
        last = steps[-length:]
        limit = max(step.limit for step in last)
        # Taking turns shows itself sooner: two full rounds of A B are four calls for nothing.
        enough = limit if length == 1 else max(2, limit - 1)
        enough = min(enough, STEPS // length)
        backwards = islice(reversed(steps), enough * length)
        repeated = [step.same(last[-1 - index % length]) for index, step in enumerate(backwards)]
        return enough if len(repeated) == enough * length and all(repeated) else 0


def _words(steps: list[Step], rounds: int) -> str:
    tools = list(dict.fromkeys(step.tool for step in steps))
    if len(steps) == 1:
        return f"{tools[0]} was called {rounds} times with the same arguments and gave the same result"
    return f"{' and '.join(tools)} were called in turn {rounds} times and gave the same results"
