"""A small OpenAI-compatible server with scripted answers: real HTTP, real status codes, real faults."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fingerpost.llm import OpenAIChat
from fingerpost.llm.remote import MAX_REPLY_BYTES
from fingerpost.settings import ModelSettings
from fingerpost.testing import served

KEY = "sk-test-0123456789abcdefghij"

Answer = Callable[[dict[str, Any]], Response]


def create_reply(text: str | None, **more: Any) -> Response:
    """An ordinary reply."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "tiny-1"}
    return JSONResponse({**body, "choices": [choice], "usage": usage, **more})


def create_error(
    status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    return JSONResponse({"error": {"message": message, **more}}, status, headers=headers)


def raw(body: bytes, *, status: int = 200, kind: str = "application/json") -> Response:
    return Response(body, status, media_type=kind)


def endless(status: int = 200) -> Response:
    async def chunks() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536
            await anyio.lowlevel.checkpoint()  # or nothing else would ever run on this loop

    return StreamingResponse(chunks(), status, media_type="application/json")


def events(*pieces: Mapping[str, Any] | str | bytes, done: bool = True, hold: bool = False) -> Response:
    """A stream: chunks as objects, other lines as they are. `hold` never ends it."""

    async def chunks() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield _event(piece)
            await anyio.lowlevel.checkpoint()
        if done:
            yield b"data: [DONE]\n\n"
        if hold:
            await anyio.sleep_forever()

    return StreamingResponse(chunks(), media_type="text/event-stream")


def _event(piece: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(piece, bytes):
        return piece
    return f"data: {piece if isinstance(piece, str) else json.dumps(piece)}\n\n".encode()


def chunk(text: str | None = None, *, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One piece of a streamed reply."""
    body_delta = delta if text is None else {"content": text, **delta}
    return {"model": "tiny-1", "choices": [{"index": 0, "delta": body_delta, "finish_reason": finish}]}


def create_usage_chunk(prompt: int = 12, completion: int = 3) -> dict[str, Any]:
    """The piece that ends a stream with its usage."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"model": "tiny-1", "choices": [], "usage": usage}


def compress_reply(text: str) -> Response:
    body = gzip.compress(create_reply(text).body)
    return Response(body, media_type="application/json", headers={"content-encoding": "gzip"})


class ModelServer:
    """What the server was asked, and what it answers next: one answer per request, the last for ever."""

    def __init__(self, *answers: Answer | Response) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.reached = anyio.Event()
        self.gone = anyio.Event()
        self._answers = list(answers)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self.complete, methods=["POST"])])

    async def complete(self, request: Request) -> Response:
        self.asked.append(json.loads(await request.body()))
        self.headers.append(dict(request.headers))
        self.reached.set()
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return answer(self.asked[-1]) if not isinstance(answer, Response) else answer


class Hanging(ModelServer):
    """Takes the request and never answers; `gone` is set when the client has hung up."""

    async def complete(self, request: Request) -> Response:
        await super().complete(request)
        while not await request.is_disconnected():  # noqa: ASYNC110 - starlette offers no event for it
            await anyio.sleep(0.01)
        self.gone.set()
        return create_reply("too late")


@asynccontextmanager
async def chat(
    model: ModelServer, *, limit: int | None = None, **settings: Any
) -> AsyncGenerator[OpenAIChat]:
    """Our adapter, speaking to `model` over the loopback."""
    async with served(model.app) as address:
        given = {"model": "tiny", "base_url": f"{address}/v1", "api_key": KEY, "timeout": 20, **settings}
        bound = MAX_REPLY_BYTES if limit is None else limit
        async with OpenAIChat(ModelSettings.model_validate(given), reply_bytes=bound) as client:
            yield client
