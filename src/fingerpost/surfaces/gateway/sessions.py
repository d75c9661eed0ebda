"""Sessions of the handshake era: their notifications, open questions and active requests."""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Protocol, Self, cast

import anyio
from mcp_types.jsonrpc import INTERNAL_ERROR, METHOD_NOT_FOUND

from fingerpost.errors import StoreError
from fingerpost.records import JsonObject, Principal, utc_now
from fingerpost.store import Store
from fingerpost.surfaces.gateway.protocol import (
    ClientRequest,
    JsonRpcError,
    RequestId,
    encode_notification,
    encode_request,
)
from fingerpost.surfaces.http.access import Endpoint
from fingerpost.surfaces.http.asgi import Header
from fingerpost.tasks import create_cancel_scope

log = logging.getLogger("fingerpost.gateway")

# A repeated notification with the same params adds nothing.
RESOURCE_UPDATED: Final = "notifications/resources/updated"
CHANGE_METHODS: Final = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        RESOURCE_UPDATED,
    }
)


# Limits memory: many notifications may wait for clients that do not read.
MAX_NOTIFICATION_BYTES: Final = 64 * 1024


class Notification:
    """One notification, encoded at most once for all listeners."""

    __slots__ = ("_message", "method", "params")

    def __init__(self, method: str, params: JsonObject) -> None:
        self.method = method
        self.params = params
        self._message: bytes | None = None

    @property
    def message(self) -> bytes:
        if self._message is None:
            self._message = encode_notification(self.method, self.params)
        return self._message


class NotificationListener(Protocol):
    """A connected client. `receive` takes a notification and returns at once."""

    @property
    def request(self) -> ClientRequest:
        """The request that registered the listener."""
        ...

    def receive(self, notification: Notification) -> None: ...


class NotificationListeners:
    """The listeners of one gateway. Implements `NotificationAudience`."""

    def __init__(self) -> None:
        self._listeners: dict[int, NotificationListener] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def add(self, listener: NotificationListener) -> Callable[[], None]:
        """Add a listener. Call the result to remove it."""
        key = id(listener)
        self._listeners[key] = listener

        def remove() -> None:
            self._listeners.pop(key, None)

        return remove

    def publish(
        self,
        method: str,
        params: JsonObject,
        *,
        should_receive: Callable[[ClientRequest], bool] | None = None,
    ) -> None:
        if not self._listeners:
            return
        notification = Notification(method, params)
        if len(notification.message) > MAX_NOTIFICATION_BYTES:
            log.info("%s of %d bytes is too long to be passed on", method, len(notification.message))
            return
        for listener in list(self._listeners.values()):
            try:
                if should_receive is None or should_receive(listener.request):
                    listener.receive(notification)
            except Exception:
                log.exception("A listener could not be notified of %s", method)


MAX_NOTIFICATIONS: Final = 64


class NotificationBacklog:
    """Numbered notifications of one session. Sent ones are kept for a client that lost its stream.

    Each process numbers for itself: `mark` is part of the event ids where there are several.
    """

    __slots__ = ("_kept", "_last", "_mark", "_sent", "_woken", "closed")

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self._kept: deque[tuple[int, Notification]] = deque(maxlen=MAX_NOTIFICATIONS)
        self._last = 0
        self._sent = 0
        self._woken: anyio.Event | None = None
        self.closed = False

    def add(self, notification: Notification) -> None:
        """Add a notification. The oldest is dropped above the limit."""
        if notification.method in CHANGE_METHODS and any(
            number > self._sent and kept.message == notification.message for number, kept in self._kept
        ):
            return
        self._last += 1
        self._kept.append((self._last, notification))
        self.wake()

    def close(self) -> None:
        self.closed = True
        self.wake()

    def resume_after(self, event_id: str) -> None:
        """Treat everything up to this event as sent, and nothing after it. Ignores ids of other processes."""
        number = event_id.removeprefix(self._mark)
        if event_id.startswith(self._mark) and number.isascii() and number.isdigit() and len(number) < 20:
            self._sent = min(int(number), self._last)

    def take_unsent(self) -> list[tuple[str, bytes]]:
        """Return the unsent notifications with their event ids, and mark them as sent."""
        due = [
            (f"{self._mark}{number}", notification.message)
            for number, notification in self._kept
            if number > self._sent
        ]
        self._sent = self._last
        return due

    async def wait(self) -> None:
        """Wait until there may be something to send, or the session ended."""
        if self.closed or self._sent < self._last:
            return
        self._woken = anyio.Event()
        await self._woken.wait()

    def wake(self) -> None:
        if self._woken is not None:
            self._woken.set()


