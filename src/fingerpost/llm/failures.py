"""What went wrong with a model, and whether asking once more may help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fingerpost.errors import ModelError, ModelRefused, ModelTimeout, ModelUnavailable
from fingerpost.frozen import frozen
from fingerpost.llm.fields import entries, mapping
from fingerpost.redaction import scrub

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAIError

_SHOWN: Final = 200
_BUSY: Final = (408, 409, 425, 429)
# Options a request means the same without; tools are not among them.
_OPTIONS: Final = (
    "response_format",
    "temperature",
    "top_p",
    "max_tokens",
    "tool_choice",
    "stream_options",
    "stream",
)
_WORDS_FOR: Final = {
    "response_format": re.compile(r"response_format|json_schema|structured output", re.IGNORECASE),
    "tool_choice": re.compile(r"tool_choice|tool choice", re.IGNORECASE),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "stream": re.compile(r"streaming (?:is )?not supported|not support stream", re.IGNORECASE),
}
# Said with status 500 by servers that mean "never": llama.cpp, asked for tools it was not started for.
_NEVER: Final = re.compile(r"not supported|unsupported|not support|requires --", re.IGNORECASE)
_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
}


@frozen
class Setback:
    """A failed try: the error it is, and what could be done about it."""

    error: ModelError
    again: bool = False  # whether the same request may succeed a little later
    wait: float | None = None  # seconds the server asks us to wait before that
    option: str = ""  # the option of the request that the model does not take


def setback_of(error: OpenAIError, *, model: str, timeout: float) -> Setback:
    """`error` of the `openai` package in our words, without secrets."""
    import httpx2
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APITimeoutError) and not isinstance(error.__cause__, httpx2.ConnectTimeout):
        return Setback(error=late(model, timeout))
    if isinstance(error, APIConnectionError):
        return unreachable(error.__cause__ or error, model)
    if isinstance(error, APIStatusError):
        return _of_status(error.response.status_code, error.body, model, _retry_after(error.response))
    return Setback(error=ModelUnavailable(f"{model} failed: {_words(str(error))}", model=model))


def late(model: str, timeout: float) -> ModelTimeout:
    """The error for a reply that did not come in time."""
    return ModelTimeout(
        f"{model} did not answer within {timeout:g} s",
        model=model,
        hint="Raise the model's timeout, or choose a quicker model.",
    )


def unreachable(cause: BaseException, model: str) -> Setback:
    """Nobody answered, or the connection broke before an answer was there."""
    message = f"{model} cannot be reached: {_words(str(cause)) or type(cause).__name__}"
    return Setback(
        error=ModelUnavailable(message, model=model, hint="Check the model's base_url."), again=True
    )


def broke_off(model: str) -> Setback:
    """An answer that ended before its end."""
    message = f"{model} broke off in the middle of its answer"
    hint = "Try again; if it happens often, look at the server and at the proxy in front of it."
    return Setback(error=ModelUnavailable(message, model=model, hint=hint), again=True)


def reported(error: object, model: str) -> Setback:
    """An error the server sends as the body of an answer that began well."""
    code = mapping(error).get("code", mapping(error).get("status"))
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _of_status(status, error, model, None)


def _of_status(status: int, body: object, model: str, wait: float | None) -> Setback:
    said = _said(body)
    words = f": {said}" if said else ""
    if status in _BUSY or (status >= 500 and not _NEVER.search(said)):
        what = "is overloaded" if status == 429 else "failed"
        message = f"{model} {what} (status {status}){words}"
        busy = ModelUnavailable(message, model=model, hint="Try again later.", status=status)
        return Setback(error=busy, again=True, wait=wait, option=_refused_option(body, said, status))
    refused = ModelRefused(
        f"{model} refused the request (status {status}){words}",
        model=model,
        hint=_HINTS.get(status),
        status=status,
    )
    return Setback(error=refused, option=_refused_option(body, said, status))


def _refused_option(body: object, said: str, status: int) -> str:
    """The option a server says it does not take: by name in the error, or told in words."""
    if status not in (400, 422, 501):
        return ""
    named = next((name for name in _named(body) if name in _OPTIONS), "")
    return named or next((option for option, words in _WORDS_FOR.items() if words.search(said)), "")


def _named(body: object) -> Iterator[str]:
    """Fields the error points at: OpenAI's `param`, or where FastAPI says the mistake is."""
    fields = mapping(body)
    candidates: list[object] = [fields.get("param"), mapping(fields.get("error")).get("param")]
    for problem in entries(fields.get("detail"))[:20]:
        candidates += entries(mapping(problem).get("loc"))[:5]
    return (name for name in candidates if isinstance(name, str))


def _retry_after(response: httpx2.Response) -> float | None:
    """Seconds, as most servers say it. A date is for caches; it counts as not said."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _said(body: object) -> str:
    """The server's own message, wherever it stands."""
    fields = mapping(body)
    inner = mapping(fields.get("error")) or fields
    for candidate in (inner.get("message"), fields.get("error"), fields.get("detail"), body):
        if isinstance(candidate, str) and candidate.strip():
            return _words(candidate)
    return ""


def _words(text: str) -> str:
    return scrub(" ".join(text[: 10 * _SHOWN].split()))[:_SHOWN]
