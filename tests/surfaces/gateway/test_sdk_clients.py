"""The SDK's own client, in both eras, over HTTP, at every kind of endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import TextContent

from fingerpost.records import Era, ServerSpec
from fingerpost.testing import served, tool_server
from tests.kit.gateway_client import ask, old, open_session
from tests.kit.gateway_methods import FixedResultServer, LibraryServer, reading_tool
from tests.kit.gateways import open_gateway
from tests.kit.small_gateway import Address
from tests.requirements import proves

ERAS: tuple[Era, ...] = ("2025-11-25", "2026-07-28")


def mode_of(era: Era) -> Any:
    return "legacy" if era == "2025-11-25" else "auto"  # asks for a description first


@pytest.mark.slow
@proves("G1", "G3", "G4", "G5", "G8")
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_lists_finds_calls_and_reads(tmp_path: Path, era: Era) -> None:
    library = LibraryServer("library", resources=["book://a"], prompts=["summary"])
    shop = tool_server("shop", [reading_tool("price", "The price of a thing in the shop", thing="string")])
    async with open_gateway(
        shop.spec(),
        library.spec(),
        folder=tmp_path,
        flags={"dense_scores": False},
        profiles={"books": {"servers": ["library"], "instructions": "Only books."}},
    ) as address:
        async with Client(f"{address}/mcp/all", mode=mode_of(era)) as client:
            tools = await client.list_tools()
            assert [tool.name for tool in tools.tools] == ["library__look_up", "shop__price", "read_result"]
            called: Any = await client.call_tool("shop__price", {"thing": "pen"})
            assert called.content[0].text == '{"thing":"pen"}'
            assert [str(resource.uri) for resource in (await client.list_resources()).resources] == [
                "book://a"
            ]
            read: Any = await client.read_resource("book://a")
            assert read.contents[0].text == "library: book://a"
            prompt: Any = await client.get_prompt("library__summary")
            assert prompt.messages[0].content.text == "library says summary"
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool("shop__nothing", {})
        async with Client(f"{address}/mcp/route", mode=mode_of(era)) as client:
            found: Any = await client.call_tool("find_tools", {"request": "what is the price of a pen"})
            assert found.structured_content["tools"][0]["name"] == "shop__price"
            called = await client.call_tool(
                "call_tool", {"name": "shop__price", "arguments": {"thing": "cup"}}
            )
            assert called.content[0].text == '{"thing":"cup"}'
        async with Client(f"{address}/mcp/p/books", mode=mode_of(era)) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [
                "library__look_up",
                "read_result",
            ]
            assert "Only books." in str(client.instructions)


@pytest.mark.slow
@proves("G4", "G14")
@pytest.mark.parametrize("era", ERAS)
async def test_more_tools_than_a_page_holds_reach_a_client(tmp_path: Path, era: Era) -> None:
    many = tool_server("many", [reading_tool(f"tool_{number:04}") for number in range(1100)])
    async with served(many.server.streamable_http_app(json_response=True)) as upstream:
        spec = ServerSpec(name="many", transport="http", url=f"{upstream}/mcp", era=era)
        async with (
            open_gateway(spec, folder=tmp_path) as address,
            Client(f"{address}/mcp/all", mode=mode_of(era)) as client,
        ):
            names: list[str] = []
            cursor: str | None = None
            while cursor is not None or not names:
                page = await client.list_tools(cursor=cursor)
                names += [tool.name for tool in page.tools]
                cursor = page.next_cursor
            assert names == [*(f"many__tool_{number:04}" for number in range(1100)), "read_result"]


@proves("G1", "G8")
async def test_a_session_gets_results_of_its_own_era_from_servers_of_the_newer(tmp_path: Path) -> None:
    library = LibraryServer("library", resources=["book://a"], prompts=["summary"])
    shop = tool_server("shop", [reading_tool("price", thing="string")])
    servers = (library.spec(era="2026-07-28"), shop.spec(era="2026-07-28"))
    asked = (
        old("tools/call", {"name": "shop__price", "arguments": {"thing": "pen"}}),
        old("resources/read", {"uri": "book://a"}),
        old("prompts/get", {"name": "library__summary"}),
        old(
            "completion/complete",
            {
                "ref": {"type": "ref/prompt", "name": "library__summary"},
                "argument": {"name": "a", "value": ""},
            },
        ),
    )
    async with open_gateway(*servers, folder=tmp_path) as address:
        host, port = address.removeprefix("http://").split(":")
        bound_address = Address(host, int(port))
        session = await open_session(bound_address)
        results = [(await ask(bound_address, request, session)).json["result"] for request in asked]
    members = [set(result) - {"_meta", "isError"} for result in results]
    assert members == [{"content"}, {"contents"}, {"messages"}, {"completion"}]


@proves("G1", "G8")
async def test_a_list_as_a_result_keeps_its_promise_to_clients_of_both_eras(tmp_path: Path) -> None:
    """The client of the SDK checks structured content against the schema it was listed with."""
    numbers: dict[str, Any] = {"type": "array", "items": {"type": "number"}}
    content = {"content": [{"type": "text", "text": "[1,2]"}], "structuredContent": [1, 2]}
    shop = FixedResultServer("shop", {"sizes": {"outputSchema": numbers}}, {"sizes": content})
    async with open_gateway(shop.spec(), folder=tmp_path) as address:
        seen: list[Any] = []
        for era in ERAS:
            async with Client(f"{address}/mcp/all", mode=mode_of(era)) as client:
                schema = (await client.list_tools()).tools[0].output_schema
                assert schema is not None
                seen.append((schema["type"], (await client.call_tool("shop__sizes", {})).structured_content))
    assert seen == [("object", {"result": [1, 2]}), ("array", [1, 2])]


ROWS: list[dict[str, Any]] = [
    {"number": number, "kind": "plant" if number % 2 else "animal", "about": f"Thing {number}. " * 20}
    for number in range(400)
]


def rows_schema(**more: Any) -> dict[str, Any]:
    """Of records, each with two members and a word out of two."""
    record = {
        "type": "object",
        "properties": {
            "number": {"type": "integer"},
            "kind": {"enum": ["plant", "animal"]},
            "about": {"type": "string", "minLength": 20},
        },
        "required": ["number", "kind"],
        "additionalProperties": False,
    }
    return {"type": "array", "items": record, **more}


def under_key(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an object that has this as `rows`."""
    members = {"rows": schema, "total": {"const": 400}}
    return {
        "type": "object",
        "properties": members,
        "required": ["rows", "total"],
        "additionalProperties": False,
    }


