"""Errors in the format of the OpenAI API, and JSON bodies within limits."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio.to_thread
import orjson
from pydantic_core import from_json

from fingerpost.errors import (
    CallError,
    ConfigError,
    FingerpostError,
    LimitReached,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    QuotaReached,
    ServerUnavailable,
    StoreError,
)
from fingerpost.records import JsonObject
from fingerpost.records.json import MAX_DEPTH, find_json_problem
from fingerpost.surfaces.http.asgi import Header, HttpError

INTERNAL_ERROR_MESSAGE: Final = "Internal error; see the log. Try again."
STORE_UNAVAILABLE_MESSAGE: Final = "The store of Fingerpost is not available. Try again later."
SHUTDOWN_MESSAGE: Final = "Fingerpost is shutting down; try again when it is back."

# Default type and code of a status.
_ERROR_NAMES: Final[dict[int, tuple[str, str | None]]] = {
    400: ("invalid_request_error", None),
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("timeout_error", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    500: ("server_error", "internal_error"),
    502: ("upstream_error", "upstream_error"),
    503: ("server_error", "overloaded"),
    504: ("upstream_error", "upstream_timeout"),
}
_STATUS_BY_ERROR: Final[tuple[tuple[type[FingerpostError], int, str | None], ...]] = (
    (ConfigError, 400, None),
    (CallError, 400, None),
    (ServerUnavailable, 503, "server_unavailable"),
    (LimitReached, 413, None),
)
_CONFIGURATION_STATUSES: Final = frozenset({401, 403, 407})
_REQUEST_STATUSES: Final = frozenset({400, 413, 422})


class CompletionError(HttpError):
    """An API error. `param` names the parameter of the request that is wrong, if any."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        *,
        code: str | None = None,
        kind: str | None = None,
        headers: tuple[Header, ...] = (),
    ) -> None:
        super().__init__(status, message, headers=headers)
        self.param = param
        self.code = code
        self.kind = kind


def format_error(error: HttpError) -> JsonObject:
    """Return the error as JSON for the client."""
    kind, code = _ERROR_NAMES.get(error.status, ("invalid_request_error", None))
    param = None
    if isinstance(error, CompletionError):
        kind, code, param = error.kind or kind, error.code or code, error.param
    return {"error": {"message": error.message, "type": kind, "param": param, "code": code}}


def build_error(error: FingerpostError) -> CompletionError:
    """Convert a Fingerpost error to an API error."""
    if isinstance(error, ModelError):
        return build_model_error(error)
    if isinstance(error, StoreError):  # callers do not need details about the store
        retry = ((b"retry-after", b"5"),)
        return CompletionError(503, STORE_UNAVAILABLE_MESSAGE, code="store_unavailable", headers=retry)
    if isinstance(error, QuotaReached):
        retry = ((b"retry-after", str(error.seconds).encode()),)
        return CompletionError(429, _format_message(error), headers=retry)
    fitting = ((status, code) for kind, status, code in _STATUS_BY_ERROR if isinstance(error, kind))
    status, code = next(fitting, (500, None))
    return CompletionError(status, _format_message(error), code=code)


def build_model_error(error: ModelError) -> CompletionError:
    """Convert a model error to an API error: 4xx if the request is wrong, else 5xx."""
    status = error.status or 0
    if isinstance(error, ModelTimeout):
        return CompletionError(504, _format_message(error))
    if status in _CONFIGURATION_STATUSES:  # the key is the gateway's: do not show the upstream message
        return CompletionError(
            502,
            f"The model {error.model} refused the key this gateway has for it. "
            "The operator must check the model's api_key.",
            code="upstream_refused",
        )
    if status == 404:
        return build_unknown_model_error(error.model)
    if status in _REQUEST_STATUSES:
        return CompletionError(400, _format_message(error), code="upstream_refused")
    if status in (429, 503):
        return CompletionError(503, _format_message(error), headers=((b"retry-after", b"5"),))
    code = "upstream_unreachable" if isinstance(error, ModelUnavailable) and not status else None
    return CompletionError(502, _format_message(error), code=code)


def build_unknown_model_error(name: str, hint: str = "GET /v1/models lists the models.") -> CompletionError:
    return CompletionError(
        404, f"There is no model {name[:200]!r} here. {hint}", param="model", code="model_not_found"
    )


def _format_message(error: FingerpostError) -> str:
    text = str(error)
    text = f"{text[:1].upper()}{text[1:]}"
    return f"{text}. {error.hint}" if error.hint else text


_LARGE_BODY: Final = 1024 * 1024  # bytes; larger bodies are parsed in a thread
_LARGE_NUMBER = re.compile(rb"\d{200}|\d[eE]\+?\d{3}")  # may be a number that cannot be encoded again


async def parse_object(body: bytes) -> Mapping[str, Any]:
    """Parse a JSON object. Raises `CompletionError`."""
    value = (
        await anyio.to_thread.run_sync(_decode_json, body) if len(body) > _LARGE_BODY else _decode_json(body)
    )
    if not isinstance(value, dict):
        raise CompletionError(400, "The body must be a JSON object.")
    return cast("dict[str, Any]", value)


def _decode_json(body: bytes) -> object:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise CompletionError(400, "The body is not valid JSON in UTF-8.", code="invalid_json") from error
    # Counting brackets is far cheaper than measuring the depth.
    deep = body.count(b"[") + body.count(b"{") > MAX_DEPTH
    if (deep or _LARGE_NUMBER.search(body)) and (reason := find_json_problem(value)) is not None:
        raise CompletionError(400, f"The body {reason}.", code="invalid_json")
    return value


def encode_json(value: object) -> bytes:
    """Encode JSON on one line. What orjson rejects (huge integers, lone surrogates) takes longer."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode()


def build_too_large_error(limit: int) -> CompletionError:
    return CompletionError(
        413,
        f"A request has at most {limit:,} bytes here; send fewer or smaller pictures and files.",
        headers=((b"connection", b"close"),),
    )


def get_fields(value: object) -> Mapping[str, object]:
    """Return the fields of an object, empty for any other value."""
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}
