"""What is sent to the two APIs, and what is read from them, field by field."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.llm import ModelReply, ModelRequest, ModelUsage, ResponseSchema
from fingerpost.llm.native import AnthropicDialect, GoogleDialect
from fingerpost.llm.native_formats import NativeRequest, build_closed_schema, build_plain_schema
from fingerpost.llm.stream import ReplyAssembler
from fingerpost.records import JsonObject, Message
from tests.kit.native_model_server import (
    KEY,
    Vendor,
    block_delta,
    block_start,
    content,
    create_error,
    create_stream,
    message,
    message_events,
    native,
    piece,
    text,
)
from tests.kit.tables import table

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
LOOK: JsonObject = {
    "type": "function",
    "function": {
        "name": "files__look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "anyOf": [{}]},
    },
}
ANSWER = ResponseSchema(
    name="answer",
    schema={
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": ["string", "null"]}},
        "required": ["a"],
    },
)


def call(id: str, name: str = "files__look", arguments: str = '{"path": "/x"}', **more: Any) -> JsonObject:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


TALK = (
    Message(role="system", text="be brief"),
    Message(role="user", text="look at /x"),
    Message(role="assistant", text="", tool_calls=(call("c:1"),)),
    Message(role="tool", text="it is empty", tool_call_id="c:1"),
    Message(role="user", text="and now?"),
)


async def test_anthropic_is_asked_as_it_wants_to_be_asked():
    vendor = Vendor(message(text("fine")))
    full = ModelRequest(
        messages=TALK, temperature=1.5, top_p=0.9, max_tokens=300, tools=(LOOK,), tool_choice="required"
    )
    async with native(vendor, "anthropic") as client:
        await client.complete(HELLO)
        await client.complete(full)
    plain, asked = vendor.asked
    assert vendor.paths == ["/v1/messages"] * 2
    assert vendor.headers[0]["x-api-key"] == KEY
    assert vendor.headers[0]["anthropic-version"] == "2023-06-01"
    words = [{"type": "text", "text": "hello"}]
    assert plain == {"model": "m-1", "max_tokens": 4096, "messages": [{"role": "user", "content": words}]}
    assert asked["system"] == "be brief"
    assert (asked["temperature"], asked["top_p"], asked["max_tokens"]) == (1.0, 0.9, 300)
    assert asked["tool_choice"] == {"type": "any"}
    assert asked["cache_control"] == {"type": "ephemeral"}
    (tool,) = asked["tools"]
    assert (tool["name"], tool["description"]) == ("files__look", "Looks.")
    assert tool["input_schema"] == {"type": "object", "properties": {"path": {"type": "string"}}}
    assert asked["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "look at /x"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c_1", "name": "files__look", "input": {"path": "/x"}}],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c_1", "content": "it is empty"},
                {"type": "text", "text": "and now?"},
            ],
        },
    ]


async def test_anthropic_is_read_with_calls_and_cached_tokens():
    called = {"type": "tool_use", "id": "toolu_1", "name": "files__look", "input": {"path": "/x"}}
    vendor = Vendor(message(text("I look."), called, {"type": "thinking", "thinking": "…"}, stop="tool_use"))
    async with native(vendor, "anthropic") as client:
        reply = await client.complete(HELLO)
    assert (reply.text, reply.finish, reply.model) == ("I look.", "tool_calls", "m-1-20260101")
    assert reply.usage == ModelUsage(prompt_tokens=15, completion_tokens=7)
    (only,) = reply.tool_calls
    assert only == call("toolu_1")


async def test_anthropic_streams_calls_in_pieces():
    events = message_events(
        block_start(0, {"type": "thinking", "thinking": ""}),
        block_delta(0, type="thinking_delta", thinking="hmm"),
        block_start(1, {"type": "text", "text": ""}),
        block_delta(1, type="text_delta", text="Two."),
        block_start(2, {"type": "tool_use", "id": "t1", "name": "files__look", "input": {}}),
        block_delta(2, type="input_json_delta", partial_json='{"pa'),
        block_start(3, {"type": "tool_use", "id": "t2", "name": "other", "input": {}}),
        block_delta(2, type="input_json_delta", partial_json='th": "/x"}'),
        stop="tool_use",
    )
    received: list[str] = []
    vendor = Vendor(create_stream(events))
    async with native(vendor, "anthropic") as client:
        reply = await client.complete(HELLO, on_text=received.append)
    assert vendor.asked[0]["stream"] is True
    assert received == ["Two."]
    assert reply.tool_calls == (call("t1"), call("t2", "other", "{}"))
    assert reply.usage == ModelUsage(prompt_tokens=10, completion_tokens=7)
    assert reply.finish == "tool_calls"


async def test_anthropic_enforces_a_closed_shape_and_is_told_an_open_one():
    opened = ResponseSchema(
        name="open", schema={"type": "object", "properties": {"arguments": {"type": "object"}}}
    )
    vendor = Vendor(message(text("{}")))
    async with native(vendor, "anthropic") as client:
        await client.complete(ModelRequest(messages=TALK, schema=ANSWER))
        await client.complete(ModelRequest(messages=TALK, schema=opened))
    enforced, described = vendor.asked
    schema = enforced["output_config"]["format"]["schema"]
    assert enforced["output_config"]["format"]["type"] == "json_schema"
    assert schema["additionalProperties"] is False
    assert schema["properties"]["a"] == {"type": "integer"}  # it cannot enforce bounds; we check them anyway
    assert schema["properties"]["b"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert "output_config" not in described
    assert described["system"].startswith("be brief\n\n")
    assert json.dumps(opened.schema) in described["system"]


@table(
    ("refusal", "gone"),
    [
        ("`temperature` is deprecated for this model.", "temperature"),
        ("`temperature` and `top_p` cannot both be specified for this model.", "top_p"),
        ("output_config.format.schema: too complex", "output_config"),
        ("cache_control: Extra inputs are not permitted", "cache_control"),
    ],
)
async def test_what_an_anthropic_model_does_not_take_is_left_out_from_then_on(refusal: str, gone: str):
    vendor = Vendor(create_error(400, refusal), message(text("fine")))
    asked = ModelRequest(messages=TALK, temperature=0.1, top_p=0.5, schema=ANSWER, tools=(LOOK,))
    async with native(vendor, "anthropic") as client:
        for _ in range(2):
            assert (await client.complete(asked)).text == "fine"
    options = {"temperature", "top_p", "output_config", "cache_control"}
    assert [options - set(body) for body in vendor.asked] == [set(), {gone}, {gone}]
    if gone == "output_config":
        assert json.dumps(ANSWER.schema) in vendor.asked[-1]["system"]


async def test_a_key_refused_under_the_old_version_works_under_the_new_one():
    vendor = Vendor(
        create_error(400, "anthropic-version: 2023-06-01 is not available"), message(text("fine"))
    )
    async with native(vendor, "anthropic") as client:
        await client.complete(ModelRequest(messages=TALK, temperature=0.1, top_p=0.5))
    assert [headers["anthropic-version"] for headers in vendor.headers] == ["2023-06-01", "2026-10-21"]
    assert vendor.headers[1]["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in vendor.headers[1]
    assert not {"temperature", "top_p"} & set(vendor.asked[1])  # it takes neither


async def test_a_request_that_stays_refused_ends():
    vendor = Vendor(create_error(400, "temperature temperature"))
    async with native(vendor, "anthropic") as client:
        with pytest.raises(Exception, match="refused the request"):
            await client.complete(ModelRequest(messages=TALK, temperature=0.1))
    assert len(vendor.asked) == 2


async def test_google_is_asked_as_it_wants_to_be_asked():
    vendor = Vendor(content({"text": "fine"}), create_stream([piece({"text": "x"}, finish="STOP")]))
    full = ModelRequest(
        messages=TALK, temperature=1.5, top_p=0.9, max_tokens=300, tools=(LOOK,), tool_choice="none"
    )
    async with native(vendor, "google") as client:
        await client.complete(HELLO)
        await client.complete(full, on_text=lambda _: None)
    plain, asked = vendor.asked
    assert vendor.paths == [
        "/v1beta/models/m-1:generateContent",
        "/v1beta/models/m-1:streamGenerateContent?alt=sse",
    ]
    assert vendor.headers[0]["x-goog-api-key"] == KEY
    assert plain == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}
    assert asked["systemInstruction"] == {"parts": [{"text": "be brief"}]}
    assert asked["generationConfig"] == {"temperature": 1.5, "topP": 0.9, "maxOutputTokens": 300}
    assert asked["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}
    (declared,) = asked["tools"][0]["functionDeclarations"]
    assert declared["name"] == "files__look"
    assert declared["parametersJsonSchema"]["properties"] == {"path": {"type": "string"}}
    called = {"id": "c:1", "name": "files__look", "args": {"path": "/x"}}
    answered = {"id": "c:1", "name": "files__look", "response": {"output": "it is empty"}}
    assert asked["contents"] == [
        {"role": "user", "parts": [{"text": "look at /x"}]},
        {
            "role": "model",
            "parts": [{"functionCall": called, "thoughtSignature": "skip_thought_signature_validator"}],
        },
        {"role": "user", "parts": [{"functionResponse": answered}]},
        {"role": "user", "parts": [{"text": "and now?"}]},
    ]


async def test_google_is_read_with_calls_thoughts_and_its_mark():
    first = {"functionCall": {"name": "files__look", "args": {"path": "/x"}}, "thoughtSignature": "c2ln"}
    second = {"functionCall": {"id": "g2", "name": "other"}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 4, "thoughtsTokenCount": 6}
    vendor = Vendor(
        content({"text": "hmm", "thought": True}, {"text": "I look."}, first, second, usageMetadata=usage)
    )
    async with native(vendor, "google") as client:
        reply = await client.complete(HELLO)
        one, two = reply.tool_calls
        history = (
            Message(role="user", text="look"),
            Message(role="assistant", text=reply.text, tool_calls=reply.tool_calls),
            *(Message(role="tool", text="ok", tool_call_id=str(entry["id"])) for entry in reply.tool_calls),
        )
        await client.complete(ModelRequest(messages=history, tools=(LOOK,)))
    assert (reply.text, reply.finish, reply.model) == ("I look.", "tool_calls", "m-1-001")
    assert reply.usage == ModelUsage(prompt_tokens=10, completion_tokens=10)
    assert one["function"] == {"name": "files__look", "arguments": '{"path": "/x"}'}
    assert two == call("g2", "other", "{}")
    model_turn = vendor.asked[1]["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in model_turn] == [None, "c2ln", None]


async def test_google_enforces_a_shape_where_there_are_no_tools():
    vendor = Vendor(
        content({"text": "{}"}), content({"text": "{}"}), create_error(400, "Unknown response_mime_type")
    )
    async with native(vendor, "google") as client:
        await client.complete(ModelRequest(messages=TALK, schema=ANSWER))
        await client.complete(ModelRequest(messages=TALK, schema=ANSWER, tools=(LOOK,)))
    enforced, described = (body.get("generationConfig", {}) for body in vendor.asked)
    assert enforced["responseMimeType"] == "application/json"
    assert enforced["responseJsonSchema"]["properties"]["a"] == {"type": "integer", "minimum": 1}
    assert described == {}
    assert json.dumps(ANSWER.schema) in vendor.asked[1]["systemInstruction"]["parts"][0]["text"]


async def test_google_takes_names_that_begin_with_a_digit():
    digits: JsonObject = {"type": "function", "function": {"name": "1password__get"}}
    vendor = Vendor(content({"functionCall": {"id": "g", "name": "_1password__get", "args": {}}}))
    async with native(vendor, "google") as client:
        reply = await client.complete(ModelRequest(messages=HELLO.messages, tools=(digits,)))
    assert vendor.asked[0]["tools"][0]["functionDeclarations"][0]["name"] == "_1password__get"
    assert reply.tool_calls == (call("g", "1password__get", "{}"),)


@table(
    ("dialect", "base", "model", "address"),
    [
        (AnthropicDialect(), None, "m", "https://api.anthropic.com/v1/messages"),
        (AnthropicDialect(), "http://h/v1/", "m", "http://h/v1/messages"),
        (
            GoogleDialect(),
            None,
            "m",
            "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent",
        ),
        (
            GoogleDialect(),
            "http://h/v1",
            "tunedModels/my m",
            "http://h/v1/tunedModels/my%20m:generateContent",
        ),
    ],
)
def test_where_it_is_asked(
    dialect: AnthropicDialect | GoogleDialect, base: str | None, model: str, address: str
):
    assert dialect.build_url(base, model, streamed=False) == address


roles = st.sampled_from(["system", "user", "assistant", "tool", "developer"])
ids = st.sampled_from(["a", "b", "c d", ""])
written = st.builds(call, ids, arguments=st.sampled_from(["{}", '{"a": 1}', "[1]", "{", "", "null"]))
messages = st.builds(
    Message,
    role=roles,
    text=st.sampled_from(["", " ", "x", "y\ud800"]),
    tool_calls=st.lists(written | st.just({"id": 7}), max_size=3).map(tuple),
    tool_call_id=ids | st.none(),
)


@pytest.mark.slow
@given(st.lists(messages, max_size=8), st.booleans())
def test_turns_alternate_and_every_call_has_its_result(history: list[Message], with_tools: bool):
    request = ModelRequest(messages=tuple(history), tools=(LOOK,) if with_tools else ())
    body: Any = AnthropicDialect().build_body(NativeRequest(request=request, model="m"))
    json.dumps(body).encode()
    turns: list[dict[str, Any]] = body["messages"]
    after: list[dict[str, Any]] = [*turns[1:], {"content": []}]
    assert [turn["role"] for turn in turns] == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    for turn, following in zip(turns, after, strict=True):
        calls = [block["id"] for block in turn["content"] if block["type"] == "tool_use"]
        kinds = [block["type"] for block in following["content"]]
        results = [block["tool_use_id"] for block in following["content"] if block["type"] == "tool_result"]
        assert sorted(calls) == sorted(results)
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        assert turn["content"]
        assert all(block["text"].strip() for block in turn["content"] if block["type"] == "text")
    google: Any = GoogleDialect().build_body(NativeRequest(request=request, model="m"))
    assert google["contents"][0]["role"] == google["contents"][-1]["role"] == "user"
    assert all(entry["parts"] for entry in google["contents"])


names = st.sampled_from(
    [
        *("type", "index", "delta", "content_block", "message", "usage", "text", "input", "name", "id"),
        *("candidates", "content", "parts", "functionCall", "finishReason", "thought", "partial_json"),
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["text", "tool_use", "STOP"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=15,
)
kinds = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", None]
)


@pytest.mark.slow
@given(st.lists(st.tuples(kinds, anything), max_size=6))
def test_no_event_whatever_it_holds_breaks_the_reading(events: list[tuple[str | None, Any]]):
    for dialect in (AnthropicDialect(), GoogleDialect()):
        draft, reader = ReplyAssembler("m", 10_000), dialect.create_reader()
        for kind, value in events:
            fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {"content": value}
            "".join(draft.add_chunks(reader.translate({**fields, "type": kind})))
            "".join(ReplyAssembler("m", 10_000).add_chunks(dialect.create_reader().translate_whole(fields)))
        draft.ended = False
        "".join(draft.add_chunks([{"choices": [{"delta": {}, "finish_reason": "stop"}]}]))
        whole = draft.build_reply()
        assert isinstance(whole, ModelReply)
        json.dumps(whole.tool_calls)


schemas = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "null", "array", "object"])})
    | st.just(dict[str, Any]())
    | st.just({"enum": ["a", 1]}),
    lambda inner: (
        st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            },
            optional={"additionalProperties": st.booleans() | inner, "minProperties": st.just(1)},
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner, "uniqueItems": st.just(True)})
        | st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)})
    ),
    max_leaves=6,
)


@given(schemas)
def test_a_closed_schema_closes_every_object_and_keeps_only_what_is_enforced(schema: dict[str, Any]):
    closed = build_closed_schema(schema)

    def check(part: Any) -> None:
        if isinstance(part, dict):
            fields = cast("dict[str, Any]", part)
            if fields.get("type") == "object":
                assert fields["additionalProperties"] is False
            assert not {"uniqueItems", "minProperties", "oneOf"} & set(fields)
            for inside in fields.values():
                check(inside)
        elif isinstance(part, list):
            for inside in cast("list[Any]", part):
                check(inside)

    if closed is not None:
        check(closed)
    assert build_plain_schema(schema) is not None
