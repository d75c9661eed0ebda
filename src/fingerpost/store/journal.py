"""The journal: all events in the order they were written. A packet is derived from its events.

`emit` returns at once. The steps of a request or call are kept until it ends and are written as one row; an
unfinished one is written after a second, and before anything that must survive a crash. `append` returns when
its events, and the earlier steps of the same request or call, are on disk; use it before a dangerous action.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from threading import get_ident
from typing import Any, Final

from sqlalchemy import Connection, Select, func, select
from sqlalchemy import Row as FoundRow

from fingerpost.errors import StoreUnavailable
from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    CallReceived,
    Event,
    EventsDropped,
    PacketReceived,
    StepEvent,
    StepLines,
    UnknownEvent,
    decode_steps,
)
from fingerpost.events.codec import STEPS
from fingerpost.frozen import frozen
from fingerpost.records import Packet
from fingerpost.store.audit import AuditFact, AuditTrail
from fingerpost.store.database import Database, RowInserter, RowValues, bisect_rows, execute_directly
from fingerpost.store.schema import escape, journal, journal_head, to_microseconds
from fingerpost.store.writer import LossPolicy, StoreWriter

logger = logging.getLogger("fingerpost.store")

KEEP_SECONDS: Final = 1.0  # how long the steps of an unfinished request or call are kept
HURRY_SECONDS: Final = 0.25  # the same if others must see them; it usually ends within this time
MAX_KEPT: Final = 200  # steps of one request or call
_MAX_APPENDED: Final = 1_000
_PAGE_ROWS: Final = 500

# Rows with several events have kinds of their own. Those that begin a request or call are found by it.
_BEGINNINGS: Final = {kind: f"{kind}+" for kind in (PacketReceived.kind, CallReceived.kind)}
_STEPS_KINDS: Final = (STEPS, *_BEGINNINGS.values())
_JOURNAL_ROWS = RowInserter(
    journal, "seq", "event_id", "at", "kind", "packet_id", "payload", "conversation", skip_existing=True
)

EventGroup = tuple[Event, ...]  # of one row


@frozen(kw_only=False)
class JournalEntry:
    """An event and its sequence number. Numbers increase in write order, with gaps."""

    seq: int
    event: Event


class _KeptSteps:
    """The steps of a running request or call that are not written yet."""

    __slots__ = ("events", "is_urgent", "since")

    def __init__(self, since: float) -> None:
        self.events: list[Event] = []
        self.since = since
        self.is_urgent = False


class Journal:
    """Reads and writes events."""

    def __init__(self, database: Database, writer: StoreWriter, trail: AuditTrail) -> None:
        self._database = database
        self._writer = writer
        self._trail = trail
        self._loss = LossPolicy(
            stand_in=lambda count: ((EventsDropped(count=count),),), count=lambda item: len(item[0])
        )
        self._pending_sources: list[Callable[[], None]] = []
        self._kept: dict[str, _KeptSteps] = {}  # by packet
        self._appended: dict[str, None] = {}  # events that `append` wrote and that are emitted once more
        self._is_sweeping = False

    def add_pending_source(self, emit_pending: Callable[[], None]) -> None:
        """Register a function that emits events buffered elsewhere. It is called on flush and close."""
        self._pending_sources.append(emit_pending)

    def emit_pending(self) -> None:
        """Emit all buffered events of the registered sources, and write what is kept soon."""
        for emit_source in self._pending_sources:
            emit_source()
        if get_ident() == self._writer.loop_thread:
            self._write_groups([self._take_kept(packet_id) for packet_id in tuple(self._kept)])

    def emit(self, event: Event) -> None:
        """Write the event soon. Returns at once, from any thread.

        If the disk is blocked and too many rows wait, the oldest row without an audited event is dropped and
        an `EventsDropped` is recorded. An audited event is never dropped; in the worst case this call raises.
        """
        self.emit_all((event,))

    def emit_all(self, events: Sequence[Event]) -> None:
        """Like `emit`, for several events. If one is refused, raise after the others were accepted."""
        if get_ident() == self._writer.loop_thread:
            self._write_groups(group for event in events for group in self._keep(event))
        else:
            self._write_groups((event,) for event in events)

    def _keep(self, event: Event) -> Iterator[EventGroup]:
        """Keep a step, or yield what is to be written now."""
        packet_id = event.packet_id
        if packet_id is None or not isinstance(event, StepEvent):
            yield (event,)
            return
        if event.event_id in self._appended:
            del self._appended[event.event_id]
            return
        if event.kind in _BEGINNINGS and packet_id in self._kept and _is_beginning(event):
            yield self._take_kept(packet_id)
        kept = self._get_or_create_kept(packet_id)
        kept.events.append(event)
        if event.is_last or len(kept.events) >= MAX_KEPT:
            yield self._take_kept(packet_id)
        elif isinstance(event, ApprovalRequested | ApprovalDecided):
            self.hurry(packet_id)

    def _get_or_create_kept(self, packet_id: str) -> _KeptSteps:
        kept = self._kept.get(packet_id)
        if kept is None:
            loop = self._writer.loop
            kept = self._kept[packet_id] = _KeptSteps(loop.time())
            if not self._is_sweeping:
                self._is_sweeping = True
                loop.call_later(KEEP_SECONDS / 2, self._write_old)
        return kept

    def _write_old(self) -> None:
        """Write what was kept long enough."""
        loop = self._writer.loop
        now = loop.time()
        old = [packet_id for packet_id, kept in self._kept.items() if now - kept.since > KEEP_SECONDS]
        self._is_sweeping = len(old) < len(self._kept)
        if self._is_sweeping:
            loop.call_later(KEEP_SECONDS / 2, self._write_old)
        self._write_late(map(self._take_kept, old))

    def _take_kept(self, packet_id: str) -> EventGroup:
        kept = self._kept.pop(packet_id, None)
        if kept is None:
            return ()
        if kept.is_urgent:
            self._writer.loop.call_soon(self._writer.flush_soon)
        return tuple(kept.events)

    def _write_groups(self, groups: Iterable[EventGroup]) -> None:
        self._writer.write_all_soon(
            self._write,
            [
                ((group,), None if any(event.audited for event in group) else self._loss)
                for group in groups
                if group
            ],
        )

    def hurry(self, packet_id: str) -> None:
        """Have the steps of this request or call written as soon as it ends, at the latest after some
        milliseconds. Other processes need them.
        """
        self._get_or_create_kept(packet_id).is_urgent = True
        self._writer.loop.call_later(HURRY_SECONDS, self._write_kept, packet_id)

    def _write_kept(self, packet_id: str) -> None:
        self._write_late((self._take_kept(packet_id),))

    def _write_late(self, groups: Iterable[EventGroup]) -> None:
        """Write groups whose emitter does not wait: a failure is logged, not raised."""
        try:
            self._write_groups(groups)
        except StoreUnavailable as error:
            logger.error("events were not recorded: %s", error)

    def flush_soon(self) -> None:
        """Have all emitted events written at once, without waiting. Other processes may need them."""
        self.emit_pending()
        self._writer.flush_soon()

    async def append(self, *events: Event) -> None:
        """Write the events together, after the steps that were kept before them. Returns when they are on
        disk. Repeating it has no effect.
        """
        kept: list[EventGroup] = []
        groups: list[EventGroup] = []
        for event in {event.event_id: event for event in events}.values():
            if not isinstance(event, StepEvent) or event.packet_id is None:
                groups.append((event,))
            elif groups and groups[-1][-1].packet_id == event.packet_id:
                groups[-1] = (*groups[-1], event)
            else:
                kept.append(self._take_kept(event.packet_id))
                groups.append((*kept[-1], event))
        try:
            await self._writer.write(self._write, groups)
        except BaseException:
            # Other steps must not be lost with this one. A row that is written after all is skipped then.
            self._write_late(kept)
            raise
        self._appended |= {event.event_id: None for event in events if isinstance(event, StepEvent)}
        while len(self._appended) > _MAX_APPENDED:
            del self._appended[next(iter(self._appended))]

    async def flush(self) -> None:
        """Wait until all earlier events are on disk."""
        self.emit_pending()
        await self._writer.write(self._write, ())

    async def list_events(
        self,
        *,
        packet_id: str | None = None,
        kinds: Collection[str] | None = None,
        after_seq: int = 0,
        up_to_seq: int | None = None,
        limit: int = 1000,
    ) -> list[JournalEntry]:
        """Return the first `limit` events after `after_seq`, up to `up_to_seq`, in order.

        To read some kinds from a long journal, set both bounds; the index of kinds does not help there.
        """
        query = select(journal).order_by(journal.c.seq)
        if up_to_seq is not None:
            # The row that holds this number has a higher one itself, if it is not its last event.
            holder = select(func.min(journal.c.seq)).where(journal.c.seq >= up_to_seq).scalar_subquery()
            query = query.where(journal.c.seq <= func.coalesce(holder, up_to_seq))
        if packet_id is not None:
            query = query.where(journal.c.packet_id == packet_id)
        if kinds is not None:
            query = query.where(journal.c.kind.in_((*kinds, *_STEPS_KINDS)))
        return await self._database.read(
            lambda connection: _read_events(connection, query, after_seq, up_to_seq, kinds, limit)
        )

    async def list_beginnings(
        self, *, kinds: Collection[str], before: int | None = None, limit: int = 200
    ) -> list[JournalEntry]:
        """Return the last `limit` first events of requests and calls, newest first: `packet_received` and
        `call_received`, of calls that belong to no request. `before` (a `seq`) continues after an older one.
        """

        def find(connection: Connection) -> list[JournalEntry]:
            # One query per kind: each reads its index backwards and stops early.
            rows = [
                row
                for kind in kinds
                for row_kind in (kind, _BEGINNINGS[kind])
                for row in connection.execute(_select_newest(row_kind, before, limit))
            ]
            rows.sort(key=lambda row: row.seq, reverse=True)
            return [entry for row in rows[:limit] for entry in _build_entries(row, kinds)[:1]]

        return await self._database.read(find)

    async def list_packet_events(
        self,
        packet_ids: Collection[str],
        *,
        kinds: Collection[str] | None = None,
        limit: int = 10_000,
    ) -> list[JournalEntry]:
        """Return the first `limit` events of these packets, in order."""
        # Kinds are filtered later: in the query they could make the database scan the whole index of kinds.
        query = select(journal).where(journal.c.packet_id.in_(packet_ids)).order_by(journal.c.seq)
        return await self._database.read(
            lambda connection: _read_events(connection, query, 0, None, kinds, limit)
        )

    async def get_last_seq(self) -> int:
        """Return the number of the last event, or 0."""
        query = select(journal_head.c.seq)
        return await self._database.read(lambda connection: connection.execute(query).scalar_one())

    async def find_last_before(self, moment: datetime) -> int:
        """Return the number of the last event before `moment`, or 0."""
        return await self._database.read(lambda connection: find_last_event(connection, moment))

    async def list_session_packets(self, session_id: str, *, limit: int = 20) -> list[Packet]:
        """Return the newest packets of one conversation as received, newest first."""
        query = select_session_packets(session_id, limit=limit)
        kinds = (PacketReceived.kind,)
        found = await self._database.read(
            lambda connection: [
                entry for row in connection.execute(query) for entry in _build_entries(row, kinds)
            ]
        )
        return [entry.event.packet for entry in found if isinstance(entry.event, PacketReceived)]

    def _write(self, connection: Connection, items: Sequence[Sequence[EventGroup]]) -> list[None]:
        groups = {group[0].event_id: group for item in items for group in item}
        if groups:
            seq = before = _take_numbers(connection, sum(map(len, groups.values())))
            rows: list[RowValues] = []
            facts: dict[str, AuditFact] = {}
            for key, group in groups.items():
                seq += len(group)
                lines = StepLines(group)
                rows.append(_build_row(seq, group, lines.join().decode()))
                if audited := [event for event in group if event.audited]:
                    facts[key] = _build_fact(audited, lines.join(lambda event: event.audited).decode())
            if _JOURNAL_ROWS.add(connection, rows) != len(rows):  # some were appended again
                new = _read_event_ids(connection, after=before)
                facts = {key: fact for key, fact in facts.items() if key in new}
            if facts:
                self._trail.extend(connection, tuple(facts.values()))
        return [None] * len(items)


def find_last_event(connection: Connection, before: datetime) -> int:
    """Return the number of the last event before this time, or 0."""
    last = connection.execute(select(func.max(journal.c.seq))).scalar() or 0
    return bisect_rows(connection, (journal.c.seq, journal.c.at), before, 0, last)


def _is_beginning(event: Event) -> bool:
    """Return whether this begins a request, or a call that belongs to none."""
    return not isinstance(event, CallReceived) or event.packet_id == event.call_id


def _take_numbers(connection: Connection, count: int) -> int:
    """Reserve the next `count` numbers and return the one before them."""
    statement = f"UPDATE journal_head SET seq = seq + {count:d} RETURNING seq"  # noqa: S608 - a number
    [(last,)], _ = execute_directly(connection, statement)
    return last - count


def _build_row(seq: int, group: EventGroup, payload: str) -> RowValues:
    first, at = group[0], to_microseconds(group[-1].at)
    kind = _get_kind(first) if len(group) == 1 else _BEGINNINGS.get(first.kind, STEPS)
    packet_id = None if first.packet_id is None else escape(first.packet_id)
    session = first.packet.header.session_id if isinstance(first, PacketReceived) else None
    conversation = None if session is None else escape(session)
    return seq, escape(first.event_id), at, kind, packet_id, payload, conversation


def _build_fact(audited: Sequence[Event], payload: str) -> AuditFact:
    *_, last = audited
    kind = _get_kind(last) if len(audited) == 1 else STEPS
    return last.event_id, to_microseconds(last.at), kind, last.packet_id, payload


def _get_kind(event: Event) -> str:
    return escape(event.unknown_kind) if isinstance(event, UnknownEvent) else event.kind


def select_session_packets(session_id: str, *, limit: int) -> Select[Any]:
    """Select the received requests of one conversation, newest first."""
    query = select(journal).where(journal.c.conversation == session_id)
    return query.order_by(journal.c.seq.desc()).limit(limit)


def _select_newest(kind: str, before: int | None, limit: int) -> Select[Any]:
    query = select(journal).where(journal.c.kind == kind)
    if before is not None:
        query = query.where(journal.c.seq < before)
    return query.order_by(journal.c.seq.desc()).limit(limit)


def _read_event_ids(connection: Connection, *, after: int) -> set[str]:
    """Return the first events of the rows that this transaction added; it holds the row of the head."""
    return set(connection.execute(select(journal.c.event_id).where(journal.c.seq > after)).scalars())


def _read_events(
    connection: Connection,
    query: Select[Any],
    after_seq: int,
    up_to_seq: int | None,
    kinds: Collection[str] | None,
    limit: int,
) -> list[JournalEntry]:
    found: list[JournalEntry] = []
    last, size = after_seq, min(max(limit, 50), _PAGE_ROWS)
    while len(found) < limit:
        rows = connection.execute(query.where(journal.c.seq > last).limit(size)).all()
        for row in rows:
            found += [
                entry
                for entry in _build_entries(row, kinds)
                if after_seq < entry.seq and (up_to_seq is None or entry.seq <= up_to_seq)
            ]
        if len(rows) < size:
            break
        last = rows[-1].seq
    return found[:limit]


def _build_entries(row: FoundRow[Any], kinds: Collection[str] | None) -> list[JournalEntry]:
    """Return the row's events of these kinds. The row has the number of its last event."""
    try:
        events = decode_steps(row.payload, kinds)
    except ValueError:
        # The row was edited from outside. One invalid row must not hide the others.
        invalid = UnknownEvent(
            event_id=row.event_id,
            at=row.at,
            packet_id=row.packet_id,
            unknown_kind=row.kind,
            unknown_version=0,
            contents={"unreadable": str(row.payload)[:200]},
        )
        return [JournalEntry(row.seq, invalid)]
    first = row.seq - len(events) + 1
    return [JournalEntry(first + index, event) for index, event in enumerate(events) if event is not None]
