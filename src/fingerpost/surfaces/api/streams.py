"""Event streams to clients, their limits, and the records they send."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import anyio

from fingerpost.analytics.records import PacketDetail, PacketLine
from fingerpost.events import Event, UnknownEvent
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Packet, Principal
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.api.operation import ApiProblem, ApiRequest, StreamingResponse
from fingerpost.surfaces.http.asgi import EventStream, Header, Receive, Send, open_event_stream

_ENVELOPE_FIELDS = frozenset({"event_id", "at", "packet_id"})


@frozen
class EventView:
    """One event. `data` has the fields of its kind; `seq` is its number in the journal, or null if it is not
    stored yet.
    """

    seq: int | None
    event_id: str
    kind: str
    at: datetime
    packet_id: str | None
    summary: str
    data: JsonObject

    @classmethod
    def from_event(cls, event: Event, seq: int | None = None) -> EventView:
        """Build the view of an event. Its secrets were masked when it was created."""
        kind, data = event.kind, to_plain(event)
        if isinstance(event, UnknownEvent):
            kind, data = event.unknown_kind, dict(event.contents)
        return cls(
            seq=seq,
            event_id=event.event_id,
            kind=kind,
            at=event.at,
            packet_id=event.packet_id,
            summary=event.summary(),
            data={name: value for name, value in data.items() if name not in _ENVELOPE_FIELDS},
        )


@frozen
class PacketView:
    """All events of one request, or of one direct call (which has no packet)."""

    line: PacketLine
    events: Sequence[EventView]
    packet: Packet | None

    @classmethod
    def from_detail(cls, detail: PacketDetail) -> PacketView:
        """Build the view of a request. Slow for many events: run it in a thread."""
        events = tuple(EventView.from_event(entry.event, entry.seq) for entry in detail.events)
        return cls(line=detail.line, events=events, packet=detail.packet)


CHECK_INTERVAL_S: Final = 3.0


class StreamSlots:
    """Limits the number of open streams."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: dict[anyio.CancelScope, str] = {}  # principal names by scope
        self._closing = False

    @property
    def count(self) -> int:
        return len(self._open)

    def build_streaming(
        self, write: Callable[[EventStream], Awaitable[None]], request: ApiRequest
    ) -> StreamingResponse:
        """Return a response written by `write` until it returns, the client disconnects, or access is
        revoked.

        Raises `ApiProblem` above the limit.
        """
        self._check_limit(request.principal)

        async def run(receive: Receive, send: Send, headers: tuple[Header, ...]) -> None:
            with self._take_slot(request.principal) as scope:
                async with open_event_stream(receive, send, headers=headers) as stream:
                    with scope:
                        async with anyio.create_task_group() as tasks:
                            tasks.start_soon(_end_when_unauthenticated, request, scope)
                            await write(stream)
                            tasks.cancel_scope.cancel()

        return StreamingResponse(run=run)

    def end_all(self) -> None:
        """End all streams gracefully: each client gets a complete response."""
        self._closing = True
        for scope in tuple(self._open):
            scope.cancel()

    @contextmanager
    def _take_slot(self, principal: Principal) -> Generator[anyio.CancelScope]:
        self._check_limit(principal)
        scope = anyio.CancelScope()
        self._open[scope] = principal.name
        try:
            yield scope
        finally:
            del self._open[scope]

    def _check_limit(self, principal: Principal) -> None:
        if self._closing:
            raise ApiProblem(503, "Closing", "Fingerpost is shutting down. Try again in a moment.")
        if len(self._open) >= self._limit:
            detail = f"{self._limit} streams are open already (api.streams). Close one, or try again later."
            raise ApiProblem(503, "Too many streams", detail)
        own_count = sum(name == principal.name for name in self._open.values())
        # Keep slots for other callers.
        if principal.kind != "local" and own_count >= max(1, self._limit // 2):
            detail = f"{own_count} of your streams are open already: half of api.streams. Close one."
            raise ApiProblem(503, "Too many streams", detail)


async def _end_when_unauthenticated(request: ApiRequest, scope: anyio.CancelScope) -> None:
    while True:
        await anyio.sleep(CHECK_INTERVAL_S)
        if not await request.is_still_valid():
            scope.cancel()
