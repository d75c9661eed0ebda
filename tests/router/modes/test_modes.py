"""What holds in every mode: routing that is switched off, results that were cut, loops, tasks, the packet."""

from __future__ import annotations

import json
import re
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Agent
from fingerpost.analytics.journal_reader import JournalReader
from fingerpost.events import BudgetReached, IntentDetected, PlanNoted, TaskScheduled
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.records import Message, Packet, RouteOutcome, ServerSpec
from fingerpost.records.codec import from_plain, to_plain
from fingerpost.testing import ScriptedModel, calls, tool_server
from tests.kit.routers import open_router, script_model, write_review, write_selection
from tests.requirements import proves

MODES = ("staged", "single", "simple", "react")
CLOCK = {
    "name": "get_current_time",
    "description": "Get the current time in a time zone",
    "inputSchema": {
        "type": "object",
        "properties": {"timezone": {"type": "string", "examples": ["Asia/Tokyo"]}},
        "required": ["timezone"],
    },
    "annotations": {"readOnlyHint": True},
}
TIME = "What time is it in Tokyo right now?"
TOKYO = {"timezone": "Asia/Tokyo"}


def wants(*wanted: tuple[str, dict[str, Any]], answer: str = "") -> ScriptedModel:
    """A model that makes these calls in turn, for ever, in the form the question is in.

    Where it can call nothing it gives the answer; without one it insists on calling.
    """
    turns = count()

    def play(request: ModelRequest) -> str | ModelReply:
        form = "" if request.schema is None else request.schema.name
        if form == "review":
            return write_review()
        if answer and not can_call(request):
            turn = {"thought": "enough", "action": None, "answer": answer}
            return json.dumps(turn) if form == "step" else answer
        tool, arguments = wanted[next(turns) % len(wanted)]
        if form == "selection":
            return write_selection(tool, arguments, remaining="look at it once more")
        if form == "step":
            action = {"tool": tool, "arguments": arguments}
            return json.dumps({"thought": "once more", "action": action, "answer": None})
        return calls((tool, arguments))

    return ScriptedModel(play)


def can_call(request: ModelRequest) -> bool:
    """Whether this request lets the model call a tool."""
    if request.schema is None:
        return bool(request.tools) and request.tool_choice != "none"
    return "'action': {'type': 'null'}" not in str(request.schema.schema)


@proves("A13")
@pytest.mark.parametrize("mode", MODES)
async def test_with_tool_routing_off_a_model_is_sent_no_tools_and_answers(tmp_path: Path, mode: str) -> None:
    clock = tool_server("time", [CLOCK])
    model = ScriptedModel(["I cannot look that up."])
    async with open_router(tmp_path, [clock.spec()], model, tool_routing={"enabled": False}) as router:
        route = await router.route(TIME, mode=mode)
    assert (route.outcome, route.answer) == (RouteOutcome.ANSWERED, "I cannot look that up.")
    (asked,) = model.asked
    assert (asked.tools, asked.tool_choice, asked.schema) == ((), None, None)
    assert "get_current_time" not in str(asked.messages)
    assert not route.packet.context.available_tools
    (intent,) = (event for event in route.events if isinstance(event, IntentDetected))
    assert "tool routing is switched off" in intent.intent.reasons


@proves("A13")
@pytest.mark.parametrize("mode", [*MODES, "keyless"])
async def test_with_tool_routing_off_no_answer_speaks_of_rounds_or_of_a_missing_model(
    tmp_path: Path, mode: str
) -> None:
    clock = tool_server("time", [CLOCK])
    model = wants(("time__get_current_time", TOKYO))
    async with open_router(tmp_path, [clock.spec()], model, tool_routing={"enabled": False}) as router:
        route = await router.route(TIME, mode=mode)
        greeting = await router.route("Hello!", mode="keyless")
    assert clock.calls == []
    assert not {"round", "turn", "configured", "limit"} & set(route.answer.lower().replace("s", " ").split())
    assert route.outcome is (RouteOutcome.ANSWERED if mode == "keyless" else RouteOutcome.DECLINED)
    assert "tool_routing.enabled" in route.answer or mode != "keyless"
    assert greeting.answer == "Hello!"


