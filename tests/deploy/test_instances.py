"""Three instances on one PostgreSQL behind HAProxy, which gives each request to the next instance."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from benchmarks.gateway.instances import HAPROXY
from benchmarks.gateway.programs import free_port

from fingerpost import Router
from fingerpost.events import CallFinished, MemorySink
from fingerpost.records import Right, ServerSpec
from fingerpost.servers import Server
from fingerpost.surfaces.http.authenticator import build_authenticator
from fingerpost.surfaces.serve import serve
from tests.kit.api import Listener
from tests.kit.full_server import NOTES, FullServer, serve_full_server
from tests.kit.gateways import build_gateway_settings, wait_until_connected
from tests.kit.oauth_authority import OAuthAuthority, serve_accounts
from tests.kit.proxies import run_haproxy
from tests.requirements import proves
from tests.surfaces.api.test_sign_ins import agree

INSTANCES = 3
PATIENCE_S = 60.0
OLD, MODERN = "2025-11-25", "2026-07-28"
LONG_TEXT = "\n".join(f"line {number} of a long report" for number in range(4000))
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed"),
]


@dataclass
class Client:
    """A client behind the load balancer."""

    http: httpx2.AsyncClient
    key: str
    session: str | None = None
    number: int = 0
    capabilities: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def headers(self) -> dict[str, str]:
        own = {"authorization": f"Bearer {self.key}", "accept": "application/json, text/event-stream"}
        return own if self.session is None else {**own, "mcp-session-id": self.session}

    async def initialize(self) -> None:
        about = {"name": "test", "version": "1"}
        params = {"protocolVersion": OLD, "capabilities": self.capabilities, "clientInfo": about}
        answer = await self.post("initialize", params)
        assert answer.status_code == 200, answer.text
        self.session = answer.headers["mcp-session-id"]

    def build(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.number += 1
        return {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}

    async def post(self, method: str, params: Mapping[str, Any], *, path: str = "/mcp") -> httpx2.Response:
        return await self.http.post(path, json=self.build(method, params), headers=self.headers)

    async def tell(self, message: Mapping[str, Any]) -> None:
        body = {"jsonrpc": "2.0", **message}
        assert (await self.http.post("/mcp", json=body, headers=self.headers)).status_code == 202

    async def ask(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result of a request of the session."""
        answer = read_answer(await self.post(method, params or {}))
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, **arguments: Any) -> Any:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def call_modern(self, tool: str, **more: Any) -> Any:
        """The result of a request that belongs to no session."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        }
        body = self.build("tools/call", {"name": tool, "arguments": {}, "_meta": meta, **more})
        named = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        own = {name: value for name, value in self.headers.items() if name != "mcp-session-id"}
        answer = read_answer(await self.http.post("/mcp", json=body, headers={**own, **named}))
        assert "result" in answer, answer
        return answer["result"]

    async def api(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.http.request(method, path, json=body, headers=self.headers)
        assert answer.status_code < 300, answer.text
        return answer.json()

    @asynccontextmanager
    async def listen(self, path: str) -> AsyncGenerator[Listener]:
        headers = {**self.headers, "accept": "text/event-stream"}
        async with self.http.stream("GET", path, headers=headers) as response:
            assert response.status_code == 200, await response.aread()
            yield Listener(response)


def read_answer(response: httpx2.Response) -> Any:
    if response.headers["content-type"].startswith("text/event-stream"):
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        return json.loads(lines[-1].removeprefix("data: "))
    return response.json()


def get_text(result: Mapping[str, Any]) -> str:
    return "".join(block.get("text", "") for block in result["content"])


@dataclass
class Instances:
    """Three gateways, and clients for them."""

    address: str
    routers: list[Router]
    sinks: list[MemorySink]
    http: httpx2.AsyncClient

    async def create_client(self, name: str, *rights: Right, **capabilities: Any) -> Client:
        _, key = await self.routers[0].store.keys.add(name, rights=rights or (Right.USE,))
        return Client(self.http, key, capabilities=capabilities)


@asynccontextmanager
async def open_instances(folder: Path, url: str, *servers: ServerSpec) -> AsyncGenerator[Instances]:
    ports = [free_port() for _ in range(INSTANCES)]
    front = free_port()
    address = f"http://127.0.0.1:{front}"
    async with AsyncExitStack() as stack:
        routers: list[Router] = []
        sinks = [MemorySink() for _ in ports]
        for number in range(INSTANCES):
            own = folder / f"instance-{number}"
            own.mkdir()
            settings = build_gateway_settings(
                own,
                store={"url": url},
                policy=[{"tool": "talk/meta", "verdict": "ask"}, {"verdict": "allow"}],
                gateway={"mode": "all", "public_url": address, "require_key": True},
                profiles={"small": {"tools": ["talk/report"]}},
                call={"data_flow": "off"},
            )
            router = await stack.enter_async_context(
                Router(servers, settings=settings, sinks=[sinks[number]])
            )
            await router.register(write_report, effect="read")
            await wait_until_connected(router)
            routers.append(router)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        stack.callback(tasks.cancel_scope.cancel)
        for router, port in zip(routers, ports, strict=True):
            started = anyio.Event()
            tasks.start_soon(run_instance, router, port, started)
            with anyio.fail_after(PATIENCE_S):
                await started.wait()
        await stack.enter_async_context(run_haproxy(folder, front, ports))
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=PATIENCE_S))
        yield Instances(address, routers, sinks, http)


async def run_instance(router: Router, port: int, started: anyio.Event) -> None:
    await serve(
        router,
        host="127.0.0.1",
        port=port,
        authenticator=lambda bound: build_authenticator(
            router.settings.gateway,
            keys=router.store.keys,
            events=router.events,
            bound=bound,
            profiles=router.profiles,
            apply_user=router.users.apply,
        ),
        started=lambda _: started.set(),
        signals=False,
    )


def write_report() -> str:
    """Write the long report."""
    return LONG_TEXT


@proves("M40", "M30")
async def test_any_instance_serves_what_another_one_began(tmp_path: Path, postgres_url: str) -> None:
    talkative, authority = FullServer(), OAuthAuthority()
    async with (
        serve_full_server(talkative) as (upstream, _),
        serve_accounts(authority) as accounts,
        open_instances(
            tmp_path, postgres_url, Server.http("talk", upstream, era=OLD, trust_hints=True), accounts
        ) as instances,
    ):
        client = await instances.create_client("anna", Right.USE, elicitation={"form": {}})
        boss = await instances.create_client("boss", *Right)
        await client.initialize()
        await check_calls(instances, client)
        revoked = await instances.create_client("carl")
        for _ in range(INSTANCES):
            await revoked.initialize()
        await instances.routers[0].store.keys.revoke("carl")
        await check_results(client)
        await check_questions(client)
        await check_cancellation(client, talkative)
        await check_subscription(client, talkative)
        await check_approvals(client, boss)
        await check_live_stream(client, boss)
        await check_disabled_tools(client, boss)
        await check_sign_in(instances, client)
        await check_limits(instances, boss)
        assert (await client.http.delete("/mcp", headers=client.headers)).status_code == 200
        await expect_status(client, 404)
        await expect_status(revoked, 401)


async def check_calls(instances: Instances, client: Client) -> None:
    """Sessions, requests without one, and profiles."""
    for _ in range(INSTANCES):
        assert get_text(await client.call("talk__report")) == "reported"
        assert get_text(await client.call_modern("talk__report")) == "reported"
    listed = read_answer(await client.post("tools/list", {}))["result"]["tools"]
    assert len(listed) > 5
    for sink in instances.sinks:
        assert any(isinstance(event, CallFinished) for event in sink.events)
    for _ in range(INSTANCES):
        small = Client(client.http, client.key)
        answer = await small.post(
            "initialize", {"protocolVersion": OLD, "capabilities": {}}, path="/mcp/p/small"
        )
        small.session = answer.headers["mcp-session-id"]
        named = read_answer(await small.post("tools/list", {}, path="/mcp/p/small"))["result"]["tools"]
        assert "talk__report" in [tool["name"] for tool in named] and len(named) < 4
    other = Client(client.http, (await instances.create_client("eve")).key, client.session)
    for _ in range(INSTANCES):
        assert (await other.post("tools/list", {})).status_code == 404


async def check_results(client: Client) -> None:
    """`read_result`, and calls with an idempotency key."""
    cut = get_text(await client.call("local__write_report"))
    handle = next(word.strip('`".,:;)(') for word in cut.split() if "res_" in word)
    handle = handle[handle.index("res_") :][:17]
    for page in range(1, INSTANCES + 1):
        assert "of a long report" in get_text(await client.call("read_result", handle=handle, page=page))
    meta = {"fingerpost/idempotency-key": "once"}
    outcomes = [
        await client.ask("tools/call", {"name": "talk__sample", "arguments": {}, "_meta": meta})
        for _ in range(INSTANCES)
    ]
    assert ["fingerpost/replayed" in outcome["_meta"] for outcome in outcomes] == [False, True, True]


async def check_questions(client: Client) -> None:
    """The answer to a server's question reaches the call that waits for it, in both revisions."""
    body = client.build("tools/call", {"name": "talk__ask", "arguments": {}})
    async with client.http.stream("POST", "/mcp", json=body, headers=client.headers) as response:
        listener = Listener(response)
        question = (await listener.next()).data
        assert question["method"] == "elicitation/create"
        answer = {"action": "accept", "content": {"colour": "red"}}
        await client.tell({"id": question["id"], "result": answer})
        assert "red" in get_text((await listener.next()).data["result"])
    asked = await client.call_modern("talk__ask")
    assert asked["resultType"] == "input_required"
    [key] = asked["inputRequests"]
    given = {"requestState": asked["requestState"], "inputResponses": {key: answer}}
    assert "red" in get_text(await client.call_modern("talk__ask", **given))


