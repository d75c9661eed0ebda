"""Any model behind an OpenAI-compatible address, through the `openai` package.

The package keeps the wire; the bounds are ours: one deadline over everything,
at most one repetition, a limit on the size of a reply, no redirects. It is loaded,
and its client built, when the first question is asked, in a worker thread: both
take a good part of a second.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import anyio
import anyio.to_thread

from fingerpost.errors import ConfigError, ModelReplyInvalid, ModelTimeout
from fingerpost.llm.base import ModelReply, ModelRequest
from fingerpost.llm.failures import Setback, setback_of
from fingerpost.llm.wire import body_of, read_reply
from fingerpost.records import Json
from fingerpost.redaction import remember
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI

OPENAI: Final = "https://api.openai.com/v1"
CONNECT_SECONDS: Final = 10.0
LONGEST_WAIT: Final = 10.0  # a server that asks for more patience than this is not waited for
REPLY_BYTES: Final = 4 * 1024 * 1024

# Sent where a server needs no key: the package insists on one, and a key meant for OpenAI
# (OPENAI_API_KEY) must not go to somebody else.
_NO_KEY: Final = "none"


class OpenAIChat:
    """One model. Close it when done; connections are kept in between."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = REPLY_BYTES) -> None:
        self._settings = settings
        self._reply_bytes = reply_bytes
        self._lock = anyio.Lock()
        self._client: AsyncOpenAI | None = None
        self._unwanted: frozenset[str] = frozenset()  # options this model has refused
        if settings.api_key:
            remember(settings.api_key)

    @property
    def name(self) -> str:
        return self._settings.model

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def complete(self, request: ModelRequest) -> ModelReply:
        """One reply, within `timeout` seconds, a repetition included."""
        client = await self._opened()
        began = time.perf_counter()
        try:
            with anyio.fail_after(self._settings.timeout):
                content = await self._asked(client, request)
        except TimeoutError as late:
            message = f"{self.name} did not answer within {self._settings.timeout:g} s"
            raise ModelTimeout(
                message, model=self.name, hint="Raise the model's timeout, or choose a quicker model."
            ) from late
        return read_reply(content, model=self.name, milliseconds=(time.perf_counter() - began) * 1000)

    async def _asked(self, client: AsyncOpenAI, request: ModelRequest) -> bytes:
        """The body of the reply. Options the model refuses are left out, from then on."""
        repeated = False
        while True:
            body = body_of(request, model=self.name, without=self._unwanted)
            result = await self._once(client, body)
            if isinstance(result, bytes):
                return result
            if result.option in body:
                self._unwanted |= {result.option}
            elif result.wait is not None and result.wait <= LONGEST_WAIT and not repeated:
                repeated = True
                await anyio.sleep(result.wait)
            else:
                raise result.error from None

    async def _once(self, client: AsyncOpenAI, body: Mapping[str, Json]) -> bytes | Setback:
        from openai import OpenAIError

        # Raw, because the package would make a reply out of anything; and untyped, because which options
        # are sent is decided here at run time.
        create = cast("Any", client.chat.completions.with_raw_response.create)
        try:
            raw = await create(**body)
        except OpenAIError as error:
            return setback_of(error, model=self.name, timeout=self._settings.timeout)
        return cast("bytes", raw.content)

    async def _opened(self) -> AsyncOpenAI:
        async with self._lock:
            if self._client is None:
                self._client = await anyio.to_thread.run_sync(self._build)
            return self._client

    def _build(self) -> AsyncOpenAI:
        try:
            import httpx2
            from openai import AsyncOpenAI, OpenAIError
        except ImportError as missing:
            message = f"the model {self.name} needs the package `openai`, which is not installed"
            raise ConfigError(message, hint="pip install 'fingerpost[openai]'") from missing
        settings = self._settings
        timeout = httpx2.Timeout(settings.timeout, connect=min(CONNECT_SECONDS, settings.timeout))
        connections = httpx2.AsyncClient(
            timeout=timeout,
            follow_redirects=False,
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [self._bound]},
        )
        try:
            return AsyncOpenAI(
                api_key=settings.api_key or (_NO_KEY if settings.base_url else None),
                base_url=settings.base_url or OPENAI,
                timeout=timeout,
                max_retries=0,
                http_client=connections,
            )
        except OpenAIError as error:
            message = f"no key is configured for the model {self.name}"
            hint = "Set api_key of the model (better as ${VARIABLE}), or OPENAI_API_KEY."
            raise ConfigError(message, hint=hint) from error

    async def _bound(self, response: httpx2.Response) -> None:
        """No reply is read beyond the limit, whatever it is and whatever it claims to be."""
        from fingerpost.llm.bounded import bounded

        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = f"{self.name} sent a compressed reply, which was not asked for"
            raise ModelReplyInvalid(message, model=self.name, hint="Look at the proxy in front of the model.")
        response.stream = bounded(response.stream, limit=self._reply_bytes, model=self.name)
