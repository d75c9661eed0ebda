"""Reading one JSON-RPC message, forgiving what harms only a part of it.

The fast parser refuses a whole message for half a Unicode character or a long
number somewhere inside. One tool with such a description must not hide its
neighbours, so what the fast parser refuses is read again by the standard
library, and the bad value is left for the check of that one tool or result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import orjson
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCResponse, RequestId, jsonrpc_message_adapter
from pydantic import ValidationError
from pydantic_core import from_json

from fingerpost.records.json import LARGE_SIZE, MAX_INTEGER_DIGITS, parse_in_steps
from fingerpost.tasks import run_in_thread

_ID = re.compile(rb'"id"\s*:\s*(?:"((?:[^"\\]|\\.){1,200})"|(-?\d{1,30}))')
# A reply of millions of tiny values takes fifty times its size in memory once it is read. Counted before
# reading, by the characters that begin or part values; text full of commas is counted, too.
MAX_VALUES = 5_000_000
_SEARCHED_BYTES = 4096  # bytes at each end of an unreadable message in which its id is looked for


class InvalidMessage(Exception):
    """These bytes are no JSON-RPC message. `str()` says why, in words that go into a sentence."""


class OversizedInteger:
    """Stands where a number was that has more digits than we carry."""


def parse_envelope(data: bytes) -> dict[str, Any]:
    """The message these bytes are, as plain values. Raises `InvalidMessage` for what `parse_message`
    would.
    """
    _check_values(data)
    if len(data) > LARGE_SIZE:
        value = _load_json(data)
    else:
        try:
            value = from_json(data)
        except ValueError:
            value = _load_json(data)
    envelope = _to_envelope(value)
    if (
        envelope.get("jsonrpc") == "2.0"
        and "method" not in envelope
        and isinstance(envelope.get("result"), dict)
    ):
        return envelope  # by far the most common
    to_message(envelope)
    return envelope


async def read_envelope(data: bytes) -> dict[str, Any]:
    """The same, off the event loop where it takes long."""
    return await run_in_thread(parse_envelope, data) if len(data) > LARGE_SIZE else parse_envelope(data)


def _check_values(data: bytes) -> None:
    if len(data) > MAX_VALUES and sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        message = f"holds more than {MAX_VALUES:,} values"
        raise InvalidMessage(message)


def parse_message(data: bytes) -> JSONRPCMessage:
    """The message these bytes are. Raises `InvalidMessage`."""
    _check_values(data)
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError:
        return to_message(_to_envelope(_load_json(data)))
    word = b'"error"' if isinstance(message, JSONRPCResponse) else b'"result"'
    if isinstance(message, JSONRPCResponse | JSONRPCError) and word in data:
        _check_envelope(_load_json(data))
    return message


def _to_envelope(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        message = "is not a JSON object"
        raise InvalidMessage(message)
    envelope = cast("dict[str, Any]", value)
    _check_envelope(envelope)
    if "method" in envelope:
        _check_request(envelope)
    return envelope


def _check_request(envelope: dict[str, Any]) -> None:
    """A request or notification. What is also a reply would be read as one, with members of any type."""
    if envelope.get("id", "") is None:
        del envelope["id"]  # sloppy: a notification
    asks = isinstance(envelope["method"], str) and isinstance(envelope.get("params"), dict | None)
    if not asks or "result" in envelope or "error" in envelope:
        message = "is not a JSON-RPC message"
        raise InvalidMessage(message)


def to_message(envelope: dict[str, Any]) -> JSONRPCMessage:
    """Raises `InvalidMessage`."""
    try:
        return jsonrpc_message_adapter.validate_python(envelope, by_name=False)
    except ValidationError:
        message = "is not a JSON-RPC message"
        raise InvalidMessage(message) from None


def _load_json(data: bytes) -> Any:
    try:
        if len(data) > LARGE_SIZE:
            return parse_in_steps(
                data.decode(json.detect_encoding(data), "surrogatepass"), parse_int=_parse_integer
            )
        return json.loads(data, parse_int=_parse_integer)
    except UnicodeDecodeError:
        message = "is not UTF-8"
    except RecursionError:
        message = "is nested too deep to be read"
    except ValueError as error:
        message = f"is not JSON ({error})"
    raise InvalidMessage(message)


def _parse_integer(digits: str) -> object:
    return int(digits) if len(digits) <= MAX_INTEGER_DIGITS else OversizedInteger()


def _check_envelope(value: Any) -> None:
    if "id" not in value or "method" in value:
        return
    has_result = "result" in value
    has_error = value.get("error") is not None  # `"error": null` beside a result is sloppy, not contradictory
    if has_result and has_error:
        message = "has both a result and an error"
        raise InvalidMessage(message)
    if not has_result and not has_error:
        message = "has neither a result nor an error"
        raise InvalidMessage(message)


def encode(message: Mapping[str, Any]) -> bytes:
    """A message as bytes; what the fast encoder refuses (long numbers, half characters) goes the slow way."""
    try:
        return orjson.dumps(message)
    except TypeError:
        return json.dumps(message, default=_to_plain).encode()


def _to_plain(value: object) -> object:
    """A mapping or sequence that is no dict or list."""
    return (
        dict(cast("Mapping[str, object]", value))
        if isinstance(value, Mapping)
        else list(cast("Sequence[object]", value))
    )


def find_answered_request(data: bytes, waiting: Collection[RequestId]) -> RequestId | None:
    """Which of the `waiting` requests an unreadable message was meant to answer, if that can be told.

    Failing the right caller at once is better than letting it wait for its
    deadline; failing the wrong one is worse. So: an id we are waiting for, or
    something that is plainly a reply while only one request waits.
    """
    edges = (
        data if len(data) <= 2 * _SEARCHED_BYTES else data[:_SEARCHED_BYTES] + b"\n" + data[-_SEARCHED_BYTES:]
    )
    for match in _ID.finditer(edges):
        text, number = match.groups()
        found: RequestId = int(number) if number is not None else text.decode("utf-8", "replace")
        if found in waiting:
            return found
    is_reply = data.lstrip().startswith(b"{") and b'"jsonrpc"' in edges and b'"method"' not in edges
    return next(iter(waiting)) if is_reply and len(waiting) == 1 else None
