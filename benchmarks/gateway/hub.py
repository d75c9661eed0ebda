"""mcp-hub: how it is started, and a client for the transport it serves (HTTP+SSE of 2024)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import anyio
import orjson

from benchmarks.gateway.programs import RunningProgram, free_port

COMMAND = Path(__file__).parents[2] / ".peers" / "node" / "node_modules" / ".bin" / "mcp-hub"


def is_installed() -> bool:
    return COMMAND.exists()


def start(folder: Path, urls: Sequence[str]) -> tuple[RunningProgram, str]:
    port = free_port()
    config = folder / f"hub-{port}.json"
    config.write_text(json.dumps({"mcpServers": {f"s{n}": {"url": url} for n, url in enumerate(urls)}}))
    command = [str(COMMAND), "--port", str(port), "--config", str(config)]
    environment = {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    program = RunningProgram(command, folder / f"hub-{port}.log", environment=environment)
    return program, f"http://127.0.0.1:{port}/mcp"


class HubClient:
    """Answers come on one stream, whichever POST asked."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session = session
        self._address = address
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._number = 0

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return (await waiting)["result"]

    async def post(self, message: dict[str, Any]) -> None:
        headers = {"content-type": "application/json"}
        async with self._session.post(self._address, data=orjson.dumps(message), headers=headers) as answer:
            await answer.read()

    def hear(self, data: bytes) -> None:
        message = orjson.loads(data)
        waiting = self._waiting.pop(message.get("id", 0), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(message)


@asynccontextmanager
async def connect_hub(url: str) -> AsyncGenerator[HubClient]:
    async with aiohttp.ClientSession() as session, session.get(url) as stream:
        client: HubClient | None = None
        ready = anyio.Event()

        async def listen() -> None:
            nonlocal client
            async for data in _events(stream):
                if client is None:  # the first event says where to post
                    client = HubClient(session, urljoin(url, data.decode()))
                    ready.set()
                else:
                    client.hear(data)

        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await ready.wait()
            assert client is not None
            hello = {"name": "bench", "version": "1"}
            await client.request(
                "initialize", {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": hello}
            )
            await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield client
            group.cancel_scope.cancel()


async def _events(stream: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    rest = b""
    async for chunk in stream.content.iter_any():
        *events, rest = (rest + chunk.replace(b"\r\n", b"\n")).split(b"\n\n")
        for event in events:
            lines = [line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines:
                yield b"".join(lines)


async def list_milliseconds(program: RunningProgram, url: str, *, tools: int, seconds: float) -> list[float]:
    """How long each tools/list took, once it has all `tools`."""
    end = time.perf_counter() + 60
    while program.alive and time.perf_counter() < end:
        try:
            # A stream opened while it starts never answers: short patience, then another one.
            with anyio.fail_after(5):
                async with connect_hub(url) as client:
                    listed = await client.request("tools/list", {})
            if len(listed["tools"]) >= tools:
                return await _measure(url, seconds)
        except (OSError, TimeoutError, aiohttp.ClientError, BaseExceptionGroup):
            pass
        await anyio.sleep(0.3)
    return []


async def _measure(url: str, seconds: float) -> list[float]:
    taken: list[float] = []
    async with connect_hub(url) as client:
        end = time.perf_counter() + seconds
        while (at := time.perf_counter()) < end:
            await client.request("tools/list", {})
            taken.append(1000 * (time.perf_counter() - at))
    return taken
