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
from fingerpost.surfaces.gateway.exchange import ClientRequest, Refusal
from fingerpost.surfaces.gateway.wire.answering import Answer, answer, refused
from fingerpost.surfaces.gateway.wire.codec import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    error_message,
    result_message,
)
from fingerpost.surfaces.gateway.wire.describing import discover_result
from fingerpost.surfaces.gateway.wire.envelope import Message, name_of_client
from fingerpost.surfaces.gateway.wire.http import HttpFault, Inbound, accepted
from fingerpost.surfaces.gateway.wire.listening import Listening, listen
from fingerpost.surfaces.gateway.wire.premises import Premises
from fingerpost.surfaces.gateway.wire.reply import Reply, Watch
from fingerpost.surfaces.web.asgi import respond
from fingerpost.surfaces.web.gate import Endpoint, for_others

# Of the older era alone: in this one they do not exist, whoever might know them.
GONE: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_SPOKEN: Final = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
_ROUTING: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_PARAM_PREFIX: Final = MCP_PARAM_HEADER_PREFIX.lower()


async def post(premises: Premises, inbound: Inbound, principal: Principal, message: Message) -> None:
    """Answer one POST."""
    if message.kind == "notification":
        return await _acknowledge(inbound)
    if message.kind == "response" or message.id is None:
        raise HttpFault(400, "Nothing was asked of this client: send requests.", code=INVALID_REQUEST)
    takes = accepted(inbound.headers)
    if not any(takes):
        raise HttpFault(406, "Accept application/json, text/event-stream, or both.")
    request = checked(premises, inbound.endpoint, principal, message, inbound)
    if isinstance(request, Answer):
        return await _finish(inbound, request)
    if request.method == "subscriptions/listen":
        if not takes[1]:
            raise HttpFault(406, "A subscription is a stream: accept text/event-stream.")
        return await _listen(premises, inbound, request)
    await _answer(premises, inbound, request, takes)
    return None


async def not_posted(inbound: Inbound) -> None:
    """There is POST alone in this era; a version of no era is named as such."""
    requested = inbound.headers.get("mcp-protocol-version", "")
    if rejection := unsupported_protocol_version_rejection(requested, _SPOKEN):
        return await _finish(inbound, _rejected(None, rejection))
    raise HttpFault(405, "This version of the protocol knows POST alone.", headers=((b"allow", b"POST"),))


async def _acknowledge(inbound: Inbound) -> None:
    """Nothing a client can notify of concerns a later request: it is taken and dropped."""
    requested = inbound.headers.get("mcp-protocol-version", "")
    if rejection := unsupported_protocol_version_rejection(requested):
        return await _finish(inbound, _rejected(None, rejection))
    await respond(inbound.send, 202, b"", inbound.common)
    return None


def checked(
    premises: Premises, endpoint: Endpoint, principal: Principal, message: Message, inbound: Inbound | None
) -> ClientRequest | Answer:
    """The request, its envelope checked, or why not. Without `inbound` there are no headers to compare."""
    request_id = message.id
    assert request_id is not None
    headers = None if inbound is None else inbound.headers
    if inbound is not None and (twice := sorted(inbound.repeated & _ROUTING)):
        return refused(request_id, Refusal(HEADER_MISMATCH, f"The header {twice[0]} came more than once."))
    verdict = classify_inbound_request(message.raw, headers=headers)
    if isinstance(verdict, InboundLadderRejection):
        return _rejected(request_id, _unknown_version(message, headers) or verdict)
    if message.method in GONE:
        return refused(request_id, no_such_method(message.method))
    capabilities: Any = verdict.client_capabilities
    if not isinstance(capabilities, dict):
        return refused(request_id, Refusal(INVALID_PARAMS, "The client's capabilities are an object."))
    request = ClientRequest(
        id=request_id,
        method=message.method,
        params=message.params,
        version=verdict.protocol_version,
        endpoint=endpoint,
        principal=principal,
        capabilities=cast("JsonObject", capabilities),
        client=name_of_client(verdict.client_info),
        authorization=None if headers is None else for_others(headers),
        headers=headers or {},
    )
    rejection = _wrong_parameter_headers(premises, request, inbound)
    return request if rejection is None else _rejected(request_id, rejection)


def _unknown_version(message: Message, headers: Mapping[str, str] | None) -> InboundLadderRejection | None:
    """Why a request of neither era is refused: it names a version nobody knows, and has no envelope."""
    version = None if headers is None else headers.get("mcp-protocol-version")
    meta = message.params.get("_meta")
    if version is None or (isinstance(meta, dict) and PROTOCOL_VERSION_META_KEY in meta):
        return None
    return unsupported_protocol_version_rejection(version, _SPOKEN)


def no_such_method(method: str) -> Refusal:
    return Refusal(METHOD_NOT_FOUND, f"There is no method {method!r} in this version of the protocol.")


def _wrong_parameter_headers(
    premises: Premises, request: ClientRequest, inbound: Inbound | None
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
    schema = premises.methods.input_schema(request.endpoint, request.principal, name)
    if schema is None:
        return None
    return validate_mcp_param_headers(schema, cast("Mapping[str, Any]", arguments or {}), request.headers)


def _rejected(request_id: str | int | None, rejection: InboundLadderRejection) -> Answer:
    return refused(request_id, Refusal(rejection.code, rejection.message, rejection.data))


async def _answer(
    premises: Premises, inbound: Inbound, request: ClientRequest, takes: tuple[bool, bool]
) -> None:
    reply = Reply(inbound, takes=takes, headers=inbound.common)
    result: Answer | None = None
    with premises.running() as running:
        watch = Watch(premises, inbound, reply, running)
        try:
            if request.method == "server/discover":
                result = Answer(result_message(request.id, await discover_result(premises.methods, request)))
            else:
                result = await answer(premises.methods, request, reply)
        finally:
            watch.stop()
    if result is None:  # ended from outside
        result = Answer(error_message(request.id, INTERNAL_ERROR, running.reason), INTERNAL_ERROR)
    await reply.finish(_status(result), result.body)


async def _finish(inbound: Inbound, result: Answer) -> None:
    await Reply(inbound, takes=(True, False), headers=inbound.common).finish(_status(result), result.body)


def _status(result: Answer) -> int:
    return 200 if result.code is None else ERROR_CODE_HTTP_STATUS.get(result.code, 200)


async def _listen(premises: Premises, inbound: Inbound, request: ClientRequest) -> None:
    listening = await Listening.begin(premises, request)
    if isinstance(listening, Answer):
        return await _finish(inbound, listening)
    reply = Reply(inbound, takes=(False, True), headers=inbound.common)
    with premises.running() as running:
        watch = Watch(premises, inbound, reply, running)
        try:
            await listen(
                premises, listening, reply, partial(premises.still_admit, inbound, request.principal)
            )
        finally:
            watch.stop()
    if not running.reason:
        await reply.finish(200, listening.last_message())
    return None
