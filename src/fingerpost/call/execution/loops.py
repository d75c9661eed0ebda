"""Refuses calls that repeat in a loop, and identical writes that look accidental."""

from __future__ import annotations

import re
from collections import OrderedDict, deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Final, Self

from fingerpost.call.execution.run import CallRun
from fingerpost.call.execution.upstream import TimeSource
from fingerpost.frozen import frozen
from fingerpost.records import Call, Effect, ErrorKind, Execution

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# fmt: off
_POLLING_WORDS = frozenset({
    "status", "state", "progress", "poll", "wait", "watch", "check", "health", "ping", "job", "jobs", "queue",
})
# fmt: on


@lru_cache(maxsize=4096)
def is_polling_tool(name: str) -> bool:
    """Return whether the tool polls the state of something."""
    return not _POLLING_WORDS.isdisjoint(_split_words(name))


def _split_words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


READ_FACTOR = 2
POLLING_FACTOR = 10
MAX_ROUND_LENGTH = 4  # different steps in one round of a loop
MAX_STEPS = 240  # kept per conversation
MAX_CONVERSATIONS = 1000
PAUSE_SECONDS = 60.0
QUICK_SECONDS = 0.1  # a model cannot read a result and write its next call within this time


@frozen(kw_only=False)
class LoopStep:
    """A call and its result."""

    tool: str
    call: str  # fingerprint
    result: str  # hash
    limit: int
    at: float

    def is_same(self, other: LoopStep) -> bool:
        return self.call == other.call and self.result == other.result


@dataclass(slots=True)
class _ConversationSteps:
    """The recent calls of one conversation."""

    steps: deque[LoopStep] = field(default_factory=lambda: deque[LoopStep](maxlen=MAX_STEPS))
    refused_at: dict[str, float] = field(default_factory=dict[str, float])  # when a call was refused

    def mark_refused(self, call: str, now: float) -> None:
        self.refused_at.pop(call, None)
        self.refused_at[call] = now
        if len(self.refused_at) > MAX_ROUND_LENGTH:
            del self.refused_at[next(iter(self.refused_at))]


class TrackedStep:
    """A running call. After the block, `is_last` says whether it was the last of concurrent equal calls: its
    result is recorded for all of them.
    """

    __slots__ = ("_counts", "_key", "is_last")

    def __init__(self, counts: dict[tuple[str, str], int], key: tuple[str, str] | None) -> None:
        self._counts = counts
        self._key = key
        self.is_last = False

    def __enter__(self) -> Self:
        if self._key is not None:
            self._counts[self._key] = self._counts.get(self._key, 0) + 1
        return self

    def __exit__(self, *_: object) -> None:
        if self._key is not None:
            left = self._counts.pop(self._key) - 1
            if left:
                self._counts[self._key] = left
            self.is_last = not left


class LoopGuard:
    """Keeps the latest calls of every conversation and detects loops."""

    def __init__(
        self, *, repeat_limit: int, clock: TimeSource, conversations: int = MAX_CONVERSATIONS
    ) -> None:
        self._repeat_limit = repeat_limit
        self._clock = clock
        self._conversations = conversations
        self._recent_steps: OrderedDict[str, _ConversationSteps] = OrderedDict()
        self._running: dict[tuple[str, str], int] = {}  # number of equal calls

    def find_loop(self, conversation: str, call: Call, *, may_insist: bool = False) -> str | None:
        """Return why this call must not be repeated, or None if it may. A refusal is recorded.

        `may_insist`: a refused read that is repeated at once comes from a program and is allowed.
        """
        recent = self._recent_steps.get(conversation)
        if recent is None or (conversation, call.fingerprint) in self._running:
            return None
        lately = islice(reversed(recent.steps), MAX_ROUND_LENGTH)
        last = next((step for step in lately if step.call == call.fingerprint), None)
        if last is None:
            return None  # most calls are new and need no further check
        now = self._clock()
        if may_insist and call.effect is Effect.READ and _is_insisting(recent, last, now):
            return None
        reason = _find_loop_reason(recent.steps, call, now)
        if reason is not None:
            recent.mark_refused(call.fingerprint, now)
        return reason

    def track(self, conversation: str | None, call: Call) -> TrackedStep:
        """Count the call as running while the returned block is entered, if there is a conversation."""
        return TrackedStep(self._running, None if conversation is None else (conversation, call.fingerprint))

    def record_result(self, conversation: str, call: Call, result: str, *, tolerance: int = 1) -> None:
        """Record the result of a call. `result` is equal for equal results.

        `tolerance` multiplies the number of allowed repetitions.
        """
        recent = self._recent_steps.get(conversation)
        if recent is None:
            recent = self._recent_steps[conversation] = _ConversationSteps()
        self._recent_steps.move_to_end(conversation)
        limit = self._get_limit(call) * tolerance
        recent.steps.append(LoopStep(call.tool, call.fingerprint, result, limit, self._clock()))
        while len(self._recent_steps) > self._conversations:
            self._recent_steps.popitem(last=False)

    def _get_limit(self, call: Call) -> int:
        if call.effect is not Effect.READ:
            return self._repeat_limit
        factor = POLLING_FACTOR if is_polling_tool(call.name) else READ_FACTOR
        return self._repeat_limit * factor