RESEARCH = {
    "name": "perplexity_research",
    "description": "Research a topic in depth, with sources",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    "annotations": {"readOnlyHint": True},
}
REPORT = "\n".join(f"Finding {number}: an owl was seen in the woods near the lake." for number in range(150))


async def reports(tool: str, arguments: dict[str, Any]) -> str:
    return REPORT


def researcher(*summaries: str) -> ScriptedModel:
    """A model that has something researched, shortens the report where it is asked to, and answers."""

    def play(request: ModelRequest) -> str | ModelReply:
        if request.messages[0].text.startswith("You shorten the result of a tool"):
            return following.pop(0)
        if any(message.role == "tool" for message in request.messages):
            return "Owls live near the lake."
        return calls(("perplexity_research", {"query": "owls"}))

    following = list(summaries)
    return ScriptedModel(play)


@pytest.mark.slow
@proves("D1", "D6")
async def test_the_result_of_a_tool_that_needs_a_summary_is_summarised_by_a_model(tmp_path: Path) -> None:
    model = researcher("150 owls were seen near the lake.")
    server = tool_server("perplexity", [RESEARCH], call=reports)
    async with open_router(tmp_path, [server.spec()], model) as router:
        route = await router.route("Research owls near the lake in depth", mode="simple")
        prompt = model.asked[-1].messages[-1].text
        assert "150 owls were seen near the lake." in prompt
        assert "Finding 149" not in prompt
        (handle,) = re.findall(r"res_[a-z]{13}", prompt)
        page = await router.calls.results.read_page(handle)
    assert route.answer is not None
    assert route.answer.startswith("Owls live near the lake.")
    assert page is not None
    assert "Finding 0:" in page.text


@proves("D1", "D6")
async def test_without_a_model_a_result_that_needs_a_summary_is_cut_to_the_size_of_one(
    tmp_path: Path,
) -> None:
    server = tool_server("perplexity", [RESEARCH], call=reports)
    async with open_router(tmp_path, [server.spec()]) as router:
        outcome = await router.call("perplexity_research", {"query": "owls"})
        assert outcome.digest is not None
        assert outcome.digest.tokens <= router.settings.digest.summary_tokens < outcome.digest.original_tokens
        assert outcome.digest.handle is not None


@proves("D14")
@pytest.mark.parametrize("mode", MODES)
async def test_a_model_is_told_which_tools_are_slow_and_give_large_answers(tmp_path: Path, mode: str) -> None:
    model = ScriptedModel(lambda _request: "Nothing.")
    server = tool_server("perplexity", [RESEARCH, CLOCK])
    async with open_router(tmp_path, [server.spec()], model) as router:
        await router.route("Research owls near the lake in depth, and what time is it in Tokyo?", mode=mode)
    asked = model.asked[0]
    texts = "\n".join([*(message.text for message in asked.messages), *map(str, asked.tools)])
    assert "Expect: slow, 15 to 120 seconds; a large answer, 2,000 to 8,000 tokens" in texts
    assert texts.count("Expect: ") == 1  # nothing is said of a tool that is quick and brief


@proves("D9", "A11", "F47")
@pytest.mark.parametrize("mode", ["simple", "react"])
async def test_a_loop_ends_the_run_with_an_answer_that_says_so(tmp_path: Path, mode: str) -> None:
    clock = tool_server("time", [CLOCK])
    model = wants(("time__get_current_time", TOKYO), answer="It is noon.")
    async with open_router(tmp_path, [clock.spec()], model, call={"repeat_limit": 2}) as router:
        route = await router.route(TIME, mode=mode, max_turns=30)
    steps = route.packet.tool_routing.steps
    assert [step.error for step in steps].count("loop") == 1
    assert steps[-1].error == "loop"
    assert len(model.asked) == len(steps) + 1  # one more question: to answer without tools
    assert not can_call(model.asked[-1])
    assert "again" in model.asked[-1].messages[-1].text
    assert route.outcome is RouteOutcome.ANSWERED
    assert route.answer.startswith("It is noon.")
    assert "time/get_current_time was called again and again with the same result" in route.answer


