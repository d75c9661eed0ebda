"""A gateway under messages that are nearly right, from servers and from clients, in both eras.

    python -m tests.security.fuzz --cases 100000 --seed 1

Everything runs in one process: the gateway with its surfaces, a hostile server at a real port or over its
standard streams, and beside them a caller who does everything right and counts what they do not get. A case
is one message. Printed for each direction and era: cases, calls of the good caller and those lost, requests
that never ended, faults of ours (an answer that says so, a status of 500, an exception in the log), memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import anyio

from fingerpost import Router
from fingerpost.records import ServerSpec
from fingerpost.servers import Server
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.responses import INTERNAL_ERROR_MESSAGE
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.server import PathRouter
from fingerpost.surfaces.serve import SurfaceDeps, build_lazy_apps
from fingerpost.testing import tool_server
from tests.kit.api import build_local_authenticator
from tests.kit.routers import build_settings
from tests.security import cases as programs
from tests.security.cases import MODERN, OLD, TOOL, Cases, write

Direction = Literal["server", "client", "stdio"]
AT_ONCE = 8
PATIENCE_S = 60.0
HOST = "127.0.0.1:80"
EVENT = b"event: message\ndata: "
ABLE: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}, "sampling": {}}
ANSWERS: tuple[dict[str, Any], ...] = (
    {"action": "decline"}, {"roots": []}, {"action": 1}, {}, {"a": "\ud800"},
)  # fmt: skip
TOOLS = ("good__look", "evil__look", "look", "nothing")
SETTINGS: dict[str, Any] = {
    "call": {
        "timeout": 5,
        "retries": 0,
        "breaker_failures": 10**9,
        "breaker_rate": 1.0,
        "breaker_window": 10**6,
    },
    "flags": {"loop_guard": False, "fallback": False},
    "gateway": {"approval_seconds": 1},
    "api": {"per_minute": 10**9},
    "limits": {"reconnect_max": 0.2, "relist_seconds": 0.1},
    "console": {"enabled": False},
}


@dataclass
class FuzzFigures:
    """What came of one run."""

    direction: Direction
    era: str
    seed: int
    cases: int = 0
    requests: int = 0  # calls, or HTTP requests, in which they were
    good_calls: int = 0
    lost: int = 0  # calls of the good caller without their right answer
    hung: int = 0  # requests that did not end
    faults: list[str] = field(default_factory=list[str])  # of ours
    seconds: float = 0.0
    memory_mib: tuple[float, float] = (0.0, 0.0)  # after a tenth of the cases, and at the end

    @property
    def clean(self) -> bool:
        return not (self.lost or self.hung or self.faults)


class _Faults(logging.Handler):
    """Every exception that was logged as unexpected."""

    def __init__(self, figures: FuzzFigures) -> None:
        super().__init__(logging.ERROR)
        self._figures = figures

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self._figures.faults.append(f"{record.name}: {record.getMessage()[:200]} ({error!r:.300})")


class HostileHttp(asyncio.Protocol):
    """One connection to a server that answers calls with what `answer` makes of them."""

    def __init__(self, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self._answer = answer
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            _, found, rest = head.partition(b"content-length:")
            length = int(rest.split(b"\r\n")[0]) if found else 0
            if len(self._data) < end + 4 + length:
                return
            body, self._data = self._data[end + 4 : end + 4 + length], self._data[end + 4 + length :]
            self._transport.write(self._answer(json.loads(body) if body else {}))


def sound_answer(era: str, asked: Mapping[str, Any]) -> bytes:
    """What a server in order says to everything but calls."""
    method, number = asked.get("method"), asked.get("id")
    about: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "evil", "version": "1"}}
    results: dict[str, Any] = {"tools/list": {"tools": [TOOL]}, "ping": {}}
    if era == OLD:
        results["initialize"] = {"protocolVersion": OLD, **about}
    else:
        results["server/discover"] = {"supportedVersions": [MODERN], **about, "resultType": "complete"}
    if method is None or number is None:
        return http_answer(b"", status=b"202 OK" if asked else b"405 No")
    if method in results:
        return http_answer(json.dumps({"jsonrpc": "2.0", "id": number, "result": results[method]}).encode())
    error = {"code": -32601, "message": "no"}
    return http_answer(json.dumps({"jsonrpc": "2.0", "id": number, "error": error}).encode())


def http_answer(body: bytes, *, kind: bytes = b"application/json", status: bytes = b"200 OK") -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nMcp-Session-Id: s\r\nContent-Length: %d\r\n\r\n"
    return head % (status, kind, len(body)) + body


class HostileMcpServer:
    """The hostile server at a port."""

    def __init__(self, era: str, cases: Cases, figures: FuzzFigures) -> None:
        self._era = era
        self._cases = cases
        self._figures = figures

    def answer(self, asked: dict[str, Any]) -> bytes:
        method, number = asked.get("method"), asked.get("id")
        random = self._cases.random
        if method != "tools/call":
            if method not in ("tools/list", "prompts/list") or random.random() < 0.8:
                return sound_answer(self._era, asked)
            self._figures.cases += 1
            return http_answer(self._cases.reply(number, method))
        reply = self._cases.reply(number)
        self._figures.cases += 1
        if random.random() < 0.25:
            kinds = [b"application/json"] * 4 + [b"text/html", b"", b"application/json; charset=utf-16"]
            statuses = [b"200 OK"] * 8 + [b"202 OK", b"400 No", b"404 No", b"429 No", b"500 No", b"302 No"]
            return http_answer(reply, kind=random.choice(kinds), status=random.choice(statuses))
        count = random.randrange(24)
        self._figures.cases += count
        frames = [
            self._frame(self._cases.aside(number).encode("utf-8", "surrogatepass")) for _ in range(count)
        ]
        return http_answer(b"".join([*frames, self._frame(reply)]), kind=b"text/event-stream")

    def _frame(self, data: bytes) -> bytes:
        random = self._cases.random
        head = random.choice([b"", b"", b"event: message\n", b"id: 1\n", b"retry: 0\n", b": hi\n", b"\n"])
        if random.random() < 0.02:
            head += random.choice([b"event: other\n", b"id\n", b"data\n", b"data:\r", b"retry: x\n"])
        return head + b"data: " + data.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n\n"


@dataclass
class FuzzAnswer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""

    @property
    def messages(self) -> list[Any]:
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return [json.loads(self.body)] if self.body else []
        return [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: ")]


@dataclass
class FuzzedGateway:
    """The gateway with its surfaces, spoken to without a socket."""

    router: Router
    front: PathRouter
    figures: FuzzFigures

    async def send(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        asked: Callable[[Any], Awaitable[None]] | None = None,
        leave_at_first: bool = False,
    ) -> FuzzAnswer:
        """One HTTP request. `asked` hears every event; `leave_at_first`: the client goes when one comes."""
        got, leaving, given = FuzzAnswer(), anyio.Event(), False
        common = {
            "host": HOST,
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        pairs = [
            (name.encode("latin-1"), value.encode("latin-1")) for name, value in {**common, **headers}.items()
        ]

        async def receive() -> dict[str, Any]:
            nonlocal given
            if not given:
                given = True
                return {"type": "http.request", "body": body, "more_body": False}
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                got.status = message["status"]
                got.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
                return
            piece: bytes = message.get("body", b"")
            got.body += piece
            if asked is not None and piece.startswith(EVENT):
                await asked(json.loads(piece[len(EVENT) :]))
            if leave_at_first or not message.get("more_body"):
                leaving.set()

        scope = {"type": "http", "method": method, "path": path, "headers": pairs, "client": ("127.0.0.1", 1),
                 "query_string": b"", "http_version": "1.1", "scheme": "http"}  # fmt: skip
        with anyio.move_on_after(PATIENCE_S) as patience:
            await self.front(scope, receive, send)
        if patience.cancelled_caught:
            self.figures.hung += 1
            at = f"after {self.figures.cases} cases"
            self.figures.faults.append(f"hung: {method} {path} {body[:300]!r} {at}")
        if got.status >= 500 and got.status != 503:
            self.figures.faults.append(f"{got.status}: {method} {path} {body[:300]!r} {got.body[:300]!r}")
        if INTERNAL_ERROR_MESSAGE.encode() in got.body or b"went wrong inside Fingerpost" in got.body:
            self.figures.faults.append(f"fault: {method} {path} {body[:300]!r} {got.body[:300]!r}")
        return got

    async def session(self) -> dict[str, str]:
        client = {"name": "a", "version": "1"}
        params: dict[str, Any] = {"protocolVersion": OLD, "capabilities": ABLE, "clientInfo": client}
        body = write({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode()
        got = await self.send("POST", "/mcp/all", body, {})
        return {"mcp-session-id": got.headers["mcp-session-id"], "mcp-protocol-version": OLD}

    async def call_old(self, cases: Cases, session: Mapping[str, str], tool: str) -> FuzzAnswer:
        """By a client with a session that answers what it is asked, somehow."""

        async def send_message(message: Any) -> None:
            if "id" in message and "method" in message:
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": cases.random.choice(ANSWERS)}
                await self.send("POST", "/mcp/all", write(answer).encode(), session)

        params: dict[str, Any] = {"name": tool, "arguments": {}, "_meta": {"progressToken": 1}}
        number = cases.random.randrange(10**12)
        body = write({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        return await self.send("POST", "/mcp/all", body.encode(), session, asked=send_message)

    async def call_modern(self, tool: str, *, able: bool = True, arguments: Any = None) -> FuzzAnswer:
        """By a client without one that comes back once with answers."""
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": ABLE if able else {},
            "io.modelcontextprotocol/clientInfo": {"name": "a", "version": "1"},
            "progressToken": 1,
        }
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}, "_meta": meta}
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        got = FuzzAnswer()
        for _ in range(2):
            body = write({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
            got = await self.send("POST", "/mcp/all", body.encode(), headers)
            last: Any = got.messages[-1] if got.messages else {}
            result: Any = last.get("result") or {}
            if result.get("resultType") != "input_required":
                break
            asked: dict[str, Any] = result.get("inputRequests") or {}
            params["inputResponses"] = {key: {"action": "decline"} for key in asked}
            params["requestState"] = result.get("requestState")
        return got

    async def call_api(self, tool: str, arguments: Any = None) -> FuzzAnswer:
        body = write({"tool": tool, "arguments": arguments or {}}).encode()
        return await self.send("POST", "/api/call", body, {})


@asynccontextmanager
async def open_fuzzed_gateway(
    folder: Path, figures: FuzzFigures, *servers: ServerSpec
) -> AsyncGenerator[FuzzedGateway]:
    """All surfaces of a router in front of these servers."""
    async with AsyncExitStack() as stack:
        router = await stack.enter_async_context(Router(servers, settings=build_settings(folder, **SETTINGS)))
        await router.connect()
        audience = NotificationListeners()
        gate = build_local_authenticator(router, HOST)
        methods = await stack.enter_async_context(open_methods(router, audience=audience))
        gateway = await stack.enter_async_context(
            GatewayApp(methods, gate, router.settings.gateway, router.events, audience=audience)
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        parts = build_lazy_apps(SurfaceDeps(router, gate, f"http://{HOST}"))
        for part in {id(part): part for part in parts.values()}.values():
            tasks.start_soon(part.keep_open)
        yield FuzzedGateway(router, PathRouter(parts, default=gateway), figures)


async def _call_well(gateway: FuzzedGateway, over: anyio.Event) -> None:
    """The good caller: each call has an answer of its own, which has to come back."""
    figures, number = gateway.figures, 0
    while not over.is_set():
        number += 1
        figures.good_calls += 1
        if number % 2:
            got = await gateway.call_api("good/look", {"n": number})
        else:
            got = await gateway.call_modern("good__look", arguments={"n": number})
        if f'\\"n\\":{number}}}'.encode() not in got.body:
            figures.lost += 1
            figures.faults.append(f"lost: {got.status} {got.body[:300]!r}")
        with anyio.move_on_after(0.05):
            await over.wait()


async def run(direction: Direction, era: str, *, cases: int, seed: int) -> FuzzFigures:
    """So many cases of one direction and era."""
    figures = FuzzFigures(direction, era, seed)
    handler = _Faults(figures)
    logger = logging.getLogger("fingerpost")
    logger.addHandler(handler)
    began = time.monotonic()
    try:
        with TemporaryDirectory(prefix="fuzz-") as folder:
            async with AsyncExitStack() as stack:
                source = Cases(f"{seed} {direction} {era}")
                evil = await _hostile_server(stack, direction, era, source, figures)
                good = tool_server("good", [TOOL]).spec()
                gateway = await stack.enter_async_context(
                    open_fuzzed_gateway(Path(folder), figures, evil, good)
                )
                await _drive(gateway, direction, era, cases, source)
    finally:
        logger.removeHandler(handler)
    figures.seconds = round(time.monotonic() - began, 1)
    return figures


async def _hostile_server(
    stack: AsyncExitStack, direction: Direction, era: str, source: Cases, figures: FuzzFigures
) -> ServerSpec:
    if direction == "stdio":
        return Server.stdio("evil", [sys.executable, "-S", programs.__file__, str(figures.seed)], era=OLD)
    hostile = HostileMcpServer(era, source, figures)
    answer = hostile.answer if direction == "server" else _sound_calls(era)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: HostileHttp(answer), "127.0.0.1", 0)
    stack.callback(server.close)
    port = server.sockets[0].getsockname()[1]
    return Server.http("evil", f"http://127.0.0.1:{port}/mcp", era=OLD if era == OLD else MODERN)


def _sound_calls(era: str) -> Callable[[dict[str, Any]], bytes]:
    def answer(asked: dict[str, Any]) -> bytes:
        if asked.get("method") != "tools/call":
            return sound_answer(era, asked)
        content = {"content": [{"type": "text", "text": "done"}]}
        return http_answer(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": content}).encode())

    return answer


async def _drive(gateway: FuzzedGateway, direction: Direction, era: str, cases: int, source: Cases) -> None:
    figures, over, first = gateway.figures, anyio.Event(), 0.0
    sessions = [await gateway.session() for _ in range(4)]
    await gateway.router.route(
        "look something up"
    )  # the first request loads what narrows: seconds, under load

    async def work() -> None:
        nonlocal first
        while figures.cases < cases:
            figures.requests += 1
            if direction == "client":
                figures.cases += 1
                await _client_case(gateway, era, source, sessions)
            else:
                if direction == "stdio":
                    figures.cases += 11  # a reply, and ten other messages on average
                await _server_case(gateway, source, sessions)
            if not first and figures.cases >= cases / 10:
                first = _memory_mib()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_call_well, gateway, over)
        async with anyio.create_task_group() as workers:
            for _ in range(AT_ONCE):
                workers.start_soon(work)
        over.set()
    figures.memory_mib = (first, _memory_mib())


async def _server_case(gateway: FuzzedGateway, source: Cases, sessions: list[dict[str, str]]) -> None:
    match source.random.randrange(8):
        case 0 | 1 | 2:
            await gateway.call_modern("evil__look")
        case 3 | 4 | 5:
            await gateway.call_old(source, source.random.choice(sessions), "evil__look")
        case 6:
            await gateway.call_modern("evil__look", able=False)
        case _:
            await gateway.call_api("evil/look")
    if source.random.random() < 0.01:
        await gateway.router.servers.refresh_stale_listings(timeout=1)


async def _client_case(
    gateway: FuzzedGateway, era: str, source: Cases, sessions: list[dict[str, str]]
) -> None:
    random = source.random
    if random.random() < 0.1:
        method, path, body = source.other_surface()
        data = b"" if body is None else source.request_body(body)
        await gateway.send(
            method, path, data, source.mutate_headers({}), leave_at_first=path == "/api/events"
        )
        return
    message, headers = source.request(era, tools=TOOLS)
    if era == OLD and random.random() < 0.95:
        headers = {**headers, **random.choice(sessions)}
    path = random.choice(["/mcp", "/mcp/all", "/mcp/route"])
    method = random.choice(["POST"] * 40 + ["GET", "OPTIONS", "PUT"])
    stands = method == "GET" or message.get("method") == "subscriptions/listen"
    data = source.request_body(message)
    await gateway.send(method, path, data, source.mutate_headers(headers), leave_at_first=stands)


def _memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if sys.platform == "linux" else 0
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--direction", choices=["server", "client", "stdio"], action="append")
    parser.add_argument("--era", choices=[OLD, MODERN], action="append")
    chosen = parser.parse_args()
    clean = True
    directions: list[Direction] = chosen.direction or ["server", "client", "stdio"]
    for direction in directions:
        for era in [OLD] if direction == "stdio" else chosen.era or [OLD, MODERN]:
            figures = anyio.run(lambda d=direction, e=era: run(d, e, cases=chosen.cases, seed=chosen.seed))
            summary = asdict(figures) | {"faults": len(figures.faults), "examples": figures.faults[:5]}
            print(json.dumps(summary), flush=True)  # noqa: T201
            clean = clean and figures.clean
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
