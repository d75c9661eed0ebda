"""What a reply holds beside its text: a refusal, and what the model thought before."""

from __future__ import annotations

from typing import Any

import pytest

from fingerpost.errors import ModelReplyInvalid
from fingerpost.llm import ModelRequest
from fingerpost.records import Message
from tests.kit.model_server import ModelServer, chat, chunk, create_reply, events
from tests.kit.tables import table

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))


def message(**fields: Any) -> list[dict[str, Any]]:
    return [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **fields}}]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_whole(name: str):
    answer = create_reply(None, choices=message(content=None, refusal="No.", **{name: "hm 😀"}))
    async with chat(ModelServer(answer)) as client:
        reply = await client.complete(HELLO)
    assert (reply.text, reply.refusal, reply.reasoning) == ("", "No.", "hm 😀")


@table("odd", [None, 7, {"effort": "high"}, [1]])
async def test_what_is_no_text_is_nothing(odd: Any):
    answer = create_reply(None, choices=message(content="hi", refusal=odd, reasoning=odd))
    async with chat(ModelServer(answer)) as client:
        reply = await client.complete(HELLO)
    assert (reply.text, reply.refusal, reply.reasoning) == ("hi", "", "")


async def test_streamed_they_are_no_part_of_the_text():
    pieces: list[str] = []
    thoughts = (chunk(reasoning_content="hm \ud83d"), chunk(reasoning_content="\ude00"))
    answer = events(*thoughts, chunk(refusal="N"), chunk("hi", refusal="o."), chunk(finish="stop"))
    async with chat(ModelServer(answer)) as client:
        reply = await client.complete(HELLO, on_text=pieces.append)
    assert pieces == ["hi"]
    assert (reply.text, reply.refusal, reply.reasoning) == ("hi", "No.", "hm 😀")


async def test_thinking_without_end_is_bounded_like_text():
    answer = events(*(chunk(reasoning="x" * 100) for _ in range(50)), chunk(finish="stop"))
    async with chat(ModelServer(answer), limit=1000) as client:
        with pytest.raises(ModelReplyInvalid, match="more than"):
            await client.complete(HELLO, on_text=lambda _: None)
