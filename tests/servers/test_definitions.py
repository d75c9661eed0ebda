"""Lists with something wrong in them: what is sound stays, what is not is dropped with its reason."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import anyio
import pytest

from fingerpost.events import MemorySink, ToolDropped
from fingerpost.records import KnownServer, Listing, ServerState, utc_now
from fingerpost.servers import Server, ServerPool
from fingerpost.settings.model import LimitSettings
from fingerpost.testing import http_fault, served, stdio_fault, tool_server
from tests.kit.server_pools import PATIENCE, arguments_of, eventually, names, of_kind, open_pool
from tests.requirements import proves


def _reasons(servers: Any, name: str) -> dict[str, str]:
    return {tool.name: tool.reason for tool in servers.get_listing(name).dropped}


@pytest.mark.process
@proves("F19")
async def test_an_invalid_schema_drops_its_tool_and_no_other():
    sink = MemorySink()
    async with open_pool(stdio_fault("bad_schema"), sink=sink) as servers:
        assert names(servers, "bad_schema") == ["echo", "also_good"]
        reasons = _reasons(servers, "bad_schema")
        assert reasons["text_schema"] == "inputSchema is text, not a schema"
        assert "odd_type" in reasons
        assert "'txt', which is no JSON Schema type" in reasons["odd_part"]
        assert reasons["no_schema"] == "there is no inputSchema"
        status = servers.get_status("bad_schema")
        assert status.state is ServerState.DEGRADED
        assert (status.tools, status.dropped) == (2, 4)
        assert "4 of its tools dropped" in (status.reason or "")
    dropped = [event for event in of_kind(sink, ToolDropped) if isinstance(event, ToolDropped)]
    assert {event.tool for event in dropped} == set(reasons)


@pytest.mark.process
@proves("F19")
async def test_half_a_character_costs_one_tool():
    async with open_pool(stdio_fault("half_character")) as servers:
        assert names(servers, "half_character") == ["echo"]
        assert _reasons(servers, "half_character") == {
            "half": "the definition holds text that is not valid Unicode"
        }


@pytest.mark.process
@proves("F17")
async def test_an_absurdly_deep_schema_flags_its_server_and_spares_the_others():
    async with open_pool(stdio_fault("deep_schema"), tool_server("good").spec()) as servers:
        status = servers.get_status("deep_schema")
        assert status.state is ServerState.DEGRADED
        assert "nested too deep" in (status.reason or "")
        assert names(servers, "good") == ["echo"]
        result = await servers.call("deep_schema", "echo", {"still": "works"}, timeout=PATIENCE)
        assert arguments_of(result) == {"still": "works"}


@pytest.mark.process
@proves("F17")
@pytest.mark.parametrize("depth", ["80", "300"])
async def test_a_schema_deeper_than_allowed_costs_one_tool(depth: str):
    async with open_pool(stdio_fault("deep_schema", depth)) as servers:
        assert names(servers, "deep_schema") == ["echo"]
        assert "more than 64 levels deep" in _reasons(servers, "deep_schema")["deep"]


@pytest.mark.process
@proves("F16")
async def test_a_schema_that_refers_to_itself_is_listed_as_it_is():
    async with open_pool(stdio_fault("ref_loop")) as servers:
        assert servers.get_status("ref_loop").state is ServerState.READY
        listing = servers.get_listing("ref_loop")
        assert listing is not None
        schema: Any = listing.definitions[1]["inputSchema"]
        assert schema["$defs"]["node"]["properties"]["next"] == {"$ref": "#/$defs/node"}


@pytest.mark.process
@proves("F18")
async def test_a_network_reference_is_never_fetched():
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.setblocking(False)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/schema.json"
        async with open_pool(stdio_fault("network_ref", url)) as servers:
            assert names(servers, "network_ref") == ["echo", "remote"]
            await servers.call("network_ref", "remote", {"a": 1}, timeout=PATIENCE)
        with pytest.raises(BlockingIOError):
            trap.accept()


@pytest.mark.process
@proves("F20")
async def test_of_two_tools_with_one_name_the_first_stays():
    async with open_pool(stdio_fault("duplicate_names")) as servers:
        assert names(servers, "duplicate_names") == ["echo", "twin"]
        listing = servers.get_listing("duplicate_names")
        assert listing is not None
        assert listing.definitions[1]["description"] == "the first"
        assert "already has this name" in _reasons(servers, "duplicate_names")["twin"]


@pytest.mark.process
@proves("F22")
async def test_impossible_names_are_dropped_and_odd_ones_kept():
    async with open_pool(stdio_fault("odd_names")) as servers:
        kept = names(servers, "odd_names")
        assert kept == ["echo", "ec\u200bho", "\u0435cho", "\u202eohce", "a tool / with spaces", "כלי"]
        listing = servers.get_listing("odd_names")
        assert listing is not None
        assert [tool.reason for tool in listing.dropped] == [
            "the name is empty",
            "the name is a number, not text",
            "the name is missing, not text",
            "the name is longer than 1024 characters",
            "the definition is text, not an object",
        ]


@pytest.mark.process
@proves("F21")
async def test_ten_thousand_tools_are_all_listed_and_callable():
    async with open_pool(stdio_fault("huge_list", connect_timeout=60)) as servers:
        listed = names(servers, "huge_list")
        assert len(listed) == 10_000
        assert servers.get_status("huge_list").state is ServerState.READY
        await servers.call("huge_list", "tool_9999", {}, timeout=PATIENCE)


@pytest.mark.process
async def test_more_tools_than_allowed_are_left_out_and_said_so():
    async with open_pool(stdio_fault("huge_list", "1200"), tools_per_server=700) as servers:
        assert len(names(servers, "huge_list")) == 700
        assert "more than 700 tools" in (servers.get_status("huge_list").reason or "")


@pytest.mark.process
@proves("F25")
async def test_endless_pages_stop_at_the_page_limit():
    async with open_pool(stdio_fault("endless_pages"), list_pages=7) as servers:
        assert len(names(servers, "endless_pages")) == 7
        status = servers.get_status("endless_pages")
        assert status.state is ServerState.DEGRADED
        assert "more than 7 pages" in (status.reason or "")


@pytest.mark.process
@proves("F25")
async def test_a_repeated_cursor_stops_the_reading():
    async with open_pool(stdio_fault("same_cursor")) as servers:
        assert names(servers, "same_cursor") == ["echo"]
        assert "same page cursor twice" in (servers.get_status("same_cursor").reason or "")


@pytest.mark.process
async def test_a_list_that_is_no_list_leaves_the_server_degraded():
    async with open_pool(stdio_fault("no_list")) as servers:
        assert servers.get_status("no_list").state is ServerState.DEGRADED
        assert "without a list of tools" in (servers.get_status("no_list").reason or "")


async def test_a_list_that_fails_leaves_the_server_degraded_with_its_words():
    async with http_fault("list_fails") as server, open_pool(Server.http("bad", server.url)) as servers:
        assert servers.get_status("bad").state is ServerState.DEGRADED
        assert "the index is being rebuilt" in (servers.get_status("bad").reason or "")


async def test_pages_of_a_sound_server_are_joined_in_order():
    tools = [f"t{number}" for number in range(25)]
    async with open_pool(tool_server("paged", tools, page_size=10).spec()) as servers:
        assert names(servers, "paged") == tools


@pytest.mark.process
async def test_definitions_are_kept_as_they_were_sent():
    odd: dict[str, Any] = {
        "name": "odd",
        "inputSchema": {"type": "object", "x-future": [1, 2], "properties": {"a": True}},
    }
    async with open_pool(stdio_fault("none"), tool_server("odd", [odd]).spec()) as servers:
        listing = servers.get_listing("odd")
        assert listing is not None
        assert listing.definitions[0]["inputSchema"] == odd["inputSchema"]


@pytest.mark.process
@proves("F23", "H10")
async def test_a_changed_list_is_seen_over_a_pipe():
    async with open_pool(stdio_fault("changing_list")) as servers:
        assert names(servers, "changing_list") == ["echo"]
        await servers.call("changing_list", "echo", {}, timeout=PATIENCE)
        await eventually(lambda: names(servers, "changing_list") == ["echo", "tool_1"])


@proves("F23", "H10")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_changed_list_is_seen_in_both_eras(era: Any):
    changing = tool_server("changing", ["one"])
    async with open_pool(changing.spec(era=era)) as servers:
        changed: list[str] = []
        servers.subscribe_to_changes(changed.append)
        await changing.replace([{"name": "one"}, {"name": "two"}])
        await eventually(lambda: names(servers, "changing") == ["one", "two"])
        assert "changing" in changed
        await changing.replace([])
        await eventually(lambda: names(servers, "changing") == [])
        assert servers.get_status("changing").tools == 0


@proves("F23", "H10")
async def test_a_list_that_changed_while_its_stream_was_interrupted_is_read_again():
    changing = tool_server("changing", ["one"])
    app = changing.server.streamable_http_app()
    open_streams: list[anyio.CancelScope] = []

    async def interruptible(scope: Any, receive: Any, send: Any) -> None:
        if (b"mcp-method", b"subscriptions/listen") not in scope.get("headers", ()):
            await app(scope, receive, send)
            return
        with anyio.CancelScope() as stream:

            async def note_start(message: Any) -> None:
                await send(message)
                if message["type"] == "http.response.start":
                    open_streams.append(stream)

            await app(scope, receive, note_start)

    async with (
        served(interruptible) as base,
        open_pool(Server.http("changing", f"{base}/mcp", era="2026-07-28")) as servers,
    ):
        await eventually(lambda: bool(open_streams))
        assert names(servers, "changing") == ["one"]
        changing.change_silently([{"name": "one"}, {"name": "two"}])
        open_streams[0].cancel()
        await eventually(lambda: names(servers, "changing") == ["one", "two"])


@pytest.mark.process
@proves("F24")
async def test_a_changed_definition_reaches_the_listing():
    async with open_pool(stdio_fault("changed_definition")) as servers:
        await servers.call("changed_definition", "echo", {}, timeout=PATIENCE)
        await eventually(
            lambda: (
                (listing := servers.get_listing("changed_definition")) is not None
                and listing.definitions[0]["description"] == "Sends everything to a stranger."
            )
        )


@proves("S1")
@pytest.mark.parametrize("identifies_callers", [False, True])
async def test_what_was_known_of_a_server_does_not_replace_what_it_lists_meanwhile(identifies_callers: bool):
    """It is prepared in a thread; meanwhile a request may start the server."""
    app = tool_server("changing", ["one"]).server.streamable_http_app()
    async with served(app) as base:
        spec = replace(Server.http("changing", f"{base}/mcp"), forward_authorization=identifies_callers)
        async with open_pool(spec) as servers:
            listed = servers.get_listing("changing")
        assert listed is not None
        earlier = replace(listed, definitions=({"name": "old", "inputSchema": {"type": "object"}},))
        known = KnownServer(listing=earlier, listed_at=utc_now())
        prepared: list[Listing] = []
        is_preparing, is_connected = anyio.Event(), anyio.Event()

        async def prepare(listing: Listing) -> None:
            prepared.append(listing)
            if not is_preparing.is_set():
                is_preparing.set()
                await is_connected.wait()

        async with (
            ServerPool((spec,), events=MemorySink(), limits=LimitSettings(), on_listing=prepare) as servers,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(servers.offer_known, {"changing": known})
            await is_preparing.wait()
            servers.start("changing")
            assert await servers.wait_until_settled(timeout=PATIENCE)
            is_connected.set()
            await anyio.wait_all_tasks_blocked()
            assert servers.get_status("changing").state is ServerState.READY
            assert names(servers, "changing") == ["one"]
            assert servers.get_listing("changing") in prepared
