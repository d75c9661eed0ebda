"""What `find_tools` says of servers that are not up: that they are there, to those who might use them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fingerpost.call.digest import count_tokens
from fingerpost.records import Principal, Scope, ServerSpec
from fingerpost.testing import stdio_fault, tool_server
from tests.kit.gateway_methods import (
    ALL,
    LOCAL,
    ROUTE,
    OpenMethods,
    open_gateway_methods,
    profile,
    reading_tool,
    text_of,
)
from tests.requirements import proves

MAIL = (reading_tool("search_mail", "Search the mailbox for messages about something", query="string"),)
GONE = ServerSpec(name="gone", transport="stdio", command="no-such-program")
OFF = ServerSpec(name="off", transport="stdio", command="no-such-program", enabled=False)
FAST: dict[str, Any] = {"flags": {"dense_scores": False}}  # words alone: no encoder to load
PIZZA = "Order two pizzas to the office"
HOPE = "1 server is still connecting or down (gone): try again in a moment."


def clerk(**scope: Any) -> Principal:
    return Principal(name="clerk", kind="key", scope=Scope(**scope))


async def find_tools(it: OpenMethods, by: Principal = LOCAL, **arguments: Any) -> str:
    answer = await it.call("find_tools", {"request": PIZZA, **arguments}, at=ROUTE, by=by)
    assert answer["structuredContent"]["note"] in text_of(answer)
    return text_of(answer)


@pytest.mark.process
@proves("G3", "C3")
async def test_a_server_that_is_not_up_is_not_said_to_be_missing(tmp_path: Path) -> None:
    mail = tool_server("mail", MAIL)
    async with open_gateway_methods(tmp_path, mail.spec(), GONE, OFF, **FAST) as it:
        down = await find_tools(it, server="gone")
        assert down.startswith("The server gone is down: ")
        assert "`fingerpost doctor`" in down
        disabled = await find_tools(it, server="off")
        assert disabled.startswith("The server off is disabled in the configuration. Remove ")
        missing = await find_tools(it, server="post")
        assert missing.startswith(f"There is no server 'post' here. {HOPE} There are: mail.")
        unfit = await find_tools(it)
        assert "No tool here seems to fit" in unfit and HOPE in unfit
        assert "still connecting" not in await find_tools(it, server="mail")
        assert "still connecting" not in await find_tools(it, request="search the mailbox for messages")
        await it.router.disabled_tools.set_server_enabled(
            "mail", enabled=False, by="dana", reason="mail moves today"
        )
        switched = await find_tools(it, server="mail")
        assert switched.startswith("The server mail is switched off by dana: mail moves today. Switch it on")


@pytest.mark.process
@proves("G3", "C3")
async def test_while_servers_connect_no_client_is_told_that_there_are_no_tools(tmp_path: Path) -> None:
    async with open_gateway_methods(
        tmp_path, stdio_fault("silent", name="gone"), connect=False, **FAST
    ) as it:
        it.router.servers.start()
        connecting = "The server gone is still connecting. Try again in a moment"
        assert (await find_tools(it)).startswith(f"No tools are available here now. {connecting}")
        assert (await find_tools(it, server="gone")).startswith(
            "The server gone is still connecting. Try again"
        )


@pytest.mark.process
@proves("G3", "G10")
@pytest.mark.parametrize(
    "scope",
    [{"servers": ("mail",)}, {"tools": ("mail/*",)}, {"tools": ("gon/*", "gone"), "servers": ("*",)}],
)
async def test_outside_of_a_scope_a_server_stays_unnamed(tmp_path: Path, scope: dict[str, Any]) -> None:
    mail = tool_server("mail", MAIL)
    async with open_gateway_methods(
        tmp_path, mail.spec(), GONE, profiles={"post": {"mode": "route", **scope}}, **FAST
    ) as it:
        for at, by in ((ROUTE, clerk(**scope)), (profile("post"), LOCAL)):
            for more in ({}, {"server": "gone"}, {"server": "elsewhere"}):
                arguments = {"name": "find_tools", "arguments": {"request": PIZZA, **more}}
                answer = await it.ask("tools/call", arguments, at=at, by=by)
                text = text_of(answer).replace("'gone'", "")
                assert "gone" not in text and "still connecting" not in text


@pytest.mark.process
@proves("G3", "G10")
@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ([{"verdict": "deny", "server": "gone"}], False),
        ([{"verdict": "deny", "tool": "GONE/*"}], False),
        ([{"verdict": "allow", "tool": "mail/*"}, {"verdict": "deny"}], False),
        ([{"verdict": "deny", "server": "gone", "caller": "clerk"}], False),
        ([{"verdict": "deny", "server": "gone", "caller": "chief"}], True),
        ([{"verdict": "deny", "tool": "gone/drop_*"}], True),
        ([{"verdict": "deny", "server": "gone", "effect": "destroy"}], True),
        ([{"verdict": "ask", "tool": "gone/look"}, {"verdict": "deny", "server": "gone"}], True),
        ([{"verdict": "allow", "tool": "look"}, {"verdict": "deny", "server": "gone"}], True),
    ],
)
async def test_a_server_that_rules_deny_altogether_stays_unnamed(
    tmp_path: Path, rules: list[dict[str, Any]], named: bool
) -> None:
    mail = tool_server("mail", MAIL)
    async with open_gateway_methods(tmp_path, mail.spec(), GONE, policy=rules, **FAST) as it:
        assert ("gone" in await find_tools(it, by=clerk())) is named
        text = await find_tools(it, by=clerk(), server="gone")
        assert text.startswith(
            "The server gone is down" if named else "There is no server 'gone' here. There"
        )


DENIED = {"policy": [{"verdict": "deny", "server": "mail"}]}


@pytest.mark.process
@proves("G3", "S11")
@pytest.mark.parametrize(
    ("specs", "settings", "reason"),
    [
        ((), {}, "No MCP servers are configured. Add one with `fingerpost servers add NAME -- COMMAND`."),
        ((GONE, OFF), {}, "The server gone is down: "),
        ((tool_server("mail", MAIL).spec(),), DENIED, "Tools are hidden from this client by the policy"),
        ((tool_server("mail", ()).spec(),), {}, "The connected servers offer no tools."),
    ],
)
async def test_a_client_without_tools_is_told_why(
    tmp_path: Path, specs: tuple[ServerSpec, ...], settings: dict[str, Any], reason: str
) -> None:
    async with open_gateway_methods(tmp_path, *specs, **settings, **FAST) as it:
        instructions = str(it.methods.describe(ALL, LOCAL, "2025-11-25")["instructions"])
        assert "Status: No tools are available here now." in instructions and reason in instructions
        assert await it.names(at=ALL) == ["find_tools", "read_result"]
        assert reason in text_of(await it.call("find_tools", {"request": PIZZA}, at=ALL))
        assert reason in await find_tools(it)


@pytest.mark.process
@proves("G3", "G10")
@pytest.mark.parametrize("scope", [{"servers": ("go*",)}, {"tools": ("gone/look",)}, {"tools": ("*",)}])
async def test_within_a_scope_a_server_is_named(tmp_path: Path, scope: dict[str, Any]) -> None:
    async with open_gateway_methods(tmp_path, GONE, **FAST) as it:
        assert "The server gone is down: " in await find_tools(it, by=clerk(**scope))


@proves("G3", "G10")
async def test_a_server_of_which_nothing_was_theirs_stays_unnamed_when_it_goes(tmp_path: Path) -> None:
    mail, shop = tool_server("mail", MAIL), tool_server("shop", [reading_tool("price")])
    rules = [{"verdict": "deny", "tool": "shop/price"}]
    async with open_gateway_methods(tmp_path, mail.spec(), shop.spec(), policy=rules, **FAST) as it:
        await it.router.disabled_tools.set_server_enabled("shop", enabled=False, by="dana")
        assert "There is no server 'shop' here. There are: mail." in await find_tools(it, server="shop")


@pytest.mark.process
@proves("G3")
@pytest.mark.parametrize("budget", [200, 400, 1500])
async def test_what_is_said_of_servers_stays_within_the_budget(tmp_path: Path, budget: int) -> None:
    mail = tool_server("mail", MAIL)
    names = [f"{number}_{'a_rather_long_name_' * 6}" for number in range(12)]
    gone = [ServerSpec(name=name, transport="stdio", command="no-such-program") for name in names]
    settings: dict[str, Any] = {"gateway": {"find_tokens": budget}, **FAST}
    async with open_gateway_methods(tmp_path, mail.spec(), *gone, **settings) as it:
        for more in ({}, {"server": "post"}, {"server": names[0]}):
            answer = await it.call("find_tools", {"request": PIZZA, **more}, at=ROUTE)
            structured = json.dumps(answer["structuredContent"], ensure_ascii=False)
            assert count_tokens(text_of(answer)) + count_tokens(structured) <= budget
            assert ("12 servers are still connecting or down" in structured) is ("0_" not in str(more))
