"""From a request to the bytes of its answer, whatever happens inside."""

from __future__ import annotations

import logging
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import (
    ClientExchange,
    ClientRequest,
    EncodedResult,
    JsonRpcError,
    McpMethods,
)
from fingerpost.surfaces.gateway.wire.codec import INTERNAL_ERROR, encode_error, encode_result

log = logging.getLogger("fingerpost.gateway")

INTERNAL_ERROR_MESSAGE: Final = (
    "Something went wrong inside Fingerpost; its log says what. Try again, or report it."
)

_MODERN_MEMBERS: Final = frozenset(("resultType", "ttlMs", "cacheScope"))  # of a result since 2026-07-28


@frozen(kw_only=False)
class JsonRpcResponse:
    """The whole JSON-RPC message, and its error code where it is an error."""

    body: bytes
    code: int | None = None


def build_error_response(request_id: str | int | None, error: JsonRpcError) -> JsonRpcResponse:
    return JsonRpcResponse(encode_error(request_id, error.code, error.message, error.data), error.code)


async def answer_request(
    methods: McpMethods, request: ClientRequest, exchange: ClientExchange
) -> JsonRpcResponse:
    """Ask the methods. A fault of ours is logged whole and told in one sentence."""
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
    """A result of a server of the other era. Every one of the newer era says of what type it is."""
    if modern:
        return {"resultType": "complete", **result}
    return {key: value for key, value in result.items() if key not in _MODERN_MEMBERS}


def _encode_error(request: ClientRequest, error: JsonRpcError) -> JsonRpcResponse:
    try:
        return build_error_response(request.id, error)
    except Exception:  # data that is no JSON
        log.exception("The data of an error of %s could not be written", request.method)
        return build_error_response(request.id, JsonRpcError(error.code, error.message))
