"""Load for long, while servers die: is every call answered, and does memory stay where it was?

Two servers are behind the gateway, one at an address and one it started itself. Now and then one of
them is killed without warning. A call may fail meanwhile, but it must be told so, in the protocol.
"""

from __future__ import annotations

import itertools
import json
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio
import httpx2
import psutil

from benchmarks.gateway.client import HANDSHAKE, MODERN, CallFailed, Era, GatewayClient
from benchmarks.gateway.fronts import ALLOW, ROOT
from benchmarks.gateway.programs import RunningProgram, free_port

WORKERS = 32
UPSTREAM = (sys.executable, "-m", "benchmarks.gateway.upstream")
ANSWER_S = 90.0  # beyond every deadline of the gateway's own: later than this, an answer is lost
INTERNAL_ERROR = -32603
PATIENCE_S = 60.0  # how much longer a run may take until enough has happened
REST_S = 0.01  # after an error, so that a server that is down is not asked without end


@dataclass
class Soaked:
    """What came of it."""

    results: int = 0
    errors: Counter[str] = field(default_factory=Counter[str])
    lost: list[str] = field(default_factory=list[str])  # no answer, or another call's
    faults: list[str] = field(default_factory=list[str])  # of the gateway itself
    log: str = ""  # what it said last, where it had any
    kills: int = 0
    breaker_openings: int = 0
    memory: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # seconds, MiB

    @property
    def slope(self) -> float:
        """MiB in an hour, by least squares over the later two thirds."""
        later = self.memory[len(self.memory) // 3 :]
        if len(later) < 2:
            return 0.0
        middle = sum(at for at, _ in later) / len(later)
        height = sum(size for _, size in later) / len(later)
        spread = sum((at - middle) ** 2 for at, _ in later)
        return 3600 * sum((at - middle) * (size - height) for at, size in later) / spread

    @property
    def growth(self) -> float:
        """MiB from a third of the time to the end."""
        later = self.memory[len(self.memory) // 3 :]
        return later[-1][1] - later[0][1] if later else 0.0


class Soak:
    """One gateway under load, whose servers are killed."""

    def __init__(self, folder: Path, *, workers: int = WORKERS, upstream: Sequence[str] = UPSTREAM) -> None:
        """`upstream` is the command of a server with a tool `echo`, on standard input and output or at
        `--port`.
        """
        self._folder = folder
        self._upstream = upstream
        self._workers = workers
        self._web_port = free_port()
        self._port = free_port()
        self._web = self._start_web()
        self._gateway = self._start_gateway()
        self._texts = itertools.count()
        self._end = 0.0
        self.found = Soaked()

    async def run(
        self, *, seconds: float, kill_every: float, is_enough: Callable[[Soaked], bool] = lambda _: True
    ) -> Soaked:
        """Run for this time, and longer until `is_enough`, on a machine that is too busy."""
        self._is_enough = is_enough
        try:
            await self._until_ready()
            self._end = time.monotonic() + seconds
            async with anyio.create_task_group() as group:
                for number in range(self._workers):
                    group.start_soon(self._work, number)
                group.start_soon(self._kill, kill_every)
                group.start_soon(self._weigh, max(0.2, seconds / 60))
        finally:
            self._gateway.stop()
            self._web.stop()
        self.found.breaker_openings = self._count_openings()
        if self.found.faults:
            self.found.log = self._gateway.last_words()
        return self.found

    # -- what runs ----------------------------------------------------------------------------------

    def _start_web(self) -> RunningProgram:
        command = [*self._upstream, "--port", str(self._web_port)]
        return RunningProgram(command, self._folder / "web.log", folder=ROOT)

    def _start_gateway(self) -> RunningProgram:
        program, *arguments = self._upstream
        piped = {"command": program, "args": arguments, "cwd": str(ROOT)}
        web = {"url": f"http://127.0.0.1:{self._web_port}/mcp"}
        servers = self._folder / "servers.json"
        servers.write_text(json.dumps({"mcpServers": {"web": web, "pipe": piped}}))
        config = self._folder / "fingerpost.toml"
        # A breaker that stays open for longer than the pause between two kills would answer everything.
        config.write_text(
            f'[store]\nurl = "sqlite:///{self._store}"\n[call]\nbreaker_seconds = 2\n'
            f"[limits]\nreconnect_max = 1\n{ALLOW}"
        )
        command = [sys.executable, "-m", "fingerpost", "serve", "--port", str(self._port), "--mode", "all"]
        command += ["--json", "--servers", str(servers), "--config", str(config)]
        return RunningProgram(command, self._folder / "gateway.log", folder=ROOT)

    @property
    def _store(self) -> Path:
        return self._folder / "store.db"

    def _client(self, era: Era) -> GatewayClient:
        return GatewayClient(f"http://127.0.0.1:{self._port}/mcp", era)

    async def _until_ready(self) -> None:
        """Until its tools are listed and its models are loaded: memory grows by 90 MiB until then."""
        with anyio.fail_after(60):
            names: list[str] = []
            while len(names) < 60:
                client = self._client(MODERN)
                try:
                    names = await client.list_tools()
                except (OSError, CallFailed):
                    names = []
                finally:
                    await client.close()
                await anyio.sleep(0.1)
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{self._port}") as http:
                ready = False
                while not ready:
                    await anyio.sleep(0.1)
                    ready = (await http.get("/readyz")).status_code == 200
        self._tools = sorted(name for name in names if name.endswith("echo"))

    # -- under load ---------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        late = time.monotonic() - self._end
        return late >= 0 and (late >= PATIENCE_S or self._is_enough(self.found))

    async def _work(self, number: int) -> None:
        """Half of the workers ask each server, half of those in each era."""
        tool = self._tools[number % len(self._tools)]
        client = await self._client(HANDSHAKE if number % 4 < 2 else MODERN).open()
        while not self._is_over():
            text = f"call {next(self._texts)} of worker {number}"
            try:
                with anyio.fail_after(ANSWER_S):
                    answer = await client.call(tool, {"text": text})
            except CallFailed as error:
                self._note(tool, error)
                await anyio.sleep(REST_S)
            except (OSError, TimeoutError) as error:
                self.found.lost.append(f"{text}: {error!r}")
            else:
                self.found.results += answer == text
                if answer != text:
                    self.found.lost.append(f"{text} got the answer {answer!r}")
        await client.close()

    def _note(self, tool: str, error: CallFailed) -> None:
        """An error about a server that is down is a proper answer; a fault of the gateway is not, however
        typed.
        """
        if error.code == INTERNAL_ERROR:
            self.found.faults.append(_kind(tool, error))
        else:
            self.found.errors[_kind(tool, error)] += 1

    async def _kill(self, every: float) -> None:
        """One after the other: the one at an address, the one started by the gateway."""
        for turn in itertools.count():
            await anyio.sleep(every)
            if self._is_over():
                return
            self.found.kills += 1
            if turn % 2 == 0:
                psutil.Process(self._web.pid).kill()
                self._web.stop()
                self._web = self._start_web()
            else:
                for child in psutil.Process(self._gateway.pid).children(recursive=True):
                    child.kill()

    async def _weigh(self, every: float) -> None:
        """The gateway alone: its children come and go."""
        began = time.monotonic()
        process = psutil.Process(self._gateway.pid)
        while not self._is_over():
            self.found.memory.append((time.monotonic() - began, process.memory_info().rss / 2**20))
            await anyio.sleep(every)

    def _count_openings(self) -> int:
        with sqlite3.connect(self._store) as connection:
            query = "SELECT count(*) FROM journal WHERE kind = 'breaker_moved' AND payload LIKE '%\"open\"%'"
            return int(connection.execute(query).fetchone()[0])


def _kind(tool: str, error: CallFailed) -> str:
    """What a failure is about, so that equal ones are counted together."""
    words = re.sub(r"\d+", "…", str(error).split("'text': ")[-1].lstrip("'\"")[:90])
    return f"{tool}: {error.code or 'isError'}: {words}"
