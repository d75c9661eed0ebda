"""The store: one interface to all persistent data, and the processes that use it with their messages."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from heapq import heapify, heapreplace
from pathlib import Path
from threading import Event as ThreadEvent
from threading import Thread
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from fingerpost.errors import StoreError, StoreUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, create_id, utc_now
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
from fingerpost.store.schema import claims, instances, journal_head, mcp_sessions, messages, quota_slots
from fingerpost.store.trust import DataFlowStore, DisabledStore, KnownServerStore, PinStore
from fingerpost.store.writer import StorePart, StoreWriter, WriterStatistics
from fingerpost.tasks import cancel_and_exit, run_contained, run_restarting

LEASE_SECONDS = 30.0


@frozen
class Instance:
    """One process. `since_seq` is the number of the last journal event when it started."""

    instance_id: str
    seen: datetime
    lease_s: float
    since_seq: int


class InstanceStore(StorePart):
    """Running processes and the work they have claimed."""

    async def renew_lease(
        self, instance_id: str, *, lease_s: float = LEASE_SECONDS, now: datetime | None = None
    ) -> None:
        """Record that this process is alive for `lease_s` seconds. It must renew the lease earlier."""
        await self._write(_renew_lease, instance_id, now or utc_now(), lease_s)

    async def end(self, instance_id: str) -> None:
        """Remove this process and its claims."""
        await self._write(_end_instance, instance_id)

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
        return await self._write(_claim_name, name, instance_id, now or utc_now())

    async def release(self, name: str, instance_id: str) -> None:
        """Release the claim."""
        await self._execute(delete(claims).where(claims.c.name == name, claims.c.instance_id == instance_id))


def _is_alive(instance: Instance, now: datetime) -> bool:
    return now - instance.seen <= timedelta(seconds=instance.lease_s)


def _list_instances(connection: Connection) -> list[Instance]:
    return [Instance(**row) for row in connection.execute(select(instances)).mappings()]


def _renew_lease(connection: Connection, instance_id: str, seen: datetime, lease_s: float) -> None:
    since = connection.execute(select(journal_head.c.seq)).scalar_one()
    statement = upsert(connection, instances, lambda new: {"seen": new["seen"], "lease_s": new["lease_s"]})
    row = {"instance_id": instance_id, "seen": seen, "lease_s": lease_s, "since_seq": since}
    connection.execute(statement, row)


def _end_instance(connection: Connection, instance_id: str) -> None:
    for table in (claims, quota_slots, instances):
        connection.execute(delete(table).where(table.c.instance_id == instance_id))


def _claim_name(connection: Connection, name: str, instance_id: str, now: datetime) -> bool:
    holder = connection.execute(
        select(claims.c.instance_id).where(claims.c.name == name)
    ).scalar_one_or_none()
    if holder in {one.instance_id for one in _list_instances(connection) if _is_alive(one, now)}:
        return False
    connection.execute(upsert(connection, claims), {"name": name, "instance_id": instance_id})
    return True


MESSAGE_CHANNEL: Final = "fingerpost_messages"
MESSAGE_POLL_S: Final = 1.0  # behind the notifications of PostgreSQL
LOCAL_MESSAGE_POLL_S: Final = 0.1  # SQLite has no notifications; a look costs a tenth of a millisecond
RECONNECT_S: Final = 1.0
LISTENER_END_S: Final = 3.0
ACCEPT_S: Final = 10.0  # until the process that has what is asked for says so
MESSAGE_LIFETIME: Final = timedelta(minutes=5)
MESSAGE_CHUNK: Final = 500
PRUNE_INTERVAL_S: Final = 60.0
_ASKED, _ACCEPTED, _ANSWERED = "asked", "accepted", "answered"

MessageHandler = Callable[[JsonObject], None]
# Returns the work that answers a question, or None if this process cannot answer it.
QuestionHandler = Callable[[JsonObject], Awaitable[JsonObject] | None]


class _ProcessQuestion:
    def __init__(self, expected: int = 1) -> None:
        self._expected = expected
        self.accepted = anyio.Event()
        self.answered = anyio.Event()  # as often as expected
        self.answers: list[JsonObject] = []

    def add_answer(self, answer: JsonObject) -> None:
        self.answers.append(answer)
        if len(self.answers) >= self._expected:
            self.answered.set()


class ProcessMessages(StorePart):
    """Messages between the processes that share a store. PostgreSQL tells of new ones; they are also polled.

    A message reaches each process that has `open` messages then, once and in order, and not its sender. A
    process that is cut off gets what it missed, up to `MESSAGE_LIFETIME`.
    """

    def __init__(self, database: Database, writer: StoreWriter) -> None:
        super().__init__(database, writer)
        self._own_id = create_id("prc")
        self.is_shared = not database.location.is_sqlite  # whether other processes may listen
        self._handlers: dict[str, list[MessageHandler]] = {}
        self._questions: dict[str, _ProcessQuestion] = {}
        self._answers: dict[str, QuestionHandler] = {}
        self._position = 0
        self._woken = anyio.Event()
        self._tasks: TaskGroup | None = None

    def publish(self, topic: str, body: JsonObject) -> None:
        """Send a message to the other processes soon. Does nothing if the store is not shared."""
        if not self.is_shared:
            return
        message = {"sender": self._own_id, "topic": topic, "body": json.dumps(body), "at": utc_now()}
        try:
            self._writer.write_soon(_add_messages, message)
            self._writer.flush_soon()
        except StoreUnavailable as error:  # closed, or too many writes wait
            logger.warning("other processes were not told about %s: %s", topic, error)

    def subscribe(self, topic: str, handler: MessageHandler) -> Callable[[], None]:
        """Call `handler` with each message of this topic. Call the result to stop."""
        handlers = self._handlers.setdefault(topic, [])
        handlers.append(handler)

        def stop() -> None:
            with suppress(ValueError):
                handlers.remove(handler)

        return stop

    def answer_questions(self, topic: str, handler: QuestionHandler) -> None:
        """Answer questions of other processes about this topic. There is one handler for each topic."""
        self._answers[topic] = handler

    async def ask(self, topic: str, body: JsonObject, *, seconds: float) -> JsonObject | None:
        """Return the answer of the process that can answer this, or None if none does.

        A process that accepted the question has `seconds` to answer. Raises `StoreError` if it does not.
        """
        if self._tasks is None or not await self._has_others():
            return None
        number = create_id("qst")
        question = self._questions[number] = _ProcessQuestion()
        try:
            self.publish(_ASKED, {"question": number, "topic": topic, "body": body})
            with anyio.move_on_after(ACCEPT_S):
                await question.accepted.wait()
            if not question.accepted.is_set():
                return None
            with anyio.move_on_after(seconds):
                await question.answered.wait()
                return question.answers[0]
        finally:
            del self._questions[number]
        message = "another process of this gateway did not answer in time"
        raise StoreUnavailable(message, hint="Whether it went on is unknown. Try again.")

    async def _has_others(self) -> bool:
        """Return whether other processes use the store now."""
        now, found = utc_now(), await self._database.read(_list_instances)
        return sum(_is_alive(one, now) for one in found) > 1

    async def ask_all(
        self, topic: str, body: JsonObject, *, expected: int, seconds: float
    ) -> list[JsonObject]:
        """Return the answers of other processes: `expected` ones, or fewer after `seconds`."""
        if self._tasks is None or not expected:
            return []
        number = create_id("qst")
        question = self._questions[number] = _ProcessQuestion(expected)
        try:
            self.publish(_ASKED, {"question": number, "topic": topic, "body": body})
            with anyio.move_on_after(seconds):
                await question.answered.wait()
        finally:
            del self._questions[number]
        return question.answers

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """Receive messages while the context is open, if the store is shared."""
        if not self.is_shared:
            yield
            return
        self._position = await self._read_value(select(func.max(messages.c.seq))) or 0
        stopped = ThreadEvent()
        listener = Thread(target=self._listen, args=(stopped,), name="fingerpost-listen", daemon=True)
        if not self._database.location.is_sqlite:
            listener.start()
        self._tasks = tasks = await anyio.create_task_group().__aenter__()
        tasks.start_soon(run_restarting, self._follow)
        try:
            yield
        finally:
            self._tasks = None
            stopped.set()
            if listener.is_alive():
                self.publish("left", {})  # wakes the thread
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(listener.join, LISTENER_END_S)
            await cancel_and_exit(tasks, *sys.exc_info())

    def _listen(self, stopped: ThreadEvent) -> None:
        """Wake the reader at each notification, until stopped. Runs in a thread of its own."""

        def wake() -> None:
            with suppress(RuntimeError):  # the event loop is closed
                self._writer.loop.call_soon_threadsafe(self._wake)

        while not stopped.is_set():
            try:
                self._database.listen(MESSAGE_CHANNEL, wake, stopped)
            except Exception as error:  # noqa: BLE001 - of the driver; messages are polled meanwhile
                logger.debug("notifications of the database are lost: %s", type(error).__name__)
                stopped.wait(RECONNECT_S)

    def _wake(self) -> None:
        self._woken.set()

    async def _follow(self) -> None:
        poll = LOCAL_MESSAGE_POLL_S if self._database.location.is_sqlite else MESSAGE_POLL_S
        pruned_at = anyio.current_time()
        newest = select(messages).order_by(messages.c.seq).limit(MESSAGE_CHUNK)
        while True:
            if anyio.current_time() - pruned_at > PRUNE_INTERVAL_S:
                pruned_at = anyio.current_time()
                old = delete(messages).where(messages.c.at < utc_now() - MESSAGE_LIFETIME)
                self._write_soon(Connection.execute, old)
            with anyio.move_on_after(poll):
                await self._woken.wait()
            self._woken = anyio.Event()
            try:
                while rows := await self._read_rows(newest.where(messages.c.seq > self._position)):
                    self._position = rows[-1].seq
                    for row in rows:
                        if row.sender != self._own_id:
                            self._deliver(row.topic, cast("JsonObject", json.loads(row.body)))
            except StoreError:
                await anyio.sleep(RECONNECT_S)  # the database has logged it

    def _deliver(self, topic: str, body: JsonObject) -> None:
        if topic == _ASKED:
            self._accept(body)
        elif topic in (_ACCEPTED, _ANSWERED):
            question = self._questions.get(str(body["question"]))
            if question is not None:
                question.accepted.set()
                if topic == _ANSWERED:
                    question.add_answer(cast("JsonObject", body["answer"]))
        for handler in tuple(self._handlers.get(topic, ())):
            try:
                handler(body)
            except Exception:
                logger.exception("a message about %s could not be handled", topic)

    def _accept(self, body: JsonObject) -> None:
        handler = self._answers.get(str(body["topic"]))
        work = None if handler is None else handler(cast("JsonObject", body["body"]))
        if work is not None and self._tasks is not None:
            number = str(body["question"])
            self.publish(_ACCEPTED, {"question": number})
            self._tasks.start_soon(run_contained, self._answer, number, work)

    async def _answer(self, number: str, work: Awaitable[JsonObject]) -> None:
        self.publish(_ANSWERED, {"question": number, "answer": await work})


def _add_messages(connection: Connection, rows: Sequence[dict[str, Any]]) -> list[None]:
    """Write messages. Write transactions are serialized, so readers see them in order of their numbers."""
    connection.execute(insert(messages), rows)
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"NOTIFY {MESSAGE_CHANNEL}")
    return [None] * len(rows)


@frozen
class SharedSession:
    """An MCP session that any process may serve. `record` is what its client said and set."""

    session_id: str
    record: JsonObject


class McpSessionStore(StorePart):
    """MCP sessions of processes that share a store."""

    async def add(self, session_id: str, record: JsonObject) -> None:
        row = {"session_id": session_id, "record": json.dumps(record), "seen": utc_now()}
        await self._execute(insert(mcp_sessions), row)

    async def find(self, session_id: str) -> SharedSession | None:
        query = select(mcp_sessions.c.record).where(mcp_sessions.c.session_id == session_id)
        record = await self._read_value(query)
        return None if record is None else SharedSession(session_id=session_id, record=json.loads(record))

    async def change(self, session_id: str, change: Callable[[dict[str, Any]], None]) -> JsonObject | None:
        """Let `change` edit the record in the writer's thread, and return it; None: no such session."""
        return await self._write(_change_session, session_id, change)

    def note_use(self, session_id: str) -> None:
        """Record soon that the session is in use."""
        self._write_soon(_note_session, session_id, utc_now())

    async def end(self, session_id: str) -> bool:
        """Remove a session. Return whether this process removed it."""
        return await self._execute(delete(mcp_sessions).where(mcp_sessions.c.session_id == session_id)) == 1

    async def end_idle(self, before: datetime, *, limit: int) -> list[SharedSession]:
        """Remove the sessions that were not used since, and beyond `limit` the longest idle ones of callers
        with the most. Return them.
        """
        return await self._write(_end_idle_sessions, before, limit)


