"""Retention: how large the store is, removing old rows in small steps, and copies of its content.

Removed are rows of the journal, decided or expired approvals, expired grants and sources of conversations
that were not used for `keep_days`, and audit rows older than `audit_days`. If the store is larger than
`max_bytes`, older journal rows go first; the audit trail is never shortened for size. What waits for a person
or is not finished stays.

How far rows are removed is recorded in the audit trail before the first one is, so the trail and the anchors
can still be verified.
"""

from __future__ import annotations

import logging
import math
import os
import shutil
import sqlite3
import subprocess
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, Final

import anyio
import anyio.to_thread
from pydantic_core import from_json as parse_json
from sqlalchemy import ColumnElement, Connection, Table, delete, func, or_, select, tuple_

from fingerpost.errors import ConfigError, StoreError, StoreUnavailable
from fingerpost.events import (
    CallFinished,
    CallReceived,
    PrunedChain,
    RouteBegan,
    RouteEnded,
    RouteResumed,
    StorePruned,
)
from fingerpost.frozen import frozen
from fingerpost.records import Decision, Pending, utc_now
from fingerpost.records.codec import from_json
from fingerpost.settings import Settings
from fingerpost.store.audit import ChainPoint, build_genesis, read_heads, read_pruned
from fingerpost.store.database import Database, StoreLocation, bisect_rows, execute_directly, upsert
from fingerpost.store.journal import find_last_event
from fingerpost.store.schema import (
    approvals,
    audit,
    data_sources,
    from_microseconds,
    grants,
    journal,
    metadata,
    pruned,
    to_microseconds,
)
from fingerpost.store.writer import A, R, StorePart, StoreWriter

logger = logging.getLogger("fingerpost.store")

CLAIM: Final = "retention"  # one process at a time
FIRST_SECONDS: Final = 60.0  # after the start; a short command never prunes
INTERVAL_SECONDS: Final = 600.0
BATCH_ROWS: Final = 500
MIN_PAUSE: Final = 0.02
PAUSE_FACTOR: Final = 3  # a step is followed by a pause of this many times its duration
SPARED_BY_SIZE: Final = timedelta(hours=1)  # the size limit does not remove what is younger
SIZE_GOAL: Final = 0.9  # of the limit, so that it is not reached again at once
_SAMPLE_ROWS: Final = 200
_ROW_OVERHEAD: Final = 300  # bytes of a journal row besides its payload, with its index entries
_VACUUM_PAGES: Final = 256
_SPARE_SHARE: Final = 0.1  # of the file may stay free for new rows
_JOURNAL: Final = 0  # in the table of pruned rows


@frozen
class RetentionLimits:
    """What is kept. 0 means for ever, or any size."""

    keep_days: float = 0.0
    audit_days: float = 0.0
    max_bytes: int = 0

    @classmethod
    def from_settings(cls, settings: Settings) -> RetentionLimits:
        return cls(
            keep_days=settings.store.keep_days,
            audit_days=settings.audit.keep_days,
            max_bytes=settings.store.max_bytes,
        )


@frozen(kw_only=False)
class TableStatus:
    """One table: its rows, its oldest entry, and how many rows would be pruned now."""

    name: str
    rows: int
    oldest: datetime | None = None
    prunable: int = 0


@frozen
class StoreStatus:
    """The size and age of the store."""

    location: str
    bytes: int  # on disk
    free_bytes: int  # of these, for new rows
    gives_back: bool  # whether the file shrinks after pruning
    tables: tuple[TableStatus, ...]
    chains: int
    limits: RetentionLimits


@frozen
class PruneResult:
    """Removed rows by table."""

    journal: int = 0
    audit: int = 0
    approvals: int = 0
    grants: int = 0
    data_sources: int = 0

    @property
    def total(self) -> int:
        return self.journal + self.audit + self.approvals + self.grants + self.data_sources


@frozen
class _PrunePlan:
    journal_until: int
    chains: dict[int, ChainPoint]  # how far each is pruned afterwards
    before: dict[int, ChainPoint]
    cutoff: datetime | None  # for approvals and grants
    journal_cutoff: datetime  # a younger row stays, should the order of rows not be that of time
    reason: str

    @property
    def has_rows(self) -> bool:
        earlier = self.before.get(_JOURNAL, ChainPoint(0, "")).seq
        return self.journal_until > earlier or any(
            point != self.before.get(chain) for chain, point in self.chains.items() if point.seq
        )


