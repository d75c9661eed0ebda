"""A question of a tool in the middle of a request: on every way, through a restart, and answered once."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.builtin.registry import add_builtin_settings
from fingerpost.builtin.toolkit import (
    BuiltinHost,
    BuiltinServer,
    BuiltinTool,
    ToolCaller,
    ToolQuestion,
    ToolReply,
)
from fingerpost.llm import ModelRequest
from fingerpost.records import Effect, Json, JsonObject, Mode, RouteOutcome, Scope
from fingerpost.router import Agent, Route
from fingerpost.store import MemoryOwner
from fingerpost.testing import ScriptedModel, ToolServer, calls, tool_server
from fingerpost.testing.models import ScriptLine
from tests.kit.call_recorder import READS, matches_journal, tool
from tests.kit.routers import build_settings, script_model, write_review, write_selection
from tests.requirements import proves

TOOL = "collaboration__user_collaboration"
WISH = "Ask me which file you should keep, then find it"
BOTH = "Find the file, but ask me for my approval before you use it"
FILES = (tool("find_file", "Find a file by its name.", "name", **READS),)


def question(text: str = "Which one?", *options: str, operation: str = "ask") -> dict[str, Json]:
    asked: dict[str, Json] = {"operation": operation, "question": text}
    return {**asked, "options": list(options)} if options else asked


@asynccontextmanager
async def open_collaboration_router(
    folder: Path, model: ScriptedModel | None, *servers: ToolServer, **more: Any
) -> AsyncGenerator[Router]:
    given = build_settings(folder, **{"builtin": {"enabled": ["collaboration"]}, **more})
    specs = [server.spec() for server in servers]
    async with open_router(specs, settings=given, folder=folder, model=model) as router:
        await router.connect()
        yield router


def react(call: tuple[str, JsonObject] | None, answer: str = "") -> str:
    """What a ReAct agent writes."""
    if call is None:
        return f"Thought: I know it.\nFinal Answer: {answer}"
    return f"Thought: I need to know.\nAction: {call[0]}\nAction Input: {json.dumps(call[1])}"


def model_for(mode: Mode, arguments: JsonObject) -> ScriptedModel:
    """A model that asks once and then repeats the answer it was given."""

    def join_request(request: ModelRequest) -> str:
        return "\n".join(message.text for message in request.messages)

    def knows(request: ModelRequest) -> bool:
        return "dana answered: Rome" in join_request(request)

    def agent(request: ModelRequest) -> ScriptLine:
        if mode is Mode.REACT:
            return react(None, "So Rome it is.") if knows(request) else react((TOOL, arguments))
        return "So Rome it is." if knows(request) else calls((TOOL, arguments))

    if mode is Mode.STAGED:
        return script_model(
            selection=lambda request: write_selection(TOOL, arguments), review=lambda request: write_review(),
            answer=lambda request: "So Rome it is." if knows(request) else "I do not know.",
        )  # fmt: skip
    return ScriptedModel(agent)


@proves("U10", "C5")
@pytest.mark.parametrize("mode", [Mode.STAGED, Mode.SINGLE, Mode.SIMPLE, Mode.REACT])
async def test_a_question_ends_the_request_and_the_answer_goes_on_with_it(tmp_path: Path, mode: Mode) -> None:
    model = model_for(mode, question("Which city?", "Oslo", "Rome"))
    async with open_collaboration_router(tmp_path, model) as router:
        asked = await router.route(WISH, mode=mode, caller="dana")
        assert asked.outcome is RouteOutcome.ASKED, asked.trace
        assert asked.question is not None
        assert asked.answer == asked.question.text == "Which city?\n1. Oslo\n2. Rome"
        assert asked.question.missing[0].options == ("Oslo", "Rome")
        assert await matches_journal(router, asked)
        done = await router.reply(asked, "2")
        assert done.outcome is RouteOutcome.ANSWERED, done.trace
        assert "So Rome it is." in done.answer
        assert done.packet_id == asked.packet_id  # the same request went on
        (step,) = done.packet.tool_routing.steps
        assert step.success and "dana answered: Rome" in step.text
        assert await matches_journal(router, done)


@proves("U10")
async def test_what_was_found_before_the_question_is_still_known_after_it(tmp_path: Path) -> None:
    files = tool_server("files", FILES)
    model = ScriptedModel(
        [
            calls(("files__find_file", {"name": "report"})),
            calls((TOOL, question("Shall I open it?")), first=2),
            "Opened.",
        ]
    )
    async with open_collaboration_router(tmp_path, model, files) as router:
        asked = await router.route(BOTH, mode="simple")
        assert asked.outcome is RouteOutcome.ASKED, asked.trace
        done = await router.reply(asked, "by all means")
        assert [step.tool for step in done.packet.tool_routing.steps] == [
            "files/find_file", "collaboration/user_collaboration",
        ]  # fmt: skip
        seen = "\n".join(message.text for message in model.asked[-1].messages)
        assert "report" in seen and "The person answered: by all means" in seen
    assert files.calls == [("find_file", {"name": "report"})]  # once


@proves("U10")
async def test_words_that_answer_nothing_are_asked_about_again_and_no_yes_is_guessed(tmp_path: Path) -> None:
    """A tool that must have a yes or a no."""
    host = BuiltinHost(settings=build_settings(tmp_path))
    ran: list[JsonObject] = []

    async def run(arguments: JsonObject, caller: ToolCaller) -> ToolReply | ToolQuestion:
        if caller.answer is None:
            yes: JsonObject = {
                "type": "object",
                "properties": {"ok": {"type": "boolean"}},
                "required": ["ok"],
            }
            return ToolQuestion(text="Really?", schema=yes, state="kept")
        assert caller.state == "kept"
        ran.append(caller.answer)
        return ToolReply("done")

    own = BuiltinServer(
        "boxes",
        [
            BuiltinTool(
                name="empty_box", title="Box", description="Empty a box.", run=run, effect=Effect.DESTROY
            )
        ],
        instructions="Boxes.",
        get_context=host.get_context,
    )
    model = ScriptedModel([calls(("boxes__empty_box", {})), "It is empty."])
    async with Router(
        [own.build_spec()], settings=add_builtin_settings(host.settings, [own]), model=model
    ) as router:
        host.router = router
        await router.connect()
        waits = await router.route("Empty the box for good", mode="simple", caller="dana", conversation="ses")
        assert waits.pending is not None and ran == []  # it destroys: leave comes first
        asked = await router.resume(waits, waits.pending.approve(by="dana"))
        assert asked.outcome is RouteOutcome.ASKED and ran == []
        again = await router.reply(asked, "perhaps")
        assert again.question == asked.question and ran == []
        done = await router.reply(again, "yes")
        assert done.outcome is RouteOutcome.ANSWERED, done.trace
        assert ran == [{"ok": True}]  # by the permit of the first approval: no second question


@proves("U10")
async def test_of_several_questions_one_is_asked_and_the_model_hears_so(tmp_path: Path) -> None:
    model = ScriptedModel([calls((TOOL, question("First?")), (TOOL, question("Second?"))), "Done."])
    async with open_collaboration_router(tmp_path, model) as router:
        asked = await router.route(WISH, mode="simple")
        assert asked.answer == "First?"
        done = await router.reply(asked, "yes")
        first, second = done.packet.tool_routing.steps
        assert "another question goes first" in first.text and "answered: yes" in second.text


@proves("U10", "U11")
@pytest.mark.parametrize(
    ("text", "given_text"),
    [
        ("yes, go ahead", "dana said yes. In their words: go ahead"),
        ("no", "dana said no"),
        ("which plan?", "neither yes nor no, so it is not approved. In their words: which plan?"),
    ],
)
async def test_an_approval_says_who_said_what(tmp_path: Path, text: str, given_text: str) -> None:
    plan = question("I would delete three files.", operation="approve")
    model = ScriptedModel([calls((TOOL, plan)), "Understood."])
    async with open_collaboration_router(tmp_path, model) as router:
        asked = await router.route(WISH, mode="simple", caller="dana")
        done = await router.reply(asked, text)
        assert given_text in done.packet.tool_routing.steps[0].text


@proves("U10")
@pytest.mark.parametrize("scopes", [(), (Scope(effects=(Effect.READ,)),)])
async def test_a_resumed_request_stays_within_its_original_bounds(
    tmp_path: Path, scopes: tuple[Scope, ...]
) -> None:
    """A tool that also reads is offered to a caller who may only read; its writes stay refused."""
    keep: JsonObject = {"operation": "store", "text": "tea without sugar"}
    model = ScriptedModel(
        [calls((TOOL, question())), calls(("memory__memory_operations", keep), first=2), "Well."]
    )
    own = {"enabled": ["collaboration", "memory"]}
    async with open_collaboration_router(tmp_path, model, builtin=own) as router:
        request = "Check with me and ask me for my approval before you remember it"
        asked = await router.route(request, mode="simple", caller="dana", scopes=scopes)
        assert asked.outcome is RouteOutcome.ASKED, asked.trace
        done = await router.reply(asked, "the first", caller="mallory")  # without the scopes
        assert [step.success for step in done.packet.tool_routing.steps] == [True, not scopes], done.trace
        kept = await router.store.memories.list_all(MemoryOwner(person="dana"))
        assert len(kept) == (0 if scopes else 1)
        assert await router.store.memories.list_all(MemoryOwner(person="mallory")) == []


@pytest.mark.slow
@proves("U10")
async def test_it_is_answered_after_a_restart(tmp_path: Path) -> None:
    from fingerpost.router.conversations import find_open_question

    async with open_collaboration_router(
        tmp_path, ScriptedModel([calls((TOOL, question("Which city?", "Oslo", "Rome")))])
    ) as router:
        asked = await router.route(WISH, mode="simple", caller="dana", conversation="ses_1")
        assert asked.outcome is RouteOutcome.ASKED
    async with open_collaboration_router(tmp_path, model_for(Mode.SIMPLE, {})) as router:
        kept = await find_open_question(router.store, "ses_1", caller="dana")
        assert kept is not None and kept.question == asked.question
        done = await router.reply(kept, "Rome", conversation="ses_1")
        assert "So Rome it is." in done.answer


@proves("U10")
async def test_an_agent_reads_question_and_answer_in_its_conversation(tmp_path: Path) -> None:
    model = ScriptedModel([calls((TOOL, question("Which city?"))), "Rome, then."])
    async with open_collaboration_router(tmp_path, model) as router:
        agent = Agent(router)
        assert (await agent.ask(WISH)).outcome is RouteOutcome.ASKED
        assert "Rome, then." in (await agent.ask("Rome")).answer
        prompt = [message.text for message in model.asked[-1].messages]
        assert any("Which city?" in text for text in prompt) and any("Rome" in text for text in prompt)


@proves("U10")
async def test_without_a_model_a_question_is_put_too(tmp_path: Path) -> None:
    async with open_collaboration_router(tmp_path, None) as router:
        done = await router.call("collaboration/user_collaboration", question("Why?"), caller="dana")
        assert done.success and done.content.startswith("Ask the person: Why?")
        asked: Route = await router.route(
            'Use user_collaboration with operation ask and question "Which city?"', mode="keyless"
        )
        assert asked.outcome is RouteOutcome.ASKED, asked.trace
        assert asked.question is not None and asked.question.call is not None, asked.trace
        done = await router.reply(asked, "Rome")
        assert done.outcome is RouteOutcome.ANSWERED and "The person answered: Rome" in done.answer


@proves("U10")
async def test_a_request_that_wants_to_be_asked_is_offered_it(tmp_path: Path) -> None:
    files = tool_server("files", FILES)
    async with open_collaboration_router(tmp_path, None, files) as router:
        for request in (
            BOTH,
            "Let me choose which of the reports you send",
            "Check with me before you send it",
        ):
            narrowed = await router.narrow(request)
            offered = [one.tool for one in narrowed.shortlist.offered]
            assert "collaboration/user_collaboration" in offered, request
        plain = await router.narrow("Find the file called report")
        assert [one.tool for one in plain.shortlist.offered] == ["files/find_file"]
