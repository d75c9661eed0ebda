"""Routers for tests: settings, real servers from PyPI and npm, and a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp_server_time.server import create_server  # pyright: ignore[reportMissingTypeStubs]

from fingerpost import Router, Server, Settings
from fingerpost.events import EventSink
from fingerpost.llm import ChatModel, ModelRequest
from fingerpost.records import JsonObject, ServerSpec
from fingerpost.testing import ScriptedModel
from fingerpost.testing.models import ScriptLine
from tests.kit.programs import program
from tests.kit.stores import place_empty_store


def build_settings(folder: Path, **more: Any) -> Settings:
    """Settings with a store in the folder. Tools are scored by words, so no vectors are built; definitions
    may say anything, so they are not scanned.
    """
    return Settings.model_validate(
        {
            "store": {"url": place_empty_store(folder)},
            **more,
            "narrow": {"vectors": str(folder / "vectors"), **more.get("narrow", {})},
            "flags": {"dense_scores": False, "scan_definitions": False, **more.get("flags", {})},
        }
    )


def create_clock_server() -> ServerSpec:
    """The real `mcp-server-time`, without a process of its own: `tests/servers` has it as a program."""
    return Server.in_process("time", create_server("Etc/UTC"))


def create_file_server(folder: Path) -> ServerSpec:
    """The real file-system server, on this folder."""
    return Server.stdio("files", [program("mcp-server-filesystem"), str(folder)])


@asynccontextmanager
async def open_router(
    folder: Path,
    servers: Iterable[ServerSpec] = (),
    model: ChatModel | None = None,
    *,
    sinks: Iterable[EventSink] = (),
    connect: bool = True,
    **more: Any,
) -> AsyncGenerator[Router]:
    """A router over these servers, connected. `more` are settings."""
    settings = build_settings(folder, **more)
    async with Router(servers, settings=settings, model=model, sinks=sinks) as router:
        if connect:
            await router.connect()
        yield router


def write_selection(tool: str | None, arguments: JsonObject | None = None, **more: Any) -> str:
    """What a selecting model says."""
    fields: dict[str, Any] = {"reasoning": "it fits", "confidence": 0.9, "alternatives": [], "remaining": ""}
    return json.dumps({**fields, "tool": tool, "arguments": arguments or {}, **more})


def write_review(confidence: float = 0.9, *, approved: bool = True) -> str:
    """What a reviewing model says."""
    fields = {"approved": approved, "confidence": confidence, "reasoning": "looked at it"}
    return json.dumps(fields)


def get_purpose(request: ModelRequest) -> str:
    """What the request is for, by the shape it asks for."""
    if request.schema is None:
        return "answer"
    return request.schema.name


def script_model(**parts: Iterable[ScriptLine] | Callable[[ModelRequest], ScriptLine]) -> ScriptedModel:
    """A model with one script for each purpose: `selection`, `review`, `answer`, …"""
    scripts = {name: part if callable(part) else _in_order(name, part) for name, part in parts.items()}

    def play(request: ModelRequest) -> ScriptLine:
        script = scripts.get(get_purpose(request))
        if script is None:
            message = f"the script has no reply for {get_purpose(request)!r}"
            raise AssertionError(message)
        return script(request)

    return ScriptedModel(play)


def _in_order(purpose: str, lines: Iterable[ScriptLine]) -> Callable[[ModelRequest], ScriptLine]:
    following = iter(list(lines))

    def say(request: ModelRequest) -> ScriptLine:
        line = next(following, None)
        if line is None:
            message = f"the script for {purpose!r} is over"
            raise AssertionError(message)
        return line

    return say
