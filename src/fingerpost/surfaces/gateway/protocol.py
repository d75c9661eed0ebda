"""JSON-RPC messages, requests of clients, and the interfaces between transports and methods."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final, Literal, Protocol, cast

import orjson
from mcp_types.jsonrpc import INVALID_REQUEST
from pydantic_core import from_json

from fingerpost.frozen import frozen
from fingerpost.records import CallerAuthorization, Json, JsonObject, Principal
from fingerpost.surfaces.http.access import Endpoint

MODERN_VERSION: Final = "2026-07-28"
NEWEST_HANDSHAKE_VERSION: Final = (
    "2025-11-25"  # the newest version with sessions; older ones are supported too
)

RequestId = str | int


class JsonRpcError(Exception):
    """An error for the client, with its JSON-RPC code."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@frozen(kw_only=False)
class EncodedResult:
    """A result that is already encoded as JSON, such as a page of a long list."""

    body: bytes


@frozen
class ClientRequest:
    """One request. Its envelope is checked, its params are not."""

    id: RequestId
    method: str
    params: JsonObject
    version: str  # of the protocol
    endpoint: Endpoint
    principal: Principal
    capabilities: JsonObject = field(default_factory=dict[str, Json])  # of the client
    client: str = ""  # name and version as reported
    session: str | None = None  # handshake era only
    authorization: CallerAuthorization | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)  # lower-case; HTTP only
    modern: bool = field(default=False, init=False)  # stored, because it is read many times per request

    def __post_init__(self) -> None:
        object.__setattr__(self, "modern", self.version >= MODERN_VERSION)

    @property
    def caller_key(self) -> str:
        """A key that is equal for all requests of one session, or of one principal without sessions."""
        return self.session or self.principal_key

    @property
    def principal_key(self) -> str:
        """A key that is equal for all requests of one principal, in any session."""
        return f"{self.principal.kind}:{self.principal.name}"


class ClientExchange(Protocol):
    """Communication with the client while its request is answered."""

    async def notify(self, method: str, params: JsonObject) -> None:
        """Send a notification that belongs to this request."""
        ...

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """Send a request to the client and wait for the answer. Handshake era only.

        Raises `JsonRpcError` with the client's code, or if it cannot be asked.
        """
        ...


class NotificationAudience(Protocol):
    """All receivers of notifications outside of a request: sessions and subscription streams."""

    def publish(
        self,
        method: str,
        params: JsonObject,
        *,
        should_receive: Callable[[ClientRequest], bool] | None = None,
    ) -> None:
        """Send `notifications/…` to each listener that asked for it and that `should_receive` accepts."""
        ...


class McpMethods(Protocol):
    """Answers requests. Raises `JsonRpcError`; any other exception is an internal error."""

    async def answer(
        self, request: ClientRequest, exchange: ClientExchange
    ) -> JsonObject | EncodedResult: ...

    async def count_session(self, request: ClientRequest) -> None:
        """Count the `initialize` request of an HTTP client, for its quotas."""
        ...

    async def wait_until_ready(self, endpoint: Endpoint, principal: Principal) -> None:
        """Wait for the first lists of the servers, up to a timeout. Called before `describe`."""
        ...

    def get_input_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """Return a tool's input schema if `Mcp-Param-*` headers must be compared with its arguments."""
        ...

    def describe(self, endpoint: Endpoint, principal: Principal, version: str) -> JsonObject:
        """Return `capabilities`, `serverInfo` and `instructions`, for `initialize` and `server/discover`."""
        ...

    def restore_session(self, request: ClientRequest, record: JsonObject) -> None:
        """Apply what a session has set in other processes. `request` is its `initialize` request."""
        ...

    def forget_session(self, session: str) -> None:
        """Drop everything held for a session that ended."""
        ...


# Codes that the MCP library does not define; the others are in `mcp_types.jsonrpc`.
REQUEST_CANCELLED: Final = -32800  # a cancelled request in the handshake era
RESOURCE_NOT_FOUND: Final = -32002  # before 2026-07-28; since then it is INVALID_PARAMS
NOT_ALLOWED_CODE: Final = -32010
TOO_MANY_CODE: Final = -32000
QUOTA_CODE: Final = -32029  # the caller used up a quota; the data says when to try again

