"""From a request to the bytes of its answer, whatever happens inside."""

from __future__ import annotations

import logging
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import ClientRequest, Encoded, Exchange, Methods, Refusal
from fingerpost.surfaces.gateway.wire.codec import INTERNAL_ERROR, error_message, result_message

log = logging.getLogger("fingerpost.gateway")

OUR_FAULT: Final = "Something went wrong inside Fingerpost; its log says what. Try again, or report it."

_NEWER: Final = frozenset(("resultType", "ttlMs", "cacheScope"))  # of a result since 2026-07-28


@frozen(kw_only=False)
class Answer:
    """The whole JSON-RPC message, and its error code where it is an error."""

    body: bytes
    code: int | None = None


def refused(request_id: str | int | None, refusal: Refusal) -> Answer:
    return Answer(error_message(request_id, refusal.code, refusal.message, refusal.data), refusal.code)


async def answer(methods: Methods, request: ClientRequest, exchange: Exchange) -> Answer:
    """Ask the methods. A fault of ours is logged whole and told in one sentence."""
    try:
        result = await methods.answer(request, exchange)
        if not isinstance(result, Encoded) and ("resultType" in result) is not request.modern:
            result = _in_its_era(result, modern=request.modern)
        return Answer(result_message(request.id, result))
    except Refusal as refusal:
        return _encoded_refusal(request, refusal)
    except Exception:
        log.exception("%s could not be answered", request.method)
        return Answer(error_message(request.id, INTERNAL_ERROR, OUR_FAULT), INTERNAL_ERROR)


def _in_its_era(result: JsonObject, *, modern: bool) -> JsonObject:
    """A result of a server of the other era. Every one of the newer era says of what type it is."""
    if modern:
        return {"resultType": "complete", **result}
    return {key: value for key, value in result.items() if key not in _NEWER}


def _encoded_refusal(request: ClientRequest, refusal: Refusal) -> Answer:
    try:
        return refused(request.id, refusal)
    except Exception:  # data that is no JSON
        log.exception("The data of an error of %s could not be written", request.method)
        return refused(request.id, Refusal(refusal.code, refusal.message))
