"""`all`: every permitted tool, as its server defined it, in pages and always in the same bytes."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator

from fingerpost.records import Effect, Listing, Principal, Scope, ServerSpec, ServerState
from fingerpost.surfaces.gateway.listing.tools import ENCODE_CHUNK
from fingerpost.surfaces.gateway.protocol import EncodedResult, JsonRpcError
from fingerpost.testing import tool_server
from tests.kit.gateway_methods import (
    ALL,
    AUTO,
    LOCAL,
    ROUTE,
    FixedResultServer,
    OpenMethods,
    SilentClient,
    open_gateway_methods,
    reading_tool,
    request,
    text_of,
    until,
)
from tests.kit.loop_turns import turns_during
from tests.requirements import proves

UNSCANNED = {"scan_definitions": False}
RICH: dict[str, Any] = {
    "name": "price",
    "title": "Price of a thing",
    "description": "Reads a price.\u200b",
    "inputSchema": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"thing": {"$anchor": "thing", "type": "string"}},
        "properties": {"thing": {"$ref": "#/$defs/thing"}},
        "allOf": [{"if": {"required": ["thing"]}, "then": {"minProperties": 1}}],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"price": {"type": "number"}}},
    "annotations": {"readOnlyHint": True, "title": "Price"},
    "icons": [{"src": "https://shop.example/icon.png", "sizes": ["48x48"]}],
    "_meta": {"shop.example/order": 7},
}


@pytest.mark.slow
@proves("G4", "G8", "F24")
async def test_clients_hear_when_another_process_accepted_a_changed_tool(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool("price")])
    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        assert await it.names() == ["shop__price", "read_result"]
        await shop.replace([reading_tool("price", "Another text")])
        await until(lambda: bool(it.router.catalog.quarantined))
        assert await it.names() == ["find_tools", "read_result"]
        found = await it.call("find_tools", {"request": "the price of tea"})
        assert "shop: 1 tool hidden: the definition changed, the server's entry did not." in text_of(found)
        assert "Accept with `fingerpost pins accept shop`." in text_of(found)
        it.audience.listeners.append(request("initialize", session="all"))
        async with open_gateway_methods(tmp_path, shop.spec()) as other:
            (held,) = other.router.catalog.quarantined
            await other.router.accept(held.card.key, by="dana", fingerprint=held.card.fingerprint)
        await it.audience.until(1)
        assert set(it.audience.of("all")) == {"notifications/tools/list_changed"}
        await until(lambda: not it.router.catalog.quarantined)
        assert await it.names() == ["shop__price", "read_result"]


@proves("G4")
@pytest.mark.parametrize("modern", [False, True])
async def test_a_definition_goes_through_as_it_is_under_a_safe_name(tmp_path: Path, modern: bool) -> None:
    shop = tool_server("shop", [RICH])
    async with open_gateway_methods(tmp_path, shop.spec(era="2026-07-28")) as it:
        listed = await it.ask("tools/list", modern=modern)
        assert [tool["name"] for tool in listed["tools"]] == ["shop__price", "read_result"]
        definition = {
            "name": "shop__price",
            "description": "Reads a price.\\u200b",
        }  # nothing is hidden in words
        assert listed["tools"][0] == {**RICH, **definition}
        hints = {key: listed.get(key) for key in ("resultType", "ttlMs", "cacheScope")}
        extra_fields = {"resultType": "complete", "ttlMs": 30_000, "cacheScope": "public"}
        assert hints == (extra_fields if modern else dict.fromkeys(extra_fields))


@proves("G4")
async def test_the_list_is_the_same_bytes_every_time_and_asks_no_server(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool("price"), reading_tool("stock")])
    async with open_gateway_methods(tmp_path, shop.spec()) as it:
        first = await it.methods.answer(request("tools/list"), SilentClient())
        shop.change_silently([])  # a server that were asked would say otherwise
        again = await it.methods.answer(request("tools/list", session="another"), SilentClient())
        assert isinstance(first, EncodedResult)
        assert again is first


@pytest.mark.slow
@proves("G4", "G14")
async def test_hundreds_of_tools_page_quickly_and_completely(tmp_path: Path) -> None:
    big = tool_server("big", [reading_tool(f"tool_{number:05}", x="string") for number in range(500)])
    async with open_gateway_methods(tmp_path, big.spec(), gateway={"page_size": 50}, flags=UNSCANNED) as it:
        began = time.process_time()
        page = await it.ask("tools/list")
        first = time.process_time() - began
        assert len(page["tools"]) == 50
        seconds: list[float] = []
        for _ in range(3):  # whatever else the process does at that moment counts, too: the least is ours
            began = time.process_time()
            names = await it.names()
            seconds.append(time.process_time() - began)
            assert names == [*(f"big__tool_{number:05}" for number in range(500)), "read_result"]
        assert min(seconds) < first  # eleven pages, each joined from what was encoded for the first


@pytest.mark.slow
@proves("G4")
async def test_others_have_their_turns_while_a_long_list_is_made(tmp_path: Path) -> None:
    big = tool_server(
        "big", [reading_tool(f"tool_{number}", x="string") for number in range(4 * ENCODE_CHUNK)]
    )
    async with open_gateway_methods(tmp_path, big.spec(), flags=UNSCANNED) as it:
        await it.ask("tools/list", at=ROUTE)  # the servers are up now
        assert await turns_during(it.ask("tools/list")) >= 4
        assert await turns_during(it.ask("tools/list")) < 4  # made once


@proves("G4")
async def test_a_page_goes_on_where_the_last_ended_although_the_list_changed(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool(name) for name in "abcd"])
    async with open_gateway_methods(
        tmp_path, shop.spec(), gateway={"page_size": 2}, flags={"pins": False}
    ) as it:
        first = await it.ask("tools/list")
        assert [tool["name"] for tool in first["tools"]] == ["shop__a", "shop__b"]
        await shop.replace([reading_tool(name) for name in ("0", "b", "c", "e")])
        await it.router.servers.refresh("shop")
        second = await it.ask("tools/list", {"cursor": first["nextCursor"]})
        assert [tool["name"] for tool in second["tools"]] == ["shop__c", "shop__e"]
        await shop.replace([reading_tool(name) for name in "xyz"])
        await it.router.servers.refresh("shop")
        with pytest.raises(JsonRpcError, match="ask for its first page again") as refused:
            await it.ask("tools/list", {"cursor": first["nextCursor"]})
        assert refused.value.code == -32602


@proves("G4")
@pytest.mark.parametrize("cursor", ["", "nonsense", 7, {}])
async def test_a_cursor_we_never_gave_is_refused(tmp_path: Path, cursor: Any) -> None:
    async with open_gateway_methods(tmp_path, tool_server("shop", [reading_tool("a")]).spec()) as it:
        with pytest.raises(JsonRpcError) as refused:
            await it.ask("tools/list", {"cursor": cursor})
        assert refused.value.code == -32602


@proves("G4", "G10")
async def test_each_caller_sees_what_they_may_use_and_can_reach_no_more(tmp_path: Path) -> None:
    shop = tool_server(
        "shop", [reading_tool("price"), {"name": "delete_all", "description": "Delete everything"}]
    )
    mail = tool_server("mail", [reading_tool("inbox")])
    clerk = Principal(name="clerk", kind="key", scope=Scope(servers=("shop",), effects=(Effect.READ,)))
    async with open_gateway_methods(tmp_path, shop.spec(), mail.spec()) as it:
        assert await it.names(by=clerk) == ["shop__price", "read_result"]
        assert await it.names() == ["mail__inbox", "shop__delete_all", "shop__price", "read_result"]
        assert (await it.ask("tools/list", by=clerk, modern=True))["cacheScope"] == "private"
        messages: list[str] = []
        for name in ("mail__inbox", "mail__nothing", "inbox", "mail/inbox", "shop__delete_all"):
            with pytest.raises(JsonRpcError) as refused:
                await it.call(name, by=clerk)
            assert refused.value.code == -32602
            messages.append(refused.value.message)
        assert not any("inbox" in message.partition("near")[2] for message in messages)
        assert not any("delete" in message.partition("near")[2] for message in messages)
        assert mail.calls == shop.calls == []


@pytest.mark.process
@proves("G14")
async def test_one_bad_server_hides_nothing(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool("price")])
    dead = ServerSpec(name="dead", transport="stdio", command=str(tmp_path / "nothing"))
    async with open_gateway_methods(tmp_path, dead, shop.spec()) as it:
        odd = {
            "name": "odd",
            "inputSchema": {},
            "title": 7,
            "annotations": {"readOnlyHint": "yes"},
            "icons": 3,
        }
        it.router.catalog.replace_server(Listing(server="bad", definitions=(odd,)))
        listed = {tool["name"]: tool for tool in (await it.ask("tools/list"))["tools"]}
        assert set(listed) == {"shop__price", "bad__odd", "read_result"}
        # Clients check the list as a whole: what is not what the protocol says would cost them every tool.
        assert listed["bad__odd"] == {"name": "bad__odd", "inputSchema": {"type": "object"}}


@proves("G4")
@pytest.mark.parametrize("output", [{"anyOf": [{"type": "object"}, {"type": "array"}]}, {"type": ["object"]}])
async def test_an_output_schema_that_older_clients_refuse_is_not_shown_to_them(
    tmp_path: Path, output: dict[str, Any]
) -> None:
    async with open_gateway_methods(tmp_path) as it:
        either = {**reading_tool("either"), "outputSchema": output}
        it.router.catalog.replace_server(Listing(server="shop", definitions=(either,)))
        old = (await it.ask("tools/list"))["tools"][0]
        new = (await it.ask("tools/list", modern=True))["tools"][0]
        assert "outputSchema" not in old
        assert new["outputSchema"] == output


TREE: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "array",
    "items": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#"}, {"$ref": "#twig"}, {"$ref": "urn:bud"}]},
    "$defs": {
        "leaf": {"type": "integer"},
        "twig": {"$anchor": "twig", "const": {"$ref": "#"}},
        "bud": {"$id": "urn:bud", "$ref": "#/$defs/name", "$defs": {"name": {"type": "string"}}},
        "enum": {"properties": {"$ref": {"$ref": "#/$defs/leaf"}}},
    },
}


@proves("G4")
async def test_the_schema_of_a_list_is_that_of_an_object_with_it_for_older_clients(tmp_path: Path) -> None:
    async with open_gateway_methods(tmp_path) as it:
        it.router.catalog.replace_server(
            Listing(server="shop", definitions=({**reading_tool("tree"), "outputSchema": TREE},))
        )
        new, old = [
            (await it.ask("tools/list", modern=modern))["tools"][0]["outputSchema"]
            for modern in (True, False)
        ]
    assert new == TREE
    assert (old["type"], old["required"], old["$schema"]) == ("object", ["result"], TREE["$schema"])
    trees: tuple[Any, ...] = ([], [1, [2, []], {"$ref": "#"}, "bud"])
    others: tuple[Any, ...] = (3, [1, [None]], [{"$ref": "#/properties/result"}])
    assert all(_fits(TREE, tree) and _fits(old, {"result": tree}) for tree in trees)
    assert not any(_fits(TREE, tree) or _fits(old, {"result": tree}) for tree in others)
    assert not _fits(old, {})


def _fits(schema: dict[str, Any], value: Any) -> bool:
    return Draft202012Validator(schema).is_valid(value)  # pyright: ignore[reportUnknownMemberType]


@proves("G4", "F19")
async def test_a_tool_that_can_only_be_run_as_a_task_is_left_out_with_the_reason(tmp_path: Path) -> None:
    """The gateway runs no tasks; clients know that, so they take no notice of where one is possible."""
    tools = {name: {"execution": {"taskSupport": name}} for name in ("required", "optional", "forbidden")}
    shop = FixedResultServer("shop", tools, {name: {"content": []} for name in tools})
    async with open_gateway_methods(tmp_path, shop.spec("2025-11-25")) as it:
        assert await it.names() == ["shop__forbidden", "shop__optional", "read_result"]
        listed = (await it.ask("tools/list"))["tools"]
        assert listed[1]["execution"] == {"taskSupport": "optional"}
        capabilities = it.methods.describe(ALL, LOCAL, "2025-11-25")["capabilities"]
        assert isinstance(capabilities, dict)
        assert "tasks" not in capabilities
        await it.call("shop__optional")
        assert "can only be run as a task" in text_of(await it.call("shop__required"))
        assert [call.name for call in shop.seen] == ["optional"]
        (dropped,) = it.router.catalog.dropped
        assert (dropped.server, dropped.name) == ("shop", "required")
        assert "can only be run as a task" in dropped.reason
        assert it.router.servers.get_status("shop").state is ServerState.READY  # nothing is wrong with it


@proves("G3", "G4")
async def test_auto_is_all_for_few_tools_and_route_for_many_and_then_stays(tmp_path: Path) -> None:
    async with open_gateway_methods(tmp_path, smart_routing={"max_tools": 3, "max_servers": 1}) as it:

        def offer(server: str, count: int) -> None:
            tools = tuple(reading_tool(f"t{number}") for number in range(count))
            it.router.catalog.replace_server(Listing(server=server, definitions=tools))

        offer("one", 3)
        assert "one__t0" in await it.names(at=AUTO)
        offer("two", 1)
        assert await it.names(at=AUTO) == ["find_tools", "describe_tool", "call_tool", "read_result"]
        offer("one", 1)
        assert await it.names(at=AUTO) == ["find_tools", "describe_tool", "call_tool", "read_result"]
        assert "one__t0" in await it.names(at=ALL)


@proves("G4")
async def test_names_without_a_prefix(tmp_path: Path) -> None:
    async with open_gateway_methods(tmp_path) as it:
        catalog = it.router.catalog
        names = ("price", "find_tools", "a tool", "two__price")
        definitions = tuple(reading_tool(name) for name in names)
        catalog.replace_server(Listing(server="one", definitions=definitions, prefix=False))
        catalog.replace_server(Listing(server="two", definitions=(reading_tool("price"),)))
        shown = {card.key: card.exposed_name for card in it.router.tools.cards}
        assert shown["one/price"] == "price"
        assert shown["two/price"] == "two__price"  # never renamed because of another
        assert shown["one/two__price"] == "one__two__price"
        assert shown["one/find_tools"] == "one__find_tools"  # that name is ours
        assert shown["one/a tool"].startswith("one__a_tool-0")
        assert sorted(await it.names()) == sorted([*shown.values(), "read_result"])


async def _call_when_listed(it: OpenMethods, name: str) -> str:
    """What the tool says, once it is there."""
    with anyio.fail_after(60):
        while True:
            with suppress(JsonRpcError):
                return text_of(await it.call(name))
            await anyio.sleep(0.05)


@proves("G4", "G8")
async def test_a_tool_that_a_server_got_without_a_word_is_found(tmp_path: Path) -> None:
    """Few servers announce changes; a tool that is there when asked directly is there through us."""
    shop = tool_server("shop", (reading_tool("price"),))
    limits = {"relist_seconds": 0.0}
    async with open_gateway_methods(tmp_path, shop.spec(era="2025-11-25"), limits=limits) as it:
        assert await it.names() == ["shop__price", "read_result"]
        shop.change_silently((reading_tool("price"), reading_tool("stock", number="integer")))
        assert await _call_when_listed(it, "shop__stock") == "{}"
        shop.change_silently((reading_tool("price"), reading_tool("stock"), reading_tool("rating")))
        with anyio.fail_after(60):
            # A request has it read after its answer.
            while "shop__rating" not in await it.names():  # noqa: ASYNC110 - it comes by looking
                await anyio.sleep(0.05)
        with pytest.raises(JsonRpcError, match="Unknown tool"):
            await it.call("shop__imagined")


@proves("G4")
async def test_the_list_of_a_server_that_announces_changes_is_read_when_it_does(tmp_path: Path) -> None:
    shop = tool_server("shop", (reading_tool("price"),))
    async with open_gateway_methods(
        tmp_path, shop.spec(era="2026-07-28"), limits={"relist_seconds": 0.0}
    ) as it:
        await it.names()
        shop.change_silently((reading_tool("price"), reading_tool("stock")))
        with pytest.raises(JsonRpcError, match="Unknown tool"):
            await it.call("shop__stock")
