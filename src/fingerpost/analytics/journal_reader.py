"""The entry point: lines, pages, one packet, streams and figures from the journal."""

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

MAX_PACKET_EVENTS: Final = 5_000  # of one packet


class JournalReader:
    """One for each process; `async with Ledger.open(store, live) as ledger`."""

    def __init__(self, store: Store, live: LiveFeed) -> None:
        self._journal = store.journal
        self._tail = JournalTail(store.journal, live)
        self._watch = FiguresReader(store)

    @classmethod
    @asynccontextmanager
    async def open(cls, store: Store, live: LiveFeed) -> AsyncGenerator[JournalReader]:
        """`live` (`router.live`) tells when something happened; what happened is read from the store."""
        ledger = cls(store, live)
        tasks = await anyio.create_task_group().__aenter__()
        tasks.start_soon(run_restarting, ledger._tail.run)
        try:
            yield ledger
        except BaseException as error:
            await cancel_and_exit(tasks, type(error), error, error.__traceback__)
            raise
        await cancel_and_exit(tasks, None, None, None)

    async def refresh(self) -> None:
        """Know what is on disk now. While somebody follows, it is known anyway."""
        await self._tail.catch_up()

    def get_newest_lines(self, limit: int = 200) -> tuple[PacketLine, ...]:
        """The newest lines, newest first, as far as they are known: see `refresh`."""
        return tuple(nlargest(limit, self._tail.lines.values(), key=lambda line: line.seq))

    async def get_page(self, query: PacketQuery) -> PacketPage:
        """Packets of any age. A page may be short and still have a `next`: it looked as far as it may."""
        return await read_page(self._journal, query)

    async def get_packet(self, packet_id: str) -> PacketDetail | None:
        """Everything that happened to one packet (or bare call); None when there is none."""
        events = await self._journal.list_events(packet_id=packet_id, limit=MAX_PACKET_EVENTS)
        return await anyio.to_thread.run_sync(_build_detail, packet_id, events)

    @contextmanager
    def follow_lines(self) -> Generator[AsyncIterator[tuple[PacketLine, ...]]]:
        """Lines that began or changed, gathered: at most about five frames a second, oldest line first.

        The first frame holds the newest lines where nobody followed before.
        """
        frames = LineFrames()
        with self._tail.follow(frames.add):
            yield frames

    @contextmanager
    def follow_events(
        self, *, after: int | None = None, packet_id: str | None = None, kinds: Collection[str] | None = None
    ) -> Generator[AsyncIterator[JournalEntry]]:
        """Events behind the number `after`, from the journal and then as they come; none is lost or doubled.

        Without `after`: everything of the one packet, or, where none is named, what comes from now on.
        A reader that is slow is served from the journal: nothing is kept for it.
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
        """Figures of the last hours, in steps of a minute, an hour or a day.

        `tools` are the keys there are: what was never used is found among them.
        """
        return await self._watch.read_figures(hours=hours, step=step, tools=tuple(tools))


def _build_detail(packet_id: str, events: list[JournalEntry]) -> PacketDetail | None:
    line = fold_events({}, events).get(packet_id)
    if line is None:
        return None
    return PacketDetail(line=line, events=tuple(events), packet=_find_packet(events))


def _find_packet(events: list[JournalEntry]) -> Packet | None:
    try:
        return rebuild_packet(entry.event for entry in events)
    except ValueError as error:  # a journal somebody edited; its events can be shown all the same
        logger.warning("A packet's events do not add up: %s", error)
        return None
