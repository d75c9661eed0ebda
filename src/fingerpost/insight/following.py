"""What a reader of a stream gets: frames of changed lines, or events one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Final

import anyio

from fingerpost.insight.records import PacketLine
from fingerpost.insight.tail import CHUNK_SIZE, JournalTail
from fingerpost.store.journal import Journal, JournalEntry

FRAME_INTERVAL_S: Final = 0.2  # between two frames of changed lines
MAX_CHANGED_LINES: Final = 500  # lines in one frame: whoever sees fewer anyway loses the oldest
_READ_WINDOW: Final = 5_000  # numbers of the journal looked through at a time


class LineFrames(AsyncIterator[tuple[PacketLine, ...]]):
    """Gathers changed lines; a line that changes twice between two frames is told once."""

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
    """Events behind a number: from the journal while they are old, from the tail when they are new."""

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
        self._cursor = 0 if after is None and packet_id is not None else after  # None: from now on
        self._started = False
        self._ready: deque[JournalEntry] = deque()

    async def __anext__(self) -> JournalEntry:
        while not self._ready:
            cursor = self._cursor if self._cursor is not None and self._started else await self._get_start()
            moved = self._tail.moved  # before looking: what comes meanwhile is not overlooked
            if self._tail.seq and cursor >= self._tail.floor:
                self._take_recent(cursor)
            elif await self._read_journal(cursor):
                continue
            if not self._ready:
                await moved.wait()
        return self._ready.popleft()

    async def _get_start(self) -> int:
        """Where to begin. A number beyond the end is of another journal: what comes from now on is new."""
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
        """Go on in the journal; whether there may be more of it."""
        known = max(self._tail.seq, await self._journal.get_last_seq())
        end = None if self._packet_id is not None else cursor + _READ_WINDOW
        found = await self._journal.list_events(
            packet_id=self._packet_id, kinds=self._kinds, after_seq=cursor, up_to_seq=end, limit=CHUNK_SIZE
        )
        self._ready.extend(found)
        if len(found) == CHUNK_SIZE:
            self._cursor = found[-1].seq
        else:
            # What was written between the two questions may be in `found` already.
            reached = known if end is None else min(end, known)
            self._cursor = max(cursor, reached, found[-1].seq if found else 0)
        return self._cursor < known

    def _is_wanted(self, entry: JournalEntry) -> bool:
        event = entry.event
        return self._packet_id in (None, event.packet_id) and (
            self._kinds is None or event.kind in self._kinds
        )
