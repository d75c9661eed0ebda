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
from fingerpost.choose.thresholds import MIN_MOVE, AdaptedThreshold, ThresholdBounds, adapt_threshold
from fingerpost.events import EventSink, ThresholdMoved
from fingerpost.records import Effect, Threshold, ToolCard, utc_now
from fingerpost.settings import Settings
from fingerpost.store import Store
from fingerpost.store.learned import EVERYBODY

THRESHOLD_NAME: Final = "tool_routing.confidence_threshold"
THRESHOLD_REFRESH_S: Final = 30.0


class ConfidenceThresholds:
    """One for each router."""

    def __init__(self, settings: Settings, store: Store, events: EventSink) -> None:
        self._settings = settings
        self._store = store
        self._events = events
        self._value = settings.tool_routing.confidence_threshold
        self._read_at = -THRESHOLD_REFRESH_S
        self._reading = anyio.Lock()

    async def get_settings(self, card: ToolCard) -> Settings:
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
        self._read_at = -THRESHOLD_REFRESH_S

    async def _refresh(self) -> None:
        async with self._reading:
            if time.monotonic() - self._read_at < THRESHOLD_REFRESH_S:
                return
            self._read_at = time.monotonic()
            before = await self._read_previous()
            asked = await self._compute_adapted()
            if abs(asked.value - before) < MIN_MOVE:
                self._value = before
                return
            self._value = asked.value
            await self._move_threshold(before, asked)

    async def _read_previous(self) -> float:
        """Where it stood, here or in another process; a new setting begins anew."""
        base = self._settings.tool_routing.confidence_threshold
        for moved in await self._store.learned.list_thresholds():
            if moved.name == THRESHOLD_NAME and moved.base == base:
                return moved.value
        return base

    async def _compute_adapted(self) -> AdaptedThreshold:
        settings, learning = self._settings, self._settings.learning
        marks = await self._store.learned.get_marks("thresholds")
        samples = await self._store.confidences.list_recent(since=marks.get(EVERYBODY))
        bounds = ThresholdBounds(
            base=settings.tool_routing.confidence_threshold,
            max_move=learning.threshold_reach,
            min_samples=learning.threshold_samples,
            target_accuracy=learning.threshold_right,
        )

        def work() -> AdaptedThreshold:
            fitted = Calibration.fit(samples) if settings.flags.calibration else Calibration.create_identity()
            return adapt_threshold(samples, fitted, bounds)

        return await anyio.to_thread.run_sync(work)

    async def _move_threshold(self, before: float, adapted: AdaptedThreshold) -> None:
        base = self._settings.tool_routing.confidence_threshold
        moved = Threshold(
            name=THRESHOLD_NAME,
            base=base,
            value=adapted.value,
            at=utc_now(),
            reason=adapted.reason,
            samples=adapted.samples,
        )
        await self._store.learned.set_threshold(moved)
        self._events.emit(
            ThresholdMoved(
                name=THRESHOLD_NAME,
                before=before,
                after=adapted.value,
                base=base,
                reason=adapted.reason,
                samples=adapted.samples,
            )
        )
