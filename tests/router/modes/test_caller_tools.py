"""A caller brings tools of their own: they arrive unchanged, calls of them go back, routed ones run here."""

from __future__ import annotations

from pathlib import Path

import pytest

from fingerpost.events import RequestNarrowed, RouteEnded, ThoughtNoted
from fingerpost.records import Message, RouteOutcome
from fingerpost.router import Agent
from fingerpost.testing import ScriptedModel
from tests.kit.call_recorder import find_unreadable, matches_journal
from tests.kit.caller_tools import (
    DELETE,
    NO_TOOLS,
    OWN,
    REQUEST,
    SEARCH,
    call,
    definition,
    disorder,
    join_texts,
    names_in,
    open_recorder,
    reply_with_calls,
)
from tests.kit.routers import script_model, write_review, write_selection
from tests.requirements import proves

QUERY = {"query": "budget"}


@proves("O3")
@pytest.mark.parametrize("mode", ["simple", "single", "react"])
async def test_they_stand_first_and_unchanged_and_calls_of_them_come_back_as_written(
    tmp_path: Path, mode: str
) -> None:
    painting = call("paint_wall", "call_a", what="red")
    model = ScriptedModel([reply_with_calls(painting, call("open_door", "call_b"), text="I paint.")])
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route(REQUEST, mode=mode, caller_tools=OWN)
        assert await matches_journal(router, route)
    assert route.outcome is RouteOutcome.HANDED_BACK
    assert route.tool_calls == (painting, call("open_door", "call_b"))
    assert (route.finish, route.answer, route.hidden) == ("tool_calls", "I paint.", ())
    (asked,) = model.asked
    assert asked.tools[:2] == OWN
    assert SEARCH in names_in(asked)
    assert asked.tool_choice == "auto"
    assert not server.calls
    (ended,) = (event for event in route.events if isinstance(event, RouteEnded))
    assert ended.handed_back == ("paint_wall", "open_door")
    assert not find_unreadable(route)
    assert route.as_json()["tool_calls"] == list(route.tool_calls)
    thoughts = [event.text for event in route.events if isinstance(event, ThoughtNoted)]
    assert thoughts == (["I paint."] if mode == "react" else [])


@proves("O2", "O3")
async def test_of_both_kinds_in_one_reply_ours_run_first_and_go_along_unseen(tmp_path: Path) -> None:
    both = reply_with_calls(call("paint_wall", "call_a"), call(SEARCH, "call_b", **QUERY), text="One moment.")
    model = ScriptedModel([both, "The wall is red and the budget 4,200, says notes/search_notes."])
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route(REQUEST, mode="simple", caller_tools=OWN)
        assert route.outcome is RouteOutcome.HANDED_BACK, route.trace
        assert [name for name, _ in server.calls] == ["search_notes"]
        since = route.answered_with({"call_a": "It is red now."})
        last = await router.route(REQUEST, mode="simple", caller_tools=OWN, since=since)
    assert [each["id"] for each in route.tool_calls] == ["call_a"]
    assert [message.role for message in route.hidden] == ["assistant", "tool"]
    assert "4,200" in route.hidden[1].text
    assert last.outcome is RouteOutcome.ANSWERED
    first, second = model.asked
    assert second.messages[: len(first.messages)] == first.messages  # the prompt begins as it did
    assert second.messages[len(first.messages) :] == since
    assert not disorder(second.messages)


@proves("O3")
async def test_a_routed_tool_gives_way_to_a_name_of_the_callers(tmp_path: Path) -> None:
    twin = definition(SEARCH, "The caller's own search.")
    renamed = f"{SEARCH}_routed"
    model = ScriptedModel(
        [reply_with_calls(call(renamed, "1", **QUERY)), reply_with_calls(call(SEARCH, "2", what="x"))]
    )
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route(REQUEST, mode="simple", caller_tools=(twin,))
    assert model.asked[0].tools[0] == twin
    assert names_in(model.asked[0]).count(SEARCH) == 1
    assert renamed in names_in(model.asked[0])
    assert server.calls == [("search_notes", QUERY)]
    assert route.tool_calls == (call(SEARCH, "2", what="x"),)
    assert [step.tool for step in route.packet.tool_routing.steps] == ["notes/search_notes"]


