"""Common parts of all remote models: settings, deadline, retries and errors."""

from __future__ import annotations

import os
import random
import re
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self, cast

import anyio
import anyio.to_thread

from fingerpost.errors import (
    ConfigError,
    ModelError,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimeout,
    ModelUnavailable,
)
from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelReply, ModelRequest, OnText, TextRelay
from fingerpost.llm.content import as_list, as_mapping
from fingerpost.redaction import register_secret, scrub
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2


_MAX_MESSAGE_LENGTH: Final = 200
_BUSY_STATUSES: Final = (408, 409, 425, 429)
_OVERLOADED_STATUSES: Final = (429, 529)
# Options that do not change the meaning of a request, with patterns that find them in the message of a
# refusal. Tools are not among them. Some are found only where an error has a field that names them.
OPTION_PATTERNS: Final = {
    "response_format": re.compile(r"response_format|json_schema|structured output", re.IGNORECASE),
    "tool_choice": re.compile(r"tool_choice|tool choice", re.IGNORECASE),
    "stream_options": re.compile(r"stream_options|include_usage", re.IGNORECASE),
    "stream": re.compile(r"streaming (?:is )?not supported|not support stream", re.IGNORECASE),
    **dict.fromkeys(("temperature", "top_p", "max_tokens"), re.compile(r"(?!)")),
}
# Google returns the status of an invalid request for a wrong key.
_API_KEY_MENTION: Final = re.compile(r"\bapi[ _-]?key\b", re.IGNORECASE)
# Sent with status 500 although a retry is useless: llama.cpp without tool support.
_UNSUPPORTED_PATTERN: Final = re.compile(r"not supported|unsupported|not support|requires --", re.IGNORECASE)
_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
    413: "Shorten the request.",
}


@frozen
class FailedAttempt:
    """A failed attempt: its error, and what can be done about it."""

    error: ModelError
    can_retry: bool = False  # whether a retry may succeed
    wait: float | None = None  # delay in seconds that the server asked for
    option: str = ""  # the option that the model refuses


def build_timeout_error(model: str, timeout: float) -> ModelTimeout:
    """Build the error for a reply that was not received in time."""
    hint = "Raise the model's timeout, or choose a quicker model."
    return ModelTimeout(f"{model} did not answer within {timeout:g} s", model=model, hint=hint)


def build_unreachable_failure(cause: BaseException, model: str) -> FailedAttempt:
    """Build the failure for a server that did not respond, or a connection that broke before the response."""
    message = f"{model} cannot be reached: {_clean_message(str(cause)) or type(cause).__name__}"
    error = ModelUnavailable(message, model=model, hint="Check the model's base_url.")
    return FailedAttempt(error=error, can_retry=True)


def build_incomplete_failure(model: str) -> FailedAttempt:
    """Build the failure for an incomplete reply."""
    message = f"{model} closed the connection before its answer was complete"
    hint = "Try again; if it happens often, look at the server and at the proxy in front of it."
    return FailedAttempt(error=ModelUnavailable(message, model=model, hint=hint), can_retry=True)


def build_reported_failure(error: object, model: str) -> FailedAttempt:
    """Build the failure for an error in the body of a successful response."""
    code = as_mapping(error).get("code", as_mapping(error).get("status"))
    status = code if isinstance(code, int) and 400 <= code < 600 else 500
    return _build_failure(status, error, model, None, OPTION_PATTERNS)


def build_status_failure(
    response: httpx2.Response,
    body: object,
    model: str,
    options: Mapping[str, re.Pattern[str]] = OPTION_PATTERNS,
) -> FailedAttempt:
    """Build the failure for an error status. `options` find refused options in the server's message."""
    return _build_failure(response.status_code, body, model, _parse_wait(response, body), options)


