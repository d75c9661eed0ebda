"""What reaches a server of what a caller sends: the request and its trace, never who they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import anyio
import pytest

from fingerpost import Router
from fingerpost.records import Era, ServerSpec
from fingerpost.servers.per_caller import FREQUENT_CALLS
from fingerpost.testing import ScriptedModel, calls, served
from tests.conformance.fixture_server import application
from tests.kit import api
from tests.kit import chat_completions as chat
from tests.kit.gateways import PATIENCE_S, build_gateway_settings, serve_gateway, wait_until_connected
from tests.kit.probe import Probe
from tests.requirements import proves

Object = dict[str, Any]

MODERN: Final = "2026-07-28"
HANDSHAKE: Final = "2025-11-25"
ERAS: Final[tuple[Era, ...]] = (HANDSHAKE, MODERN)

SECRET: Final = "canary-7f3a"  # in everything that is the caller's own
CALLERS_OWN: Final = {
    "Authorization": f"Bearer {SECRET}-token",
    "Cookie": f"session={SECRET}-cookie",
    "X-Custom": f"{SECRET}-custom",
    "X-Forwarded-User": f"{SECRET}-user",
    "User-Agent": f"{SECRET}-agent",
    "Proxy-Authorization": f"Basic {SECRET}-proxy",
}
TRACE: Final[Object] = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "vendor=value",
    "baggage": "tenant=blue",
    "com.example/unknown": {"kept": [1, 2.5, None, "ü"]},
}
REQUESTS: Final[tuple[tuple[str, Object], ...]] = (
    ("tools/call", {"name": "test_simple_text", "arguments": {}}),
    ("resources/read", {"uri": "test://static-text"}),
    ("prompts/get", {"name": "test_simple_prompt"}),
)


class RawClient:
    """A client that sends what it likes."""

    def __init__(self, http: aiohttp.ClientSession, url: str, era: Era, headers: dict[str, str]) -> None:
        self._http = http
        self._url = url
        self._era = era
        self._headers = {
            **headers,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    async def shake_hands(self) -> None:
        """The older era begins with this."""
        about = {"name": "probing", "version": "1"}
        opening: Object = {"protocolVersion": self._era, "capabilities": {}, "clientInfo": about}
        async with self._post("initialize", opening, 0) as reply:
            assert reply.status == 200, await reply.text()
            self._headers["Mcp-Session-Id"] = reply.headers["Mcp-Session-Id"]
        async with self._post("notifications/initialized", {}, None) as reply:
            assert reply.status == 202, await reply.text()

    async def ask(self, method: str, params: Object, request_id: int | str) -> Object:
        """The result of one request."""
        name = params.get("name") or params.get("uri") or ""
        sent: Object = {**params, "_meta": dict(TRACE)}
        if self._era == MODERN:
            sent["_meta"] |= {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": f"{SECRET}-client", "version": "1"},
            }
        headers = {"MCP-Protocol-Version": self._era, "Mcp-Method": method, "Mcp-Name": name}
        async with self._post(method, sent, request_id, **headers) as reply:
            answer = await reply.json()
        assert reply.status == 200, answer
        assert answer["id"] == request_id
        return answer["result"]

    def _post(self, method: str, params: Object, request_id: int | str | None, **more: str) -> Any:
        message: Object = {"jsonrpc": "2.0", "method": method, "params": params}
        if request_id is not None:
            message["id"] = request_id
        url = f"{self._url}?{SECRET}=query"
        return self._http.post(url, json=message, headers=self._headers | more)


@asynccontextmanager
async def callers(
    folder: Path, era: Era, *names: str, speaks: Era | None = None, **spec: Any
) -> AsyncGenerator[tuple[Probe, list[RawClient]]]:
    """Callers of one gateway with a probe behind it, each with a key of their own."""
    probe = Probe(application())
    async with served(probe) as upstream:
        server = ServerSpec(
            name="probed",
            transport="http",
            url=f"{upstream}/mcp",
            era=speaks or era,
            prefix=False,
            **spec,
        )
        # Busy callers here have but one thing to ask.
        router_settings = build_gateway_settings(folder, flags={"loop_guard": False})
        async with Router([server], settings=router_settings) as router:
            await wait_until_connected(router)
            async with serve_gateway(router) as address, aiohttp.ClientSession() as http:
                made: list[RawClient] = []
                for name in names:
                    _, key = await router.store.keys.add(name)
                    headers = {**CALLERS_OWN, "X-API-Key": key}
                    made.append(RawClient(http, f"{address}/mcp", era, headers))
                    if era == HANDSHAKE:
                        await made[-1].shake_hands()
                yield probe, made


@pytest.mark.parametrize("era", ERAS)
@proves("G9")
async def test_nothing_of_the_caller_reaches_a_server(era: Era, tmp_path: Path) -> None:
    async with callers(tmp_path, era, "ann") as (probe, [ann]):
        for number, (method, params) in enumerate(REQUESTS, start=1):
            await ann.ask(method, params, number)
    for method, _ in REQUESTS:
        assert probe.list_requests(method), f"{method} never came to the server"
    for arrival in probe.arrivals:
        assert SECRET not in arrival.everything
        assert not {"authorization", "cookie", "x-api-key", "origin"} & arrival.headers.keys()
        assert "fp_" not in arrival.everything


@pytest.mark.parametrize("era", ERAS)
@proves("G9")
async def test_trace_context_and_unknown_meta_arrive(era: Era, tmp_path: Path) -> None:
    async with callers(tmp_path, era, "ann") as (probe, [ann]):
        for number, (method, params) in enumerate(REQUESTS, start=1):
            await ann.ask(method, params, number)
    for method, _ in REQUESTS:
        meta = probe.list_requests(method)[-1].message["params"]["_meta"]
        assert {key: meta.get(key) for key in TRACE} == TRACE, method


@pytest.mark.parametrize("era", ERAS)
@proves("G8", "G9")
async def test_two_callers_with_the_same_ids_do_not_meet(era: Era, tmp_path: Path) -> None:
    """The server sees ids of ours, each once, whatever the callers count by."""
    async with callers(tmp_path, era, "ann", "bob") as (probe, [ann, bob]):
        for caller in (ann, bob):
            for number in ("mine-1", 7_000_007):
                await caller.ask(*REQUESTS[0], number)
    ids = [arrival.message["id"] for arrival in probe.list_requests("tools/call")]
    assert len(ids) == len(set(ids)) == 4
    assert not {"mine-1", 7_000_007} & set(ids)


@pytest.mark.parametrize("era", ERAS)
@proves("G8")
async def test_what_is_asked_again_is_done_again(era: Era, tmp_path: Path) -> None:
    """A client that repeats an answered call means it: nothing is answered from the cache."""
    again: Object = {"name": "test_trigger_prompt_change", "arguments": {}}
    async with callers(tmp_path, era, "ann") as (probe, [ann]):
        for number in range(1, 5):
            await ann.ask("tools/call", again, number)
    assert len(probe.list_requests("tools/call")) == 4


@pytest.mark.parametrize("era", ERAS)
@proves("B9", "G9")
async def test_a_token_goes_along_only_where_a_server_is_configured_so(era: Era, tmp_path: Path) -> None:
    """And then only the caller's own token, with the caller's own request, and nothing else of the caller."""
    async with callers(tmp_path, era, "ann", forward_authorization=True) as (probe, [ann]):
        for number, (method, params) in enumerate(REQUESTS, start=1):
            await ann.ask(method, params, number)
    asked = [arrival for method, _ in REQUESTS for arrival in probe.list_requests(method)]
    assert [arrival.headers.get("authorization") for arrival in asked] == [CALLERS_OWN["Authorization"]] * 3
    for arrival in probe.arrivals:
        rest = arrival.everything.replace(CALLERS_OWN["Authorization"], "")
        assert SECRET not in rest
        assert "fp_" not in rest
        if arrival not in asked:
            assert "authorization" not in arrival.headers


@proves("G9")
async def test_a_key_of_ours_never_goes_along(tmp_path: Path) -> None:
    """Also not to a server that gets the callers' tokens."""
    probe = Probe(application())
    async with served(probe) as upstream:
        server = ServerSpec(
            name="probed", transport="http", url=f"{upstream}/mcp", prefix=False, forward_authorization=True
        )
        async with Router([server], settings=build_gateway_settings(tmp_path)) as router:
            await wait_until_connected(router)
            _, key = await router.store.keys.add("ann")
            async with serve_gateway(router) as address, aiohttp.ClientSession() as http:
                ann = RawClient(http, f"{address}/mcp", MODERN, {"Authorization": f"Bearer {key}"})
                await ann.ask(*REQUESTS[0], 1)
    assert probe.list_requests("tools/call")
    assert not [arrival for arrival in probe.arrivals if "fp_" in arrival.everything]


