"""Streamable HTTP of both protocol generations: a session's transport, and requests without the library."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import httpx2
from anyio.abc import TaskGroup
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.streamable_http import (
    DEFAULT_RECONNECTION_DELAY_MS,
    LAST_EVENT_ID,
    MAX_RECONNECTION_ATTEMPTS,
    RequestContext,
    StreamableHTTPTransport,
)
from mcp.shared._context_streams import (
    ContextReceiveStream,
    ContextSendStream,
    create_context_streams,
)
from mcp.shared._httpx_utils import redirect_location, stream_within_origin
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import cancelled_request_id_from_params
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from fingerpost.errors import FingerpostError
from fingerpost.records import ServerSpec
from fingerpost.servers.connection_state import ConnectionState
from fingerpost.servers.errors import (
    RequestNotExecuted,
    build_sign_in_required,
    build_too_large,
    clean_text,
    mark_continuation,
)
from fingerpost.servers.failures import (
    build_connection_broken,
    build_not_sent,
    from_exception,
    from_http,
    from_reply,
    to_reply,
)
from fingerpost.servers.http_client import (
    EMPTY_STATUSES,
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    ConnectFailed,
    HttpEndpoint,
    HttpResponse,
    ReplyErrors,
    is_session_lost,
    parse_content_type,
)
from fingerpost.servers.in_flight import InFlightRequest, OpenServerRequests, RequestRegistry
from fingerpost.servers.wire import InvalidMessage, encode, parse_message, read_envelope
from fingerpost.settings.model import LimitSettings
from fingerpost.sse import SseEvent, SseEventTooLarge, SseStream, read_events

logger = logging.getLogger("fingerpost.servers")

NOTICE_SECONDS = 5.0  # a notification has no response; a slow server must not block what follows
CLOSE_SECONDS = 1.0
MIN_RETRY_MS = 500

MessageWriter = ContextSendStream[SessionMessage | Exception]
HttpStreams = tuple[ContextReceiveStream[SessionMessage | Exception], ContextSendStream[SessionMessage]]


@asynccontextmanager
async def open_http_transport(
    spec: ServerSpec,
    client: httpx2.AsyncClient,
    limits: LimitSettings,
    state: ConnectionState,
    *,
    registry: RequestRegistry,
    on_open: Callable[[StreamableTransport], None],
) -> AsyncGenerator[HttpStreams]:
    """Open the streams of a session. `client` is not closed."""
    to_session, incoming = create_context_streams[SessionMessage | Exception](0)
    outgoing, from_session = create_context_streams[SessionMessage](0)
    async with to_session, incoming, outgoing, from_session, anyio.create_task_group() as tasks:
        transport = StreamableTransport(spec, limits, state, registry=registry, tasks=tasks)
        on_open(transport)

        def start_get_stream() -> None:
            tasks.start_soon(transport.handle_get_stream, client, to_session)

        tasks.start_soon(
            transport.post_writer, client, from_session, to_session, outgoing, start_get_stream, tasks
        )
        try:
            yield incoming, outgoing
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                if transport.session_id is not None and state.failure is None:
                    await transport.terminate_session(client)
            tasks.cancel_scope.cancel()


@dataclass(slots=True)
class _StreamCursor:
    """Position in the GET stream."""

    last_id: str | None = None
    retry_ms: int = DEFAULT_RECONNECTION_DELAY_MS


class StreamableTransport(StreamableHTTPTransport):
    """The library's transport with our own handling of POST requests."""

    def __init__(
        self,
        spec: ServerSpec,
        limits: LimitSettings,
        state: ConnectionState,
        *,
        registry: RequestRegistry,
        tasks: TaskGroup,
    ) -> None:
        assert spec.url is not None
        super().__init__(spec.url, max_sse_event_size=limits.response_bytes)
        self._server = spec.name
        self._limit = limits.response_bytes
        self._state = state
        self._replies = ReplyErrors(spec.name, state)
        self._registry = registry
        self._open_requests = OpenServerRequests(spec.name)
        self.tasks = tasks
        self.initialized = anyio.Event()  # set when `notifications/initialized` was sent

    async def handle_get_stream(self, client: httpx2.AsyncClient, read_stream_writer: MessageWriter) -> None:
        """Keep the GET stream open. The library would reconnect without a delay for `retry: 0`."""
        cursor = _StreamCursor()
        failures = 0
        while failures < MAX_RECONNECTION_ATTEMPTS and self.session_id is not None:
            try:
                if not await self._read_get_stream(client, read_stream_writer, cursor):
                    break
                failures = 0
            except Exception:  # calls work without this stream
                logger.debug("%s: the standing stream broke", self._server, exc_info=True)
                failures += 1
            await anyio.sleep(max(cursor.retry_ms, MIN_RETRY_MS) / 1000)
        self._state.request_probe()  # either the server has no such stream, or it is gone

    async def _read_get_stream(
        self, client: httpx2.AsyncClient, writer: MessageWriter, cursor: _StreamCursor
    ) -> bool:
        """Read the GET stream to its end. Return False if there is none. Raises any error of it."""
        headers = self._prepare_headers() | {"accept": EVENT_STREAM_TYPE}
        if cursor.last_id is not None:
            headers[LAST_EVENT_ID] = cursor.last_id
        async with stream_within_origin(client, "GET", self.url, headers=headers) as response:
            if (
                response.status_code != 200
                or parse_content_type(response.headers.get("content-type", "")) != EVENT_STREAM_TYPE
            ):
                return False
            events = read_events(response.aiter_bytes(), event_limit=self._limit, whole_limit=None)
            async for event in events:
                cursor.last_id = event.event_id or cursor.last_id
                cursor.retry_ms = cursor.retry_ms if event.retry_ms is None else event.retry_ms
                await self._forward_event(event.kind, event.data, writer, None)
        return True

    def _consume_modern_cancellation(self, session_message: SessionMessage) -> bool:
        swallowed = super()._consume_modern_cancellation(session_message)
        message = session_message.message
        if not swallowed and isinstance(message, JSONRPCNotification):
            # The caller cancelled. The notification informs the server, and the response is no longer needed.
            request = cancelled_request_id_from_params(message.params)
            post = self._in_flight_posts.get(request) if request is not None else None
            if message.method == "notifications/cancelled" and post is not None:
                post.scope.cancel()
        return swallowed

    async def _handle_post_request(self, ctx: RequestContext) -> None:
        message = ctx.session_message.message
        if not isinstance(message, JSONRPCRequest):
            if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                # Sent in the background, because no later message depends on it.
                self.tasks.start_soon(self._post_notification, ctx, message)
            else:
                await self._post_notification(ctx, message)
            return
        try:
            async with self._post(ctx, message) as response:
                await self._read_response(ctx, message, response)
        except httpx2.HTTPError as error:
            self._state.request_probe()
            lost = mark_continuation(from_http(self._server, error), message.params)
            await self._fail(ctx, message.id, lost)
        except OAuthFlowError as error:
            await self._fail(ctx, message.id, build_sign_in_required(self._server, clean_text(str(error))))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise  # the session is closed
        except Exception as error:
            # If the library handled it, the connection of all callers would end.
            logger.exception("a request to %s failed in an unexpected way", self._server)
            await self._fail(ctx, message.id, from_exception(self._server, error))

    async def _post_notification(self, ctx: RequestContext, message: JSONRPCMessage) -> None:
        try:
            with anyio.move_on_after(NOTICE_SECONDS), contextlib.suppress(httpx2.HTTPError, OAuthFlowError):
                async with self._post(ctx, message):
                    pass
        except Exception:
            logger.exception("%s could not be sent a message", self._server)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._open_requests.close(message.id)
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/initialized":
            self.initialized.set()

    def _post(
        self, ctx: RequestContext, message: JSONRPCMessage
    ) -> contextlib.AbstractAsyncContextManager[httpx2.Response]:
        headers = self._prepare_headers()
        if ctx.metadata is not None and ctx.metadata.headers is not None:
            headers.update(ctx.metadata.headers)
        body = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
        return stream_within_origin(ctx.client, "POST", self.url, json=body, headers=headers)

    async def _read_response(
        self, ctx: RequestContext, request: JSONRPCRequest, response: httpx2.Response
    ) -> None:
        if response.status_code >= 300 or response.status_code in EMPTY_STATUSES:
            await self._read_refusal(ctx, request, response)
            return
        if self._is_initialization_request(request):
            self._maybe_extract_session_id_from_response(response)
        kind = parse_content_type(response.headers.get("content-type", ""))
        if kind == JSON_TYPE:
            await self._read_json_response(ctx, request, response)
        elif kind == EVENT_STREAM_TYPE:
            await self._handle_sse_response(response, ctx)
        else:
            await self._fail(ctx, request.id, self._replies.build_not_mcp(kind))

    async def _read_json_response(
        self, ctx: RequestContext, request: JSONRPCRequest, response: httpx2.Response
    ) -> None:
        body = await self._read_body(response)
        if body is None:
            await self._fail(ctx, request.id, build_too_large(self._server, self._limit))
            return
        try:
            message = parse_message(body)
        except InvalidMessage as why:
            await self._fail(ctx, request.id, self._replies.build_unreadable(str(why)))
            return
        await self._forward(ctx.read_stream_writer, message, request.id)

    async def _forward(
        self, writer: MessageWriter, message: JSONRPCMessage, request: RequestId | None
    ) -> bool:
        """Forward a message to the session. Return whether it was the reply or error for `request`."""
        is_reply = isinstance(message, JSONRPCResponse | JSONRPCError)
        # An id returned as text instead of a number is accepted.
        if is_reply and request is not None and str(message.id) != str(request) and message.id is not None:
            error = self._replies.build_wrong_id(message.id)
            message = JSONRPCError(jsonrpc="2.0", id=request, error=to_reply(error))
        elif isinstance(message, JSONRPCError) and message.id is None and request is not None:
            message = JSONRPCError(jsonrpc="2.0", id=request, error=message.error)
        if isinstance(message, JSONRPCNotification) and request is not None and self._registry.find(request):
            # Only this stream shows which request it belongs to.
            self._registry.dispatch_notification(
                message.method, message.params, self.tasks.start_soon, request=request
            )
            return False
        if isinstance(message, JSONRPCRequest) and not self._open_requests.admit(message.id):
            return False
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._open_requests.close((message.params or {}).get("requestId"))
        await writer.send(SessionMessage(message, ServerMessageMetadata(related_request_id=request)))
        return is_reply

    async def _handle_sse_response(self, response: httpx2.Response, ctx: RequestContext) -> None:
        request = ctx.session_message.message
        assert isinstance(request, JSONRPCRequest)
        last_id: str | None = None
        retry_ms: int | None = None
        # A subscription stream stays open, so only single events are limited.
        whole = None if request.method == "subscriptions/listen" else self._limit
        events = read_events(response.aiter_bytes(), event_limit=self._limit, whole_limit=whole)
        try:
            async for event in events:
                last_id = event.event_id or last_id
                retry_ms = event.retry_ms if event.retry_ms is not None else retry_ms
                if await self._forward_event(event.kind, event.data, ctx.read_stream_writer, request.id):
                    return
        except SseEventTooLarge:
            await self._fail(ctx, request.id, build_too_large(self._server, self._limit))
            return
        except httpx2.HTTPError:
            self._state.request_probe()
        if last_id is not None:
            await self._handle_reconnection(ctx, last_id, retry_ms)
            return
        await self._fail(ctx, request.id, self._replies.build_cut_short())

    async def _handle_reconnection(
        self,
        ctx: RequestContext,
        last_event_id: str,
        retry_interval_ms: int | None = None,
        attempt: int = 0,
    ) -> None:
        """Resume with a minimum delay. The library would resume without a delay for `retry: 0`."""
        if retry_interval_ms is not None:
            retry_interval_ms = max(retry_interval_ms, MIN_RETRY_MS)
        await super()._handle_reconnection(ctx, last_event_id, retry_interval_ms, attempt)

    async def _handle_sse_event(
        self,
        sse: httpx2.ServerSentEvent,
        read_stream_writer: MessageWriter,
        original_request_id: RequestId | None = None,
        resumption_callback: Callable[[str], Awaitable[None]] | None = None,
    ) -> bool:
        """Called by the library for streams it reads itself, such as resumed ones."""
        data = sse.data.encode("utf-8", "surrogatepass")
        return await self._forward_event(sse.event, data, read_stream_writer, original_request_id)

    async def _forward_event(
        self, kind: str, data: bytes, writer: MessageWriter, request: RequestId | None
    ) -> bool:
        if kind != "message" or not data:
            return False
        try:
            message = parse_message(data)
        except InvalidMessage as why:
            if request is None:
                return False
            message = JSONRPCError(
                jsonrpc="2.0", id=request, error=to_reply(self._replies.build_unreadable(str(why)))
            )
        return await self._forward(writer, message, request)

    async def _read_refusal(
        self, ctx: RequestContext, request: JSONRPCRequest, response: httpx2.Response
    ) -> None:
        status = response.status_code
        if (location := redirect_location(response)) is not None:
            await self._fail(ctx, request.id, self._replies.build_redirected(self.url, status, str(location)))
            return
        reply = await self._read_json_error(response)
        if is_session_lost(status, reply.error.code if reply is not None else None, self.session_id):
            await self._fail(ctx, request.id, self._replies.build_session_lost())
        elif reply is not None and status not in (401, 403):
            await ctx.read_stream_writer.send(
                SessionMessage(JSONRPCError(jsonrpc="2.0", id=request.id, error=reply.error))
            )
        else:
            error = self._replies.build_refused(status, response.headers.get("retry-after"))
            await self._fail(ctx, request.id, mark_continuation(error, request.params))

    async def _read_json_error(self, response: httpx2.Response) -> JSONRPCError | None:
        if not response.headers.get("content-type", "").lower().startswith("application/json"):
            return None
        body = await self._read_body(response)
        try:
            message = parse_message(body or b"")
        except InvalidMessage:
            return None
        return message if isinstance(message, JSONRPCError) else None

    async def _read_body(self, response: httpx2.Response) -> bytes | None:
        """Return the whole body, or None if it is larger than allowed; the rest is not read."""
        pieces: list[bytes] = []
        size = 0
        async for piece in response.aiter_bytes():
            size += len(piece)
            if size > self._limit:
                return None
            pieces.append(piece)
        return b"".join(pieces)

    async def _fail(self, ctx: RequestContext, request: RequestId, error: FingerpostError) -> None:
        reply = JSONRPCError(jsonrpc="2.0", id=request, error=to_reply(error))
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await ctx.read_stream_writer.send(SessionMessage(reply))