def _build_failure(
    status: int, body: object, model: str, wait: float | None, options: Mapping[str, re.Pattern[str]]
) -> FailedAttempt:
    reported = _find_message(body)
    words = f": {reported}" if reported else ""
    option = _find_refused_option(body, reported, options) if status in (400, 422, 501) else ""
    if status in _BUSY_STATUSES or (status >= 500 and not _UNSUPPORTED_PATTERN.search(reported)):
        what = "is overloaded" if status in _OVERLOADED_STATUSES else "failed"
        message = f"{model} {what} (status {status}){words}"
        busy = ModelUnavailable(message, model=model, hint="Try again later.", status=status)
        return FailedAttempt(error=busy, can_retry=True, wait=wait, option=option)
    message = f"{model} refused the request (status {status}){words}"
    hint = _HINTS[401] if _API_KEY_MENTION.search(reported) else _HINTS.get(status)
    return FailedAttempt(error=ModelRefused(message, model=model, hint=hint, status=status), option=option)


def _find_refused_option(body: object, message: str, options: Mapping[str, re.Pattern[str]]) -> str:
    """Return the option that a server refuses: OpenAI's `param`, FastAPI's error location, or a message."""
    fields = as_mapping(body)
    candidates: list[object] = [fields.get("param"), as_mapping(fields.get("error")).get("param")]
    for problem in as_list(fields.get("detail"))[:20]:
        candidates += as_list(as_mapping(problem).get("loc"))[:5]
    named = (name for name in candidates if isinstance(name, str) and name in options)
    return next(named, "") or next((name for name, words in options.items() if words.search(message)), "")


def _parse_wait(response: httpx2.Response, body: object) -> float | None:
    """Return the delay that a server asks for, in a header or in Google's form. A date is ignored."""
    details = as_list(as_mapping(as_mapping(body).get("error")).get("details"))
    delays = (as_mapping(detail).get("retryDelay") for detail in details)
    for text in (response.headers.get("retry-after", ""), *map(str, delays)):
        try:
            seconds = float(text.removesuffix("s")[:20])
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _find_message(body: object) -> str:
    """Return the server's message from the error body."""
    fields = as_mapping(body)
    inner = as_mapping(fields.get("error")) or fields
    named = (inner.get("message"), fields.get("error"), fields.get("detail"), inner.get("type"))
    for candidate in (*named, inner.get("status"), body):
        if isinstance(candidate, str) and candidate.strip():
            return _clean_message(candidate)
    return ""


def _clean_message(text: str) -> str:
    return scrub(" ".join(text[: 10 * _MAX_MESSAGE_LENGTH].split()))[:_MAX_MESSAGE_LENGTH]


FIRST_DELAY: Final = 0.5
MAX_DELAY: Final = 10.0  # a longer requested delay is not waited for


def compute_delay(tries: int, requested: float | None) -> float | None:
    """Return the seconds to wait after `tries` failed attempts, or None if waiting is useless.

    `requested` is the delay that the server asked for. If the wait would exceed the deadline, raising the
    actual error is better than a timeout.
    """
    longest = min(FIRST_DELAY * 2 ** (tries - 1), MAX_DELAY)
    # With jitter, so that failed clients do not retry at the same time.
    backoff = random.uniform(longest / 2, longest)  # noqa: S311 - spreading load, not guarding a secret
    wait = backoff if requested is None else requested
    left = anyio.current_effective_deadline() - anyio.current_time()
    return wait if wait <= MAX_DELAY and wait < left else None


CONNECT_SECONDS: Final = 10.0
MAX_REPLY_BYTES: Final = 4 * 1024 * 1024
ENVELOPE_FACTOR: Final = 16  # an event contains one word of text in a few hundred bytes
MAX_REMEMBERED_MODELS: Final = 32  # models at one address with stored findings


