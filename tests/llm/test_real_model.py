"""The wire, against a real server with real weights. What is asserted is protocol, never quality."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest

from fingerpost.errors import ModelRefused, ModelTimeout, ModelUnavailable
from fingerpost.llm import (
    Capabilities,
    ModelPool,
    ModelReply,
    ModelRequest,
    OpenAIChat,
    ResponseSchema,
    Role,
    parse_structured,
    probe,
)
from fingerpost.llm.capabilities import MAX_MISSED_CALLS
from fingerpost.records import JsonObject, Message
from fingerpost.schemas.validator import load_validator
from fingerpost.settings import ModelSettings, ModelsSettings
from tests.kit.real_model import NAME, real_model
from tests.kit.tcp_proxy import OVERLOADED, run_proxy
from tests.requirements import proves

pytestmark = pytest.mark.timeout(180)  # one thread on a busy machine

PATIENT = 120.0
ENDLESS = 900  # tokens: far more than any test waits for
LOOK: JsonObject = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}},
}


def ask(text: str = "Count to ten.", *, tokens: int = 12, **more: Any) -> ModelRequest:
    messages = (Message(role="user", text=text),)
    return ModelRequest(messages=messages, temperature=0.0, max_tokens=tokens, **more)


def unheard(_: str) -> None:
    """A reader who does not care."""


@pytest.fixture(scope="session")
def llama() -> Generator[str]:
    with real_model() as address:
        yield address


@asynccontextmanager
async def open_chat(address: str, **settings: Any) -> AsyncGenerator[OpenAIChat]:
    given = {"model": NAME, "base_url": f"{address}/v1", "timeout": PATIENT, **settings}
    async with OpenAIChat(ModelSettings.model_validate(given)) as chat:
        yield chat


async def idle(address: str) -> None:
    """Wait until the server has no work."""
    async with httpx2.AsyncClient() as client:
        with anyio.fail_after(60):
            while (await client.get(f"{address}/slots")).json()[0]["is_processing"]:  # noqa: ASYNC110
                await anyio.sleep(0.05)


async def test_a_reply_says_what_it_cost_and_how_it_ended(llama: str):
    async with open_chat(llama) as chat:
        whole = await chat.complete(ask("Say hi.", tokens=10))
        short = await chat.complete(ask(tokens=5))
    assert whole.text
    assert whole.model == NAME
    assert short.finish == "length"
    assert short.usage is not None
    assert short.usage.completion_tokens == 5
    assert short.usage.prompt_tokens > 0


@proves("W5")
async def test_the_pieces_of_a_stream_are_the_whole_and_are_counted(llama: str):
    pieces = list[str]()
    async with open_chat(llama) as chat:
        reply = await chat.complete(ask(), on_text=pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == reply.text
    assert reply.finish == "length"
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 12


@proves("W5")
async def test_a_schema_is_kept_to_streamed_or_not(llama: str):
    schema: JsonObject = {
        "type": "object",
        "properties": {"mood": {"enum": ["glad", "sad"]}, "sure": {"type": "boolean"}},
        "required": ["mood", "sure"],
        "additionalProperties": False,
    }
    await load_validator()  # as the pool does before it asks
    request = ask("How are you?", tokens=120, schema=ResponseSchema(name="mood", schema=schema))
    async with open_chat(llama) as chat:

        async def stream_reply(asked: ModelRequest) -> ModelReply:
            return await chat.complete(asked, on_text=unheard)

        for way in (chat.complete, stream_reply):
            reply = await way(request)
            answer = parse_structured(reply.text, schema)
            assert isinstance(answer, dict), reply.text
            assert answer["mood"] in ("glad", "sad")


async def test_a_probe_finds_that_it_keeps_to_schemas_and_ignores_tools(llama: str):
    async with open_chat(llama) as chat:
        assert await probe(chat) == Capabilities(json_schema=True, tools=False)


@proves("A7")
async def test_the_pool_notices_that_tools_are_ignored(llama: str):
    settings = ModelsSettings(lite=ModelSettings(model=NAME, base_url=f"{llama}/v1", timeout=PATIENT))
    pool = ModelPool.of(settings)
    try:
        for _ in range(MAX_MISSED_CALLS):
            assert (await pool.capabilities(Role.PRIME)).tools is None  # one answer in words is no proof
            request = ask("Say hi.", tokens=40, tools=(LOOK,), tool_choice="required")
            reply = await pool.ask(Role.PRIME, request)
            assert reply.stood_in
            assert reply.tool_calls == ()
        assert (await pool.capabilities(Role.PRIME)).tools is False
    finally:
        await pool.aclose()


async def test_a_conversation_with_calls_and_results_is_taken(llama: str):
    call: JsonObject = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk = (
        Message(role="user", text="What is there?"),
        Message(role="assistant", text="", tool_calls=(call,)),
        Message(role="tool", text="a cat", tool_call_id="call_1"),
    )
    async with open_chat(llama) as chat:
        reply = await chat.complete(ModelRequest(messages=talk, tools=(LOOK,), max_tokens=4))
    assert reply.usage is not None


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_prompt_beyond_the_window_is_refused(llama: str, streamed: bool):
    async with open_chat(llama) as chat:
        with pytest.raises(ModelRefused, match="context"):
            await chat.complete(ask("word " * 2000), on_text=unheard if streamed else None)


@proves("W5")
async def test_a_reply_that_takes_too_long_is_a_timeout_and_the_server_is_free_again(llama: str):
    async with open_chat(llama, timeout=0.1) as chat:
        # Without a stream, this server writes to the end before it checks whether the client is there.
        for on_text, tokens in ((None, 40), (unheard, ENDLESS)):
            with pytest.raises(ModelTimeout):
                await chat.complete(ask("Tell a very long story.", tokens=tokens), on_text=on_text)
            await idle(llama)
    async with open_chat(llama) as chat:
        assert (await chat.complete(ask(tokens=2))).text


@proves("W5")
async def test_cancelling_a_stream_frees_the_server(llama: str):
    begun, pieces = anyio.Event(), list[str]()

    def hear(text: str) -> None:
        pieces.append(text)
        begun.set()

    async with open_chat(llama) as chat:
        with anyio.fail_after(PATIENT):
            async with anyio.create_task_group() as tasks:

                async def listen() -> None:
                    await chat.complete(ask("Tell a very long story.", tokens=ENDLESS), on_text=hear)

                tasks.start_soon(listen)
                await begun.wait()
                tasks.cancel_scope.cancel()
        count = len(pieces)
        await idle(llama)
        assert (await chat.complete(ask(tokens=2))).text
    assert len(pieces) == count < ENDLESS


@proves("W5")
async def test_a_connection_cut_in_the_middle_is_never_a_short_answer(llama: str):
    pieces = list[str]()
    async with run_proxy(llama, 2500, None) as proxy, open_chat(proxy.address, retries=3) as chat:
        with pytest.raises(ModelUnavailable, match="closed the connection before its answer was complete"):
            await chat.complete(ask(tokens=40), on_text=pieces.append)
        assert pieces, "some of it had come"
        assert proxy.seen == 1, "and what was handed over is not said again"
        await idle(llama)
        assert (await chat.complete(ask(tokens=4))).text


async def test_a_connection_cut_before_the_first_word_is_made_again(llama: str):
    pieces = list[str]()
    async with run_proxy(llama, 20, 60, None) as proxy, open_chat(proxy.address) as chat:
        reply = await chat.complete(ask(tokens=4), on_text=pieces.append)
    assert "".join(pieces) == reply.text
    assert proxy.seen == 3


@proves("W5")
async def test_an_overloaded_server_is_asked_again(llama: str):
    async with run_proxy(llama, OVERLOADED, None) as proxy, open_chat(proxy.address) as chat:
        assert (await chat.complete(ask(tokens=2))).text
    assert proxy.seen == 2


async def test_two_at_once_on_a_server_for_one_are_both_answered(llama: str):
    replies = list[ModelReply]()

    async with open_chat(llama) as chat:

        async def one(text: str) -> None:
            replies.append(await chat.complete(ask(text, tokens=8), on_text=unheard))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one, "Count to ten.")
            tasks.start_soon(one, "Name three colours.")
    assert [reply.usage.completion_tokens for reply in replies if reply.usage is not None] == [8, 8]