async def check_cancellation(client: Client, talkative: FullServer) -> None:
    async def wait() -> None:
        answer = read_answer(await client.post("tools/call", {"name": "talk__wait", "arguments": {}}))
        assert answer["error"]["code"] == -32800

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        with anyio.fail_after(PATIENCE_S):
            await talkative.began.wait()
            cancelled = {"requestId": client.number}
            await client.tell({"method": "notifications/cancelled", "params": cancelled})
            await talkative.cancelled.wait()


async def check_subscription(client: Client, talkative: FullServer) -> None:
    """What is subscribed to at one instance is told in the stream at another one."""
    async with client.listen("/mcp") as stream:
        await client.ask("resources/subscribe", {"uri": NOTES})
        with anyio.fail_after(PATIENCE_S):
            while not talkative.subscribed:  # noqa: ASYNC110 - short
                await anyio.sleep(0.02)
            await talkative.touch(NOTES)
            while (await stream.next()).data["method"] != "notifications/resources/updated":
                pass
    await client.ask("resources/unsubscribe", {"uri": NOTES})


async def check_approvals(client: Client, boss: Client) -> None:
    """Approved at one instance, run once at another one; approvals for a conversation hold at all."""
    plain = Client(client.http, client.key)
    await plain.initialize()
    asked = await plain.call("talk__meta")
    [waiting] = (await boss.api("GET", "/api/approvals"))["items"]
    assert waiting["pending_id"] in json.dumps(asked)
    await boss.api("POST", f"/api/approvals/{waiting['pending_id']}/approve", {"for_conversation": True})
    for _ in range(INSTANCES):
        assert "waiting" not in get_text(await plain.call("talk__meta")).lower()
    assert (await boss.api("GET", "/api/approvals"))["items"] == []


