"""Servers on demand: what commands cost when servers are known, and what an idle gateway holds.

The baseline of a command is its first run, which connects every server because none is known; that of the
gateway is `lifecycle.default = "always"`.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import anyio
import httpx2
import psutil
from rich.console import Console
from rich.table import Table

from fingerpost import Router, Server, Settings

MANY = 50
ROUNDS = 3
IDLE_SECONDS = 2
COMMANDS = {
    "ask hello": ("ask", "hello"),
    "ask, one tool": ("ask", 'look_server7 "hat"'),
    "tools": ("tools",),
    "route": ("route", "look up a word"),
}
SERVER = """
import json, sys
name = sys.argv[1]
with open(sys.argv[2], "a") as file:
    file.write("started\\n")
schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
text = f"Look up a word in the list of {name}."
tool = {"name": f"look_{name}", "description": text, "inputSchema": schema}
tool["annotations"] = {"readOnlyHint": True}
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
            "serverInfo": {"name": name, "version": "1"},
        },
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "found"}]},
    }
    answer = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}
    print(json.dumps(answer), flush=True)
"""


class Setup:
    """A folder with many small servers, their file and an environment."""

    def __init__(self, folder: Path, lifecycle: str) -> None:
        self.starts_file = folder / "starts"
        (folder / "server.py").write_text(SERVER, "utf-8")
        program = [sys.executable, "-I", "-S", str(folder / "server.py")]
        names = [f"server{number}" for number in range(MANY)]
        self.entries = {name: [*program, name, str(self.starts_file)] for name in names}
        servers = {
            name: {"command": command[0], "args": command[1:], "era": "2025-11-25", "trust_hints": True}
            for name, command in self.entries.items()
        }
        self.file = folder / "servers.json"
        self.file.write_text(json.dumps({"mcpServers": servers}), "utf-8")
        # A library from a registry has its byte code beside it. A checkout must be allowed to keep its own.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self.environment = {
            **inherited,
            "FINGERPOST_STORE__URL": f"sqlite:///{folder}/store.db",
            "FINGERPOST_LIFECYCLE__DEFAULT": lifecycle,
            "FINGERPOST_LIFECYCLE__IDLE_SECONDS": str(IDLE_SECONDS),
        }

    @property
    def starts(self) -> int:
        return len(self.starts_file.read_text("utf-8").splitlines()) if self.starts_file.exists() else 0

    def run(self, *arguments: str) -> tuple[float, float, int]:
        """Run a command. Return its seconds, its CPU with that of its servers, and the servers it started."""
        before, began, starts = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), self.starts
        subprocess.run(
            [sys.executable, "-m", "fingerpost", *arguments, "--servers", str(self.file)],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return time.perf_counter() - began, cpu, self.starts - starts


@contextmanager
def make_setup(lifecycle: str) -> Generator[Setup]:
    with TemporaryDirectory() as folder:
        yield Setup(Path(folder), lifecycle)


def measure_commands(console: Console) -> None:
    table = Table(title=f"Commands with {MANY} stdio servers: seconds / CPU seconds / servers started")
    for column in ("command", "nothing known", "known servers", "CPU ratio"):
        table.add_column(column, justify="left" if column == "command" else "right", no_wrap=True)
    with make_setup("on_demand") as known:
        known.run("tools")
        for name, arguments in COMMANDS.items():
            with make_setup("on_demand") as fresh:
                first = fresh.run(*arguments)
            runs = [known.run(*arguments) for _ in range(ROUNDS)]
            later = tuple(median(run[part] for run in runs) for part in range(3))
            cells = (f"{one[0]:.1f} / {one[1]:.1f} / {one[2]:.0f}" for one in (first, later))
            table.add_row(name, *cells, f"{later[1] / first[1]:.2f}")
        help_cpu = median(known.run("ask", "--help")[1] for _ in range(ROUNDS))
    console.print(table)
    console.print(f"fingerpost ask --help: {help_cpu:.2f} s of CPU")


def measure_idle_gateway(console: Console) -> None:
    table = Table(title=f"A gateway over {MANY} stdio servers, idle for {IDLE_SECONDS} s and more")
    for column in ("lifecycle", "children", "MiB of the gateway", "MiB of its children"):
        table.add_column(column, justify="left" if column == "lifecycle" else "right")
    for lifecycle in ("always", "on_demand"):
        with make_setup(lifecycle) as setup, start_gateway(setup) as (process, _):
            while setup.starts < MANY:
                time.sleep(0.2)
            time.sleep(30)
            programs = ("server.py", "model.py")  # of servers, and of the encoder
            children = [
                one
                for one in process.children(recursive=True)
                if any(Path(part).name in programs for part in one.cmdline())
            ]
            memory = [one.memory_info().rss / 2**20 for one in (process, *children)]
            table.add_row(lifecycle, str(len(children)), f"{memory[0]:.0f}", f"{sum(memory[1:]):.0f}")
    console.print(table)


@contextmanager
def start_gateway(setup: Setup) -> Generator[tuple[psutil.Process, str]]:
    """Start `fingerpost serve`; yield its process and its address."""
    command = [sys.executable, "-m", "fingerpost", "serve", "--port", "0", "--json"]
    with subprocess.Popen(
        [*command, "--servers", str(setup.file)],
        env=setup.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        try:
            output = server.stdout
            assert output is not None
            printed = "".join(iter(output.readline, "}\n")) + "}"
            yield psutil.Process(server.pid), json.loads(printed)["address"]
        finally:
            server.terminate()


def measure_first_requests(console: Console) -> None:
    """Compare the first request after a gateway over known servers is ready with later ones."""
    first, tenth = list[float](), list[float]()
    with make_setup("on_demand") as setup:
        setup.run("tools")
        for _ in range(ROUNDS):
            with start_gateway(setup) as (_, address), httpx2.Client(base_url=address, timeout=60) as client:
                while client.get("/readyz").status_code != 200:
                    time.sleep(0.05)
                times = list[float]()
                for number in range(10):
                    message = {"role": "user", "content": f"look up the word number {number} please"}
                    began = time.perf_counter()
                    body = {"model": "fingerpost", "messages": [message]}
                    client.post("/v1/chat/completions", json=body).raise_for_status()
                    times.append(1000 * (time.perf_counter() - began))
                first.append(times[0])
                tenth.append(times[-1])
    ratio = median(first) / median(tenth)
    console.print(f"Requests to /v1 after /readyz: first {median(first):.0f} ms, {ratio:.1f} × the tenth")


async def measure_waking(console: Console) -> None:
    with make_setup("on_demand") as setup:
        specs = [
            Server.stdio(name, command, era="2025-11-25", trust_hints=True)
            for name, command in setup.entries.items()
        ]
        settings = Settings.model_validate({"store": {"url": setup.environment["FINGERPOST_STORE__URL"]}})
        async with Router(specs, settings=settings) as router:
            await router.connect()
        async with Router(specs, settings=settings) as router:
            asleep, awake = list[float](), list[float]()
            for name in list(setup.entries)[:20]:
                for times in (asleep, awake):
                    began = time.perf_counter()
                    outcome = await router.call(f"{name}/look_{name}", {"word": "hat"})
                    assert outcome.success, outcome.detail
                    times.append(1000 * (time.perf_counter() - began))
    console.print(f"Median of a call: server asleep {median(asleep):.0f} ms, awake {median(awake):.1f} ms")


def run() -> None:
    console = Console()
    measure_commands(console)
    measure_idle_gateway(console)
    measure_first_requests(console)
    anyio.run(measure_waking, console)
