"""Requests and their events: pages, details and live streams."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from pydantic import Field

from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.analytics.records import PacketLine, PacketPage, PacketQuery
from fingerpost.call.approvals import CallApprovals
from fingerpost.errors import StoreError
from fingerpost.events import ApprovalDecided, ApprovalRequested, Event, Fanout
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records.codec import to_json
from fingerpost.store.journal import Journal
from fingerpost.surfaces.api.operation import (
    EVENT_STREAM_TYPE,
    MAX_ROW_NUMBER,
    ApiProblem,
    ApiRequest,
    OperationGroup,
    StreamingResponse,
    build_output_adapter,
    declare_operation,
)
from fingerpost.surfaces.api.streams import EventView, PacketView, StreamSlots
from fingerpost.surfaces.api.visibility import filter_event, get_request_owner
from fingerpost.surfaces.http.asgi import EventStream

MAX_COUNT_AGE_S = 0.2


class PendingCounter:
    """Counts pending calls. As an event sink it notices changes in this process at once."""

    def __init__(self, approvals: CallApprovals, events: Fanout) -> None:
        self._approvals = approvals
        self.changed = anyio.Event()  # set with the next change, and replaced then
        self._lock = anyio.Lock()
        self._callers: tuple[str | None, ...] = ()
        self._counted_at = -MAX_COUNT_AGE_S
        events.add(self)

    def emit(self, event: Event) -> None:
        if isinstance(event, ApprovalRequested | ApprovalDecided):
            self._counted_at = -MAX_COUNT_AGE_S
            changed, self.changed = self.changed, anyio.Event()
            changed.set()

    async def count_pending(self, own: str | None) -> int:
        """Return the number of pending calls, of all callers or of one."""
        async with self._lock:
            now = anyio.current_time()
            if now - self._counted_at >= MAX_COUNT_AGE_S:
                self._counted_at = now
                self._callers = tuple(one.caller for one in await self._approvals.list_waiting())
        return sum(own in (None, caller) for caller in self._callers)


MAX_PACKETS_PER_PAGE: Final = 200
INITIAL_LINES: Final = 200
RECOUNT_INTERVAL_S: Final = 3.0  # how soon changes by other processes are noticed

FilterText = Annotated[str, Field(max_length=500)]


@frozen
class PacketListQuery:
    """Filter and page of requests. Omitted parameters do not filter."""

    limit: Annotated[int, Field(ge=1, le=MAX_PACKETS_PER_PAGE, description="Maximum per page")] = 50
    before: Annotated[
        int | None, Field(ge=0, le=MAX_ROW_NUMBER, description="`next` of the previous page")
    ] = None
    text: Annotated[str, Field(max_length=500, description="Words in the request")] = ""
    kind: Annotated[
        Literal["request", "call"] | None, Field(description="Requests, or calls without one")
    ] = None
    outcome: Annotated[FilterText | None, Field(description="How it ended")] = None
    tool: Annotated[FilterText | None, Field(description="A tool that was called, by key")] = None
    caller: Annotated[FilterText | None, Field(description="Who asked")] = None
    conversation: Annotated[FilterText | None, Field(description="Where it was asked")] = None
    mode: Annotated[FilterText | None, Field(description="How it was answered")] = None


@frozen
class EventQuery:
    """Filter of an event stream."""

    packet_id: Annotated[FilterText | None, Field(description="Of this request alone")] = None
    after: Annotated[int | None, Field(ge=0, le=MAX_ROW_NUMBER, description="Go on behind this `seq`")] = None
    kinds: Annotated[
        tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=50, description="Of these kinds")
    ] = ()


class PacketOperations(OperationGroup):
    """The operations about requests."""

    tag = "requests"

    def __init__(
        self, ledger: JournalReader, journal: Journal, pending_counter: PendingCounter, streams: StreamSlots
    ) -> None:
        self._ledger = ledger
        self._journal = journal
        self._pending_counter = pending_counter
        self._streams = streams

    @declare_operation("GET", "/api/packets", right=None)
    async def list_packets(self, request: ApiRequest, query: PacketListQuery) -> PacketPage:
        """Requests and bare calls, newest first."""
        own = get_request_owner(request.principal)
        if own is not None and query.caller not in (None, own):
            return PacketPage(items=())
        await self._journal.flush()  # so that a request of a moment ago is included
        return await self._ledger.get_page(copy_fields(PacketQuery, query, caller=own or query.caller))

    @declare_operation("GET", "/api/packets/{packet_id}", problems=(404,), right=None)
    async def get_packet(self, request: ApiRequest, packet_id: str) -> PacketView:
        """Everything that happened to one request."""
        own = get_request_owner(request.principal)
        await self._journal.flush()
        detail = await self._ledger.get_packet(packet_id)
        if detail is None or own not in (None, detail.line.caller):
            raise _build_unknown_packet(packet_id)
        events = (
            replace(entry, event=filter_event(entry.event, request.principal)) for entry in detail.events
        )
        return await anyio.to_thread.run_sync(PacketView.from_detail, replace(detail, events=tuple(events)))

    @declare_operation("GET", "/api/live", media=EVENT_STREAM_TYPE, returns=str, problems=(503,), right=None)
    async def follow_packets(self, request: ApiRequest) -> StreamingResponse:
        """Requests as they arrive and change: events `lines` and `approvals`."""
        own = get_request_owner(request.principal)

        async def write(stream: EventStream) -> None:
            await self._write_packets(stream, own)

        return self._streams.build_streaming(write, request)

    async def _write_packets(self, stream: EventStream, caller: str | None) -> None:
        with self._ledger.follow_lines() as frames, suppress(anyio.EndOfStream):
            with suppress(StoreError):  # send what is known; the rest follows when the store recovers
                await self._journal.flush()  # so that a request of a moment ago is included
                await self._ledger.refresh()
            await _send_lines(stream, self._ledger.get_newest_lines(INITIAL_LINES), caller, first=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._send_pending_count, stream, caller)
                async for lines in frames:
                    await _send_lines(stream, lines, caller)

    async def _send_pending_count(self, stream: EventStream, caller: str | None) -> None:
        """Send the number of pending calls, first at once and then after every change.

        If the store is unavailable, retry; the stream stays open.
        """
        before: int | None = None
        while True:
            changed = self._pending_counter.changed
            with suppress(StoreError):
                count = await self._pending_counter.count_pending(caller)
                if count != before:
                    before = count
                    await stream.send_event(b'{"waiting":%d}' % count, event="approvals")
            with anyio.move_on_after(RECOUNT_INTERVAL_S):
                await changed.wait()

    @declare_operation(
        "GET", "/api/events", media=EVENT_STREAM_TYPE, returns=str, problems=(404, 503), right=None
    )
    async def follow_events(self, request: ApiRequest, query: EventQuery) -> StreamingResponse:
        """Events as they happen, going on behind `Last-Event-ID` or `after`."""
        after = _get_last_seen(request)
        own = get_request_owner(request.principal)
        if own is not None:
            await self._check_owner(query.packet_id, own)

        async def write(stream: EventStream) -> None:
            with self._ledger.follow_events(
                after=after, packet_id=query.packet_id, kinds=query.kinds or None
            ) as events:
                async for entry in events:
                    view = EventView.from_event(filter_event(entry.event, request.principal), entry.seq)
                    await stream.send_event(to_json(view), event_id=str(entry.seq))

        return self._streams.build_streaming(write, request)

    async def _check_owner(self, packet_id: str | None, caller: str) -> None:
        if packet_id is None:
            detail = "With a bound key or without the right `watch`, name a request of yours as `packet_id`."
            raise ApiProblem(403, "You may not follow everything", detail)
        await self._journal.flush()
        packet_detail = await self._ledger.get_packet(packet_id)
        if packet_detail is None or packet_detail.line.caller != caller:
            raise _build_unknown_packet(packet_id)


async def _send_lines(
    stream: EventStream, lines: Iterable[PacketLine], caller: str | None, *, first: bool = False
) -> None:
    shown = [line for line in lines if caller in (None, line.caller)]
    if shown or first:
        await stream.send_event(build_output_adapter(list[PacketLine]).dump_json(shown), event="lines")


def _get_last_seen(request: ApiRequest) -> int | None:
    """Return the sequence number to continue after. `Last-Event-ID` takes precedence over `after`."""
    last = request.headers.get("last-event-id")
    if last is None:
        return request.query.after
    if not re.fullmatch(r"[0-9]{1,19}", last) or int(last) > MAX_ROW_NUMBER:
        raise ApiProblem(400, "Invalid query", "Last-Event-ID is the number of an event.")
    return int(last)


def _build_unknown_packet(packet_id: str) -> ApiProblem:
    return ApiProblem(
        404, "There is no such request", f"There is no request {packet_id[:80]!r} that you may see."
    )
