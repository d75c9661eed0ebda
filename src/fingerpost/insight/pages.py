"""Packets of any age, page by page, straight from the journal."""

from __future__ import annotations

from typing import Final

import anyio.to_thread

from fingerpost.events import CallReceived, PacketReceived
from fingerpost.insight.lines import BEGINNING_KINDS, LINE_KINDS, fold_events, is_beginning
from fingerpost.insight.records import PacketLine, PacketPage, PacketQuery
from fingerpost.store.journal import Journal, JournalEntry

MAX_LINES_CHECKED: Final = 5_000  # beginnings, for one page; the next page goes on from there
MAX_EVENTS_READ: Final = 500  # packets whose events are read, for one page
_BATCH_SIZE: Final = 200
_GROUP_SIZE: Final = 50


async def read_page(journal: Journal, query: PacketQuery) -> PacketPage:
    """The newest packets that suit. A page may be short, or empty, and still have a `next`."""
    items: list[PacketLine] = []
    limit = max(1, query.limit)
    cursor, looked_at, read = query.before, 0, 0
    kinds = _get_beginning_kinds(query)
    while len(items) <= limit:
        if looked_at >= MAX_LINES_CHECKED or read >= MAX_EVENTS_READ:
            return PacketPage(items=tuple(items), next=cursor)
        batch = max(min(_BATCH_SIZE, limit + 1 - len(items)), _GROUP_SIZE)
        beginnings = await journal.list_newest(kinds=kinds, before=cursor, limit=batch)
        if not beginnings:
            return PacketPage(items=tuple(items))
        looked_at += len(beginnings)
        cursor = beginnings[-1].seq
        wanted = [entry for entry in beginnings if _may_match(entry, query)]
        read += len(wanted)
        for start in range(0, len(wanted), _GROUP_SIZE):
            lines = await read_lines(journal, wanted[start : start + _GROUP_SIZE])
            items += [line for line in lines if _matches_query(line, query)]
    return PacketPage(items=tuple(items[:limit]), next=items[limit - 1].seq)


async def read_lines(journal: Journal, beginnings: list[JournalEntry]) -> list[PacketLine]:
    """The lines that begin with these events, in the same order."""
    ids = [entry.event.packet_id for entry in beginnings if entry.event.packet_id is not None]
    events = await journal.list_packet_events(ids, kinds=LINE_KINDS)
    lines = await anyio.to_thread.run_sync(fold_events, dict[str, PacketLine](), events)
    return [lines[packet_id] for packet_id in ids if packet_id in lines]


def _get_beginning_kinds(query: PacketQuery) -> tuple[str, ...]:
    if query.kind is None:
        return BEGINNING_KINDS
    return (PacketReceived.kind if query.kind == "request" else CallReceived.kind,)


def _may_match(entry: JournalEntry, query: PacketQuery) -> bool:
    """What the beginning says already, so that the rest need not be read."""
    event = entry.event
    if not is_beginning(event):
        return False
    if isinstance(event, PacketReceived):
        header = event.packet.header
        caller, conversation = header.caller, header.session_id
        named = query.text.casefold() in event.packet.content.original_prompt.casefold()
    else:
        assert isinstance(event, CallReceived)
        caller, conversation, named = event.caller, event.conversation, True
    return (
        (named or query.text == event.packet_id)
        and query.caller in (None, caller)
        and query.conversation in (None, conversation)
    )


def _matches_query(line: PacketLine, query: PacketQuery) -> bool:
    return (
        query.outcome in (None, line.outcome, line.state)
        and query.mode in (None, line.mode)
        and (query.tool is None or query.tool in line.tools or query.tool == line.prompt)
        and (line.kind == "request" or _contains_text(line, query.text))
    )


def _contains_text(line: PacketLine, text: str) -> bool:
    wanted = text.casefold()
    return any(wanted in name.casefold() for name in (line.prompt, *line.tools, line.packet_id))
