"""Requests in flight on one connection, and the notifications and questions of the server while they run."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import ExitStack
from typing import Any, cast

import anyio
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, RequestId

from fingerpost.errors import FingerpostError, LimitReached, ToolFailed
from fingerpost.records import Json, JsonObject
from fingerpost.records.json import MAX_DEPTH, encode_if_valid, find_json_problem, has_lone_surrogate
from fingerpost.servers.requests import (
    LOG_METHOD,
    QUESTION_CAPABILITIES,
    CallerChannel,
    NotificationCallback,
    ProgressCallback,
    RequestClock,
    RequestContext,
)
from fingerpost.servers.spec import NO_SECRETS, ServerSecrets
from fingerpost.servers.wire import encode
from fingerpost.settings.model import LimitSettings

logger = logging.getLogger("fingerpost.servers")

PROGRESS_METHOD = "notifications/progress"
# These concern all callers, on any stream. Other messages on a request's stream belong to its caller.
BROADCAST_METHODS = frozenset(
    {f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources")}
    | {"notifications/resources/updated", "notifications/cancelled"}
)
MAX_QUEUED_NOTICES = 1000  # for a slow caller; the oldest are dropped
MAX_OPEN_SERVER_REQUESTS = 256  # unanswered requests of a server on one connection
FLUSH_SECONDS = 5.0  # for notifications that arrived before the result
GIVEN_UP_SECONDS = 300.0  # how long a server may still work on a request it never answered
ANSWERED_SECONDS = 5.0  # how late a message may arrive that was sent before a response

AMBIGUOUS_MESSAGE = (
    "%s: %s names no request and may be about any of %d callers; no caller was asked. "
    "Set isolate = true for this server to give each caller a connection of their own"
)

SpawnTask = Callable[[Callable[[], Coroutine[Any, Any, None]]], object]


class MessageQuota:
    """Counts the questions and notifications of a server during one call, including all its rounds.

    Methods raise `LimitReached` when a limit is exceeded, and return why a message is invalid, or None.
    """

    __slots__ = ("_bytes", "_limits", "_notices", "_questions", "_server")

    def __init__(self, server: str, limits: LimitSettings) -> None:
        self._server = server
        self._limits = limits
        self._questions = self._notices = self._bytes = 0

    def count_question(self, params: JsonObject) -> str | None:
        """Count one question. Return why it is invalid, or None."""
        self.count_questions(1)
        return self._count_bytes(params)

    def count_questions(self, number: int) -> None:
        """Count the questions of an `input_required` result."""
        self._questions += number
        most = self._limits.questions_per_call
        if self._questions > most:
            raise self._build_limit_error(f"asked more than {most:,} questions", "questions_per_call")

    def count_notice(self, params: JsonObject) -> str | None:
        """Count one notification or ping. Return why it is invalid, or None."""
        self._notices += 1
        most = self._limits.notices_per_call
        if self._notices > most:
            raise self._build_limit_error(
                f"sent more than {most:,} notifications and pings", "notices_per_call"
            )
        return self._count_bytes(params)

    def _count_bytes(self, params: JsonObject) -> str | None:
        data = encode_if_valid(params, MAX_DEPTH)
        if data is None:
            if (fault := find_json_problem(params)) is not None:
                return fault
            data = encode(params)
        self._bytes += len(data)
        most = self._limits.notice_bytes
        if self._bytes > most:
            raise self._build_limit_error(f"sent more than {most:,} bytes besides its answer", "notice_bytes")
        return None

    def _build_limit_error(self, what: str, name: str) -> LimitReached:
        hint = f"raise limits.{name} if you want to allow that"
        return LimitReached(f"{self._server} {what} in one call", hint=hint)


class InFlightRequest:
    """The notifications and questions of one request in flight."""

    def __init__(
        self,
        server: str,
        request: RequestId,
        *,
        context: RequestContext | None = None,
        on_progress: ProgressCallback | None = None,
        clock: RequestClock | None = None,
        quota: MessageQuota | None = None,
        secrets: ServerSecrets | None = None,
    ) -> None:
        self.request = request
        self._secrets = secrets or NO_SECRETS
        self.scope: anyio.CancelScope | None = None  # cancelled when the connection is lost
        self.lost = False
        self.failure: LimitReached | None = None  # set when the server exceeded its quota
        self._quota = quota or MessageQuota(server, LimitSettings())
        self.answered = False  # by the server
        self._server = server
        self._caller = context.caller if context is not None else None
        self._on_progress = on_progress
        self.clock = clock or RequestClock()
        self._notices: deque[tuple[str, JsonObject]] = deque(maxlen=MAX_QUEUED_NOTICES)
        self._delivery_scope: anyio.CancelScope | None = None
        self._delivered: anyio.Event | None = None

    @property
    def caller_key(self) -> str | None:
        return None if self._caller is None else self._caller.key

    @property
    def wants_progress(self) -> bool:
        return self._on_progress is not None or self._caller is not None

    async def forward_notification(self, method: str, params: JsonObject) -> None:
        """Forward a notification to the caller. Errors of the caller do not affect the request."""
        if (admitted := self.admit(method, params)) is not None:
            await self._deliver(method, self._secrets.mask(admitted))

    def admit(self, method: str, params: JsonObject) -> JsonObject | None:
        """Count a notification or ping. Return the part to forward, or None. The limit ends the request."""
        if self.failure is not None:
            return None
        try:
            fault = self._quota.count_notice(params)
        except LimitReached as error:
            self._fail(error)
            return None
        if fault is None:
            return params
        if method == PROGRESS_METHOD:  # drop only the invalid fields
            return {name: value for name, value in params.items() if find_json_problem({name: value}) is None}
        logger.debug("a notice of %s was dropped: it %s", self._server, fault)
        return None

    def _fail(self, error: LimitReached) -> None:
        """Cancel the request with this error."""
        self.failure = self.clock.loss = error
        if self.scope is not None:
            self.scope.cancel()

    async def _deliver(self, method: str, params: JsonObject) -> None:
        try:
            if method == PROGRESS_METHOD:
                await self._deliver_progress(params)
            elif self._caller is not None:
                await self._caller.tell(method, params)
        except Exception:
            logger.exception("a notice of %s could not be passed on", self._server)

    async def _deliver_progress(self, params: JsonObject) -> None:
        progress, message = _parse_number(params.get("progress")), params.get("message")
        if progress is None:
            return  # without a number it is useless, and clients could fail on it
        self.clock.note_progress(progress)
        if self._on_progress is not None:
            total = _parse_number(params.get("total"))
            await self._on_progress(progress, total, message if isinstance(message, str) else None)
        if self._caller is not None:
            # The token is ours. The caller's token is added by the caller's session.
            rest = {key: value for key, value in params.items() if key != "progressToken"}
            await self._caller.tell(PROGRESS_METHOD, rest)

    def queue_notification(self, method: str, params: JsonObject, spawn: SpawnTask) -> None:
        """Forward a notification without waiting. The order is kept."""
        if (admitted := self.admit(method, params)) is None:
            return
        self._notices.append((method, self._secrets.mask(admitted)))
        if self._delivery_scope is None:
            self._delivery_scope = anyio.CancelScope()
            self._delivered = anyio.Event()
            spawn(self._deliver_queued)

    async def _deliver_queued(self) -> None:
        assert self._delivery_scope is not None
        try:
            with self._delivery_scope:
                while self._notices:
                    await self._deliver(*self._notices.popleft())
        finally:
            self._delivery_scope = None
            if self._delivered is not None:
                self._delivered.set()

    async def flush(self) -> None:
        """Wait until queued notifications were delivered, so that they arrive before the result."""
        if self._delivery_scope is not None and self._delivered is not None:
            with anyio.move_on_after(FLUSH_SECONDS):
                await self._delivered.wait()

    def abandon(self) -> None:
        """Cancel the request because the connection is lost."""
        self.lost = True
        if self.scope is not None:
            self.scope.cancel()

    def close(self) -> tuple[tuple[str, JsonObject], ...]:
        """End the request and return the notifications that were not delivered."""
        if self._delivery_scope is None:
            return ()
        left = tuple(self._notices)
        self._notices.clear()
        self._delivery_scope.cancel()
        return left

    async def answer_server(self, method: str, params: JsonObject) -> JsonObject:
        """Return the caller's answer to a question of the server. Raises `MCPError` for the server."""
        if (refusal := self.count_question(params)) is not None:
            raise refusal
        return await self.ask_caller(method, params)

    async def ask_caller(self, method: str, params: JsonObject) -> JsonObject:
        """Like `answer_server`, for a question that was already counted."""
        if self.failure is not None:
            raise MCPError(INTERNAL_ERROR, str(self.failure))
        try:
            asked = self._secrets.mask(params)
            return await forward_question(self._server, self._caller, method, asked, self.clock)
        except ToolFailed as error:
            raise MCPError(error.code, str(error), error.data) from error
        except FingerpostError as error:
            raise MCPError(INTERNAL_ERROR, str(error)) from error
        except Exception as error:
            logger.exception("a question of %s could not be forwarded to the caller", self._server)
            raise MCPError(INTERNAL_ERROR, f"{method!r:.80} could not be passed on") from error

    def count_question(self, params: JsonObject) -> MCPError | None:
        """Count a question. Return the error if it is refused, else None. The limit ends the request."""
        if self.failure is None:
            try:
                fault = self._quota.count_question(params)
            except LimitReached as error:
                self._fail(error)
            else:
                return None if fault is None else MCPError(INVALID_PARAMS, f"the question {fault}")
        return MCPError(INTERNAL_ERROR, str(self.failure))


