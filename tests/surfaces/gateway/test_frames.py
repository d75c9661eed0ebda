"""How deep a call is: our own frames between the gateway's application and the upstream server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import orjson
import pytest

import fingerpost
from fingerpost import Router
from fingerpost.servers import Server
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.testing import served, tool_server
from fingerpost.testing.servers import ToolServer
from tests.kit.gateway_client import BOTH, INITIALIZE, OLD, old, tool_call
from tests.kit.gateway_methods import reading_tool
from tests.kit.gateways import build_gateway_settings, wait_until_connected
from tests.kit.small_gateway import OpenGate

MAX_FRAMES = 22
OURS = Path(fingerpost.__file__).parent


class StackReader:
    """Reads our own frames of the task that makes a call, while the server works on it."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.frames: list[str] = []

    async def read(self, name: str, arguments: dict[str, Any]) -> str:
        assert self.task is not None
        running = asyncio.current_task() is self.task
        code = list_running() if running else list_awaiting(self.task.get_coro())
        self.frames = [describe(one) for one in code if Path(one.co_filename).is_relative_to(OURS)]
        return "read"


def list_running() -> list[CodeType]:
    """The code on the stack of this task, from the outermost. Its test and this server are among it."""
    found: list[CodeType] = []
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    return found[::-1]


def list_awaiting(waiting: Any) -> list[CodeType]:
    """The code of every coroutine that another task waits in, from the outermost."""
    found: list[CodeType] = []
    while waiting is not None:
        code = getattr(waiting, "cr_code", None)
        if code is not None:
            found.append(code)
        waiting = getattr(waiting, "cr_await", None)
    return found


def describe(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(OURS)}: {code.co_qualname}"


async def post(app: GatewayApp, body: object, headers: Mapping[str, str]) -> tuple[dict[str, str], Any]:
    """Post to the application itself; the headers and the body of its answer."""
    sent: list[Any] = []
    data = orjson.dumps(body)
    given = {
        "host": "127.0.0.1",
        "accept": BOTH,
        "content-type": "application/json",
        "content-length": str(len(data)),
        **headers,
    }
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp/all",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "headers": [(k.encode(), v.encode()) for k, v in given.items()],
    }

    async def receive() -> Any:
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    answered = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(message.get("body", b"") for message in sent[1:])
    return answered, orjson.loads(text) if text else None


@asynccontextmanager
async def open_app(folder: Path, reader: StackReader, transport: str) -> AsyncGenerator[GatewayApp]:
    upstream = tool_server("deep", [reading_tool("look")], call=reader.read)
    async with (
        open_spec(upstream, transport) as spec,
        Router([spec], settings=build_gateway_settings(folder)) as router,
    ):
        await wait_until_connected(router)
        audience = NotificationListeners()
        async with (
            open_methods(router, audience=audience) as methods,
            GatewayApp(methods, OpenGate(), router.settings.gateway, router.events, audience=audience) as app,
        ):
            yield app


@asynccontextmanager
async def open_spec(upstream: ToolServer, transport: str) -> AsyncGenerator[Any]:
    if transport == "in_process":
        yield upstream.spec()
        return
    async with served(upstream.server.streamable_http_app(json_response=True)) as base:
        yield Server.http("deep", f"{base}/mcp", era="auto" if transport == "http" else OLD)


@pytest.mark.parametrize("transport", ["http", "http-legacy", "in_process"])
@pytest.mark.parametrize("era", ["2026-07-28", "2025-11-25"])
async def test_a_call_has_few_frames_of_our_own(era: str, transport: str, tmp_path: Path):
    reader = StackReader()
    async with open_app(tmp_path, reader, transport) as app:
        if era == OLD:
            opened, _ = await post(app, old("initialize", {**INITIALIZE["params"], "capabilities": {}}), {})
            headers = {"mcp-session-id": opened["mcp-session-id"], "mcp-protocol-version": OLD}
            await post(app, {"jsonrpc": "2.0", "method": "notifications/initialized"}, headers)
            body = old("tools/call", {"name": "look", "arguments": {}})
        else:
            body, headers = tool_call("look")
        reader.task = asyncio.current_task()
        _, answer = await post(app, body, headers)
    assert answer["result"]["content"][0]["text"] == "read"
    first = next(place for place, frame in enumerate(reader.frames) if "GatewayApp.__call__" in frame)
    frames = [frame for frame in reader.frames[first:] if not frame.startswith("testing/")]
    chain = "\n".join(f"{number:3} {frame}" for number, frame in enumerate(frames, 1))
    assert len(frames) <= MAX_FRAMES, f"{len(frames)} frames of our own:\n{chain}"
