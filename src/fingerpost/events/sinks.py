"""Event sinks: memory, log, live readers, and deferred delivery."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any, Final, Protocol, cast

import anyio

from fingerpost.events.base import BatchSink, Event, EventSink
from fingerpost.events.servers import EventsDropped
from fingerpost.records import utc_now

logger = logging.getLogger("fingerpost.events")


class Fanout:
    """A sink that forwards every event to several sinks. A failing sink does not affect the others."""

    def __init__(self, *sinks: EventSink) -> None:
        self._sinks: list[EventSink] = []
        self._batch_indexes: set[int] = set()  # indexes of batch sinks
        self._pending_sources: list[Callable[[], None]] = []
        self.failures = 0
        for sink in sinks:
            self.add(sink)

    def add(self, sink: EventSink) -> None:
        if isinstance(sink, BatchSink):
            self._batch_indexes.add(len(self._sinks))
        self._sinks.append(sink)

    def add_pending_source(self, emit_pending: Callable[[], None]) -> None:
        """Register a function that emits buffered events, called before each single event."""
        self._pending_sources.append(emit_pending)

    def emit(self, event: Event) -> None:
        for emit_source in self._pending_sources:
            emit_source()
        for sink in self._sinks:
            try:
                sink.emit(event)
            except Exception:  # noqa: BLE001 - a failing sink must not affect the others
                self._note_failure(event)

    def emit_all(self, events: Sequence[Event]) -> None:
        """Emit several events in order. Called by the registered sources, so these are not called here."""
        for index, sink in enumerate(self._sinks):
            if index in self._batch_indexes:
                try:
                    cast("BatchSink", sink).emit_all(events)
                except Exception:  # noqa: BLE001 - as above
                    self._note_failure(*events)
                continue
            for event in events:
                try:
                    sink.emit(event)
                except Exception:  # noqa: BLE001 - as above
                    self._note_failure(event)

    def _note_failure(self, *events: Event) -> None:
        self.failures += 1
        logger.exception("an event sink failed on %s", ", ".join(event.kind for event in events))


class MemorySink:
    """Keeps the newest events, for tests and for use without a database."""

    def __init__(self, limit: int = 10_000) -> None:
        self._events: deque[Event] = deque(maxlen=limit)

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    def emit(self, event: Event) -> None:
        self._events.append(event)


class LogSink:
    """Writes one log line per event."""

    def __init__(self, log: logging.Logger = logger, level: int = logging.INFO) -> None:
        self._log = log
        self._level = level

    def emit(self, event: Event) -> None:
        if self._log.isEnabledFor(self._level):
            subject = f" {event.packet_id}" if event.packet_id else ""
            self._log.log(self._level, "%s%s %s", event.kind, subject, event.summary())


class LiveFeed:
    """Live events for any number of readers.

    A slow reader loses its oldest events and gets an `EventsDropped` marker in their place. Emitting never
    waits.
    """

    def __init__(self) -> None:
        self._readers: set[_FeedReader] = set()

    def emit(self, event: Event) -> None:
        for reader in tuple(self._readers):
            reader.put(event)

    def emit_all(self, events: Sequence[Event]) -> None:
        for reader in tuple(self._readers):
            for event in events:
                reader.put(event)

    @contextmanager
    def subscribe(self, *, limit: int = 1000) -> Generator[AsyncIterator[Event]]:
        """Yield a stream of all events emitted until the block ends."""
        reader = _FeedReader(limit)
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)


class _FeedReader(AsyncIterator[Event]):
    def __init__(self, limit: int) -> None:
        self._queue: deque[Event] = deque()
        self._limit = limit
        self._lost = 0
        self._arrived = anyio.Event()

    def put(self, event: Event) -> None:
        if len(self._queue) >= self._limit:
            self._queue.popleft()
            self._lost += 1
        self._queue.append(event)
        self._arrived.set()

    async def __anext__(self) -> Event:
        while not self._queue:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        if self._lost:
            lost, self._lost = self._lost, 0
            return EventsDropped(count=lost)
        return self._queue.popleft()


DEFER_SECONDS: Final = 0.01
MAX_DEFERRED: Final = 64  # waiting events that trigger a flush


class EventRecorder(EventSink, Protocol):
    """A sink that also creates events."""

    def record(self, kind: type[Event], **facts: Any) -> None:
        """Create an event with the current time and emit it."""
        ...


class ImmediateRecorder:
    """Creates and emits events synchronously. A failing sink does not affect the caller."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = Fanout(sink)

    def emit(self, event: Event) -> None:
        self._sink.emit(event)

    def record(self, kind: type[Event], **facts: Any) -> None:
        self._sink.emit(kind(**facts))


class DeferredRecorder:
    """Creates and emits events a moment later. It belongs to one event loop and one thread."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink if isinstance(sink, Fanout) else Fanout(sink)
        self._sink.add_pending_source(self.flush_in_own_thread)
        self._thread = get_ident()
        self._waiting: list[Event | tuple[type[Event], dict[str, Any]]] = []
        self._due: asyncio.TimerHandle | None = None

    def emit(self, event: Event) -> None:
        self._defer(event)

    def record(self, kind: type[Event], **facts: Any) -> None:
        facts["at"] = utc_now()
        self._defer((kind, facts))

    def flush(self) -> None:
        """Emit all waiting events now."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._sink.emit_all(
            [event if isinstance(event, Event) else event[0](**event[1]) for event in waiting]
        )

    def flush_in_own_thread(self) -> None:
        """Emit all waiting events, in the recorder's thread only: elsewhere the order is undefined."""
        if self._waiting and get_ident() == self._thread:
            self.flush()

    def _defer(self, event: Event | tuple[type[Event], dict[str, Any]]) -> None:
        waiting = self._waiting
        if not waiting:
            self._due = asyncio.get_running_loop().call_later(DEFER_SECONDS, self.flush)
        waiting.append(event)
        if len(waiting) == MAX_DEFERRED and self._due is not None:
            self._due.cancel()  # flush at the end of this event loop iteration
            self._due = None
            asyncio.get_running_loop().call_soon(self.flush)
