"""A model, through the tools it has, against the decision about its own write.

The tools are those of a real server in a process of its own, which counts what it deletes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult

from fingerpost import Router, Settings
from fingerpost.records import ErrorKind, ServerSpec
from fingerpost.testing import tool_server
from tests.kit import warm
from tests.kit.gateways import serve_gateway, wait_until_connected
from tests.kit.stores import place_empty_store
from tests.requirements import proves

ROOT = Path(__file__).parents[2]
DELETE = {"tool": "web/delete_note", "arguments": {"path": "a.txt"}}
FETCH_ALLOWED = [{"verdict": "allow", "tool": "web/fetch_url"}]  # as where it is judged to read


@dataclass
class GatewayWithFetch:
    """A gateway with the default settings, and what its server counted."""

    router: Router
    address: str
    client: httpx2.AsyncClient
    count: Path

    @property
    def deletions(self) -> int:
        return len(self.count.read_text().splitlines()) if self.count.exists() else 0

    async def call(self, tool: str, arguments: dict[str, Any], **headers: str) -> dict[str, Any]:
        body = {"tool": tool, "arguments": arguments}
        return (await self.client.post("/api/call", json=body, headers=headers)).json()

    async def fetch(self, url: str, body: Any = None, headers: Any = None, **own: str) -> dict[str, Any]:
        """What the model has the tool send."""
        sent: dict[str, Any] = {
            "url": url,
            "method": "GET" if body is None else "POST",
            "headers": headers or {},
        }
        if body is not None:
            sent["body"] = json.dumps(body)
        return await self.call("web/fetch_url", sent, **own)


@asynccontextmanager
async def open_gateway_with_fetch(folder: Path, **more: Any) -> AsyncGenerator[GatewayWithFetch]:
    count = folder / "deleted"
    command, *arguments = [*warm.python(), "-m", "tests.security.fetch_server", str(count)]
    spec = ServerSpec(name="web", transport="stdio", command=command, args=tuple(arguments), cwd=str(ROOT))
    settings = Settings.model_validate(
        {"store": {"url": place_empty_store(folder, "s.db")}, "policy": FETCH_ALLOWED, **more}
    )
    async with Router([spec], settings=settings) as router:
        await wait_until_connected(router)
        async with (
            serve_gateway(router) as address,
            httpx2.AsyncClient(base_url=address, timeout=20) as client,
        ):
            yield GatewayWithFetch(router, address, client, count)


@pytest.mark.process
@proves("X2")
@pytest.mark.parametrize("key", [False, True], ids=["no key", "a key with use"])
async def test_a_tool_that_makes_web_requests_does_not_approve(tmp_path: Path, key: bool) -> None:
    async with open_gateway_with_fetch(tmp_path) as gateway:
        own = {}
        if key:
            _, text = await gateway.router.store.keys.add("agent")
            own = {"x-api-key": text}
        waits = (await gateway.client.post("/api/call", json=DELETE, headers=own)).json()
        url = f"{gateway.address}/api/approvals/{waits['pending_id']}/approve"
        await gateway.fetch(url, {}, **own)
        again = (await gateway.client.post("/api/call", json=DELETE, headers=own)).json()
        assert (gateway.deletions, again["error"]) == (0, "authorization_required")


@pytest.mark.process
@proves("X6")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("key", [False, True], ids=["no key", "a key with use"])
async def test_a_client_that_may_not_approve_does_not_by_answering_itself(
    tmp_path: Path, mode: str, key: bool
) -> None:
    """Both eras: asked within its session, and by `input_required`."""
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with open_gateway_with_fetch(tmp_path) as gateway:
        own = {}
        if key:
            _, text = await gateway.router.store.keys.add("agent")
            own = {"x-api-key": text}
        async with httpx2.AsyncClient(headers=own, timeout=20) as http:
            transport = streamable_http_client(f"{gateway.address}/mcp/all", http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=approve) as client:
                result = await client.call_tool("web__delete_note", {"path": "a.txt"})
        assert (gateway.deletions, asked) == (0, [])
        assert result.is_error and "fingerpost approvals approve" in str(result.content)
        assert "without the right `confirm`" in str(result.content)
        (waiting,) = await gateway.router.calls.approvals.list_waiting()
        assert waiting.tool == "web/delete_note"


@pytest.mark.process
@proves("X6")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_with_local_confirm_a_local_client_asks_its_person(tmp_path: Path, mode: str) -> None:
    """Taken with its risk: any program here may answer. It may confirm its own calls, and decide nothing."""
    asked: list[str] = []

    async def approve(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "approve"})

    async with open_gateway_with_fetch(tmp_path, gateway={"local_confirm": True}) as gateway:
        async with Client(f"{gateway.address}/mcp/all", mode=mode, elicitation_callback=approve) as client:
            result = await client.call_tool("web__delete_note", {"path": "a.txt"})
        assert not result.is_error, result.content
        assert (gateway.deletions, len(asked)) == (1, 1)
        assert "web/delete_note" in asked[0]
        waits = (await gateway.client.post("/api/call", json=DELETE)).json()
        approve_path = f"/api/approvals/{waits['pending_id']}/approve"
        assert (await gateway.client.post(approve_path, json={})).status_code == 403
        assert gateway.deletions == 1


OWN = (
    "http://127.0.0.1:{port}/api/me",
    "HTTP://LOCALHOST:{port}/",
    "http://localhost.:{port}",
    "http://user:pw@127.0.0.1:{port}/",
    "http://evil.example@127.0.0.1:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[::ffff:7f00:1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[2002:7f00:1::]:{port}/",
    "http://\uff11\uff12\uff17.0.0.1:{port}/",
    "http://127\u30020\u30020\u30021:{port}/",
    "http://%31%32%37.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}\\",
    "http:127.0.0.1:{port}/",
    "  ht\ntp://127.0.\t0.1:{port}/",
    "//127.0.0.1:{port}/",
    "ws://a.localhost:{port}/",
    "http://127.0.0.1.nip.io:{port}/",
    "http://{name}:{port}/",
    "127.0.0.1:{port}/api/me",
    "me@localhost:{port}",
)
NEAR = (
    "http://127.0.0.1:1/",
    "https://localhost/",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fe80::1%25eth0]/",
    "http://metadata.google.internal/",
    "http://0xa9fea9fe/",
    "localhost",
)
FAR = ("https://example.com/?next=http://127.0.0.1:{port}/", "example.com:{port}", "8080", "")


@pytest.mark.slow
@proves("X2")
async def test_addresses_of_this_machine_are_refused_or_asked_about(tmp_path: Path) -> None:
    """In any way of writing. Ours are refused whatever a rule says; others ask, unless a rule allows them."""
    seen: list[str] = []

    async def fetch(name: str, arguments: dict[str, Any]) -> str:
        seen.append(str(arguments))
        return "fetched"

    reads = {"annotations": {"readOnlyHint": True}, "inputSchema": {"type": "object"}}
    names = ("fetch_url", "fetch_trusted")
    server = tool_server("web", [{"name": name, "description": "Read a page.", **reads} for name in names],
                         call=fetch)  # fmt: skip
    rules = [
        {"verdict": "allow", "tool": "web/fetch_trusted"},
        {"verdict": "allow", "arguments": {"far": "*"}},
    ]
    settings = {"store": {"url": place_empty_store(tmp_path, "s.db")}, "policy": rules}
    async with (
        Router([server.spec()], settings=Settings.model_validate(settings)) as router,
        serve_gateway(router) as address,
    ):
        await wait_until_connected(router)
        port = address.rpartition(":")[2]
        for form in OWN:
            url = form.format(port=port, name=socket.gethostname())
            for arguments in ({"url": url}, {"deep": [{"request_url": url}]}):
                refused = await router.call("web/fetch_trusted", arguments)
                assert refused.error is ErrorKind.DENIED, form
                assert "Fingerpost itself" in refused.content
        commands = (
            {"command": f"curl -d {{}} http://127.0.0.1:{port}/api"},
            {"host": "::1", "port": int(port)},
        )
        for arguments in commands:
            assert (await router.call("web/fetch_trusted", arguments)).error is ErrorKind.DENIED
        assert seen == []
        for form in NEAR:
            asked = await router.call("web/fetch_url", {"url": form})
            assert asked.error is ErrorKind.AUTHORIZATION_REQUIRED, form
            assert asked.pending_id is not None
            pending = await router.calls.approvals.get(asked.pending_id)
            assert pending is not None and pending.exact
            assert "local" in pending.reason
        assert seen == []
        for form in NEAR:
            assert (await router.call("web/fetch_trusted", {"url": form})).success, form
        for form in FAR:
            arguments = {"url": form.format(port=port), "text": f"see http://127.0.0.1:{port}/"}
            assert (await router.call("web/fetch_url", arguments)).success, form
