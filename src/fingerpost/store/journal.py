"""The journal: all events in the order they were written. A packet is derived from its events.

`emit` returns at once, and the event is on disk some milliseconds later. `append` returns when the events are
on disk; use it before a dangerous action.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, select
from sqlalchemy import Row as FoundRow

from fingerpost.events import Event, EventsDropped, PacketReceived, UnknownEvent, decode, encode
from fingerpost.frozen import frozen
from fingerpost.records import Packet
from fingerpost.store.audit import AuditFact, AuditTrail
from fingerpost.store.database import Database, RowInserter, RowValues, execute_directly
from fingerpost.store.schema import escape, journal, to_microseconds
from fingerpost.store.writer import LossPolicy, StoreWriter

MAX_PROMPT_LENGTH = 120
_JOURNAL_ROWS = RowInserter(
    journal, "seq", "event_id", "at", "kind", "packet_id", "payload", "conversation", skip_existing=True
)


@frozen(kw_only=False)
class JournalEntry:
    """An event and its sequence number. Numbers increase in write order, with gaps."""

    seq: int
    event: Event


@frozen
class PacketSummary:
    """One packet in a list: its first event and its latest one."""

    packet_id: str
    seq: int
    at: datetime
    prompt: str
    last_kind: str
    last_at: datetime


class Journal:
    """Reads and writes events."""

    def __init__(self, database: Database, writer: StoreWriter, trail: AuditTrail) -> None:
        self._database = database
        self._writer = writer
        self._trail = trail
        self._loss = LossPolicy(stand_in=lambda count: (EventsDropped(count=count),))
        self._pending_sources: list[Callable[[], None]] = []

    def add_pending_source(self, emit_pending: Callable[[], None]) -> None:
        """Register a function that emits events which are still buffered elsewhere. It is called on flush and
        on close.
        """
        self._pending_sources.append(emit_pending)

    def emit_pending(self) -> None:
        """Emit all buffered events of the registered sources."""
        for emit_source in self._pending_sources:
            emit_source()

    def emit(self, event: Event) -> None:
        """Write the event with the next group commit. Returns at once, from any thread.

        If the disk is blocked and too many events wait, the oldest event that is not audited is dropped and
        an `EventsDropped` is recorded. An audited event is never dropped; in the worst case this call raises.
        """
        self._writer.write_soon(self._write, (event,), loss=None if event.audited else self._loss)

    def emit_all(self, events: Sequence[Event]) -> None:
        """Like `emit`, for several events. If one is refused, raise after the others were accepted."""
        self._writer.write_all_soon(
            self._write, [((event,), None if event.audited else self._loss) for event in events]
        )

    def flush_soon(self) -> None:
        """Have all emitted events written at once, without waiting. Other processes may need them."""
        self.emit_pending()
        self._writer.flush_soon()

    async def append(self, *events: Event) -> None:
        """Write the events together. Returns when they are on disk. Repeating it has no effect."""
        await self._writer.write(self._write, events)

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
        query = select(journal).where(journal.c.seq > after_seq).order_by(journal.c.seq).limit(limit)
        if up_to_seq is not None:
            query = query.where(journal.c.seq <= up_to_seq)
        if packet_id is not None:
            query = query.where(journal.c.packet_id == packet_id)
        if kinds is not None:
            query = query.where(journal.c.kind.in_(kinds))
        return await self._database.read(
            lambda connection: [_build_entry(row) for row in connection.execute(query)]
        )

    async def list_newest(
        self, *, kinds: Collection[str], before: int | None = None, limit: int = 200
    ) -> list[JournalEntry]:
        """Return the last `limit` events of these kinds, newest first. `before` (a `seq`) continues after an
        older one.
        """

        def find(connection: Connection) -> list[JournalEntry]:
            # One query per kind: each reads its index backwards and stops early.
            rows = [row for kind in kinds for row in connection.execute(_select_newest(kind, before, limit))]
            rows.sort(key=lambda row: row.seq, reverse=True)
            return [_build_entry(row) for row in rows[:limit]]

        return await self._database.read(find)

    async def list_packet_events(
        self,
        packet_ids: Collection[str],
        *,
        kinds: Collection[str] | None = None,
        limit: int = 10_000,
    ) -> list[JournalEntry]:
        """Return the first `limit` events of these packets, in order."""
        query = (
            select(journal).where(journal.c.packet_id.in_(packet_ids)).order_by(journal.c.seq).limit(limit)
        )

        def find(connection: Connection) -> list[JournalEntry]:
            # Kinds are filtered here: in the query they could make the database scan the whole index of
            # kinds.
            rows = connection.execute(query)
            return [_build_entry(row) for row in rows if kinds is None or row.kind in kinds]

        return await self._database.read(find)

    async def get_last_seq(self) -> int:
        """Return the number of the last event, or 0."""
        query = select(func.max(journal.c.seq))
        return await self._database.read(lambda connection: connection.execute(query).scalar() or 0)

    async def find_seq_at(self, moment: datetime) -> int:
        """Return the number of the first event at or after `moment`, or the next number if all are older.

        Events are written almost in time order, so bisection works.
        """

        def find(connection: Connection) -> int:
            low, high = connection.execute(select(func.min(journal.c.seq), func.max(journal.c.seq))).one()
            if low is None:
                return 1
            high += 1
            while low < high:
                middle = (low + high) // 2
                one = select(journal.c.at).where(journal.c.seq >= middle).order_by(journal.c.seq).limit(1)
                if connection.execute(one).scalar_one() < moment:
                    low = middle + 1
                else:
                    high = middle
            return low

        return await self._database.read(find)

    async def list_session_packets(self, session_id: str, *, limit: int = 20) -> list[Packet]:
        """Return the newest packets of one conversation as received, newest first."""
        query = select_session_packets(session_id, limit=limit)
        found = await self._database.read(
            lambda connection: [_build_entry(row) for row in connection.execute(query)]
        )
        return [entry.event.packet for entry in found if isinstance(entry.event, PacketReceived)]

    async def list_packets(self, *, limit: int = 50, before: int | None = None) -> list[PacketSummary]:
        """Return the newest packets, newest first. `before` (a `seq`) continues after an older one."""
        query = select(journal).where(journal.c.kind == PacketReceived.kind)
        if before is not None:
            query = query.where(journal.c.seq < before)
        newest = query.order_by(journal.c.seq.desc()).limit(limit)
        return await self._database.read(lambda connection: _build_summaries(connection, newest))

    def _write(self, connection: Connection, groups: Sequence[tuple[Event, ...]]) -> list[None]:
        events = {event.event_id: event for group in groups for event in group}
        if events:
            before = _take_numbers(connection, len(events))
            facts = {key: _build_fact(event) for key, event in events.items()}
            rows = [
                _build_row(seq, facts[key], event)
                for seq, (key, event) in enumerate(events.items(), before + 1)
            ]
            added = _JOURNAL_ROWS.add(connection, rows)
            audited = [key for key, event in events.items() if event.audited]
            if audited and added != len(rows):  # some were appended again; the trail already has those
                new = _read_event_ids(connection, after=before)
                audited = [key for key in audited if key in new]
            if audited:
                self._trail.extend(connection, [facts[key] for key in audited])
        return [None] * len(groups)


def _take_numbers(connection: Connection, count: int) -> int:
    """Reserve the next `count` numbers and return the one before them."""
    statement = f"UPDATE journal_head SET seq = seq + {count:d} RETURNING seq"  # noqa: S608 - a number
    [(last,)], _ = execute_directly(connection, statement)
    return last - count


def select_session_packets(session_id: str, *, limit: int) -> Select[Any]:
    """Select the received requests of one conversation, newest first."""
    query = select(journal).where(journal.c.conversation == session_id)
    return query.order_by(journal.c.seq.desc()).limit(limit)


def _select_newest(kind: str, before: int | None, limit: int) -> Select[Any]:
    query = select(journal).where(journal.c.kind == kind)
    if before is not None:
        query = query.where(journal.c.seq < before)
    return query.order_by(journal.c.seq.desc()).limit(limit)


def _build_fact(event: Event) -> AuditFact:
    kind = escape(event.unknown_kind) if isinstance(event, UnknownEvent) else event.kind
    return event.event_id, to_microseconds(event.at), kind, event.packet_id, encode(event).decode()


def _build_row(seq: int, fact: AuditFact, event: Event) -> RowValues:
    event_id, at, kind, packet_id, payload = fact
    packet = None if packet_id is None else escape(packet_id)
    return seq, escape(event_id), at, kind, packet, payload, _get_conversation(event)


def _get_conversation(event: Event) -> str | None:
    """Return the conversation of a received request, or None for other events."""
    return escape(event.packet.header.session_id) if isinstance(event, PacketReceived) else None


def _read_event_ids(connection: Connection, *, after: int) -> set[str]:
    """Return the events added by this transaction. It holds the write lock, so no other process added any."""
    return set(connection.execute(select(journal.c.event_id).where(journal.c.seq > after)).scalars())


def _build_entry(row: FoundRow[Any]) -> JournalEntry:
    try:
        return JournalEntry(row.seq, decode(row.payload))
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
        return JournalEntry(row.seq, invalid)


def _build_summaries(connection: Connection, newest: Any) -> list[PacketSummary]:
    received = connection.execute(newest).all()
    ids = [row.packet_id for row in received]
    last_seqs = (
        select(func.max(journal.c.seq)).where(journal.c.packet_id.in_(ids)).group_by(journal.c.packet_id)
    )
    lasts = select(journal.c.packet_id, journal.c.kind, journal.c.at).where(journal.c.seq.in_(last_seqs))
    last = {row.packet_id: row for row in connection.execute(lasts)}
    return [
        PacketSummary(
            packet_id=row.packet_id,
            seq=row.seq,
            at=row.at,
            prompt=_build_entry(row).event.summary()[:MAX_PROMPT_LENGTH],
            last_kind=last[row.packet_id].kind,
            last_at=last[row.packet_id].at,
        )
        for row in received
    ]
