"""Requests and their events: pages, one of them, and both as they happen."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final, Literal

import anyio
import anyio.to_thread
from pydantic import Field

from fingerpost.errors import StoreError
from fingerpost.frozen import frozen
from fingerpost.insight import PacketLine, PacketPage, PacketQuery
from fingerpost.insight.ledger import Ledger
from fingerpost.records.codec import to_json
from fingerpost.store.journal import Journal
from fingerpost.surfaces.api.accepting import EVENTS
from fingerpost.surfaces.api.operation import ApiRequest, Operation, Problem, Streaming
from fingerpost.surfaces.api.shapes import given
from fingerpost.surfaces.api.sight import requests_of, shown_event
from fingerpost.surfaces.api.streams import Streams
from fingerpost.surfaces.api.views import PacketView, event_view, packet_view
from fingerpost.surfaces.api.waiting import Waiting
from fingerpost.surfaces.web.events import EventStream

MOST_ON_A_PAGE: Final = 200
FIRST_LINES: Final = 200
COUNT_AGAIN_S: Final = 3.0  # what other processes asked and decided is heard of after this time
LARGEST: Final = 2**63 - 1

Text = Annotated[str, Field(max_length=500)]


@frozen
class WantedPackets:
    """Which requests are wanted; what is left out sets no bound."""

    limit: Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE, description="Most on a page")] = 50
    before: Annotated[int | None, Field(ge=0, le=LARGEST, description="`next` of the page before")] = None
    text: Annotated[str, Field(max_length=500, description="Words in the request")] = ""
    kind: Annotated[
        Literal["request", "call"] | None, Field(description="Requests, or calls without one")
    ] = None
    outcome: Annotated[Text | None, Field(description="How it ended")] = None
    tool: Annotated[Text | None, Field(description="A tool that was called, by key")] = None
    caller: Annotated[Text | None, Field(description="Who asked")] = None
    conversation: Annotated[Text | None, Field(description="Where it was asked")] = None
    mode: Annotated[Text | None, Field(description="How it was answered")] = None


@frozen
class WantedEvents:
    """Which events are wanted."""

    packet_id: Annotated[Text | None, Field(description="Of this request alone")] = None
    after: Annotated[int | None, Field(ge=0, le=LARGEST, description="Go on behind this `seq`")] = None
    kinds: Annotated[
        tuple[Annotated[str, Field(max_length=100)], ...], Field(max_length=50, description="Of these kinds")
    ] = ()


class Packets:
    """The operations about requests."""

    def __init__(self, ledger: Ledger, journal: Journal, waiting: Waiting, streams: Streams) -> None:
        self._ledger = ledger
        self._journal = journal
        self._waiting = waiting
        self._streams = streams

    def operations(self) -> tuple[Operation, ...]:
        return (
            Operation(
                method="GET", path="/api/packets", name="list_packets", tag="requests", right=None,
                summary="Requests and bare calls, newest first",
                query=WantedPackets, returns=PacketPage, answer=self.page,
            ),
            Operation(
                method="GET", path="/api/packets/{packet_id}", name="get_packet", tag="requests", right=None,
                summary="Everything that happened to one request",
                returns=PacketView, problems=(404,), answer=self.one,
            ),
            Operation(
                method="GET", path="/api/live", name="follow_packets", tag="requests", right=None,
                summary="Requests as they arrive and change: events `lines` and `approvals`",
                media=EVENTS, returns=str, problems=(503,), answer=self.live,
            ),
            Operation(
                method="GET", path="/api/events", name="follow_events", tag="requests", right=None,
                summary="Events as they happen, going on behind `Last-Event-ID` or `after`",
                query=WantedEvents, media=EVENTS, returns=str, problems=(404, 503), answer=self.events,
            ),
        )  # fmt: skip

    async def page(self, request: ApiRequest) -> PacketPage:
        wanted: WantedPackets = request.query
        own = requests_of(request.principal)
        if own is not None and wanted.caller not in (None, own):
            return PacketPage(items=())
        query = PacketQuery(
            limit=wanted.limit,
            before=wanted.before,
            text=wanted.text,
            kind=wanted.kind,
            outcome=wanted.outcome,
            tool=wanted.tool,
            caller=own or wanted.caller,
            conversation=wanted.conversation,
            mode=wanted.mode,
        )
        await self._journal.flush()  # whoever asked a moment ago finds their request
        return await self._ledger.page(query)

    async def one(self, request: ApiRequest) -> PacketView:
        packet_id = request.path["packet_id"]
        own = requests_of(request.principal)
        await self._journal.flush()
        detail = await self._ledger.packet(packet_id)
        if detail is None or own not in (None, detail.line.caller):
            raise _unknown(packet_id)
        events = (
            replace(entry, event=shown_event(entry.event, request.principal)) for entry in detail.events
        )
        return await anyio.to_thread.run_sync(packet_view, replace(detail, events=tuple(events)))

    async def live(self, request: ApiRequest) -> Streaming:
        own = requests_of(request.principal)

        async def write(stream: EventStream) -> None:
            await self._write_live(stream, own)

        return self._streams.streaming(write, request)

    async def _write_live(self, stream: EventStream, own: str | None) -> None:
        with self._ledger.follow_lines() as frames, suppress(anyio.EndOfStream):
            with suppress(StoreError):  # what is known is told now, the rest when the store is back
                await self._ledger.refresh()
            await _tell_lines(stream, self._ledger.newest(FIRST_LINES), own, first=True)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._tell_waiting, stream, own)
                async for lines in frames:
                    await _tell_lines(stream, lines, own)

    async def _tell_waiting(self, stream: EventStream, own: str | None) -> None:
        """How many calls wait for a person, at first and whenever that may have changed.

        While the store is away nobody can tell; it is asked again, and the stream goes on.
        """
        before: int | None = None
        with self._waiting.changes() as changes:
            while True:
                with suppress(StoreError):
                    count = await self._waiting.count(own)
                    if count != before:
                        before = count
                        await stream.data(b'{"waiting":%d}' % count, event="approvals")
                await changes.wait(COUNT_AGAIN_S)

    async def events(self, request: ApiRequest) -> Streaming:
        wanted: WantedEvents = request.query
        after = _after(request)
        own = requests_of(request.principal)
        if own is not None:
            await self._check_own(wanted.packet_id, own)

        async def write(stream: EventStream) -> None:
            with self._ledger.follow_events(
                after=after, packet_id=wanted.packet_id, kinds=wanted.kinds or None
            ) as events:
                async for entry in events:
                    view = event_view(shown_event(entry.event, request.principal), entry.seq)
                    await stream.data(to_json(view), event_id=str(entry.seq))

        return self._streams.streaming(write, request)

    async def _check_own(self, packet_id: str | None, own: str) -> None:
        if packet_id is None:
            detail = "With a bound key or without the right `watch`, name a request of yours as `packet_id`."
            raise Problem(403, "You may not follow everything", detail)
        await self._journal.flush()
        detail_of = await self._ledger.packet(packet_id)
        if detail_of is None or detail_of.line.caller != own:
            raise _unknown(packet_id)


async def _tell_lines(
    stream: EventStream, lines: Iterable[PacketLine], own: str | None, *, first: bool = False
) -> None:
    shown = [line for line in lines if own in (None, line.caller)]
    if shown or first:
        await stream.data(given(list[PacketLine]).dump_json(shown), event="lines")


def _after(request: ApiRequest) -> int | None:
    """Where to go on: what the browser heard last goes before what the page asked for at first."""
    last = request.headers.get("last-event-id")
    if last is None:
        return request.query.after
    if not last.isascii() or not last.isdigit() or len(last) > len(str(LARGEST)) or int(last) > LARGEST:
        raise Problem(400, "The query is not right", "Last-Event-ID is the number of an event.")
    return int(last)


def _unknown(packet_id: str) -> Problem:
    return Problem(
        404, "There is no such request", f"There is no request {packet_id[:80]!r} that you may see."
    )
