"""How each gateway is started in front of given servers. All but ours come from public registries."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from benchmarks.gateway.client import HANDSHAKE, CallFailed, Era, GatewayClient
from benchmarks.gateway.programs import RunningProgram, free_port

ROOT = Path(__file__).parents[2]
PROFILE = "BENCH_PROFILE"  # a file: ours is run under cProfile, which writes there when it ends

# Every part of the call path that has a switch. Policy, breaker, validation and events have none, so this is
# not the whole safety path: the bare forwarder is what a gateway without any of it costs.
ALLOW = '[[policy]]\nverdict = "allow"\nserver = "*"\n'
UNSAFE = (
    "pins",
    "audit",
    "argument_repair",
    "fallback",
    "result_cache",
    "loop_guard",
    "digest",
    "learned_intelligence",
)


@dataclass(frozen=True, kw_only=True)
class Front:
    """A started gateway, ready when it has answered a call."""

    name: str
    url: str
    program: RunningProgram
    tool: str = "echo"
    seconds: float = 0.0  # from its start to its first answered call
    headers: dict[str, str] = field(default_factory=dict[str, str])


class NotReady(Exception):
    """A gateway that did not come up; the reason is what it said last."""


@dataclass(frozen=True)
class GatewayBench:
    """Where files of one run go, and a PostgreSQL database for the gateway that uses one."""

    folder: Path
    postgresql: str = ""

    def upstream(self, *, tools: int, servers: int = 1) -> tuple[RunningProgram, list[str]]:
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.gateway.upstream", "--port", str(port)]
        command += ["--tools", str(tools), "--servers", str(servers)]
        program = RunningProgram(command, self.folder / f"upstream-{port}.log", folder=ROOT)
        base = f"http://127.0.0.1:{port}"
        return program, [f"{base}/mcp"] if servers == 1 else [f"{base}/s{n}/mcp" for n in range(servers)]

    def ours(
        self, urls: Sequence[str], *, safe: bool = True, extra: str = "", database: str = ""
    ) -> tuple[RunningProgram, str]:
        port = free_port()
        servers = self.folder / f"servers-{port}.json"
        servers.write_text(json.dumps({"mcpServers": {f"s{n}": {"url": u} for n, u in enumerate(urls)}}))
        config = self.folder / f"fingerpost-{port}.toml"
        flags = "" if safe else "[flags]\n" + "".join(f"{flag} = false\n" for flag in UNSAFE)
        store = f'[store]\nurl = "{database or f"sqlite:///{self.folder}/store-{port}.db"}"\n'
        config.write_text(f"{extra}{store}{flags}{ALLOW}")
        start = [sys.executable, "-m", "fingerpost"]
        if profile := os.environ.get(PROFILE) if safe else None:
            start = [sys.executable, "-m", "benchmarks.gateway.profiled", profile]
        command = [*start, "serve", "--port", str(port), "--mode", "all", "--json"]
        command += ["--servers", str(servers), "--config", str(config)]
        program = RunningProgram(command, self.folder / f"fingerpost-{port}.log", folder=ROOT)
        return program, f"http://127.0.0.1:{port}/mcp"

    def forwarder(self, urls: Sequence[str]) -> tuple[RunningProgram, str]:
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.gateway.forwarder", urls[0], "--port", str(port)]
        program = RunningProgram(command, self.folder / f"forwarder-{port}.log", folder=ROOT)
        return program, f"http://127.0.0.1:{port}/mcp"

    def fastmcp(self, urls: Sequence[str], *, held: bool = False) -> tuple[RunningProgram, str]:
        port = free_port()
        command = [sys.executable, str(ROOT / "benchmarks/gateway/fastmcp_proxy.py"), "--port", str(port)]
        command += [*(["--held"] if held else []), *urls]
        program = RunningProgram(command, self.folder / f"fastmcp-{port}.log", folder=self.folder)
        return program, f"http://127.0.0.1:{port}/mcp"


async def ready(
    name: str,
    program: RunningProgram,
    url: str,
    *,
    era: Era = HANDSHAKE,
    limit: float = 90.0,
    headers: dict[str, str] | None = None,
) -> Front:
    """Wait for its first answered call, however early it is asked."""
    last: object = None
    while time.perf_counter() < program.started + limit and program.alive:
        client = GatewayClient(url, era, headers)
        try:
            with anyio.fail_after(20):
                await client.open()
                tool = next(tool for tool in await client.list_tools() if tool.endswith("echo"))
                await client.call(tool, {"text": "first"})
        except (OSError, CallFailed, TimeoutError, StopIteration) as error:
            last = error
            await anyio.sleep(0.05)
        else:
            seconds = time.perf_counter() - program.started
            return Front(
                name=name, url=url, program=program, tool=tool, seconds=seconds, headers=headers or {}
            )
        finally:
            await client.close()
    raise NotReady(f"{name} did not answer: {last!r}; it said: {program.last_words()}")
