"""The entry point of analytics: lines, pages, single packets, streams and figures from the journal."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from heapq import nlargest
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.analytics.aggregates import FiguresReader
from fingerpost.analytics.journal_tail import EventFollower, JournalTail, LineFrames
from fingerpost.analytics.records import Figures, PacketDetail, PacketLine, PacketPage, PacketQuery
from fingerpost.analytics.requests import fold_events, read_page
from fingerpost.events import LiveFeed, rebuild_packet
from fingerpost.records import Packet
from fingerpost.store import Store
from fingerpost.store.journal import JournalEntry
from fingerpost.tasks import cancel_and_exit, run_restarting

logger = logging.getLogger("fingerpost.insight")

MAX_PACKET_EVENTS: Final = 5_000  # per packet


class JournalReader:
    """Reads the journal. One per process: `async with JournalReader.open(store, live) as reader`."""

    def __init__(self, store: Store, live: LiveFeed) -> None:
        self._journal = store.journal
        self._tail = JournalTail(store.journal, live)
        self._figures = FiguresReader(store)

    @classmethod
    @asynccontextmanager
    async def open(cls, store: Store, live: LiveFeed) -> AsyncGenerator[JournalReader]:
        """Open a reader. `live` (`router.live`) only signals events; they are read from the store."""
        reader = cls(store, live)
        tasks = await anyio.create_task_group().__aenter__()
        tasks.start_soon(run_restarting, reader._tail.run)
        try:
            yield reader
        except BaseException as error:
            await cancel_and_exit(tasks, type(error), error, error.__traceback__)
            raise
        await cancel_and_exit(tasks, None, None, None)

    async def refresh(self) -> None:
        """Read new events from disk. Not needed while a follower is active."""
        await self._tail.catch_up()

    def get_newest_lines(self, limit: int = 200) -> tuple[PacketLine, ...]:
        """Return the newest known lines, newest first. See `refresh`."""
        return tuple(nlargest(limit, self._tail.lines.values(), key=lambda line: line.seq))

    async def get_page(self, query: PacketQuery) -> PacketPage:
        """Return packets of any age. A short page may still have a `next`, because each query has a limit."""
        return await read_page(self._journal, query)

    async def get_packet(self, packet_id: str) -> PacketDetail | None:
        """Return all events of one packet or direct call, or None if it does not exist."""
        events = await self._journal.list_events(packet_id=packet_id, limit=MAX_PACKET_EVENTS)
        return await anyio.to_thread.run_sync(_build_detail, packet_id, events)

    @contextmanager
    def follow_lines(self) -> Generator[AsyncIterator[tuple[PacketLine, ...]]]:
        """Follow new and changed lines, in at most about five frames per second, oldest line first.

        If there was no follower before, the first frame contains the newest lines.
        """
        frames = LineFrames()
        with self._tail.follow(frames.add):
            yield frames

    @contextmanager
    def follow_events(
        self, *, after: int | None = None, packet_id: str | None = None, kinds: Collection[str] | None = None
    ) -> Generator[AsyncIterator[JournalEntry]]:
        """Follow the events after number `after`, first from the journal and then live. No event is lost or
        repeated.

        Without `after`, start with all events of `packet_id` or, without a packet, with the next event. A
        slow reader reads from the journal, so nothing is buffered for it.
        """
        with self._tail.follow():
            yield EventFollower(
                self._journal,
                self._tail,
                after=after,
                packet_id=packet_id,
                kinds=frozenset(kinds) if kinds else None,
            )

    async def get_figures(
        self, *, hours: float = 24.0, step: str = "auto", tools: Iterable[str] = ()
    ) -> Figures:
        """Return the figures of the last hours, in steps of a minute, an hour or a day.

        `tools` are the keys of all tools, to find those that were never used.
        """
        return await self._figures.read_figures(hours=hours, step=step, tools=tuple(tools))


def _build_detail(packet_id: str, events: list[JournalEntry]) -> PacketDetail | None:
    line = fold_events({}, events).get(packet_id)
    if line is None:
        return None
    return PacketDetail(line=line, events=tuple(events), packet=_find_packet(events))


def _find_packet(events: list[JournalEntry]) -> Packet | None:
    try:
        return rebuild_packet(entry.event for entry in events)
    except ValueError as error:  # an edited journal; its events can still be shown
        logger.warning("A packet's events do not add up: %s", error)
        return None
