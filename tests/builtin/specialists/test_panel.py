"""Several experts at once: one synthesis, one budget, disagreements named."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client

from fingerpost import Router
from fingerpost.builtin import BuiltinHost, make_server, open_router
from fingerpost.builtin.specialists.panel import parse_experts as experts_given
from fingerpost.errors import ModelRefused, ModelUnavailable
from fingerpost.events import PacketReceived, RouteEnded, SubagentBegan, SubagentEnded
from fingerpost.llm import ModelRequest
from fingerpost.llm.content import as_mapping
from fingerpost.records import Json, Outcome, RouteOutcome
from fingerpost.settings import BuiltinSettings, FlagSettings, Settings, SpecialistsSettings, SubagentSettings
from fingerpost.testing import HANG, ScriptedModel, calls, tool_server
from fingerpost.testing.models import ScriptLine
from tests.requirements import proves

TOOL = "specialists/use_multiagent_orchestration"
NOTES = {
    "name": "read_note",
    "description": "Read a note",
    "inputSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
SYNTHESIS: dict[str, Any] = {
    "answer": "Move, but slowly.",
    "agreements": ["It takes a year"],
    "disagreements": [
        {
            "about": "Whether to begin now",
            "views": [{"expert": "lawyer", "says": "Wait"}, {"expert": "Engineer", "says": "Begin"}],
        },
        {
            "about": "Nobody was asked",
            "views": [{"expert": "Ghost", "says": "Boo"}, {"expert": "Lawyer", "says": "?"}],
        },
    ],
}

Script = Callable[[str, ModelRequest], ScriptLine]


def text_of(request: ModelRequest) -> str:
    return "\n".join(message.text for message in request.messages)


def _choose_experts(request: ModelRequest) -> ScriptLine:
    return json.dumps({"experts": [{"name": "Chosen One", "view": "a"}, {"name": "Chosen Two", "view": "b"}]})


def script(
    expert: Script,
    synthesis: ScriptLine | None = None,
    outside: Callable[[ModelRequest], ScriptLine] = _choose_experts,
) -> ScriptedModel:
    """Experts say what `expert` says for the name in their persona; the synthesis is the same for all."""

    def play(request: ModelRequest) -> ScriptLine:
        text = text_of(request)
        if "You are an expert: " in text:
            return expert(text.partition("You are an expert: ")[2].partition(".")[0], request)
        if "Several experts answered" in text:
            return json.dumps(SYNTHESIS) if synthesis is None else synthesis
        return outside(request)

    return ScriptedModel(play)


@asynccontextmanager
async def panel(
    settings: Settings, folder: Path, model: ScriptedModel | None, **limits: Any
) -> AsyncGenerator[Router]:
    own = BuiltinSettings(
        enabled=("specialists",),
        subagents=SubagentSettings.model_validate(limits),
        specialists=SpecialistsSettings(most_experts=3),
    )
    words = FlagSettings(dense_scores=False)  # no vectors: what is offered does not matter here
    made = settings.model_copy(update={"builtin": own, "flags": words})
    servers = [tool_server("notes", [NOTES]).spec()]
    async with open_router(servers, settings=made, folder=folder, model=model) as router:
        await router.connect()
        yield router


async def ask_panel(router: Router, **arguments: Any) -> Outcome:
    return await router.call(TOOL, {"question": "Should we move to the new system?", **arguments})


def data_of(outcome: Outcome) -> dict[str, Any]:
    return json.loads(outcome.content.rpartition("\n")[2])


@pytest.mark.slow
@proves("B3", "U12")
async def test_views_become_one_answer_with_disagreements_named(settings: Settings, tmp_path: Path):
    model = script(lambda name, _: f"I am the {name}")
    async with panel(settings, tmp_path, model) as router:
        outcome = await ask_panel(router, experts=["Lawyer: liability", "Engineer"])
    assert outcome.success, outcome.content
    text = outcome.content
    assert text.startswith("Move, but slowly.")
    assert "- Whether to begin now\n  - Lawyer: Wait\n  - Engineer: Begin" in text
    assert "Ghost" not in text and "Nobody was asked" not in text
    assert "Heard: Lawyer, Engineer." in text
    data = data_of(outcome)
    assert [expert["name"] for expert in data["experts"]] == ["Lawyer", "Engineer"]
    assert [len(point["views"]) for point in data["disagreements"]] == [2]
    personas = [text_of(request) for request in model.asked[:2]]
    assert any("You look at this: liability." in persona for persona in personas) and all(
        not request.tools for request in model.asked
    )
    material = text_of(model.asked[2])
    assert "I am the Lawyer" in material and "I am the Engineer" in material
    assert model.asked[2].options["response_format"]


@pytest.mark.slow
@proves("U12")
async def test_experts_are_chosen_for_the_question_where_none_is_named(settings: Settings, tmp_path: Path):
    async with panel(settings, tmp_path, script(lambda name, _: name)) as router:
        outcome = await ask_panel(router)
        assert "Heard: Chosen One, Chosen Two." in outcome.content

    def unhelpful(request: ModelRequest) -> ScriptLine:
        return json.dumps(SYNTHESIS) if "Several experts" in text_of(request) else "I cannot do JSON"

    async with panel(settings, tmp_path, ScriptedModel(unhelpful)) as router:
        outcome = await ask_panel(router)
        assert "Heard: Practitioner, Skeptic, Strategist." in outcome.content
        outcome = await ask_panel(router, experts=["A", "B", "C", "D", "a"])
        assert "Heard: A, B, C." in outcome.content and "2 more were not asked" in outcome.content


@pytest.mark.slow
@proves("U12")
async def test_one_that_fails_is_named_and_the_others_go_on(settings: Settings, tmp_path: Path):
    def expert(name: str, request: ModelRequest) -> ScriptLine:
        if name == "Broken":
            return ModelUnavailable("the model is down", model="scripted")
        if name == "Slow":
            return HANG
        if name == "Runaway":
            return calls(("notes__read_note", {"name": f"n{len(request.messages)}"}))
        return f"I am the {name}"

    async with panel(settings, tmp_path, script(expert), max_seconds=12, max_turns=3) as router:
        outcome = await ask_panel(router, experts=["Broken", "Fine", "Slow"])
        assert outcome.success and outcome.content.startswith("Move, but slowly.")
        assert "Heard: Fine." in outcome.content
        assert "Not heard: Broken (the model is down" in outcome.content
        assert "Not heard: Slow (it ran out of its share" in outcome.content
        runaway = await ask_panel(router, experts=["Runaway", "Fine"], use_tools=True)
        assert "Heard: Fine." in runaway.content and "Not heard: Runaway (it ran out" in runaway.content
        failed = await ask_panel(router, experts=["Broken"])
        assert not failed.success and "None of the experts could answer" in failed.content


@proves("U12")
async def test_tokens_are_shared_between_the_experts(settings: Settings, tmp_path: Path):
    def expert(name: str, request: ModelRequest) -> ScriptLine:
        if name == "Talker":
            return calls(("notes__read_note", {"name": "x" * 400}), text="word " * 400)
        return f"I am the {name}"

    model = script(expert)
    async with panel(settings, tmp_path, model, max_tokens=4_000, max_turns=50) as router:
        question = "Read the note called plan, then say whether we should move"
        outcome = await ask_panel(router, question=question, experts=["Talker", "Fine"], use_tools=True)
    assert (
        "Not heard: Talker (it ran out of its share" in outcome.content and "Heard: Fine" in outcome.content
    )
    assert "of 1,300 tokens" in outcome.content  # 65 % of 4,000 for two
    assert sum("You are an expert: Talker" in text_of(request) for request in model.asked) < 5


@pytest.mark.slow
@proves("U12")
async def test_a_synthesis_in_plain_words_is_taken_as_it_is(settings: Settings, tmp_path: Path):
    def refuses(request: ModelRequest) -> ScriptLine:
        if request.options.get("response_format"):
            return ModelRefused("no response_format here", model="scripted")
        return "In plain words: wait." if "Several experts" in text_of(request) else "my view"

    async with panel(settings, tmp_path, ScriptedModel(refuses)) as router:
        outcome = await ask_panel(router, experts=["A", "B"])
        assert (
            outcome.content.startswith("In plain words: wait.") and "no disagreement" not in outcome.content
        )
    async with panel(
        settings, tmp_path, script(lambda name, _: f"view of {name}", synthesis="Just wait.")
    ) as router:
        assert (await ask_panel(router, experts=["A", "B"])).content.startswith("Just wait.")
    down = ModelUnavailable("the model is down", model="scripted")
    async with panel(settings, tmp_path, script(lambda name, _: f"view of {name}", synthesis=down)) as router:
        outcome = await ask_panel(router, experts=["A", "B"])
        assert "could not be brought together" in outcome.content and "view of A" in outcome.content


@proves("U12")
async def test_without_a_model_it_says_what_to_configure(settings: Settings, tmp_path: Path):
    async with panel(settings, tmp_path, None) as router:
        outcome = await ask_panel(router)
    assert not outcome.success and "models.prime" in outcome.content


@proves("U12", "B3")
async def test_in_a_request_every_expert_is_a_nested_packet(settings: Settings, tmp_path: Path):
    def outside(request: ModelRequest) -> ScriptLine:
        if any(message.role == "tool" for message in request.messages):
            return "They say: slowly."
        (name,) = [
            name
            for tool in request.tools
            if "orchestration" in (name := str(as_mapping(tool["function"])["name"]))
        ]
        return calls((name, {"question": "Move?", "experts": ["Lawyer", "Engineer"]}))

    model = script(lambda name, _: f"I am the {name}", outside=outside)
    async with panel(settings, tmp_path, model) as router:
        with anyio.fail_after(30):
            route = await router.route(
                "I want several expert opinions on whether to rewrite the app", mode="simple", caller="dana"
            )
        assert route.outcome is RouteOutcome.ANSWERED and route.answer.startswith("They say: slowly.")
        begun = [event for event in route.events if isinstance(event, SubagentBegan)]
        ended = [event for event in route.events if isinstance(event, SubagentEnded)]
        assert len(begun) == len(ended) == 3
        assert {event.outcome for event in ended} == {RouteOutcome.ANSWERED}
        await router.store.journal.flush()
        spent = 0
        for event in begun:
            events = [entry.event for entry in await router.store.journal.list_events(packet_id=event.child)]
            (received,) = [one for one in events if isinstance(one, PacketReceived)]
            assert received.packet.header.parent_id == route.packet_id
            assert received.packet.header.caller == "dana"
            spent += sum(one.tokens for one in events if isinstance(one, RouteEnded))
        assert 0 < spent < route.prompt_tokens + route.completion_tokens


@proves("U12")
async def test_a_client_is_told_of_every_expert(settings: Settings, tmp_path: Path):
    received: list[str | None] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        received.append(f"{progress:g}/{total or 0:g} {message}")

    async with panel(settings, tmp_path, script(lambda name, _: name)) as router:
        host = BuiltinHost(settings=router.settings, folder=tmp_path, router=router)
        async with Client(make_server("specialists", host).mcp) as client:
            result = await client.call_tool(
                "use_multiagent_orchestration",
                {"question": "Move?", "experts": ["Lawyer", "Engineer"]},
                progress_callback=progress,
            )
    assert not result.is_error
    assert (received[0], received[-1]) == ("0/3 asking Lawyer, Engineer", "2/3 bringing the views together")
    assert sorted(str(one)[4:] for one in received[1:3]) == ["Engineer has answered", "Lawyer has answered"]


experts = (
    st.text(max_size=80) | st.fixed_dictionaries({"name": st.text(max_size=80)}) | st.none() | st.integers()
)


@given(st.lists(experts, max_size=8) | experts)
def test_any_list_of_experts_becomes_few_with_different_names(value: Json):
    found = experts_given(value, 4)
    assert len(found) <= 4
    assert len({expert.name.casefold() for expert in found}) == len(found)
    assert all(expert.name and "\n" not in expert.name and len(expert.name) <= 60 for expert in found)
