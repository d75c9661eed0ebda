"""The audit trail: selections, reviews, decisions and executions in hash chains that detect tampering."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeAlias

import orjson
from sqlalchemy import ColumnElement, Connection, and_, func, literal, or_, select, tuple_
from sqlalchemy import Row as FoundRow
from sqlalchemy.exc import DBAPIError

from fingerpost.events import StorePruned, decode, decode_steps, encode
from fingerpost.events.codec import STEPS
from fingerpost.frozen import frozen
from fingerpost.records import create_id, utc_now
from fingerpost.store.anchors import (
    Anchor,
    AnchorLines,
    JournalRange,
    RemoteAnchors,
    format_row,
    read_remote_lines,
)
from fingerpost.store.database import Database, RowInserter, RowValues, execute_directly
from fingerpost.store.schema import (
    audit,
    audit_head,
    escape,
    from_microseconds,
    journal,
    to_microseconds,
)
from fingerpost.store.schema import pruned as pruned_rows

logger = logging.getLogger("fingerpost.store")

GENESIS = "0" * 64
FIRST_CHAIN: Final = 1
LEASE_SECONDS: Final = 30.0  # a chain without a new row for so long may be continued by another process
_ANY_HASH: frozenset[str] = frozenset()
_FACT_TYPES = frozenset({str, int, type(None)})


# What the journal gives to the trail: event id, microseconds since 1970, kind, packet id, payload.
AuditFact = tuple[str, int, str, str | None, str]
AuditRow: TypeAlias = FoundRow[Any]  # `number` is its place in its chain, `seq` that among all chains


@frozen(kw_only=False)
class ChainPoint:
    """A row of a chain: its number and its hash."""

    seq: int
    hash: str


def build_genesis(chain: int) -> ChainPoint:
    """Return what precedes the first row. Each chain starts differently, so none can stand for another; the
    first one is as old as the store.
    """
    return ChainPoint(0, GENESIS if chain == FIRST_CHAIN else hash_parts("fingerpost audit chain", chain))


def hash_parts(prev_hash: str, *fact: str | int | None) -> str:
    """Return the SHA-256 of the previous hash and the parts of a row, as a JSON list in ASCII.

    The parts are its number in the chain, event id, microseconds since 1970, kind, packet id and payload.
    """
    parts = [prev_hash, *fact]
    return hashlib.sha256(_encode_quickly(parts) or _encode_json(parts).encode("ascii")).hexdigest()


def _hash_row(row: AuditRow) -> str:
    return hash_parts(row.prev_hash, row.number, row.event_id, row.at, row.kind, row.packet_id, row.payload)


def _encode_quickly(parts: list[str | int | None]) -> bytes | None:
    """Return the bytes of `_encode_json`, ten times faster, or None if a part is not plain ASCII."""
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
    """The first break of a chain and its reason."""

    seq: int
    reason: str
    by_anchor: bool = False  # the chain may be intact but differs from the anchor file
    chain: int = FIRST_CHAIN


class ChainCheck:
    """Checks a chain from its first remaining row and finds the first break."""

    def __init__(
        self,
        chain: int,
        head: ChainPoint | None = None,
        pruned: ChainPoint | None = None,
        anchors: Mapping[int, frozenset[str]] | None = None,
    ) -> None:
        """`head` is the recorded end of the chain, `pruned` its last pruned row, if there is one."""
        self._chain = chain
        self._head = head
        self._anchors = anchors or {}
        self._pruned = self.last = pruned or build_genesis(chain)  # `last` is the last row that was checked
        self._row = 0

    def begin_at(self, first: AuditRow) -> None:
        """Start with this row and ignore what precedes it."""
        self.last = ChainPoint(first.number - 1, first.prev_hash)

    def find_break_at(self, row: AuditRow) -> ChainBreak | None:
        """Check the next row. Return the break, or None."""
        expected = self.last.seq + 1
        if row.number != expected:
            return self._build_break(f"row {expected} is missing")
        if row.prev_hash != self.last.hash:
            return self._build_break(f"row {expected} does not follow from the row before it")
        if row.hash != _hash_row(row):
            return self._build_break(f"row {expected} was changed after it was written")
        if row.seq <= self._row:
            return self._build_break(f"row {expected} was moved before an earlier one")
        if self._anchors.get(expected, _ANY_HASH) - {row.hash}:
            return self._build_break(f"row {expected} {_DIFFERS}", by_anchor=True)
        self.last, self._row = ChainPoint(expected, row.hash), row.seq
        return None

    def find_break_at_end(self) -> ChainBreak | None:
        """Check that the rows end at the recorded head. Return the break, or None."""
        newest, last = max(self._anchors, default=0), self.last
        if newest > last.seq:
            reason = f"rows after {last.seq} are missing: the anchor file remembers row {newest}"
            return self._build_break(reason, by_anchor=True)
        if self._anchors.get(self._pruned.seq, _ANY_HASH) - {self._pruned.hash}:
            return self._build_break(f"the pruned row {self._pruned.seq} {_DIFFERS}", by_anchor=True)
        if self._head is None:
            return self._build_break("the record of the chain's head is missing")
        if self._head != last:
            return self._build_break(
                f"the chain ends at row {last.seq}, its recorded head is row {self._head.seq}"
            )
        return None

    def _build_break(self, reason: str, *, by_anchor: bool = False) -> ChainBreak:
        named = reason if self._chain == FIRST_CHAIN else f"chain {self._chain}: {reason}"
        return ChainBreak(self.last.seq + 1, named, by_anchor=by_anchor, chain=self._chain)


_DIFFERS: Final = "is not the one the anchor file remembers"
_CHUNK_ROWS = 2000
_CHECKED_ROWS = 200  # rows checked at startup
_COVERED_ROWS = 10_000  # journal rows covered by one hash
_KEPT_LINES = 200  # newest lines of each chain kept in the local anchor file
_AUDIT_ROWS = RowInserter(
    audit, "event_id", "at", "kind", "packet_id", "payload", "prev_hash", "hash", "chain", "number"
)


@frozen
class AuditEntry:
    """One event of the trail. `payload` is the event as JSON, `hash` is the hash of its row in its chain, and
    `number` the row's place there. The events of one request or call can share a row, which is the number
    `seq` among all.
    """

    seq: int
    at: datetime
    kind: str
    event_id: str
    packet_id: str | None
    payload: str
    hash: str
    chain: int
    number: int


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
    first_bad: int | None  # its number in `chain`
    reason: str | None
    head: str  # of the only chain, or the hash over the heads of all
    anchors: int
    journal: int = 0  # journal ranges compared with anchors
    elsewhere: int = 0  # rows of a store at another location, found in anchors
    elsewhere_alike: int = 0  # how many of them match this store
    chains: int = 1
    chain: int | None = None  # of `first_bad`
    pruned: int = 0  # rows that retention removed before the first one


@frozen(kw_only=False)
class _HeldChain:
    chain: int
    last: ChainPoint


class AuditTrail:
    """Reads and verifies the trail. The journal extends it.

    Each process that writes extends a chain of its own, so none waits for another. It holds the chain until
    it closes the store or writes nothing for `LEASE_SECONDS`; then the next process continues that chain.
    There are therefore only as many chains as there were processes writing at the same time.
    """

    def __init__(
        self, database: Database, anchor: Anchor, *, enabled: bool, remote: RemoteAnchors | None = None
    ) -> None:
        self._database = database
        self._anchor = anchor
        self._enabled = enabled
        self._remote_anchors = remote
        self._owner = create_id("aud")
        self._held: _HeldChain | None = None  # as of the last write, which may not have been committed
        self._unanchored: set[int] = set()
        # Journal rows up to this one are covered.
        self._covered = database.read_blocking(_get_last_journal_seq)

    async def list_entries(
        self, query: AuditQuery = ALL_ENTRIES, *, limit: int = 100, before: int | None = None
    ) -> list[AuditEntry]:
        """Return the matching entries of the `limit` newest rows, newest first. `before` continues."""
        if before is not None:
            query = replace(query, before=before)
        wanted = select(audit).where(*_build_conditions(query)).order_by(audit.c.seq.desc()).limit(limit)
        return await self._database.read(
            lambda connection: [
                entry for row in connection.execute(wanted) for entry in _build_entries(row, query)[::-1]
            ]
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
            rows = await self._database.read(
                lambda connection, wanted=wanted: [
                    _build_entries(row, query) for row in connection.execute(wanted)
                ]
            )
            if rows:
                yield [entry for entries in rows for entry in entries]
            if len(rows) < size:
                return
            last = rows[-1][-1].seq

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
        rows: dict[int, dict[int, AuditRow]] = {}
        for row in [*_read_last_rows(connection), *connection.execute(query)]:
            rows.setdefault(row.chain, {})[row.number] = row
        for check, chain in _build_checks(connection, anchors, rows):
            newest = sorted(rows.get(chain, {}).items())
            if newest and newest[0][0] > check.last.seq + 1:
                check.begin_at(newest[0][1])
            found = (check.find_break_at(row) for _, row in newest)
            broken = next((each for each in found if each is not None), None) or check.find_break_at_end()
            if broken is not None:
                return self._describe_break(broken)
        return None

    def extend(self, connection: Connection, added: Sequence[AuditFact]) -> None:
        """Add these facts to the trail, in the same transaction as the journal's rows."""
        if not self._enabled:  # what retention removes is recorded all the same, else nothing verifies it
            added = [fact for fact in added if fact[2] == StorePruned.kind]
        if not added:
            return
        held = self._held
        if held is None or not self._extend_chain(connection, held, added):
            # The last transaction was rolled back, or another process continued the chain meanwhile.
            self._extend_chain(connection, self._take_chain(connection), added)

    def _extend_chain(self, connection: Connection, held: _HeldChain, added: Sequence[AuditFact]) -> bool:
        """Append the facts to the chain, if it is still as this process left it."""
        seq, digest = held.last.seq, held.last.hash
        rows: list[RowValues] = []
        for event_id, at, kind, packet_id, payload in added:
            seq, before = seq + 1, digest
            digest = hash_parts(before, seq, event_id, at, kind, packet_id, payload)
            packet = None if packet_id is None else escape(packet_id)
            rows.append((escape(event_id), at, kind, packet, payload, before, digest, held.chain, seq))
        statement = (
            f"UPDATE audit_head SET seq = {seq:d}, hash = '{digest}', leased_until = {_get_lease_end():d} "  # noqa: S608 - numbers, hashes and our own id
            f"WHERE chain = {held.chain:d} AND owner = '{self._owner}' AND seq = {held.last.seq:d} "
            f"AND hash = '{held.last.hash}'"
        )
        if execute_directly(connection, statement)[1] != 1:
            return False
        _AUDIT_ROWS.add(connection, rows)
        self._held = _HeldChain(held.chain, ChainPoint(seq, digest))
        self._unanchored.add(held.chain)
        return True

    def _take_chain(self, connection: Connection) -> _HeldChain:
        """Take a chain that no process extends, or start a new one."""
        skip = "" if connection.dialect.name == "sqlite" else " FOR UPDATE SKIP LOCKED"
        now, until = to_microseconds(utc_now()), _get_lease_end()
        take = (
            f"UPDATE audit_head SET owner = '{self._owner}', leased_until = {until:d} "  # noqa: S608 - as above
            f"WHERE chain = (SELECT chain FROM audit_head WHERE owner = '{self._owner}' "
            f"OR leased_until < {now:d} ORDER BY owner <> '{self._owner}', chain LIMIT 1{skip}) "
            "RETURNING chain, seq, hash"
        )
        while not (found := execute_directly(connection, take)[0]):
            [(chain,)], _ = execute_directly(connection, "SELECT coalesce(max(chain), 0) + 1 FROM audit_head")
            start = build_genesis(chain).hash
            new = (
                "INSERT INTO audit_head (chain, seq, hash, owner, leased_until) "  # noqa: S608 - as above
                f"VALUES ({chain:d}, 0, '{start}', '{self._owner}', {until:d}) ON CONFLICT DO NOTHING"
            )
            execute_directly(connection, new)
        [(chain, seq, digest)] = found
        return _HeldChain(chain, ChainPoint(seq, digest))

    def release(self) -> None:
        """Let other processes continue this one's chain. Blocks."""
        if self._held is None:
            return
        self._held = None
        statement = f"UPDATE audit_head SET owner = '', leased_until = 0 WHERE owner = '{self._owner}'"  # noqa: S608 - our own id
        try:
            with self._database.connect_to_write() as connection, connection.begin():
                execute_directly(connection, statement)
        except DBAPIError as error:  # its lease ends by itself
            logger.debug("the audit chain was not released: %s", error)

    def write_anchor(self) -> None:
        """Write the committed heads of this process's chains to the anchors. Blocks."""
        heads = self._database.read_blocking(read_heads) if self._unanchored else {}
        written = [(chain, heads[chain]) for chain in sorted(self._unanchored) if chain in heads]
        if not self._enabled:
            return
        for chain, head in written:
            self._anchor.append_row(chain, head.seq, head.hash)
        self._unanchored.difference_update(chain for chain, _ in written)
        journal = self._database.read_blocking(self._hash_journal)
        if journal is not None:
            self._anchor.append_journal_range(journal)
            self._covered = journal.last
        if self._remote_anchors is not None:
            self._remote_anchors.queue([(chain, head.seq, head.hash) for chain, head in written], journal)

    def trim_anchor(self) -> None:
        """Remove lines about pruned rows from the local anchor file, and older ones that agree with the
        trail: the newest line proves what they prove. A line that contradicts the trail stays. Blocks.
        """
        lines, ranges = self._anchor.read_lines(), self._anchor.read_journal_ranges()
        pruned = self._database.read_blocking(read_pruned)
        until = pruned[0].seq if 0 in pruned else 0
        surplus = {str(one) for one in ranges if one.first <= until}
        for chain in {chain for chain, _ in lines}:
            points = [
                ChainPoint(seq, digest)
                for (of, seq), found in lines.items()
                if of == chain
                for digest in found
            ]
            known = self._database.read_blocking(partial(_find_points, chain=chain, points=points))
            cut = pruned.get(chain, build_genesis(chain)).seq
            proven = sorted(point.seq for point in points if point in known or point.seq < cut)
            limit = proven[-_KEPT_LINES] if len(proven) >= _KEPT_LINES else 0
            surplus |= {
                format_row(chain, point.seq, point.hash)
                for point in points
                if point.seq < limit and (point in known or point.seq < cut)
            }
        if surplus:
            self._anchor.remove_lines(surplus)

    def _hash_journal(self, connection: Connection) -> JournalRange | None:
        """Return the hash over the journal rows since the last one."""
        # Other processes have covered what is much older.
        last = self._covered = max(self._covered, _get_last_journal_seq(connection) - _COVERED_ROWS)
        digest = GENESIS
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
        alike = rows = 0
        broken: ChainBreak | None = None
        record: tuple[int, str] | None = None
        checks = {chain: check for check, chain in _build_checks(connection, anchors)}
        for row in _iterate_rows(connection):
            check = checks.get(row.chain)
            if check is None:
                check = checks[row.chain] = ChainCheck(row.chain)
            broken = check.find_break_at(row)
            if broken is not None:
                break
            rows += 1
            alike += (row.chain, row.number, row.hash) in elsewhere
            if row.kind == StorePruned.kind:
                record = max(record or (0, ""), (row.seq, row.payload))
        ends = (check.find_break_at_end() for check in checks.values())
        pruned = read_pruned(connection)
        broken = (
            broken
            or next((each for each in ends if each is not None), None)
            or _find_pruning_break(pruned, record)
            or _find_journal_break(connection, ranges, after=pruned[0].seq if 0 in pruned else 0)
        )
        return AuditReport(
            rows=connection.execute(select(func.count()).select_from(audit)).scalar_one() if broken else rows,
            intact=broken is None,
            first_bad=broken.seq if broken else None,
            reason=self._describe_break(broken) if broken else None,
            head=_combine_heads(checks),
            anchors=len(anchors),
            journal=len(ranges),
            elsewhere=len(elsewhere),
            elsewhere_alike=alike,
            chains=len(checks),
            chain=broken.chain if broken else None,
            pruned=sum(point.seq for chain, point in pruned.items() if chain),
        )

    def _describe_break(self, broken: ChainBreak) -> str:
        """Return the break as text, with advice for a person who replaced the database."""
        if not broken.by_anchor:
            return broken.reason
        return (
            f"{broken.reason}. Only if you put a new database here yourself: "
            f"move {self._anchor.path} away as you did with the old one"
        )


