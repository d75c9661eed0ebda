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
from fingerpost.surfaces.web.asgi import Fault, Header

OURS: Final = "Something went wrong here; it is in the log. Try again."
NO_STORE: Final = "Fingerpost cannot use its store at the moment. Try again in a while."
CLOSING: Final = "Fingerpost is shutting down; try again when it is back."

# What a status is called where nothing more is known: its type and its code.
_NAMES: Final[dict[int, tuple[str, str | None]]] = {
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
_OUR_SETTINGS: Final = frozenset({401, 403, 407})
_THE_REQUEST: Final = frozenset({400, 413, 422})


class ApiFault(Fault):
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


def told(fault: Fault) -> JsonObject:
    """The fault as the client reads it."""
    kind, code = _NAMES.get(fault.status, ("invalid_request_error", None))
    param = None
    if isinstance(fault, ApiFault):
        kind, code, param = fault.kind or kind, fault.code or code, fault.param
    return {"error": {"message": fault.message, "type": kind, "param": param, "code": code}}


def fault_of(error: FingerpostError) -> ApiFault:
    """What the caller hears of an error of the house."""
    if isinstance(error, ModelError):
        return model_fault(error)
    sentence = _sentence(error)
    if isinstance(error, ConfigError | CallError):
        return ApiFault(400, sentence)
    if isinstance(error, ServerUnavailable):
        return ApiFault(503, sentence, code="server_unavailable")
    if isinstance(error, StoreError):  # where it is kept is no matter of the caller's
        return ApiFault(503, NO_STORE, code="store_unavailable", headers=((b"retry-after", b"5"),))
    if isinstance(error, LimitReached):
        return ApiFault(413, sentence)
    return ApiFault(500, sentence)


def model_fault(error: ModelError) -> ApiFault:
    """What the caller hears of a model that failed: whether it is their request, or our upstream."""
    status = error.status or 0
    if isinstance(error, ModelTimeout):
        return ApiFault(504, _sentence(error))
    if status in _OUR_SETTINGS:  # the key is ours, so are the words about it
        return ApiFault(
            502,
            f"The model {error.model} refused the key this gateway has for it. "
            "Whoever runs the gateway has to look at the model's api_key.",
            code="upstream_refused",
        )
    if status == 404:
        return unknown_model(error.model)
    if status in _THE_REQUEST:
        return ApiFault(400, _sentence(error), code="upstream_refused")
    if status in (429, 503):
        return ApiFault(503, _sentence(error), headers=((b"retry-after", b"5"),))
    code = "upstream_unreachable" if isinstance(error, ModelUnavailable) and not status else None
    return ApiFault(502, _sentence(error), code=code)


def unknown_model(name: str, hint: str = "GET /v1/models lists those there are.") -> ApiFault:
    return ApiFault(
        404, f"There is no model {name[:200]!r} here. {hint}", param="model", code="model_not_found"
    )


def _sentence(error: FingerpostError) -> str:
    text = str(error)
    text = f"{text[:1].upper()}{text[1:]}"
    return f"{text}. {error.hint}" if error.hint else text
