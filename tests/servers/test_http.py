"""Servers at an address: both eras, the old transport, and everything that can go wrong on the way."""

from __future__ import annotations

from typing import Any

import anyio
import httpx2
import pytest

from fingerpost.errors import (
    ConfigError,
    FingerpostError,
    ResponseTooLarge,
    ServerReplyInvalid,
    ServerUnavailable,
    ToolTimeout,
)
from fingerpost.records import ServerState
from fingerpost.servers import Server
from fingerpost.servers.http_client import HttpClients
from fingerpost.testing import http_fault, served, tool_server
from tests.kit.server_pools import PATIENCE, arguments_of, names, open_pool, text_of
from tests.kit.tables import table
from tests.requirements import proves

MEGABYTE = 1024 * 1024
FAR = 600.0


@proves("H11")
@table("era", ["2025-11-25", "2026-07-28"])
@table("json_response", [True, False])
async def test_both_eras_connect_over_http(era: Any, json_response: bool):
    remote = tool_server("remote", ["echo", "other"])
    async with (
        served(remote.server.streamable_http_app(json_response=json_response)) as base,
        open_pool(Server.http("remote", f"{base}/mcp", era=era)) as servers,
    ):
        assert servers.get_status("remote").protocol == era
        assert names(servers, "remote") == ["echo", "other"]
        result = await servers.call("remote", "echo", {"a": [1, "ü"]}, timeout=PATIENCE)
        assert arguments_of(result) == {"a": [1, "ü"]}


@proves("H10")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_changed_list_is_seen_over_http(era: Any):
    remote = tool_server("remote", ["one"])
    async with (
        served(remote.server.streamable_http_app()) as base,
        open_pool(Server.http("remote", f"{base}/mcp", era=era)) as servers,
    ):
        with anyio.fail_after(PATIENCE):
            while names(servers, "remote") != ["one", "two"]:  # only an open stream hears of it
                await remote.replace([{"name": "one"}, {"name": "two"}])
                await anyio.sleep(0.1)


def _create_mirroring_tool(header: str) -> dict[str, Any]:
    properties = {"region": {"type": "string", "x-mcp-header": header}}
    return {"name": "echo", "inputSchema": {"type": "object", "properties": properties}}


async def test_arguments_are_repeated_as_headers_and_a_changed_schema_is_learned_on_refusal():
    remote = tool_server("remote", [_create_mirroring_tool("Region")])
    async with (
        served(remote.server.streamable_http_app()) as base,
        open_pool(Server.http("remote", f"{base}/mcp", era="2026-07-28")) as servers,
    ):
        result = await servers.call("remote", "echo", {"region": "north"}, timeout=PATIENCE)
        assert arguments_of(result) == {"region": "north"}
        remote.change_silently([_create_mirroring_tool("Area")])
        result = await servers.call("remote", "echo", {"region": "south"}, timeout=PATIENCE)
        assert arguments_of(result) == {"region": "south"}
    assert [arguments["region"] for _, arguments in remote.calls] == ["north", "south"]


@proves("H12")
async def test_calls_over_one_http_server_run_at_once():
    everybody = anyio.Event()
    waiting = 0

    async def call(_: str, arguments: dict[str, Any]) -> str:
        nonlocal waiting
        waiting += 1
        if waiting == 30:
            everybody.set()
        await everybody.wait()
        return str(arguments["n"])

    remote = tool_server("remote", call=call)
    async with (
        served(remote.server.streamable_http_app()) as base,
        open_pool(Server.http("remote", f"{base}/mcp")) as servers,
    ):
        answers: dict[int, str] = {}

        async def ask(number: int) -> None:
            answers[number] = text_of(await servers.call("remote", "echo", {"n": number}, timeout=PATIENCE))

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(ask, number)
        assert answers == {number: str(number) for number in range(30)}


@proves("H12")
async def test_one_servers_headers_never_reach_another():
    seen: dict[str, set[str | None]] = {"/a": set(), "/b": set()}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        seen[scope["path"]].add(headers.get("x-key"))
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with served(app) as base:
        first = Server.http("a", f"{base}/a", headers={"X-Key": "for a only"})
        async with open_pool(first, Server.http("b", f"{base}/b")):
            pass
    assert seen == {"/a": {"for a only"}, "/b": {None}}


@proves("H12")
async def test_all_clients_share_one_connection_pool_and_closing_one_closes_nothing():
    remote = tool_server("remote")
    stack = HttpClients()
    async with served(remote.server.streamable_http_app()) as base:
        first = await stack.build_client(headers={"X-One": "1"})
        second = await stack.build_client()
        async with first:
            await first.get(f"{base}/nothing")
        response = await second.get(f"{base}/nothing")
        assert response.status_code == 404
        shared = stack._shared  # pyright: ignore[reportPrivateUsage] - the sharing is the point
        assert shared is not None
        assert not shared.is_closed
        await second.aclose()
        await stack.aclose()


async def _failure(fault: str, *, timeout: float = FAR, **limits: Any) -> FingerpostError:
    async with (
        http_fault(fault) as server,
        open_pool(Server.http("bad", server.url), tool_server("good").spec(), **limits) as servers,
    ):
        with anyio.fail_after(PATIENCE), pytest.raises(FingerpostError) as caught:
            await servers.call("bad", "echo", {}, timeout=timeout)
        assert arguments_of(await servers.call("good", "echo", {"a": 1}, timeout=PATIENCE)) == {"a": 1}
    return caught.value


