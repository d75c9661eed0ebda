"""What belongs to a whole conversation: its history, its servers, its models, its secrets, its cost."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from fingerpost import Router
from fingerpost.errors import ModelRefused, ModelUnavailable
from fingerpost.events import HistorySummarised, ModelAnswered, SmartRoutingEnd, ToolsOffered, encode
from fingerpost.llm import ModelReply, ModelRequest, ModelUsage
from fingerpost.records import Message, RouteOutcome
from fingerpost.router import Route
from fingerpost.store.journal import JournalEntry
from fingerpost.surfaces.cli.explanation import describe_events
from fingerpost.testing import ScriptedModel, ToolServer, calls, tool_server
from tests.kit.call_recorder import READS, matches_journal, read_journal, tool
from tests.kit.routers import (
    build_settings,
    get_purpose,
    open_router,
    script_model,
    write_review,
    write_selection,
)
from tests.requirements import proves

NOTES = tool("read_note", "Read a note of mine.", "title", **READS)


def notes() -> ToolServer:
    return tool_server("notes", [NOTES])


WISH = "Read my note about milk"
READ = write_selection("notes__read_note", {"title": "milk"})


def create_history(*texts: str) -> tuple[Message, ...]:
    return tuple(
        Message(role="assistant" if number % 2 else "user", text=text) for number, text in enumerate(texts)
    )


def models_of(route: Route) -> list[tuple[str, str, bool]]:
    """Who answered what: purpose, model, and whether it stood in."""
    return [
        (event.purpose, event.model, event.stood_in)
        for event in route.events
        if isinstance(event, ModelAnswered) and event.error is None
    ]


@proves("B6", "B12")
async def test_what_the_conversation_holds_is_answered_from_it_without_a_call(tmp_path: Path) -> None:
    server = notes()
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        asked.append(request)
        return "You said: two litres."

    history = create_history("Remember: buy two litres of milk.", "I will remember the two litres of milk.")
    model = script_model(selection=lambda request: write_selection(None), answer=answer)
    async with open_router(tmp_path, [server.spec()], model) as router:
        route = await router.route("How much milk did I say?", history=history, conversation="ses_milk")
        assert route.outcome is RouteOutcome.ANSWERED
        assert await matches_journal(router, route)
        assert route.packet.context.message_count == 2
    assert server.calls == []
    assert "two litres of milk" in str(asked[0].messages)


@proves("B12")
async def test_a_long_conversation_is_summarised_once_and_its_summary_stays(tmp_path: Path) -> None:
    summaries: list[ModelRequest] = []
    answers: list[ModelRequest] = []

    def answer(request: ModelRequest) -> str:
        if request.messages[0].text.startswith("You shorten the beginning"):
            summaries.append(request)
            return f"They talked about milk ({len(summaries)})."
        answers.append(request)
        return "Milk, then."

    models = {"prime": {"model": "small", "context": 2048}}
    history = create_history(*(f"Message {number}: " + "milk and honey " * 20 for number in range(40)))
    async with open_router(tmp_path, [notes().spec()], script_model(answer=answer), models=models) as router:
        for turn in range(3):
            route = await router.route("Hello again!", history=history, conversation="ses_long")
            assert route.outcome is RouteOutcome.ANSWERED
            events = [event for event in route.events if isinstance(event, HistorySummarised)]
            assert [event.by for event in events] == ["scripted"]
            assert events[0].tokens_after < events[0].tokens_before
            history = (*history, *create_history(f"Hello again, {turn}!", "Milk, then."))
    assert len(summaries) == 1
    assert all("They talked about milk (1)." in str(request.messages) for request in answers)


@proves("B12")
async def test_without_the_flag_a_long_conversation_is_cut_and_no_model_is_asked(tmp_path: Path) -> None:
    models = {"prime": {"model": "small", "context": 2048}}
    model = script_model(answer=["Milk, then."])
    history = create_history(*(f"Message {number}: " + "milk and honey " * 20 for number in range(40)))
    async with open_router(
        tmp_path, [notes().spec()], model, models=models, flags={"summarise": False}
    ) as router:
        route = await router.route("Hello again!", history=history)
    (events,) = (event for event in route.events if isinstance(event, HistorySummarised))
    assert events.by == "cut"
    assert len(model.asked) == 1


@pytest.mark.slow
@proves("E5")
async def test_the_servers_of_a_conversation_are_chosen_once_for_all_its_requests(tmp_path: Path) -> None:
    names = ("calendar", "mail", "maps", "music", "notes", "weather")
    servers = [
        tool_server(
            name,
            [tool(f"find_{name}_{n}", f"Find {name} number {n}.", "title", **READS) for n in range(7)],
        )
        for name in names
    ]
    chosen = json.dumps({"relevant_servers": ["mail", "notes"], "reasoning": "they fit"})
    choices: list[ModelRequest] = []

    def choose(request: ModelRequest) -> str:
        choices.append(request)
        return chosen

    def play(request: ModelRequest) -> str:
        name = "answer" if request.schema is None else request.schema.name
        if name == "selection":
            return write_selection(_tools_in(request)[0], {"title": "milk"})
        return {"review": write_review(), "answer": "It was found."}.get(name) or choose(request)

    specs = [server.spec() for server in servers]
    async with open_router(tmp_path, specs, ScriptedModel(play)) as router:
        for text in ("Find the mail about milk", "Find the notes number 3", "Find the mail number 5"):
            route = await router.route(text, conversation="ses_one")
            offered = {key.split("/")[0] for key in route.packet.context.available_tools}
            assert offered <= {"mail", "notes"}
            assert offered
            assert await matches_journal(router, route)
        assert len(choices) == 1
        await router.route("Find the weather number 2", conversation="ses_two")
        assert len(choices) == 2
        await router.store.journal.flush()
        ends = [entry.event for entry in await router.store.journal.list_events(kinds=("smart_routing_end",))]
        assert len([event for event in ends if isinstance(event, SmartRoutingEnd) and event.success]) == 2


SUBJECTS = {
    "clock": (
        "get_current_time",
        "The current time in a city or time zone.",
        "What time is it in Tokyo now?",
    ),
    "sqlite": ("list_tables", "List the tables of the database.", "Which tables does the database have?"),
    "post": ("search_mail", "Search the mailbox for messages.", "Search my mailbox for the invoice of Dana"),
    "sky": ("get_forecast", "The weather forecast for a city.", "What is the weather forecast for Oslo?"),
    "tracker": (
        "list_issues",
        "List the open issues of a repository.",
        "List the open issues of the repository",
    ),
    "disk": ("read_file", "Read the contents of a file.", "Read the file notes.md"),
}


def subjects() -> list[ToolServer]:
    """Six servers, each about something else, with tools that have nothing to do with any request here."""
    return [
        tool_server(
            name,
            [
                tool(found, about, "subject", **READS),
                *(tool(f"{name}_{n}", f"Archive box {n} of {name}.", "subject", **READS) for n in range(6)),
            ],
        )
        for name, (found, about, _) in SUBJECTS.items()
    ]


@pytest.mark.slow
@proves("E5")
@pytest.mark.parametrize("by", ["scores", "model"])
async def test_a_conversation_that_changes_its_subject_finds_the_right_server_each_time(
    tmp_path: Path, by: str
) -> None:
    choices: list[ModelRequest] = []

    def choose(request: ModelRequest) -> str:
        choices.append(request)
        return json.dumps({"relevant_servers": ["clock"], "reasoning": "the time was asked for"})

    model = ScriptedModel(choose) if by == "model" else None
    specs = [server.spec() for server in subjects()]
    async with open_router(tmp_path, specs, model, smart_routing={"mode": "on"}) as router:
        found: dict[str, str] = {}
        for server, (_, _, request) in SUBJECTS.items():
            narrowing = await router.narrow(request, conversation="ses_six", asked_for_tools=True)
            found[server] = narrowing.shortlist.offered[0].tool
        assert found == {server: f"{server}/{tool}" for server, (tool, _, _) in SUBJECTS.items()}
        assert len(choices) == (1 if by == "model" else 0)
        ends = [entry.event for entry in await _journal(router, "smart_routing_end")]
    if by == "model":
        widened = [event for event in ends if isinstance(event, SmartRoutingEnd) and event.by == "widened"]
        assert [event.widened for event in widened] == [
            ("sqlite",),
            ("post",),
            ("sky",),
            ("tracker",),
            ("disk",),
        ]
        assert "sqlite has one of the best tools" in widened[0].reasoning


async def _journal(router: Router, kind: str) -> list[JournalEntry]:
    await router.store.journal.flush()
    return await router.store.journal.list_events(kinds=(kind,))


@pytest.mark.slow
@proves("E5")
async def test_a_model_that_takes_none_of_the_offered_tools_is_shown_those_of_other_servers(
    tmp_path: Path,
) -> None:
    offers: list[list[str]] = []

    def play(request: ModelRequest) -> str:
        name = "answer" if request.schema is None else request.schema.name
        if name == "relevant_servers":
            return json.dumps({"relevant_servers": ["clock"], "reasoning": "a guess"})
        if name == "selection":
            offers.append(_tools_in(request))
            found = "sqlite__list_tables" in offers[-1]
            return (
                write_selection("sqlite__list_tables", {"subject": "all"}) if found else write_selection(None)
            )
        return write_review() if name == "review" else "There is one table."

    servers = subjects()
    specs = [server.spec() for server in servers]
    async with open_router(tmp_path, specs, ScriptedModel(play), smart_routing={"mode": "on"}) as router:
        route = await router.route("Which tables does the database have?", conversation="ses_none")
    assert [any(tool.startswith("sqlite__") for tool in offer) for offer in offers] == [False, True]
    assert route.sources == ("sqlite/list_tables",), route.trace


@pytest.mark.slow
@proves("E5")
@pytest.mark.parametrize("mode", ["single", "simple", "react"])
@pytest.mark.parametrize("asks", ["", "list the tables of the database"])
async def test_a_model_that_asks_for_other_tools_sees_those_of_other_servers_in_the_same_request(
    tmp_path: Path, mode: Any, asks: str
) -> None:
    offers: list[list[str]] = []
    body = {"request": asks} if asks else {}

    def play(request: ModelRequest) -> str | ModelReply:
        if get_purpose(request) == "relevant_servers":
            return json.dumps({"relevant_servers": ["clock"], "reasoning": "a guess"})
        offers.append(_callable_in(request))
        name, arguments = ("find_tools", body)
        if "sqlite__list_tables" in offers[-1]:
            name, arguments = "sqlite__list_tables", {"subject": "all"}
        if "Observation" in str(request.messages) or "Result of" in str(request.messages):
            name = ""
        if request.messages[-1].role == "tool" or request.tool_choice == "none":
            name = ""
        if mode == "react":
            action = {"tool": name, "arguments": arguments} if name else None
            return json.dumps({"thought": "hm", "action": action, "answer": None if name else "One table."})
        return calls((name, arguments)) if name else "One table."

    specs = [server.spec() for server in subjects()]
    async with open_router(tmp_path, specs, ScriptedModel(play), smart_routing={"mode": "on"}) as router:
        route = await router.route("Which tables does the database have?", mode=mode, conversation="ses_none")
    assert "find_tools" in offers[0]
    assert not any(tool.startswith("sqlite__") for tool in offers[0])
    assert "sqlite__list_tables" in offers[1]
    assert "find_tools" not in offers[1]  # once
    assert len(offers) == 3
    assert route.sources == ("sqlite/list_tables",), route.trace


def _callable_in(request: ModelRequest) -> list[str]:
    """The names a model that decides by itself may call."""
    if request.schema is None:
        functions: Any = [tool["function"] for tool in request.tools]
        return [function["name"] for function in functions]
    return re.findall(r"\b(?:find_tools|[a-z]+__\w+)\b", json.dumps(request.schema.schema))


def _tools_in(request: ModelRequest) -> list[str]:
    """The names a selecting model may take."""
    assert request.schema is not None
    shape: Any = request.schema.schema
    return [name for name in shape["properties"]["tool"]["enum"] if name is not None]


TURNS = (*(request for _, _, request in SUBJECTS.values()), "Thank you!", SUBJECTS["clock"][2])


def create_recording_model(asked: list[ModelRequest]) -> ScriptedModel:
    """A model that uses the first tool it may use, once in each request, and keeps what it was asked."""

    def play(request: ModelRequest) -> str | ModelReply:
        asked.append(request)
        purpose = "decision" if request.schema is None and request.tools else get_purpose(request)
        used = "Result of" in request.messages[-1].text or request.messages[-1].role == "tool"
        if purpose == "selection":
            return write_selection(_tools_in(request)[0], {"subject": "it"})
        if purpose == "decision" and not used and request.tool_choice != "none":
            function: Any = request.tools[0]["function"]
            return calls((str(function["name"]), {"subject": "it"}))
        if purpose == "step":
            return json.dumps({"thought": "known", "action": None, "answer": "That is all."})
        return write_review() if purpose == "review" else "That is all."

    return ScriptedModel(play)


def beginnings_known(prompts: list[tuple[str, ModelRequest]]) -> list[float]:
    """Of what each prompt holds before its request, the share with which the next prompt begins, too."""
    shares: list[float] = []
    for (request_text, before), (_, now) in itertools.pairwise(prompts):
        first, second = ([f"{m.role}\n{m.text}" for m in one.messages] for one in (before, now))
        at = max(place for place, text in enumerate(first) if request_text in text)
        kept = "\n".join(first[:at])
        both = zip(kept, "\n".join(second), strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], both)
        shares.append(len(list(same)) / len(kept))
    return shares


@pytest.mark.slow
@proves("C9")
async def test_a_prompt_begins_as_the_one_before_it_when_the_subject_changes(tmp_path: Path) -> None:
    asked: list[ModelRequest] = []
    specs = [server.spec() for server in subjects()]
    firsts: dict[tuple[str, str], list[tuple[str, ModelRequest]]] = {}
    async with open_router(tmp_path, specs, create_recording_model(asked)) as router:
        for mode, text in itertools.product(("staged", "single", "simple", "react"), TURNS):
            asked.clear()
            await router.route(text, mode=mode, conversation=f"ses_{mode}")
            purposes = {get_purpose(request): request for request in reversed(asked)}
            for purpose, request in purposes.items():
                firsts.setdefault((mode, purpose), []).append((text, request))
    for (mode, purpose), prompts in firsts.items():
        if purpose != "relevant_servers":  # asked once in a conversation
            assert min(beginnings_known(prompts)) >= 0.9, (mode, purpose, beginnings_known(prompts))


@pytest.mark.slow
@proves("C9", "D4")
async def test_tools_of_earlier_turns_stay_while_there_is_room_and_they_can_be_used(tmp_path: Path) -> None:
    asked: list[ModelRequest] = []
    specs = [server.spec() for server in subjects()]
    offers: list[tuple[str, ...]] = []
    async with open_router(tmp_path, specs, create_recording_model(asked)) as router:
        for text in TURNS:
            route = await router.route(text, mode="single", conversation="ses_kept")
            shortlist = () if route.narrowing is None else route.narrowing.shortlist.offered
            found = [candidate.tool for candidate in shortlist]
            tools = route.packet.context.available_tools
            events = [event for event in route.events if isinstance(event, ToolsOffered)][-1]
            assert events.kept == tuple(key for key in tools if key not in found), "the trace says which"
            assert all(key in offers[-1] for key in events.kept)
            assert all(key in events.summary() for key in events.kept)
            explained = [words for what, words, _ in describe_events(route.events) if what == "Kept"]
            assert len(explained) == bool(events.kept)
            assert all(key in explained[0] for key in events.kept)
            if found:
                assert len(tools) <= 4
                offers.append(tools)
        full = [offer for offer in offers if len(offer) == 4]
        assert offers[offers.index(full[0]) :] == full, "a set that is full stays full"
        away = next(key for key in offers[-1] if not key.startswith("sky/"))
        await router.disabled_tools.set_tool_enabled(away, enabled=False, by="a test")
        route = await router.route(SUBJECTS["sky"][2], mode="single", conversation="ses_kept")
        assert len(route.packet.context.available_tools) > 1
        assert away not in route.packet.context.available_tools


def down(name: str) -> ScriptedModel:
    return ScriptedModel(lambda request: ModelUnavailable(f"{name} is down", model=name), name=name)


def up(name: str) -> ScriptedModel:
    def play(request: ModelRequest) -> ModelReply:
        purpose = "answer" if request.schema is None else request.schema.name
        text = {"selection": READ, "review": write_review(), "answer": "Milk, says notes/read_note."}[purpose]
        return ModelReply(text=text, model=name, usage=ModelUsage(prompt_tokens=1000, completion_tokens=100))

    return ScriptedModel(play, name=name)


@proves("A7", "W6")
@pytest.mark.parametrize(
    ("lite", "prime", "expected"),
    [
        (up("small"), up("large"), [("small", False), ("large", False), ("large", False)]),
        (down("small"), up("large"), [("large", True), ("large", False), ("large", False)]),
        (up("small"), down("large"), [("small", False), ("small", True), ("small", True)]),
    ],
    ids=["both up", "lite down", "prime down"],
)
async def test_a_model_that_is_down_is_stood_in_for_and_that_is_told(
    tmp_path: Path, lite: ScriptedModel, prime: ScriptedModel, expected: list[tuple[str, bool]]
) -> None:
    server = notes()
    async with Router([server.spec()], settings=build_settings(tmp_path), lite=lite, prime=prime) as router:
        route = await router.route(WISH)
        assert route.outcome is RouteOutcome.ANSWERED, route.trace
        assert [(model, stood) for _, model, stood in models_of(route)] == expected
        assert [purpose for purpose, _, _ in models_of(route)] == ["selection", "review", "answer"]
        assert route.answered_by == expected[-1][0]
        events = [event for event in await read_journal(router, route) if isinstance(event, ModelAnswered)]
        assert [event.stood_in for event in events if event.error is None] == [stood for _, stood in expected]
    assert len(server.calls) == 1


@proves("W6")
async def test_when_both_are_down_in_the_middle_the_tools_words_are_the_answer(tmp_path: Path) -> None:
    def play(request: ModelRequest) -> str | Exception:
        purpose = "answer" if request.schema is None else request.schema.name
        gone = ModelRefused("the key has expired", model="small", hint="Renew it.")
        return {"selection": READ, "review": write_review(), "answer": gone}[purpose]

    async with open_router(tmp_path, [notes().spec()], ScriptedModel(play)) as router:
        route = await router.route(WISH)
        assert route.outcome is RouteOutcome.ANSWERED
        assert (route.answered_by, route.sources) == ("no model", ("notes/read_note",))
        assert "the key has expired" in route.detail
        assert await matches_journal(router, route)


SECRET = "sk-proj-Zx9Qw8Er7Ty6Ui5Op4As3Df2Gh1Jk0Lz"  # made up, to be looked for


def contents(folder: Path) -> list[tuple[str, bytes]]:
    return [(file.name, file.read_bytes()) for file in folder.rglob("*") if file.is_file()]


@proves("F49")
@pytest.mark.parametrize("mode", ["staged", "single", "react"])
async def test_a_secret_in_what_is_said_is_in_no_event_and_in_no_file(tmp_path: Path, mode: str) -> None:
    server = notes()

    def play(request: ModelRequest) -> str:
        purpose = "answer" if request.schema is None else request.schema.name
        choice = write_selection(
            "notes__read_note", {"title": f"api_key={SECRET}"}, reasoning=f"it holds {SECRET}"
        )
        react = json.dumps({"thought": f"I see {SECRET}", "action": None, "answer": f"Keep {SECRET} safe."})
        replies = {"selection": choice, "review": write_review(), "answer": f"Keep {SECRET} safe."}
        return replies.get(purpose, react)

    received: list[str] = []
    async with open_router(tmp_path, [server.spec()], ScriptedModel(play)) as router:
        route = await router.route(
            f"Read my note about the api_key={SECRET}",
            mode=mode,
            history=create_history(f"My token is {SECRET}", "I have seen it."),
            on_text=received.append,
        )
        assert route.outcome is RouteOutcome.ANSWERED, route.trace
        assert SECRET in "".join(received)  # the person gets what was written for them
        assert SECRET not in route.trace
        assert SECRET not in "".join(str(encode(event)) for event in await read_journal(router, route))
    for name, content in await anyio.to_thread.run_sync(contents, tmp_path):
        assert SECRET.encode() not in content, name


PRICES: Mapping[str, Any] = {
    "lite": {"model": "small", "price_in": 1.0, "price_out": 2.0},
    "prime": {"model": "large", "price_in": 10.0, "price_out": 20.0},
}


@proves("W3")
async def test_what_a_request_costs_is_counted_by_each_models_prices(tmp_path: Path) -> None:
    priced = build_settings(tmp_path, models=PRICES)
    async with Router([notes().spec()], settings=priced, lite=up("small"), prime=up("large")) as router:
        route = await router.route(WISH)
    assert route.outcome is RouteOutcome.ANSWERED
    assert (route.prompt_tokens, route.completion_tokens, route.model_calls) == (3000, 300, 3)
    assert route.cost == pytest.approx(0.0012 + 2 * 0.012)


@proves("W3")
async def test_money_runs_out_with_guidance_before_anything_is_called(tmp_path: Path) -> None:
    server = notes()
    limited = build_settings(tmp_path, models=PRICES, choose={"max_cost": 0.001})
    async with Router([server.spec()], settings=limited, lite=up("small"), prime=up("large")) as router:
        route = await router.route(WISH)
        assert route.outcome is RouteOutcome.LIMITED
        assert "choose.max_cost" in route.answer
        assert await matches_journal(router, route)
    assert server.calls == []
    assert route.model_calls == 1


@proves("W3")
async def test_a_server_that_does_not_count_tokens_is_estimated_so_that_limits_hold(tmp_path: Path) -> None:
    def play(request: ModelRequest) -> ModelReply:
        purpose = "answer" if request.schema is None else request.schema.name
        text = {"selection": READ, "review": write_review(), "answer": "Milk, says notes/read_note."}[purpose]
        return ModelReply(text=text, model="silent")

    priced = build_settings(tmp_path, models=PRICES, choose={"max_cost": 0.0001})
    async with Router([notes().spec()], settings=priced, model=ScriptedModel(play)) as router:
        route = await router.route(WISH)
    assert route.outcome is RouteOutcome.LIMITED, route.cost
    assert route.prompt_tokens > 0
