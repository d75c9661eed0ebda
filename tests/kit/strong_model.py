"""A strong model behind a real OpenAI-compatible address: a stand-in whose judgement is written down.

It tells selection, review and answer apart by what it is asked for, as a real one would,
and streams its answer in pieces where that is wanted.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from subprocess import CompletedProcess
from typing import Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fingerpost.testing import served
from tests.kit.command_line import CommandLine

PIECE = 6
USAGE = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}

Select = Callable[[str], dict[str, Any] | None]  # what the model reads → the tool and its arguments


@dataclass
class StrongModel:
    """`select` says which tool for what was asked, `answer` is what it writes in the end."""

    select: Select = lambda _: None
    answer: str | Callable[[str], str] = "Done."
    sure: float = 0.95
    approves: bool = True
    stops_after: int | None = None  # pieces: then it says nothing more and holds the line
    asked: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    halfway: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=[Route("/v1/chat/completions", self.complete, methods=["POST"])])

    def about(self, purpose: str) -> list[dict[str, Any]]:
        """The questions of one kind, in order."""
        return [body for body in self.asked if purpose_of(body) == purpose]

    async def complete(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.asked.append(body)
        text = self._says(body)
        if body.get("stream"):
            return StreamingResponse(self._pieces(text, request), media_type="text/event-stream")
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}
        return JSONResponse({**_envelope("chat.completion"), "choices": [choice], "usage": USAGE})

    def _says(self, body: dict[str, Any]) -> str:
        read = "\n".join(str(message.get("content")) for message in body["messages"])
        match purpose_of(body):
            case "selection":
                chosen = self.select(read) or {"tool": None, "arguments": {}}
                more: dict[str, Any] = {
                    "reasoning": "it fits",
                    "confidence": self.sure,
                    "alternatives": [],
                    "remaining": "",
                }
                return json.dumps({**more, **chosen})
            case "review":
                verdict = {"approved": self.approves, "confidence": self.sure if self.approves else 0.3}
                return json.dumps({**verdict, "reasoning": "as asked"})
            case _:
                return self.answer if isinstance(self.answer, str) else self.answer(read)

    async def _pieces(self, text: str, request: Request) -> AsyncIterator[bytes]:
        pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
        for number, piece in enumerate(pieces):
            if number == self.stops_after:
                await self._hold(request)
                return
            yield _event({"choices": [{"index": 0, "delta": {"content": piece}}]})
            await anyio.sleep(0.001)
        yield _event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        yield _event({"choices": [], "usage": USAGE})
        yield b"data: [DONE]\n\n"

    async def _hold(self, request: Request) -> None:
        self.halfway.set()
        try:
            while not await request.is_disconnected():  # noqa: ASYNC110 - starlette offers no event for it
                await anyio.sleep(0.01)
        finally:
            self.gone.set()


def purpose_of(body: dict[str, Any]) -> str:
    """What the request wants: the name of the shape it asks for, else an answer."""
    shape = body.get("response_format", {}).get("json_schema", {})
    return shape.get("name", "answer")


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1, "model": "strong-1"}


def _event(more: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({**_envelope("chat.completion.chunk"), **more}).encode() + b"\n\n"


def settings_for(address: str) -> str:
    """The settings file that makes it the prime model."""
    return (
        "[flags]\ndense_scores = false\n"
        f'[models.prime]\nmodel = "strong"\nbase_url = "{address}/v1"\ntimeout = 20\nretries = 0\n'
    )


@asynccontextmanager
async def beside(person: CommandLine, model: StrongModel) -> AsyncGenerator[None]:
    """The person has this model configured, until the block ends."""
    async with served(model.app) as address:
        person.writes("fingerpost.toml", settings_for(address))
        yield


async def runs(person: CommandLine, *arguments: str, stdin: str | None = None) -> CompletedProcess[str]:
    """The command, while the model beside it goes on answering."""
    return await anyio.to_thread.run_sync(lambda: person.runs(*arguments, stdin=stdin))
