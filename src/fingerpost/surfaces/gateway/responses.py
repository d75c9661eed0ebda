"""Responses to requests: `initialize`, `server/discover`, and the JSON or event stream of one POST."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

import anyio
from mcp_types import SERVER_INFO_META_KEY
from mcp_types.jsonrpc import INTERNAL_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.protocol import (
    NEWEST_HANDSHAKE_VERSION,
    PING_FRAME,
    QUOTA_CODE,
    ClientExchange,
    ClientRequest,
    EncodedResult,
    JsonRpcError,
    McpMethods,
    encode_error,
    encode_event,
    encode_notification,
    encode_result,
)
from fingerpost.surfaces.gateway.sessions import ActiveRequest, ClientQuestions, build_cannot_ask_error
from fingerpost.surfaces.gateway.state import GatewayState, McpHttpRequest
from fingerpost.surfaces.http.asgi import EVENT_STREAM_HEADERS, JSON_TYPE, Header, respond

log = logging.getLogger("fingerpost.gateway")

WATCH_AFTER_S: Final = 0.2
PING_INTERVAL_S: Final = 10.0


class PostResponse:
    """The response to one POST. Implements `ClientExchange`."""

    __slots__ = (
        "_headers", "_inbound", "_lock", "_over", "_questions", "_started", "_takes_events", "_takes_json",
    )  # fmt: skip

    def __init__(
        self,
        http_request: McpHttpRequest,
        *,
        accepts: tuple[bool, bool],
        headers: tuple[Header, ...] = (),
        questions: ClientQuestions | None = None,
    ) -> None:
        self._inbound = http_request
        self._takes_json, self._takes_events = accepts
        self._headers = headers
        self._questions = questions
        self._started = False  # the event stream has started
        self._over = False  # the response is complete; no more pings
        self._lock: anyio.Lock | None = None

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification. Clients that accept no stream get only the result."""
        if self._takes_events:
            await self._send_frame(encode_event(encode_notification(method, params)))

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        if self._questions is None or not self._takes_events:
            raise build_cannot_ask_error(method)
        return await self._questions.ask_client(self._send_message, method, params)

    async def finish(self, status: int, body: bytes, headers: tuple[Header, ...] = ()) -> None:
        """Send the result as the whole body, or as the last event."""
        if self._started or not self._takes_json:
            await self._send_frame(encode_event(body), more=False)
        else:
            self._over = True
            await respond(self._inbound.send, status, body, (JSON_TYPE, *headers, *self._headers))

    async def send_ping(self) -> None:
        """Keep the connection open through proxies that close idle ones."""
        if self._takes_events:
            await self._send_frame(PING_FRAME)

    async def _send_message(self, message: bytes) -> None:
        await self._send_frame(encode_event(message))

    async def _send_frame(self, frame: bytes, *, more: bool = True) -> None:
        if self._lock is None:
            self._lock = anyio.Lock()
        async with self._lock:  # events come from several tasks, and the head must be first
            if self._over:
                return
            self._over = not more
            send = self._inbound.send
            if not self._started:
                self._started = True
                headers = [*EVENT_STREAM_HEADERS, *self._headers]
                await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": frame, "more_body": more})


