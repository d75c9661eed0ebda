"""JSON-RPC messages as bytes: read once, written once."""

from __future__ import annotations

import json
from typing import Any, Final

import orjson
from pydantic_core import from_json

from fingerpost.records import JsonObject
from fingerpost.surfaces.gateway.exchange import Encoded, RequestId

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CANCELLED: Final = -32800  # what the handshake era answers a cancelled request with

_OBJECT: Final[type[Any]] = dict
_LIST: Final[type[Any]] = list
MAX_DEPTH: Final = 100  # deeper JSON is an attack on whoever walks it by recursion
TOO_DEEP: Final = f"This JSON is nested more than {MAX_DEPTH} levels deep."
TOO_LARGE: Final = "This JSON has a number that is too large: integers have at most 4300 digits."


class BadJson(ValueError):
    """The bytes are not JSON we take."""


def decode(body: bytes) -> Any:
    """The value, exactly as sent, integers of any usual size too. Raises `BadJson` with a sentence."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise BadJson(_why(error)) from error
    # Only a body with many brackets can be deep: counting them is far cheaper than walking.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _too_deep(value):
        raise BadJson(TOO_DEEP)
    return value


def _why(error: ValueError) -> str:
    """What the parser's own words come to: it knows bounds, too, and what is beyond them is valid JSON."""
    said = str(error)
    if said.startswith("recursion limit"):
        return TOO_DEEP
    if said.startswith("number out of range"):
        return TOO_LARGE
    return "This is not valid JSON in UTF-8."


def _too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        # In one comprehension, and by the exact types the parser makes: a body may have a million lists.
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is _OBJECT else item)
            if type(child) is _LIST or type(child) is _OBJECT
        ]
        if not level:
            return False
    return True


def encode(value: Any) -> bytes:
    """JSON on one line. What orjson refuses (huge integers, odd text) is written the slow way."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _id_bytes(request_id: RequestId | None) -> bytes:
    if isinstance(request_id, int):
        return str(request_id).encode()
    return encode(request_id)


def result_message(request_id: RequestId, result: JsonObject | Encoded) -> bytes:
    body = result.body if isinstance(result, Encoded) else encode(result)
    return b'{"jsonrpc":"2.0","id":' + _id_bytes(request_id) + b',"result":' + body + b"}"


def error_message(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    error: JsonObject = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return b'{"jsonrpc":"2.0","id":' + _id_bytes(request_id) + b',"error":' + encode(error) + b"}"


def notification_message(method: str, params: JsonObject) -> bytes:
    if not params:
        return encode({"jsonrpc": "2.0", "method": method})
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request_message(request_id: RequestId, method: str, params: JsonObject) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def event(message: bytes, event_id: str | None = None) -> bytes:
    """One server-sent event. Line ends in JSON are only ever between its parts, so a space does."""
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"" if event_id is None else b"id: " + event_id.encode() + b"\n"
    return head + b"event: message\ndata: " + message + b"\n\n"


PING: Final = b": still here\n\n"
