"""The store: everything Fingerpost remembers, behind one small interface."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from fingerpost.errors import StoreUnavailable
from fingerpost.store.anchor import Anchor, RemoteAnchors
from fingerpost.store.approvals import ApprovalStore
from fingerpost.store.audit import AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.choices import ChoiceStore
from fingerpost.store.confidences import ConfidenceStore
from fingerpost.store.database import Database
from fingerpost.store.evals import EvalStore
from fingerpost.store.feedback import FeedbackStore
from fingerpost.store.grants import GrantStore
from fingerpost.store.idempotency import IdempotencyStore
from fingerpost.store.instances import InstanceStore
from fingerpost.store.integrity import build_damaged_error
from fingerpost.store.journal import Journal
from fingerpost.store.keys import ApiKeyStore
from fingerpost.store.learned import LearnedStore
from fingerpost.store.locations import resolve_location
from fingerpost.store.memories import MemoryStore
from fingerpost.store.pins import PinStore
from fingerpost.store.preferences import PreferenceStore
from fingerpost.store.shutters import DisabledStore
from fingerpost.store.tokens import TokenStore
from fingerpost.store.usage import UsageStore
from fingerpost.store.writer import StoreWriter, WriterStatistics

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
        self.usage = UsageStore(database, writer)
        self.choices = ChoiceStore(database, writer)
        self.confidences = ConfidenceStore(database, writer)
        self.feedback = FeedbackStore(database, writer)
        self.learned = LearnedStore(database, writer)
        self.approvals = ApprovalStore(database, writer)
        self.grants = GrantStore(database, writer)
        self.cache = Cache(database, writer, cache)
        self.tokens = TokenStore(database, writer)
        self.keys = ApiKeyStore(database, writer)
        self.disabled = DisabledStore(database, writer)
        self.idempotency = IdempotencyStore(database, writer)
        self.evals = EvalStore(database, writer)
        self.memories = MemoryStore(database, writer)
        self.instances = InstanceStore(database, writer)
        self.preferences = PreferenceStore(database, writer)

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        url: str | None = None,
        *,
        flush_ms: float = 100.0,
        audit: bool = True,
        anchor: Path | None = None,
        anchors: Sequence[str] = (),
        anchor_seconds: float = 60.0,
        lock_wait: float = LOCK_WAIT,
        backlog: int = MAX_BACKLOG,
        cache: CacheLimits = CacheLimits(),  # noqa: B008 - frozen
    ) -> AsyncGenerator[Store]:
        """Open the database at `url`, by default a file in the user's data directory.

        What is missing is created, what is old is migrated.

        `flush_ms` is how long writes nobody waits for may gather, `lock_wait` how long another program may
        hold the database, `backlog` how many events may wait while the disk is stuck.
        `anchor` names the audit trail's anchor file, by default beside the database; `anchors` are further
        ones outside (a file, `syslog://…`, `https://…`), told of the newest row every `anchor_seconds`.
        Leaving the block writes what is left.
        """
        location = resolve_location(url, anchor=anchor)
        database = await anyio.to_thread.run_sync(partial(Database.open, location, lock_wait=lock_wait))
        outside = RemoteAnchors(anchors if audit else (), location.identity, interval=anchor_seconds)
        trail = await anyio.to_thread.run_sync(
            partial(AuditTrail, database, Anchor(location.anchor), enabled=audit, remote=outside)
        )
        await anyio.to_thread.run_sync(_check_audit_trail, trail, database)
        writer = StoreWriter(
            database, flush_ms=flush_ms, lock_wait=lock_wait, backlog=backlog, upkeep=trail.write_anchor
        )
        writer.start()
        store = cls(database, writer, trail, cache)
        try:
            yield store
        except BaseException:
            try:
                await _close_store(store, database, writer, outside)
            except StoreUnavailable as error:  # the error that ended the block matters more
                logger.error("%s", error)
            raise
        await _close_store(store, database, writer, outside)

    @property
    def statistics(self) -> WriterStatistics:
        """What the writer has done so far."""
        return self._writer.statistics


def _check_audit_trail(trail: AuditTrail, database: Database) -> None:
    """A trail that contradicts itself can be read and verified, but nothing is built on it."""
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
    with anyio.CancelScope(shield=True):  # bounded: the writer gives up by itself
        try:
            await writer.close()
        finally:
            await anyio.to_thread.run_sync(remote.close)
            await anyio.to_thread.run_sync(database.close)
