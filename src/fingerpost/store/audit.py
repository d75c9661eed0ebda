"""The audit trail: selections, reviews, decisions and executions, in a chain that shows tampering."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, func, or_, select
from sqlalchemy import Row as FoundRow

from fingerpost.events import Event
from fingerpost.frozen import frozen
from fingerpost.store.anchor import Anchor
from fingerpost.store.chain import Break, ChainCheck, Fact, Link, next_hash
from fingerpost.store.columns import from_microseconds, to_microseconds
from fingerpost.store.database import Database
from fingerpost.store.rows import Row, Rows, quickly
from fingerpost.store.schema import audit, audit_head

_CHUNK = 2000
_LOOK = 200  # rows that every start looks at
_ROWS = Rows(audit, "seq", "event_id", "at", "kind", "packet_id", "payload", "prev_hash", "hash")


@frozen
class AuditEntry:
    """One row of the trail. `payload` is the event as JSON, `hash` its place in the chain."""

    seq: int
    at: datetime
    kind: str
    event_id: str
    packet_id: str | None
    payload: str
    hash: str


@frozen
class AuditQuery:
    """Which entries are wanted. Empty parts set no bound."""

    kind: str | None = None
    packet_id: str | None = None
    text: str = ""  # somewhere in the event
    since: datetime | None = None
    until: datetime | None = None  # up to, not including
    before: int | None = None  # a `seq`: only older entries


EVERYTHING: Final = AuditQuery()


@frozen
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

    async def entries(
        self, query: AuditQuery = EVERYTHING, *, limit: int = 100, before: int | None = None
    ) -> list[AuditEntry]:
        """The newest entries that fit, newest first; `before` goes on from an older row."""
        if before is not None:
            query = replace(query, before=before)
        wanted = select(audit).where(*_conditions(query)).order_by(audit.c.seq.desc()).limit(limit)
        return await self._database.read(
            lambda connection: [_entry(row) for row in connection.execute(wanted)]
        )

    async def chunks(
        self, query: AuditQuery = EVERYTHING, *, size: int = _CHUNK
    ) -> AsyncGenerator[list[AuditEntry]]:
        """Every entry that fits, oldest first, some at a time. What is written meanwhile is left out."""
        newest = select(func.max(audit.c.seq))
        end = await self._database.read(lambda connection: connection.execute(newest).scalar())
        last = 0
        conditions = (*_conditions(query), audit.c.seq <= (end or 0))
        while True:
            wanted = select(audit).where(*conditions, audit.c.seq > last).order_by(audit.c.seq).limit(size)
            entries = await self._database.read(
                lambda connection, wanted=wanted: [_entry(row) for row in connection.execute(wanted)]
            )
            if entries:
                yield entries
            if len(entries) < size:
                return
            last = entries[-1].seq

    async def verify(self) -> AuditReport:
        """Follow the chain from its first row and compare it with the anchor file."""
        return await self._database.read(self._verify)

    def find_break(self) -> str | None:
        """Why the newest rows, the recorded head and the anchor file contradict each other. Blocks.

        A short look at every start; `verify` follows the whole chain.
        """
        return self._database.read_now(self._find_break)

    def _find_break(self, connection: Connection) -> str | None:
        anchors = self._anchor.newest()  # before the snapshot, as in `_verify`
        query = select(audit).order_by(audit.c.seq.desc()).limit(_LOOK)
        links = [_link(row) for row in connection.execute(query)][::-1]
        check = ChainCheck(anchors)
        if links and links[0].fact.seq > 1:
            check.begin_at(links[0])
        found = (check.follow(each) for each in links)
        broken = next((each for each in found if each is not None), None) or check.end(_head(connection))
        return None if broken is None else self._reason(broken)

    def extend(self, connection: Connection, written: Sequence[tuple[Event, Row]]) -> None:
        """Add the audited events of those just `written` to the journal, in the same transaction.

        The transaction holds the write lock, so no other process moves the head meanwhile.
        """
        if not self._enabled:
            return
        audited = [(event, row) for event, row in written if event.audited]
        if not audited:
            return
        [(seq, head)], _ = quickly(connection, "SELECT seq, hash FROM audit_head")
        rows: list[Row] = []
        for event, row in audited:
            seq += 1
            _, at, _, _, payload = row
            before = head
            head = next_hash(before, seq, event.event_id, at, event.kind, event.packet_id, payload)
            rows.append((seq, *row, before, head))
        _ROWS.add(connection, rows)
        quickly(connection, f"UPDATE audit_head SET seq = {seq:d}, hash = '{head}'")  # noqa: S608 - a number, a hash

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
            reason=self._reason(broken) if broken else None,
            head=check.hash,
            anchors=len(anchors),
        )

    def _reason(self, broken: Break) -> str:
        """A new database does not forget an old anchor by itself: whoever replaced it must say so."""
        if not broken.by_anchor:
            return broken.reason
        return (
            f"{broken.reason}. Only if you put a new database here yourself: "
            f"move {self._anchor.path} away as you did with the old one"
        )


def _conditions(query: AuditQuery) -> tuple[ColumnElement[bool], ...]:
    column = audit.c
    wanted = (
        (query.kind, lambda: column.kind == query.kind),
        (query.packet_id, lambda: column.packet_id == query.packet_id),
        (query.text or None, lambda: _holds(query.text)),
        (query.since, lambda: column.at >= _moment(query.since)),
        (query.until, lambda: column.at < _moment(query.until)),
        (query.before, lambda: column.seq < query.before),
    )
    return tuple(condition() for value, condition in wanted if value is not None)


def _holds(text: str) -> ColumnElement[bool]:
    """Payloads are JSON: what a person types stands there as JSON writes it.

    Capitals do not matter where the database knows what they are: SQLite does of a to z alone.
    """
    written = json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace").decode()
    lower = func.lower(audit.c.payload)
    return or_(
        audit.c.payload.contains(written, autoescape=True),
        lower.contains(written.lower(), autoescape=True),
    )


def _moment(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)


def _entry(row: FoundRow[Any]) -> AuditEntry:
    return AuditEntry(
        seq=row.seq,
        at=from_microseconds(row.at),
        kind=row.kind,
        event_id=row.event_id,
        packet_id=row.packet_id,
        payload=row.payload,
        hash=row.hash,
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
