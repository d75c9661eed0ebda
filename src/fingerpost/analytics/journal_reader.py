"""The entry point of analytics: lines, pages, packets, figures and live events of the journal."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from heapq import nlargest
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.analytics.aggregates import FiguresReader
from fingerpost.analytics.records import Figures, PacketDetail, PacketLine, PacketPage, PacketQuery
from fingerpost.analytics.requests import LINE_KINDS, fold_events, is_beginning, read_page
from fingerpost.errors import StoreError
from fingerpost.events import LiveFeed, rebuild_packet
from fingerpost.records import Packet
from fingerpost.store import Store
from fingerpost.store.journal import Journal, JournalEntry
from fingerpost.tasks import cancel_and_exit, run_restarting

logger = logging.getLogger("fingerpost.insight")

CHUNK_SIZE: Final = 500
RECENT_EVENTS: Final = 2_000
MAX_LINES: Final = 2_000
FIRST_LINES: Final = 200
MAX_EVENTS_BEHIND: Final = 20_000  # beyond this, start again with the newest lines
GATHER_INTERVAL_S: Final = 0.1
POLL_INTERVAL_S: Final = 1.0  # for events of other processes
_MAX_RELOADED_PACKETS: Final = 100  # older packets loaded again per chunk
_MAX_UNKNOWN_PACKETS: Final = 1_000

LinesChanged = Callable[[tuple[PacketLine, ...]], None]


class JournalTail:
    """The newest events and lines. It reads only while there are followers."""

    def __init__(self, journal: Journal, live: LiveFeed) -> None:
        self._journal = journal
        self._live = live
        self._reading = anyio.Lock()
        self._followers = 0
        self._followed = anyio.Event()
        self._listeners: list[LinesChanged] = []
        self._has_started = False
        self._unknown_packets: dict[str, None] = {}  # packets whose first event is not in the journal
        self.recent: deque[JournalEntry] = deque(maxlen=RECENT_EVENTS)
        self.floor = 0  # all events after this number and up to `seq` are in `recent`
        self.seq = 0
        self.lines: dict[str, PacketLine] = {}
        self.moved = anyio.Event()  # set and replaced when there are new events

    @contextmanager
    def follow(self, on_changed: LinesChanged | None = None) -> Generator[None]:
        """Keep reading until the block ends. `on_changed` is called with the changed lines."""
        self._followers += 1
        self._followed.set()
        if on_changed is not None:
            self._listeners.append(on_changed)
        try:
            yield
        finally:
            self._followers -= 1
            if on_changed is not None:
                self._listeners.remove(on_changed)

    async def run(self) -> None:
        """Read for the followers until cancelled."""
        while True:
            await self._followed.wait()
            self._followed = anyio.Event()
            with self._live.subscribe(limit=1) as news:  # only a signal; the events are read from disk
                while self._followers:
                    await self._try_to_catch_up()
                    with anyio.move_on_after(POLL_INTERVAL_S):
                        await anext(news)
                    self._journal.flush_soon()  # who watches does not wait for the end of a request
                    await anyio.sleep(GATHER_INTERVAL_S)

    async def _try_to_catch_up(self) -> None:
        try:
            await self.catch_up()
        except StoreError as error:
            logger.warning("The journal cannot be read now: %s", error)
            await anyio.sleep(POLL_INTERVAL_S)

    async def catch_up(self) -> None:
        """Read the events since the last call. Raises `StoreError`."""
        async with self._reading:
            last = await self._journal.get_last_seq()
            if not self._has_started or last - self.seq > MAX_EVENTS_BEHIND:
                await self._start_at(last)
            while self.seq < last:
                chunk = await self._journal.list_events(after_seq=self.seq, limit=CHUNK_SIZE)
                if not chunk:
                    return
                await self._take_chunk(chunk)

    async def _start_at(self, last: int) -> None:
        page = await read_page(self._journal, PacketQuery(limit=FIRST_LINES))
        self.recent.clear()
        self.floor = self.seq = last
        self.lines = {}
        self._has_started = True
        self._update_lines({line.packet_id: line for line in reversed(page.items)})

    async def _take_chunk(self, chunk: list[JournalEntry]) -> None:
        earlier = await self._read_earlier_events(chunk)
        changed = await anyio.to_thread.run_sync(self._fold_chunk, earlier, chunk)
        room = RECENT_EVENTS - len(self.recent)
        if room < len(chunk):
            self.floor = ([*self.recent, *chunk])[len(chunk) - room - 1].seq
        self.recent.extend(chunk)
        self.seq = chunk[-1].seq
        self._update_lines(changed)

    async def _read_earlier_events(self, chunk: list[JournalEntry]) -> list[JournalEntry]:
        """Read earlier events of packets that continue but are not among the lines: they waited long."""
        begun = {entry.event.packet_id for entry in chunk if is_beginning(entry.event)}
        known = self.lines.keys() | begun | self._unknown_packets.keys()
        events = [entry.event for entry in chunk if entry.event.kind in LINE_KINDS]
        seen = dict.fromkeys(one.packet_id for one in events if one.packet_id not in known)
        wanted = [packet_id for packet_id in seen if packet_id is not None][:_MAX_RELOADED_PACKETS]
        if not wanted:
            return []
        found = await self._journal.list_packet_events(wanted, kinds=LINE_KINDS)
        started = {entry.event.packet_id for entry in found if is_beginning(entry.event)}
        self._unknown_packets |= {packet_id: None for packet_id in wanted if packet_id not in started}
        while len(self._unknown_packets) > _MAX_UNKNOWN_PACKETS:
            del self._unknown_packets[next(iter(self._unknown_packets))]
        return [entry for entry in found if entry.seq < chunk[0].seq]

    def _fold_chunk(self, earlier: list[JournalEntry], chunk: list[JournalEntry]) -> dict[str, PacketLine]:
        return fold_events(self.lines, [*earlier, *chunk])

    def _update_lines(self, changed: dict[str, PacketLine]) -> None:
        self.lines |= changed
        if len(self.lines) > MAX_LINES:
            oldest = sorted(self.lines.values(), key=lambda line: line.seq)[: len(self.lines) - MAX_LINES]
            for line in oldest:
                del self.lines[line.packet_id]
        if changed:
            news = tuple(sorted(changed.values(), key=lambda line: line.seq))
            for listener in tuple(self._listeners):
                listener(news)
        moved, self.moved = self.moved, anyio.Event()
        moved.set()


FRAME_INTERVAL_S: Final = 0.2  # between two frames of changed lines
MAX_CHANGED_LINES: Final = 500  # per frame; the oldest lines are dropped
_READ_WINDOW: Final = 5_000  # sequence numbers read at a time


class LineFrames(AsyncIterator[tuple[PacketLine, ...]]):
    """Collects changed lines into frames. A line that changes twice between two frames is returned once."""

    def __init__(self) -> None:
        self._changed: dict[str, PacketLine] = {}
        self._arrived = anyio.Event()
        self._not_before = 0.0

    def add(self, lines: tuple[PacketLine, ...]) -> None:
        for line in lines:
            self._changed.pop(line.packet_id, None)
            self._changed[line.packet_id] = line
        while len(self._changed) > MAX_CHANGED_LINES:
            del self._changed[next(iter(self._changed))]
        self._arrived.set()

    async def __anext__(self) -> tuple[PacketLine, ...]:
        while not self._changed:
            self._arrived = anyio.Event()
            await self._arrived.wait()
        await anyio.sleep(max(0.0, self._not_before - anyio.current_time()))
        self._not_before = anyio.current_time() + FRAME_INTERVAL_S
        changed, self._changed = self._changed, {}
        return tuple(sorted(changed.values(), key=lambda line: line.seq))


class EventFollower(AsyncIterator[JournalEntry]):
    """Events after a number: old ones from the journal, new ones from the tail."""

    def __init__(
        self,
        journal: Journal,
        tail: JournalTail,
        *,
        after: int | None,
        packet_id: str | None,
        kinds: frozenset[str] | None,
    ) -> None:
        self._journal = journal
        self._tail = tail
        self._packet_id = packet_id
        self._kinds = kinds
        self._cursor = 0 if after is None and packet_id is not None else after  # None: start at the end
        self._started = False
        self._ready: deque[JournalEntry] = deque()

    async def __anext__(self) -> JournalEntry:
        while not self._ready:
            known = self._cursor if self._started else None
            cursor = await self._resolve_start() if known is None else known
            moved = self._tail.moved  # taken before reading, so that no change is missed
            if self._tail.seq and cursor >= self._tail.floor:
                self._take_recent(cursor)
            elif await self._read_journal(cursor):
                continue
            if not self._ready:
                await moved.wait()
        return self._ready.popleft()

    async def _resolve_start(self) -> int:
        """Return the start position: the end for a number beyond it, which is of another journal."""
        last = await self._journal.get_last_seq()
        self._cursor = last if self._cursor is None else min(self._cursor, last)
        self._started = True
        return self._cursor

    def _take_recent(self, cursor: int) -> None:
        fresh: list[JournalEntry] = []
        for entry in reversed(self._tail.recent):
            if entry.seq <= cursor:
                break
            if self._is_wanted(entry):
                fresh.append(entry)
        self._ready.extend(reversed(fresh))
        self._cursor = max(cursor, self._tail.seq)

    async def _read_journal(self, cursor: int) -> bool:
        """Read the next part of the journal. Return whether there may be more."""
        known = max(self._tail.seq, await self._journal.get_last_seq())
        end = None if self._packet_id is not None else cursor + _READ_WINDOW
        found = await self._journal.list_events(
            packet_id=self._packet_id, kinds=self._kinds, after_seq=cursor, up_to_seq=end, limit=CHUNK_SIZE
        )
        self._ready.extend(found)
        if len(found) == CHUNK_SIZE:
            self._cursor = found[-1].seq
        else:
            # `found` may already contain events written after `known` was read.
            reached = known if end is None else min(end, known)
            self._cursor = max(cursor, reached, found[-1].seq if found else 0)
        return self._cursor < known

    def _is_wanted(self, entry: JournalEntry) -> bool:
        event = entry.event
        is_kind = self._kinds is None or event.kind in self._kinds
        return is_kind and self._packet_id in (None, event.packet_id)


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
            wanted = frozenset(kinds) if kinds else None
            yield EventFollower(self._journal, self._tail, after=after, packet_id=packet_id, kinds=wanted)

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
