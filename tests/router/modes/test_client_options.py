"""Options, another model, images, system messages: for the model that answers, and for no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fingerpost.errors import ModelRefused
from fingerpost.llm import ModelReply
from fingerpost.records import JsonObject, Message, RouteOutcome
from fingerpost.records.codec import to_plain
from fingerpost.testing import ScriptedModel
from tests.kit.call_recorder import read_journal
from tests.kit.caller_tools import (
    NO_TOOLS,
    OWN,
    REQUEST,
    SEARCH,
    call,
    join_texts,
    open_recorder,
    reply_with_calls,
)
from tests.kit.routers import get_purpose, script_model, write_review, write_selection
from tests.requirements import proves

PICTURE: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJDREVG"}}
SHAPE: JsonObject = {"type": "json_schema", "json_schema": {"name": "sum", "schema": {"type": "object"}}}
QUERY = {"query": "budget"}


def chooser(answer: str = "4,200, by notes/search_notes.") -> ScriptedModel:
    return script_model(
        selection=lambda request: write_selection(SEARCH, QUERY),
        review=lambda request: write_review(),
        answer=lambda request: answer,
    )


@proves("O1")
async def test_options_reach_the_model_that_answers_and_no_other(tmp_path: Path) -> None:
    model = chooser()
    options: JsonObject = {"temperature": 1.3, "seed": 7, "stop": ["."], "something_new": {"a": 1}}
    async with open_recorder(tmp_path, model) as (router, _):
        await router.route(REQUEST, mode="staged", options=options, model="bigger")
    prompt = {get_purpose(request): (request.options, request.model) for request in model.asked}
    assert prompt == {"selection": ({}, None), "review": ({}, None), "answer": (options, "bigger")}


@proves("O1")
@pytest.mark.parametrize("mode", ["staged", "simple", "react"])
async def test_an_answer_in_the_callers_shape_is_passed_on_as_it_was_written(
    tmp_path: Path, mode: str
) -> None:
    text = json.dumps({"name": "search_notes", "arguments": {"query": "x"}})  # reads like a call, and is none
    scripts: dict[str, Any] = {
        "staged": [write_selection(SEARCH, QUERY), write_review(), text],
        "simple": [reply_with_calls(call(SEARCH, **QUERY)), text],
        "react": [reply_with_calls(call(SEARCH, **QUERY)), text],
    }
    model = ScriptedModel(scripts[mode])
    pieces: list[str] = []
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route(
            REQUEST, mode=mode, options={"response_format": SHAPE}, on_text=pieces.append
        )
    assert len(server.calls) == 1, route.trace
    assert route.answer == "".join(pieces) == text  # no source is named, nothing is taken out
    assert model.asked[-1].schema is None
    assert model.asked[-1].options == {"response_format": SHAPE}


async def test_a_model_without_tools_decides_in_our_shape_and_answers_in_the_callers(tmp_path: Path) -> None:
    turn = '{"calls": [], "answer": "It is 4,200."}'
    model = ScriptedModel([NO_TOOLS, turn, '{"sum": 4200}'])
    async with open_recorder(tmp_path, model) as (router, _):
        await router.route(REQUEST, mode="simple")
        route = await router.route(REQUEST, mode="simple", options={"response_format": SHAPE})
    assert route.answer == '{"sum": 4200}'
    assert [request.schema is None for request in model.asked] == [True, False, True]


@proves("O5")
async def test_an_unavailable_model_is_an_error_without_a_fallback(tmp_path: Path) -> None:
    gone = ModelRefused("gpt-9 refused the request (status 404): no such model", model="gpt-9")
    model = ScriptedModel([gone])
    async with open_recorder(tmp_path, model) as (router, server):
        route = await router.route(REQUEST, mode="simple", model="gpt-9")
    assert route.outcome is RouteOutcome.FAILED
    assert route.failure is gone
    assert not server.calls
    assert len(model.asked) == 1


@proves("O1")
@pytest.mark.parametrize(("finish", "text"), [("length", "length"), ("tool_calls", "stop"), (None, "stop")])
async def test_why_the_model_ended_is_told(tmp_path: Path, finish: str | None, text: str) -> None:
    model = ScriptedModel([ModelReply(text="Half of it", model="m", finish=finish)])
    async with open_recorder(tmp_path, model) as (router, _):
        route = await router.route("Hello!", mode="simple")
    assert (route.answer, route.finish) == ("Half of it", text)


@proves("O1")
async def test_pictures_reach_the_model_that_answers_and_neither_others_nor_the_journal(
    tmp_path: Path,
) -> None:
    model = chooser()
    earlier = Message(role="user", text="", parts=(PICTURE,))
    history = (earlier, Message(role="assistant", text="A nice picture."))
    async with open_recorder(tmp_path, model) as (router, _):
        route = await router.route(REQUEST, mode="staged", parts=(PICTURE,), history=history)
        kept = json.dumps([to_plain(event) for event in await read_journal(router, route)])
    assert "QUJDREVG" not in kept
    by = {get_purpose(request): request for request in model.asked}
    for purpose in ("selection", "review"):
        assert not any(message.parts for message in by[purpose].messages)
        assert "[image]" in join_texts([by[purpose]])
    answering = by["answer"].messages
    assert answering[1] == earlier
    assert answering[-1].parts == (PICTURE,)
    assert answering[-1].text.startswith(REQUEST)


@proves("O1")
async def test_a_callers_system_message_is_the_persona_and_outlives_the_history(tmp_path: Path) -> None:
    rule = Message(role="system", text="You are a pirate.")
    later = Message(role="developer", text="Speak in rhymes.")
    talk = [Message(role=role, text="word " * 400) for _ in range(40) for role in ("user", "assistant")]
    history = (rule, *talk[:2], later, *talk[2:])
    model = ScriptedModel(lambda request: "Arr." if request.messages[-1].text == "Hello!" else "A summary.")
    async with open_recorder(tmp_path, model, choose={"persona": "You are a butler."}) as (router, _):
        short = await router.route("Hello!", mode="simple", history=(rule,))
        plain = await router.route("Hello!", mode="simple")
        long = await router.route("Hello!", mode="simple", history=history)
    assert [route.answer for route in (short, plain, long)] == ["Arr."] * 3
    first, second, summary, last = model.asked
    assert first.messages == (rule, Message(role="user", text="Hello!"))
    assert "butler" in second.messages[0].text
    assert "pirate" not in join_texts([summary])
    assert last.messages[0].text.endswith(rule.text)
    assert later in last.messages
    assert len(last.messages) < len(history)


async def test_with_tools_in_use_the_callers_system_message_follows_ours_in_one(tmp_path: Path) -> None:
    rule = Message(role="system", text="You are a pirate.")
    model = ScriptedModel(["Arr."])
    async with open_recorder(tmp_path, model) as (router, _):
        route = await router.route(REQUEST, mode="simple", history=(rule,), caller_tools=OWN)
    assert route.answer == "Arr."
    (asked,) = model.asked
    assert [message.role for message in asked.messages] == ["system", "user"]
    assert asked.messages[0].text.endswith("\n\nYou are a pirate.")
    assert len(asked.messages[0].text) < 2_000
    assert asked.messages[1].text == REQUEST
