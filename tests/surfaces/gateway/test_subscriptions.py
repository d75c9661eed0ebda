"""Changes are reported once, to the sessions they concern and to no other."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from fingerpost.records import Era, Principal, Scope
from fingerpost.testing import tool_server
from tests.kit.gateway_methods import ALL, ROUTE, LibraryServer, open_gateway_methods, reading_tool, request
from tests.requirements import proves

TOOLS = "notifications/tools/list_changed"


@proves("G8")
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
async def test_a_changed_list_is_announced_where_it_changed(tmp_path: Path, era: Era) -> None:
    shop = tool_server("shop", [reading_tool("price")])
    mail = tool_server("mail", [reading_tool("inbox")])
    bound = Principal(name="clerk", kind="key", scope=Scope(servers=("mail",)))
    async with open_gateway_methods(tmp_path, shop.spec(era=era), mail.spec(era=era)) as it:
        at_all = request("initialize", session="all")
        at_route = request("initialize", at=ROUTE, session="route")
        clerk = request("initialize", by=bound, session="clerk")
        it.audience.listeners += [at_all, at_route, clerk]
        await it.ask("tools/list", at=ALL)
        await it.ask("tools/list", at=ROUTE)
        await it.ask("tools/list", by=bound)
        await anyio.sleep(0.3)
        it.audience.published.clear()
        await shop.replace([reading_tool("price"), reading_tool("stock")])
        await it.audience.until(1)
        await anyio.sleep(0.3)
        assert it.audience.of("all") == [TOOLS]
        assert it.audience.of("route") == []  # its list is the same
        assert it.audience.of("clerk") == []  # they see nothing of the shop
        assert "shop__stock" in await it.names()


@proves("G8")
async def test_a_client_that_only_listens_is_notified(tmp_path: Path) -> None:
    shop = tool_server("shop", [reading_tool("price")])
    async with open_gateway_methods(tmp_path, shop.spec(era="2026-07-28")) as it:
        stream = request("subscriptions/listen", modern=True, session="listen-1")
        it.audience.listeners.append(stream)
        honoured = await it.ask(
            "subscriptions/listen",
            {"notifications": {"toolsListChanged": True}},
            modern=True,
            session="listen-1",
        )
        assert honoured == {"notifications": {"toolsListChanged": True}}
        with anyio.fail_after(30):
            await shop.replace([reading_tool("price"), reading_tool("stock")])
            await it.audience.until(1)
        assert it.audience.of("listen-1") == [TOOLS]


@proves("G8")
async def test_a_listener_is_promised_only_what_is_told(tmp_path: Path) -> None:
    one, two = LibraryServer("one", resources=["book://a"]), LibraryServer("two", resources=["map://b"])
    wanted = {
        "resourcesListChanged": True,
        "toolsListChanged": False,
        "promptsListChanged": "yes",
        "bogusChanged": True,
        "x": {"y": [1]},
        "resourceSubscriptions": ["book://a", "song://x"],
    }
    async with open_gateway_methods(tmp_path, one.spec(), two.spec()) as it:
        honoured = await it.ask("subscriptions/listen", {"notifications": wanted}, modern=True)
        assert honoured == {
            "notifications": {"resourcesListChanged": True, "resourceSubscriptions": ["book://a"]}
        }
        assert (one.asked, two.asked) == ([("subscribe", "book://a")], [])
        nothing = await it.ask("subscriptions/listen", {"notifications": 5}, modern=True)
        assert nothing == {"notifications": {}}


@proves("G8")
async def test_changed_resources_and_prompts_are_told_to_those_who_may_use_them(tmp_path: Path) -> None:
    one, two = LibraryServer("one", resources=["book://a"]), LibraryServer("two", prompts=["quiz"])
    bound = Principal(name="clerk", kind="key", scope=Scope(servers=("two",)))
    async with open_gateway_methods(tmp_path, one.spec(), two.spec()) as it:
        await it.ask("resources/list")
        everybody, clerk = (
            request("initialize", session="all"),
            request("initialize", by=bound, session="clerk"),
        )
        for listener in (everybody, clerk):
            it.methods.describe(listener.endpoint, listener.principal, listener.version)
        it.audience.listeners += [everybody, clerk]
        await anyio.sleep(0.3)
        it.audience.published.clear()
        one.resources.append("book://b")
        await one.notify_clients("notifications/resources/list_changed")
        await it.audience.until(1)
        two.prompts.append("poem")
        await two.notify_clients("notifications/prompts/list_changed")
        await it.audience.until(3)
        assert it.audience.of("all") == [
            "notifications/resources/list_changed",
            "notifications/prompts/list_changed",
        ]
        assert it.audience.of("clerk") == ["notifications/prompts/list_changed"]
        assert len((await it.ask("resources/list"))["resources"]) == 2