def _is_insisting(conversation: _ConversationSteps, last: LoopStep, now: float) -> bool:
    """Return whether this call was refused and is repeated almost without pause."""
    at = conversation.refused_at.get(last.call)
    return at is not None and now - max(at, last.at) <= QUICK_SECONDS


def _find_loop_reason(steps: deque[LoopStep], call: Call, now: float) -> str | None:
    if now - steps[-1].at > PAUSE_SECONDS:
        return None
    for length in range(1, min(MAX_ROUND_LENGTH, len(steps)) + 1):
        if steps[-length].call == call.fingerprint and (rounds := _count_rounds(steps, length)):
            return _describe_round([steps[place] for place in range(-length, 0)], rounds)
    return None


def _count_rounds(steps: deque[LoopStep], length: int) -> int:
    """Return how often the last `length` steps were repeated if that is too often, else 0."""
    backwards = list(islice(reversed(steps), length))
    limit = max(step.limit for step in backwards)
    # Alternating steps are refused earlier: two rounds of A B are four useless calls.
    enough = limit if length == 1 else max(2, limit - 1)
    enough = min(enough, MAX_STEPS // length)
    if len(steps) < enough * length:
        return 0
    later = backwards[0]
    for index, step in enumerate(islice(reversed(steps), enough * length)):
        if later.at - step.at > PAUSE_SECONDS or not step.is_same(backwards[index % length]):
            return 0
        later = step
    return enough


def _describe_round(steps: list[LoopStep], rounds: int) -> str:
    tools = list(dict.fromkeys(step.tool for step in steps))
    if len(steps) == 1:
        return f"{tools[0]} was called {rounds} times with the same arguments and gave the same result"
    return f"{' and '.join(tools)} were called in turn {rounds} times and gave the same results"


REMEMBERED_SECONDS: Final = 60.0  # for interrupted writes
MAX_REMEMBERED: Final = 1000

DuplicateKey = tuple[str, str, str | None, str]


def build_duplicate_key(run: CallRun) -> DuplicateKey | None:
    """Return the key that identical writes of one conversation share, or None if the call is not checked."""
    call, context = run.call, run.context
    where = context.conversation or context.packet_id or context.asker
    if (
        call.effect is Effect.READ
        or where is None
        or run.is_continuation
        or context.idempotency_key is not None
    ):
        return None
    return (call.fingerprint, where, context.caller, run.permit.given_by)


class DuplicateGuard:
    """The running writes, and those whose caller cancelled them."""

    def __init__(self, *, clock: TimeSource) -> None:
        self._clock = clock
        self._running: set[DuplicateKey] = set()
        self._interrupted: dict[DuplicateKey, float] = {}

    @contextmanager
    def track(self, run: CallRun) -> Generator[Execution | None]:
        """Track a running write. Yield the refused execution if it must not run."""
        key = build_duplicate_key(run)
        refused = None if key is None else self._refuse(key, run.call)
        if key is None or refused is not None:
            yield refused
            return
        self._running.add(key)
        try:
            yield None
        except BaseException:
            if run.in_flight is not None:
                self._interrupted[key] = self._clock()
                if len(self._interrupted) > MAX_REMEMBERED:
                    del self._interrupted[next(iter(self._interrupted))]
            raise
        finally:
            self._running.discard(key)

    def _refuse(self, key: DuplicateKey, call: Call) -> Execution | None:
        """Return the refused execution of this call, or None. An interrupted write is refused once."""
        if key in self._running:
            return _build_duplicate_refusal(
                call,
                f"the same call of {call.tool} is still running in this conversation; this one was not run",
                hint="wait for the first; repeat it after the first has ended if you want both",
            )
        at = self._interrupted.pop(key, None)
        if at is not None and self._clock() - at < REMEMBERED_SECONDS:
            return _build_duplicate_refusal(
                call,
                f"the same call of {call.tool} was interrupted {self._clock() - at:.0f} s ago while the "
                "tool was at work, so it may have taken effect; this one was not run",
                hint="check what the first one did; another call will run",
            )
        return None


def _build_duplicate_refusal(call: Call, detail: str, *, hint: str) -> Execution:
    return Execution(call=call, attempts=(), error=ErrorKind.DUPLICATE, detail=detail, hint=hint)
