"""The store: one interface to all persistent data, and the processes that use it."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from sqlalchemy import Connection, delete, insert, select

from fingerpost.errors import StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import utc_now
from fingerpost.store.anchors import Anchor, RemoteAnchors
from fingerpost.store.approvals import ApprovalStore, GrantStore, IdempotencyStore
from fingerpost.store.audit import AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.callers import QuotaStore, UserStore
from fingerpost.store.credentials import ApiKeyStore, CredentialRows, InstallationSecret, TokenStore
from fingerpost.store.database import Database, StoreLocation, build_damaged_error, resolve_location, upsert
from fingerpost.store.journal import Journal
from fingerpost.store.learning import (
    ChoiceStore,
    ConfidenceStore,
    EvalStore,
    FeedbackStore,
    LearnedStore,
    UsageStore,
)
from fingerpost.store.memories import MemoryStore, PreferenceStore
from fingerpost.store.retention import Retention
from fingerpost.store.schema import claims, instances, journal_head, quota_slots
from fingerpost.store.trust import DataFlowStore, DisabledStore, KnownServerStore, PinStore
from fingerpost.store.writer import StorePart, StoreWriter, WriterStatistics

LEASE_SECONDS = 30.0


@frozen
class Instance:
    """One process. `since_seq` is the number of the last journal event when it started."""

    instance_id: str
    seen: datetime
    lease_s: float
    since_seq: int


@frozen
class _InstanceClaim:
    name: str
    instance_id: str
    now: datetime


class InstanceStore(StorePart):
    """Running processes and the work they have claimed."""

    async def renew_lease(
        self, instance_id: str, *, lease_s: float = LEASE_SECONDS, now: datetime | None = None
    ) -> None:
        """Record that this process is alive for `lease_s` seconds. It must renew the lease earlier."""
        instance = Instance(instance_id=instance_id, seen=now or utc_now(), lease_s=lease_s, since_seq=0)
        await self._writer.write(_renew_leases, instance)

    async def end(self, instance_id: str) -> None:
        """Remove this process and its claims."""
        await self._writer.write(_end_instances, instance_id)

    async def list_live(self, *, now: datetime | None = None) -> list[Instance]:
        """Return the processes that use the store."""
        moment = now or utc_now()
        return [one for one in await self._database.read(_list_instances) if _is_alive(one, moment)]

    async def list_expired(self, *, now: datetime | None = None) -> list[Instance]:
        """Return the processes whose lease has expired."""
        moment = now or utc_now()
        found = await self._database.read(_list_instances)
        return [one for one in found if not _is_alive(one, moment)]

    async def claim(self, name: str, instance_id: str, *, now: datetime | None = None) -> bool:
        """Claim this work exclusively. Return False while a live process, including this one, has it."""
        return await self._writer.write(
            _claim_names, _InstanceClaim(name=name, instance_id=instance_id, now=now or utc_now())
        )

    async def release(self, name: str, instance_id: str) -> None:
        """Release the claim."""
        await self._writer.write(_release_names, (name, instance_id))


def _is_alive(instance: Instance, now: datetime) -> bool:
    return now - instance.seen <= timedelta(seconds=instance.lease_s)


def _list_instances(connection: Connection) -> list[Instance]:
    rows = connection.execute(select(instances)).all()
    return [
        Instance(instance_id=row.instance_id, seen=row.seen, lease_s=row.lease_s, since_seq=row.since_seq)
        for row in rows
    ]


def _renew_leases(connection: Connection, renewed: Sequence[Instance]) -> list[None]:
    since = connection.execute(select(journal_head.c.seq)).scalar_one()
    statement = upsert(connection, instances, lambda new: {"seen": new["seen"], "lease_s": new["lease_s"]})
    for one in renewed:
        row = {"instance_id": one.instance_id, "seen": one.seen, "lease_s": one.lease_s, "since_seq": since}
        connection.execute(statement, row)
    return [None] * len(renewed)


def _end_instances(connection: Connection, ended: Sequence[str]) -> list[None]:
    for table in (claims, quota_slots):
        connection.execute(delete(table).where(table.c.instance_id.in_(ended)))
    connection.execute(delete(instances).where(instances.c.instance_id.in_(ended)))
    return [None] * len(ended)


def _claim_names(connection: Connection, wanted: Sequence[_InstanceClaim]) -> list[bool]:
    return [_claim_name(connection, claim) for claim in wanted]


def _claim_name(connection: Connection, claim: _InstanceClaim) -> bool:
    """Claim the name if it is free. Write transactions are serialized, so two processes cannot both find it
    free.
    """
    holder = connection.execute(
        select(claims.c.instance_id).where(claims.c.name == claim.name)
    ).scalar_one_or_none()
    if holder is not None:
        alive = {one.instance_id for one in _list_instances(connection) if _is_alive(one, claim.now)}
        if holder in alive:
            return False
    connection.execute(delete(claims).where(claims.c.name == claim.name))
    connection.execute(insert(claims), {"name": claim.name, "instance_id": claim.instance_id})
    return True


def _release_names(connection: Connection, released: Sequence[tuple[str, str]]) -> list[None]:
    for name, instance_id in released:
        connection.execute(delete(claims).where(claims.c.name == name, claims.c.instance_id == instance_id))
    return [None] * len(released)


logger = logging.getLogger("fingerpost.store")

LOCK_WAIT = 10.0
MAX_BACKLOG = 10_000


class Store:
    """An open store. Use `async with Store.open() as store`."""

    def __init__(
        self, database: Database, writer: StoreWriter, audit: AuditTrail, cache: CacheLimits
    ) -> None:
        self._writer = writer
        self.location = database.location
        self.audit = audit
        self.journal = Journal(database, writer, audit)
        self.pins = PinStore(database, writer)
        self.known_servers = KnownServerStore(database, writer)
        self.usage = UsageStore(database, writer)
        self.choices = ChoiceStore(database, writer)
        self.confidences = ConfidenceStore(database, writer)
        self.feedback = FeedbackStore(database, writer)
        self.learned = LearnedStore(database, writer)
        self.approvals = ApprovalStore(database, writer)
        self.grants = GrantStore(database, writer)
        self.cache = Cache(database, writer, cache)
        credentials = CredentialRows(database, writer)
        self.secret = InstallationSecret(credentials, database.location)
        self.tokens = TokenStore(credentials, self.secret)
        self.keys = ApiKeyStore(database, writer)
        self.disabled = DisabledStore(database, writer)
        self.idempotency = IdempotencyStore(database, writer)
        self.evals = EvalStore(database, writer)
        self.memories = MemoryStore(database, writer)
        self.instances = InstanceStore(database, writer)
        self.quotas = QuotaStore(database, writer)
        self.users = UserStore(database, writer)
        self.preferences = PreferenceStore(database, writer)
        self.data_flow = DataFlowStore(database, writer)
        self.retention = Retention(
            database,
            writer,
            record=self.journal.append,
            claim=self.instances.claim,
            release=self.instances.release,
            trim_anchor=audit.trim_anchor,
        )

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str | None = None,
        *,
        memory: bool = False,
        flush_ms: float = 100.0,
        audit: bool = True,
        anchor: Path | None = None,
        secret: str | None = None,
        secret_file: str | Path | None = None,
        anchors: Sequence[str] = (),
        anchor_seconds: float = 60.0,
        lock_wait: float = LOCK_WAIT,
        backlog: int = MAX_BACKLOG,
        cache: CacheLimits = CacheLimits(),  # noqa: B008 - frozen
    ) -> AsyncGenerator[Store]:
        """Open the database at `url`, by default a file in the user's data directory. It is created or
        migrated if needed. With `memory` it is a database in memory that ends with the block.

        `flush_ms` is how long background writes are collected, `lock_wait` how long to wait for a lock of
        another program, `backlog` how many events may wait while the disk is blocked. `anchor` is the anchor
        file of the audit trail, by default beside the database, `secret` the installation's secret or
        `secret_file` its file, by default beside an SQLite file or in a PostgreSQL database. `anchors` are
        remote anchors (a file, `syslog://…`, `https://…`), which get the newest row every `anchor_seconds`.
        Leaving the block writes all remaining data.
        """
        location = (
            StoreLocation.in_memory()
            if memory
            else resolve_location(url, anchor=anchor, secret=secret, secret_file=secret_file)
        )
        database = await anyio.to_thread.run_sync(partial(Database.open, location, lock_wait=lock_wait))
        remote_anchors = RemoteAnchors(anchors if audit else (), location.identity, interval=anchor_seconds)
        trail = await anyio.to_thread.run_sync(
            partial(AuditTrail, database, Anchor(location.anchor), enabled=audit, remote=remote_anchors)
        )
        await anyio.to_thread.run_sync(_refuse_writes_if_broken, trail, database)
        writer = StoreWriter(
            database, flush_ms=flush_ms, lock_wait=lock_wait, backlog=backlog, upkeep=trail.write_anchor
        )
        writer.start()
        store = cls(database, writer, trail, cache)
        try:
            yield store
        except BaseException:
            try:
                await _close_store(store, database, writer, remote_anchors)
            except StoreUnavailable as error:  # the error that ended the block is more important
                logger.error("%s", error)
            raise
        await _close_store(store, database, writer, remote_anchors)

    def __repr__(self) -> str:
        return f"Store({self.location.label})"

    @property
    def statistics(self) -> WriterStatistics:
        """Statistics of the writer."""
        return self._writer.statistics


def _refuse_writes_if_broken(trail: AuditTrail, database: Database) -> None:
    """Make the database read-only if its audit trail is inconsistent. Closes it if the check fails."""
    try:
        reason = trail.find_break()
    except BaseException:
        database.close()
        raise
    if reason is not None:
        error = build_damaged_error(database.location, f"{reason}. It is open for reading only")
        logger.error("%s", error)
        database.refuse_writes(error)


async def _close_store(store: Store, database: Database, writer: StoreWriter, remote: RemoteAnchors) -> None:
    store.journal.emit_pending()
    with anyio.CancelScope(shield=True):  # the writer has its own time limit
        try:
            await writer.close()
        finally:
            await anyio.to_thread.run_sync(store.audit.release)
            await anyio.to_thread.run_sync(remote.close)
            await anyio.to_thread.run_sync(database.close)
