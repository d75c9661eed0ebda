"""What the two APIs say when they say no, and whether asking once more may help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from fingerpost.errors import ModelRefused, ModelReplyInvalid, ModelUnavailable
from fingerpost.llm.failures import Setback
from fingerpost.llm.fields import entries, mapping, parsed, shown
from fingerpost.redaction import scrub

if TYPE_CHECKING:
    import httpx2

_SHOWN: Final = 200
_BUSY: Final = (408, 409, 425, 429)
_OVERLOADED: Final = (429, 529)
# Google answers a wrong key with the status of a wrong request.
_WRONG_KEY: Final = re.compile(r"\bapi[ _-]?key\b", re.IGNORECASE)
_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
    413: "Shorten the request.",
}


def of_status(response: httpx2.Response, options: Mapping[str, re.Pattern[str]], *, model: str) -> Setback:
    """The API said no; its body has been read. `options` are the words that name each option."""
    status, body = response.status_code, _error_in(response.content)
    said = _said(body) or shown(response.content)
    if status in _BUSY or status >= 500:
        what = "is overloaded" if status in _OVERLOADED else "failed"
        message = f"{model} {what} (status {status}): {said}"
        busy = ModelUnavailable(message, model=model, hint="Try again later.", status=status)
        return Setback(error=busy, again=True, wait=_asked_wait(response, body))
    hint = _HINTS[401] if _WRONG_KEY.search(said) else _HINTS.get(status)
    message = f"{model} refused the request (status {status}): {said}"
    refused = ModelRefused(message, model=model, hint=hint, status=status)
    option = ""
    if status in (400, 422):
        option = next((name for name, named in options.items() if named.search(said)), "")
    return Setback(error=refused, option=option)


def unreadable(content: bytes, *, model: str) -> ModelReplyInvalid:
    message = f"{model} answered with something that is no reply: {shown(content)}"
    return ModelReplyInvalid(message, model=model, hint="Are its base_url and its provider right?")


def object_in(content: bytes | str) -> Mapping[str, Any] | None:
    """The JSON object in these bytes, if there is one."""
    try:
        value = parsed(content)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _error_in(content: bytes) -> Mapping[str, Any]:
    """What the error says about itself; Google may put it in a list."""
    try:
        value = parsed(content)
    except ValueError:
        return {}
    body = mapping(next(iter(entries(value)), value))
    return mapping(body.get("error"))


def _said(error: Mapping[str, Any]) -> str:
    for candidate in (error.get("message"), error.get("type"), error.get("status")):
        if isinstance(candidate, str) and candidate.strip():
            return scrub(" ".join(candidate[: 10 * _SHOWN].split()))[:_SHOWN]
    return ""


def _asked_wait(response: httpx2.Response, error: Mapping[str, Any]) -> float | None:
    """How long the server wants to be left alone: in a header, or as Google says it (`"12s"`)."""
    delays = [mapping(detail).get("retryDelay") for detail in entries(error.get("details"))]
    told = [delay.removesuffix("s") for delay in delays if isinstance(delay, str)]
    for text in (response.headers.get("retry-after", ""), *told):
        try:
            seconds = float(text[:20])
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None
