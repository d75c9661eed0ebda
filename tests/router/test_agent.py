"""Agents and the switches: conversations that keep themselves, routing changed while it runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fingerpost import Router, Settings
from fingerpost.errors import CallError, ConfigError
from fingerpost.events import RouteBegan
from fingerpost.llm import ModelRequest
from fingerpost.records import Message, RouteOutcome
from fingerpost.router.agent import Agent, AgentStats, RoutingThresholds
from fingerpost.router.options import RuntimeSwitches
from fingerpost.testing import HANG, ScriptedModel, ToolServer, calls, served, tool_server
from tests.kit.native_model_server import Vendor, content, message, text
from tests.kit.stores import place_empty_store
from tests.requirements import proves

NOTES = [
    {
        "name": "search_notes",
        "description": "Search the notes for words and list those that hold them.",
        "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
        "annotations": {"readOnlyHint": True},
    },
    {
        "name": "delete_note",
        "description": "Delete one note for ever.",
        "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "annotations": {"destructiveHint": True},
    },
]
SEARCH = ("notes__search_notes", {"query": "budget"})


async def answer(name: str, arguments: dict[str, Any]) -> str:
    return "budget.md, plan.md" if name == "search_notes" else "it is gone"


def build_agent_settings(folder: Path, **settings: Any) -> Settings:
    given = {
        "store": {"url": place_empty_store(folder, "s.db")},
        "narrow": {"vectors": str(folder / "vectors")},
        "flags": {"dense_scores": False},
    }
    return Settings.model_validate({**given, **settings})


@asynccontextmanager
async def open_notes_router(
    folder: Path, model: ScriptedModel | None, *, more: int = 0, **settings: Any
) -> AsyncGenerator[tuple[Router, ToolServer]]:
    notes = tool_server("notes", NOTES, call=answer)
    others = [tool_server(f"box{n}", [f"box{n}_open", f"box{n}_close"]) for n in range(more)]
    specs = [server.spec() for server in (notes, *others)]
    async with Router(specs, settings=build_agent_settings(folder, **settings), model=model) as router:
        await router.connect()
        yield router, notes


def texts(request: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in request.messages]


@proves("E8")
async def test_a_simple_agent_calls_and_answers_and_keeps_the_conversation(tmp_path: Path):
    model = ScriptedModel([calls(SEARCH), "Two notes: budget.md and plan.md.", "budget.md is the newest."])
    async with open_notes_router(tmp_path, model) as (router, notes):
        agent = Agent(router)
        first = await agent.ask("Search my notes for the budget")
        second = await agent.ask("Which of these notes is the newest?")
    assert first.outcome is second.outcome is RouteOutcome.ANSWERED
    assert notes.calls == [("search_notes", {"query": "budget"})]
    assert agent.history == (
        Message(role="user", text="Search my notes for the budget"),
        Message(role="assistant", text=first.answer),
        Message(role="user", text="Which of these notes is the newest?"),
        Message(role="assistant", text=second.answer),
    )
    assert first.packet.header.session_id == second.packet.header.session_id == agent.conversation
    assert ("assistant", first.answer) in texts(model.asked[-1])


@proves("E8", "W8")
async def test_an_agent_is_switched_from_simple_to_react_between_two_requests(tmp_path: Path):
    thinking = '{"thought": "I know that.", "action": null, "answer": "It is budget.md."}'
    model = ScriptedModel(["It is budget.md.", thinking])
    async with open_notes_router(tmp_path, model) as (router, _):
        agent = Agent(router, max_turns=3)
        began: list[RouteBegan] = []
        for mode in ("simple", "react"):
            await anyio.to_thread.run_sync(agent.set_mode, mode)
            route = await agent.ask("Search my notes: which is about the budget?")
            assert "budget.md" in route.answer
            began += [event for event in route.events if isinstance(event, RouteBegan)]
    assert [event.mode.value for event in began] == ["simple", "react"]
    assert agent.max_turns == 3


@proves("A7", "E8")
@pytest.mark.parametrize("provider", ["anthropic", "google"])
async def test_an_agent_works_with_a_model_behind_its_vendors_own_api(tmp_path: Path, provider: str):
    name, query = SEARCH
    if provider == "anthropic":
        asks = message({"type": "tool_use", "id": "t1", "name": name, "input": query}, stop="tool_use")
        vendor = Vendor(asks, message(text("Two notes: budget.md and plan.md.")))
    else:
        vendor = Vendor(
            content({"functionCall": {"name": name, "args": query}}), content({"text": "Two notes."})
        )
    async with served(vendor.app) as address:
        given = {"provider": provider, "model": "m-1", "base_url": address, "api_key": "key-of-the-vendor"}
        async with open_notes_router(tmp_path, None, models={"prime": given}) as (router, notes):
            route = await Agent(router).ask("Search my notes for the budget")
    assert route.outcome is RouteOutcome.ANSWERED
    assert route.answer.startswith("Two notes")
    assert route.prompt_tokens > 0
    assert notes.calls == [("search_notes", query)]
    asked, second_request = vendor.asked
    assert "search_notes" in str(asked["tools"])
    assert "budget.md, plan.md" in str(second_request)  # the result went back as one
    assert ("tool_result" if provider == "anthropic" else "functionResponse") in str(second_request)


async def test_turns_run_out_as_the_agent_or_else_the_router_says(tmp_path: Path):
    for turns, given in ((1, 1), (2, None)):
        model = ScriptedModel(lambda _: calls(SEARCH))
        async with open_notes_router(tmp_path, model) as (router, notes):
            router.switches.set_max_turns(2)
            agent = Agent(router, max_turns=given)
            assert agent.max_turns == turns
            route = await agent.ask("Search my notes for the budget")
        assert route.packet.tool_routing.reinjection_count == turns
        assert f"the {turns} rounds of tools" in route.answer
        assert len(notes.calls) <= turns


async def test_reset_begins_another_conversation(tmp_path: Path):
    model = ScriptedModel(["one", "two"])
    async with open_notes_router(tmp_path, model) as (router, _):
        agent = Agent(router, conversation="c1", persona="You are Pim.")
        await agent.ask("Search my notes, please")
        agent.reset()
        assert agent.history == ()
        assert agent.conversation != "c1"
        await agent.ask("Search my notes again, please")
    assert "Search my notes, please" not in str(texts(model.asked[-1]))
    assert "You are Pim." in str(texts(model.asked[-1]))


async def test_what_was_said_before_a_reset_does_not_come_back(tmp_path: Path):
    began = anyio.Event()

    async def slow(_: ModelRequest) -> str:
        began.set()
        await anyio.sleep(0.05)
        return "late"

    async with open_notes_router(tmp_path, ScriptedModel(slow)) as (router, _):
        agent = Agent(router)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.ask, "Search my notes, please")
            await began.wait()
            assert agent.status().busy
            agent.reset()
        assert agent.history == ()
        assert not agent.status().busy


@proves("E8")
async def test_a_dangerous_call_waits_and_the_agent_goes_on_with_it(tmp_path: Path):
    model = ScriptedModel([calls(("notes__delete_note", {"name": "plan.md"})), "plan.md is deleted."])
    async with open_notes_router(tmp_path, model) as (router, notes):
        agent = Agent(router)
        with pytest.raises(CallError, match="nothing in this conversation waits"):
            await agent.resume()
        route = await agent.ask("Delete the note plan.md")
        assert route.outcome is RouteOutcome.WAITING
        assert agent.waiting is route
        assert notes.calls == []
        assert route.pending is not None
        assert agent.stats().waiting == 1
        done = await agent.resume(route.pending.approve(by="dana"))
        assert done.outcome is RouteOutcome.ANSWERED
    assert notes.calls == [("delete_note", {"name": "plan.md"})]
    assert [message.text for message in agent.history] == ["Delete the note plan.md", done.answer]
    assert agent.waiting is None
    stats = agent.stats()
    assert (stats.requests, stats.waiting, stats.success_rate) == (1, 0, 1.0)


async def test_requests_at_once_are_answered_one_after_another(tmp_path: Path):
    model = ScriptedModel(lambda request: f"answer {len(request.messages)}", seconds=0.01)
    async with open_notes_router(tmp_path, model) as (router, _):
        agent = Agent(router)
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(agent.ask, f"Search my notes for {number}")
    assert [message.role for message in agent.history] == ["user", "assistant"] * 4
    assert agent.stats().requests == 4


@proves("E8", "E7")
async def test_an_agents_figures_come_from_what_happened(tmp_path: Path):
    wrong = calls(("notes__search_notes", {}))
    model = ScriptedModel([calls(SEARCH), "Two notes.", wrong, "None.", wrong, wrong])
    async with open_notes_router(tmp_path, model) as (router, _):
        agent = Agent(router)
        assert agent.stats() == AgentStats()
        await agent.ask("Search my notes for the budget")
        await agent.ask("Search my notes once more")
        agent.set_max_turns(1)  # its only call fails, and it never answers
        await agent.ask("Search my notes yet again")
    stats = agent.stats()
    assert stats.requests == 3
    assert stats.failures == 1
    assert stats.success_rate == pytest.approx(2 / 3)
    assert stats.tool_calls == 3
    assert stats.tool_failures == 2
    assert 0 <= stats.reduction < 1
    assert stats.mean_added_ms > 0
    assert stats.server_choices == 0


async def test_an_error_is_a_failure_too(tmp_path: Path):
    async with open_notes_router(tmp_path, None) as (router, _):
        agent = Agent(router, mode="react")
        with pytest.raises(ConfigError, match="needs a language model"):
            await agent.ask("Search my notes for the budget")
    assert agent.stats().failures == 1
    assert agent.history == ()


async def test_a_cancelled_request_leaves_the_agent_as_it_was(tmp_path: Path):
    model = ScriptedModel([HANG, "fine"])
    async with open_notes_router(tmp_path, model) as (router, _):
        agent = Agent(router)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.ask, "Search my notes for the budget")
            while not model.asked:  # noqa: ASYNC110 - until the model hangs, however slow the machine is
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        assert agent.history == ()
        assert (await agent.ask("Search my notes for the budget")).answer.startswith("fine")


async def test_what_is_not_possible_is_refused(tmp_path: Path):
    async with open_notes_router(tmp_path, None) as (router, _):
        agent = Agent(router)
        with pytest.raises(ConfigError, match="no mode 'staged'"):
            agent.set_mode("staged")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="max_turns = 0"):
            Agent(router, max_turns=0)
        with pytest.raises(ConfigError, match="max_turns = 101"):
            agent.set_max_turns(101)
        assert (agent.mode, agent.max_turns) == ("simple", 3)


@proves("E8", "E1", "W8")
async def test_smart_routing_is_switched_while_it_runs(tmp_path: Path):
    async with open_notes_router(tmp_path, None, more=5) as (router, _):
        agent = Agent(router)
        assert agent.is_smart_routing_enabled
        assert agent.thresholds == RoutingThresholds(max_tools=30, max_servers=4)
        assert not agent.status().chooses_servers  # 12 tools are not many

        async def choose_tool() -> str | None:
            found = await router.narrow("search my notes for the budget")
            return None if found.servers is None else found.servers.by

        assert await choose_tool() is None
        await anyio.to_thread.run_sync(lambda: agent.set_thresholds(max_tools=10))
        assert agent.thresholds == RoutingThresholds(max_tools=10, max_servers=4)
        assert await choose_tool() == "scores"
        agent.set_smart_routing(False)
        assert not agent.is_smart_routing_enabled
        assert await choose_tool() is None
        agent.set_thresholds(max_tools=1000, max_servers=1000)
        agent.set_smart_routing(True)
        status = agent.status()
        assert (status.smart_routing, status.chooses_servers) == ("on", True)
        assert (status.total_tools, status.total_servers) == (12, 6)
        assert await choose_tool() == "scores"
        router.switches.restore()
        assert await choose_tool() is None


@proves("W8")
async def test_the_way_of_answering_is_switched_while_it_runs(tmp_path: Path):
    model = ScriptedModel(["Two notes."])
    async with open_notes_router(tmp_path, model, choose={"mode": "keyless"}) as (router, _):
        assert (await router.route("Search my notes for 'budget'")).mode.value == "keyless"
        router.switches.set_mode("simple")
        assert (await router.route("Search my notes for 'budget'")).mode.value == "simple"
        assert (await router.route("Search my notes for 'budget'", mode="keyless")).mode.value == "keyless"


def test_switches_begin_as_the_settings_say_and_refuse_what_they_would():
    settings = Settings.model_validate(
        {"smart_routing": {"mode": "off", "max_tools": 7}, "choose": {"mode": "react", "max_turns": 3}}
    )
    switches = RuntimeSwitches(settings)
    before = switches.now
    assert (before.smart_routing, before.mode, before.max_turns) == (settings.smart_routing, "react", 3)
    for wrong in (
        lambda: switches.set_smart_routing("sometimes"),
        lambda: switches.set_thresholds(max_tools=-1),
        lambda: switches.set_thresholds(max_tools=5, max_servers=1.5),  # type: ignore[arg-type]
        lambda: switches.set_mode("quick"),
        lambda: switches.set_max_turns(0),
        lambda: switches.set_max_turns(True),
    ):
        with pytest.raises(ConfigError, match="is not possible") as refusal:
            wrong()
        assert refusal.value.hint
    assert switches.now is before
    switches.set_mode("staged")
    switches.set_max_turns(5)
    assert (switches.now.mode, switches.now.max_turns, before.mode) == ("staged", 5, "react")
    switches.restore()
    assert switches.now == before


@proves("W8")
def test_no_reader_ever_sees_half_of_a_change():
    switches = RuntimeSwitches(Settings())
    switches.set_thresholds(max_tools=0, max_servers=0)
    halves: list[tuple[int, int]] = []
    done = False

    def look() -> None:
        while not done:
            routing = switches.now.smart_routing
            if routing.max_tools != routing.max_servers:
                halves.append((routing.max_tools, routing.max_servers))

    def change(start: int) -> None:
        for number in range(start, start + 300):
            switches.set_thresholds(max_tools=number, max_servers=number)
            switches.set_max_turns(1 + number % 100)

    readers = [Thread(target=look) for _ in range(2)]
    writers = [Thread(target=change, args=(start,)) for start in (0, 1000, 2000)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done = True
    for thread in readers:
        thread.join()
    assert halves == []
    assert switches.now.smart_routing.max_tools in (299, 1299, 2299)