FIRST_STREAM_PAUSE = 0.1  # minimum delay before resuming a stream; doubled each time
MAX_STREAM_PAUSE = 0.8
MAX_EMPTY_RESPONSES = 8  # consecutive responses without new events
MAX_PINGS = 8  # pings of one request answered at the same time; more are ignored
EVENTS_PER_TURN = 100  # events read before other tasks run


class DirectHttp:
    """Direct requests to one server after the handshake."""

    def __init__(
        self,
        server: str,
        endpoint: HttpEndpoint,
        transport: StreamableTransport,
        *,
        limits: LimitSettings,
        state: ConnectionState,
        registry: RequestRegistry,
        modern: bool,
    ) -> None:
        self.server = server
        self.endpoint = endpoint
        self.limit = limits.response_bytes
        self.state = state
        self.registry = registry
        self.modern = modern
        self.session = transport.session_id
        self.url = transport.url
        self.replies = ReplyErrors(server, state)
        self._tasks: TaskGroup = transport.tasks

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """Send a request and return the raw result. Raises `FingerpostError`."""
        body = encode({"jsonrpc": "2.0", "id": in_flight.request, "method": method, "params": params})
        exchange = _HttpExchange(self, in_flight, headers)
        try:
            reply = await exchange.read_reply(await self.endpoint.post(body, headers))
        except anyio.get_cancelled_exc_class():
            # The modern protocol cancels by closing the connection, which has already happened.
            if not self.modern:
                with contextlib.suppress(RuntimeError):  # the task group has ended
                    self._tasks.start_soon(exchange.cancel)
            raise
        except OSError as error:
            self.state.request_probe()
            build = build_not_sent if isinstance(error, ConnectFailed) else build_connection_broken
            raise mark_continuation(build(self.server, error), params) from error
        except RequestNotExecuted as error:
            if (known := mark_continuation(error, params)) is not error:
                raise known from error
            raise
        if "result" in reply:
            return reply["result"]
        fault = reply["error"]
        mcp = MCPError(fault["code"], fault["message"], fault.get("data"))
        raise from_reply(self.server, mcp, failure=self.state.failure)