def merge_lines(found: Sequence[AnchorLines]) -> AnchorLines:
    """Return all recorded hashes by row from several anchors."""
    made: AnchorLines = {}
    for lines in found:
        for row, hashes in lines.items():
            made[row] = made.get(row, frozenset()) | hashes
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


def _find_journal_break(
    connection: Connection, ranges: Collection[JournalRange], *, after: int
) -> ChainBreak | None:
    """Return the first journal range that differs from its anchor, or None. Reads the rows once. A range of
    which a part was pruned cannot be compared.
    """
    kept = [one for one in ranges if one.first > after]
    waiting = sorted(kept, key=lambda one: (one.first, one.last), reverse=True)
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
        (query.kind, lambda: _build_kind_condition(query.kind or "")),
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
    written = _encode_text(text)
    lower = func.lower(audit.c.payload)
    return or_(
        audit.c.payload.contains(written, autoescape=True),
        lower.contains(written.lower(), autoescape=True),
    )


def _encode_text(text: str) -> str:
    """Return the text as it is written inside of JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode(errors="replace").decode()


def _build_kind_condition(kind: str) -> ColumnElement[bool]:
    """Return the condition that the row is of this kind, or holds an event of it among others."""
    begin = json.dumps({"kind": kind}, separators=(",", ":"))[:-1]
    return or_(
        audit.c.kind == kind,
        and_(audit.c.kind == STEPS, audit.c.payload.contains(begin, autoescape=True)),
    )


def _to_microseconds_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else to_microseconds(moment)


def _build_entries(row: FoundRow[Any], query: AuditQuery) -> list[AuditEntry]:
    """Return the matching entries of a row, at least one. A row has an entry for each of its events."""
    whole = _build_entry(row)
    try:
        events = decode_steps(row.payload) if row.kind == STEPS else ()
    except ValueError:  # the row was edited; verification reports it
        events = ()
    entries = [
        replace(whole, at=event.at, kind=event.kind, event_id=event.event_id, payload=encode(event).decode())
        for event in events
        if event is not None
    ]
    text = _encode_text(query.text).lower()
    wanted = [
        entry for entry in entries if query.kind in (None, entry.kind) and text in entry.payload.lower()
    ]
    return wanted or entries or [whole]


def _build_entry(row: FoundRow[Any]) -> AuditEntry:
    return AuditEntry(
        seq=row.seq,
        at=from_microseconds(row.at),
        kind=row.kind,
        event_id=row.event_id,
        packet_id=row.packet_id,
        payload=row.payload,
        hash=row.hash,
        chain=row.chain,
        number=row.number,
    )


def read_heads(connection: Connection) -> dict[int, ChainPoint]:
    rows = connection.execute(select(audit_head.c.chain, audit_head.c.seq, audit_head.c.hash))
    return {row.chain: ChainPoint(row.seq, row.hash) for row in rows}


def read_pruned(connection: Connection) -> dict[int, ChainPoint]:
    """Return the last pruned row of each chain, and of the journal under 0."""
    return {row.chain: ChainPoint(row.seq, row.hash) for row in connection.execute(select(pruned_rows))}


def _read_last_rows(connection: Connection) -> Sequence[AuditRow]:
    """Return the row at the recorded end of each chain."""
    ended = and_(audit.c.chain == audit_head.c.chain, audit.c.number == audit_head.c.seq)
    return connection.execute(select(audit).join(audit_head, ended)).all()


def _build_checks(
    connection: Connection, anchors: AnchorLines, others: Iterable[int] = ()
) -> list[tuple[ChainCheck, int]]:
    """Return a check for every chain there is or must have been: they are numbered without gaps."""
    heads, pruned = read_heads(connection), read_pruned(connection)
    remembered: defaultdict[int, dict[int, frozenset[str]]] = defaultdict(dict)
    for (chain, seq), hashes in anchors.items():
        remembered[chain][seq] = hashes
    last = max((FIRST_CHAIN, *heads, *pruned, *remembered, *others))
    return [
        (ChainCheck(chain, heads.get(chain), pruned.get(chain), remembered.get(chain)), chain)
        for chain in range(FIRST_CHAIN, last + 1)
    ]


def _combine_heads(checks: Mapping[int, ChainCheck]) -> str:
    if len(checks) == 1:
        return checks[FIRST_CHAIN].last.hash
    return hash_parts("", *(check.last.hash for _, check in sorted(checks.items())))


def _find_pruning_break(
    pruned: Mapping[int, ChainPoint], record: tuple[int, str] | None
) -> ChainBreak | None:
    """Return a break if rows are missing that the newest record of pruning does not name, or None."""
    event = decode(record[1]) if record is not None else None
    cuts: dict[int, ChainPoint] = {}
    if isinstance(event, StorePruned):
        cuts = {cut.chain: ChainPoint(cut.until, cut.fingerprint) for cut in event.chains}
        cuts[0] = ChainPoint(event.journal_until, "")
    for chain, point in sorted(pruned.items()):
        cut = cuts.get(chain, ChainPoint(0, ""))
        if point.seq > cut.seq or (point.seq == cut.seq and point != cut):
            where = f"of chain {chain}" if chain else "of the journal"
            reason = f"rows {where} up to {point.seq} were removed, and the trail does not say so"
            return ChainBreak(point.seq, reason, chain=chain or FIRST_CHAIN)
    return None


def _find_points(connection: Connection, *, chain: int, points: Sequence[ChainPoint]) -> set[ChainPoint]:
    """Return those of the points that are rows of the chain."""
    found: set[ChainPoint] = set()
    for begin in range(0, len(points), _CHUNK_ROWS):
        numbers = [point.seq for point in points[begin : begin + _CHUNK_ROWS]]
        query = select(audit.c.number, audit.c.hash).where(
            audit.c.chain == chain, audit.c.number.in_(numbers)
        )
        found |= {ChainPoint(row.number, row.hash) for row in connection.execute(query)}
    return found & set(points)


def _get_lease_end() -> int:
    return to_microseconds(utc_now()) + round(LEASE_SECONDS * 1_000_000)


def _iterate_rows(connection: Connection) -> Iterator[AuditRow]:
    """Yield the rows of one chain after the other, read in chunks: they may not fit in memory."""
    place = tuple_(audit.c.chain, audit.c.number)
    query = select(audit).order_by(audit.c.chain, audit.c.number).limit(_CHUNK_ROWS)
    wanted = query
    while True:
        rows = connection.execute(wanted).all()
        yield from rows
        if len(rows) < _CHUNK_ROWS:
            return
        wanted = query.where(place > tuple_(literal(rows[-1].chain), literal(rows[-1].number)))
