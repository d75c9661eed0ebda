"""Whatever a model replies: every request ends in something readable, and nothing runs without permission."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost import Router
from fingerpost.events import AttemptStarted
from fingerpost.llm import ModelReply, ModelRequest
from fingerpost.llm.capabilities import Capabilities, CapabilityFindings
from fingerpost.llm.pool import PoolMember
from fingerpost.records import RouteOutcome
from fingerpost.router import Route
from fingerpost.router.options import RouteKeywords
from fingerpost.router.store_sync import StoredCapabilities
from fingerpost.settings import ModelSettings
from fingerpost.testing import ScriptedModel
from tests.kit.call_recorder import (
    ENOUGH,
    REQUEST,
    find_unauthorized,
    find_unreadable,
    list_called,
    open_office,
)
from tests.kit.routers import script_model, write_review, write_selection
from tests.kit.selection_samples import samples
from tests.requirements import proves

SELECTIONS = ("arguments", "broken", "claims", "names", "shapes", "wrapped")
ALLOWED = {"policy": [{"verdict": "allow", "tool": "*"}]}
DEAF = ModelSettings(model="deaf")
SHORT = 20_000  # characters
MODES = ("single", "simple", "react")
_CASE = re.compile(r"This is case (\d+)\.")


def _delete(request: ModelRequest) -> str:
    return write_selection("files__delete_file", {"path": "a.txt"})


def _done(request: ModelRequest) -> str:
    return "Done."


def _nowhere(piece: str) -> None:
    """Takes the pieces of an answer; they are looked at as a whole."""


def _reply(text: str = "", *entries: object) -> ModelReply:
    calls = cast("tuple[dict[str, Any], ...]", entries)
    return ModelReply(text=text, model="odd", finish="stop", tool_calls=calls)


def _function(name: object, arguments: object = "{}", **more: object) -> dict[str, object]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def _build_reply(text: str, entries: list[object]) -> ModelReply:
    return _reply(text, *entries)


LONG = 33_000  # characters: more than the guard holds back before it decides
JUNK: tuple[tuple[str, ModelReply], ...] = (
    ("very many words", _reply("delete the file " * 2_100)),
    ("very many braces", _reply("{" * LONG)),
    ("very many brackets", _reply("[" * LONG)),
    ("very many quotes", _reply('"' * LONG)),
    ("very many angle brackets", _reply("<" * LONG)),
    ("very many opening marks", _reply("<tool_call>" * 3_100)),
    ("very many fences", _reply("```json\n" * 4_200)),
    ("very many arguments", _reply(write_selection("web__search", {"query": "x" * LONG}))),
    ("very many spaces", _reply(" " * LONG)),
    ("ten thousand lists in each other", _reply("[" * 10_000 + "]" * 10_000)),
    ("ten thousand deep arguments", _reply('{"tool": "web__search", "arguments": ' + '{"a":' * 9_999 + "1")),
    ("NUL", _reply("\0\0\0")),
    ("half a character", _reply("It is \ud800 there")),
    ("half a character in a selection", _reply(write_selection("web__search", {"query": "\ud800"}))),
    ("half a character, written out", _reply('{"tool": "web__search", "arguments": {"query": "\ud800"}}')),
    ("right to left", _reply("\u202e{\u202d}\u2066")),
    ("NaN", _reply('{"tool": "git__log", "arguments": {}, "confidence": NaN}')),
    ("endless", _reply('{"approved": true, "confidence": 1e999}')),
    ("an enormous number", _reply('{"approved": true, "confidence": ' + "9" * 10_000 + "}")),
    ("calls that are empty objects", _reply("", {}, {"a": 1})),
    ("a call without a function", _reply("", {"id": "call_1", "type": "function"})),
    ("a function that is a text", _reply("", {"id": "call_1", "function": "files__delete_file"})),
    ("a function that is a list", _reply("", {"function": ["files__delete_file"]})),
    ("a name that is a number", _reply("", _function(4))),
    ("a name that is null", _reply("", _function(None))),
    ("a name that is empty", _reply("", _function(""))),
    ("a name without end", _reply("", _function("x" * LONG))),
    ("a name with a line end", _reply("", _function("files__delete_file\n", '{"path": "a"}'))),
    ("a name with a shell in it", _reply("", _function("files__delete_file; rm -rf /", "{}"))),
    ("an invented tool", _reply("", _function("os__system", '{"command": "rm -rf /"}'))),
    ("a near name", _reply("", _function("files__delete_files", '{"path": "a"}'))),
    ("arguments that are a number", _reply("", _function("files__delete_file", 4))),
    ("arguments that are a list", _reply("", _function("files__delete_file", ["a"]))),
    ("arguments that are cut", _reply("", _function("files__delete_file", '{"path": "a'))),
    ("arguments that are NaN", _reply("", _function("files__delete_file", '{"path": NaN}'))),
    ("arguments twice", _reply("", _function("files__delete_file", '{"path": "a", "path": "b"}'))),
    ("very long arguments", _reply("", _function("web__search", '{"query": "' + "x" * LONG + '"}'))),
    ("deep arguments", _reply("", _function("web__search", '{"query": ' + "[" * 5_000 + "]" * 5_000 + "}"))),
    (
        "a thousand calls",
        _reply("", *(_function("web__search", json.dumps({"query": str(n)})) for n in range(1000))),
    ),
    ("an id that is an object", _reply("", _function("git__log", "{}", id={"a": 1}))),
    ("ids that are the same", _reply("", _function("git__log"), _function("time__get_current_time"))),
    ("an unreadable call beside a good one", _reply("", _function(None), _function("git__log"))),
)


def _odd(*files: str, share: int = 0) -> list[tuple[str, ModelReply]]:
    """One tenth of the samples, and all junk. `tests/choose` shows how each sample is read."""
    corpus = samples(*files, longest=LONG)[share::10]
    return [*((sample.name, sample.reply) for sample in corpus), *JUNK]


def _faults(name: str, route: Route) -> list[str]:
    return [f"{name}: {fault}" for fault in (*find_unauthorized(route), *find_unreadable(route))]


def _all_faults(cases: Sequence[tuple[str, ModelReply]], routes: Sequence[Route]) -> list[str]:
    pairs = zip(cases, routes, strict=True)
    return [fault for (name, _), route in pairs for fault in _faults(name, route)]


def _case(request: ModelRequest) -> int:
    """Which case the request is about; the words of the person are in every question."""
    prompt = "\n".join(message.text for message in request.messages)
    return int(_CASE.findall(prompt)[0])


def _careful(request: ModelRequest) -> str:
    """A reviewer that never lets anything be deleted."""
    about = request.messages[-1].text.split("The call that is proposed:")[1].split("Other tools")[0]
    return write_review(0.1, approved=False) if "files__delete_file" in about else write_review(0.95)


async def _all(router: Router, cases: Sequence[object], **asking: Unpack[RouteKeywords]) -> list[Route]:
    """A route for each case, some at a time."""
    routes: dict[int, Route] = {}
    some = anyio.Semaphore(8)

    async def one(number: int) -> None:
        async with some:
            routes[number] = await router.route(f"{REQUEST}. This is case {number}.", **asking)

    async with anyio.create_task_group() as tasks:
        for number in range(len(cases)):
            tasks.start_soon(one, number)
    return [routes[number] for number in range(len(cases))]


@pytest.mark.slow
@proves("A3", "W10")
async def test_no_reply_to_the_selection_question_runs_what_was_not_offered_and_approved(
    tmp_path: Path,
) -> None:
    cases = _odd(*SELECTIONS)
    assert len(cases) >= 70
    model = script_model(selection=lambda request: cases[_case(request)][1], review=_careful, answer=_done)
    async with open_office(tmp_path, model, **ALLOWED) as (router, servers):
        routes = await _all(router, cases)
        assert not _all_faults(cases, routes)
        assert "files/delete_file" not in list_called(servers)
        assert list_called(servers)  # the corpus holds good selections in odd clothes as well: those did run


@pytest.mark.slow
@proves("A4", "A5")
async def test_only_a_review_that_can_be_read_and_says_yes_lets_the_destructive_call_run(
    tmp_path: Path,
) -> None:
    cases = samples("reviews")[::3]  # `tests/choose` shows how each is read
    model = script_model(selection=_delete, review=lambda request: cases[_case(request)].reply, answer=_done)
    async with open_office(tmp_path, model, **ALLOWED) as (router, servers):
        routes = await _all(router, cases)
        for sample, route in zip(cases, routes, strict=True):
            assert not _faults(sample.name, route)
            ran = any(isinstance(event, AttemptStarted) for event in route.events)
            yes = sample.expected.get("approved") is True and sample.expected["confidence"] >= ENOUGH
            assert ran == yes, sample.name
        assert set(list_called(servers)) == {"files/delete_file"}


@pytest.mark.slow
@proves("A4", "A5")
async def test_no_odd_reply_counts_as_an_approval(tmp_path: Path) -> None:
    odd = _odd("arguments", "broken", "shapes", share=1)
    cases = [case for case in odd if case[0] != "broken: a review instead" and len(case[1].text) < SHORT][::2]
    model = script_model(selection=_delete, review=lambda request: cases[_case(request)][1], answer=_done)
    async with open_office(tmp_path, model, **ALLOWED) as (router, servers):
        routes = await _all(router, cases)
        assert not _all_faults(cases, routes)
        assert list_called(servers) == []
        assert {route.outcome for route in routes} <= {RouteOutcome.ANSWERED, RouteOutcome.WAITING}


@pytest.mark.slow
@proves("A15", "W10")
@pytest.mark.parametrize("streamed", [False, True])
async def test_whatever_is_written_as_the_answer_nothing_runs_without_a_review(
    tmp_path: Path, streamed: bool
) -> None:
    """The answer may hold a call, which is then reviewed like any other: the reviewer says no to all."""
    cases = _odd("arguments", "names", "shapes", "wrapped", share=2)
    cases = cases[int(streamed) :: 4]  # the guard reads them alike, whole or in pieces
    if streamed:  # piece by piece such lengths take their time
        cases = [(name, reply) for name, reply in cases if len(reply.text) < SHORT]
    model = script_model(
        selection=lambda request: write_selection(None),
        review=lambda request: write_review(0.1, approved=False),
        answer=lambda request: cases[_case(request)][1],
    )
    async with open_office(tmp_path, model, **ALLOWED) as (router, servers):
        asking: RouteKeywords = {"on_text": _nowhere} if streamed else {}
        routes = await _all(router, cases, **asking)
        assert not _all_faults(cases, routes)
        assert list_called(servers) == []


@pytest.mark.slow
@proves("C1", "B4", "W10")
@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_runs_only_what_was_offered_and_never_what_destroys(tmp_path: Path, mode: str) -> None:
    cases = _odd("arguments", "broken", "names", "shapes", "wrapped", share=3)
    # What a turn may say is read in one place: each mode gets a third, and one of them some of what is long.
    short = [case for case in cases if len(case[1].text) < SHORT][MODES.index(mode) :: len(MODES)]
    long = [case for case in cases if len(case[1].text) >= SHORT][2::3] if mode == "single" else []
    cases = [*short, *long]
    model = ScriptedModel(lambda request: cases[_case(request)][1])
    async with open_office(tmp_path, model) as (router, servers):
        routes = await _all(router, cases, mode=mode, max_turns=2)
        assert not _all_faults(cases, routes)
        assert not {"files/delete_file", "files/write_file"} & set(list_called(servers))


async def _is_deaf(router: Router, model: ScriptedModel) -> None:
    """An earlier run has found out that this model's server ignores `tools`: it is asked for JSON instead."""
    key = PoolMember.from_model(model, DEAF).key
    assert key is not None
    found = CapabilityFindings.from_capabilities(Capabilities(tools=False), time.time())
    await StoredCapabilities(router.store.cache).put(key, found.to_bytes())