MAX_OPEN_QUESTIONS: Final = 100  # concurrent questions per session
QUESTION_PREFIX: Final = "fingerpost-"
MAX_ID_LENGTH: Final = 200  # of a request that is cancelled in another process
_CANCEL_TIMEOUT_S: Final = 1.0


def build_cannot_ask_error(method: str) -> JsonRpcError:
    return JsonRpcError(METHOD_NOT_FOUND, f"This client cannot be asked ({method}) while its request runs.")


@dataclass(slots=True)
class _OpenQuestion:
    answered: anyio.Event = field(default_factory=anyio.Event)
    response: JsonObject | None = None

    def get_result(self) -> JsonObject:
        if self.response is None:
            raise JsonRpcError(INTERNAL_ERROR, "The client disconnected before it answered.")
        result = self.response.get("result")
        if isinstance(result, dict):
            return result
        error = self.response.get("error")
        fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code = fields.get("code")
        raise JsonRpcError(
            code if isinstance(code, int) else INTERNAL_ERROR,
            str(fields.get("message") or "The client's answer was neither a result nor an error."),
            fields.get("data"),
        )


class ClientQuestions:
    """The open questions of one session. The gateway chooses their ids, so answers are told from requests."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[str, _OpenQuestion] = {}

    async def ask_client(
        self, send: Callable[[bytes], Awaitable[None]], method: str, params: JsonObject
    ) -> JsonObject:
        """Send a request to the client and wait for the answer. There is no timeout here."""
        if len(self._waiting) >= MAX_OPEN_QUESTIONS:
            raise JsonRpcError(
                INTERNAL_ERROR, f"{MAX_OPEN_QUESTIONS} questions to this client are open already."
            )
        request_id = f"{QUESTION_PREFIX}{secrets.token_hex(8)}"  # other processes may ask in the same session
        question = self._waiting[request_id] = _OpenQuestion()
        try:
            await send(encode_request(request_id, method, params))
            await question.answered.wait()
        except anyio.get_cancelled_exc_class():
            withdrawn = encode_notification("notifications/cancelled", {"requestId": request_id})
            with anyio.move_on_after(_CANCEL_TIMEOUT_S, shield=True):
                await send(withdrawn)
            raise
        finally:
            self._waiting.pop(request_id, None)
        return question.get_result()

    def accept_response(self, response: JsonObject) -> bool:
        """Deliver a response to its waiting question. Return whether it waits here."""
        question = self._waiting.get(str(response.get("id")))
        if question is None:
            return False
        if question.response is None:
            question.response = response
            question.answered.set()
        return True

    def cancel_all(self) -> None:
        """End all open questions, because the client is gone."""
        for question in self._waiting.values():
            question.answered.set()


CANCELLED_BY_CLIENT: Final = "The client cancelled the request."


class ActiveRequests:
    """All running requests. The shutdown waits for them."""

    __slots__ = ("_done", "_running")

    def __init__(self) -> None:
        self._running: set[ActiveRequest] = set()
        self._done: anyio.Event | None = None

    def add(self, active: ActiveRequest) -> None:
        self._running.add(active)

    def remove(self, active: ActiveRequest) -> None:
        self._running.discard(active)
        if self._done is not None and not self._running:
            self._done.set()

    async def wait_until_done(self) -> None:
        """Wait until no request runs."""
        while self._running:
            self._done = anyio.Event()
            await self._done.wait()

    def cancel_all(self, reason: str) -> None:
        for running in list(self._running):
            running.cancel(reason)


class ActiveRequest:
    """A running request that can be cancelled from outside. Used with `with`."""

    __slots__ = ("_work", "reason", "scope")

    def __init__(self, active_requests: ActiveRequests) -> None:
        self._work = active_requests
        self.scope = create_cancel_scope()
        self.reason = ""

    def cancel(self, reason: str) -> None:
        """Cancel the request. The first reason is reported."""
        if not self.reason:
            self.reason = reason
        self.scope.cancel()

    def cancel_for_client(self) -> None:
        """Cancel the request because the client cancelled it."""
        self.cancel(CANCELLED_BY_CLIENT)

    @property
    def is_cancelled_by_client(self) -> bool:
        return self.reason == CANCELLED_BY_CLIENT

    def __enter__(self) -> Self:
        self._work.add(self)
        self.scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._work.remove(self)
        return bool(self.scope.__exit__(kind, error, trace))


@dataclass(slots=True, eq=False)
class McpSession:
    """One client's session. `request` is its `initialize` request."""

    id: str
    request: ClientRequest
    header: Header
    unsubscribe: Callable[[], None] = lambda: None
    last_seen: float = 0.0
    in_flight: dict[RequestId, ActiveRequest] = field(default_factory=dict[RequestId, ActiveRequest])
    questions: ClientQuestions = field(default_factory=ClientQuestions)
    backlog: NotificationBacklog = field(default_factory=NotificationBacklog)
    stream: object | None = None  # the open GET stream
    shared: SharedSessions | None = None  # set if other processes serve the session, too
    noted_at: float = 0.0  # when its use was last recorded for other processes

    def receive(self, notification: Notification) -> None:
        if self.shared is not None and self.stream is None and notification.method == RESOURCE_UPDATED:
            self.shared.pass_on(self, {"updated": notification.params})  # the stream may be elsewhere
        self.backlog.add(notification)

    def accept_response(self, response: JsonObject) -> None:
        """Deliver the client's answer to the question, in this process or another."""
        is_own = str(response.get("id")).startswith(QUESTION_PREFIX)
        if not self.questions.accept_response(response) and is_own and self.shared is not None:
            self.shared.pass_on(self, {"response": response})

    def cancel_request(self, request_id: RequestId) -> None:
        """Cancel a request of the client, in this process or another."""
        if (running := self.in_flight.get(request_id)) is not None:
            running.cancel_for_client()
        elif self.shared is not None and len(str(request_id)) <= MAX_ID_LENGTH:
            self.shared.pass_on(self, {"cancel": request_id})

    @property
    def busy(self) -> bool:
        return bool(self.in_flight) or self.stream is not None

    def is_owned_by(self, principal: Principal, endpoint: Endpoint) -> bool:
        owner = self.request.principal
        return (
            owner.name == principal.name
            and owner.kind == principal.kind
            and self.request.endpoint.path == endpoint.path
        )