class DisconnectWatcher:
    """Cancels the request of a `with` block when its client disconnects, and sends pings while it runs. Costs
    nothing before `WATCH_AFTER_S`.
    """

    __slots__ = ("_inbound", "_over", "_reply", "_running", "_state", "_timer")

    def __init__(
        self, state: GatewayState, http_request: McpHttpRequest, reply: PostResponse, active: ActiveRequest
    ) -> None:
        self._state = state
        self._inbound = http_request
        self._reply = reply
        self._running = active
        self._over = False

    def __enter__(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(WATCH_AFTER_S, self._start)

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._timer.cancel()

    def _start(self) -> None:
        self._state.task_group.start_soon(self._watch_client)

    async def _watch_client(self) -> None:
        """Wait until `receive` reports a disconnect or the end of the response."""
        try:
            while True:
                with anyio.move_on_after(PING_INTERVAL_S) as timeout_scope:
                    message = await self._inbound.receive()
                    if message["type"] == "http.disconnect":
                        if not self._over:
                            self._running.cancel("The client disconnected.")
                        return
                if timeout_scope.cancelled_caught:
                    await self._reply.send_ping()
        except Exception:
            log.exception("A client could not be watched")
            self._running.cancel("The client disconnected.")


INTERNAL_ERROR_MESSAGE: Final = "Internal error in Fingerpost; see its log. Try again, or report it."

_MODERN_MEMBERS: Final = frozenset(("resultType", "ttlMs", "cacheScope"))  # of results since 2026-07-28


@frozen(kw_only=False)
class JsonRpcResponse:
    """The encoded JSON-RPC message, and its error code if it is an error."""

    body: bytes
    code: int | None = None
    headers: tuple[Header, ...] = ()


def build_error_response(request_id: str | int | None, error: JsonRpcError) -> JsonRpcResponse:
    body = encode_error(request_id, error.code, error.message, error.data)
    if error.code != QUOTA_CODE:
        return JsonRpcResponse(body, error.code)
    return JsonRpcResponse(body, error.code, ((b"retry-after", str(error.data["retryAfter"]).encode()),))


async def answer_request(
    methods: McpMethods, request: ClientRequest, exchange: ClientExchange
) -> JsonRpcResponse:
    """Answer a request. An internal error is logged in full and reported in one sentence."""
    try:
        result = await methods.answer(request, exchange)
        if not isinstance(result, EncodedResult) and ("resultType" in result) is not request.modern:
            result = _adapt_to_era(result, modern=request.modern)
        return JsonRpcResponse(encode_result(request.id, result))
    except JsonRpcError as refusal:
        return _encode_error(request, refusal)
    except Exception:
        log.exception("%s could not be answered", request.method)
        return JsonRpcResponse(
            encode_error(request.id, INTERNAL_ERROR, INTERNAL_ERROR_MESSAGE), INTERNAL_ERROR
        )


def _adapt_to_era(result: JsonObject, *, modern: bool) -> JsonObject:
    """Adapt a server's result to the client's era. Every modern result has a type."""
    if modern:
        return {"resultType": "complete", **result}
    return {key: value for key, value in result.items() if key not in _MODERN_MEMBERS}


def _encode_error(request: ClientRequest, error: JsonRpcError) -> JsonRpcResponse:
    try:
        return build_error_response(request.id, error)
    except Exception:  # data that is not JSON
        log.exception("The data of an error of %s could not be written", request.method)
        return build_error_response(request.id, JsonRpcError(error.code, error.message))


DISCOVER_TTL_MS: Final = 60_000


def negotiate_version(requested: object) -> str:
    """Return the requested version if supported, else our newest version with a handshake."""
    return (
        requested
        if isinstance(requested, str) and requested in HANDSHAKE_PROTOCOL_VERSIONS
        else NEWEST_HANDSHAKE_VERSION
    )


async def build_initialize_result(methods: McpMethods, request: ClientRequest) -> JsonObject:
    described = await _describe_server(methods, request)
    return {"protocolVersion": request.version, **described}


async def answer_discover(
    methods: McpMethods, request: ClientRequest, exchange: ClientExchange
) -> JsonRpcResponse:
    """Answer `server/discover`."""
    return JsonRpcResponse(encode_result(request.id, await build_discover_result(methods, request)))


async def build_discover_result(methods: McpMethods, request: ClientRequest) -> JsonObject:
    described = dict(await _describe_server(methods, request))
    server_info = described.pop("serverInfo", None)
    result: JsonObject = {
        "resultType": "complete",
        "supportedVersions": cast("list[Json]", list(MODERN_PROTOCOL_VERSIONS)),
        "ttlMs": DISCOVER_TTL_MS,
        "cacheScope": "private",  # the description depends on the caller
        **described,
    }
    if server_info is not None:
        meta = result.get("_meta")
        own = meta if isinstance(meta, dict) else {}
        result["_meta"] = {**own, SERVER_INFO_META_KEY: server_info}
    return result


async def _describe_server(methods: McpMethods, request: ClientRequest) -> JsonObject:
    await methods.wait_until_ready(request.endpoint, request.principal)
    return methods.describe(request.endpoint, request.principal, request.version)
