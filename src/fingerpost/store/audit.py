"""The audit trail: selections, reviews, decisions and executions in a hash chain that detects tampering."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import orjson
from sqlalchemy import ColumnElement, Connection, func, or_, select
from sqlalchemy import Row as FoundRow

from fingerpost.frozen import frozen
from fingerpost.store.anchors import Anchor, JournalRange, RemoteAnchors, read_remote_lines
from fingerpost.store.database import Database, RowInserter, RowValues, execute_directly
from fingerpost.store.schema import (
    audit,
    audit_head,
    escape,
    from_microseconds,
    journal,
    to_microseconds,
)

GENESIS = "0" * 64
_ANY_HASH: frozenset[str] = frozenset()
_FACT_TYPES = frozenset({str, int, type(None)})


# What the journal gives to the trail: event id, microseconds since 1970, kind, packet id, payload.
AuditFact = tuple[str, int, str, str | None, str]


@frozen
class ChainFact:
    """The content of a link: the event as stored."""

    seq: int
    event_id: str
    at: int  # microseconds since 1970
    kind: str
    packet_id: str | None
    payload: str


@frozen
class ChainLink:
    """A fact with its hashes in the chain."""

    fact: ChainFact
    prev_hash: str
    hash: str

    @classmethod
    def from_fact(cls, fact: ChainFact, prev_hash: str) -> ChainLink:
        return cls(fact=fact, prev_hash=prev_hash, hash=hash_fact(fact, prev_hash))


def hash_fact(fact: ChainFact, prev_hash: str) -> str:
    """Return the SHA-256 of the previous hash and the fact in canonical form (a JSON list in ASCII)."""
    return hash_parts(prev_hash, fact.seq, fact.event_id, fact.at, fact.kind, fact.packet_id, fact.payload)


def hash_parts(prev_hash: str, *fact: str | int | None) -> str:
    """Like `hash_fact`, for a fact given by its parts in order."""
    parts = [prev_hash, *fact]
    return hashlib.sha256(_encode_quickly(parts) or _encode_json(parts).encode("ascii")).hexdigest()


def _encode_quickly(parts: list[str | int | None]) -> bytes | None:
    """Return the same bytes as `_encode_json`, ten times faster, or None if a part is not plain ASCII or has
    a wrong type.
    """
    if not _FACT_TYPES.issuperset(map(type, parts)):
        return None
    try:
        data = orjson.dumps(parts)
    except TypeError:  # a lone surrogate, or an integer beyond 64 bits
        return None
    return data if data.isascii() and b"\x7f" not in data else None  # the encoders write DEL differently


# `default` is for rows that were tampered with: an SQLite column can hold any type.
_encode_json = json.JSONEncoder(separators=(",", ":"), default=repr).encode


@frozen(kw_only=False)
class ChainBreak:
    """The first break of the chain and its reason."""

    seq: int
    reason: str
    by_anchor: bool = False  # the chain may be intact but differs from the anchor file


class ChainCheck:
    """Checks a chain from its start and finds the first break."""

    def __init__(self, anchors: Mapping[int, frozenset[str]]) -> None:
        self._anchors = anchors
        self.seq = 0
        self.hash: str = GENESIS

    def begin_at(self, first: ChainLink) -> None:
        """Start with this link and ignore what precedes it."""
        self.seq, self.hash = first.fact.seq - 1, first.prev_hash

    def find_break_at(self, found: ChainLink) -> ChainBreak | None:
        """Check the next link. Return the break, or None."""
        expected = self.seq + 1
        fact = found.fact
        if fact.seq != expected:
            return ChainBreak(expected, f"row {expected} is missing")
        if found.prev_hash != self.hash:
            return ChainBreak(expected, f"row {expected} does not follow from the row before it")
        if found.hash != hash_fact(fact, found.prev_hash):
            return ChainBreak(expected, f"row {expected} was changed after it was written")
        if self._anchors.get(expected, _ANY_HASH) - {found.hash}:
            return ChainBreak(
                expected, f"row {expected} is not the one the anchor file remembers", by_anchor=True
            )
        self.seq, self.hash = expected, found.hash
        return None

    def find_break_at_end(self, head: tuple[int, str] | None) -> ChainBreak | None:
        """Check that the rows end at `head`. Return the break, or None."""
        newest = max(self._anchors, default=0)
        if newest > self.seq:
            reason = f"rows after {self.seq} are missing: the anchor file remembers row {newest}"
            return ChainBreak(self.seq + 1, reason, by_anchor=True)
        if head is None:
            return ChainBreak(self.seq + 1, "the record of the chain's head is missing")
        if head != (self.seq, self.hash):
            return ChainBreak(
                self.seq + 1, f"the chain ends at row {self.seq}, its recorded head is row {head[0]}"
            )
        return None


_CHUNK_ROWS = 2000
_CHECKED_ROWS = 200  # rows checked at startup
_AUDIT_ROWS = RowInserter(audit, "seq", "event_id", "at", "kind", "packet_id", "payload", "prev_hash", "hash")


@frozen
class AuditEntry:
    """One row of the trail. `payload` is the event as JSON, `hash` is its chain hash."""

    seq: int
    at: datetime
    kind: str
    event_id: str
    packet_id: str | None
    payload: str
    hash: str


@frozen
class AuditQuery:
    """Filter for entries. Empty fields do not filter."""

    kind: str | None = None
    packet_id: str | None = None
    text: str = ""  # anywhere in the event
    since: datetime | None = None
    until: datetime | None = None  # exclusive
    before: int | None = None  # a `seq`: only older entries


ALL_ENTRIES: Final = AuditQuery()


@frozen
class AuditReport:
    """Result of verifying the audit trail. `anchors` is the number of rows compared with hashes stored
    outside the database. If it is 0, a completely rewritten chain is not detected.
    """

    rows: int
    intact: bool
    first_bad: int | None
    reason: str | None
    head: str
    anchors: int
    journal: int = 0  # journal ranges compared with anchors
    elsewhere: int = 0  # rows of a store at another location, found in anchors
    elsewhere_alike: int = 0  # how many of them match this store


class AuditTrail:
    """Reads and verifies the trail. The journal extends it."""

    def __init__(
        self, database: Database, anchor: Anchor, *, enabled: bool, remote: RemoteAnchors | None = None
    ) -> None:
        self._database = database
        self._anchor = anchor
        self._enabled = enabled
        self._remote_anchors = remote
        # Journal rows up to this one are covered.
        self._covered = database.read_blocking(_get_last_journal_seq)

    async def list_entries(
        self, query: AuditQuery = ALL_ENTRIES, *, limit: int = 100, before: int | None = None
    ) -> list[AuditEntry]:
        """Return the newest matching entries, newest first. `before` continues after an older row."""
        if before is not None:
            query = replace(query, before=before)
        wanted = select(audit).where(*_build_conditions(query)).order_by(audit.c.seq.desc()).limit(limit)
        return await self._database.read(
            lambda connection: [_build_entry(row) for row in connection.execute(wanted)]
        )

    async def iterate_chunks(
        self, query: AuditQuery = ALL_ENTRIES, *, size: int = _CHUNK_ROWS
    ) -> AsyncGenerator[list[AuditEntry]]:
        """Yield all matching entries in chunks, oldest first. Entries written meanwhile are not included."""
        newest = select(func.max(audit.c.seq))
        end = await self._database.read(lambda connection: connection.execute(newest).scalar())
        last = 0
        conditions = (*_build_conditions(query), audit.c.seq <= (end or 0))
        while True:
            wanted = select(audit).where(*conditions, audit.c.seq > last).order_by(audit.c.seq).limit(size)
            entries = await self._database.read(
                lambda connection, wanted=wanted: [_build_entry(row) for row in connection.execute(wanted)]
            )
            if entries:
                yield entries
            if len(entries) < size:
                return
            last = entries[-1].seq

    async def verify(self, *anchor_locations: str) -> AuditReport:
        """Check the whole chain and compare it and the journal with the anchors.

        Uses the local anchor file and those at `anchor_locations`: files, logs or URLs. Raises `OSError` if
        one cannot be read.
        """
        return await self._database.read(lambda connection: self._verify(connection, anchor_locations))

    def find_break(self) -> str | None:
        """Return why the newest rows, the recorded head and the anchor file do not match, or None. Blocks.

        This is a short check at startup; `verify` checks the whole chain.
        """
        return self._database.read_blocking(self._find_break)

    def _find_break(self, connection: Connection) -> str | None:
        anchors = self._anchor.read_newest()  # before the snapshot, as in `_verify`
        query = select(audit).order_by(audit.c.seq.desc()).limit(_CHECKED_ROWS)
        links = [_build_link(row) for row in connection.execute(query)][::-1]
        check = ChainCheck(anchors)
        if links and links[0].fact.seq > 1:
            check.begin_at(links[0])
        found = (check.find_break_at(each) for each in links)
        broken = next((each for each in found if each is not None), None) or check.find_break_at_end(
            _read_head(connection)
        )
        return None if broken is None else self._describe_break(broken)

    def extend(self, connection: Connection, added: Sequence[AuditFact]) -> None:
        """Add these facts to the trail, in the same transaction as the journal's rows.

        The transaction holds the write lock, so no other process changes the head meanwhile.
        """
        if not self._enabled:
            return
        [(seq, head)], _ = execute_directly(connection, "SELECT seq, hash FROM audit_head")
        rows: list[RowValues] = []
        for event_id, at, kind, packet_id, payload in added:
            seq += 1
            before = head
            head = hash_parts(before, seq, event_id, at, kind, packet_id, payload)
            packet = None if packet_id is None else escape(packet_id)
            rows.append((seq, escape(event_id), at, kind, packet, payload, before, head))
        _AUDIT_ROWS.add(connection, rows)
        execute_directly(connection, f"UPDATE audit_head SET seq = {seq:d}, hash = '{head}'")  # noqa: S608 - a number, a hash

    def write_anchor(self) -> None:
        """Write the committed head to the anchors. Blocks."""
        if self._enabled:
            head = self._database.read_blocking(_read_head)
            if head is not None:
                self._anchor.append_row(*head)
                journal = self._database.read_blocking(self._hash_journal)
                if journal is not None:
                    self._anchor.append_journal_range(journal)
                    self._covered = journal.last
                if self._remote_anchors is not None:
                    self._remote_anchors.queue(head, journal)

    def _hash_journal(self, connection: Connection) -> JournalRange | None:
        """Return the hash over the journal rows since the last one."""
        last, digest = self._covered, GENESIS
        for row in _iterate_journal_rows(connection, after=last):
            last, digest = row[0], hash_parts(digest, *row)
        return None if last == self._covered else JournalRange(self._covered + 1, last, digest)

    def _verify(self, connection: Connection, anchor_locations: Sequence[str]) -> AuditReport:
        # Read before the snapshot, so that all anchored rows are committed.
        remote_lines = [
            read_remote_lines(location, self._database.location.identity) for location in anchor_locations
        ]
        anchors = merge_lines([self._anchor.read_lines(), *(lines.rows for lines in remote_lines)])
        ranges = {
            *self._anchor.read_journal_ranges(),
            *(one for lines in remote_lines for one in lines.journal),
        }
        elsewhere = {line for lines in remote_lines for line in lines.elsewhere}
        alike = 0
        check = ChainCheck(anchors)
        broken: ChainBreak | None = None
        for found in _iterate_links(connection):
            broken = check.find_break_at(found)
            if broken is not None:
                break
            alike += (found.fact.seq, found.hash) in elsewhere
        broken = (
            broken
            or check.find_break_at_end(_read_head(connection))
            or _find_journal_break(connection, ranges)
        )
        return AuditReport(
            rows=connection.execute(select(func.count()).select_from(audit)).scalar_one(),
            intact=broken is None,
            first_bad=broken.seq if broken else None,
            reason=self._describe_break(broken) if broken else None,
            head=check.hash,
            anchors=len(anchors),
            journal=len(ranges),
            elsewhere=len(elsewhere),
            elsewhere_alike=alike,
        )

    def _describe_break(self, broken: ChainBreak) -> str:
        """Return the break as text, with advice for a person who replaced the database."""
        if not broken.by_anchor:
            return broken.reason
        return (
            f"{broken.reason}. Only if you put a new database here yourself: "
            f"move {self._anchor.path} away as you did with the old one"
        )


def merge_lines(found: Sequence[Mapping[int, frozenset[str]]]) -> dict[int, frozenset[str]]:
    """Return all recorded hashes by row from several anchors."""
    made: dict[int, frozenset[str]] = {}
    for lines in found:
        for seq, hashes in lines.items():
            made[seq] = made.get(seq, frozenset()) | hashes
    return made


def _iterate_journal_rows(
    connection: Connection, *, after: int
) -> Iterator[tuple[int, str, int, str, str | None, str]]:
    while True:
        query = select(journal).where(journal.c.seq > after).order_by(journal.c.seq).limit(_CHUNK_ROWS)
        rows = connection.execute(query).all()
        for row in rows:
            yield row.seq, row.event_id, to_microseconds(row.at), row.kind, row.packet_id, row.payload
        if len(rows) < _CHUNK_ROWS:
            return
        after = rows[-1].seq


def _get_last_journal_seq(connection: Connection) -> int:
    return connection.execute(select(func.max(journal.c.seq))).scalar() or 0


def _find_journal_break(connection: Connection, ranges: Collection[JournalRange]) -> ChainBreak | None:
    """Return the first journal range that differs from its anchor, or None. Reads the rows once."""
    waiting = sorted(ranges, key=lambda one: (one.first, one.last), reverse=True)
    if not waiting:
        return None
    under_way: list[tuple[JournalRange, str]] = []
    for row in _iterate_journal_rows(connection, after=waiting[-1].first - 1):
        while waiting and waiting[-1].first <= row[0]:
            under_way.append((waiting.pop(), GENESIS))
        for index, (one, digest) in enumerate(under_way):
            if row[0] <= one.last:
                under_way[index] = one, hash_parts(digest, *row)
        over = [(one, digest) for one, digest in under_way if one.last <= row[0]]
        if (wrong := next((one for one, digest in over if digest != one.digest), None)) is not None:
            return _build_journal_break(wrong)
        under_way = [(one, digest) for one, digest in under_way if one.last > row[0]]
    left = [*(one for one, _ in under_way), *waiting]
    return _build_journal_break(min(left, key=lambda one: one.first)) if left else None


def _build_journal_break(rows: JournalRange) -> ChainBreak:
    reason = f"the journal's rows {rows.first} to {rows.last} are not those an anchor remembers"
    return ChainBreak(rows.first, reason, by_anchor=True)


def _build_conditions(query: AuditQuery) -> tuple[ColumnElement[bool], ...]:
    column = audit.c
    wanted = (
        (query.kind, lambda: column.kind == query.kind),
        (query.packet_id, lambda: column.packet_id == query.packet_id),
        (query.text or None, lambda: _build_payload_condition(query.text)),
        (query.since, lambda: column.at >= _to_microseconds_or_none(query.since)),
        (query.until, lambda: column.at < _to_microseconds_or_none(query.until)),
        (query.before, lambda: column.seq < query.before),
    )
    return tuple(condition() for value, condition in wanted if value is not None)


def _build_payload_condition(text: str) -> ColumnElement[bool]:
    """Return the condition that the payload contains `text`, encoded as in JSON.

    The search ignores case as far as the database supports it; SQLite does for a to z only.
    """
    written = json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace").decode()
    lower = func.lower(audit.c.payload)
    return or_(
        audit.c.payload.contains(written, autoescape=True),
        lower.contains(written.lower(), autoescape=True),
    )


def _to_microseconds_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)


def _build_entry(row: FoundRow[Any]) -> AuditEntry:
    return AuditEntry(
        seq=row.seq,
        at=from_microseconds(row.at),
        kind=row.kind,
        event_id=row.event_id,
        packet_id=row.packet_id,
        payload=row.payload,
        hash=row.hash,
    )


def _read_head(connection: Connection) -> tuple[int, str] | None:
    row = connection.execute(select(audit_head.c.seq, audit_head.c.hash)).one_or_none()
    return None if row is None else (row.seq, row.hash)


def _iterate_links(connection: Connection) -> Iterator[ChainLink]:
    """Yield all rows in order. They are read in chunks, because the trail may not fit in memory."""
    last = None
    while True:
        query = select(audit).order_by(audit.c.seq).limit(_CHUNK_ROWS)
        rows = connection.execute(query if last is None else query.where(audit.c.seq > last)).all()
        yield from map(_build_link, rows)
        if len(rows) < _CHUNK_ROWS:
            return
        last = rows[-1].seq


def _build_link(row: FoundRow[tuple[object, ...]]) -> ChainLink:
    fact = ChainFact(
        seq=row.seq,
        event_id=row.event_id,
        at=row.at,
        kind=row.kind,
        packet_id=row.packet_id,
        payload=row.payload,
    )
    return ChainLink(fact=fact, prev_hash=row.prev_hash, hash=row.hash)