@proves("O3", "O7")
async def test_what_waits_for_a_person_comes_before_what_the_caller_does(tmp_path: Path) -> None:
    deleting = reply_with_calls(call(DELETE, "1", name="old"), call("paint_wall", "2"))
    model = ScriptedModel([deleting, reply_with_calls(call("paint_wall", "3"))])
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route("Delete the note old for good", mode="simple", caller_tools=OWN)
        assert route.outcome is RouteOutcome.WAITING, route.trace
        assert route.tool_calls == ()
        assert route.pending is not None
        over = await router.resume(route, route.pending.approve(by="ada"), caller_tools=OWN)
    assert server.calls == [("delete_note", {"name": "old"})]
    assert over.outcome is RouteOutcome.HANDED_BACK
    assert [each["id"] for each in over.tool_calls] == ["3"]
    assert [message.role for message in over.hidden] == ["assistant", "tool"]


@proves("O3")
@pytest.mark.parametrize("mode", ["simple", "staged"])
async def test_none_means_words_and_a_name_means_that_tool(tmp_path: Path, mode: str) -> None:
    named = {"type": "function", "function": {"name": "open_door"}}
    model = ScriptedModel(["In words.", reply_with_calls(call("open_door"))])
    async with open_recorder(tmp_path, model) as (router, server):
        text = await router.route(REQUEST, mode=mode, caller_tools=OWN, tool_choice="none")
        door = await router.route(REQUEST, mode=mode, caller_tools=OWN, tool_choice=named)
    assert (text.outcome, text.answer) == (RouteOutcome.ANSWERED, "In words.")
    assert (door.outcome, door.tool_calls) == (RouteOutcome.HANDED_BACK, (call("open_door"),))
    assert [request.tools for request in model.asked] == [OWN, OWN]
    assert [request.tool_choice for request in model.asked] == ["none", named]
    assert not server.calls
    assert text.packet.context.available_tools == ()


async def test_what_is_required_has_happened_once_a_routed_tool_was_called(tmp_path: Path) -> None:
    model = ScriptedModel([reply_with_calls(call(SEARCH, **QUERY)), "4,200, by notes/search_notes."])
    async with open_recorder(tmp_path, model) as (router, _):
        route = await router.route(REQUEST, mode="simple", caller_tools=OWN, tool_choice="required")
    assert route.outcome is RouteOutcome.ANSWERED
    assert [request.tool_choice for request in model.asked] == ["required", "auto"]


@proves("O2", "O3")
async def test_staged_selects_beside_them_answers_with_them_and_goes_on_behind_them(tmp_path: Path) -> None:
    model = script_model(
        selection=[write_selection(SEARCH, QUERY), write_selection(None)],
        review=[write_review()],
        answer=[
            reply_with_calls(call("paint_wall", "call_a"), text="Found it."),
            "Red, by notes/search_notes.",
        ],
    )
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route(REQUEST, mode="staged", caller_tools=OWN)
        assert route.outcome is RouteOutcome.HANDED_BACK, route.trace
        since = route.answered_with({"call_a": "It is red now."})
        last = await router.route(REQUEST, mode="staged", caller_tools=OWN, since=since)
    assert last.answer == "Red, by notes/search_notes."
    assert len(server.calls) == 1
    selecting, _, answering, again, final = model.asked
    assert "paint_wall" in selecting.messages[-1].text
    assert not selecting.tools
    assert answering.tools == final.tools == OWN
    assert "It is red now." in again.messages[-1].text  # the selecting model knows what was done
    assert not disorder(answering.messages)
    assert not disorder(final.messages)
    assert final.messages[-len(since) :] == since


