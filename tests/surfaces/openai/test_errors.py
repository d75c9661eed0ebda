"""What goes wrong has OpenAI's shape, and nothing raw reaches the caller."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import openai
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fingerpost import Router
from fingerpost.llm import OpenAIChat
from fingerpost.records import Right, Scope
from fingerpost.settings import ModelSettings
from fingerpost.surfaces.openai.errors import CompletionError, encode_json, parse_object
from fingerpost.surfaces.openai.messages import ChatConversation, parse_chat_request
from fingerpost.surfaces.openai.options import parse_request_options
from fingerpost.surfaces.openai.responses import parse_response_request
from fingerpost.testing import ScriptedModel, served
from tests.kit import chat_completions as kit
from tests.kit.chat_completions import ServedCompletions, ask, open_served_completions, user
from tests.kit.model_server import KEY, Hanging, ModelServer, chunk, create_error, create_reply, events
from tests.kit.routers import build_settings
from tests.kit.tables import table
from tests.requirements import proves

HELLO: dict[str, Any] = {"model": "fingerpost", "messages": [user("Hello!")]}
SHAPE = {"message", "type", "param", "code"}


def talks() -> ScriptedModel:
    return ScriptedModel(lambda request: "Good evening.")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def completions(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ServedCompletions]:
    """One endpoint for all requests that leave no trace in it."""
    async with open_served_completions(tmp_path_factory.mktemp("faults"), talks()) as opened:
        yield opened


CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}
WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"model": None}, "model"),
    ({"model": ""}, "model"),
    ({"messages": []}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": ["hello"]}, "messages[0]"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "function", "name": "f", "content": "x"}]}, "messages[0]"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "c9"}]}, "messages[0].tool_call_id"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "id": ""}]}]},
        "messages[0].tool_calls[0].id",
    ),
    ({"messages": [{"role": "assistant", "tool_calls": [CALL]}]}, "messages"),
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"audio": {"voice": "alloy"}}, "audio"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"function_call": "auto"}, "function_call"),
    ({"tools": {"f": 1}}, "tools"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
    ({"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice.function.name",
    ),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"extra_headers": {"authorization": "x"}}, "extra_headers"),
]


@proves("O5")
@table(("wrong", "param"), WRONG, ids=[str(param) for _, param in WRONG])
async def test_what_is_wrong_with_a_request_is_named(
    completions: ServedCompletions, wrong: dict[str, Any], param: str | None
):
    answer = await ask(completions, {**HELLO, **wrong})
    assert (answer.status, answer.error["param"]) == (400, param)
    assert answer.error["type"] == "invalid_request_error"
    assert set(answer.error) == SHAPE
    assert answer.error["message"].endswith(".")


@proves("O5")
@table(
    ("wrong", "param"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "c"}, "conversation"),
        ({"background": True}, "background"),
        ({"input": None}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"include": ["message.output_text.logprobs"]}, "include"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ],
)
async def test_what_responses_cannot_have_is_named(
    completions: ServedCompletions, wrong: dict[str, Any], param: str
):
    body = {"model": "fingerpost", "input": "Hello!", **wrong}
    answer = await ask(completions, body, path="/v1/responses")
    assert (answer.status, answer.error["param"]) == (400, param)


@proves("O5")
async def test_other_faults_of_http(completions: ServedCompletions):
    async with completions.plain() as client:
        got = [
            await client.post(
                "/v1/chat/completions", content=b"{", headers={"content-type": "application/json"}
            ),
            await client.post("/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"}),
            await client.post("/v1/chat/completions", json=["x"]),
            await client.get("/v1/chat/completions"),
            await client.post("/v1/embeddings", json={}),
            await client.get("/v1/models/nobody"),
            await client.get("/v1"),
            await client.post("/v1/chat/completions", json=HELLO, headers={"origin": "https://evil.example"}),
        ]
    assert [answer.status_code for answer in got] == [400, 400, 400, 405, 404, 404, 404, 403]
    for answer in got:
        assert set(answer.json()["error"]) == SHAPE
        assert answer.headers["x-request-id"].startswith("req_")


@proves("O5")
async def test_keys(tmp_path: Path):
    """Any key will do where none is needed; but one that claims to be ours has to be."""
    async with open_served_completions(tmp_path, talks()) as completions:
        assert (await ask(completions, HELLO, authorization="Bearer sk-whatever")).status == 200
        wrong = await ask(completions, HELLO, authorization=f"Bearer fp_{'0' * 32}_{'x' * 43}")
        _, watching = await completions.router.store.keys.add("screen", rights=(Right.WATCH,))
        no_right = await ask(completions, HELLO, authorization=f"Bearer {watching}")
        _, using = await completions.router.store.keys.add("laptop")
        assert (await ask(completions, HELLO, authorization=f"Bearer {using}")).status == 200
    assert (wrong.status, wrong.error["code"]) == (401, "invalid_api_key")
    assert no_right.status == 403


@proves("O5")
@pytest.mark.parametrize(
    "gateway",
    [{"require_key": True}, {"public_url": "https://tools.example.com"}],
    ids=["keys are required", "reached from elsewhere"],
)
async def test_where_a_key_is_needed_not_any_will_do(tmp_path: Path, gateway: dict[str, Any]):
    async with open_served_completions(tmp_path, talks(), gateway=gateway) as completions:
        made_up = await ask(completions, HELLO, authorization="Bearer sk-whatever")
        async with completions.client() as client:
            with pytest.raises(openai.AuthenticationError, match="key is needed"):
                await client.models.list()
        _, key = await completions.router.store.keys.add("laptop")
        good = await ask(completions, HELLO, authorization=f"Bearer {key}")
    assert (made_up.status, made_up.error["code"]) == (401, "invalid_api_key")
    assert good.status == 200


async def test_a_bound_key_does_not_hear_of_other_servers(tmp_path: Path):
    async with open_served_completions(tmp_path, talks()) as completions:
        _, key = await completions.router.store.keys.add("desk", scope=Scope(servers=("notes",)))
        asked = [
            await ask(completions, {**HELLO, "fingerpost": {"server": name}}, authorization=f"Bearer {key}")
            for name in ("notes", "time", "nothing")
        ]
    assert [answer.status for answer in asked] == [200, 400, 400]
    assert asked[1].error["message"].replace("time", "nothing") == asked[2].error["message"]


async def test_pages_that_may_call_us(tmp_path: Path):
    ask_first = {"origin": "https://chat.example", "access-control-request-headers": "x-stainless-os, x-evil"}
    pages = {"allowed_origins": ["https://chat.example"]}
    async with (
        open_served_completions(tmp_path, talks(), gateway=pages) as completions,
        completions.plain() as client,
    ):
        allowed = await client.options("/v1/chat/completions", headers=ask_first)
        foreign = await client.options("/v1/models", headers={"origin": "https://evil.example"})
        origin = {"origin": "https://chat.example"}
        answer = await client.post("/v1/chat/completions", json=HELLO, headers=origin)
    assert (allowed.status_code, foreign.status_code, answer.status_code) == (204, 403, 200)
    taken = allowed.headers["access-control-allow-headers"]
    assert ("x-stainless-os" in taken, "x-fingerpost-mode" in taken, "x-evil" in taken) == (True, True, False)
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert "access-control-allow-origin" not in foreign.headers


async def test_too_much_and_too_often(tmp_path: Path):
    bounds: Any = {"gateway": {"body_bytes": 1024}, "api": {"per_minute": 2}}
    async with open_served_completions(tmp_path, talks(), **bounds) as completions:
        large = await ask(completions, {**HELLO, "metadata": {"x": "y" * 9000}})
        assert (await ask(completions, HELLO)).status == 200
        often = await ask(completions, HELLO)
    assert (large.status, large.error["code"]) == (413, "request_too_large")
    assert (often.status, often.error["code"]) == (429, "rate_limit_exceeded")
    assert int(often.headers["retry-after"]) > 0


@asynccontextmanager
async def in_front_of(
    upstream: ModelServer, folder: Path, **more: Any
) -> AsyncGenerator[tuple[ServedCompletions, openai.AsyncOpenAI]]:
    """An endpoint whose model is behind a real address."""
    async with served(upstream.app) as address:
        known = {"model": "tiny", "base_url": f"{address}/v1", "api_key": KEY, "retries": 0, **more}
        async with (
            OpenAIChat(ModelSettings.model_validate(known)) as model,
            Router(settings=build_settings(folder), model=model) as router,
            kit.serve_completions(router) as (at, app),
        ):
            servers = kit.clock_server(), kit.notes_server()
            opened = ServedCompletions(at, router, app, *servers)
            async with opened.client() as client:
                yield opened, client


@proves("O5")
@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (create_error(401, f"Incorrect API key provided: {KEY}"), 502, "upstream_refused"),
        (create_error(404, "no such model"), 404, "model_not_found"),
        (create_error(400, "this model cannot see"), 400, "upstream_refused"),
        (create_error(429, "slow down"), 503, "overloaded"),
        (create_error(500, "boom"), 502, "upstream_error"),
        (create_reply(None, choices=[]), 502, "upstream_error"),
    ],
    ids=["key", "model", "request", "overloaded", "broken", "nonsense"],
)
async def test_an_upstream_that_refuses(tmp_path: Path, answer: Any, status: int, code: str):
    async with in_front_of(ModelServer(answer), tmp_path) as (_, client):
        for stream in (False, True):
            with pytest.raises(openai.APIStatusError) as caught:
                await client.chat.completions.create(**HELLO, stream=stream)
            assert (caught.value.status_code, caught.value.code) == (status, code), stream
            assert KEY not in caught.value.response.text
            assert "Traceback" not in caught.value.response.text


@proves("O5")
async def test_an_upstream_that_takes_too_long(tmp_path: Path):
    async with in_front_of(Hanging(create_reply("late")), tmp_path, timeout=0.2) as (_, client):
        with pytest.raises(openai.APIStatusError) as caught:
            await client.chat.completions.create(**HELLO)
    assert (caught.value.status_code, caught.value.code) == (504, "upstream_timeout")


async def test_an_upstream_that_breaks_off_is_told_in_the_stream(tmp_path: Path):
    broken = events(chunk("Once upon "), chunk("a time "), done=False)
    received: list[str] = []
    async with in_front_of(ModelServer(broken), tmp_path) as (_, client):
        with pytest.raises(openai.APIError, match="before its answer was complete"):
            async for piece in await client.chat.completions.create(**HELLO, stream=True):
                received.append(piece.choices[0].delta.content or "")  # noqa: PERF401 - it breaks off
    assert "".join(received).startswith("Once upon a time")


async def test_another_model_at_the_same_address(tmp_path: Path):
    upstream = ModelServer(create_reply("I am large."))
    async with in_front_of(upstream, tmp_path) as (_, client):
        answer = await client.chat.completions.create(
            model="large:8b:single", messages=HELLO["messages"], temperature=0.5, extra_body={"odd": [1]}
        )
    assert (answer.model, answer.choices[0].message.content) == ("large:8b:single", "I am large.")
    assert upstream.asked[-1]["model"] == "large:8b"
    assert (upstream.asked[-1]["temperature"], upstream.asked[-1]["odd"]) == (0.5, [1])


SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8) | st.floats(allow_nan=False)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "developer", "function", "x"])
MESSAGE = st.fixed_dictionaries(
    {"role": ROLES},
    optional={
        "content": st.text(max_size=10) | st.lists(ANYTHING, max_size=2) | ANYTHING,
        "tool_call_id": ANYTHING,
        "tool_calls": st.just([CALL]) | ANYTHING,
        "type": st.sampled_from(["message", "function_call", "reasoning"]),
    },
)
BODY = st.fixed_dictionaries(
    {"model": st.just("fingerpost") | ANYTHING},
    optional={
        "messages": st.lists(MESSAGE, max_size=4) | ANYTHING,
        "input": st.lists(MESSAGE, max_size=4) | ANYTHING,
        "tools": st.just([TOOL]) | ANYTHING,
        "tool_choice": ANYTHING,
        "stream": st.booleans() | ANYTHING,
        "fingerpost": ANYTHING | st.dictionaries(st.sampled_from(["mode", "seconds", "profile"]), ANYTHING),
        "text": ANYTHING,
        "n": ANYTHING,
        "temperature": ANYTHING,
    },
)


@pytest.mark.slow
@proves("O5")
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(body=BODY | ANYTHING)
async def test_any_body_is_read_or_refused_with_a_sentence(body: Any):
    for read in (parse_chat_request, parse_response_request):
        try:
            question = read(await parse_object(encode_json(body)))
            parse_request_options(question.request_options, {}, suffix=None, profiles=())
        except CompletionError as fault:
            assert 400 <= fault.status < 500
            assert fault.message.endswith((".", ")"))
        else:
            assert (
                ChatConversation.from_messages(question.conversation.messages).messages
                == question.conversation.messages
            )


@pytest.mark.slow
@proves("O5")
async def test_odd_bodies_over_the_wire_never_break_it(completions: ServedCompletions):
    """What gets through the reading gets an answer, with a model and without."""
    odd: list[Any] = [
        {"messages": [user("")]},
        {"messages": [user(" \n")]},
        {"messages": [user("\x00\x1b[31m")]},
        {"messages": [{"role": "system", "content": "only this"}]},
        {"messages": [{"role": "assistant", "content": "I began"}]},
        {"messages": [user("hi"), {"role": "assistant", "content": None}]},
        {"messages": [user("hi"), {"role": "assistant", "content": "", "tool_calls": []}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
        {"messages": [user("ש" * 500)], "tools": [TOOL], "tool_choice": "required"},
        {"messages": [user("hi")], "temperature": {"a": [[[[1]]]]}, "max_tokens": -1},
        {"messages": [user("hi")], "big": 10**4500},
        {"messages": [user("hi")], "deep": json.loads("[" * 150 + "]" * 150)},
        {"messages": [user("x"), *[user("hi")] * 5001]},
    ]
    with anyio.fail_after(60):
        for mode, stream in (("simple", True), ("keyless", False)):
            async with completions.plain() as client:
                for body in odd:
                    asked = {"model": f"fingerpost:{mode}", "stream": stream, **body}
                    got = await client.post(
                        "/v1/chat/completions",
                        content=_encode(asked),
                        headers={"content-type": "application/json"},
                    )
                    assert got.status_code in (200, 400), (body, got.text)
                    assert "Traceback" not in got.text


def _encode(body: Any) -> bytes:
    big = body.pop("big", None)
    text = json.dumps(body)
    return (text if big is None else f'{text[:-1]}, "big": 1{"0" * 4500}}}').encode()