@proves("D9")
@pytest.mark.parametrize("mode", ["simple", "react", "single"])
async def test_a_model_that_goes_on_in_a_loop_gets_no_more_questions(tmp_path: Path, mode: str) -> None:
    clock = tool_server("time", [CLOCK])
    model = wants(("time__get_current_time", TOKYO))
    async with open_router(tmp_path, [clock.spec()], model, call={"repeat_limit": 2}) as router:
        route = await router.route(TIME, mode=mode, max_turns=30)
    assert len(model.asked) <= len(route.packet.tool_routing.steps) + 2
    assert route.outcome is RouteOutcome.ANSWERED
    assert "What was found so far:" in route.answer
    assert "Asia/Tokyo" in route.answer


@proves("C8", "D9")
@pytest.mark.parametrize("mode", ["simple", "react"])
async def test_the_same_invalid_call_again_and_again_is_a_loop_too(tmp_path: Path, mode: str) -> None:
    clock = tool_server("time", [CLOCK])
    model = wants(("time__get_current_time", {}), answer="I could not find out.")
    async with open_router(tmp_path, [clock.spec()], model) as router:
        route = await router.route(TIME, mode=mode, max_turns=30)
    assert clock.calls == []
    assert len(model.asked) == 4  # three tries, then the answer
    assert route.answer.startswith("I could not find out.")
    assert "time/get_current_time was called again and again" in route.answer


@proves("A11")
async def test_at_the_cap_a_simple_agent_answers_without_tools_after_three_rounds(tmp_path: Path) -> None:
    clock = tool_server("time", [CLOCK])
    zones = [("time__get_current_time", {"timezone": zone}) for zone in ("Asia/Tokyo", "Asia/Seoul", "UTC")]
    model = wants(*zones, answer="Noon, roughly.")
    async with open_router(tmp_path, [clock.spec()], model) as router:
        route = await router.route(TIME, mode="simple")
        more = await router.route(TIME, mode="simple", max_turns=5)
    assert (route.outcome, route.answer.splitlines()[0]) == (RouteOutcome.ANSWERED, "Noon, roughly.")
    assert (route.packet.tool_routing.reinjection_count, len(route.packet.tool_routing.steps)) == (3, 3)
    assert more.packet.tool_routing.reinjection_count == 5


@proves("A11", "W3")
@pytest.mark.parametrize("mode", ["simple", "react"])
async def test_at_the_cap_a_model_without_words_is_answered_for_with_what_was_found(
    tmp_path: Path, mode: str
) -> None:
    clock = tool_server("time", [CLOCK])
    zones = [("time__get_current_time", {"timezone": zone}) for zone in ("Asia/Tokyo", "Asia/Seoul", "UTC")]
    async with open_router(tmp_path, [clock.spec()], wants(*zones)) as router:
        route = await router.route(TIME, mode=mode, max_turns=2)
    assert route.outcome is RouteOutcome.ANSWERED
    assert (route.answered_by, route.sources) == ("no model", ("time/get_current_time",))
    assert "the 2 rounds of tools" in route.answer
    assert "Asia/Seoul" in route.answer
    assert any(isinstance(event, BudgetReached) for event in route.events)


NOTE = {
    "name": "write_note",
    "description": "Write a note about the time",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": False},
}
ALLOW = [{"verdict": "allow", "tool": "time/*"}]
BOTH = "Get the current time in Tokyo and write a note about it"


@proves("A10", "A20")
@pytest.mark.parametrize("mode", ["simple", "staged"])
async def test_the_packet_holds_each_result_with_its_tool_parameters_type_and_source(
    tmp_path: Path, mode: str
) -> None:
    clock = tool_server("time", [CLOCK])
    secret = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    zones = [("time__get_current_time", {"timezone": zone}) for zone in ("Asia/Tokyo", secret)]
    async with open_router(tmp_path, [clock.spec()], wants(*zones, answer="Noon.")) as router:
        route = await router.route(TIME, mode=mode)
        packet = from_plain(Packet, to_plain(route.packet))
    results = [field for field in packet.content.data_fields if field.key == "tool_result"]
    assert len(results) == len(packet.tool_routing.steps) == 3
    first: Any = results[0].value
    assert (results[0].type, results[0].source) == ("tool_execution_result", "time")
    assert (first["tool"], first["parameters"], first["success"]) == ("time/get_current_time", TOKYO, True)
    assert first["content_type"] == "json"
    assert secret not in str(to_plain(packet.content))
    (latest,) = (note for note in packet.reasoning.sketchpad if note.key == "latest_tool_result")
    assert latest.content_type == "tool_output"
    assert "Asia/Tokyo" in latest.text