@pytest.mark.slow
@proves("D6", "G14")
async def test_text_and_structured_content_of_a_cut_result_say_the_same_and_keep_the_schema(
    tmp_path: Path,
) -> None:
    """The client of the SDK refuses structured content that does not keep to the listed schema."""
    whole: dict[str, Any] = {"rows": ROWS, "total": 400}
    schemas = {
        "open": under_key(rows_schema()),
        "few": under_key(rows_schema(minItems=3)),
        "all": under_key(rows_schema(minItems=400)),
        "listed": rows_schema(),
    }
    results = {
        name: {
            "content": [
                {"type": "text", "text": "400 rows found."},
                {"type": "text", "text": json.dumps(text)},
            ],
            "structuredContent": text,
        }
        for name in schemas
        for text in [ROWS if name == "listed" else whole]
    }
    tools = {name: {"outputSchema": schema} for name, schema in schemas.items()}
    shop = FixedResultServer("shop", tools, results)
    async with open_gateway(shop.spec(), folder=tmp_path, digest={"max_tokens": 1_000}) as address:
        for era in ERAS:
            async with Client(f"{address}/mcp/all", mode=mode_of(era)) as client:
                await client.list_tools()
                for name in schemas:
                    got = await client.call_tool(f"shop__{name}", {})
                    assert isinstance(got.content[0], TextContent)
                    assert got.content[0].text == "400 rows found."
                    assert isinstance(got.content[1], TextContent)
                    text, _, note = got.content[1].text.rpartition("\n")
                    assert got.meta is not None
                    assert f"read_result(handle='{got.meta['fingerpost/handle']}')" in note
                    if name == "all":  # it may not be cut: it is sent once
                        assert text == ""
                        assert got.structured_content == whole
                        continue
                    structured = got.structured_content
                    assert json.loads(text) == (
                        structured["result"] if name == "listed" and era == ERAS[0] else structured
                    )
                    assert len(text) < 5_000
                    assert "items" in got.meta["fingerpost/left_out"][0]
