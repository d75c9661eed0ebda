"""Narrowing through the router: policy, health, memory and models joined to it, over servers in process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost import Router, Settings
from fingerpost.events import IntentDetected, MemorySink, RequestNarrowed, SmartRoutingEnd, rebuild_packet
from fingerpost.records import ErrorKind, NeedVerdict
from fingerpost.testing import ScriptedModel, tool_server
from tests.kit.stores import place_empty_store
from tests.requirements import proves

MAIL = {
    "search_mail": "Search the mailbox for messages by sender, subject or words.",
    "send_mail": "Send an e-mail to one or more people.",
}
CALENDAR = {
    "list_events": "List the events in the calendar between two dates.",
    "create_event": "Put a new event into the calendar.",
}
WEATHER = {"get_forecast": "The weather forecast for a city, for up to ten days."}


def definitions(tools: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "description": about,
            "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": True},
        }
        for name, about in tools.items()
    ]


@asynccontextmanager
async def open_office_router(
    folder: Path, *, model: ScriptedModel | None = None, more: int = 0, **settings: Any
) -> AsyncGenerator[tuple[Router, MemorySink]]:
    servers = {"mail": MAIL, "calendar": CALENDAR, "weather": WEATHER}
    for number in range(more):
        servers[f"archive{number}"] = {
            f"archive{number}_tool{n}": f"Box {n} of archive {number}." for n in range(12)
        }
    sink = MemorySink()
    chosen = Settings.model_validate(
        {
            "store": {"url": place_empty_store(folder, "s.db")},
            "narrow": {"vectors": str(folder / "vectors")},
            **settings,
            "flags": {"dense_scores": False, **settings.get("flags", {})},
        }
    )
    specs = [tool_server(name, definitions(tools)).spec() for name, tools in servers.items()]
    async with Router(specs, settings=chosen, sinks=[sink], model=model) as router:
        await router.connect()
        yield router, sink


@proves("A2", "D4")
async def test_the_journal_tells_whether_a_tool_is_needed_before_which_are_offered(tmp_path: Path) -> None:
    async with open_office_router(tmp_path) as (router, sink):
        found = await router.narrow("search my mailbox for the invoice from Dana", conversation="c1")
        assert found.need.verdict is NeedVerdict.TOOL
        assert found.packet_id is not None
        events = [event for event in sink.events if event.packet_id == found.packet_id]
        assert [event.kind for event in events] == [
            "packet_received",
            "intent_detected",
            "request_narrowed",
            "tools_offered",
        ]
        (listed,) = (event for event in events if isinstance(event, RequestNarrowed))
        assert listed.narrowing == found
        packet = rebuild_packet(events)
        assert packet is not None
        assert packet.intent.name == "tool_routing"
        assert packet.context.available_tools[0] == "mail/search_mail"
        assert len(packet.context.available_tools) <= 4
        assert packet.header.session_id == "c1"


@proves("A2")
async def test_a_greeting_is_no_matter_for_tools(tmp_path: Path) -> None:
    async with open_office_router(tmp_path) as (router, sink):
        found = await router.narrow("Good morning! How are you?")
        assert found.need.verdict is NeedVerdict.NONE
        assert found.shortlist.offered == ()
        asked = await router.narrow("Good morning! How are you?", asked_for_tools=True)
        assert asked.shortlist.offered
        detected = [event for event in sink.events if isinstance(event, IntentDetected)]
        assert [event.needs_tool for event in detected] == [False, False]


async def list_candidates(router: Router, sink: MemorySink, request: str) -> list[str]:
    """The tools with which a request that is answered was compared."""
    await router.route(request)
    (*_, listed) = (event for event in sink.events if isinstance(event, RequestNarrowed))
    return [candidate.tool for candidate in listed.narrowing.shortlist.candidates]


@pytest.mark.slow
@proves("A2")
async def test_an_answered_greeting_is_compared_with_tools_only_if_one_of_them_has_a_word_of_it(
    tmp_path: Path,
) -> None:
    async with open_office_router(tmp_path) as (router, sink):
        assert await list_candidates(router, sink, "Good morning! Thanks!") == []
        assert await list_candidates(router, sink, "שלום") == []
        assert await list_candidates(router, sink, "Good morning! What is the weather?") != []
        assert await router.settle(0.0, request="Thank you!")
    async with open_office_router(tmp_path, flags={"need_gate": False}) as (router, sink):
        assert await list_candidates(router, sink, "Good morning!") != []
    greeter = tool_server("greeter", definitions({"say_hello": "Greet a person in their language."}))
    settings = Settings.model_validate({"store": {"url": place_empty_store(tmp_path, "greeter.db")}})
    async with Router([greeter.spec()], settings=settings, sinks=[sink]) as router:
        await router.connect()
        assert await list_candidates(router, sink, "Hello!") == ["greeter/say_hello"]


@proves("D12")
async def test_tools_are_offered_all_the_same_when_the_gate_is_switched_off(tmp_path: Path) -> None:
    async with open_office_router(tmp_path, flags={"need_gate": False}) as (router, _):
        found = await router.narrow("Good morning! How are you?")
        assert found.need.verdict is NeedVerdict.NONE
        assert found.shortlist.offered


@proves("N1")
async def test_what_a_rule_forbids_to_a_caller_is_not_found_by_them_and_by_others_it_is(
    tmp_path: Path,
) -> None:
    rule = {"verdict": "deny", "tool": "mail/send_mail", "caller": "guest", "reason": "guests do not write"}
    async with open_office_router(tmp_path, policy=[rule]) as (router, _):
        guest = await router.narrow("send an e-mail to Dana", caller="guest")
        assert "mail/send_mail" not in {one.tool for one in guest.shortlist.candidates}
        assert [(hidden.tool, hidden.reason) for hidden in guest.shortlist.hidden] == [
            ("mail/send_mail", "guests do not write")
        ]
        dana = await router.narrow("send an e-mail to Dana", caller="dana")
        assert dana.shortlist.offered[0].tool == "mail/send_mail"


@proves("A17")
async def test_what_worked_for_a_request_and_what_came_next_count_the_next_time(tmp_path: Path) -> None:
    async with open_office_router(tmp_path) as (router, _):
        for _ in range(3):
            for tool in ("calendar/list_events", "weather/get_forecast"):
                request = "anything planned for the boat trip?"
                assert (await router.call(tool, {}, request=request, conversation="c1")).success
        await router.store.journal.flush()
        found = await router.narrow(
            "anything planned for the boat trip?", used=("mail/search_mail", "calendar/list_events")
        )
        notes = {
            one.tool: [part.note for part in one.parts if part.signal == "learned"]
            for one in found.shortlist.candidates
        }
        assert notes["calendar/list_events"] == ["worked for similar requests"]
        assert notes["weather/get_forecast"] == ["worked for similar requests, often comes next"]


@proves("D12")
async def test_nothing_is_remembered_when_learning_is_switched_off(tmp_path: Path) -> None:
    async with open_office_router(tmp_path, flags={"learned_use": False}) as (router, _):
        await router.call("mail/search_mail", {}, request="find the invoice")
        await router.store.journal.flush()
        assert await router.store.choices.list_recent() == []


@proves("E1", "E2", "E5", "E6")
async def test_in_a_large_catalog_a_model_chooses_the_servers_once_for_a_conversation(tmp_path: Path) -> None:
    model = ScriptedModel(['{"servers": ["mail", "calendar"], "reasoning": "letters and dates"}'])
    async with open_office_router(tmp_path, model=model, more=3) as (router, sink):
        first = await router.narrow("search my mailbox for the letter from Dana", conversation="c1")
        second = await router.narrow("and what is on tomorrow?", conversation="c1")
        for found in (first, second):
            assert found.servers is not None
            assert found.servers.servers == ("calendar", "mail")
            assert {one.tool.partition("/")[0] for one in found.shortlist.candidates} <= {"mail", "calendar"}
        assert len(model.asked) == 1
        ends = [event for event in sink.events if isinstance(event, SmartRoutingEnd)]
        assert [(end.success, end.packet_id) for end in ends] == [(True, first.packet_id)]


@proves("E1")
@pytest.mark.parametrize(("more", "mode", "on"), [(1, "auto", False), (3, "off", False), (1, "on", True)])
async def test_servers_are_chosen_only_above_the_thresholds_or_when_forced(
    tmp_path: Path, more: int, mode: str, on: bool
) -> None:
    async with open_office_router(tmp_path, more=more, smart_routing={"mode": mode}) as (router, sink):
        await router.narrow("will it rain in Oslo on Friday?")
        assert any(isinstance(event, SmartRoutingEnd) for event in sink.events) is on


async def test_a_server_that_failed_too_often_is_not_offered_and_the_reason_is_told(tmp_path: Path) -> None:
    async def hang(*_: Any) -> Any:
        await anyio.sleep_forever()

    servers = [
        tool_server("weather", definitions(WEATHER), call=hang).spec(),
        tool_server("mail", definitions(MAIL)).spec(),
    ]
    settings = Settings.model_validate(
        {
            "store": {"url": place_empty_store(tmp_path, "s.db")},
            "flags": {"dense_scores": False},
            "call": {"breaker_failures": 1, "retries": 0},
            "tools": [{"match": "weather/*", "timeout_ms": 200}],
        }
    )
    async with Router(servers, settings=settings) as router:
        await router.connect()
        outcome = await router.call("weather/get_forecast", {})
        assert outcome.error is ErrorKind.TIMEOUT
        found = await router.narrow("weather forecast for Oslo")
        lost = {one.tool: one.lost for one in found.shortlist.candidates if not one.offered}
        assert "weather cannot be used now: it failed too often" in lost["weather/get_forecast"]