async def check_live_stream(client: Client, boss: Client) -> None:
    """Each instance tells of calls that another one makes."""
    async with boss.listen("/api/events?kinds=call_finished") as stream:
        for _ in range(INSTANCES):
            await client.call("talk__report")
        told = 0
        while told < INSTANCES:  # the end of an earlier call may come first
            told += (await stream.next()).data["data"]["tool"] == "talk/report"


async def check_disabled_tools(client: Client, boss: Client) -> None:
    await boss.api("POST", "/api/tools/talk/report/switch", {"on": False, "reason": "test"})
    with anyio.fail_after(PATIENCE_S):
        refused = 0
        while refused < INSTANCES:
            result = await client.call("talk__report")
            refused = refused + 1 if result.get("isError") else 0
    await boss.api("POST", "/api/tools/talk/report/switch", {"on": True})


async def check_sign_in(instances: Instances, client: Client) -> None:
    """Begun at one instance, finished at the next one, used at all. The code passes encrypted."""
    messages: list[str] = []  # from instance to instance
    for router in instances.routers:
        router.store.messages.subscribe("asked", lambda body: messages.append(json.dumps(body)))
    begun = await client.api("POST", "/api/sign-ins/accounts")
    answer = await agree(begun["url"])
    assert (await client.api("POST", "/api/sign-in-answers", answer))["signed_in"]
    asked = "".join(messages)
    assert "sign_in_answer" in asked
    assert answer["code"] not in asked and answer["state"] not in asked
    for _ in range(INSTANCES):
        called = await client.api("POST", "/api/call", {"tool": "accounts/get_account", "arguments": {}})
        assert called["success"], called


async def check_limits(instances: Instances, boss: Client) -> None:
    """All instances together admit as many calls as a quota allows, and all refuse a disabled user."""
    client, limit = await instances.create_client("dora"), 5
    quota = await boss.api("POST", "/api/quotas", {"match": "dora", "calls_per_minute": limit})
    call: dict[str, Any] = {"tool": "talk/report", "arguments": {}}
    minutes, admitted, refused = set[int](), 0, 0
    with anyio.fail_after(PATIENCE_S):
        while not all(router.quotas.active for router in instances.routers):  # noqa: ASYNC110 - short
            await anyio.sleep(0.02)
        while refused < INSTANCES:
            minutes.add(int(time.time() // 60))
            answer = await client.http.post("/api/call", json=call, headers=client.headers)
            minutes.add(int(time.time() // 60))
            admitted += answer.status_code == 200
            refused = refused + 1 if answer.status_code == 429 else 0
    assert 1 <= admitted <= limit * len(minutes)
    await boss.api("PUT", "/api/users/dora", {"disabled": True})
    await expect_status(client, 403)
    removed = await boss.http.delete(f"/api/quotas/{quota['quota_id']}", headers=boss.headers)
    assert removed.status_code == 204


async def expect_status(client: Client, status: int) -> None:
    """All instances answer so, at the latest after the few seconds that a key is kept."""
    with anyio.fail_after(PATIENCE_S):
        seen = 0
        while seen < INSTANCES:
            found = (await client.post("tools/list", {})).status_code
            seen = seen + 1 if found == status else 0
            await anyio.sleep(0.05)
