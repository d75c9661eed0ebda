"""Arguments repeated as headers (2026-07-28): whatever a call is written like, it runs as its headers say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from fingerpost.testing import tool_server
from tests.kit.gateway_client import HttpAnswer, ask, modern, modern_headers
from tests.kit.gateways import open_gateway
from tests.kit.small_gateway import Address
from tests.requirements import proves

MISMATCH = -32020
REGION = {"type": "string", "enum": ["eu", "us"], "x-mcp-header": "Region"}
ROUTED: dict[str, Any] = {
    "name": "routed",
    "description": "What there is in a region",
    "inputSchema": {
        "type": "object",
        "properties": {"region": REGION, "most": {"type": "integer"}},
        "required": ["region"],
    },
}
DEEP: dict[str, Any] = {
    "name": "deep",
    "description": "What there is at a place",
    "inputSchema": {
        "type": "object",
        "properties": {
            "place": {"type": "object", "properties": {"region": REGION}},
            "zone": {"type": "string", "default": "a", "x-mcp-header": "Zone"},
        },
        "required": ["place", "zone"],
    },
}
NAMES = ("atlas__routed", "atlas/routed", "ATLAS__ROUTED", "atlas.routed", "routed")


async def call(
    address: str, name: str, arguments: dict[str, Any], *, path: str = "/mcp/all", **text: str
) -> HttpAnswer:
    """One call; what is said goes into headers of this name."""
    host, port = address.removeprefix("http://").rsplit(":", 1)
    body = modern("tools/call", {"name": name, "arguments": arguments})
    mirrored = {f"mcp-param-{header}": value for header, value in text.items()}
    headers = {**modern_headers("tools/call", name), **mirrored}
    return await ask(Address(host, int(port)), body, headers, path=path)


@proves("G1")
async def test_headers_are_compared_by_whatever_name_a_tool_is_called(tmp_path: Path) -> None:
    atlas = tool_server("atlas", [ROUTED])
    async with open_gateway(atlas.spec(), folder=tmp_path) as address:
        for name in NAMES:
            for header_arguments in ({"region": "us"}, {}):
                got = await call(address, name, {"region": "eu"}, **header_arguments)
                assert (got.status, got.code) == (400, MISMATCH), (name, header_arguments)
        assert atlas.calls == []
        for name in NAMES:
            assert (await call(address, name, {"region": "eu"}, region="eu")).status == 200
        assert atlas.calls == [("routed", {"region": "eu"})] * len(NAMES)


@proves("G1")
@pytest.mark.parametrize(
    ("tool", "arguments", "header_arguments"),
    [
        ("routed", {"Region": "eu"}, {}),
        ("routed", {"Region": "eu"}, {"region": "us"}),
        ("routed", {"region": None, "Region": "eu"}, {}),
        ("routed", {"arguments": {"region": "eu"}}, {}),
        ("routed", {"region": ["eu"]}, {}),
        ("routed", {"region": "EU"}, {"region": "EU"}),  # a rule for `eu` would not have seen it
        ("deep", {"place": '{"region": "eu"}', "zone": "a"}, {"zone": "a"}),
        ("deep", {"place": {"Region": "eu"}, "zone": "a"}, {"zone": "a"}),
        ("deep", {"place": {}, "Zone": "b"}, {}),
    ],
)
async def test_no_repair_changes_an_argument_behind_its_header(
    tmp_path: Path, tool: str, arguments: dict[str, Any], header_arguments: dict[str, str]
) -> None:
    atlas = tool_server("atlas", [ROUTED, DEEP])
    async with open_gateway(atlas.spec(), folder=tmp_path) as address:
        got = await call(address, f"atlas__{tool}", arguments, **header_arguments)
        assert (got.status, got.code) == (400, MISMATCH)
        assert atlas.calls == []


@proves("G1", "D7")
async def test_what_no_header_repeats_is_repaired_as_ever(tmp_path: Path) -> None:
    atlas = tool_server("atlas", [ROUTED, DEEP])
    async with open_gateway(atlas.spec(), folder=tmp_path) as address:
        repaired = await call(address, "atlas__routed", {"region": "eu", "Most": "3"}, region="eu")
        assert repaired.status == 200
        # The zone's default is the schema's own value: the client did not send it.
        filled = await call(address, "atlas__deep", {"place": {"region": "us"}}, region="us")
        assert filled.status == 200
        wrong = await call(address, "atlas__routed", {"Region": 5})
        assert wrong.json["result"]["isError"] is True  # it does not run, and says what would
        assert atlas.calls == [
            ("routed", {"region": "eu", "most": 3}),
            ("deep", {"place": {"region": "us"}, "zone": "a"}),
        ]


@proves("G1", "G3")
async def test_calls_that_have_no_such_headers_need_none(tmp_path: Path) -> None:
    atlas = tool_server("atlas", [ROUTED])
    async with open_gateway(atlas.spec(), folder=tmp_path) as address:
        inner = {"name": "atlas/routed", "arguments": {"Region": "eu"}}
        found = await call(address, "call_tool", inner, path="/mcp/route")
        assert not found.json["result"].get("isError")
        async with Client(f"{address}/mcp/all", mode="legacy") as client:
            await client.call_tool("atlas/routed", {"Region": "us"})
        assert atlas.calls == [("routed", {"region": "eu"}), ("routed", {"region": "us"})]
