"""A served /v1 with a scripted model and servers of the test's own, and clients for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from openai import AsyncOpenAI

from fingerpost import Router
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.http.server import get_address, listen_at
from fingerpost.surfaces.openai.app import OpenAIApp, open_openai_app
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.gateways import run_app
from tests.kit.routers import open_router

PATIENCE_S = 60.0
MAP: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "show_map",
        "description": "Show a place on the caller's own screen",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}


@dataclass(frozen=True, slots=True)
class ServedCompletions:
    """A running /v1."""

    address: str
    router: Router
    app: OpenAIApp
    clock: ToolServer
    notes: ToolServer

    def client(self, **more: Any) -> AsyncOpenAI:
        """The openai client, with nothing changed but the base URL."""
        given: dict[str, Any] = {"api_key": "anything", "max_retries": 0, **more}
        return AsyncOpenAI(base_url=f"{self.address}/v1", **given)

    def plain(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.address, timeout=PATIENCE_S)


@dataclass(frozen=True, slots=True)
class CompletionsResponse:
    """An answer over plain HTTP."""

    status: int
    json: Any
    headers: dict[str, str]

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def text(self) -> str:
        return self.json["choices"][0]["message"]["content"]


def clock_server() -> ToolServer:
    async def tell(name: str, arguments: dict[str, Any]) -> str:
        return f"it is 21:00 in {arguments['timezone']}"

    zone = {"type": "object", "properties": {"timezone": {"type": "string"}}, "required": ["timezone"]}
    now = {
        "name": "get_current_time",
        "description": "Get the current time in a time zone such as Asia/Tokyo",
        "inputSchema": zone,
        "annotations": {"readOnlyHint": True},
    }
    return tool_server("time", [now], call=tell)


def notes_server() -> ToolServer:
    async def write(name: str, arguments: dict[str, Any]) -> str:
        return f"written: {arguments['text']}"

    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    note = {
        "name": "delete_and_write_note",
        "description": "Write a note, deleting the one that was there",
        "inputSchema": text,
        "annotations": {"readOnlyHint": False, "destructiveHint": True},
    }
    return tool_server("notes", [note], call=write)


@asynccontextmanager
async def open_served_completions(
    folder: Path, model: ScriptedModel | None = None, **more: Any
) -> AsyncGenerator[ServedCompletions]:
    """A router with two servers, its /v1 served on a free port."""
    clock, notes = clock_server(), notes_server()
    servers = (clock.spec(), notes.spec())
    async with (
        open_router(folder, servers, model, **more) as router,
        serve_completions(router) as (address, app),
    ):
        yield ServedCompletions(address, router, app, clock, notes)


@asynccontextmanager
async def serve_completions(router: Router) -> AsyncGenerator[tuple[str, OpenAIApp]]:
    """/v1 of this router at an address, behind the real gate."""
    listening = listen_at("127.0.0.1", 0)
    bound = get_address(listening)
    gate = build_authenticator(
        router.settings.gateway,
        keys=router.store.keys,
        events=router.events,
        bound=bound,
        profiles=router.settings.profiles,
    )
    with listening:
        async with (
            open_openai_app(router, authenticator=gate, address=f"http://{bound}") as app,
            run_app(app, listening),
        ):
            yield f"http://{bound}", app


def user(text: str) -> Any:
    """What a person says, in a message."""
    return {"role": "user", "content": text}


async def ask(
    completions: ServedCompletions, body: object, *, path: str = "/v1/chat/completions", **headers: str
) -> CompletionsResponse:
    """One request without any client library: what came back."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with completions.plain() as client:
        got = await client.post(path, json=body, headers=named)
        return CompletionsResponse(got.status_code, got.json(), dict(got.headers))
