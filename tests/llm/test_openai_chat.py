"""The adapter for OpenAI-compatible models, against a real server over HTTP."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import anyio
import pytest
from starlette.responses import JSONResponse, Response

from fingerpost.errors import (
    ConfigError,
    ModelError,
    ModelRefused,
    ModelReplyInvalid,
    ModelTimeout,
    ModelUnavailable,
)
from fingerpost.llm import ModelRequest, ModelUsage, OpenAIChat, ResponseSchema
from fingerpost.records import JsonObject, Message
from fingerpost.settings import ModelSettings
from fingerpost.testing import served
from tests.kit.model_server import (
    KEY,
    Hanging,
    ModelServer,
    chat,
    compress_reply,
    create_error,
    create_reply,
    endless,
    raw,
)
from tests.kit.tables import table
from tests.requirements import proves

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
SCHEMA = ResponseSchema(name="answer", schema={"type": "object", "properties": {"a": {"type": "integer"}}})


async def test_a_reply_comes_with_its_text_its_model_its_tokens_and_its_time():
    model = ModelServer(create_reply("hi there"))
    async with chat(model) as client:
        reply = await client.complete(HELLO)
    assert reply.text == "hi there"
    assert reply.model == "tiny-1"
    assert reply.usage == ModelUsage(prompt_tokens=12, completion_tokens=3)
    assert ModelUsage(prompt_tokens=12, completion_tokens=3).total == 15
    assert reply.finish == "stop"
    assert reply.milliseconds > 0
    assert model.headers[0]["authorization"] == f"Bearer {KEY}"


@proves("E2")
async def test_only_what_was_asked_for_is_sent():
    model = ModelServer(create_reply("{}"))
    async with chat(model) as client:
        await client.complete(HELLO)
        await client.complete(
            ModelRequest(
                messages=(Message(role="system", text="be brief"), *HELLO.messages),
                temperature=0.1,
                max_tokens=300,
                top_p=0.9,
                schema=SCHEMA,
                tools=({"type": "function", "function": {"name": "look", "parameters": {}}},),
            )
        )
    plain, full = model.asked
    assert plain == {"model": "tiny", "messages": [{"role": "user", "content": "hello"}]}
    assert (full["temperature"], full["max_tokens"], full["top_p"]) == (0.1, 300, 0.9)
    assert full["messages"][0] == {"role": "system", "content": "be brief"}
    assert full["response_format"]["type"] == "json_schema"
    assert full["response_format"]["json_schema"]["schema"] == SCHEMA.schema
    assert full["tools"][0]["function"]["name"] == "look"


async def test_tool_calls_are_handed_over_as_they_were_written():
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{"}}
    choice = {"finish_reason": "tool_calls", "message": {"content": None, "tool_calls": [call, 7]}}
    async with chat(ModelServer(create_reply("", choices=[choice]))) as client:
        reply = await client.complete(HELLO)
    assert reply.text == ""
    assert reply.tool_calls == (call,)
    assert reply.finish == "tool_calls"


@pytest.mark.parametrize(
    "first",
    [
        create_error(429, "slow down", {"retry-after": "0.05"}),
        create_error(500, "oops"),
        create_error(503, "busy"),
    ],
)
async def test_an_overloaded_server_is_asked_once_more(first: Any):
    model = ModelServer(first, create_reply("better now"))
    async with chat(model) as client:
        assert (await client.complete(HELLO)).text == "better now"
    assert len(model.asked) == 2


@pytest.mark.parametrize(("status", "words"), [(429, "is overloaded"), (500, "failed"), (502, "failed")])
async def test_a_server_that_stays_overloaded_is_unavailable_after_its_retries(status: int, words: str):
    for retries in (0, 2):
        model = ModelServer(create_error(status, "no capacity", {"retry-after": "0.01"}))
        async with chat(model, retries=retries) as client:
            with pytest.raises(ModelUnavailable, match=f"tiny {words} .*no capacity"):
                await client.complete(HELLO)
        assert len(model.asked) == 1 + retries


async def test_an_error_whose_text_breaks_off_is_still_an_error_worth_another_try():
    cut = Response(b'{"error": "wor', 503, headers={"content-length": "500"})
    model = ModelServer(cut, create_reply("better now"))
    async with chat(model) as client:
        assert (await client.complete(HELLO)).text == "better now"
    model = ModelServer(cut)
    async with chat(model, retries=0) as client:
        with pytest.raises(ModelUnavailable, match="tiny cannot be reached"):
            await client.complete(HELLO)


async def test_a_wait_that_would_outlast_the_timeout_is_not_begun():
    model = ModelServer(create_error(429, "come back later", {"retry-after": "9"}))
    async with chat(model, timeout=5) as client:
        with pytest.raises(ModelUnavailable, match="come back later"):
            await client.complete(HELLO)
    assert len(model.asked) == 1


async def test_an_error_sent_as_an_answer_is_an_error():
    busy = create_reply("x", choices=None, error={"message": "worker died", "code": 502})
    model = ModelServer(busy, create_reply("fine"))
    async with chat(model) as client:
        assert (await client.complete(HELLO)).text == "fine"
    model = ModelServer(create_reply("x", choices=[], error={"message": "context too long", "code": 400}))
    async with chat(model) as client:
        with pytest.raises(ModelRefused, match="context too long"):
            await client.complete(HELLO)
    assert len(model.asked) == 1


async def test_a_conversation_with_tools_is_sent_as_the_format_has_it():
    call = {"id": "call_1", "function": {"name": "look", "arguments": {"at": "é"}}, "index": 0}
    asked = ModelRequest(
        messages=(
            *HELLO.messages,
            Message(role="assistant", text="", tool_calls=(call,)),
            Message(role="tool", text="a cat", tool_call_id="call_1"),
        ),
        tools=({"type": "function", "function": {"name": "look", "parameters": {}}},),
        tool_choice="auto",
    )
    model = ModelServer(create_reply("a cat"))
    async with chat(model) as client:
        await client.complete(asked)
        await client.complete(replace(asked, tools=()))
    function = {"name": "look", "arguments": '{"at": "é"}'}
    assert model.asked[0]["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "a cat", "tool_call_id": "call_1"},
    ]
    assert model.asked[0]["tool_choice"] == "auto"
    assert "tools" not in model.asked[1]
    assert "tool_choice" not in model.asked[1]


async def test_no_tool_at_all_still_means_none_where_the_server_cannot_be_told_so():
    def picky(body: dict[str, Any]) -> Any:
        return (
            create_error(400, "unknown field tool_choice") if "tool_choice" in body else create_reply("fine")
        )

    tool: JsonObject = {"type": "function", "function": {"name": "look", "parameters": {}}}
    model = ModelServer(picky)
    async with chat(model) as client:
        for choice in ("required", "none"):
            await client.complete(replace(HELLO, tools=(tool,), tool_choice=choice))
    assert [("tools" in body, "tool_choice" in body) for body in model.asked] == [
        (True, True),
        (True, False),
        (False, False),
    ]


async def test_a_name_and_an_address_make_a_model():
    model = ModelServer(create_reply("hi"))
    async with served(model.app) as address, OpenAIChat("tiny", base_url=f"{address}/v1") as client:
        assert (await client.complete(HELLO)).text == "hi"
        assert client.settings == ModelSettings(model="tiny", base_url=f"{address}/v1")
    configured = ModelSettings(model="tiny", retries=7)
    assert OpenAIChat(configured, timeout=3).settings == configured.model_copy(update={"timeout": 3.0})


def test_a_model_that_cannot_be_is_refused_with_the_reason():
    with pytest.raises(ConfigError, match=r"timeout: .*greater than 0"):
        OpenAIChat("tiny", timeout=-1)


async def test_a_server_that_asks_for_too_much_patience_is_not_waited_for():
    model = ModelServer(create_error(429, "quota used up", {"retry-after": "30"}))
    async with chat(model, timeout=3600, retries=1) as client:
        with pytest.raises(ModelUnavailable, match="quota used up"):
            await client.complete(HELLO)
    assert len(model.asked) == 1


@table("status", [400, 401, 403, 404, 422, 307])
async def test_a_request_that_is_refused_is_not_repeated(status: int):
    model = ModelServer(create_error(status, f"no: {KEY}", {"location": "http://127.0.0.1:9/"}))
    async with chat(model) as client:
        with pytest.raises(ModelRefused) as refusal:
            await client.complete(HELLO)
    assert len(model.asked) == 1
    assert str(status) in str(refusal.value)
    assert refusal.value.model == "tiny"


async def test_a_server_that_fails_because_it_never_could_is_not_asked_again():
    model = ModelServer(create_error(500, "tools param requires --jinja flag"))
    async with chat(model) as client:
        with pytest.raises(ModelRefused, match="requires --jinja"):
            await client.complete(HELLO)
    assert len(model.asked) == 1


async def test_the_key_is_never_in_a_message():
    for answer in (create_error(401, f"Incorrect API key provided: {KEY}"), raw(f"<b>{KEY}</b>".encode())):
        async with chat(ModelServer(answer)) as client:
            with pytest.raises(ModelError) as failure:
                await client.complete(HELLO)
        assert KEY not in str(failure.value)
        assert KEY not in repr(failure.value)


async def test_an_option_the_model_does_not_take_is_left_out_from_then_on():
    def picky(body: dict[str, Any]) -> Any:
        if "temperature" in body:
            return create_error(400, "only the default is supported", param="temperature")
        if "max_tokens" in body:
            return create_error(400, "use max_completion_tokens", param="max_tokens")
        if "top_p" in body:
            return JSONResponse({"detail": [{"loc": ["body", "top_p"], "msg": "Extra inputs"}]}, 422)
        if "response_format" in body:
            return create_error(422, "this server does not support response_format json_schema")
        return create_reply("fine")

    model = ModelServer(picky)
    asked = ModelRequest(messages=HELLO.messages, temperature=0.1, max_tokens=300, top_p=0.9, schema=SCHEMA)
    async with chat(model) as client:
        assert (await client.complete(asked)).text == "fine"
        assert len(model.asked) == 5
        await client.complete(asked)
    assert len(model.asked) == 6
    assert set(model.asked[-1]) == {"model", "messages", "max_completion_tokens"}


async def test_a_server_that_hangs_is_a_timeout_and_its_connection_is_closed():
    model = Hanging(create_reply("never"))
    async with chat(model, timeout=1) as client:
        with pytest.raises(ModelTimeout, match="did not answer within 1 s"):
            await client.complete(HELLO)
        with anyio.fail_after(30):
            await model.gone.wait()


async def test_cancelling_ends_the_request():
    model = Hanging(create_reply("never"))
    async with chat(model) as client:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.complete, HELLO)
                await model.reached.wait()
                tasks.cancel_scope.cancel()
            await model.gone.wait()


@table(
    "answer",
    [
        raw(b'{"choices": [{"message": {"con'),
        raw(b"<html>Sign in</html>", kind="text/html"),
        raw(b""),
        raw(b"[1, 2]"),
        raw(b"[" * 100_000),
        raw(b"\xff\xfe\x00junk"),
        create_reply("x", choices=[]),
        create_reply("x", choices=None),
        create_reply("x", choices=[{"message": None}]),
        create_reply("x", choices="many"),
    ],
)
async def test_a_reply_that_is_none_is_said_to_be_none(answer: Any):
    async with chat(ModelServer(answer)) as client:
        with pytest.raises(ModelReplyInvalid, match="tiny answered with"):
            await client.complete(HELLO)


@table(
    ("parts", "text"),
    [
        ({"usage": None}, "x"),
        ({"usage": {"prompt_tokens": "12", "completion_tokens": -1}}, "x"),
        ({"model": None}, "x"),
        ({"choices": [{"message": {"content": None}}]}, ""),
        (
            {"choices": [{"message": {"content": [{"type": "text", "text": "in "}, {"text": "parts"}]}}]},
            "in parts",
        ),
    ],
)
async def test_what_a_server_leaves_out_does_not_matter(parts: dict[str, Any], text: str):
    async with chat(ModelServer(create_reply("x", **parts))) as client:
        reply = await client.complete(HELLO)
    assert reply.text == text
    assert reply.usage is None or "usage" not in parts


@table("answer", [create_reply("x" * 100_000), endless(), endless(500), raw(b"x" * 100_000, status=400)])
async def test_a_huge_body_is_cut_off_while_reading(answer: Any):
    async with chat(ModelServer(answer), limit=50_000) as client:
        with pytest.raises(ModelReplyInvalid, match="more than 50,000 bytes"):
            await client.complete(HELLO)


async def test_a_compressed_reply_is_not_unpacked():
    model = ModelServer(compress_reply("hi"))
    async with chat(model) as client:
        with pytest.raises(ModelReplyInvalid, match="compressed"):
            await client.complete(HELLO)
    assert model.headers[0]["accept-encoding"] == "identity"


async def test_an_address_without_a_server_is_unavailable():
    settings = ModelSettings(model="tiny", base_url="http://127.0.0.1:9/v1", timeout=20)
    async with OpenAIChat(settings) as client:
        with pytest.raises(ModelUnavailable, match="tiny cannot be reached"):
            await client.complete(HELLO)


async def test_a_key_meant_for_openai_is_not_sent_elsewhere(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-0123456789abcdefghij")
    model = ModelServer(create_reply("hi"))
    async with chat(model, api_key=None) as client:
        await client.complete(HELLO)
    assert "authorization" not in model.headers[0]


async def test_no_key_for_openai_itself_is_a_mistake_in_the_settings(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with OpenAIChat(ModelSettings(model="gpt")) as client:
        with pytest.raises(ConfigError, match="no key is configured for the model gpt"):
            await client.complete(HELLO)


@pytest.mark.process
def test_the_http_library_is_loaded_only_when_a_model_is_asked():
    program = "import sys, fingerpost.llm; print('httpx2' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stdout.strip() == "False"