@pytest.mark.slow
@proves("C1", "W10")
@pytest.mark.parametrize("calls", [False, True])
async def test_a_model_that_cannot_call_tools_gets_no_further_with_json(tmp_path: Path, calls: bool) -> None:
    cases = [case for case in _odd("arguments", "broken", "shapes", share=4) if len(case[1].text) < SHORT]
    cases = [case for case in cases if bool(case[1].tool_calls) is calls][1::2]
    model = ScriptedModel(lambda request: cases[_case(request)][1])
    more = {"models": {"prime": DEAF.model_dump()}}
    async with open_office(tmp_path, model, **more) as (router, servers):
        await _is_deaf(router, model)
        routes = await _all(router, cases, mode="simple", max_turns=2)
        assert calls or all(not request.tools for request in model.asked)  # who calls all the same gets them
        assert not _all_faults(cases, routes)
        assert not {"files/delete_file", "files/write_file"} & set(list_called(servers))


async def test_calls_it_may_not_make_any_more_are_not_shown_as_the_answer(tmp_path: Path) -> None:
    call_text = json.dumps({"calls": [{"tool": "git__log", "arguments": {}}], "answer": ""})
    model = ScriptedModel(lambda request: call_text)
    async with open_office(tmp_path, model, models={"prime": DEAF.model_dump()}) as (router, _):
        await _is_deaf(router, model)
        route = await router.route(REQUEST, mode="simple", max_turns=1)
        assert route.outcome is RouteOutcome.ANSWERED
        assert "git__log" not in route.answer
        assert "the 1 rounds of tools" in route.answer


