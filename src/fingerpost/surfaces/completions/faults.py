"""What goes wrong, in OpenAI's shape: `{"error": {message, type, param, code}}`."""

from __future__ import annotations

from typing import Final

from fingerpost.errors import (
    CallError,
    ConfigError,
    FingerpostError,
    LimitReached,
    ModelError,
    ModelTimeout,
    ModelUnavailable,
    ServerUnavailable,
    StoreError,
)
from fingerpost.records import JsonObject
from fingerpost.surfaces.web.asgi import Header, HttpError

INTERNAL_ERROR_MESSAGE: Final = "Something went wrong here; it is in the log. Try again."
STORE_UNAVAILABLE_MESSAGE: Final = "Fingerpost cannot use its store at the moment. Try again in a while."
SHUTDOWN_MESSAGE: Final = "Fingerpost is shutting down; try again when it is back."

# What a status is called where nothing more is known: its type and its code.
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
_CONFIGURATION_STATUSES: Final = frozenset({401, 403, 407})
_REQUEST_STATUSES: Final = frozenset({400, 413, 422})


class CompletionError(HttpError):
    """A fault that names what of the request is wrong."""

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
    """The fault as the client reads it."""
    kind, code = _ERROR_NAMES.get(error.status, ("invalid_request_error", None))
    param = None
    if isinstance(error, CompletionError):
        kind, code, param = error.kind or kind, error.code or code, error.param
    return {"error": {"message": error.message, "type": kind, "param": param, "code": code}}


def build_error(error: FingerpostError) -> CompletionError:
    """What the caller hears of an error of the house."""
    if isinstance(error, ModelError):
        return build_model_error(error)
    sentence = _format_message(error)
    if isinstance(error, ConfigError | CallError):
        return CompletionError(400, sentence)
    if isinstance(error, ServerUnavailable):
        return CompletionError(503, sentence, code="server_unavailable")
    if isinstance(error, StoreError):  # where it is kept is no matter of the caller's
        return CompletionError(
            503, STORE_UNAVAILABLE_MESSAGE, code="store_unavailable", headers=((b"retry-after", b"5"),)
        )
    if isinstance(error, LimitReached):
        return CompletionError(413, sentence)
    return CompletionError(500, sentence)


def build_model_error(error: ModelError) -> CompletionError:
    """What the caller hears of a model that failed: whether it is their request, or our upstream."""
    status = error.status or 0
    if isinstance(error, ModelTimeout):
        return CompletionError(504, _format_message(error))
    if status in _CONFIGURATION_STATUSES:  # the key is ours, so are the words about it
        return CompletionError(
            502,
            f"The model {error.model} refused the key this gateway has for it. "
            "Whoever runs the gateway has to look at the model's api_key.",
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


def build_unknown_model_error(
    name: str, hint: str = "GET /v1/models lists those there are."
) -> CompletionError:
    return CompletionError(
        404, f"There is no model {name[:200]!r} here. {hint}", param="model", code="model_not_found"
    )


def _format_message(error: FingerpostError) -> str:
    text = str(error)
    text = f"{text[:1].upper()}{text[1:]}"
    return f"{text}. {error.hint}" if error.hint else text
