"""Servers of our own: what is true of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.builtin.assets.builder import ASSET_KINDS
from fingerpost.builtin.registry import SERVER_NAMES, add_builtin_settings, make_server
from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    BuiltinTool,
    ToolCaller,
    ToolRefused,
    ToolReply,
)
from fingerpost.records import Effect, ErrorKind, JsonObject
from fingerpost.settings import BuiltinSettings, Settings
from fingerpost.testing import tool_server
from tests.kit.api_resources import reading_tool
from tests.kit.routers import build_settings
from tests.requirements import proves


async def _who(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
    context = caller.context
    fields: JsonObject = {"user": caller.user, "packet": None if context is None else context.packet_id}
    return ToolReply(f"{caller.user} in {caller.conversation}", data=fields)


async def _refuse(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
    message = "That is not possible."
    raise ToolRefused(message, hint="Try something else.")


async def _fail(arguments: JsonObject, caller: ToolCaller) -> ToolReply:
    message = "a fault of this tool"
    raise RuntimeError(message)


def _server(host: BuiltinHost, *, writes: Effect = Effect.WRITE) -> BuiltinServer:
    operation: JsonObject = {"type": "string", "enum": ["look", "change"]}
    tools = (
        BuiltinTool(
            name="thing_operations", title="Things", description="Looks at things and changes them", run=_who,
            effect=Effect.WRITE, properties={"operation": operation}, required=("operation",),
            knowledge={"operations": {"look": Effect.READ, "change": writes}},
        ),
        BuiltinTool(name="refuse", title="Refuse", description="Reads nothing", run=_refuse,
                    effect=Effect.READ),
        BuiltinTool(name="fail", title="Fail", description="Reads nothing", run=_fail, effect=Effect.READ),
    )  # fmt: skip
    return BuiltinServer("things", tools, instructions="Things.", get_context=host.get_context)


@proves("U1", "C5")
async def test_a_call_goes_through_the_call_path_and_the_tool_knows_who_calls(settings: Settings):
    host = BuiltinHost(settings=settings)
    own = _server(host)
    async with Router([own.build_spec()], settings=add_builtin_settings(settings, [own])) as router:
        host.router = router
        await router.connect()
        look = await router.call(
            "things/thing_operations", {"operation": "look"}, caller="dana", conversation="ses_1"
        )
        assert look.success and look.content.startswith("dana in ses_1")
        change = await router.call("things/thing_operations", {"operation": "change"}, caller="dana")
        assert change.error is ErrorKind.AUTHORIZATION_REQUIRED
        dotted = await router.call("thing_operations.look", {}, caller="dana")
        assert dotted.success
        refused = await router.call("things/refuse", {})
        assert "Try something else." in refused.content
        failed = await router.call("things/fail", {})
        assert not failed.success
        assert "fail failed unexpectedly" in failed.content
        assert "a fault of this tool" not in failed.content


@proves("A9")
async def test_what_is_switched_off_counts_as_reading(settings: Settings):
    host = BuiltinHost(settings=settings)
    own = _server(host, writes=Effect.READ)
    async with Router([own.build_spec()], settings=add_builtin_settings(settings, [own])) as router:
        host.router = router
        await router.connect()
        assert (await router.call("things/thing_operations", {"operation": "change"})).success


@proves("U1")
async def test_tools_of_our_own_change_with_the_program_and_are_not_hidden_for_it(settings: Settings):
    own = settings.model_copy(update={"builtin": BuiltinSettings(enabled=("directives",))})
    for words in ("Shows things", "Shows things, and more"):
        tool = BuiltinTool(name="show", title="Show", description=words, run=_who, effect=Effect.READ)
        server = BuiltinServer("directives", [tool], instructions="")
        async with Router([server.build_spec()], settings=own) as router:
            await router.connect()
            assert [card.description for card in router.tools.cards] == [words]


@pytest.mark.parametrize("name", SERVER_NAMES)
def test_definitions_list_the_operations_that_there_are(name: str):
    for tool in make_server(name, BuiltinHost()).tools.values():
        if operations := tool.knowledge.get("operations"):
            assert tool.properties["operation"]["enum"] == list(operations)
        if "kind" in tool.properties:
            assert tool.properties["kind"]["enum"] == list(ASSET_KINDS)


@proves("S9")
async def test_a_built_in_server_gives_way_to_a_configured_one_of_its_name(tmp_path: Path) -> None:
    settings = build_settings(tmp_path, builtin={"enabled": ["memory", "collaboration"]})
    theirs = tool_server("memory", [reading_tool("read_graph")])
    async with open_router([theirs.spec()], settings=settings) as router:
        await router.connect()
        keys = {card.key for card in router.tools.cards}
        assert {key for key in keys if key.startswith("memory/")} == {"memory/read_graph"}
        assert any(key.startswith("collaboration/") for key in keys)
        await theirs.replace([reading_tool("read_graph", "Changed")])  # it is pinned like every other one
        await router.servers.refresh("memory")
        assert [entry.card.key for entry in router.catalog.quarantined] == ["memory/read_graph"]
