"""The confidence threshold as it is now, where it may follow measured results.

It falls for calls that only read: what changes something is never asked for with
less certainty than the settings say, whatever was measured.
"""

from __future__ import annotations

import time
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.choose.calibration import Calibration
from fingerpost.choose.thresholds import LEAST_MOVE, Adapted, Bounds, adapt
from fingerpost.events import EventSink, ThresholdMoved
from fingerpost.records import Effect, Threshold, ToolCard, utc_now
from fingerpost.settings import Settings
from fingerpost.store import Store
from fingerpost.store.learned import EVERYBODY

NAME: Final = "tool_routing.confidence_threshold"
READ_AGAIN_S: Final = 30.0


class Thresholds:
    """One for each router."""

    def __init__(self, settings: Settings, store: Store, events: EventSink) -> None:
        self._settings = settings
        self._store = store
        self._events = events
        self._value = settings.tool_routing.confidence_threshold
        self._read_at = -READ_AGAIN_S
        self._reading = anyio.Lock()

    async def settings_for(self, card: ToolCard) -> Settings:
        """The settings by which a call of this tool is judged."""
        if not self._settings.flags.adaptive_thresholds:
            return self._settings
        await self._refresh()
        base = self._settings.tool_routing.confidence_threshold
        value = self._value if card.effect.value is Effect.READ else max(base, self._value)
        if value == base:
            return self._settings
        routing = self._settings.tool_routing.model_copy(update={"confidence_threshold": value})
        return self._settings.model_copy(update={"tool_routing": routing})

    def forget(self) -> None:
        """What was learned is forgotten: look again before the next call."""
        self._value = self._settings.tool_routing.confidence_threshold
        self._read_at = -READ_AGAIN_S

    async def _refresh(self) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < READ_AGAIN_S:
                return
            self._read_at = time.monotonic()
            before = await self._before()
            asked = await self._asked_for()
            if abs(asked.value - before) < LEAST_MOVE:
                self._value = before
                return
            self._value = asked.value
            await self._move(before, asked)

    async def _before(self) -> float:
        """Where it stood, here or in another process; a new setting begins anew."""
        base = self._settings.tool_routing.confidence_threshold
        for moved in await self._store.learned.thresholds():
            if moved.name == NAME and moved.base == base:
                return moved.value
        return base

    async def _asked_for(self) -> Adapted:
        settings, learning = self._settings, self._settings.learning
        marks = await self._store.learned.marks("thresholds")
        samples = await self._store.confidences.recent(since=marks.get(EVERYBODY))
        bounds = Bounds(
            base=settings.tool_routing.confidence_threshold,
            reach=learning.threshold_reach,
            samples=learning.threshold_samples,
            right=learning.threshold_right,
        )

        def work() -> Adapted:
            fitted = Calibration.fit(samples) if settings.flags.calibration else Calibration.identity()
            return adapt(samples, fitted, bounds)

        return await anyio.to_thread.run_sync(work)

    async def _move(self, before: float, asked: Adapted) -> None:
        base = self._settings.tool_routing.confidence_threshold
        moved = Threshold(
            name=NAME,
            base=base,
            value=asked.value,
            at=utc_now(),
            reason=asked.reason,
            samples=asked.samples,
        )
        await self._store.learned.move(moved)
        self._events.emit(
            ThresholdMoved(
                name=NAME,
                before=before,
                after=asked.value,
                base=base,
                reason=asked.reason,
                samples=asked.samples,
            )
        )
