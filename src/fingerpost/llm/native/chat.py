"""A model behind Anthropic's or Google's own API.

The bounds are those of `OpenAIChat`: one deadline over everything, a limit on the bytes of
a reply, no redirects, options a model refuses are left out from then on. The HTTP library
is loaded, and its client built, when the first question is asked, in a worker thread.
"""

from __future__ import annotations

import json
import os
import ssl
from typing import TYPE_CHECKING, Final

import anyio

from fingerpost.errors import ConfigError, ModelReplyInvalid
from fingerpost.llm.base import ModelReply, ModelRequest, OnText
from fingerpost.llm.connection import CONNECT_SECONDS, WRAPPING
from fingerpost.llm.failures import Setback, broke_off, reported, unreachable
from fingerpost.llm.native.anthropic import AnthropicDialect
from fingerpost.llm.native.dialect import Dialect, Wish
from fingerpost.llm.native.draft import Draft
from fingerpost.llm.native.failures import object_in, of_status, unreadable
from fingerpost.llm.native.google import GoogleDialect
from fingerpost.llm.native.options import settled
from fingerpost.llm.remote import REPLY_BYTES, RemoteChat
from fingerpost.llm.sse import EventReader
from fingerpost.redaction import remember
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2

AFTERWARDS: Final = 0.2  # seconds for a stream that has said everything to end
ROOM_TO_THINK: Final = 8192  # tokens, for a model whose thoughts count against the limit of its answer


class NativeChat(RemoteChat["httpx2.AsyncClient"]):
    """One model. Close it when done; connections are kept in between."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = REPLY_BYTES) -> None:
        super().__init__(settings, reply_bytes=reply_bytes)
        self._dialect = _dialect_of(settings)
        self._room = 0
        self._key: str | None = None

    async def _asked(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply:
        """The reply, at whichever try it comes. What was handed over already ends all trying."""
        failed = 0
        while True:
            draft = Draft(request.model or self.name, on_text, self._reply_bytes)
            setback = await self._once(connection, request, draft)
            if setback is None:
                if not draft.starved or self._room:
                    return draft.reply()
                self._room = ROOM_TO_THINK
            elif draft.told:
                raise setback.error from None
            elif not self._does_without(setback, request):
                failed += 1
                await self._wait(setback, failed)

    def _does_without(self, setback: Setback, request: ModelRequest) -> bool:
        """Whether the request can be sent again, less an option the model has just refused."""
        if not setback.option or setback.option in self._unwanted_by(request):
            return False
        if setback.option in request.options:  # a caller insists on it, and is told
            return False
        self._refuses(request, setback.option)
        return True

    async def _once(self, client: httpx2.AsyncClient, request: ModelRequest, draft: Draft) -> Setback | None:
        """One try. What was read is in `draft`; what went wrong comes back."""
        import httpx2

        streamed = draft.on_text is not None
        model, unwanted = request.model or self.name, self._unwanted_by(request)
        wish = Wish(
            request=settled(request), model=model, without=unwanted, room=self._room, streamed=streamed
        )
        address = self._dialect.address(self._settings.base_url, model, streamed=streamed)
        headers = self._dialect.headers(self._key, unwanted)
        content = json.dumps(self._dialect.body(wish)).encode()
        begun = False
        try:
            async with client.stream("POST", address, content=content, headers=headers) as response:
                begun = response.is_success
                if not begun:
                    await response.aread()
                    return of_status(response, self._dialect.options, model=model)
                if _has_events(response):
                    return await self._follow(response, draft)
                return self._read(await response.aread(), draft)
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, anyio.EndOfStream) as error:
            return broke_off(self.name) if begun else unreachable(error, self.name)

    def _read(self, content: bytes, draft: Draft) -> Setback | None:
        """Take in a reply that came in one piece."""
        body = object_in(content)
        if body is None:
            raise unreadable(content, model=self.name)
        if body.get("error"):
            return reported(body["error"], self.name)
        if not self._dialect.read(draft, body):
            raise unreadable(content, model=self.name)
        return None

    async def _follow(self, response: httpx2.Response, draft: Draft) -> Setback | None:
        """Take in a reply piece by piece, to its end."""
        reader = EventReader()
        with anyio.CancelScope() as patience:
            async for piece in response.aiter_bytes():
                if (broken := self._take(reader.feed(piece), draft)) is not None:
                    return broken
                if draft.ended:
                    patience.deadline = min(patience.deadline, anyio.current_time() + AFTERWARDS)
        return self._take(reader.finish(), draft) or (None if draft.ended else broke_off(self.name))

    def _take(self, events: list[str], draft: Draft) -> Setback | None:
        for event in events:
            body = object_in(event)
            if body is None:  # a proxy's own remark
                continue
            if body.get("error"):
                return reported(body["error"], self.name)
            self._dialect.follow(draft, body)
        return None

    def _build(self) -> httpx2.AsyncClient:
        import httpx2

        self._key = self._found_key()
        settings = self._settings
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(settings.timeout, connect=min(CONNECT_SECONDS, settings.timeout)),
            follow_redirects=False,
            headers={"accept-encoding": "identity", "content-type": "application/json"},
            event_hooks={"response": [self._bound]},
        )

    def _found_key(self) -> str | None:
        """The key. One from the environment is meant for the vendor and goes to nobody else."""
        if self._settings.api_key or self._settings.base_url:
            return self._settings.api_key
        for variable in self._dialect.variables:
            if found := os.environ.get(variable, "").strip():
                remember(found)
                return found
        message = f"no key is configured for the model {self.name}"
        hint = f"Set api_key of the model (better as ${{VARIABLE}}), or {self._dialect.variables[0]}."
        raise ConfigError(message, hint=hint)

    async def _bound(self, response: httpx2.Response) -> None:
        """No reply is read beyond the limit, whatever it is and whatever it claims to be."""
        from fingerpost.llm.bounded import bounded

        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = f"{self.name} sent a compressed reply, which was not asked for"
            raise ModelReplyInvalid(message, model=self.name, hint="Look at the proxy in front of the model.")
        limit = self._reply_bytes * (WRAPPING if _has_events(response) else 1)
        response.stream = bounded(response.stream, limit=limit, model=self.name)


def _has_events(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _dialect_of(settings: ModelSettings) -> Dialect:
    if settings.provider == "anthropic":
        return AnthropicDialect()
    if settings.provider == "google":
        return GoogleDialect()
    message = f"the model {settings.model} is not behind a native API: its provider is {settings.provider}"
    raise ConfigError(message, hint='Set provider to "anthropic" or "google", or use OpenAIChat.')
