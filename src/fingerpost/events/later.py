"""Events told after the answer they belong to has gone out.

Making an event and handing it to everybody who listens takes a few microseconds, several times that where
the processor does not have it at hand, and a call has seven of them. Nobody who waits for an answer should
wait for that: events of all calls are gathered for a moment, made, and handed on together. The order stays,
also among events that others tell meanwhile, and so does the time each happened.
"""

from __future__ import annotations

import asyncio
from threading import get_ident
from typing import Any, Final, Protocol

from fingerpost.events.base import Event, EventSink
from fingerpost.events.sinks import Fanout
from fingerpost.records import utc_now

DEFER_SECONDS: Final = 0.01
MAX_DEFERRED: Final = 64  # events that wait for it


class EventRecorder(EventSink, Protocol):
    """A sink that also makes the events it is told of."""

    def record(self, kind: type[Event], **facts: Any) -> None:
        """This happened now."""
        ...


class ImmediateRecorder:
    """Makes events and hands them on while their teller waits. A sink that fails costs only itself."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = Fanout(sink)

    def emit(self, event: Event) -> None:
        self._sink.emit(event)

    def record(self, kind: type[Event], **facts: Any) -> None:
        self._sink.emit(kind(**facts))


class DeferredRecorder:
    """Does both a moment later. Belongs to one event loop, and to the thread it was made in."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink if isinstance(sink, Fanout) else Fanout(sink)
        self._sink.set_pending_source(self.flush_in_own_thread)
        self._thread = get_ident()
        self._waiting: list[Event | tuple[type[Event], dict[str, Any]]] = []
        self._due: asyncio.TimerHandle | None = None

    def emit(self, event: Event) -> None:
        self._defer(event)

    def record(self, kind: type[Event], **facts: Any) -> None:
        facts["at"] = utc_now()
        self._defer((kind, facts))

    def flush(self) -> None:
        """Hand on what waits now."""
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
        """The same, for whoever has to come after it; from another thread nobody knows what was before."""
        if self._waiting and get_ident() == self._thread:
            self.flush()

    def _defer(self, event: Event | tuple[type[Event], dict[str, Any]]) -> None:
        waiting = self._waiting
        if not waiting:
            self._due = asyncio.get_running_loop().call_later(DEFER_SECONDS, self.flush)
        waiting.append(event)
        if len(waiting) == MAX_DEFERRED and self._due is not None:
            self._due.cancel()  # enough: at the end of this turn
            self._due = None
            asyncio.get_running_loop().call_soon(self.flush)
