"""2026-07-28: every POST is one request that stands alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PARAM_HEADER_PREFIX,
    InboundLadderRejection,
    classify_inbound_request,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp_types import PROTOCOL_VERSION_META_KEY
from mcp_types.jsonrpc import HEADER_MISMATCH
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from fingerpost.records import JsonObject, Principal
from fingerpost.surfaces.gateway.exchange import ClientRequest, JsonRpcError
from fingerpost.surfaces.gateway.wire.answering import JsonRpcResponse, answer_request, build_error_response
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    encode_error,
    encode_result,
)
from fingerpost.surfaces.gateway.wire.describing import build_discover_result
from fingerpost.surfaces.gateway.wire.envelope import JsonRpcMessage, format_client_name
from fingerpost.surfaces.gateway.wire.http import McpHttpError, McpHttpRequest, parse_accept
from fingerpost.surfaces.gateway.wire.listening import SubscriptionStream, run_stream
from fingerpost.surfaces.gateway.wire.premises import GatewayState
from fingerpost.surfaces.gateway.wire.reply import DisconnectWatcher, PostResponse
from fingerpost.surfaces.web.asgi import respond
from fingerpost.surfaces.web.gate import Endpoint, get_forwarded_authorization

# Of the older era alone: in this one they do not exist, whoever might know them.
REMOVED_METHODS: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_SUPPORTED_VERSIONS: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
_ROUTING_HEADERS: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_PARAM_PREFIX: Final = MCP_PARAM_HEADER_PREFIX.lower()


async def post_modern(
    state: GatewayState, http_request: McpHttpRequest, principal: Principal, message: JsonRpcMessage
) -> None:
    """Answer one POST."""
    if message.kind == "notification":
        return await _accept_notification(http_request)
    if message.kind == "response" or message.id is None:
        raise McpHttpError(400, "Nothing was asked of this client: send requests.", code=INVALID_REQUEST)
    takes = parse_accept(http_request.headers)
    if not any(takes):
        raise McpHttpError(406, "Accept application/json, text/event-stream, or both.")
    request = check_request(state, http_request.endpoint, principal, message, http_request)
    if isinstance(request, JsonRpcResponse):
        return await _finish_response(http_request, request)
    if request.method == "subscriptions/listen":
        if not takes[1]:
            raise McpHttpError(406, "A subscription is a stream: accept text/event-stream.")
        return await _listen_for_notifications(state, http_request, request)
    await _answer_post(state, http_request, request, takes)
    return None


async def reject_method(http_request: McpHttpRequest) -> None:
    """There is POST alone in this era; a version of no era is named as such."""
    requested = http_request.headers.get("mcp-protocol-version", "")
    if rejection := unsupported_protocol_version_rejection(requested, _SUPPORTED_VERSIONS):
        return await _finish_response(http_request, _build_rejection_response(None, rejection))
    raise McpHttpError(405, "This version of the protocol knows POST alone.", headers=((b"allow", b"POST"),))


async def _accept_notification(http_request: McpHttpRequest) -> None:
    """Nothing a client can notify of concerns a later request: it is taken and dropped."""
    requested = http_request.headers.get("mcp-protocol-version", "")
    if rejection := unsupported_protocol_version_rejection(requested):
        return await _finish_response(http_request, _build_rejection_response(None, rejection))
    await respond(http_request.send, 202, b"", http_request.common)
    return None


def check_request(
    state: GatewayState,
    endpoint: Endpoint,
    principal: Principal,
    message: JsonRpcMessage,
    inbound: McpHttpRequest | None,
) -> ClientRequest | JsonRpcResponse:
    """The request, its envelope checked, or why not. Without `inbound` there are no headers to compare."""
    request_id = message.id
    assert request_id is not None
    headers = None if inbound is None else inbound.headers
    if inbound is not None and (twice := sorted(inbound.repeated & _ROUTING_HEADERS)):
        return build_error_response(
            request_id, JsonRpcError(HEADER_MISMATCH, f"The header {twice[0]} came more than once.")
        )
    verdict = classify_inbound_request(message.raw, headers=headers)
    if isinstance(verdict, InboundLadderRejection):
        return _build_rejection_response(request_id, _check_version(message, headers) or verdict)
    if message.method in REMOVED_METHODS:
        return build_error_response(request_id, build_unknown_method_error(message.method))
    capabilities: Any = verdict.client_capabilities
    if not isinstance(capabilities, dict):
        return build_error_response(
            request_id, JsonRpcError(INVALID_PARAMS, "The client's capabilities are an object.")
        )
    request = ClientRequest(
        id=request_id,
        method=message.method,
        params=message.params,
        version=verdict.protocol_version,
        endpoint=endpoint,
        principal=principal,
        capabilities=cast("JsonObject", capabilities),
        client=format_client_name(verdict.client_info),
        authorization=None if headers is None else get_forwarded_authorization(headers),
        headers=headers or {},
    )
    rejection = _check_parameter_headers(state, request, inbound)
    return request if rejection is None else _build_rejection_response(request_id, rejection)


def _check_version(
    message: JsonRpcMessage, headers: Mapping[str, str] | None
) -> InboundLadderRejection | None:
    """Why a request of neither era is refused: it names a version nobody knows, and has no envelope."""
    version = None if headers is None else headers.get("mcp-protocol-version")
    meta = message.params.get("_meta")
    if version is None or (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta):
        return None
    return unsupported_protocol_version_rejection(version, _SUPPORTED_VERSIONS)


def build_unknown_method_error(method: str) -> JsonRpcError:
    return JsonRpcError(METHOD_NOT_FOUND, f"There is no method {method!r} in this version of the protocol.")


def _check_parameter_headers(
    state: GatewayState, request: ClientRequest, inbound: McpHttpRequest | None
) -> InboundLadderRejection | None:
    """Headers that repeat arguments must say the same: somebody may have routed by them."""
    if inbound is None or request.method != "tools/call":
        return None
    name, arguments = request.params.get("name"), request.params.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict | None):
        return None
    if inbound.repeated:
        repeated = next((key for key in inbound.repeated if key.startswith(_PARAM_PREFIX)), None)
        if repeated is not None:
            return InboundLadderRejection(HEADER_MISMATCH, f"The header {repeated} came more than once.")
    schema = state.methods.get_input_schema(request.endpoint, request.principal, name)
    if schema is None:
        return None
    return validate_mcp_param_headers(schema, cast("Mapping[str, Any]", arguments or {}), request.headers)


def _build_rejection_response(
    request_id: str | int | None, rejection: InboundLadderRejection
) -> JsonRpcResponse:
    return build_error_response(request_id, JsonRpcError(rejection.code, rejection.message, rejection.data))


async def _answer_post(
    state: GatewayState, http_request: McpHttpRequest, request: ClientRequest, takes: tuple[bool, bool]
) -> None:
    reply = PostResponse(http_request, accepts=takes, headers=http_request.common)
    result: JsonRpcResponse | None = None
    with state.start_request() as running:
        watch = DisconnectWatcher(state, http_request, reply, running)
        try:
            if request.method == "server/discover":
                result = JsonRpcResponse(
                    encode_result(request.id, await build_discover_result(state.methods, request))
                )
            else:
                result = await answer_request(state.methods, request, reply)
        finally:
            watch.stop()
    if result is None:  # ended from outside
        result = JsonRpcResponse(encode_error(request.id, INTERNAL_ERROR, running.reason), INTERNAL_ERROR)
    await reply.finish(_get_status(result), result.body)


async def _finish_response(http_request: McpHttpRequest, result: JsonRpcResponse) -> None:
    await PostResponse(http_request, accepts=(True, False), headers=http_request.common).finish(
        _get_status(result), result.body
    )


def _get_status(result: JsonRpcResponse) -> int:
    return 200 if result.code is None else ERROR_CODE_HTTP_STATUS.get(result.code, 200)


async def _listen_for_notifications(
    state: GatewayState, http_request: McpHttpRequest, request: ClientRequest
) -> None:
    listening = await SubscriptionStream.open_stream(state, request)
    if isinstance(listening, JsonRpcResponse):
        return await _finish_response(http_request, listening)
    reply = PostResponse(http_request, accepts=(False, True), headers=http_request.common)
    with state.start_request() as running:
        watch = DisconnectWatcher(state, http_request, reply, running)
        try:
            await run_stream(
                state, listening, reply, partial(state.is_still_admitted, http_request, request.principal)
            )
        finally:
            watch.stop()
    if not running.reason:
        await reply.finish(200, listening.build_result_message())
    return None
