"""Events told after the answer they belong to has gone out.

Making an event and handing it to everybody who listens takes a few microseconds, several times that where
the processor does not have it at hand, and a call has seven of them. Nobody who waits for an answer should
wait for that: it is done at the end of this turn of the event loop, when a request has been sent and its
answer is awaited, or when the answer is on its way. The order stays, and so does the time each happened.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol, cast

from fingerpost.events.base import Event, EventSink, Gathering
from fingerpost.events.sinks import Fanout
from fingerpost.records import utc_now


class Teller(EventSink, Protocol):
    """A sink that also makes the events it is told of."""

    def tell(self, kind: type[Event], **facts: Any) -> None:
        """This happened now."""
        ...


class AtOnce:
    """Makes events and hands them on while their teller waits. A sink that fails costs only itself."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = Fanout(sink)

    def emit(self, event: Event) -> None:
        self._sink.emit(event)

    def tell(self, kind: type[Event], **facts: Any) -> None:
        self._sink.emit(kind(**facts))


class Later:
    """Does both soon. Belongs to one event loop."""

    def __init__(self, sink: EventSink) -> None:
        self._sink = sink
        self._gathers = isinstance(sink, Gathering)
        self._waiting: list[Event | tuple[type[Event], dict[str, Any]]] = []

    def emit(self, event: Event) -> None:
        self._keep(event)

    def tell(self, kind: type[Event], **facts: Any) -> None:
        facts["at"] = utc_now()
        self._keep((kind, facts))

    def flush(self) -> None:
        """Hand on what waits now."""
        waiting, self._waiting = self._waiting, []
        events = [event if isinstance(event, Event) else event[0](**event[1]) for event in waiting]
        if self._gathers:
            cast("Gathering", self._sink).emit_all(events)
            return
        for event in events:
            self._sink.emit(event)

    def _keep(self, event: Event | tuple[type[Event], dict[str, Any]]) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(event)
