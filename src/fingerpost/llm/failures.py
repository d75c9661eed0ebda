"""What went wrong with a model, and whether asking once more may help."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from fingerpost.errors import ModelError, ModelRefused, ModelTimeout, ModelUnavailable
from fingerpost.frozen import frozen
from fingerpost.llm.fields import as_list, as_mapping
from fingerpost.redaction import scrub

if TYPE_CHECKING:
    import httpx2
    from openai import OpenAIError

_MAX_MESSAGE_LENGTH: Final = 200
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
_OPTION_WORDS: Final = {
    "response_format": re.compile(r"response_format|json_schema|structured output", re.IGNORECASE),
    "tool_choice": re.compile(r"tool_choice|tool choice", re.IGNORECASE),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "stream": re.compile(r"streaming (?:is )?not supported|not support stream", re.IGNORECASE),
}
# Said with status 500 by servers that mean "never": llama.cpp, asked for tools it was not started for.
_UNSUPPORTED_PATTERN: Final = re.compile(r"not supported|unsupported|not support|requires --", re.IGNORECASE)
_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
}


@frozen
class FailedAttempt:
    """A failed try: the error it is, and what could be done about it."""

    error: ModelError
    again: bool = False  # whether the same request may succeed a little later
    wait: float | None = None  # seconds the server asks us to wait before that
    option: str = ""  # the option of the request that the model does not take


def build_failed_attempt(error: OpenAIError, *, model: str, timeout: float) -> FailedAttempt:
    """`error` of the `openai` package in our words, without secrets."""
    import httpx2
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APITimeoutError) and not isinstance(error.__cause__, httpx2.ConnectTimeout):
        return FailedAttempt(error=build_timeout(model, timeout))
    if isinstance(error, APIConnectionError):
        return build_unreachable(error.__cause__ or error, model)
    if isinstance(error, APIStatusError):
        return _build_from_status(
            error.response.status_code, error.body, model, _parse_retry_after(error.response)
        )
    return FailedAttempt(error=ModelUnavailable(f"{model} failed: {_clean_message(str(error))}", model=model))


def build_timeout(model: str, timeout: float) -> ModelTimeout:
    """The error for a reply that did not come in time."""
    return ModelTimeout(
        f"{model} did not answer within {timeout:g} s",
        model=model,
        hint="Raise the model's timeout, or choose a quicker model.",
    )


def build_unreachable(cause: BaseException, model: str) -> FailedAttempt:
    """Nobody answered, or the connection broke before an answer was there."""
    message = f"{model} cannot be reached: {_clean_message(str(cause)) or type(cause).__name__}"
    return FailedAttempt(
        error=ModelUnavailable(message, model=model, hint="Check the model's base_url."), again=True
    )


def build_broken_off(model: str) -> FailedAttempt:
    """An answer that ended before its end."""
    message = f"{model} broke off in the middle of its answer"
    hint = "Try again; if it happens often, look at the server and at the proxy in front of it."
    return FailedAttempt(error=ModelUnavailable(message, model=model, hint=hint), again=True)


def build_reported(error: object, model: str) -> FailedAttempt:
    """An error the server sends as the body of an answer that began well."""
    code = as_mapping(error).get("code", as_mapping(error).get("status"))
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _build_from_status(status, error, model, None)


def _build_from_status(status: int, body: object, model: str, wait: float | None) -> FailedAttempt:
    said = _find_message(body)
    words = f": {said}" if said else ""
    if status in _BUSY or (status >= 500 and not _UNSUPPORTED_PATTERN.search(said)):
        what = "is overloaded" if status == 429 else "failed"
        message = f"{model} {what} (status {status}){words}"
        busy = ModelUnavailable(message, model=model, hint="Try again later.", status=status)
        return FailedAttempt(
            error=busy, again=True, wait=wait, option=_find_refused_option(body, said, status)
        )
    refused = ModelRefused(
        f"{model} refused the request (status {status}){words}",
        model=model,
        hint=_HINTS.get(status),
        status=status,
    )
    return FailedAttempt(error=refused, option=_find_refused_option(body, said, status))


def _find_refused_option(body: object, said: str, status: int) -> str:
    """The option a server says it does not take: by name in the error, or told in words."""
    if status not in (400, 422, 501):
        return ""
    named = next((name for name in _iterate_named_fields(body) if name in _OPTIONS), "")
    return named or next((option for option, words in _OPTION_WORDS.items() if words.search(said)), "")


def _iterate_named_fields(body: object) -> Iterator[str]:
    """Fields the error points at: OpenAI's `param`, or where FastAPI says the mistake is."""
    fields = as_mapping(body)
    candidates: list[object] = [fields.get("param"), as_mapping(fields.get("error")).get("param")]
    for problem in as_list(fields.get("detail"))[:20]:
        candidates += as_list(as_mapping(problem).get("loc"))[:5]
    return (name for name in candidates if isinstance(name, str))


def _parse_retry_after(response: httpx2.Response) -> float | None:
    """Seconds, as most servers say it. A date is for caches; it counts as not said."""
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def _find_message(body: object) -> str:
    """The server's own message, wherever it stands."""
    fields = as_mapping(body)
    inner = as_mapping(fields.get("error")) or fields
    for candidate in (inner.get("message"), fields.get("error"), fields.get("detail"), body):
        if isinstance(candidate, str) and candidate.strip():
            return _clean_message(candidate)
    return ""


def _clean_message(text: str) -> str:
    return scrub(" ".join(text[: 10 * _MAX_MESSAGE_LENGTH].split()))[:_MAX_MESSAGE_LENGTH]