@proves("A14")
async def test_research_action_refine_and_stream_are_scheduled_where_they_happen(tmp_path: Path) -> None:
    server = tool_server("time", [CLOCK, NOTE])
    read, write = ("time__get_current_time", TOKYO), ("time__write_note", {"text": "noon"})
    model = ScriptedModel([calls(("time__get_current_time", {})), calls(read), calls(write), "Noted: noon."])
    async with open_router(tmp_path, [server.spec()], model, policy=ALLOW) as router:
        route = await router.route(BOTH, mode="simple", on_text=lambda _: None)
    tasks = [event.next_task for event in route.events if isinstance(event, TaskScheduled)]
    assert [task.value for task in tasks if task is not None] == [
        *("IntentDetection", "ToolRouting", "Stream", "ToolExecution", "Research"),
        *("Refine", "ToolRouting", "Stream", "ToolExecution", "Research"),
        *("ToolRouting", "Stream", "ToolExecution", "TriggerAction"),
        *("GenerateDraft", "Stream"),
    ]


@proves("A19")
async def test_the_selecting_model_is_shown_examples_and_which_tools_need_approval(tmp_path: Path) -> None:
    server = tool_server("time", [CLOCK, NOTE])
    unsure = json.dumps({"tool": "time__get_current_time", "arguments": TOKYO, "reasoning": "it tells it"})
    model = script_model(selection=[unsure], review=[write_review()], answer=["Noon, says get_current_time."])
    async with open_router(tmp_path, [server.spec()], model) as router:
        route = await router.route(BOTH)
    selection, reviewing, _ = model.asked
    lines = {
        line.split('"')[3]: line for line in selection.messages[-1].text.splitlines() if '"does"' in line
    }
    assert '"example_arguments": {"timezone": "Asia/Tokyo"}' in lines["time__get_current_time"]
    assert "approval" not in lines["time__get_current_time"]
    assert '"note": "requires a person\'s approval"' in lines["time__write_note"]
    assert reviewing.max_tokens is not None and reviewing.max_tokens <= 200
    selected = route.packet.tool_routing.selected_tool
    assert selected is not None
    assert (selected.confidence, selected.read_only) == (0.5, True)


@proves("A19")
async def test_the_plan_says_whether_it_is_read_only(tmp_path: Path) -> None:
    server = tool_server("time", [CLOCK, NOTE])
    first = write_selection("time__get_current_time", TOKYO, remaining="write it down")
    second = write_selection("time__write_note", {"text": "noon"})
    model = script_model(
        selection=[first, second], review=[write_review()] * 2, answer=["Done with write_note."]
    )
    async with open_router(tmp_path, [server.spec()], model, policy=ALLOW) as router:
        route = await router.route(BOTH)
    plans = [event for event in route.events if isinstance(event, PlanNoted)]
    assert [(plan.remaining, plan.read_only) for plan in plans] == [("write it down", True), ("", False)]


@proves("A20", "A15")
async def test_how_many_invented_calls_were_taken_out_is_a_figure(tmp_path: Path) -> None:
    invented = "<|Start of Memory Helper Tool Call|>recall(lucky number)<|End of Memory Helper Tool Call|>"
    model = ScriptedModel([invented, "Hi."])
    async with open_router(tmp_path, [tool_server("time", [CLOCK]).spec()], model) as router:
        agent = Agent(router)
        await agent.ask("Hello there!")
        await router.store.journal.flush()
        async with JournalReader.open(router.store, router.live) as ledger:
            figures = await ledger.get_figures(hours=1)
    assert agent.stats().invented_calls == 1
    assert figures.totals.syntax_stopped == 1


