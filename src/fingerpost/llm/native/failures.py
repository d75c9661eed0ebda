"""What the two APIs say when they say no, and whether asking once more may help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from fingerpost.errors import ModelRefused, ModelReplyInvalid, ModelUnavailable
from fingerpost.llm.failures import FailedAttempt
from fingerpost.llm.fields import as_list, as_mapping, format_excerpt, parse_json
from fingerpost.redaction import scrub

if TYPE_CHECKING:
    import httpx2

_MAX_NATIVE_MESSAGE_LENGTH: Final = 200
_NATIVE_BUSY_STATUSES: Final = (408, 409, 425, 429)
_OVERLOADED: Final = (429, 529)
# Google answers a wrong key with the status of a wrong request.
_WRONG_KEY: Final = re.compile(r"\bapi[ _-]?key\b", re.IGNORECASE)
_NATIVE_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
    413: "Shorten the request.",
}


def build_from_status(
    response: httpx2.Response, options: Mapping[str, re.Pattern[str]], *, model: str
) -> FailedAttempt:
    """The API said no; its body has been read. `options` are the words that name each option."""
    status, body = response.status_code, _parse_error(response.content)
    said = _get_error_message(body) or format_excerpt(response.content)
    if status in _NATIVE_BUSY_STATUSES or status >= 500:
        what = "is overloaded" if status in _OVERLOADED else "failed"
        message = f"{model} {what} (status {status}): {said}"
        busy = ModelUnavailable(message, model=model, hint="Try again later.", status=status)
        return FailedAttempt(error=busy, again=True, wait=_parse_wait(response, body))
    hint = _NATIVE_HINTS[401] if _WRONG_KEY.search(said) else _NATIVE_HINTS.get(status)
    message = f"{model} refused the request (status {status}): {said}"
    refused = ModelRefused(message, model=model, hint=hint, status=status)
    option = ""
    if status in (400, 422):
        option = next((name for name, named in options.items() if named.search(said)), "")
    return FailedAttempt(error=refused, option=option)


def build_unreadable(content: bytes, *, model: str) -> ModelReplyInvalid:
    message = f"{model} answered with something that is no reply: {format_excerpt(content)}"
    return ModelReplyInvalid(message, model=model, hint="Are its base_url and its provider right?")


def parse_object(content: bytes | str) -> Mapping[str, Any] | None:
    """The JSON object in these bytes, if there is one."""
    try:
        value = parse_json(content)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _parse_error(content: bytes) -> Mapping[str, Any]:
    """What the error says about itself; Google may put it in a list."""
    try:
        value = parse_json(content)
    except ValueError:
        return {}
    body = as_mapping(next(iter(as_list(value)), value))
    return as_mapping(body.get("error"))


def _get_error_message(error: Mapping[str, Any]) -> str:
    for candidate in (error.get("message"), error.get("type"), error.get("status")):
        if isinstance(candidate, str) and candidate.strip():
            return scrub(" ".join(candidate[: 10 * _MAX_NATIVE_MESSAGE_LENGTH].split()))[
                :_MAX_NATIVE_MESSAGE_LENGTH
            ]
    return ""


def _parse_wait(response: httpx2.Response, error: Mapping[str, Any]) -> float | None:
    """How long the server wants to be left alone: in a header, or as Google says it (`"12s"`)."""
    delays = [as_mapping(detail).get("retryDelay") for detail in as_list(error.get("details"))]
    told = [delay.removesuffix("s") for delay in delays if isinstance(delay, str)]
    for text in (response.headers.get("retry-after", ""), *told):
        try:
            seconds = float(text[:20])
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None