async def test_calls_of_no_shape_at_all_end_readably(tmp_path: Path) -> None:
    cases = [
        ("no object", _reply("", None)),
        ("a name that is an object", _reply("", _function({"name": "git__log"}))),
        ("a name that is a list", _reply("", _function(["git__log"]))),
    ]
    model = ScriptedModel(lambda request: cases[_case(request)][1])
    async with open_office(tmp_path, model) as (router, servers):
        routes = await _all(router, cases, mode="single")
        assert not _all_faults(cases, routes)
        assert list_called(servers) == []


_NAMES = st.sampled_from(
    ["tool", "name", "arguments", "confidence", "approved", "action", "answer", "calls", "thought", "path"]
)
_TOOLS = st.sampled_from(
    ["files__delete_file", "files/delete_file", "files__write_file", "web__search", "git__log", "delete_file"]
)
_MARKS = [
    "",
    "<tool_call>",
    "</tool_call>",
    "```json\n",
    "\n```",
    "<think>",
    "</think>",
    "Action: ",
    "[TOOL_CALLS]",
]
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | _TOOLS | st.text(max_size=8)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_NAMES | st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
_TEXTS = st.one_of(
    st.text(max_size=30),
    st.tuples(st.text(max_size=8), _JSON.map(json.dumps), st.text(max_size=8)).map("".join),
    st.tuples(st.sampled_from(_MARKS), _JSON.map(json.dumps), st.sampled_from(_MARKS)).map("".join),
)
_CALLS = st.lists(
    st.dictionaries(_NAMES, _JSON, max_size=3) | st.builds(_function, _TOOLS | _SCALARS, _TEXTS | _JSON),
    max_size=2,
)


@pytest.mark.slow
@proves("A3", "A15", "C1", "W10")
@pytest.mark.parametrize("mode", ["staged", "single", "react"])
def test_arbitrary_replies_to_every_question_end_readably_and_destroy_nothing(
    tmp_path: Path, mode: str
) -> None:
    replies: Iterator[ModelReply] = iter(())
    model = ScriptedModel(lambda request: next(replies, _reply("That is all.")))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(open_office(tmp_path, model)) as (router, servers),
    ):

        @settings(max_examples=12)
        @given(st.lists(st.builds(_build_reply, _TEXTS, _CALLS), min_size=1, max_size=6))
        def attack(said: list[ModelReply]) -> None:
            nonlocal replies
            replies = iter(said)
            route = portal.call(partial(router.route, REQUEST, mode=mode, max_turns=3))
            assert not _faults(mode, route)
            assert not {"files/delete_file", "files/write_file"} & set(list_called(servers))

        attack()
