"""What a person sees while a tool is at work, by how long the waiting is.

Nothing before the tool's feedback delay: most calls are over by then. A tool of
medium speed gets its action words, a slow one how long it has been and how long it
usually takes, a very slow one also what the server last said and when we give up.
What the server reports itself is passed on, but not faster than a person reads.

`first_wait`, `next_wait` and `words_for` decide; `Progress` only waits and emits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final, Protocol, Self

from fingerpost.call.action import action_words
from fingerpost.call.execution.clock import loop_time
from fingerpost.catalog import visible
from fingerpost.events import CallProgressed, EventSink
from fingerpost.records import CallContext, JsonObject, LatencyProfile, LatencyTier, Source, ToolCard
from fingerpost.redaction import scrub

logger = logging.getLogger("fingerpost.call.progress")

__all__ = ["Progress", "action_words", "first_wait", "next_wait", "words_for"]

_EVERY: Final = {
    LatencyTier.FAST: 5.0,
    LatencyTier.MEDIUM: 5.0,
    LatencyTier.SLOW: 5.0,
    LatencyTier.VERY_SLOW: 3.0,
}
REPORT_EVERY: Final = 0.5  # seconds between what a server reports and what is shown
_LONGEST_REPORT: Final = 160


def first_wait(latency: LatencyProfile) -> float:
    """Seconds until anything is shown."""
    return latency.feedback_delay.value / 1000


def next_wait(latency: LatencyProfile, elapsed: float) -> float:
    """Seconds until the next word to the person, after one `elapsed` seconds into the call."""
    return _EVERY[_tier(latency, elapsed)]


def words_for(action: str, latency: LatencyProfile, elapsed: float, said: str = "") -> str:
    """What to say after `elapsed` seconds; `said` is what the server last reported."""
    tier = _tier(latency, elapsed)
    shown = f"{action} {said}" if said else action
    if tier in (LatencyTier.FAST, LatencyTier.MEDIUM):
        return shown
    expected = expected_seconds(latency)
    usual = f", usually about {_duration(expected)}" if expected is not None else ""
    shown = f"{shown} {_duration(elapsed)} so far{usual}"
    if tier is LatencyTier.VERY_SLOW:
        shown += f"; given up after {_duration(latency.timeout.value / 1000)} without progress"
    return shown


def expected_seconds(latency: LatencyProfile) -> float | None:
    """How long the tool usually takes, where use or a person taught it; a guess is no promise."""
    if latency.typical.source not in (Source.LEARNED, Source.WRITTEN):
        return None
    return latency.typical.value / 1000


def _tier(latency: LatencyProfile, elapsed: float) -> LatencyTier:
    """A tool that takes longer than it should is as slow as it is."""
    return LatencyTier.of(max(latency.typical.value, elapsed * 1000))


def _duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


class Timer(Protocol):
    """Something that will happen, unless it is called off."""

    def cancel(self) -> object: ...


def on_the_loop(seconds: float, action: Callable[[], None]) -> Timer:
    """Have `action` called later. No task is made for it: most calls are over before anything is due."""
    return asyncio.get_running_loop().call_later(seconds, action)


class Progress:
    """Around a running call: `with Progress(…) as progress: await call(on_progress=progress.report)`."""

    def __init__(
        self,
        card: ToolCard,
        arguments: JsonObject,
        context: CallContext,
        *,
        events: EventSink,
        clock: Callable[[], float] = loop_time,
        later: Callable[[float, Callable[[], None]], Timer] = on_the_loop,
    ) -> None:
        self._card = card
        self._latency = card.intelligence.latency
        self._arguments = arguments
        self._action: str | None = None
        self._context = context
        self._events = events
        self._clock = clock
        self._later = later
        self._timer: Timer | None = None
        self._began = 0.0
        self._reported: tuple[float | None, float | None, str] = (None, None, "")
        self._last_report = -math.inf

    def __enter__(self) -> Self:
        self._began = self._clock()
        self._timer = self._later(first_wait(self._latency), self._tick)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """What the server itself says of its progress: kept, and shown unless that was a moment ago."""
        self._reported = (_sane(progress), _sane(total), _one_line(message or ""))
        elapsed = self._elapsed
        if elapsed >= first_wait(self._latency) and elapsed - self._last_report >= REPORT_EVERY:
            self._last_report = elapsed
            self._emit(elapsed)

    def _tick(self) -> None:
        self._emit(self._elapsed)
        self._timer = self._later(next_wait(self._latency, self._elapsed), self._tick)

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._began

    def _emit(self, elapsed: float) -> None:
        progress, total, said = self._reported
        if self._action is None:
            self._action = action_words(self._card, self._arguments)
        event = CallProgressed(
            call_id=self._context.call_id,
            packet_id=self._context.packet_id or self._context.call_id,
            tool=self._card.key,
            message=words_for(self._action, self._latency, elapsed, said),
            seconds=elapsed,
            progress=progress,
            total=total,
            expected_seconds=expected_seconds(self._latency),
        )
        try:
            self._events.emit(event)
        except Exception:  # a broken reader must not end the call it watches
            logger.exception("a progress event was lost")


def _sane(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _one_line(text: str) -> str:
    said = visible(" ".join(scrub(text[: _LONGEST_REPORT * 10]).split()))
    return said if len(said) <= _LONGEST_REPORT else said[: _LONGEST_REPORT - 1].rstrip() + "…"
