"""What a caller brings on the wire: options as they wrote them, another model's name, images and files."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ModelRefused
from fingerpost.llm import ModelPool, ModelReply, ModelRequest, ResponseSchema, Role
from fingerpost.llm.openai_chat import build_body
from fingerpost.records import JsonObject, Message
from fingerpost.testing import ScriptedModel
from tests.kit.model_server import ModelServer, chat, create_error, create_reply
from tests.kit.native_model_server import Vendor, content, message, native, text
from tests.kit.tables import table
from tests.requirements import proves

HELLO = Message(role="user", text="hello")
PICTURE: JsonObject = {
    "type": "image_url",
    "image_url": {"url": "data:image/png;base64,QUJD", "detail": "low"},
}
WORDS: JsonObject = {"type": "text", "text": "hello"}
NAMED: JsonObject = {"type": "function", "function": {"name": "look"}}
LOOK: JsonObject = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
SHAPE: JsonObject = {
    "type": "json_schema",
    "json_schema": {"name": "sum", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}


def create_request(**options: Any) -> ModelRequest:
    return ModelRequest(messages=(HELLO,), temperature=0.2, max_tokens=300, options=options)


@proves("O1")
async def test_options_go_out_as_they_were_written_known_to_the_package_or_not() -> None:
    model = ModelServer(create_reply("fine"))
    options_request = create_request(
        temperature=1.5, seed=7, stop=["x"], logit_bias={"50256": -100}, brand_new={"deep": [1, None]}
    )
    async with chat(model) as client:
        await client.complete(options_request)
        await client.complete(
            create_request(max_completion_tokens=9, model="no", messages=[], stream=True, n=3)
        )
    first, second = model.asked
    assert {name: first[name] for name in options_request.options} == options_request.options
    assert first["max_tokens"] == 300
    assert second == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.2,
        "max_completion_tokens": 9,
    }


async def test_an_option_of_the_callers_that_is_refused_is_told_and_ours_are_still_sent() -> None:
    def picky(body: dict[str, Any]) -> Any:
        if body.get("temperature", 0) > 2:
            return create_error(400, "temperature is at most 2", param="temperature")
        return create_reply("fine")

    model = ModelServer(picky)
    async with chat(model) as client:
        with pytest.raises(ModelRefused, match="at most 2"):
            await client.complete(create_request(temperature=5))
        await client.complete(create_request())
    assert [body["temperature"] for body in model.asked] == [5, 0.2]


async def test_another_model_at_the_same_address_is_asked_and_named_in_its_errors() -> None:
    def some(body: dict[str, Any]) -> Any:
        return create_reply("fine") if body["model"] != "gone" else create_error(404, "no such model")

    model = ModelServer(some)
    async with chat(model) as client:
        await client.complete(ModelRequest(messages=(HELLO,), model="bigger"))
        with pytest.raises(ModelRefused, match=r"gone refused the request \(status 404\)"):
            await client.complete(ModelRequest(messages=(HELLO,), model="gone"))
    assert [body["model"] for body in model.asked] == ["bigger", "gone"]


async def test_a_model_requested_by_name_has_no_fallback_and_its_own_capabilities() -> None:
    no = ModelReply(text="no", model="other")
    prime = ScriptedModel([no, no, no, ModelRefused("no", model="gone")])
    lite = ScriptedModel([])
    pool = ModelPool(lite=lite, prime=prime)
    must = ModelRequest(messages=(HELLO,), tools=(LOOK,), tool_choice="required", model="other")
    for _ in range(3):
        await pool.ask(Role.PRIME, must)
    assert (await pool.capabilities(Role.PRIME, model="other")).tools is False
    assert (await pool.capabilities(Role.PRIME)).tools is None
    with pytest.raises(ModelRefused):
        await pool.ask(Role.PRIME, ModelRequest(messages=(HELLO,), model="gone"))
    assert not lite.asked


@table(
    ("message", "expected"),
    [
        (Message(role="user", text="hello", parts=(PICTURE, WORDS)), [PICTURE, WORDS]),
        (Message(role="user", text="hello", parts=(PICTURE,)), [WORDS, PICTURE]),
        (
            Message(role="user", text="hell […]", parts=(WORDS, PICTURE)),
            [{**WORDS, "text": "hell […]"}, PICTURE],
        ),
        (Message(role="user", text="", parts=(PICTURE,)), [PICTURE]),
        (Message(role="user", text="hi", parts=(WORDS,)), "hi"),
    ],
)
def test_parts_go_out_as_written_unless_the_words_were_changed(message: Message, expected: Any) -> None:
    (sent,) = cast("Any", build_body(ModelRequest(messages=(message,)), model="m"))["messages"]
    assert sent["content"] == expected


def test_a_turn_in_a_shape_of_ours_is_not_asked_for_in_the_callers() -> None:
    ours = ResponseSchema(name="turn", schema={"type": "object"})
    request = ModelRequest(messages=(HELLO,), schema=ours, options={"response_format": SHAPE})
    asked = cast("Any", build_body(request, model="m"))["response_format"]
    assert asked["json_schema"]["name"] == "turn"


OPTION = st.sampled_from(
    [
        "temperature",
        "max_tokens",
        "max_completion_tokens",
        "stop",
        "response_format",
        "seed",
        "n",
        "stream",
        "odd",
    ]
)


@given(options=st.dictionaries(OPTION, st.none() | st.integers() | st.text(max_size=5)), newer=st.booleans())
def test_whatever_a_caller_writes_is_sent_once_and_never_beside_ours(
    options: dict[str, Any], newer: bool
) -> None:
    without = ("max_tokens",) if newer else ()
    body = build_body(create_request(**options), model="m", without=without)
    assert body["model"] == "m"
    assert "n" not in body
    assert "stream" not in body
    assert not {"max_tokens", "max_completion_tokens"} <= set(body) or {
        "max_tokens",
        "max_completion_tokens",
    } <= set(options)
    for name in set(options) - {"n", "stream", "max_tokens", "max_completion_tokens"}:
        assert body.get(name) == options[name]


def full() -> ModelRequest:
    return ModelRequest(
        messages=(
            Message(role="developer", text="be brief"),
            Message(role="user", text="hello", parts=(WORDS, PICTURE, {"type": "odd"})),
        ),
        temperature=0.2,
        max_tokens=300,
        tools=(LOOK,),
        tool_choice=NAMED,
        model="m-2",
        options={"max_completion_tokens": 50, "temperature": 0.9, "stop": "END", "seed": 3, "unknown": 1},
    )


async def test_anthropic_gets_what_it_knows_of_them() -> None:
    vendor = Vendor(message(text("fine")))
    async with native(vendor, "anthropic") as client:
        await client.complete(full())
    (asked,) = vendor.asked
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("m-2", 50, 0.9)
    assert asked["stop_sequences"] == ["END"]
    assert asked["tool_choice"] == {"type": "tool", "name": "look"}
    assert asked["system"] == "be brief"
    assert not {"seed", "unknown", "stop"} & set(asked)
    words, picture, odd = asked["messages"][0]["content"]
    assert words == {"type": "text", "text": "hello"}
    assert picture["source"] == {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    assert "cannot be shown" in odd["text"]


async def test_google_gets_what_it_knows_of_them() -> None:
    vendor = Vendor(content({"text": "fine"}))
    async with native(vendor, "google") as client:
        await client.complete(full())
        await client.complete(ModelRequest(messages=(HELLO,), options={"response_format": SHAPE}))
    asked, shaped = vendor.asked
    assert "m-2" in vendor.paths[0]
    config = asked["generationConfig"]
    assert (config["maxOutputTokens"], config["temperature"], config["seed"]) == (50, 0.9, 3)
    assert config["stopSequences"] == ["END"]
    assert asked["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "allowedFunctionNames": ["look"]}
    assert asked["contents"][0]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "QUJD"}}
    assert shaped["generationConfig"]["responseMimeType"] == "application/json"