@proves("B9", "B13")
@pytest.mark.parametrize("forward", [True, False])
async def test_over_the_api_and_in_a_chat_too_the_callers_own_key_goes_where_it_was_set_up(
    tmp_path: Path, forward: bool
) -> None:
    """Never where it was not; never a key of ours; and it is kept nowhere."""
    model = ScriptedModel(
        lambda request: (
            calls(("test_simple_text", {})) if request.messages[-1].role == "user" else "It says hello."
        )
    )
    probe = Probe(application())
    async with served(probe) as upstream:
        server = ServerSpec(
            name="probed",
            transport="http",
            url=f"{upstream}/mcp",
            prefix=False,
            forward_authorization=forward,
        )
        async with Router([server], settings=build_gateway_settings(tmp_path), model=model) as router:
            await wait_until_connected(router)
            _, key = await router.store.keys.add("ann")
            own = {"X-API-Key": key, "Authorization": CALLERS_OWN["Authorization"]}
            async with api.serve_api(router) as console, chat.serve_completions(router) as (address, _):
                call: Object = {"tool": "probed/test_simple_text", "arguments": {}}
                for headers in (own, {"X-API-Key": key, "Authorization": f"Bearer {key}"}):
                    reply = await console.post("/api/call", call, headers=headers)
                    assert reply.json()["success"], reply.text
                question = {"role": "user", "content": "Use the tool test_simple_text"}
                body: Object = {"model": "fingerpost", "messages": [question]}
                async with (
                    aiohttp.ClientSession() as http,
                    http.post(f"{address}/v1/chat/completions", json=body, headers=own) as answer,
                ):
                    assert answer.status == 200, await answer.text()
            await router.store.journal.flush()
            kept = "".join(str(entry.event) for entry in await router.store.journal.list_events(limit=10_000))
    sent = [arrival.headers.get("authorization") for arrival in probe.list_requests("tools/call")]
    theirs = CALLERS_OWN["Authorization"] if forward else None
    assert sent == [theirs, None, theirs]
    assert SECRET not in kept
    assert not [arrival for arrival in probe.arrivals if "fp_" in arrival.everything]


@pytest.mark.slow
@proves("G8", "G9")
async def test_a_busy_client_with_a_session_has_one_of_its_own_at_a_server_of_both_eras(
    tmp_path: Path,
) -> None:
    """The session does not leak data of other callers either."""
    async with callers(tmp_path, HANDSHAKE, "ann", speaks="auto") as (probe, [ann]):
        number = 0
        with anyio.fail_after(PATIENCE_S):
            while not number or "mcp-session-id" not in probe.list_requests("tools/call")[-1].headers:
                number += 1
                answer = await ann.ask(*REQUESTS[0], number)
                assert answer["content"][0]["text"]
    assert number > FREQUENT_CALLS
    assert probe.list_requests("initialize")[-1].message["params"]["capabilities"] == {}  # as ann declared
    for arrival in probe.arrivals:
        assert SECRET not in arrival.everything
        assert "fp_" not in arrival.everything
