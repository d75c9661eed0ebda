"""What programs can rely on: options that are checked, errors, the store, `help()` and short texts."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from anyio import to_thread

import fingerpost
from fingerpost import Agent, Call, CallContext, ConfigError, FingerpostError, Policy, Router, Server, load
from fingerpost.embed import Embedded
from fingerpost.llm import OpenAIChat
from fingerpost.records import ServerStatus
from fingerpost.router.agent import AgentStats, AgentStatus
from fingerpost.router.options import CallOptions, RouteOptions
from fingerpost.testing import tool_server
from tests.kit.tables import table
from tests.requirements import proves


@proves("H31")
async def test_an_unknown_option_is_refused_with_the_nearest_name_and_nothing_is_called() -> None:
    ran: list[str] = []

    def save_note(text: str) -> str:
        """Save a note."""
        ran.append(text)
        return "saved"

    wrong: Any = {"dryrun": True}
    async with Router() as router:
        await router.register(save_note, effect="read")
        asked = 'Use local/save_note with text "milk"'
        for attempt in (
            lambda: router.route(asked, **wrong),
            lambda: router.call("local/save_note", {"text": "milk"}, **wrong),
            lambda: Agent(router).ask(asked, **wrong),
            lambda: anext(router.stream(asked, **wrong)),
        ):
            with pytest.raises(TypeError, match=r"there is no option 'dryrun'; did you mean 'dry_run'\?"):
                await attempt()
        with pytest.raises(TypeError, match=r"did you mean 'dry_run'\?"):
            router.start("local/save_note", {"text": "milk"}, **wrong)
        with pytest.raises(TypeError, match="there is no option 'zzz'; the options are about, "):
            await router.narrow(asked, **cast("Any", {"zzz": 1}))
    assert ran == []


@proves("H31")
def test_a_traceback_says_what_to_do() -> None:
    with pytest.raises(ConfigError) as raised:
        Server.stdio("time", cast("Any", "mcp-server-time"))
    assert raised.value.hint
    assert traceback.format_exception(raised.value)[-1].strip() == raised.value.hint


class AsyncRule:
    label = "async"

    async def judge(self, call: Call, context: CallContext) -> None:
        """Have no opinion."""


class WordRule:
    label = "word"

    def judge(self, call: Call, context: CallContext) -> str:
        return "deny"


def make_server_named(name: str) -> object:
    return Server.stdio(name, ["b"])


def make_server(**options: Any) -> object:
    return Server.stdio("a", ["b"], **options)


@proves("H31")
@table(
    "make, said",
    [
        (lambda: Router(cast("Any", ["time"])), "a str where a server belongs"),
        (lambda: Router(model=cast("Any", "small")), "a str where a model belongs"),
        (lambda: Router(cast("Any", tool_server("a", []).spec())), "servers is a list of servers"),
        (lambda: Embedded(cast("Any", tool_server("a", []).spec())), "servers is a list of servers"),
        (lambda: Router(cast("Any", "mcp.json")), "a str where servers belong"),
        (lambda: Router(settings=cast("Any", load())), "settings takes Settings, not a Loaded"),
        (lambda: Router(policy=cast("Any", {})), "policy takes a Policy, not a dict"),
        (lambda: Router(scorers=cast("Any", [AsyncRule])), "scorers takes objects, and AsyncRule is a class"),
        (lambda: Router(rules=cast("Any", [AsyncRule])), "rules takes objects, and AsyncRule is a class"),
        (lambda: Router(rules=cast("Any", [AsyncRule()])), "judge of the rule AsyncRule must not be async"),
        (lambda: Policy(deny=cast("Any", {1})), "deny of a Policy is a collection of names, not {1}"),
        (lambda: Server.http("far", "far.example.org/mcp"), "the address of server 'far' is not a URL"),
        (lambda: make_server(lifecycle="allways"), "server 'a' cannot have lifecycle='allways'"),
        (lambda: make_server(era="old"), "server 'a' cannot have era='old'"),
        (lambda: make_server(connect_timeout="3"), "connect_timeout of server 'a' is a number of seconds"),
        (lambda: make_server(env={"A": 1}), "'A' of server 'a' is text, not a int"),
    ],
)
def test_what_is_of_another_kind_is_refused_where_it_is_given(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        make()
    assert raised.value.hint


@proves("H31")
async def test_values_of_another_kind_are_refused_in_calls() -> None:
    asked = "place an order"
    shop = tool_server("shop", [{"name": "place_order", "description": "Place an order."}])
    async with Router([shop.spec()], rules=cast("Any", [WordRule()])) as router:
        wrong: dict[str, Any] = {
            "max_tools": "3",
            "seconds": "a",
            "history": "x",
            "conversation": 7,
            "caller": 3,
        }
        for name, value in wrong.items():
            with pytest.raises(ConfigError, match=f"^{name} is .*, not {value!r}"):
                await router.route(asked, **cast("Any", {name: value}))
        for attempt, said in (
            (lambda: router.narrow(asked, max_tools=0), "max_tools is a whole number of at least 1, not 0"),
            (lambda: router.route(cast("Any", 3)), "a request is text, not 3"),
            (lambda: router.register(make_server_named, effect="reed"), "there is no effect 'reed'"),
            (lambda: router.resume(cast("Any", None)), "resume takes a Route"),
            (lambda: router.calls.decide("apr_1", "maybe", by="dana"), "approved or rejected, not 'maybe'"),
        ):
            with pytest.raises(FingerpostError, match=said) as raised:
                await attempt()
            assert raised.value.hint
        denied = await router.call("shop/place_order", {})
        assert "judge of the rule word must return a Ruling or None" in denied.content


@proves("H31")
async def test_a_router_without_a_store_keeps_nothing_outside_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    shop = tool_server("shop", [{"name": "place_order", "description": "Place an order."}])
    async with Router([shop.spec()]) as router:
        held = await router.call("shop/place_order", {})
        assert held.pending_id is not None
        assert f"then router.resume_call('{held.pending_id}')" in held.advice
        waiting = (await router.calls.approvals.list_waiting())[0]
        with pytest.raises(ConfigError, match="by is the name of the person"):
            waiting.approve(by="")
        await router.calls.decide(held.pending_id, "approved", by="dana")
        assert (await router.resume_call(held.pending_id)).success
        assert (await router.narrow("place an order")).shortlist.candidates
        assert (await router.store.audit.verify()).intact
    assert await to_thread.run_sync(os.listdir, tmp_path) == []
    async with Router() as another:
        assert await another.store.approvals.list_waiting() == []
    loaded = await to_thread.run_sync(partial(load, environ={"HOME": str(tmp_path)}))
    assert loaded.settings.store.url == f"sqlite:///{tmp_path}/fingerpost/fingerpost.db"


PUBLIC_RECORDS = [
    *(
        value
        for name in fingerpost.__all__
        if dataclasses.is_dataclass(value := getattr(fingerpost, name)) and name != "Event"
    ),
    RouteOptions,
    CallOptions,
    ServerStatus,
    AgentStats,
    AgentStatus,
]


@proves("H31")
def test_help_describes_every_field_of_public_records() -> None:
    for record in PUBLIC_RECORDS:
        own = inspect.get_annotations(cast("type", record))
        described = inspect.getdoc(record) or ""
        for field in dataclasses.fields(record):
            if field.name in own and not field.name.startswith("_"):
                assert re.search(rf"^    {field.name}: \S", described, re.MULTILINE), (record, field.name)


@proves("H31")
async def test_objects_are_shown_in_one_short_line_without_secrets() -> None:
    loaded = await to_thread.run_sync(load)
    shop = tool_server("shop", [{"name": "list_orders", "description": "List orders. " * 50}])
    secret = Server.http("far", "http://127.0.0.1:9/mcp?key=canary", headers={"Authorization": "canary"})
    async with Router([shop.spec(), secret]) as router:
        await router.connect("shop")
        route = await router.route("list my orders " * 20)
        shown = [
            *(router, router.store, router.tools, router.tools.cards[0], secret, Agent(router), route),
            *(
                route.packet,
                route.narrowing,
                router.servers,
                router.servers.statuses[0],
                router.settings,
                loaded,
            ),
            *(await router.call("shop/list_orders", {}), Policy(ask={"shop/*"})),
            OpenAIChat("m", base_url="http://127.0.0.1:9/v1", api_key="canary-canary-canary"),
        ]
    for text in map(repr, shown):
        assert len(text) < 400 and "\n" not in text and " object at 0x" not in text and "canary" not in text
