"""The audit trail: selections, reviews, decisions and executions, in a chain that shows tampering."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, select, update
from sqlalchemy import Row as FoundRow

from fingerpost.events import Event
from fingerpost.store.anchor import Anchor
from fingerpost.store.chain import Break, ChainCheck, Fact, Link, hash_of
from fingerpost.store.columns import escape, from_microseconds, to_microseconds
from fingerpost.store.database import Database
from fingerpost.store.rows import Row, Rows
from fingerpost.store.schema import audit, audit_head

_CHUNK = 2000
_ROWS = Rows(audit, "seq", "event_id", "at", "kind", "packet_id", "payload", "prev_hash", "hash")
_MOVE_HEAD = update(audit_head).values(seq=bindparam("to_seq"), hash=bindparam("to_hash"))


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One row of the trail. `payload` is the event as JSON, `hash` its place in the chain."""

    seq: int
    at: datetime
    kind: str
    event_id: str
    packet_id: str | None
    payload: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What verifying found. `anchors` says how many remembered rows were compared: 0 proves less."""

    rows: int
    intact: bool
    first_bad: int | None
    reason: str | None
    head: str
    anchors: int


class AuditTrail:
    """Reads and verifies the trail; the journal extends it."""

    def __init__(self, database: Database, anchor: Anchor, *, enabled: bool) -> None:
        self._database = database
        self._anchor = anchor
        self._enabled = enabled

    async def entries(self, *, limit: int = 100, before: int | None = None) -> list[AuditEntry]:
        """The newest entries, newest first; `before` goes on from an older row."""
        query = select(audit).order_by(audit.c.seq.desc()).limit(limit)
        if before is not None:
            query = query.where(audit.c.seq < before)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [
            AuditEntry(
                seq=row.seq,
                at=from_microseconds(row.at),
                kind=row.kind,
                event_id=row.event_id,
                packet_id=row.packet_id,
                payload=row.payload,
                hash=row.hash,
            )
            for row in rows
        ]

    async def verify(self) -> AuditReport:
        """Follow the chain from its first row and compare it with the anchor file."""
        return await self._database.read(self._verify)

    def extend(self, connection: Connection, written: Sequence[tuple[Event, str]]) -> None:
        """Add the audited events of those just `written` to the journal, in the same transaction.

        The transaction holds the write lock, so no other process moves the head meanwhile.
        """
        audited = [(event, payload) for event, payload in written if self._enabled and event.audited]
        if not audited:
            return
        seq, head = connection.exec_driver_sql("SELECT seq, hash FROM audit_head").one()
        rows: list[Row] = []
        for event, payload in audited:
            seq += 1
            fact = _fact(seq, event, payload)
            before, head = head, hash_of(fact, head)
            packet_id = None if fact.packet_id is None else escape(fact.packet_id)
            rows.append(
                (seq, escape(fact.event_id), fact.at, escape(fact.kind), packet_id, payload, before, head)
            )
        _ROWS.add(connection, rows)
        connection.execute(_MOVE_HEAD, {"to_seq": seq, "to_hash": head})

    def drop_anchor(self) -> None:
        """Remember the committed head outside the database. Blocks."""
        if self._enabled:
            head = self._database.read_now(_head)
            if head is not None:
                self._anchor.remember(*head)

    def _verify(self, connection: Connection) -> AuditReport:
        anchors = self._anchor.lines()  # before the snapshot: what it remembers is surely committed
        check = ChainCheck(anchors)
        broken: Break | None = None
        for found in _links(connection):
            broken = check.follow(found)
            if broken is not None:
                break
        broken = broken or check.end(_head(connection))
        return AuditReport(
            rows=connection.execute(select(func.count()).select_from(audit)).scalar_one(),
            intact=broken is None,
            first_bad=broken.seq if broken else None,
            reason=broken.reason if broken else None,
            head=check.hash,
            anchors=len(anchors),
        )


def _fact(seq: int, event: Event, payload: str) -> Fact:
    return Fact(
        seq=seq,
        event_id=event.event_id,
        at=to_microseconds(event.at),
        kind=event.kind,
        packet_id=event.packet_id,
        payload=payload,
    )


def _head(connection: Connection) -> tuple[int, str] | None:
    row = connection.execute(select(audit_head.c.seq, audit_head.c.hash)).one_or_none()
    return None if row is None else (row.seq, row.hash)


def _links(connection: Connection) -> Iterator[Link]:
    """Every row in order, a chunk at a time: the trail may be longer than memory is large."""
    last = None
    while True:
        query = select(audit).order_by(audit.c.seq).limit(_CHUNK)
        rows = connection.execute(query if last is None else query.where(audit.c.seq > last)).all()
        yield from map(_link, rows)
        if len(rows) < _CHUNK:
            return
        last = rows[-1].seq


def _link(row: FoundRow[tuple[object, ...]]) -> Link:
    fact = Fact(
        seq=row.seq,
        event_id=row.event_id,
        at=row.at,
        kind=row.kind,
        packet_id=row.packet_id,
        payload=row.payload,
    )
    return Link(fact=fact, prev_hash=row.prev_hash, hash=row.hash)