class McpSessions:
    """All sessions, the longest idle first."""

    def __init__(
        self,
        audience: NotificationListeners,
        *,
        limit: int,
        idle_seconds: float,
        on_end: Callable[[McpSession, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._audience = audience
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._on_end = on_end
        self._clock = clock
        self._sessions: OrderedDict[str, McpSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    @staticmethod
    def create_id() -> str:
        return secrets.token_urlsafe(24)

    def open(self, request: ClientRequest) -> McpSession | None:
        """Open a session for this `initialize` request. Return None if there are too many busy sessions."""
        if request.session is None or (len(self._sessions) >= self._limit and not self._make_room(request)):
            return None
        header = (b"mcp-session-id", request.session.encode())
        session = McpSession(id=request.session, request=request, header=header, last_seen=self._clock())
        session.unsubscribe = self._audience.add(session)
        self._sessions[session.id] = session
        return session

    def peek(self, session_id: str) -> McpSession | None:
        """Return the session without using it."""
        return self._sessions.get(session_id)

    def list_busy(self) -> list[McpSession]:
        return [session for session in self._sessions.values() if session.busy]

    def find(self, session_id: str, principal: Principal, endpoint: Endpoint) -> McpSession | None:
        """Return the session if it belongs to this principal and endpoint, else None."""
        session = self._sessions.get(session_id)
        if session is None or not session.is_owned_by(principal, endpoint):
            return None
        self.touch(session)
        return session

    def touch(self, session: McpSession) -> None:
        if session.id in self._sessions:
            session.last_seen = self._clock()
            self._sessions.move_to_end(session.id)

    def end_session(self, session: McpSession, reason: str) -> None:
        """Remove the session, cancel its requests, and notify the methods."""
        if self._sessions.pop(session.id, None) is None:
            return
        session.unsubscribe()
        session.questions.cancel_all()
        session.backlog.close()
        for running in list(session.in_flight.values()):
            running.cancel("The session ended.")
        self._on_end(session, reason)

    def end_idle_sessions(self) -> None:
        """End sessions that were idle for too long."""
        limit = self._clock() - self._idle_seconds
        for session in list(self._sessions.values()):
            if session.last_seen > limit:
                return
            if not session.busy:
                self.end_session(session, f"idle for {self._idle_seconds:g} s")

    def end_all_sessions(self, reason: str) -> None:
        for session in list(self._sessions.values()):
            self.end_session(session, reason)

    def _make_room(self, request: ClientRequest) -> bool:
        """End the longest idle session without requests: one of the same principal, else of the one with the
        most.

        So a principal that opens too many sessions loses its own first.
        """
        idle = [session for session in self._sessions.values() if not session.busy]
        own = (
            session for session in idle if session.is_owned_by(request.principal, session.request.endpoint)
        )
        if not idle:
            return False
        counts = Counter(session.request.principal.name for session in self._sessions.values())
        session_to_end = next(own, None) or max(idle, key=lambda one: counts[one.request.principal.name])
        self.end_session(session_to_end, "closed to make room for another client")
        return True


SESSION_TOPIC: Final = "session"
NOTE_USE_INTERVAL_S: Final = 60.0
_UNNOTED_USE: Final = timedelta(seconds=3 * NOTE_USE_INTERVAL_S)


class SharedSessions:
    """Sessions that several processes serve. They are kept in the store; each process has those that it was
    asked for in memory, and passes on what concerns a request or stream of another process.
    """

    def __init__(
        self,
        store: Store,
        sessions: McpSessions,
        *,
        limit: int,
        idle_seconds: float,
        restore: Callable[[ClientRequest, JsonObject], None],
        on_left: Callable[[JsonObject, str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`restore` applies what a session has set to a process that did not know it; `on_left` is called
        with the record of a session that ended.
        """
        self._store = store
        self._sessions = sessions
        self._limit = limit
        self._idle = timedelta(seconds=idle_seconds)
        self._restore = restore
        self._on_left = on_left
        self._clock = clock
        self.close = store.messages.subscribe(SESSION_TOPIC, self._receive)

    async def add(self, session: McpSession) -> None:
        """Share a new session. Raises `StoreError`."""
        opening = session.request
        record: JsonObject = {
            "version": opening.version,
            "path": opening.endpoint.path,
            "principal": opening.principal.name,
            "kind": opening.principal.kind,
            "capabilities": opening.capabilities,
            "client": opening.client,
        }
        await self._store.mcp_sessions.add(session.id, record)
        self._attach(session)

    async def load(self, session_id: str, principal: Principal, endpoint: Endpoint) -> McpSession | None:
        """Return another process's session if this principal and endpoint own it. Raises `StoreError`."""
        stored = await self._store.mcp_sessions.find(session_id)
        if stored is None:
            return None
        record = stored.record
        owner = (record["principal"], record["kind"], record["path"])
        if owner != (principal.name, principal.kind, endpoint.path):
            return None
        if (found := self._sessions.peek(session_id)) is not None:  # loaded meanwhile
            return found
        opening = ClientRequest(
            id=0,
            method="initialize",
            params={},
            version=str(record["version"]),
            endpoint=endpoint,
            principal=principal,
            capabilities=cast("JsonObject", record["capabilities"]),
            client=str(record["client"]),
            session=session_id,
        )
        session = self._sessions.open(opening)
        if session is not None:
            self._attach(session)
            self._restore(opening, record)
        return session

    def _attach(self, session: McpSession) -> None:
        session.shared = self
        session.backlog = NotificationBacklog(f"{secrets.token_hex(4)}-")
        session.noted_at = self._clock()

    def note_use(self, session: McpSession) -> None:
        """Record from time to time that the session is in use."""
        if self._clock() - session.noted_at > NOTE_USE_INTERVAL_S:
            session.noted_at = self._clock()
            self._store.mcp_sessions.note_use(session.id)

    async def end(self, session_id: str, reason: str) -> None:
        """End a session for all processes."""
        if await self._store.mcp_sessions.end(session_id):
            self._store.messages.publish(SESSION_TOPIC, {"session": session_id, "end": reason})

    async def end_idle(self) -> None:
        """End the sessions that no process used for too long."""
        for session in self._sessions.list_busy():
            self.note_use(session)
        try:
            before = utc_now() - self._idle - _UNNOTED_USE
            ended = await self._store.mcp_sessions.end_idle(before, limit=self._limit)
        except StoreError as error:
            log.warning("idle sessions could not be ended: %s", error)
            return
        for one in ended:
            self._on_left(one.record, f"idle for {self._idle.total_seconds():g} s, or too many sessions")

    def pass_on(self, session: McpSession, what: JsonObject) -> None:
        """Send this to the other processes that serve the session."""
        self._store.messages.publish(SESSION_TOPIC, {"session": session.id, **what})

    def _receive(self, message: JsonObject) -> None:
        session = self._sessions.peek(str(message["session"]))
        if session is None:
            return
        for what, value in message.items():
            match what:
                case "response":
                    session.questions.accept_response(cast("JsonObject", value))
                case "cancel":
                    if (running := session.in_flight.get(cast("RequestId", value))) is not None:
                        running.cancel_for_client()
                case "updated":
                    if session.stream is not None:
                        session.backlog.add(Notification(RESOURCE_UPDATED, cast("JsonObject", value)))
                case "state":
                    self._restore(session.request, cast("JsonObject", value))
                case "end":
                    self._sessions.end_session(session, str(value))
                case _:
                    pass


async def change_shared_session(
    store: Store, session_id: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Record what a session has set, such as its log level, and tell the other processes. Does nothing if the
    session is not shared. Raises `StoreError`.
    """
    if not store.messages.is_shared:
        return
    record = await store.mcp_sessions.change(session_id, change)
    if record is not None:
        store.messages.publish(SESSION_TOPIC, {"session": session_id, "state": record})
