"""Servers that speak Anthropic's and Google's documented formats: real HTTP, scripted answers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fingerpost.llm.native import NativeChat
from fingerpost.settings import ModelSettings
from fingerpost.testing import served

KEY = "native-key-0123456789abcdef"


class Vendor:
    """What was asked, and what is answered: one answer per request, the last for ever."""

    def __init__(self, *answers: Response) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.reached = anyio.Event()
        self.gone = anyio.Event()
        self._answers = list(answers)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        self.asked.append(json.loads(await request.body()))
        self.headers.append(dict(request.headers))
        query = f"?{request.url.query}" if request.url.query else ""
        self.paths.append(request.url.path + query)
        self.reached.set()
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class HangingVendor(Vendor):
    """Takes the request and never answers; `gone` is set when the client has hung up."""

    async def answer(self, request: Request) -> Response:
        answer = await super().answer(request)
        while not await request.is_disconnected():  # noqa: ASYNC110 - starlette offers no event for it
            await anyio.sleep(0.01)
        self.gone.set()
        return answer


@asynccontextmanager
async def native(
    vendor: Vendor, provider: str, *, limit: int | None = None, **settings: Any
) -> AsyncGenerator[NativeChat]:
    """Our adapter, speaking to `vendor` over the loopback."""
    async with served(vendor.app) as address:
        given = {"model": "m-1", "base_url": address, "api_key": KEY, "timeout": 20, "provider": provider}
        bound = {} if limit is None else {"reply_bytes": limit}
        async with NativeChat(ModelSettings.model_validate({**given, **settings}), **bound) as client:
            yield client


def create_stream(events: Iterable[Mapping[str, Any] | bytes], *, then: float = 0) -> Response:
    """Server-sent events, cut at odd places; `then` seconds pass before the connection ends."""
    body = b""
    for event in events:
        if isinstance(event, bytes):
            body += event
            continue
        name = f"event: {event['type']}\n" if "type" in event else ""  # only Anthropic names them
        body += f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 11):
            yield body[at : at + 11]
        await anyio.sleep(then)

    return StreamingResponse(pieces(), media_type="text/event-stream")


def create_error(
    status: int, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> Response:
    error = {"type": "invalid_request_error", "message": message, **more}
    return JSONResponse({"type": "error", "error": error}, status, headers=headers)


def message(*blocks: Mapping[str, Any], stop: str = "end_turn", **more: Any) -> Response:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 7}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m-1-20260101"}
    return JSONResponse({**body, "content": list(blocks), "stop_reason": stop, "usage": usage, **more})


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def message_events(*deltas: Mapping[str, Any], stop: str = "end_turn") -> list[dict[str, Any]]:
    """A streamed message: `deltas` are whole events between its start and its end."""
    start = {"id": "msg_1", "model": "m-1-20260101", "usage": {"input_tokens": 10, "output_tokens": 1}}
    return [
        {"type": "message_start", "message": start},
        {"type": "ping"},
        *[dict(delta) for delta in deltas],
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]


def block_start(index: int, block: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": dict(block)}


def block_delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def piece(*parts: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 4, "totalTokenCount": 14}
    return {"candidates": [candidate], "modelVersion": "m-1-001", "usageMetadata": usage, **more}


def content(*parts: Mapping[str, Any], finish: str = "STOP", **more: Any) -> Response:
    return JSONResponse(piece(*parts, finish=finish, **more))
