"""JSON-RPC messages as bytes: read once, written once."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson
from pydantic_core import from_json

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import EncodedResult, RequestId

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800  # what the handshake era answers a cancelled request with

_OBJECT_BYTES: Final[type[Any]] = dict
_LIST_BYTES: Final[type[Any]] = list
MAX_DEPTH: Final = 100  # deeper JSON is an attack on whoever walks it by recursion
TOO_DEEP_MESSAGE: Final = f"This JSON is nested more than {MAX_DEPTH} levels deep."
TOO_LARGE_MESSAGE: Final = "This JSON has a number that is too large: integers have at most 4300 digits."


class InvalidJsonBody(ValueError):
    """The bytes are not JSON we take."""


def decode_json(body: bytes) -> Any:
    """The value, exactly as sent, integers of any usual size too. Raises `InvalidJsonBody` with a
    sentence.
    """
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidJsonBody(_explain_parse_error(error)) from error
    # Only a body with many brackets can be deep: counting them is far cheaper than walking.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_too_deep(value):
        raise InvalidJsonBody(TOO_DEEP_MESSAGE)
    return value


def _explain_parse_error(error: ValueError) -> str:
    """What the parser's own words come to: it knows bounds, too, and what is beyond them is valid JSON."""
    said = str(error)
    if said.startswith("recursion limit"):
        return TOO_DEEP_MESSAGE
    if said.startswith("number out of range"):
        return TOO_LARGE_MESSAGE
    return "This is not valid JSON in UTF-8."


def _is_too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        # In one comprehension, and by the exact types the parser makes: a body may have a million lists.
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is _OBJECT_BYTES else item)
            if type(child) is _LIST_BYTES or type(child) is _OBJECT_BYTES
        ]
        if not level:
            return False
    return True


def encode_json(value: Any) -> bytes:
    """JSON on one line. What orjson refuses (huge integers, odd text) is written the slow way."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _encode_id(request_id: RequestId | None) -> bytes:
    if isinstance(request_id, int):
        return str(request_id).encode()
    return encode_json(request_id)


def encode_result(request_id: RequestId, result: JsonObject | EncodedResult) -> bytes:
    body = result.body if isinstance(result, EncodedResult) else encode_json(result)
    return b'{"jsonrpc":"2.0","id":' + _encode_id(request_id) + b',"result":' + body + b"}"


def encode_error(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    error: JsonObject = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":' + _encode_id(request_id) + b',"error":' + encode_json(error) + b"}"


def encode_notification(method: str, params: JsonObject) -> bytes:
    if not params:
        return encode_json({"jsonrpc": "2.0", "method": method})
    return encode_json({"jsonrpc": "2.0", "method": method, "params": params})


def encode_request(request_id: RequestId, method: str, params: JsonObject) -> bytes:
    return encode_json({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def encode_event(message: bytes, event_id: str | None = None) -> bytes:
    """One server-sent event. Line ends in JSON are only ever between its parts, so a space does."""
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"" if event_id is None else b"id: " + event_id.encode() + b"\n"
    return head + b"event: message\ndata: " + message + b"\n\n"


PING_FRAME: Final = b": still here\n\n"
