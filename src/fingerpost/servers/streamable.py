"""Streamable HTTP, both eras, with a bound on every reply and a reason for every failure.

The MCP library's transport keeps the protocol: sessions, resumption, the era
on each request. What happens to one POST is ours: there, one broken connection
ended all calls of a server, statuses lost their number, and sizes had no bound.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
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
from fingerpost.servers.failures import (
    build_sign_in_required,
    build_too_large,
    clean_text,
    from_exception,
    from_http,
    mark_continuation,
    to_reply,
)
from fingerpost.servers.lifeline import ConnectionState
from fingerpost.servers.replies import (
    EMPTY_STATUSES,
    EVENT_STREAM_TYPE,
    JSON_TYPE,
    ReplyErrors,
    is_session_lost,
    parse_content_type,
)
from fingerpost.servers.sse import SseEventTooLarge, read_events
from fingerpost.servers.talk import OpenServerRequests, RequestRegistry
from fingerpost.servers.wire import InvalidMessage, parse_message
from fingerpost.settings.model import LimitSettings

logger = logging.getLogger("fingerpost.servers")

NOTICE_SECONDS = (
    5.0  # a notification needs no answer; a server that does not take it must not hold up the rest
)
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
    """The streams a session speaks through. `client` stays the caller's to close."""
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
    """How far the standing stream was read."""

    last_id: str | None = None
    retry_ms: int = DEFAULT_RECONNECTION_DELAY_MS


class StreamableTransport(StreamableHTTPTransport):
    """The library's transport, with our own handling of every POST."""

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
        self._lifeline = state
        self._replies = ReplyErrors(spec.name, state)
        self._talks = registry
        self._owed = OpenServerRequests(spec.name)
        self.tasks = tasks
        self.initialized = anyio.Event()  # the handshake is over, and the server was told so

    async def handle_get_stream(self, client: httpx2.AsyncClient, read_stream_writer: MessageWriter) -> None:
        """Hold the standing stream. The library's own way comes back without a pause for `retry: 0`."""
        place = _StreamCursor()
        failures = 0
        while failures < MAX_RECONNECTION_ATTEMPTS and self.session_id is not None:
            try:
                if not await self._read_get_stream(client, read_stream_writer, place):
                    break
                failures = 0
            except Exception:  # whatever is wrong with the stream, calls go on without it
                logger.debug("%s: the standing stream broke", self._server, exc_info=True)
                failures += 1
            await anyio.sleep(max(place.retry_ms, MIN_RETRY_MS) / 1000)
        self._lifeline.request_probe()  # either the server has no such stream, or it went away

    async def _read_get_stream(
        self, client: httpx2.AsyncClient, writer: MessageWriter, cursor: _StreamCursor
    ) -> bool:
        """Read it once to its end. False: the server has none. Raises whatever goes wrong with it."""
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
            # The caller is gone. The notification tells the server; nobody reads its answer any more.
            request = cancelled_request_id_from_params(message.params)
            post = self._in_flight_posts.get(request) if request is not None else None
            if message.method == "notifications/cancelled" and post is not None:
                post.scope.cancel()
        return swallowed

    async def _handle_post_request(self, ctx: RequestContext) -> None:
        message = ctx.session_message.message
        if not isinstance(message, JSONRPCRequest):
            if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                # Nothing that follows depends on it, so nothing that follows waits for it.
                self.tasks.start_soon(self._post_notification, ctx, message)
            else:
                await self._post_notification(ctx, message)
            return
        try:
            async with self._post(ctx, message) as response:
                await self._read_response(ctx, message, response)
        except httpx2.HTTPError as error:
            self._lifeline.request_probe()
            lost = mark_continuation(from_http(self._server, error), message.params)
            await self._fail(ctx, message.id, lost)
        except OAuthFlowError as error:
            await self._fail(ctx, message.id, build_sign_in_required(self._server, clean_text(str(error))))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise  # the session is gone
        except Exception as error:
            # Left to the library, it would end the connection of everybody.
            logger.exception("a request to %s failed in an unexpected way", self._server)
            await self._fail(ctx, message.id, from_exception(self._server, error))

    async def _post_notification(self, ctx: RequestContext, message: JSONRPCMessage) -> None:
        try:
            with anyio.move_on_after(NOTICE_SECONDS), contextlib.suppress(httpx2.HTTPError, OAuthFlowError):
                async with self._post(ctx, message):
                    pass
        except Exception:
            logger.exception("%s could not be told something", self._server)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._owed.close(message.id)
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
        """Hand a message on. True when it was the reply to `request`, good or bad."""
        is_reply = isinstance(message, JSONRPCResponse | JSONRPCError)
        # A number that comes back as text is sloppy, not wrong.
        if is_reply and request is not None and str(message.id) != str(request) and message.id is not None:
            error = self._replies.build_wrong_id(message.id)
            message = JSONRPCError(jsonrpc="2.0", id=request, error=to_reply(error))
        elif isinstance(message, JSONRPCError) and message.id is None and request is not None:
            message = JSONRPCError(jsonrpc="2.0", id=request, error=message.error)
        if isinstance(message, JSONRPCNotification) and request is not None and self._talks.find(request):
            # Only here is it known which request it belongs to.
            self._talks.dispatch_notification(
                message.method, message.params, self.tasks.start_soon, request=request
            )
            return False
        if isinstance(message, JSONRPCRequest) and not self._owed.admit(message.id):
            return False
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._owed.close((message.params or {}).get("requestId"))
        await writer.send(SessionMessage(message, ServerMessageMetadata(related_request_id=request)))
        return is_reply

    async def _handle_sse_response(self, response: httpx2.Response, ctx: RequestContext) -> None:
        request = ctx.session_message.message
        assert isinstance(request, JSONRPCRequest)
        last_id: str | None = None
        retry_ms: int | None = None
        # A subscription's stream is meant to stay open: only its single events are bounded.
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
            self._lifeline.request_probe()
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
        """The library asks for the rest as soon as the server says: for `retry: 0`, without a pause."""
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
        """Called by the library for the streams it reads itself: the standing one, and resumed ones."""
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
        """The whole body, or None when it is larger than allowed: then the rest is never read."""
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
