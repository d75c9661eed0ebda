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
from fingerpost.store.anchor import Anchor, OutsideAnchors
from fingerpost.store.approvals import Approvals
from fingerpost.store.audit import AuditTrail
from fingerpost.store.cache import Cache, CacheLimits
from fingerpost.store.choices import Choices
from fingerpost.store.confidences import Confidences
from fingerpost.store.database import Database
from fingerpost.store.evals import Evals
from fingerpost.store.feedback import FeedbackBook
from fingerpost.store.grants import Grants
from fingerpost.store.idempotency import IdempotencyKeys
from fingerpost.store.instances import Instances
from fingerpost.store.integrity import damaged
from fingerpost.store.journal import Journal
from fingerpost.store.keys import Keys
from fingerpost.store.learned import LearnedBook
from fingerpost.store.locations import locate
from fingerpost.store.memories import Memories
from fingerpost.store.pins import Pins
from fingerpost.store.preferences import EffortPreferences
from fingerpost.store.shutters import Shutters
from fingerpost.store.tokens import Tokens
from fingerpost.store.usage import Usage
from fingerpost.store.writer import Statistics, Writer

logger = logging.getLogger("fingerpost.store")

LOCK_WAIT = 10.0
BACKLOG = 10_000


class Store:
    """An open store. Use `async with Store.open() as store`."""

    def __init__(self, database: Database, writer: Writer, audit: AuditTrail, cache: CacheLimits) -> None:
        self._writer = writer
        self.location = database.location
        self.audit = audit
        self.journal = Journal(database, writer, audit)
        self.pins = Pins(database, writer)
        self.usage = Usage(database, writer)
        self.choices = Choices(database, writer)
        self.confidences = Confidences(database, writer)
        self.feedback = FeedbackBook(database, writer)
        self.learned = LearnedBook(database, writer)
        self.approvals = Approvals(database, writer)
        self.grants = Grants(database, writer)
        self.cache = Cache(database, writer, cache)
        self.tokens = Tokens(database, writer)
        self.keys = Keys(database, writer)
        self.shutters = Shutters(database, writer)
        self.idempotency = IdempotencyKeys(database, writer)
        self.evals = Evals(database, writer)
        self.memories = Memories(database, writer)
        self.instances = Instances(database, writer)
        self.preferences = EffortPreferences(database, writer)

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
        backlog: int = BACKLOG,
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
        location = locate(url, anchor=anchor)
        database = await anyio.to_thread.run_sync(partial(Database.open, location, lock_wait=lock_wait))
        outside = OutsideAnchors(anchors if audit else (), location.place, every=anchor_seconds)
        trail = await anyio.to_thread.run_sync(
            partial(AuditTrail, database, Anchor(location.anchor), enabled=audit, outside=outside)
        )
        await anyio.to_thread.run_sync(_check_trail, trail, database)
        writer = Writer(
            database, flush_ms=flush_ms, lock_wait=lock_wait, backlog=backlog, upkeep=trail.drop_anchor
        )
        writer.start()
        store = cls(database, writer, trail, cache)
        try:
            yield store
        except BaseException:
            try:
                await _close(store, database, writer, outside)
            except StoreUnavailable as error:  # the error that ended the block matters more
                logger.error("%s", error)
            raise
        await _close(store, database, writer, outside)

    @property
    def statistics(self) -> Statistics:
        """What the writer has done so far."""
        return self._writer.statistics


def _check_trail(trail: AuditTrail, database: Database) -> None:
    """A trail that contradicts itself can be read and verified, but nothing is built on it."""
    try:
        reason = trail.find_break()
    except BaseException:
        database.close()
        raise
    if reason is not None:
        error = damaged(database.location, f"{reason}. It is open for reading only")
        logger.error("%s", error)
        database.refuse_writes(error)


async def _close(store: Store, database: Database, writer: Writer, outside: OutsideAnchors) -> None:
    store.journal.complete()
    with anyio.CancelScope(shield=True):  # bounded: the writer gives up by itself
        try:
            await writer.close()
        finally:
            await anyio.to_thread.run_sync(outside.close)
            await anyio.to_thread.run_sync(database.close)
