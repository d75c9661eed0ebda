"""What a message must look like before anybody answers it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal, cast

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.surfaces.gateway.exchange import RequestId
from fingerpost.surfaces.gateway.wire.codec import INVALID_REQUEST

MAX_METHOD_LENGTH = 200
UNKNOWN_CLIENT = "unknown client"
BATCH_REFUSED = "Send one message at a time: batches are of protocol 2025-03-26 alone."


class InvalidJsonRpcMessage(Exception):
    """The JSON is no single JSON-RPC message; `request_id` is what could be read of its id."""

    code = INVALID_REQUEST

    def __init__(self, message: str, request_id: RequestId | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.request_id = request_id


@frozen(kw_only=False)
class JsonRpcMessage:
    """One JSON-RPC message. A notification has no id; a response has no method."""

    kind: Literal["request", "notification", "response"]
    id: RequestId | None
    method: str
    params: JsonObject
    raw: JsonObject


def read_message(value: Any) -> JsonRpcMessage:
    """Sort one decoded message. Raises `InvalidJsonRpcMessage`."""
    if isinstance(value, list):
        raise InvalidJsonRpcMessage(BATCH_REFUSED)
    if not isinstance(value, dict):
        problem = "Send a JSON-RPC request or notification: an object."
        raise InvalidJsonRpcMessage(problem)
    raw = cast("JsonObject", value)
    if raw.get("jsonrpc") != "2.0":
        problem = 'A message needs "jsonrpc": "2.0".'
        raise InvalidJsonRpcMessage(problem)
    if "method" not in raw and ("result" in raw or "error" in raw):
        return JsonRpcMessage("response", _get_response_id(raw), "", {}, raw)
    request_id = _get_id(raw)
    method = raw.get("method")
    if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD_LENGTH:
        problem = "A request needs the name of a method."
        raise InvalidJsonRpcMessage(problem, request_id)
    params = raw.get("params")
    if params is None:
        params = cast("dict[str, Json]", {})
    elif not isinstance(params, dict):
        problem = "The params of a request are an object."
        raise InvalidJsonRpcMessage(problem, request_id)
    return JsonRpcMessage("request" if "id" in raw else "notification", request_id, method, params, raw)


def _get_response_id(raw: JsonObject) -> RequestId | None:
    """An error that could not be matched to a request has the id null, or none."""
    return None if "error" in raw and raw.get("id") is None else _get_id(raw)


def _get_id(raw: JsonObject) -> RequestId | None:
    if "id" not in raw:
        return None
    request_id = raw["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        problem = "The id of a request is a string or an integer."
        raise InvalidJsonRpcMessage(problem)
    return request_id


def format_client_name(info: object) -> str:
    """What a client calls itself, with its version: untrusted, so short and in one line."""
    if not isinstance(info, dict):
        return UNKNOWN_CLIENT
    said = cast("dict[str, object]", info)
    name, version = said.get("name"), said.get("version")
    return _join_name_version(
        name if isinstance(name, str) else "", version if isinstance(version, str) else ""
    )


@lru_cache(maxsize=128)  # in the newer era every request says it again
def _join_name_version(name: str, version: str) -> str:
    return " ".join(f"{name[:200]} {version[:200]}".split())[:120] or UNKNOWN_CLIENT
