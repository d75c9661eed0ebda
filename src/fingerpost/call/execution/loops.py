"""Noticing that a conversation goes round in circles.

A step is a call and its result. A loop is the same step again and again, or the
same few steps in turn (A B A B), with nothing new coming of it. Whoever polls
is not in a loop while the results change; a tool that only reads may be asked
more often, one that reports progress more often still; and a pause between two
steps begins a new count, for a loop does not wait.

Through the gateway programs call, too, and a program that reads the same thing
a thousand times may have its reasons. Whoever asks again sooner than any model
could have read the refusal is a program: it is told once, then let through.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import islice
from typing import TypeVar

from fingerpost.call.execution.door import Clock
from fingerpost.call.execution.polling import is_polling
from fingerpost.frozen import frozen
from fingerpost.records import Call, Effect

V = TypeVar("V")

READ_FACTOR = 2
POLLING_FACTOR = 10
LONGEST_ROUND = 4  # steps that take turns
STEPS = 240  # remembered of one conversation
CONVERSATIONS = 1000
PAUSE_SECONDS = 60.0
QUICK_SECONDS = 0.1  # no model reads a result and writes its next call within that


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
        # When the calls refused last were, by conversation and fingerprint.
        self._told: OrderedDict[str, OrderedDict[str, float]] = OrderedDict()

    def check(self, conversation: str, call: Call, *, may_insist: bool = False) -> str | None:
        """Why this call must not be made again, or None when it may.

        `may_insist`: a read that is asked for again at once was asked for by a program, and goes through.
        """
        steps = self._steps.get(conversation)
        if steps is None:
            return None
        lately = islice(reversed(steps), LONGEST_ROUND)
        last = next((step for step in lately if step.call == call.fingerprint), None)
        if last is None:
            return None  # most calls are new: they need no closer look
        now = self._clock()
        if may_insist and call.effect is Effect.READ and self._insists(conversation, last, now):
            return None
        reason = _round(steps, call, now)
        if reason is not None:
            told = self._told.get(conversation) or OrderedDict[str, float]()
            _keep(told, call.fingerprint, now, most=LONGEST_ROUND)
            _keep(self._told, conversation, told, most=self._conversations)
        return reason

    def _insists(self, conversation: str, last: Step, now: float) -> bool:
        """Whether the call of this step was refused, and has hardly been out of sight since."""
        told = self._told.get(conversation)
        at = told.get(last.call) if told is not None else None
        return at is not None and now - max(at, last.at) <= QUICK_SECONDS

    def note(self, conversation: str, call: Call, result: str, *, patience: int = 1) -> None:
        """Remember what came of a call; `result` is the same for the same result.

        `patience` is how many times more often than usual it may come again.
        """
        steps = self._steps.get(conversation) or deque[Step](maxlen=STEPS)
        limit = self._limit(call) * patience
        steps.append(Step(call.tool, call.fingerprint, result, limit, self._clock()))
        _keep(self._steps, conversation, steps, most=self._conversations)

    def _limit(self, call: Call) -> int:
        if call.effect is not Effect.READ:
            return self._repeat_limit
        factor = POLLING_FACTOR if is_polling(call.name) else READ_FACTOR
        return self._repeat_limit * factor


def _keep(memory: OrderedDict[str, V], key: str, value: V, *, most: int) -> None:
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > most:
        memory.popitem(last=False)


def _round(steps: deque[Step], call: Call, now: float) -> str | None:
    if now - steps[-1].at > PAUSE_SECONDS:
        return None
    for length in range(1, min(LONGEST_ROUND, len(steps)) + 1):
        if steps[-length].call == call.fingerprint and (rounds := _rounds(steps, length)):
            return _words([steps[place] for place in range(-length, 0)], rounds)
    return None


def _rounds(steps: deque[Step], length: int) -> int:
    """How often the last `length` steps were made, when that is too often; otherwise 0."""
    backwards = list(islice(reversed(steps), length))
    limit = max(step.limit for step in backwards)
    # Taking turns shows itself sooner: two full rounds of A B are four calls for nothing.
    enough = limit if length == 1 else max(2, limit - 1)
    enough = min(enough, STEPS // length)
    if len(steps) < enough * length:
        return 0
    later = backwards[0]
    for index, step in enumerate(islice(reversed(steps), enough * length)):
        if later.at - step.at > PAUSE_SECONDS or not step.same(backwards[index % length]):
            return 0
        later = step
    return enough


def _words(steps: list[Step], rounds: int) -> str:
    tools = list(dict.fromkeys(step.tool for step in steps))
    if len(steps) == 1:
        return f"{tools[0]} was called {rounds} times with the same arguments and gave the same result"
    return f"{' and '.join(tools)} were called in turn {rounds} times and gave the same results"
