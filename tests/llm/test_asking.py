"""Asking for JSON: what fits is taken, what does not is put right once, nothing is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fingerpost.errors import ModelUnavailable
from fingerpost.llm import ModelReply, ModelRequest, ResponseSchema, ask_json
from fingerpost.records import JsonObject, Message
from fingerpost.testing import ScriptedModel, calls

SCHEMA: JsonObject = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
WANTED = ModelRequest(
    messages=(Message(role="user", text="a number, please"),), schema=ResponseSchema(name="n", schema=SCHEMA)
)


async def test_a_reply_that_fits_is_taken_at_once():
    model = ScriptedModel(['Sure: {"a": 3}'])
    answer = await ask_json(model.complete, WANTED)
    assert (answer.value, answer.problem, len(answer.replies)) == ({"a": 3}, "", 1)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        ('{"a": "three"}', "at $.a: 'three' is not of type 'integer'"),
        ("I would say three.", "there is no JSON in it"),
        ("", "it is empty"),
        ('{"a": 1e999}', "holds inf, which JSON cannot say"),
        (ModelReply(text='{"a": ', model="m", finish="length"), "cut off"),
        (calls(("look", {})), "a tool call instead of JSON"),
        ('{"a": 1, "b": [' + "1," * 30_000 + "1]}", "far too large"),
    ],
)
async def test_a_reply_that_does_not_fit_is_shown_to_the_model_once(first: str | ModelReply, told: str):
    model = ScriptedModel([first, '{"a": 3}'])
    answer = await ask_json(model.complete, WANTED)
    assert (answer.value, answer.problem, len(answer.replies)) == ({"a": 3}, "", 2)
    wish = model.asked[1].messages[-1]
    assert wish.role == "user"
    assert told in wish.text
    assert '"required": ["a"]' in wish.text
    assert sum(len(message.text) for message in model.asked[1].messages) < 10_000
    assert model.asked[1].schema == WANTED.schema


async def test_a_model_that_does_not_learn_gives_nothing_and_the_reason():
    answer = await ask_json(ScriptedModel(["no", "still no"]).complete, WANTED)
    assert answer.value is None
    assert answer.problem == "the reply does not fit: there is no JSON in it"
    assert [reply.text for reply in answer.replies] == ["no", "still no"]


async def test_without_repair_there_is_one_try():
    model = ScriptedModel(["no"])
    answer = await ask_json(model.complete, WANTED, repair=False)
    assert (answer.value, len(model.asked)) == (None, 1)
    assert answer.problem


async def test_a_model_that_fails_is_its_own_error():
    with pytest.raises(ModelUnavailable):
        await ask_json(ScriptedModel(["no", ModelUnavailable("gone", model="m")]).complete, WANTED)


async def test_without_a_schema_there_is_nothing_to_check():
    with pytest.raises(ValueError, match="needs a request with a schema"):
        await ask_json(ScriptedModel([]).complete, replace(WANTED, schema=None))