async def test_a_model_that_takes_no_tools_is_told_of_them_and_its_calls_are_given_an_id(
    tmp_path: Path,
) -> None:
    handed = '{"calls": [{"tool": "paint_wall", "arguments": {"what": "red"}}], "answer": null}'
    done = '{"calls": [], "answer": "Red now."}'
    model = ScriptedModel([NO_TOOLS, handed, done])
    pieces: list[str] = []
    async with open_recorder(tmp_path, model) as (router, _):
        await router.route(REQUEST, mode="simple", caller_tools=OWN)
        route = await router.route(REQUEST, mode="simple", caller_tools=OWN)
        (made,) = route.tool_calls
        since = route.answered_with({str(made["id"]): "done"})
        last = await router.route(
            REQUEST, mode="simple", caller_tools=OWN, since=since, on_text=pieces.append
        )
    assert made == {**call("paint_wall", what="red"), "id": made["id"]}
    assert made["id"]
    assert last.answer == "".join(pieces) == "Red now."
    assert not model.asked[-1].tools
    assert "Result of paint_wall:\ndone" in join_texts(model.asked[-1:])


@proves("O1", "O3")
async def test_words_are_streamed_as_they_come_and_nothing_of_calls_is_among_them(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            reply_with_calls(call(SEARCH, **QUERY), text="I look first."),
            reply_with_calls(call("paint_wall"), text="Now I paint."),
        ]
    )
    pieces: list[str] = []
    async with open_recorder(tmp_path, model) as (router, _):
        route = await router.route(REQUEST, mode="simple", caller_tools=OWN, on_text=pieces.append)
    assert "".join(pieces) == route.answer == "I look first.\n\nNow I paint."
    assert len(pieces) > 2


async def test_a_request_that_needs_no_tool_streams_from_the_first_question_on(tmp_path: Path) -> None:
    model = ScriptedModel(["Hello to you, and a good day."])
    pieces: list[str] = []
    async with open_recorder(tmp_path, model) as (router, _):
        route = await router.route("Hello!", mode="simple", on_text=pieces.append)
    assert "".join(pieces) == route.answer
    assert len(pieces) > 1
    assert len(model.asked) == 1


async def test_without_a_model_they_change_nothing(tmp_path: Path) -> None:
    async with open_recorder(tmp_path, None) as (router, _):
        plain = await router.route(REQUEST, mode="keyless")
        brought = await router.route(REQUEST, mode="keyless", caller_tools=OWN, tool_choice="required")
    assert (brought.outcome, brought.answer) == (plain.outcome, plain.answer)


async def test_an_agent_goes_on_with_what_came_of_the_callers_tools(tmp_path: Path) -> None:
    model = ScriptedModel(
        [reply_with_calls(call("paint_wall", "call_a")), "The wall is red.", "You are welcome."]
    )
    async with open_recorder(tmp_path, model) as (router, _):
        agent = Agent(router)
        assert (await agent.ask("Paint it red", caller_tools=OWN)).outcome is RouteOutcome.HANDED_BACK
        assert agent.history == ()
        route = await agent.give({"call_a": "done"})
        await agent.ask("Thanks!")
    assert route.answer == "The wall is red."
    assert agent.history[:2] == (
        Message(role="user", text="Paint it red"),
        Message(role="assistant", text="The wall is red."),
    )
    assert agent.stats().success_rate == 1.0
    assert not disorder(model.asked[1].messages)


@proves("O8")
async def test_the_journal_knows_what_all_tools_would_have_cost(tmp_path: Path) -> None:
    model = ScriptedModel(["Nothing.", "Hello to you."])
    async with open_recorder(tmp_path, model, narrow={"max_tools": 1}) as (router, _):
        search = await router.route(REQUEST, mode="simple")
        hello = await router.route("Hello!", mode="simple")
    (narrowed,) = (event for event in search.events if isinstance(event, RequestNarrowed))
    (greeted,) = (event for event in hello.events if isinstance(event, RequestNarrowed))
    assert 0 < narrowed.tokens_offered < narrowed.tokens_all
    assert (greeted.tokens_all, greeted.tokens_offered) == (narrowed.tokens_all, 0)