Progress = Callable[[int], None]
ClaimWork = Callable[[str, str], Awaitable[bool]]
ReleaseWork = Callable[[str, str], Awaitable[None]]


class Retention(StorePart):
    """Shows, prunes and copies the store."""

    def __init__(
        self,
        database: Database,
        writer: StoreWriter,
        *,
        record: Callable[[StorePruned], Awaitable[None]],
        claim: ClaimWork,
        release: ReleaseWork,
        trim_anchor: Callable[[], None],
    ) -> None:
        super().__init__(database, writer)
        self._record = record
        self._claim = claim
        self._release = release
        self._trim_anchor = trim_anchor

    async def get_status(self, limits: RetentionLimits, *, now: datetime | None = None) -> StoreStatus:
        """Return sizes, rows, oldest entries, and what `prune` would remove."""
        location = self._database.location
        return await self._database.read(
            lambda connection: _read_status(connection, location, limits, now or utc_now())
        )

    async def run(
        self,
        limits: RetentionLimits,
        instance: str,
        *,
        first: float = FIRST_SECONDS,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        """Prune every few minutes until cancelled."""
        await anyio.sleep(first)
        while True:
            try:
                removed = await self.prune(limits, instance=instance, by="retention")
                if removed is not None and removed.total:
                    logger.info("%d old rows were removed from the store", removed.total)
            except (StoreError, OSError) as error:
                logger.warning("old rows could not be removed: %s", error)
            await anyio.sleep(interval)

    async def prune(
        self,
        limits: RetentionLimits,
        *,
        instance: str,
        by: str,
        on_progress: Progress | None = None,
        now: datetime | None = None,
    ) -> PruneResult | None:
        """Remove what the limits do not keep. Return None if another process is doing it.

        `instance` has a lease in the store. `on_progress` gets the number of rows removed by each step.
        """
        if not await self._claim(CLAIM, instance):
            return None
        try:
            return await self._prune(limits, by, on_progress or (lambda _: None), now or utc_now())
        finally:
            with anyio.CancelScope(shield=True):
                await self._release(CLAIM, instance)

    async def _prune(
        self, limits: RetentionLimits, by: str, on_progress: Progress, now: datetime
    ) -> PruneResult:
        plan = await self._database.read(partial(_build_plan, limits=limits, now=now))
        if plan.has_rows:
            # First the record, then the rows: a crash in between leaves more rows than recorded, never fewer.
            await self._record(_build_record(plan, by))
        removed = PruneResult(
            journal=await self._prune_journal(plan, on_progress),
            audit=await self._prune_audit(plan, on_progress),
            approvals=await self._prune_expired(plan, approvals, on_progress),
            grants=await self._prune_expired(plan, grants, on_progress),
            data_sources=await self._prune_expired(plan, data_sources, on_progress),
        )
        await self._give_back_space()
        if plan.has_rows:
            await anyio.to_thread.run_sync(self._trim_anchor)
        return removed

    async def _prune_journal(self, plan: _PrunePlan, on_progress: Progress) -> int:
        total, after = 0, 0
        while after < plan.journal_until:
            after, removed = await self._run_step(_remove_journal_rows, plan, after)
            on_progress(removed)
            total += removed
        return total

    async def _prune_audit(self, plan: _PrunePlan, on_progress: Progress) -> int:
        total = 0
        for chain, goal in sorted(plan.chains.items()):
            last = plan.before.get(chain, build_genesis(chain)).seq
            while last < goal.seq:
                until = min(last + BATCH_ROWS, goal.seq)
                removed = await self._run_step(_remove_audit_rows, chain, until)
                on_progress(removed)
                total, last = total + removed, until
        return total

    async def _prune_expired(self, plan: _PrunePlan, table: Table, on_progress: Progress) -> int:
        total = 0
        while plan.cutoff is not None:
            removed = await self._run_step(_remove_expired, table, plan.cutoff)
            on_progress(removed)
            total += removed
            if removed < BATCH_ROWS:
                break
        return total

    async def _give_back_space(self) -> None:
        """Let the file of an SQLite database shrink, if much of it is free."""
        if self._database.location.file is not None:
            while await self._run_step(_vacuum_some):
                pass

    async def _run_step(
        self, step: Callable[Concatenate[Connection, A], R], *args: A.args, **named: A.kwargs
    ) -> R:
        """Run a step among the other writes and pause, so that these hardly notice."""
        start = time.monotonic()
        result = await self._write(step, *args, **named)
        await anyio.sleep(max(MIN_PAUSE, PAUSE_FACTOR * (time.monotonic() - start)))
        return result

    async def iterate_rows(self, table: str) -> AsyncGenerator[list[dict[str, Any]]]:
        """Yield the rows of `journal` or `audit` in chunks, oldest first, ready to be written as JSON."""
        source = {journal.name: journal, audit.name: audit}[table]
        last = 0
        while True:
            query = select(source).where(source.c.seq > last).order_by(source.c.seq).limit(BATCH_ROWS)
            rows = await self._read_mappings(query)
            if rows:
                yield [_build_exported(table, row) for row in rows]
            if len(rows) < BATCH_ROWS:
                return
            last = rows[-1]["seq"]

    async def back_up(self, target: Path) -> None:
        """Write a consistent copy to `target`, readable by its owner only, while the store is in use.

        An SQLite copy comes with a copy of the anchor file. Raises `ConfigError` or `StoreUnavailable`.
        """
        await anyio.to_thread.run_sync(_back_up, self._database.location, target)

    async def compact(self) -> None:
        """Rewrite the file of an SQLite database without free space. Others cannot write meanwhile."""
        file = self._database.location.file
        if file is not None:
            await anyio.to_thread.run_sync(_compact_file, file)


def _build_record(plan: _PrunePlan, by: str) -> StorePruned:
    return StorePruned(
        by=by,
        reason=plan.reason,
        journal_until=plan.journal_until,
        chains=tuple(
            PrunedChain(chain=chain, until=point.seq, fingerprint=point.hash)
            for chain, point in sorted(plan.chains.items())
        ),
    )


def _build_plan(connection: Connection, *, limits: RetentionLimits, now: datetime) -> _PrunePlan:
    before = read_pruned(connection)
    cutoff = now - timedelta(days=limits.keep_days) if limits.keep_days else None
    by_age = 0 if cutoff is None else find_last_event(connection, cutoff)
    by_size = min(
        _find_last_beyond_size(connection, limits.max_bytes),
        find_last_event(connection, now - SPARED_BY_SIZE),
    )
    chains = {chain: point for chain, point in before.items() if chain != _JOURNAL}
    if limits.audit_days:
        audit_cutoff = to_microseconds(now - timedelta(days=limits.audit_days))
        for chain, head in read_heads(connection).items():
            start = before.get(chain, build_genesis(chain))
            chains[chain] = _find_chain_cut(connection, chain, start, head.seq, audit_cutoff)
    return _PrunePlan(
        journal_until=max(by_age, by_size, before.get(_JOURNAL, ChainPoint(0, "")).seq),
        chains=chains,
        before=before,
        cutoff=cutoff,
        journal_cutoff=now - SPARED_BY_SIZE if cutoff is None or by_size > by_age else cutoff,
        reason="size" if by_size > by_age else "age",
    )


def _find_chain_cut(
    connection: Connection, chain: int, start: ChainPoint, last: int, cutoff: int
) -> ChainPoint:
    """Return the last row of the chain that is older, as are all before it, or `start`."""
    here = audit.c.chain == chain
    found = bisect_rows(connection, (audit.c.number, audit.c.at), cutoff, start.seq, last, here)
    younger = select(func.min(audit.c.number)).where(
        here, audit.c.number > start.seq, audit.c.number <= found, audit.c.at >= cutoff
    )
    if (first := connection.execute(younger).scalar()) is not None:  # the clock was wrong for a while
        found = first - 1
    digest = connection.execute(select(audit.c.hash).where(here, audit.c.number == found)).scalar()
    return start if digest is None else ChainPoint(found, digest)


def _find_last_beyond_size(connection: Connection, max_bytes: int) -> int:
    """Return the last journal row to remove so that the store is smaller than the limit, or 0."""
    used = _measure_used_bytes(connection) if max_bytes else 0
    if used <= max_bytes:
        return 0
    surplus = math.ceil((used - SIZE_GOAL * max_bytes) / (used / max(1, _count_rows(connection))))
    ordered = select(journal.c.seq).order_by(journal.c.seq)
    found = connection.execute(ordered.offset(surplus - 1).limit(1)).scalar()
    return found or connection.execute(select(func.max(journal.c.seq))).scalar() or 0


def _count_rows(connection: Connection) -> int:
    """Count the rows of the two large tables; PostgreSQL estimates them."""
    if connection.dialect.name == "sqlite":
        counts = (select(func.count()).select_from(table) for table in (journal, audit))
        return sum(connection.execute(count).scalar_one() for count in counts)
    estimated = (
        "SELECT coalesce(sum(n_live_tup), 0) FROM pg_stat_user_tables WHERE relname IN ('journal', 'audit')"
    )
    return int(execute_directly(connection, estimated)[0][0][0])


def _measure_used_bytes(connection: Connection) -> int:
    """Return the bytes in use. Space of removed rows does not count: new rows use it."""
    if connection.dialect.name == "sqlite":
        pages, free, size = _read_pages(connection)
        return (pages - free) * size
    # A table of PostgreSQL does not shrink, so the size of its files says nothing about its rows.
    oldest = select(func.length(journal.c.payload).label("size")).order_by(journal.c.seq).limit(_SAMPLE_ROWS)
    average = connection.execute(select(func.avg(oldest.subquery().c.size))).scalar()
    return round(_count_rows(connection) * (float(average or 0) + _ROW_OVERHEAD))


def _read_pages(connection: Connection) -> tuple[int, int, int]:
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (execute_directly(connection, f"PRAGMA {name}")[0][0][0] for name in names)
    return pages, free, size


# The steps below run in the writer's thread, in transactions with other writes.


def _remove_journal_rows(connection: Connection, plan: _PrunePlan, after: int) -> tuple[int, int]:
    """Remove the next rows. Return the number of the last row looked at, and how many were removed."""
    query = select(journal.c.seq, journal.c.packet_id).order_by(journal.c.seq).limit(BATCH_ROWS)
    until = plan.journal_until
    rows = connection.execute(query.where(journal.c.seq > after, journal.c.seq <= until)).all()
    last = rows[-1].seq if len(rows) == BATCH_ROWS else until
    kept = _find_unfinished(connection, {row.packet_id for row in rows} - {None}, until)
    gone = delete(journal).where(
        journal.c.seq > after, journal.c.seq <= last, journal.c.at < plan.journal_cutoff
    )
    if kept:
        gone = gone.where(or_(journal.c.packet_id.is_(None), journal.c.packet_id.not_in(kept)))
    removed = connection.execute(gone).rowcount
    _set_pruned(connection, _JOURNAL, ChainPoint(last, ""))
    return last, removed


def _find_unfinished(connection: Connection, packet_ids: Collection[str], until: int) -> set[str]:
    """Return the packets that must stay: they wait for a person, have not ended, or have newer events."""
    kept = _read_waiting_packets(connection) & set(packet_ids)
    marks: dict[str, set[str]] = {}
    query = select(journal.c.packet_id, journal.c.seq, journal.c.payload)
    for row in connection.execute(query.where(journal.c.packet_id.in_(packet_ids))):
        marks.setdefault(row.packet_id, set()).update(kind for kind in _MARKS if _MARKS[kind] in row.payload)
        if row.seq > until:
            kept.add(row.packet_id)
    return kept | {packet_id for packet_id, found in marks.items() if _is_unfinished(found)}


# A row may hold several events; each has its kind in front. In a text the quotes would be escaped.
_MARKS: Final = {
    kind.kind: f'"kind":"{kind.kind}"'
    for kind in (RouteBegan, RouteResumed, RouteEnded, CallReceived, CallFinished)
}


def _is_unfinished(kinds: set[str]) -> bool:
    if kinds & {RouteBegan.kind, RouteResumed.kind}:
        return RouteEnded.kind not in kinds
    return CallReceived.kind in kinds and CallFinished.kind not in kinds


def _read_waiting_packets(connection: Connection) -> set[str]:
    waits = (approvals.c.decision == Decision.WAITING.value) & (approvals.c.expires > utc_now())
    rows = connection.execute(select(approvals.c.record).where(waits))
    return {packet for row in rows for packet in from_json(Pending, row.record).packets}


def _remove_audit_rows(connection: Connection, chain: int, until: int) -> int:
    """Remove the rows of a chain up to `until` and record the last one."""
    last = select(audit.c.hash).where(audit.c.chain == chain, audit.c.number == until)
    digest = connection.execute(last).scalar()
    if digest is None:  # removed by another process, or missing, which verifying reports
        return 0
    gone = delete(audit).where(audit.c.chain == chain, audit.c.number <= until)
    removed = connection.execute(gone).rowcount
    _set_pruned(connection, chain, ChainPoint(until, digest))
    return removed


def _set_pruned(connection: Connection, chain: int, point: ChainPoint) -> None:
    """Record how far rows are removed. It never goes back."""
    earlier = connection.execute(select(pruned.c.seq).where(pruned.c.chain == chain)).scalar()
    if (earlier or 0) < point.seq:
        row = {"chain": chain, "seq": point.seq, "hash": point.hash}
        connection.execute(upsert(connection, pruned), row)


def _build_expired_condition(table: Table, cutoff: datetime) -> ColumnElement[bool]:
    """Return the condition for rows that nothing needs any more: decided, or expired."""
    if table is grants:
        return grants.c.expires < cutoff
    if table is data_sources:
        return data_sources.c.at < cutoff
    decided = or_(approvals.c.decision != Decision.WAITING.value, approvals.c.expires < cutoff)
    return (approvals.c.created < cutoff) & decided


def _remove_expired(connection: Connection, table: Table, cutoff: datetime) -> int:
    keys = tuple_(*table.primary_key.columns)
    old = select(*table.primary_key.columns).where(_build_expired_condition(table, cutoff))
    return connection.execute(delete(table).where(keys.in_(old.limit(BATCH_ROWS)))).rowcount


def _vacuum_some(connection: Connection) -> bool:
    """Give some free pages back to the file system. Return whether there are more."""
    pages, free, _ = _read_pages(connection)
    surplus = free - max(_VACUUM_PAGES, round(_SPARE_SHARE * pages))
    if surplus <= 0 or not _does_give_back(connection):
        return False
    for _ in range(min(surplus, _VACUUM_PAGES)):  # Python's driver frees one page at a time
        execute_directly(connection, "PRAGMA incremental_vacuum(1)")
    return surplus > _VACUUM_PAGES


def _does_give_back(connection: Connection) -> bool:
    return execute_directly(connection, "PRAGMA auto_vacuum")[0] == [(2,)]


def _read_status(
    connection: Connection, location: StoreLocation, limits: RetentionLimits, now: datetime
) -> StoreStatus:
    plan = _build_plan(connection, limits=limits, now=now)
    prunable = _count_prunable(connection, plan)
    tables = [
        TableStatus(
            table.name,
            connection.execute(select(func.count()).select_from(table)).scalar_one(),
            _read_oldest(connection, table),
            prunable.get(table.name, 0),
        )
        for table in metadata.sorted_tables
    ]
    size, free = _measure_disk_bytes(connection, location)
    return StoreStatus(
        location=location.label,
        bytes=size,
        free_bytes=free,
        gives_back=location.file is not None and _does_give_back(connection),
        tables=tuple(sorted(tables, key=lambda table: (-table.rows, table.name))),
        chains=len(read_heads(connection)),
        limits=limits,
    )


def _count_prunable(connection: Connection, plan: _PrunePlan) -> dict[str, int]:
    """Count the rows that `prune` would look at; a few of unfinished requests may stay."""

    def count(condition: ColumnElement[bool]) -> int:
        return connection.execute(select(func.count()).where(condition)).scalar_one()

    found = {
        journal.name: count(journal.c.seq <= plan.journal_until),
        audit.name: sum(
            point.seq - plan.before.get(chain, build_genesis(chain)).seq
            for chain, point in plan.chains.items()
        ),
    }
    if plan.cutoff is not None:
        found |= {
            table.name: count(_build_expired_condition(table, plan.cutoff))
            for table in (approvals, grants, data_sources)
        }
    return found


def _read_oldest(connection: Connection, table: Table) -> datetime | None:
    column = next((table.c[name] for name in ("at", "created", "granted_at") if name in table.c), None)
    if column is None:
        return None
    value: datetime | int | None
    if table in (journal, audit):  # written in order of time; there is no index of times
        value = connection.execute(select(column).order_by(table.c.seq).limit(1)).scalar()
    else:
        value = connection.execute(select(func.min(column))).scalar()
    return from_microseconds(value) if isinstance(value, int) else value


def _measure_disk_bytes(connection: Connection, location: StoreLocation) -> tuple[int, int]:
    if location.file is not None:
        _, free, page = _read_pages(connection)
        files = (Path(f"{location.file}{end}") for end in ("", "-wal"))
        return sum(file.stat().st_size for file in files if file.exists()), free * page
    names = ", ".join(f"'{table.name}'" for table in metadata.sorted_tables)
    size = (
        f"SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relname IN ({names})"  # noqa: S608 - names of our own
    )
    return int(execute_directly(connection, size)[0][0][0] or 0), 0


def _build_exported(table: str, row: dict[str, Any]) -> dict[str, Any]:
    values = {name: value for name, value in row.items() if value is not None}
    at = values.pop("at")
    values["at"] = (from_microseconds(at) if isinstance(at, int) else at).isoformat()
    if table == journal.name:  # the exact text of an audit row is what its hash covers
        values["event"] = _parse_payload(values.pop("payload"))
    return {"table": table, **values}


def _parse_payload(payload: str) -> Any:
    try:
        return parse_json(payload)
    except ValueError:  # the row was edited from outside
        return payload


def _back_up(location: StoreLocation, target: Path) -> None:
    if target.exists():
        raise ConfigError(f"{target} exists already", hint="name a new file, or remove this one first")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        if location.file is None:
            _dump_postgresql(location, part)
        else:
            _copy_sqlite(location.file, location.anchor, part, target)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _copy_sqlite(file: Path, anchor: Path, part: Path, target: Path) -> None:
    # The anchor first: every row it names is then in the copy.
    lines = anchor.read_bytes() if anchor.exists() else None
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("VACUUM INTO ?", (str(part),))
    except sqlite3.Error as error:
        message = f"the database {file} could not be copied ({error})"
        raise StoreUnavailable(
            message, hint="Check the free space of the disk and the rights of the folder."
        ) from error
    with part.open("rb") as copied:
        os.fsync(copied.fileno())
    if lines is not None:
        beside = StoreLocation.from_sqlite_file(target).anchor
        handle = os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "wb") as written:
            written.write(lines)


def _dump_postgresql(location: StoreLocation, part: Path) -> None:
    shown = location.url._replace(drivername="postgresql", password=None).render_as_string()
    names = ("fingerpost_schema", *(table.name for table in metadata.sorted_tables))
    tables = [option for name in names for option in ("--table", name)]
    command = ["pg_dump", "--format=custom", f"--file={part}", f"--dbname={shown}", *tables]
    if shutil.which("pg_dump") is None:
        message = "pg_dump is not installed here"
        hint = f"install the client programs of PostgreSQL, or run there: pg_dump --format=custom {shown}"
        raise ConfigError(message, hint=hint)
    secret = {} if location.url.password is None else {"PGPASSWORD": str(location.url.password)}
    done = subprocess.run(command, env={**os.environ, **secret}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"pg_dump failed: {' '.join(done.stderr.split())[:300]}"
        raise StoreUnavailable(message, hint="pg_dump must be at least as new as the database server.")


def _compact_file(file: Path) -> None:
    try:
        with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as connection:
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        message = f"the database {file} could not be rewritten ({error})"
        hint = "Stop other processes that use it; it needs as much free space as the file has now."
        raise StoreUnavailable(message, hint=hint) from error