_DICT_TYPE: Final[type[Any]] = dict
_LIST_TYPE: Final[type[Any]] = list
MAX_DEPTH: Final = 100  # deeper JSON could exhaust the stack of recursive code
TOO_DEEP_MESSAGE: Final = f"This JSON is nested more than {MAX_DEPTH} levels deep."
TOO_LARGE_MESSAGE: Final = "This JSON has a number that is too large: integers have at most 4300 digits."


class InvalidJsonBody(ValueError):
    """The body is not acceptable JSON."""


def decode_json(body: bytes) -> Any:
    """Decode JSON exactly, including large integers. Raises `InvalidJsonBody` with an explanation."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidJsonBody(_explain_parse_error(error)) from error
    # Counting brackets is far cheaper than measuring the depth.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_too_deep(value):
        raise InvalidJsonBody(TOO_DEEP_MESSAGE)
    return value


def _explain_parse_error(error: ValueError) -> str:
    """Explain a parser error. The parser also rejects valid JSON beyond its limits."""
    text = str(error)
    if text.startswith("recursion limit"):
        return TOO_DEEP_MESSAGE
    if text.startswith("number out of range"):
        return TOO_LARGE_MESSAGE
    return "The body is not valid JSON in UTF-8."


def _is_too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        # One comprehension with exact types, for speed: a body may contain a million lists.
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is _DICT_TYPE else item)
            if type(child) is _LIST_TYPE or type(child) is _DICT_TYPE
        ]
        if not level:
            return False
    return True


def encode_json(value: Any) -> bytes:
    """Encode JSON on one line, with a slower encoder what orjson rejects (huge integers, lone surrogates)."""
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
    """Encode one server-sent event. Line breaks in JSON are only whitespace and become spaces."""
    if b"\n" in message or b"\r" in message:
        message = message.replace(b"\r", b" ").replace(b"\n", b" ")
    head = b"" if event_id is None else b"id: " + event_id.encode() + b"\n"
    return head + b"event: message\ndata: " + message + b"\n\n"


PING_FRAME: Final = b": still here\n\n"


MAX_METHOD_LENGTH = 200
UNKNOWN_CLIENT = "unknown client"
BATCH_REFUSED = "Send one message at a time: only protocol 2025-03-26 has batches."


class InvalidJsonRpcMessage(Exception):
    """The JSON is not a single JSON-RPC message. `request_id` is its id, if readable."""

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
    """Parse one decoded message. Raises `InvalidJsonRpcMessage`."""
    if isinstance(value, list):
        raise InvalidJsonRpcMessage(BATCH_REFUSED)
    if not isinstance(value, dict):
        raise InvalidJsonRpcMessage("Send a JSON-RPC request or notification: an object.")
    raw = cast("JsonObject", value)
    if raw.get("jsonrpc") != "2.0":
        raise InvalidJsonRpcMessage('A message needs "jsonrpc": "2.0".')
    if "method" not in raw and ("result" in raw or "error" in raw):
        return JsonRpcMessage("response", _get_response_id(raw), "", {}, raw)
    request_id = _get_id(raw)
    method = raw.get("method")
    if not isinstance(method, str) or not 0 < len(method) <= MAX_METHOD_LENGTH:
        raise InvalidJsonRpcMessage("A request needs the name of a method.", request_id)
    params = raw.get("params")
    if params is None:
        params = cast("dict[str, Json]", {})
    elif not isinstance(params, dict):
        raise InvalidJsonRpcMessage("The params of a request are an object.", request_id)
    return JsonRpcMessage("request" if "id" in raw else "notification", request_id, method, params, raw)


def _get_response_id(raw: JsonObject) -> RequestId | None:
    """Return the id of a response. An error that matches no request has the id null or none."""
    return None if "error" in raw and raw.get("id") is None else _get_id(raw)


def _get_id(raw: JsonObject) -> RequestId | None:
    if "id" not in raw:
        return None
    request_id = raw["id"]
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise InvalidJsonRpcMessage("The id of a request is a string or an integer.")
    return request_id


def format_client_name(info: object) -> str:
    """Format the client's name and version. The text is untrusted, so it is shortened to one line."""
    if not isinstance(info, dict):
        return UNKNOWN_CLIENT
    fields = cast("dict[str, object]", info)
    name, version = fields.get("name"), fields.get("version")
    return _join_name_version(
        name if isinstance(name, str) else "", version if isinstance(version, str) else ""
    )


@lru_cache(maxsize=128)  # modern clients send it with every request
def _join_name_version(name: str, version: str) -> str:
    return " ".join(f"{name[:200]} {version[:200]}".split())[:120] or UNKNOWN_CLIENT