def _change_session(
    connection: Connection, session_id: str, change: Callable[[dict[str, Any]], None]
) -> JsonObject | None:
    row = mcp_sessions.c.session_id == session_id
    stored = connection.execute(select(mcp_sessions.c.record).where(row)).scalar_one_or_none()
    if stored is None:
        return None
    record = json.loads(stored)
    change(record)
    connection.execute(update(mcp_sessions).where(row).values(record=json.dumps(record)))
    return record


def _note_session(connection: Connection, session_id: str, at: datetime) -> None:
    connection.execute(update(mcp_sessions).where(mcp_sessions.c.session_id == session_id).values(seen=at))


def _end_idle_sessions(connection: Connection, before: datetime, limit: int) -> list[SharedSession]:
    ended = _delete_sessions(connection, mcp_sessions.c.seen <= before)
    count = connection.execute(select(func.count()).select_from(mcp_sessions)).scalar_one()
    if count > limit:
        surplus = _choose_surplus(connection, count - limit)
        ended += _delete_sessions(connection, mcp_sessions.c.session_id.in_(surplus))
    return ended


def _choose_surplus(connection: Connection, surplus: int) -> list[str]:
    """Return the longest idle sessions of those callers who have the most."""
    by_caller: dict[tuple[str, str], deque[str]] = {}
    query = select(mcp_sessions.c.session_id, mcp_sessions.c.record).order_by(mcp_sessions.c.seen)
    for row in connection.execute(query):
        record = json.loads(row.record)
        by_caller.setdefault((record["kind"], record["principal"]), deque()).append(row.session_id)
    fullest = [(-len(sessions), caller) for caller, sessions in by_caller.items()]
    heapify(fullest)
    chosen: list[str] = []
    for _ in range(surplus):
        count, caller = fullest[0]
        chosen.append(by_caller[caller].popleft())
        heapreplace(fullest, (count + 1, caller))
    return chosen


def _delete_sessions(connection: Connection, condition: ColumnElement[bool]) -> list[SharedSession]:
    statement = delete(mcp_sessions).where(condition)
    rows = connection.execute(statement.returning(mcp_sessions.c.session_id, mcp_sessions.c.record)).all()
    return [SharedSession(session_id=row.session_id, record=json.loads(row.record)) for row in rows]


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
        self.messages = ProcessMessages(database, writer)
        self.mcp_sessions = McpSessionStore(database, writer)
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