LOG = {
    "name": "read_log",
    "description": "Read the text of the log file of a service",
    "inputSchema": {"type": "object", "properties": {"service": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}
ASK_LOG = "Read the log file of the service mail"
LOG_TEXT = "\n".join(f"line {number} of the log" for number in range(2000))


async def tell_log(name: str, arguments: dict[str, Any]) -> str:
    return LOG_TEXT


def reader(pages: int) -> ScriptedModel:
    """A model that reads the log, then so many pages of it, then answers."""

    def play(request: ModelRequest) -> str | ModelReply:
        form = "" if request.schema is None else request.schema.name
        prompt = "\n".join(message.text for message in request.messages)
        handles, read = (
            re.findall("res_[a-z]{13}", prompt),
            prompt.count("line 1 of the log\nline 2 of the log\n"),
        )
        if form == "review":
            return write_review()
        if form == "selection":
            return write_selection("logs__read_log", {"service": "mail"})
        wanted = ("logs__read_log", {"service": "mail"})
        if handles:
            wanted = ("read_result", {"handle": handles[0]})
        done = read > pages or (handles and not offers_read_result(request))
        if form == "step":
            action = None if done else {"tool": wanted[0], "arguments": wanted[1]}
            return json.dumps({"thought": "t", "action": action, "answer": "Read." if done else None})
        return "Read." if done else calls(wanted)

    return ScriptedModel(play)


def offers_read_result(request: ModelRequest) -> bool:
    definitions = [*request.tools[-1:], *([request.schema.schema] if request.schema else [])]
    return "read_result" in str(definitions)


@pytest.mark.slow
@proves("D6")
@pytest.mark.parametrize("mode", MODES)
async def test_a_model_can_read_on_in_a_result_that_was_cut_and_it_costs_no_round(
    tmp_path: Path, mode: str
) -> None:
    model = reader(pages=2)
    logs = tool_server("logs", [LOG], call=tell_log)
    async with open_router(tmp_path, [logs.spec()], model, digest={"max_tokens": 300}) as router:
        route = await router.route(ASK_LOG, mode=mode)
    routing = route.packet.tool_routing
    assert [step.tool for step in routing.steps] == ["logs/read_log", "read_result", "read_result"]
    assert "line 1 of the log\nline 2 of the log\n" in routing.steps[1].text
    assert routing.reinjection_count == 1
    assert (route.outcome, route.sources) == (RouteOutcome.ANSWERED, ("logs/read_log",))
    turns = [asked for asked in model.asked if asked.schema is None or asked.schema.name == "step"]
    assert not offers_read_result(turns[0]) or mode == "staged"
    for before, after in pairwise(turns):
        assert after.tools[: len(before.tools)] == before.tools  # what is new comes last
        assert after.messages[:2] == before.messages[:2]


@pytest.mark.slow
@proves("D6")
async def test_a_model_cannot_read_pages_for_ever(tmp_path: Path) -> None:
    model = reader(pages=1000)
    logs = tool_server("logs", [LOG], call=tell_log)
    async with open_router(tmp_path, [logs.spec()], model, digest={"max_tokens": 300}) as router:
        for mode in MODES:
            route = await router.route(ASK_LOG, mode=mode)
            called = [step.tool for step in route.packet.tool_routing.steps]
            assert called == ["logs/read_log", *["read_result"] * 8], mode
            assert route.outcome is RouteOutcome.ANSWERED, mode


LOOKING = {
    "search_notes": "Search the knowledge base: notes, minutes and decisions of the team.",
    "git_status": "Show the working tree status: changed, staged and untracked files not committed yet.",
}


def create_reading_server(name: str) -> ServerSpec:
    query = {"type": "object", "properties": {"query": {"type": "string"}}}
    offered = {"name": name, "description": LOOKING[name], "inputSchema": query}
    return tool_server("office", [{**offered, "annotations": {"readOnlyHint": True}}]).spec()


@pytest.mark.slow
@proves("A2")
@pytest.mark.parametrize(
    ("mode", "text", "tool"),
    [
        *((mode, "What did we decide about pagination?", "search_notes") for mode in MODES),
        ("single", "Is there a note about passwords?", "search_notes"),
        ("simple", "What changed that is not committed yet?", "git_status"),
        ("react", "מה כתבתי על הדוד?", "search_notes"),
    ],
)
async def test_where_no_tool_seems_needed_but_one_may_know_it_the_model_decides(
    tmp_path: Path, mode: str, text: str, tool: str
) -> None:
    playing = wants((f"office__{tool}", {"query": "x"}), answer="It says so.")
    model = ScriptedModel(lambda request: playing.complete(request))
    async with open_router(tmp_path, [create_reading_server(tool)], model) as router:
        route = await router.route(text, mode=mode)
        assert [step.tool for step in route.packet.tool_routing.worked][:1] == [f"office/{tool}"]
        assert all(request.tool_choice in ("auto", None, "none") for request in model.asked)
        playing = ScriptedModel(lambda request: decline(request))
        route = await router.route(text, mode=mode)
    assert (route.answer, route.packet.tool_routing.steps) == ("I do not know.", ())


def decline(request: ModelRequest) -> str:
    """A model that uses no tool, in the form the question is in."""
    form = "" if request.schema is None else request.schema.name
    if form == "selection":
        return write_selection(None)
    if form == "step":
        return json.dumps({"thought": "none is needed", "action": None, "answer": "I do not know."})
    return "I do not know."


@proves("A2")
@pytest.mark.parametrize("mode", MODES)
async def test_where_certainly_no_tool_is_needed_a_model_is_sent_none(tmp_path: Path, mode: str) -> None:
    model = ScriptedModel(lambda request: decline(request))
    async with open_router(tmp_path, [create_reading_server("search_notes")], model) as router:
        for text in ("Good morning!", "What is 12 * 7?", "Thanks, that was quick"):
            await router.route(text, mode=mode)
    assert "search_notes" not in str([(asked.tools, asked.messages) for asked in model.asked])


def build_history_with_result(handle: str | None) -> tuple[Message, ...]:
    """A conversation in which the assistant named a result that was cut."""
    history = Message(role="assistant", text=f"Read. The whole is {handle}.")
    return (Message(role="user", text=ASK_LOG), history)


@pytest.mark.slow
@proves("D6")
async def test_a_later_request_of_the_conversation_can_read_on_in_a_result_its_history_names(
    tmp_path: Path,
) -> None:
    logs = tool_server("logs", [LOG], call=tell_log)
    async with open_router(tmp_path, [logs.spec()], reader(pages=0), digest={"max_tokens": 300}) as router:
        first = await router.route(ASK_LOG, mode="simple", caller="dana")
        handle = first.packet.tool_routing.steps[0].handle
    history = build_history_with_result(handle)
    model = reader(pages=0)
    async with open_router(tmp_path, [logs.spec()], model, digest={"max_tokens": 300}) as router:
        for mode in MODES:
            later = await router.route("Thank you! And the rest?", mode=mode, caller="dana", history=history)
            other = await router.route("Thank you! And the rest?", mode=mode, caller="eli", history=history)
            assert [step.tool for step in later.packet.tool_routing.steps] == ["read_result"], mode
            assert "line 1 of the log\nline 2 of the log\n" in later.packet.tool_routing.steps[0].text
            assert (later.outcome, later.packet.tool_routing.reinjection_count) == (RouteOutcome.ANSWERED, 0)
            assert not other.packet.tool_routing.steps  # it is another caller's, so it is not offered
            assert not offers_read_result(model.asked[-1])
    async with open_router(
        tmp_path, [logs.spec()], model, digest={"max_tokens": 300}, tool_routing={"enabled": False}
    ) as router:
        for mode in MODES:
            await router.route("And the rest?", mode=mode, caller="dana", history=history)
            assert not offers_read_result(model.asked[-1]), mode


@pytest.mark.slow
@proves("D6")
async def test_reading_on_is_not_the_one_decision_of_a_single_decision(tmp_path: Path) -> None:
    logs = tool_server("logs", [LOG], call=tell_log)
    async with open_router(tmp_path, [logs.spec()], reader(pages=0), digest={"max_tokens": 300}) as router:
        first = await router.route(ASK_LOG, mode="single", caller="dana")
        handle = first.packet.tool_routing.steps[0].handle
        history = build_history_with_result(handle)
    wanted = (("read_result", {"handle": handle}), ("logs__read_log", {"service": "web"}))
    model = ScriptedModel([calls(wanted[0]), calls(wanted[1]), "Read."])
    async with open_router(tmp_path, [logs.spec()], model, digest={"max_tokens": 300}) as router:
        route = await router.route(ASK_LOG, mode="single", caller="dana", history=history)
    assert [step.tool for step in route.packet.tool_routing.steps] == ["read_result", "logs/read_log"]
