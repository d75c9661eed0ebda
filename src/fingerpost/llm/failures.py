"""What went wrong with a model, and whether asking once more may help."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from fingerpost.errors import ModelError, ModelRefused, ModelTimeout, ModelUnavailable
from fingerpost.redaction import scrub

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAIError

FIRST_WAIT: Final = 0.5
_SHOWN: Final = 200
_BUSY: Final = (408, 409, 425, 429)
# Options a request means the same without; tools are not among them.
_OPTIONS: Final = ("response_format", "temperature", "top_p", "max_tokens")
_WORDS_FOR: Final = {
    "response_format": re.compile(r"response_format|json_schema|structured output", re.IGNORECASE)
}
_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setback:
    """A failed try: the error it is, and what could be done about it."""

    error: ModelError
    wait: float | None = None  # seconds after which to try again; None: it would not help
    option: str = ""  # the option of the request that the model does not take


def setback_of(error: OpenAIError, *, model: str, timeout: float) -> Setback:
    """`error` of the `openai` package in our words, without secrets."""
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APITimeoutError):
        message = f"{model} did not answer within {timeout:g} s"
        return Setback(error=ModelTimeout(message, model=model, hint="Raise the model's timeout."))
    if isinstance(error, APIConnectionError):
        message = f"{model} cannot be reached: {_words(str(error.__cause__ or error))}"
        unreachable = ModelUnavailable(message, model=model, hint="Check the model's base_url.")
        return Setback(error=unreachable, wait=_a_moment())
    if isinstance(error, APIStatusError):
        return _of_status(error.response, error.body, model)
    return Setback(error=ModelUnavailable(f"{model} failed: {_words(str(error))}", model=model))


def _of_status(response: httpx2.Response, body: object, model: str) -> Setback:
    status, said = response.status_code, _said(body)
    words = f": {said}" if said else ""
    if status in _BUSY or status >= 500:
        what = "is overloaded" if status == 429 else "failed"
        busy = ModelUnavailable(
            f"{model} {what} (status {status}){words}", model=model, hint="Try again later."
        )
        asked = _retry_after(response)
        return Setback(error=busy, wait=_a_moment() if asked is None else asked)
    refused = ModelRefused(
        f"{model} refused the request (status {status}){words}", model=model, hint=_HINTS.get(status)
    )
    return Setback(error=refused, option=_refused_option(body, said) if status in (400, 422) else "")


def _a_moment() -> float:
    """Not the same for everybody: those who failed together should not come back together."""
    return random.uniform(FIRST_WAIT / 2, FIRST_WAIT)  # noqa: S311 - spreading load, not guarding a secret


def _refused_option(body: object, said: str) -> str:
    """The option a server says it does not take: by name in the error, or told in words."""
    fields = _mapping(body)
    if fields.get("param") in _OPTIONS:
        return cast("str", fields["param"])
    return next((option for option, words in _WORDS_FOR.items() if words.search(said)), "")


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds, as most servers say it. A date is for caches; it counts as not said."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _said(body: object) -> str:
    """The server's own message, wherever it stands."""
    fields = _mapping(body)
    inner = _mapping(fields.get("error")) or fields
    for candidate in (inner.get("message"), fields.get("error"), fields.get("detail"), body):
        if isinstance(candidate, str) and candidate.strip():
            return _words(candidate)
    return ""


def _words(text: str) -> str:
    return scrub(" ".join(text[: 10 * _SHOWN].split()))[:_SHOWN]


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
