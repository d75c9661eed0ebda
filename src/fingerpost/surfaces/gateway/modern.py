"""Protocol 2026-07-28: every POST is one independent request; `subscriptions/listen` is a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import anyio
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PARAM_HEADER_PREFIX,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fingerpost.records import Json, JsonObject, Principal
from fingerpost.surfaces.gateway.protocol import (
    QUOTA_CODE,
    ClientExchange,
    ClientRequest,
    JsonRpcError,
    JsonRpcMessage,
    encode_error,
    encode_result,
    format_client_name,
)
from fingerpost.surfaces.gateway.responses import (
    DisconnectWatcher,
    JsonRpcResponse,
    PostResponse,
    answer_discover,
    answer_request,
    build_error_response,
)
from fingerpost.surfaces.gateway.sessions import McpSessions, Notification, build_cannot_ask_error
from fingerpost.surfaces.gateway.state import GatewayState, McpHttpError, McpHttpRequest, parse_accept
from fingerpost.surfaces.http.access import Endpoint, get_caller_authorization
from fingerpost.surfaces.http.asgi import respond

MAX_STREAMS: Final = 1000
MAX_QUEUED: Final = 256  # queued notifications; above this the stream ends and the client lists again
MAX_RESOURCES: Final = 10_000
CHECK_INTERVAL_S: Final = 10.0
SUBSCRIPTION_KEY: Final = "io.modelcontextprotocol/subscriptionId"
_NOTIFICATION_KINDS: Final = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class _NoExchange:
    """Exchange for the time before the subscription stream is open."""

    async def notify(self, method: str, params: JsonObject) -> None:
        del method, params

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        del params
        raise build_cannot_ask_error(method)


class SubscriptionStream:
    """One stream: its filter and its queued notifications."""

    def __init__(self, request: ClientRequest, accepted: JsonObject) -> None:
        self.request = request
        self.honoured = accepted
        uris = accepted.get("resourceSubscriptions")
        self._uris = frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else ()
        self._waiting: dict[bytes, Notification] = {}  # by content, so that duplicates are sent once
        self._woken = anyio.Event()
        self._ended = False

    @classmethod
    async def open_stream(cls, state: GatewayState, request: ClientRequest) -> SubscriptionStream:
        """Open a stream with the accepted filter, for `run_stream`. Raises `JsonRpcError`."""
        wanted = request.params.get("notifications")
        uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
        if not isinstance(wanted, dict) or not _are_valid_uris(uris):
            raise JsonRpcError(INVALID_PARAMS, "Say in `notifications` what to listen to.")
        if state.open_streams >= MAX_STREAMS or state.closing.is_set():
            raise JsonRpcError(INTERNAL_ERROR, f"{MAX_STREAMS} subscriptions are open already.")
        request = replace(request, session=f"listen-{McpSessions.create_id()}")
        try:
            result = await state.methods.answer(request, _NoExchange())
        except JsonRpcError as refusal:
            if refusal.code != METHOD_NOT_FOUND:
                raise
            result: Any = {}
        agreed = cast("JsonObject", result).get("notifications") if isinstance(result, dict) else None
        return cls(request, agreed if isinstance(agreed, dict) else _select_known_kinds(wanted))

    def receive(self, notification: Notification) -> None:
        if not self._wants_notification(notification):
            return None
        if len(self._waiting) >= MAX_QUEUED:
            return self.end()
        self._waiting[notification.message] = notification
        self._woken.set()
        return None

    def end(self) -> None:
        """End the stream with its result after the queued notifications were sent."""
        self._ended = True
        self._woken.set()

    async def take_notifications(self) -> list[Notification] | None:
        """Wait for notifications and return them, or None at the end."""
        while not self._waiting:
            if self._ended:
                return None
            self._woken = anyio.Event()
            await self._woken.wait()
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting

    def add_subscription_id(self, params: JsonObject) -> JsonObject:
        meta = params.get("_meta")
        own: dict[str, Json] = meta if isinstance(meta, dict) else {}
        return {**params, "_meta": {**own, SUBSCRIPTION_KEY: self.request.id}}

    def build_result_message(self) -> bytes:
        return encode_result(self.request.id, self.add_subscription_id({"resultType": "complete"}))

    def _wants_notification(self, notification: Notification) -> bool:
        if kind := _NOTIFICATION_KINDS.get(notification.method):
            return self.honoured.get(kind) is True
        return (
            notification.method == "notifications/resources/updated"
            and notification.params.get("uri") in self._uris
        )


async def _may_always_continue() -> bool:
    return True


async def run_stream(
    state: GatewayState,
    stream: SubscriptionStream,
    exchange: ClientExchange,
    may_continue: Callable[[], Awaitable[bool]] = _may_always_continue,
) -> None:
    """Send the accepted filter, then notifications, until the stream ends, is no longer permitted, or the
    client disconnects.

    `may_continue` is called before notifications are sent, and regularly without any.
    """
    remove_listener = state.audience.add(stream)
    state.open_streams += 1
    remove_close_callback = state.call_at_close(stream.end)
    try:
        await exchange.notify(
            "notifications/subscriptions/acknowledged",
            stream.add_subscription_id({"notifications": stream.honoured}),
        )
        waiting: list[Notification] | None = []
        while waiting is not None and await may_continue():
            for notification in waiting:
                await exchange.notify(notification.method, stream.add_subscription_id(notification.params))
            waiting = []
            with anyio.move_on_after(CHECK_INTERVAL_S):
                waiting = await stream.take_notifications()
    finally:
        state.open_streams -= 1
        remove_listener()
        remove_close_callback()
        state.forget_session(stream.request.session or "")


def _are_valid_uris(uris: object) -> bool:
    if uris is None:
        return True
    if not isinstance(uris, list) or len(cast("list[object]", uris)) > MAX_RESOURCES:
        return False
    return all(isinstance(uri, str) for uri in cast("list[object]", uris))


def _select_known_kinds(wanted: JsonObject) -> JsonObject:
    """Return the filter without unknown and unwanted kinds."""
    honoured: JsonObject = {}
    for kind in _NOTIFICATION_KINDS.values():
        if wanted.get(kind) is True:
            honoured[kind] = True
    if wanted.get("resourceSubscriptions"):
        honoured["resourceSubscriptions"] = wanted["resourceSubscriptions"]
    return honoured


# Methods of the older era only.
REMOVED_METHODS: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_SUPPORTED_VERSIONS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
_ROUTING_HEADERS: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_PARAM_PREFIX: Final = MCP_PARAM_HEADER_PREFIX.lower()


async def handle_modern_post(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, message: JsonRpcMessage
) -> None:
    """Answer one POST."""
    if message.kind == "notification":
        return await _accept_notification(http_request)
    if message.kind == "response" or message.id is None:
        raise McpHttpError(400, "This client was not asked anything: send requests.", code=INVALID_REQUEST)
    takes = get_accepted_types(http_request)
    try:
        request = build_modern_request(state, http_request.endpoint, principal, message, http_request)
        if request.method == "subscriptions/listen":
            return await _listen_for_notifications(state, http_request, request, takes)
    except JsonRpcError as refusal:
        return await _send_error(http_request, message.id, refusal)
    answer = answer_discover if request.method == "server/discover" else answer_request
    reply = PostResponse(http_request, accepts=takes, headers=http_request.common)
    result: JsonRpcResponse | None = None
    with state.create_active_request() as running, DisconnectWatcher(state, http_request, reply, running):
        result = await answer(state.methods, request, reply)
    if result is None:  # cancelled from outside
        result = JsonRpcResponse(encode_error(request.id, INTERNAL_ERROR, running.reason), INTERNAL_ERROR)
    await reply.finish(_get_status(result), result.body, result.headers)
    return None


def get_accepted_types(http_request: McpHttpRequest) -> tuple[bool, bool]:
    """Return whether the client accepts JSON and event streams. Raises `McpHttpError` if neither."""
    takes = parse_accept(http_request.headers)
    if not any(takes):
        raise McpHttpError(406, "Accept application/json, text/event-stream, or both.")
    return takes


async def reject_method(http_request: McpHttpRequest) -> None:
    """Reject a method other than POST: answer an unknown protocol version, else raise `McpHttpError`."""
    requested = http_request.headers.get("mcp-protocol-version", "")
    if rejection := unsupported_protocol_version_rejection(requested, _SUPPORTED_VERSIONS):
        return await _send_error(http_request, None, _to_error(rejection))
    raise McpHttpError(
        405, "This version of the protocol supports only POST.", headers=((b"allow", b"POST"),)
    )


async def _accept_notification(http_request: McpHttpRequest) -> None:
    """Accept and ignore a notification. In this era none affects a later request."""
    requested = http_request.headers.get("mcp-protocol-version", "")
    if rejection := unsupported_protocol_version_rejection(requested):
        return await _send_error(http_request, None, _to_error(rejection))
    await respond(http_request.send, 202, b"", http_request.common)
    return None


def build_modern_request(
    state: GatewayState,
    endpoint: Endpoint,
    principal: Principal,
    message: JsonRpcMessage,
    inbound: McpHttpRequest | None,
) -> ClientRequest:
    """Return the checked request; without `inbound` no headers are compared. Raises `JsonRpcError`."""
    assert message.id is not None
    headers = None if inbound is None else inbound.headers
    if inbound is not None and (twice := sorted(inbound.repeated & _ROUTING_HEADERS)):
        raise JsonRpcError(HEADER_MISMATCH, f"The header {twice[0]} was sent more than once.")
    verdict = classify_inbound_request(message.raw, headers=headers)
    if isinstance(verdict, InboundLadderRejection):
        raise _to_error(_find_version_rejection(message, headers) or verdict)
    if message.method in REMOVED_METHODS:
        raise build_unknown_method_error(message.method)
    capabilities: Any = verdict.client_capabilities
    if not isinstance(capabilities, dict):
        raise JsonRpcError(INVALID_PARAMS, "The client's capabilities are an object.")
    request = ClientRequest(
        id=message.id,
        method=message.method,
        params=message.params,
        version=verdict.protocol_version,
        endpoint=endpoint,
        principal=principal,
        capabilities=cast("JsonObject", capabilities),
        client=format_client_name(verdict.client_info),
        authorization=None if headers is None else get_caller_authorization(headers, principal),
        headers=headers or {},
    )
    if (rejection := _find_header_rejection(state, request, inbound)) is not None:
        raise _to_error(rejection)
    return request


def _find_version_rejection(
    message: JsonRpcMessage, headers: Mapping[str, str] | None
) -> InboundLadderRejection | None:
    """Return the rejection of a request with an unknown version and no envelope (of neither era), or None."""
    version = None if headers is None else headers.get("mcp-protocol-version")
    meta = message.params.get("_meta")
    if version is None or (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta):
        return None
    return unsupported_protocol_version_rejection(version, _SUPPORTED_VERSIONS)


def build_unknown_method_error(method: str) -> JsonRpcError:
    return JsonRpcError(METHOD_NOT_FOUND, f"There is no method {method!r} in this version of the protocol.")


def _find_header_rejection(
    state: GatewayState, request: ClientRequest, inbound: McpHttpRequest | None
) -> InboundLadderRejection | None:
    """Return a rejection if headers contradict the arguments they repeat: a proxy may have routed by them."""
    if inbound is None or request.method != "tools/call":
        return None
    name, arguments = request.params.get("name"), request.params.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return None
    if inbound.repeated:
        repeated = next((key for key in inbound.repeated if key.startswith(_PARAM_PREFIX)), None)
        if repeated is not None:
            return InboundLadderRejection(HEADER_MISMATCH, f"The header {repeated} was sent more than once.")
    schema = state.methods.get_input_schema(request.endpoint, request.principal, name)
    if schema is None:
        return None
    return validate_mcp_param_headers(schema, cast("Mapping[str, Any]", arguments or {}), request.headers)


def _to_error(rejection: InboundLadderRejection) -> JsonRpcError:
    return JsonRpcError(rejection.code, rejection.message, rejection.data)


async def _send_error(
    http_request: McpHttpRequest, request_id: str | int | None, error: JsonRpcError
) -> None:
    result = build_error_response(request_id, error)
    reply = PostResponse(http_request, accepts=(True, False), headers=http_request.common)
    await reply.finish(_get_status(result), result.body, result.headers)


def _get_status(result: JsonRpcResponse) -> int:
    if result.code == QUOTA_CODE:
        return HTTPStatus.TOO_MANY_REQUESTS
    return 200 if result.code is None else ERROR_CODE_HTTP_STATUS.get(result.code, 200)


async def _listen_for_notifications(
    state: GatewayState, http_request: McpHttpRequest, request: ClientRequest, takes: tuple[bool, bool]
) -> None:
    if not takes[1]:
        raise McpHttpError(406, "A subscription is a stream: accept text/event-stream.")
    listening = await SubscriptionStream.open_stream(state, request)
    reply = PostResponse(http_request, accepts=(False, True), headers=http_request.common)
    may_continue = partial(state.is_still_admitted, http_request, request.principal)
    with state.create_active_request() as running, DisconnectWatcher(state, http_request, reply, running):
        await run_stream(state, listening, reply, may_continue)
    if not running.reason:
        await reply.finish(200, listening.build_result_message())
