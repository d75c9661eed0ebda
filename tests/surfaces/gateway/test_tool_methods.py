"""`tools/call`: what fits comes back as it was sent, what does not is cut honestly, errors keep codes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from fingerpost.events import CallReceived, CallRefused
from fingerpost.records import Era, Listing
from fingerpost.servers import Server
from fingerpost.surfaces.gateway.protocol import JsonRpcError
from fingerpost.testing import tool_server
from tests.kit.gateway_methods import FixedResultServer, open_gateway_methods, reading_tool, text_of
from tests.kit.raw_http import raw_server, with_length
from tests.requirements import proves

PICTURE = base64.b64encode(b"\x89PNG" + bytes(500)).decode()
EVERYTHING: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "Here.", "annotations": {"audience": ["user"], "priority": 0.5}},
        {"type": "image", "data": PICTURE, "mimeType": "image/png", "_meta": {"x.example/alt": "a dot"}},
        {"type": "audio", "data": PICTURE, "mimeType": "audio/wav"},
        {
            "type": "resource",
            "resource": {"uri": "file:///a.txt", "text": "inside", "mimeType": "text/plain"},
        },
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": PICTURE}},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b", "description": "elsewhere"},
    ],
    "structuredContent": {"answer": 42, "parts": [1, 2.5, None, "x"]},
    "isError": False,
    "_meta": {"shop.example/cost": 3},
}


def server(results: dict[str, Any], **definitions: dict[str, Any]) -> FixedResultServer:
    return FixedResultServer("shop", {name: definitions.get(name, {}) for name in results}, results)


@proves("G8")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("modern", [False, True])
async def test_every_kind_of_content_comes_through_untouched(tmp_path: Path, era: Era, modern: bool) -> None:
    shop = server({"look": EVERYTHING})
    async with open_gateway_methods(tmp_path, shop.spec(era)) as it:
        result = await it.call("shop__look", modern=modern)
        for member in ("content", "structuredContent", "isError"):
            assert result[member] == EVERYTHING[member]
        assert result["_meta"]["shop.example/cost"] == 3
        assert result["_meta"]["fingerpost/call"].startswith("cal_")


@proves("G8")
async def test_what_belongs_to_the_request_goes_along_and_our_envelope_does_not(tmp_path: Path) -> None:
    shop = server({"look": {"content": []}})
    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        meta = {
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "x.example/own": {"deep": [1]},
            "progressToken": "client's own",
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "client", "version": "9"},
            "fingerpost/intent": "for us alone",
        }
        await it.ask("tools/call", {"name": "shop__look", "arguments": {}, "_meta": meta}, modern=True)
        seen = shop.seen[0].model_dump(by_alias=True)["_meta"]
        assert seen["traceparent"] == meta["traceparent"]
        assert seen["x.example/own"] == meta["x.example/own"]
        assert seen.get("progressToken") != "client's own"
        assert "fingerpost/intent" not in seen
        assert seen["io.modelcontextprotocol/clientInfo"]["name"] != "client"


@proves("G8")
@pytest.mark.parametrize("schema", [None, {"type": "array"}])
async def test_structured_content_that_is_no_object_reaches_older_clients_in_one(
    tmp_path: Path, schema: dict[str, Any] | None
) -> None:
    result = {"content": [{"type": "text", "text": "[1]"}], "structuredContent": [1]}
    async with open_gateway_methods(
        tmp_path, server({"look": result}, look={"outputSchema": schema}).spec()
    ) as it:
        assert (await it.call("shop__look"))["structuredContent"] == {"result": [1]}
        assert (await it.call("shop__look", modern=True))["structuredContent"] == [1]


@proves("G8")
@pytest.mark.parametrize(
    ("kind", "given"), [(["array", "null"], {"structuredContent": {"result": None}}), ("object", {})]
)
async def test_a_null_is_structured_content_only_where_it_was_promised(
    tmp_path: Path, kind: object, given: dict[str, Any]
) -> None:
    def with_null(reply: bytes) -> list[bytes]:
        return [with_length(reply.replace(b'"content":', b'"structuredContent": null, "content":'))]

    async with (
        raw_server(with_null) as (_, url),
        open_gateway_methods(tmp_path, Server.http("raw", url)) as it,
    ):
        look: dict[str, Any] = {**reading_tool("look"), "outputSchema": {"type": kind}}
        it.router.catalog.replace_server(Listing(server="raw", definitions=(look,)))
        result = await it.call("raw__look")
        assert {key: value for key, value in result.items() if key == "structuredContent"} == given


@pytest.mark.slow
@proves("G14")
async def test_a_long_result_is_cut_and_keeps_its_pictures(tmp_path: Path) -> None:
    rows = [{"number": number, "name": f"thing {number}"} for number in range(3000)]
    long: dict[str, Any] = {
        "content": [
            {"type": "text", "text": json.dumps(rows)},
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
        ],
        "structuredContent": {"rows": rows},
    }
    shop = server({"free": long, "bound": long}, bound={"outputSchema": {"type": "object"}})
    async with open_gateway_methods(tmp_path, shop.spec(), digest={"max_tokens": 300}) as it:
        free, bound = await it.call("shop__free"), await it.call("shop__bound")
        for cut in (free, bound):
            assert len(text_of(cut)) < 3000
            assert cut["_meta"]["fingerpost/handle"] in text_of(cut)
            assert cut["content"][1] == long["content"][1]
        assert "structuredContent" not in free  # it was not promised


@pytest.mark.slow
@proves("G14")
async def test_fifty_megabytes_arrive_cut_and_can_be_read_on(tmp_path: Path) -> None:
    rows = "row 0\nrow 1\n" + "\n".join(f"row {number} {'of many' * 140}" for number in range(2, 52_000))
    assert len(rows) > 50_000_000

    async def answer(name: str, arguments: dict[str, Any]) -> str:
        return rows

    async with open_gateway_methods(
        tmp_path, tool_server("shop", [reading_tool("look")], call=answer).spec()
    ) as it:
        cut = await it.call("shop__look")
        assert len(text_of(cut)) < 50_000
        handle = cut["_meta"]["fingerpost/handle"]
        assert handle in text_of(cut)
        assert text_of(await it.call("read_result", {"handle": handle})).startswith("row 0\nrow 1\n")


@pytest.mark.slow
@proves("G14")
async def test_data_too_large_to_be_sent_whole_are_an_error_with_a_handle(tmp_path: Path) -> None:
    large: dict[str, Any] = {"content": [], "structuredContent": {"text": "word " * 300_000}}
    schema = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1_000_000}}}
    shop = server({"look": large}, look={"outputSchema": schema})
    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        result = await it.call("shop__look")
        assert result["isError"] is True
        assert "structuredContent" not in result
        assert "1024 KiB" in text_of(result)
        handle = result["_meta"]["fingerpost/handle"]
        page = await it.call("read_result", {"handle": handle})
        assert "word word" in text_of(page)


@proves("G14")
async def test_a_picture_of_many_megabytes_is_left_out_with_a_word(tmp_path: Path) -> None:
    result = {"content": [{"type": "image", "data": "A" * 5_000_000, "mimeType": "image/png"}]}
    async with open_gateway_methods(tmp_path, server({"look": result}).spec()) as it:
        cut = await it.call("shop__look")
        assert "5,000,000 characters left out" in text_of(cut)
        assert len(json.dumps(cut)) < 10_000


@proves("G8")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_servers_own_error_keeps_code_message_and_data(tmp_path: Path, era: Era) -> None:
    shop = server({"look": MCPError(-32050, "the shop is closed", {"opens": "09:00"})})
    async with open_gateway_methods(tmp_path, shop.spec(era)) as it:
        with pytest.raises(JsonRpcError) as refused:
            await it.call("shop__look")
        error = refused.value
        assert (error.code, error.message, error.data) == (-32050, "the shop is closed", {"opens": "09:00"})


@proves("G8")
async def test_what_we_refuse_is_a_result_a_model_can_act_on(tmp_path: Path) -> None:
    strict = {
        "name": "buy",
        "inputSchema": {
            "type": "object",
            "properties": {"count": {"type": "integer"}},
            "required": ["count"],
        },
    }
    shop = tool_server("shop", [strict, reading_tool("look"), {"name": "wipe", "description": "Delete all"}])
    rules = [
        {"verdict": "deny", "tool": "shop/look", "arguments": {"x": "secret"}},
        {"verdict": "allow", "tool": "shop/buy"},
    ]
    async with open_gateway_methods(tmp_path, shop.spec(), policy=rules) as it:
        invalid = await it.call("shop__buy", {})
        assert invalid["_meta"]["fingerpost/error"] == "invalid_parameters"
        assert "count" in text_of(invalid)
        denied = await it.call("shop__look", {"x": "secret"})
        assert denied["_meta"]["fingerpost/error"] == "denied"
        waiting = await it.call("shop__wipe")
        assert waiting["_meta"]["fingerpost/pending"] in text_of(waiting)
        assert all(answer["isError"] is True for answer in (invalid, denied, waiting))
        assert shop.calls == []
        repaired = await it.call("shop__buy", {"count": "3"})
        assert repaired["_meta"]["fingerpost/repairs"]
        assert shop.calls == [("buy", {"count": 3})]


@proves("G3", "G4")
async def test_an_unknown_tool_is_refused_recorded_and_told_what_is_near(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool("look_around")])
    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        with pytest.raises(JsonRpcError, match="similar: shop__look_around") as refused:
            await it.call("shop__lok_around")
        assert refused.value.code == -32602
        it.router.store.journal.emit_pending()  # events are emitted in batches
        kinds = [type(event) for event in it.events.events]
        assert CallReceived in kinds
        assert CallRefused in kinds
        for params in (
            {},
            {"name": 7},
            {"name": ""},
            {"name": "x" * 600},
            {"name": "look_around", "arguments": [1]},
        ):
            with pytest.raises(JsonRpcError) as refused:
                await it.ask("tools/call", params)
            assert refused.value.code == -32602


@proves("G8")
@pytest.mark.parametrize("bad", [{"inputResponses": None}, {"inputResponses": [1]}, {"requestState": 3}])
async def test_answers_that_are_none_are_refused_and_not_taken_for_none(
    tmp_path: Path, bad: dict[str, Any]
) -> None:
    shop = server({"look": {"content": []}})
    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        with pytest.raises(JsonRpcError) as refused:
            await it.ask("tools/call", {"name": "shop__look", "arguments": {}, **bad}, modern=True)
        assert refused.value.code == -32602
        assert shop.seen == []


async def test_a_client_that_comes_first_waits_for_servers_and_not_for_dead_ones(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool("look")])
    async with open_gateway_methods(tmp_path, shop.spec(), connect=False) as it:
        assert await it.names() == ["shop__look", "read_result"]
    async with open_gateway_methods(tmp_path, shop.spec(), connect=False) as it:
        assert text_of(await it.call("shop__look", {"a": 1})) == '{"a":1}'


@pytest.mark.slow
@proves("F47", "G8")
async def test_a_client_that_goes_round_in_circles_is_stopped_and_a_busy_program_only_told(
    tmp_path: Path,
) -> None:
    shop = server(
        {"look": {"content": [{"type": "text", "text": "the same as ever"}]}}, look=reading_tool("look")
    )

    async def look() -> bool:
        result = await it.call("shop__look")
        assert not result.get("isError") or "Stop repeating" in text_of(result)
        return bool(result.get("isError"))

    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        for _ in range(24):
            assert not await look()
        for _ in range(3):  # as slow as the quickest of models
            assert await look()
            await anyio.sleep(0.15)
        refused = [await look() for _ in range(100)]
        assert refused[0]
        assert sum(refused) < 20  # one; a few more where this machine pauses
    assert len(shop.seen) == 24 + 100 - sum(refused)


@proves("D5", "G8")
async def test_a_model_can_read_that_another_tool_answered(tmp_path: Path) -> None:
    async def fail(_: str, __: dict[str, Any]) -> str:
        raise RuntimeError("out of order")

    first = tool_server("first", [reading_tool("look")], call=fail)
    second = tool_server("second", [reading_tool("look")])
    standing_in = [{"match": "first/look", "hierarchy": ["second/look"]}]
    async with open_gateway_methods(tmp_path, first.spec(), second.spec(), tools=standing_in) as it:
        result = await it.call("first__look")
        assert "This is the answer of second/look" in text_of(result)
        assert result["_meta"]["fingerpost/answered_by"] == "second/look"
        assert "This is the answer" not in text_of(await it.call("second__look"))