class RemoteChat(ABC):
    """The base class of models behind an HTTP API. Connections are kept until the model is closed."""

    key_variables: tuple[str, ...]  # environment variables with a key for the vendor's own address

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = MAX_REPLY_BYTES) -> None:
        self._settings = settings
        self._reply_bytes = reply_bytes
        self._lock = anyio.Lock()
        self._connection: httpx2.AsyncClient | None = None
        self._key: str | None = None
        self._refused_options: OrderedDict[str, frozenset[str]] = OrderedDict()  # by model
        if settings.api_key:
            register_secret(settings.api_key)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        return self._settings.model

    @property
    def settings(self) -> ModelSettings:
        """The settings: URL, context window, prices."""
        return self._settings

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        """Return one reply within `timeout` seconds, including retries."""
        async with self._lock:
            if self._connection is None:
                self._connection = await anyio.to_thread.run_sync(self._create_connection)
            connection = self._connection
        began = time.perf_counter()
        try:
            with anyio.fail_after(self._settings.timeout):
                reply = await self._complete_on(connection, request, on_text)
        except TimeoutError as passed:
            raise build_timeout_error(request.model or self.name, self._settings.timeout) from passed
        return replace(reply, milliseconds=(time.perf_counter() - began) * 1000)

    async def _complete_on(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply:
        """Return the reply, with retries. Options that the model refuses are left out from then on.

        After text was streamed there are no more retries.
        """
        relay = None if on_text is None else TextRelay(on_text)
        failed = 0
        while True:
            result = await self._try_once(connection, request, relay)
            if isinstance(result, ModelReply):
                return result
            if relay is not None and relay.used:
                raise result.error from None
            if result.option and result.option not in self._get_refused_options(request):
                self._note_refused_option(request, result.option)
                continue
            failed += 1
            can_retry = result.can_retry and failed <= self._settings.retries
            wait = compute_delay(failed, result.wait) if can_retry else None
            if wait is None:
                raise result.error from None
            await anyio.sleep(wait)

    def _get_refused_options(self, request: ModelRequest) -> frozenset[str]:
        """Return the options that the model of this request has refused."""
        return self._refused_options.get(request.model or self.name, frozenset())

    def _note_refused_option(self, request: ModelRequest, option: str) -> None:
        """Remember a refused option. The number of models is limited, because callers can name any model."""
        name = request.model or self.name
        self._refused_options[name] = self._get_refused_options(request) | {option}
        while len(self._refused_options) > MAX_REMEMBERED_MODELS:
            self._refused_options.popitem(last=False)

    def _create_connection(self) -> httpx2.AsyncClient:
        """Return a new client. Nothing is sent yet."""
        import httpx2

        self._key = self._find_key()
        timeout = self._settings.timeout
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout)),
            follow_redirects=False,
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [self._limit_response]},
        )

    def _find_key(self) -> str | None:
        """Return the API key. A key from the environment is sent only to the vendor's own address."""
        if self._settings.api_key or self._settings.base_url:
            return self._settings.api_key
        for variable in self.key_variables:
            if found := os.environ.get(variable, "").strip():
                register_secret(found)
                return found
        message = f"no key is configured for the model {self.name}"
        hint = f"Set api_key of the model (better as ${{VARIABLE}}), or {self.key_variables[0]}."
        raise ConfigError(message, hint=hint)

    async def _limit_response(self, response: httpx2.Response) -> None:
        """Limit the size of a response, regardless of its status and headers.

        Event streams may be larger by their envelope. Raises `ModelReplyInvalid` for a compressed response.
        """
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = f"{self.name} sent a compressed reply, which was not asked for"
            hint = "Look at the proxy in front of the model."
            raise ModelReplyInvalid(message, model=self.name, hint=hint)
        allowed = self._reply_bytes * (ENVELOPE_FACTOR if is_event_stream(response) else 1)
        response.stream = _limit_bytes(response.stream, limit=allowed, model=self.name)

    @abstractmethod
    async def _try_once(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply | FailedAttempt:
        """Make one attempt. A failure names only an option that was sent and that the caller did not set."""


def _limit_bytes(stream: object, *, limit: int, model: str) -> httpx2.AsyncByteStream:
    """Return the stream. It raises `ModelReplyInvalid` after `limit` bytes."""
    import httpx2

    class LimitedStream(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = 0
            async for piece in whole:
                read += len(piece)
                if read > limit:
                    message = f"{model} answered with more than {limit:,} bytes"
                    raise ModelReplyInvalid(message, model=model, hint="Is its base_url right?")
                yield piece

        async def aclose(self) -> None:
            await whole.aclose()

    whole = cast("httpx2.AsyncByteStream", stream)
    return LimitedStream()


def is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")