class _HttpExchange:
    """One request in flight: its response, the position in its stream, and the server's questions."""

    def __init__(self, http: DirectHttp, in_flight: InFlightRequest, headers: Mapping[str, str]) -> None:
        self._http = http
        self._in_flight = in_flight
        self._headers = headers
        self._last_id: str | None = None  # of the last event, to resume the stream
        self._retry_ms: int | None = None
        self._new_events = 0  # events not received before
        self._events = 0  # all events
        self._pings = 0  # pings being answered

    async def read_reply(self, answer: HttpResponse) -> dict[str, Any]:
        """Return the reply, from the response or from the resumed stream."""
        try:
            found = await self._read_response(answer)
        except BaseException:
            answer.abort()
            raise
        answer.release()
        if found is not None:
            return found
        if self._last_id is None or self._http.modern:
            raise self._http.replies.build_cut_short()
        return await self._resume()

    async def _read_response(self, answer: HttpResponse) -> dict[str, Any] | None:
        """Return the reply, or None if the stream broke before it."""
        if answer.status >= 300 or answer.status in EMPTY_STATUSES:
            return await self._read_refusal(answer)
        if answer.kind == JSON_TYPE:
            message = await self._parse(await answer.read_all())
            if "method" in message:
                why = "is not a reply"
                raise self._http.replies.build_unreadable(why)
            return self._check_reply_id(message)
        if answer.kind != EVENT_STREAM_TYPE:
            raise self._http.replies.build_not_mcp(answer.kind)
        try:
            return await self._read_stream(answer)
        except OSError:
            self._http.state.request_probe()
            return None

    async def _read_refusal(self, answer: HttpResponse) -> dict[str, Any]:
        """Return the server's error message if it sent one. Otherwise raise the error for its status."""
        status, replies = answer.status, self._http.replies
        if (location := answer.leads_to) is not None:
            raise replies.build_redirected(self._http.url, status, location)
        reply: dict[str, Any] | None = None
        if answer.kind == JSON_TYPE:
            with contextlib.suppress(InvalidMessage, FingerpostError):
                reply = await read_envelope(await answer.read_all())
        if reply is not None and "error" not in reply:
            reply = None
        if is_session_lost(status, reply["error"]["code"] if reply else None, self._http.session):
            raise replies.build_session_lost()
        if reply is not None and status not in (401, 403):
            return reply
        raise replies.build_refused(status, answer.retry_after)

    async def _parse(self, data: bytes) -> dict[str, Any]:
        try:
            return await read_envelope(data)
        except InvalidMessage as why:
            raise self._http.replies.build_unreadable(str(why)) from None

    def _check_reply_id(self, message: dict[str, Any]) -> dict[str, Any]:
        found, request = message.get("id"), self._in_flight.request
        # An id returned as text instead of a number is accepted. An error may have no id.
        if found == request or str(found) == str(request) or (found is None and "error" in message):
            return message
        raise self._http.replies.build_wrong_id(found)

    async def _read_stream(self, answer: HttpResponse) -> dict[str, Any] | None:
        """Return the reply from a stream and forward all before it, or None if it ended before."""
        limit = self._http.limit
        events = SseStream(answer.read_chunk, event_limit=limit, whole_limit=limit)
        try:
            found = await self._read_until_question(events)
            return found if found is None or "method" not in found else await self._read_on(events, found)
        except SseEventTooLarge:
            raise build_too_large(self._http.server, limit) from None

    async def _read_until_question(self, events: SseStream) -> dict[str, Any] | None:
        """Return the next reply or question and forward notifications."""
        in_flight = self._in_flight
        while (event := await events.read_event()) is not None:
            self._note_event(event)
            if self._events % EVENTS_PER_TURN == 0:
                await anyio.lowlevel.checkpoint()
            if event.kind != "message" or not event.data:
                continue
            message = await self._parse(event.data)
            if "method" not in message:
                return self._check_reply_id(message)
            if "id" in message:
                return message
            params: dict[str, Any] = message.get("params") or {}
            await self._http.registry.handle_notification(message["method"], params, in_flight)
            if in_flight.failure is not None:
                raise in_flight.failure
        return None

    def _note_event(self, event: SseEvent) -> None:
        self._events += 1
        if event.event_id != self._last_id if event.event_id else event.data:
            self._new_events += 1
        self._last_id = event.event_id or self._last_id
        self._retry_ms = event.retry_ms if event.retry_ms is not None else self._retry_ms

    async def _read_on(self, events: SseStream, found: dict[str, Any] | None) -> dict[str, Any] | None:
        """Read on while questions are answered, because the server may send more or cancel a question."""
        error: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                while found is not None and "method" in found:
                    self._handle_question(found, tasks)
                    found = await self._read_until_question(events)
            except Exception as raised:  # noqa: BLE001 - out of the group as itself, not as a group
                error = raised
            tasks.cancel_scope.cancel()
        if error is not None:
            raise error
        return found

    def _handle_question(self, question: dict[str, Any], tasks: TaskGroup) -> None:
        """Answer a question in the background. Raises `LimitReached` if there are too many."""
        in_flight = self._in_flight
        if question["method"] == "ping":
            if in_flight.admit("ping", {}) is not None and self._pings < MAX_PINGS:
                self._pings += 1
                tasks.start_soon(self._answer_ping, question)
        else:
            refusal = in_flight.count_question(question.get("params") or {})
            tasks.start_soon(self._answer, question, refusal)
        if in_flight.failure is not None:
            raise in_flight.failure

    async def _resume(self) -> dict[str, Any]:
        """Resume a broken stream, as legacy servers support it."""
        failures = empty = 0
        while failures < MAX_RECONNECTION_ATTEMPTS and empty < MAX_EMPTY_RESPONSES:
            wanted = DEFAULT_RECONNECTION_DELAY_MS if self._retry_ms is None else self._retry_ms
            await anyio.sleep(max(wanted / 1000, min(MAX_STREAM_PAUSE, FIRST_STREAM_PAUSE * 2**empty)))
            new_events_before = self._new_events
            try:
                found = await self._read_resumed()
            except OSError:
                failures += 1
            else:
                if found is not None:
                    return found
                empty += 1
            if self._new_events > new_events_before:
                failures = empty = 0
        raise self._http.replies.build_cut_short()

    async def _read_resumed(self) -> dict[str, Any] | None:
        """Like `_read_stream`, after the last received event. Raises `OSError`."""
        answer = await self._http.endpoint.resume_stream(self._last_id or "", self._headers)
        try:
            if answer.status != 200 or answer.kind != EVENT_STREAM_TYPE:
                message = "there is no stream"
                raise ConnectionError(message)
            return await self._read_stream(answer)
        finally:
            answer.abort()

    async def _answer(self, question: dict[str, Any], refusal: MCPError | None) -> None:
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": question["id"]}
        try:
            if refusal is not None:
                raise refusal
            params: dict[str, Any] = question.get("params") or {}
            reply["result"] = await self._in_flight.ask_caller(question["method"], params)
        except MCPError as error:
            reply["error"] = error.error.model_dump(mode="json", exclude_none=True)
        await self._notify(reply)

    async def _answer_ping(self, ping: dict[str, Any]) -> None:
        try:
            await self._notify({"jsonrpc": "2.0", "id": ping["id"], "result": {}})
        finally:
            self._pings -= 1

    async def cancel(self) -> None:
        """Tell the server that the caller stopped waiting."""
        params = {"requestId": self._in_flight.request, "reason": "the caller stopped waiting"}
        await self._notify({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def _notify(self, message: Mapping[str, Any]) -> None:
        """Send a message without a reply. It runs in the background, so all errors are handled here."""
        try:
            with anyio.move_on_after(NOTICE_SECONDS):
                answer = await self._http.endpoint.post(encode(message), self._headers)
                try:
                    await answer.read_all()
                except BaseException:
                    answer.abort()
                    raise
                answer.release()
        except (OSError, FingerpostError):
            pass
        except Exception:
            logger.exception("%s could not be sent a message", self._http.server)
