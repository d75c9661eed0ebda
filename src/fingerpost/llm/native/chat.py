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
from fingerpost.llm.connection import CONNECT_SECONDS, ENVELOPE_FACTOR
from fingerpost.llm.failures import FailedAttempt, build_broken_off, build_reported, build_unreachable
from fingerpost.llm.native.anthropic import AnthropicDialect
from fingerpost.llm.native.dialect import NativeDialect, NativeRequest
from fingerpost.llm.native.draft import ReplyDraft
from fingerpost.llm.native.failures import build_from_status, build_unreadable, parse_object
from fingerpost.llm.native.google import GoogleDialect
from fingerpost.llm.native.options import apply_caller_options
from fingerpost.llm.remote import MAX_REPLY_BYTES, RemoteChat
from fingerpost.llm.sse import ModelEventParser
from fingerpost.redaction import register_secret
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2

AFTER_END_SECONDS: Final = 0.2  # seconds for a stream that has said everything to end
REASONING_TOKENS: Final = 8192  # tokens, for a model whose thoughts count against the limit of its answer


class NativeChat(RemoteChat["httpx2.AsyncClient"]):
    """One model. Close it when done; connections are kept in between."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__(settings, reply_bytes=reply_bytes)
        self._dialect = _get_dialect(settings)
        self._room = 0
        self._key: str | None = None

    async def _complete_on(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply:
        """The reply, at whichever try it comes. What was handed over already ends all trying."""
        failed = 0
        while True:
            draft = ReplyDraft(request.model or self.name, on_text, self._reply_bytes)
            setback = await self._try_once(connection, request, draft)
            if setback is None:
                if not draft.is_starved or self._room:
                    return draft.build_reply()
                self._room = REASONING_TOKENS
            elif draft.told:
                raise setback.error from None
            elif not self._drop_refused_option(setback, request):
                failed += 1
                await self._wait(setback, failed)

    def _drop_refused_option(self, failed: FailedAttempt, request: ModelRequest) -> bool:
        """Whether the request can be sent again, less an option the model has just refused."""
        if not failed.option or failed.option in self._get_refused_options(request):
            return False
        if failed.option in request.options:  # a caller insists on it, and is told
            return False
        self._note_refused_option(request, failed.option)
        return True

    async def _try_once(
        self, client: httpx2.AsyncClient, request: ModelRequest, draft: ReplyDraft
    ) -> FailedAttempt | None:
        """One try. What was read is in `draft`; what went wrong comes back."""
        import httpx2

        streamed = draft.on_text is not None
        model, unwanted = request.model or self.name, self._get_refused_options(request)
        wish = NativeRequest(
            request=apply_caller_options(request),
            model=model,
            without=unwanted,
            room=self._room,
            streamed=streamed,
        )
        address = self._dialect.build_url(self._settings.base_url, model, streamed=streamed)
        headers = self._dialect.build_headers(self._key, unwanted)
        content = json.dumps(self._dialect.build_body(wish)).encode()
        begun = False
        try:
            async with client.stream("POST", address, content=content, headers=headers) as response:
                begun = response.is_success
                if not begun:
                    await response.aread()
                    return build_from_status(response, self._dialect.options, model=model)
                if _is_event_stream(response):
                    return await self._read_stream(response, draft)
                return self._read_whole(await response.aread(), draft)
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, anyio.EndOfStream) as error:
            return build_broken_off(self.name) if begun else build_unreachable(error, self.name)

    def _read_whole(self, content: bytes, draft: ReplyDraft) -> FailedAttempt | None:
        """Take in a reply that came in one piece."""
        body = parse_object(content)
        if body is None:
            raise build_unreadable(content, model=self.name)
        if body.get("error"):
            return build_reported(body["error"], self.name)
        if not self._dialect.read_reply(draft, body):
            raise build_unreadable(content, model=self.name)
        return None

    async def _read_stream(self, response: httpx2.Response, draft: ReplyDraft) -> FailedAttempt | None:
        """Take in a reply piece by piece, to its end."""
        reader = ModelEventParser()
        with anyio.CancelScope() as patience:
            async for piece in response.aiter_bytes():
                if (broken := self._read_events(reader.parse(piece), draft)) is not None:
                    return broken
                if draft.ended:
                    patience.deadline = min(patience.deadline, anyio.current_time() + AFTER_END_SECONDS)
        return self._read_events(reader.finish(), draft) or (
            None if draft.ended else build_broken_off(self.name)
        )

    def _read_events(self, events: list[str], draft: ReplyDraft) -> FailedAttempt | None:
        for event in events:
            body = parse_object(event)
            if body is None:  # a proxy's own remark
                continue
            if body.get("error"):
                return build_reported(body["error"], self.name)
            self._dialect.read_event(draft, body)
        return None

    def _build(self) -> httpx2.AsyncClient:
        import httpx2

        self._key = self._find_key()
        settings = self._settings
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(settings.timeout, connect=min(CONNECT_SECONDS, settings.timeout)),
            follow_redirects=False,
            headers={"accept-encoding": "identity", "content-type": "application/json"},
            event_hooks={"response": [self._limit_response]},
        )

    def _find_key(self) -> str | None:
        """The key. One from the environment is meant for the vendor and goes to nobody else."""
        if self._settings.api_key or self._settings.base_url:
            return self._settings.api_key
        for variable in self._dialect.variables:
            if found := os.environ.get(variable, "").strip():
                register_secret(found)
                return found
        message = f"no key is configured for the model {self.name}"
        hint = f"Set api_key of the model (better as ${{VARIABLE}}), or {self._dialect.variables[0]}."
        raise ConfigError(message, hint=hint)

    async def _limit_response(self, response: httpx2.Response) -> None:
        """No reply is read beyond the limit, whatever it is and whatever it claims to be."""
        from fingerpost.llm.bounded import limit_bytes

        if response.headers.get("content-encoding", "identity").lower() != "identity":
            message = f"{self.name} sent a compressed reply, which was not asked for"
            raise ModelReplyInvalid(message, model=self.name, hint="Look at the proxy in front of the model.")
        limit = self._reply_bytes * (ENVELOPE_FACTOR if _is_event_stream(response) else 1)
        response.stream = limit_bytes(response.stream, limit=limit, model=self.name)


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _get_dialect(settings: ModelSettings) -> NativeDialect:
    if settings.provider == "anthropic":
        return AnthropicDialect()
    if settings.provider == "google":
        return GoogleDialect()
    message = f"the model {settings.model} is not behind a native API: its provider is {settings.provider}"
    raise ConfigError(message, hint='Set provider to "anthropic" or "google", or use OpenAIChat.')