async def forward_question(
    server: str, caller: CallerChannel | None, method: str, params: JsonObject, clock: RequestClock
) -> JsonObject:
    """Ask the caller. Raises `ToolFailed` if there is no caller or the caller lacks the capability."""
    ability = QUESTION_CAPABILITIES.get(method)
    if ability is None:
        raise ToolFailed(f"{method!r:.80} is not known here", server=server, code=METHOD_NOT_FOUND)
    if caller is None:
        message = f"{method} cannot be answered: there is no caller to ask"
        raise ToolFailed(message, server=server, code=METHOD_NOT_FOUND)
    if ability not in caller.capabilities:
        message = f"{method} cannot be answered: the caller does not offer {ability}"
        raise ToolFailed(message, server=server, code=METHOD_NOT_FOUND)
    with clock.paused():
        return await caller.ask(method, params)


class RequestRegistry:
    """The requests in flight on one connection."""

    def __init__(
        self,
        server: str,
        on_notification: NotificationCallback,
        *,
        now: Callable[[], float] = time.monotonic,
        secrets: ServerSecrets | None = None,
    ) -> None:
        """`on_notification` gets notifications of no request, with the key of the only caller for them."""
        self._server = server
        own = secrets or NO_SECRETS
        self._on_notification: NotificationCallback = lambda method, params, caller: on_notification(
            method, own.mask(params), caller
        )
        self._now = now
        self._open: dict[RequestId, InFlightRequest] = {}
        # Callers of finished requests, and until when a message may still concern them.
        self._given_up: dict[str | None, float] = {}
        self._answered: dict[str | None, float] = {}
        self._last_closed: anyio.Event | None = None  # set while a task waits for it
        self._warned_ambiguous = False  # whether the ambiguity warning was logged
        # Requests of no caller; the server's questions do not concern them.
        self._internal: dict[RequestId, InFlightRequest] = {}

    def __len__(self) -> int:
        return len(self._open)

    async def wait_until_idle(self) -> None:
        """Wait until no caller's request is in flight."""
        while self._open:
            self._last_closed = self._last_closed or anyio.Event()
            await self._last_closed.wait()

    def open(self, in_flight: InFlightRequest, *, internal: bool = False) -> None:
        (self._internal if internal else self._open)[in_flight.request] = in_flight

    def close(self, in_flight: InFlightRequest) -> None:
        if self._open.pop(in_flight.request, None) is not None:
            self._remember(in_flight)
            if self._last_closed is not None and not self._open:
                self._last_closed.set()
                self._last_closed = None
        self._internal.pop(in_flight.request, None)
        for method, params in in_flight.close():
            if method == LOG_METHOD and in_flight.caller_key is not None:
                self._on_notification(LOG_METHOD, params, in_flight.caller_key)

    def _remember(self, in_flight: InFlightRequest) -> None:
        recent, seconds = self._given_up, GIVEN_UP_SECONDS
        if in_flight.answered:
            recent, seconds = self._answered, ANSWERED_SECONDS
        now = self._now()
        recent.pop(in_flight.caller_key, None)
        recent[in_flight.caller_key] = now + seconds  # reinserted, so that the order is by expiry
        _drop_expired(recent, now)

    def abandon(self) -> None:
        """Cancel all requests because the connection is lost."""
        for in_flight in (*self._open.values(), *self._internal.values()):
            in_flight.abandon()

    def find(self, request: RequestId) -> InFlightRequest | None:
        return self._open.get(coerce_request_id(request))

    def _list_possible_callers(self, *, answered: bool) -> set[str | None]:
        """Return the callers that a message without request id may concern. `answered` includes recently
        answered requests.
        """
        now = self._now()
        _drop_expired(self._given_up, now)
        _drop_expired(self._answered, now)
        callers = {in_flight.caller_key for in_flight in self._open.values()} | self._given_up.keys()
        return callers | self._answered.keys() if answered else callers

    def _list_caller_requests(self, caller: str | None) -> list[InFlightRequest]:
        """Return this caller's requests, latest first."""
        return [in_flight for in_flight in reversed(self._open.values()) if in_flight.caller_key == caller]

    def dispatch_notification(
        self, method: str, params: Mapping[str, Any] | None, spawn: SpawnTask, *, request: RequestId | None
    ) -> None:
        """Deliver a notification to the caller it concerns, without waiting.

        A log message that may concern several callers is dropped, so that no caller sees another caller's
        data.
        """
        in_flight = self._find_concerned(method, params or {}, request)
        if in_flight is not None:
            in_flight.queue_notification(method, params or {}, spawn)
        elif method == LOG_METHOD:
            self._dispatch_log(params or {}, spawn)
        else:
            self.broadcast(method, params or {})

    def _dispatch_log(self, params: JsonObject, spawn: SpawnTask) -> None:
        """Deliver a log message that names no request in flight."""
        callers = self._list_possible_callers(answered=True)
        if not callers:
            self.broadcast(LOG_METHOD, params)
            return
        if len(callers) > 1:
            logger.debug("%s: a log message may be about %d callers", self._server, len(callers))
            return
        [caller] = callers
        if in_flight := self._list_caller_requests(caller):
            in_flight[0].queue_notification(LOG_METHOD, params, spawn)
        elif caller is not None:
            self._on_notification(LOG_METHOD, params, caller)

    async def handle_notification(self, method: str, params: JsonObject, in_flight: InFlightRequest) -> None:
        """Deliver a notification from the request's own stream, and wait until its caller received it."""
        if method in BROADCAST_METHODS:
            self.broadcast(method, params)
        else:
            await in_flight.forward_notification(method, params)

    def broadcast(self, method: str, params: JsonObject) -> None:
        if method not in (PROGRESS_METHOD, "notifications/cancelled"):
            self._on_notification(method, params, None)

    def _find_concerned(
        self, method: str, params: Mapping[str, Any], request: RequestId | None
    ) -> InFlightRequest | None:
        if method == PROGRESS_METHOD:
            token = as_request_id(params.get("progressToken"))
            return None if token is None else self.find(token)
        return self.find(request) if request is not None and method not in BROADCAST_METHODS else None

    async def answer_server_request(
        self, method: str, params: Mapping[str, Any] | None, *, request: RequestId | None
    ) -> dict[str, Any]:
        """Answer a request of the server. Raises `MCPError`."""
        if method == "ping":
            if request is not None and (in_flight := self.find(request)) is not None:
                in_flight.admit(method, {})
            return {}
        candidates = self._find_asked_requests(method, request)
        with ExitStack() as stopped:
            for other in candidates[1:]:  # the question may concern any of them
                stopped.enter_context(other.clock.paused())
            return cast("dict[str, Any]", await candidates[0].answer_server(method, params or {}))

    def _find_asked_requests(self, method: str, request: RequestId | None) -> list[InFlightRequest]:
        """Return the requests this question may concern, all of one caller, latest first."""
        without_caller = [InFlightRequest(self._server, 0)]
        if request is not None:
            in_flight = self.find(request)
            return without_caller if in_flight is None else [in_flight]
        # A server with an open question has not answered yet.
        callers = self._list_possible_callers(answered=False)
        if method not in QUESTION_CAPABILITIES or not callers:
            return without_caller
        if len(callers) > 1:
            # A warning only once, so that a server cannot fill the log.
            level = logging.DEBUG if self._warned_ambiguous else logging.WARNING
            self._warned_ambiguous = True
            logger.log(level, AMBIGUOUS_MESSAGE, self._server, method, len(callers))
            message = (
                f"{method} cannot be answered: it names no request, and those of {len(callers)} callers run "
                "or were given up lately"
            )
            raise MCPError(METHOD_NOT_FOUND, message)
        [caller] = callers
        return self._list_caller_requests(caller) or without_caller


class OpenServerRequests:
    """Unanswered requests of the server on one connection.

    Requests beyond a limit, or with an id that is already open, are dropped. Otherwise a server that does not
    read our responses could fill the memory.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._open: set[RequestId] = set()

    def admit(self, request: RequestId) -> bool:
        """Return whether a request is accepted. One whose id cannot be encoded could not be answered."""
        unwritable = isinstance(request, str) and has_lone_surrogate(request)
        if unwritable or request in self._open or len(self._open) >= MAX_OPEN_SERVER_REQUESTS:
            logger.debug("%s: a request was dropped, %d are open", self._server, len(self._open))
            return False
        self._open.add(request)
        return True

    def close(self, request: object) -> None:
        """Remove a request that was answered or cancelled."""
        if (known := as_request_id(request)) is not None:
            self._open.discard(known)


def _drop_expired(expiry_by_caller: dict[str | None, float], now: float) -> None:
    while expiry_by_caller and expiry_by_caller[first := next(iter(expiry_by_caller))] <= now:
        del expiry_by_caller[first]


def _parse_number(given: Json) -> float | None:
    """Return a finite number sent by a server, or None."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