@proves("F1", "F3", "F12")
@table(
    ("fault", "words"),
    [
        ("reset", "broke"),
        ("half_closed", "ended its reply before it was complete"),
        ("half_json", "broke"),
        ("server_error", "HTTP 500"),
    ],
)
async def test_a_broken_exchange_is_an_error_at_once_and_never_a_result(fault: str, words: str):
    error = await _failure(fault)
    assert isinstance(error, ServerUnavailable)
    assert words in str(error)


@proves("F2", "F4")
@pytest.mark.parametrize("fault", ["hang", "drip"])
async def test_a_deadline_covers_the_whole_exchange(fault: str):
    assert isinstance(await _failure(fault, timeout=0.5), ToolTimeout)


@pytest.mark.slow
@proves("F6", "F7")
@table("fault", ["huge", "huge_event", "endless", "endless_event"])
async def test_a_reply_larger_than_allowed_is_cut_off_while_reading(fault: str):
    error = await _failure(fault, response_bytes=MEGABYTE)
    assert isinstance(error, ResponseTooLarge)


@pytest.mark.slow
@proves("F6")
@pytest.mark.parametrize("fault", ["huge", "huge_event"])
async def test_a_large_reply_within_the_limit_arrives_whole(fault: str):
    async with (
        http_fault(fault) as server,
        open_pool(Server.http("big", server.url), response_bytes=64 * MEGABYTE) as servers,
    ):
        result = await servers.call("big", "echo", {}, timeout=PATIENCE)
        assert len(str(result["a"])) == 50 * MEGABYTE


@pytest.mark.slow
@proves("F8", "F9", "F10", "F11", "F13", "F14")
@table(
    ("fault", "words"),
    [
        ("bad_json", "is not JSON"),
        ("bad_event", "is not JSON"),
        ("not_utf8", "is not UTF-8"),
        ("not_utf8_event", "is not UTF-8"),
        ("wrong_id", "id of another request"),
        ("wrong_id_event", "id of another request"),
        ("both", "both a result and an error"),
        ("neither", "neither a result nor an error"),
        ("accepted", "is missing"),
        ("nan", "which JSON cannot represent"),
        ("deep_result", "nested too deep"),
        ("wrong_type", "text/plain"),
    ],
)
async def test_a_reply_that_is_not_the_protocol_is_an_error_at_once(fault: str, words: str):
    error = await _failure(fault)
    assert isinstance(error, ServerReplyInvalid)
    assert words in str(error)


async def test_an_id_that_comes_back_as_text_is_understood():
    async with http_fault("text_id") as server, open_pool(Server.http("sloppy", server.url)) as servers:
        assert arguments_of(await servers.call("sloppy", "echo", {"n": 1}, timeout=PATIENCE)) == {"n": 1}


@proves("F15")
@pytest.mark.parametrize("fault", ["html_login", "unauthorized", "forbidden"])
async def test_a_login_page_is_a_reason_that_names_signing_in(fault: str):
    async with http_fault(fault) as server, open_pool(Server.http("locked", server.url)) as servers:
        status = servers.get_status("locked")
        assert status.state is ServerState.DOWN
        assert "needs signing in" in (status.reason or "")
        assert status.hint == "run: fingerpost servers login locked"


@proves("F12")
@pytest.mark.parametrize("fault", ["lost_session", "sloppy_session"])
async def test_a_lost_session_costs_one_call_and_one_new_handshake(fault: str):
    async with http_fault(fault) as server, open_pool(Server.http("forgetful", server.url)) as servers:
        with pytest.raises(ServerUnavailable, match="no longer knows our session"):
            await servers.call("forgetful", "echo", {}, timeout=PATIENCE)
        result = await servers.call("forgetful", "echo", {"again": True}, timeout=PATIENCE)
        assert arguments_of(result) == {"again": True}
        assert server.sessions == 2
        assert server.seen.count("tools/call") == 2


async def test_a_redirect_to_another_address_is_not_followed():
    async with http_fault("redirect") as server, open_pool(Server.http("moved", server.url)) as servers:
        reason = servers.get_status("moved").reason or ""
        assert "redirects to http://127.0.0.1:9/elsewhere" in reason


async def test_a_server_that_takes_no_notifications_does_not_hold_up_other_calls():
    async with http_fault("deaf_to_notices") as server, open_pool(Server.http("deaf", server.url)) as servers:
        with pytest.raises(ToolTimeout):
            await servers.call("deaf", "echo", {"slow": True}, timeout=0.2)
        result = await servers.call("deaf", "echo", {"quick": True}, timeout=PATIENCE)
        assert arguments_of(result) == {"quick": True}


def test_an_address_that_is_none_is_refused_where_it_is_written():
    for address in ("nonsense://x", ""):
        with pytest.raises(ConfigError, match="is not a URL"):
            Server.http("odd", address)


async def test_a_pinned_era_the_server_does_not_speak_is_explained():
    async with (
        http_fault("none") as server,
        open_pool(Server.http("old", server.url, era="2026-07-28")) as servers,
    ):
        assert "speaks 2025-11-25, and 2026-07-28 was asked for" in (servers.get_status("old").reason or "")


async def test_the_http_stack_is_built_off_the_event_loop_once():
    stack = HttpClients()
    clients: list[httpx2.AsyncClient] = []

    async def build() -> None:
        clients.append(await stack.build_client())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(build)
    assert len({id(client._transport._shared) for client in clients}) == 1  # type: ignore[attr-defined]
    for client in clients:
        await client.aclose()
    await stack.aclose()
