"""One client of the `openai` package, on a short leash. Loaded, and made, in a worker thread.

Replies come as raw bytes: the package would make a reply out of anything. Whether
they are a stream of events or one JSON object is for the server to say; it may do
the one though it was asked for the other.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from fingerpost.errors import ConfigError, ModelReplyInvalid
from fingerpost.llm.base import ModelReply, OnText
from fingerpost.llm.failures import FailedAttempt, build_failed_attempt, build_reported, build_unreachable
from fingerpost.llm.stream import StreamBroken, assemble_reply
from fingerpost.llm.wire import read_body, read_reply
from fingerpost.records import Json
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

OPENAI_URL: Final = "https://api.openai.com/v1"
CONNECT_SECONDS: Final = 10.0
# An event carries one word of text in a few hundred bytes of wrapping.
ENVELOPE_FACTOR: Final = 16
_EVENT_STREAM_TYPE: Final = "text/event-stream"
_PACKAGE_FIELDS: Final = ("model", "stream")  # what the package has to know
_EVENT_STARTS: Final = (b"data:", b"event:", b":")

# Sent where a server needs no key: the package insists on one, and a key meant for OpenAI
# (OPENAI_API_KEY) must not go to somebody else.
_NO_KEY: Final = "none"


class OpenAIConnection:
    """Asks once. What went wrong is a value; whether to ask again is not decided here."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int) -> None:
        self._settings = settings
        self._model = settings.model
        self._limit = reply_bytes
        self._client = self._build()

    async def aclose(self) -> None:
        await self._client.close()

    async def ask(self, body: Mapping[str, Json], on_text: OnText | None) -> ModelReply | FailedAttempt:
        """The reply to this body, its text handed over as it comes."""
        import httpx2
        from openai import OpenAIError

        # Untyped, because which options are sent is decided at run time; a caller's own are not
        # known to the package, so all go out as they are. So do the messages: the package would compare
        # each of them with its types, a millisecond for each, and nobody else is served meanwhile.
        create = cast("Any", self._client.chat.completions.with_streaming_response.create)
        model = str(body["model"])
        named = {name: body[name] for name in _PACKAGE_FIELDS if name in body}
        rest = {name: value for name, value in body.items() if name not in _PACKAGE_FIELDS}
        try:
            async with create(**named, messages=(), extra_body=rest) as raw:
                return await self._read_response(cast("httpx2.Response", raw.http_response), model, on_text)
        except OpenAIError as error:
            return build_failed_attempt(error, model=model, timeout=self._settings.timeout)
        except StreamBroken as cut:
            return build_unreachable(cut.__cause__ or cut, model)
        except httpx2.HTTPError as error:  # while the package read the body of an error
            return build_unreachable(error, model)

    async def _read_response(
        self, response: httpx2.Response, model: str, on_text: OnText | None
    ) -> ModelReply | FailedAttempt:
        async with aclosing(_iterate_body(response)) as pieces:
            if response.headers.get("content-type", "").startswith(_EVENT_STREAM_TYPE):
                return await assemble_reply(pieces, model=model, limit=self._limit, on_text=on_text)
            content = b"".join([piece async for piece in pieces])
        if content.lstrip().startswith(_EVENT_STARTS):
            return await assemble_reply(
                _iterate_once(content), model=model, limit=self._limit, on_text=on_text
            )
        fields = read_body(content, model=model)
        if fields.get("error") and not fields.get("choices"):
            return build_reported(fields["error"], model)
        reply = read_reply(fields, model=model)
        if on_text is not None and reply.text:
            on_text(reply.text)
        return reply

    def _build(self) -> AsyncOpenAI:
        try:
            import httpx2
            from openai import AsyncOpenAI, OpenAIError
        except ImportError as missing:
            message = f"the model {self._model} needs the package `openai`, which is not installed"
            raise ConfigError(message, hint="pip install 'fingerpost[openai]'") from missing
        settings = self._settings
        timeout = httpx2.Timeout(settings.timeout, connect=min(CONNECT_SECONDS, settings.timeout))
        connections = httpx2.AsyncClient(
            timeout=timeout,
            follow_redirects=False,
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [self._limit_response]},
        )
        try:
            return AsyncOpenAI(
                api_key=settings.api_key or (_NO_KEY if settings.base_url else None),
                base_url=settings.base_url or OPENAI_URL,
                timeout=timeout,
                max_retries=0,
                http_client=connections,
            )
        except OpenAIError as error:
            message = f"no key is configured for the model {self._model}"
            hint = "Set api_key of the model (better as ${VARIABLE}), or OPENAI_API_KEY."
            raise ConfigError(message, hint=hint) from error

    async def _limit_response(self, response: httpx2.Response) -> None:
        """No reply is read beyond the limit, whatever it is and whatever it claims to be."""
        from fingerpost.llm.bounded import limit_bytes

        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = f"{self._model} sent a compressed reply, which was not asked for"
            raise ModelReplyInvalid(
                message, model=self._model, hint="Look at the proxy in front of the model."
            )
        events = response.headers.get("content-type", "").startswith(_EVENT_STREAM_TYPE)
        limit = self._limit * ENVELOPE_FACTOR if events else self._limit
        response.stream = limit_bytes(response.stream, limit=limit, model=self._model)


async def _iterate_body(response: httpx2.Response) -> AsyncGenerator[bytes]:
    """The body as it comes. A connection that breaks is a `StreamBroken`, whatever the library calls it."""
    import httpx2

    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                yield piece
    except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, anyio.EndOfStream) as broken:
        raise StreamBroken(str(broken) or type(broken).__name__) from broken


async def _iterate_once(content: bytes) -> AsyncGenerator[bytes]:
    yield content
