"""`python -m benchmarks gateway-large`: what small calls wait while others get very large results.

Four callers ask one server for texts of many MiB, again and again; four others ask another server for an
echo. Measured are the small calls, first alone and then meanwhile, and the most memory the gateway took.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import psutil
import uvloop
from rich.table import Table

from benchmarks.gateway.client import MODERN, CallFailed, GatewayClient
from benchmarks.gateway.fronts import ALLOW, ROOT
from benchmarks.gateway.goals import console
from benchmarks.gateway.programs import MIB, RunningProgram, free_port

SMALL_CALLERS: Final = 4
LARGE_CALLERS: Final = 4
TEXTS: Final = {
    "English": "the quick brown fox = jumps, over\n",
    "Hebrew": "שלום עולם זה טקסט ארוך מאוד\n",
    "rows": "",
}
WAYS: Final = ("json", "sse", "stdio")
LARGE: Final = {"English": 7.5, "Hebrew": 2.5, "rows": 7.0}  # MiB; Hebrew is sent as escapes, thrice as long
REFUSED: Final = 60.0  # MiB; more than any tool sends
REST_S: Final = 0.02


@dataclass
class Found:
    """One run."""

    alone: list[float] = field(default_factory=list[float])
    meanwhile: list[float] = field(default_factory=list[float])
    large: int = 0
    refused: int = 0
    memory_before: float = 0.0
    memory: float = 0.0


def run(*, seconds: float = 5.0) -> None:
    table = Table(title="Small calls while four others get large results", title_justify="left")
    for column in ("large results", "each MiB", "answered", "refused", "p95 alone, ms", "p95 meanwhile, ms",
                   "longest, ms", "memory before, MiB", "at most, MiB"):  # fmt: skip
        table.add_column(column, justify="right")
    for way in WAYS:
        for language, words in TEXTS.items():
            for size in (LARGE[language], REFUSED):
                found = anyio.run(
                    _measure,
                    way,
                    words,
                    size,
                    seconds,
                    backend_options={"loop_factory": uvloop.new_event_loop},
                )
                table.add_row(
                    f"{way}, {language}", f"{size:g}", str(found.large), str(found.refused),
                    f"{_p95(found.alone):.1f}", f"{_p95(found.meanwhile):.1f}",
                    f"{max(found.meanwhile, default=0):.0f}", f"{found.memory_before:.0f}",
                    f"{found.memory:.0f}",
                )  # fmt: skip
    console.print(table)


def _p95(values: list[float]) -> float:
    return sorted(values)[int(0.95 * len(values))] if values else float("nan")


async def _measure(way: str, words: str, size: float, seconds: float) -> Found:
    with tempfile.TemporaryDirectory(prefix="bench-large-") as folder:
        bench = _Bench(Path(folder), way)
        try:
            return await bench.measure(words, size, seconds)
        finally:
            bench.stop()


class _Bench:
    def __init__(self, folder: Path, way: str) -> None:
        self._folder = folder
        ports = [free_port() for _ in range(3)]
        upstream = [sys.executable, "-m", "benchmarks.gateway.upstream", "--tools", "2"]
        self._programs = [self._start("echo", [*upstream, "--port", str(ports[0])])]
        servers: dict[str, object] = {"small": {"url": f"http://127.0.0.1:{ports[0]}/mcp"}}
        if way == "stdio":
            servers["big"] = {"command": upstream[0], "args": upstream[1:], "cwd": str(ROOT)}
        else:
            kind = ["--json"] if way == "json" else []
            self._programs.append(self._start("large", [*upstream, *kind, "--port", str(ports[1])]))
            servers["big"] = {"url": f"http://127.0.0.1:{ports[1]}/mcp"}
        (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
        (folder / "fingerpost.toml").write_text(f'[store]\nurl = "sqlite:///{folder}/store.db"\n{ALLOW}')
        command = [sys.executable, "-m", "fingerpost", "serve", "--port", str(ports[2]), "--mode", "all"]
        command += ["--json", "--servers", str(folder / "servers.json")]
        command += ["--config", str(folder / "fingerpost.toml")]
        self._gateway = self._start("gateway", command)
        self._url = f"http://127.0.0.1:{ports[2]}/mcp"

    def _start(self, name: str, command: list[str]) -> RunningProgram:
        return RunningProgram(command, self._folder / f"{name}.log", folder=ROOT)

    def stop(self) -> None:
        for program in (self._gateway, *self._programs):
            program.stop()

    async def measure(self, words: str, size: float, seconds: float) -> Found:
        await self._until_ready()
        found = Found()
        await self._small(found.alone, seconds, during=lambda: None)
        found.memory_before = self._resident()
        async with anyio.create_task_group() as group:
            for _ in range(LARGE_CALLERS):
                group.start_soon(self._large, found, words, size)

            def weigh() -> None:
                found.memory = max(found.memory, self._resident())

            await self._small(found.meanwhile, seconds, during=weigh)
            group.cancel_scope.cancel()
        return found

    def _resident(self) -> float:
        return psutil.Process(self._gateway.pid).memory_info().rss / MIB

    async def _until_ready(self) -> None:
        with anyio.fail_after(60):
            while True:
                client = GatewayClient(self._url, MODERN)
                try:
                    if {"small__echo", "big__large"} <= set(await client.list_tools()):
                        return
                except (OSError, CallFailed):
                    pass
                finally:
                    await client.close()
                await anyio.sleep(0.1)

    async def _small(self, took: list[float], seconds: float, *, during: Callable[[], None]) -> None:
        end = time.perf_counter() + seconds

        async def work(number: int) -> None:
            client = GatewayClient(self._url, MODERN)
            while (began := time.perf_counter()) < end:
                await client.call("small__echo", {"text": f"{number} {began}"})
                took.append(1000 * (time.perf_counter() - began))
                during()
                await anyio.sleep(REST_S)
            await client.close()

        async with anyio.create_task_group() as group:
            for number in range(SMALL_CALLERS):
                group.start_soon(work, number)

    async def _large(self, found: Found, words: str, size: float) -> None:
        client = GatewayClient(self._url, MODERN)
        while True:
            size += 0.0001  # never the same call twice
            try:
                await client.call("big__large", {"mebibytes": size, "words": words})
                found.large += 1
            except CallFailed:
                found.refused += 1
