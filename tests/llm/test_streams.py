"""Streamed replies: whole at the end, piece by piece on the way, and never silently short."""

from __future__ import annotations

import json
from typing import Any, cast

import anyio
import pytest
from starlette.responses import Response

from fingerpost.errors import ModelError, ModelRefused, ModelReplyInvalid, ModelTimeout, ModelUnavailable
from fingerpost.llm import ModelRequest, ModelUsage
from fingerpost.records import Message
from tests.kit.model_server import (
    KEY,
    ModelServer,
    chat,
    chunk,
    create_error,
    create_reply,
    create_usage_chunk,
    endless,
    events,
    raw,
)
from tests.kit.tables import table

HELLO = ModelRequest(messages=(Message(role="user", text="hello"),))
HI = (
    chunk(None, role="assistant"),
    chunk("Hel"),
    chunk("lo\u2028wörld"),
    chunk(finish="stop"),
    create_usage_chunk(),
)


async def test_the_pieces_are_the_whole_and_the_whole_has_everything():
    model, pieces = ModelServer(events(*HI)), list[str]()
    async with chat(model) as client:
        reply = await client.complete(HELLO, on_text=pieces.append)
    assert pieces == ["Hel", "lo\u2028wörld"]
    assert reply.text == "Hello\u2028wörld"
    assert (reply.model, reply.finish) == ("tiny-1", "stop")
    assert reply.usage == ModelUsage(prompt_tokens=12, completion_tokens=3)
    assert reply.milliseconds > 0
    assert model.asked[0]["stream"] is True
    assert model.asked[0]["stream_options"] == {"include_usage": True}


async def test_without_a_listener_nothing_is_streamed():
    model = ModelServer(create_reply("hi"))
    async with chat(model) as client:
        await client.complete(HELLO)
    assert "stream" not in model.asked[0]


async def test_tool_calls_are_put_together_from_their_pieces():
    def piece(index: int, arguments: str, *, identity: str | None = None, **name: str) -> dict[str, Any]:
        function = {**name, "arguments": arguments}
        return chunk(tool_calls=[{"index": index, "id": identity, "function": function}])

    answer = events(
        piece(0, "", identity="a", name="look"),
        piece(1, '{"x"', identity="b", name="jump"),
        piece(0, '{"at": "\\ud83d'),
        piece(0, '\\ude00"}', name="look"),
        piece(1, ": 1}"),
        chunk(finish="tool_calls"),
    )
    async with chat(ModelServer(answer)) as client:
        reply = await client.complete(HELLO, on_text=lambda _: None)
    assert reply.finish == "tool_calls"
    assert reply.text == ""
    assert [(call["id"], call["function"]) for call in reply.tool_calls] == [
        ("a", {"name": "look", "arguments": '{"at": "\\ud83d\\ude00"}'}),
        ("b", {"name": "jump", "arguments": '{"x": 1}'}),
    ]


async def test_calls_without_an_index_are_told_apart_by_their_ids():
    def whole(name: str, identity: str, arguments: Any) -> dict[str, Any]:
        return chunk(tool_calls=[{"id": identity, "function": {"name": name, "arguments": arguments}}])

    answer = events(whole("look", "a", {"at": "sea"}), whole("look", "b", "{}"), chunk(finish="tool_calls"))
    async with chat(ModelServer(answer)) as client:
        reply = await client.complete(HELLO, on_text=lambda _: None)
    made = cast("tuple[Any, ...]", reply.tool_calls)
    assert [(call["id"], json.loads(call["function"]["arguments"])) for call in made] == [
        ("a", {"at": "sea"}),
        ("b", {}),
    ]


@table(
    "answer",
    [
        events(b": keep-alive\n\n", *HI[:2], b":\n\nevent: ping\ndata: {}\n\n", *HI[2:], b"retry: 5\n\n"),
        events(*(f"data: {json.dumps(piece)}\r\n\r\n".encode() for piece in HI)),
        events(*(f"data:{json.dumps(piece)}\n".encode() for piece in HI), b"data: [DONE]\n", done=False),
        events(*HI, done=False),
        events(*HI, hold=True),
        events(*HI, "[DONE]", chunk("after the end")),
        events(b"\xef\xbb\xbf", *HI),
        events(b"garbage\nid: 7\nx: y\n\n", *HI),
        events(*HI[:3], {"choices": [{"index": 1, "delta": {"content": "another"}}]}, *HI[3:]),
        events(*HI[:3], {"choices": None}, {"choices": [{"delta": None}]}, *HI[3:]),
        raw(b"".join(f"data: {json.dumps(piece)}\n\n".encode() for piece in HI), kind="text/plain"),
        create_reply("Hello\u2028wörld"),
        events(json.loads(bytes(create_reply("Hello\u2028wörld").body))),
    ],
)
async def test_other_ways_to_stream_the_same_are_understood(answer: Any):
    pieces = list[str]()
    async with chat(ModelServer(answer)) as client:
        reply = await client.complete(HELLO, on_text=pieces.append)
    assert reply.text == "Hello\u2028wörld"
    assert "".join(pieces) == reply.text
    assert reply.finish == "stop"


async def test_a_character_that_comes_in_two_halves_is_one():
    halves = b'data: {"choices": [{"delta": {"content": "\\ud83d"}}]}\n\n'
    other = b'data: {"choices": [{"delta": {"content": "\\ude00!\\ud83d"}, "finish_reason": "stop"}]}\n\n'
    pieces = list[str]()
    async with chat(ModelServer(events(halves, other))) as client:
        reply = await client.complete(HELLO, on_text=pieces.append)
    assert reply.text == "😀!\ufffd"
    assert pieces == ["😀!", "\ufffd"]


async def test_an_unrequested_stream_is_read():
    async with chat(ModelServer(events(*HI))) as client:
        assert (await client.complete(HELLO)).text == "Hello\u2028wörld"


async def test_a_connection_that_breaks_after_the_end_does_no_harm():
    whole = b"".join(f"data: {json.dumps(piece)}\n\n".encode() for piece in HI)
    head = {"content-type": "text/event-stream", "content-length": str(len(whole) + 100)}
    async with chat(ModelServer(Response(whole, headers=head))) as client:
        reply = await client.complete(HELLO, on_text=lambda _: None)
    assert (reply.text, reply.finish) == ("Hello\u2028wörld", "stop")


@pytest.mark.parametrize("cut", [(), HI[:1], HI[:3]])
async def test_a_stream_without_an_end_is_never_an_answer(cut: tuple[Any, ...]):
    model, pieces = ModelServer(events(*cut, done=False)), list[str]()
    async with chat(model, retries=1) as client:
        with pytest.raises(
            ModelUnavailable, match="tiny closed the connection before its answer was complete"
        ):
            await client.complete(HELLO, on_text=pieces.append)
    assert len(model.asked) == (1 if pieces else 2)


async def test_a_stream_that_breaks_before_its_first_word_is_asked_for_again():
    pieces = list[str]()
    model = ModelServer(events(HI[0], done=False), events({"error": {"message": "worker died"}}), events(*HI))
    async with chat(model) as client:
        reply = await client.complete(HELLO, on_text=pieces.append)
    assert reply.text == "".join(pieces) == "Hello\u2028wörld"
    assert len(model.asked) == 3


@table(
    ("error", "kind"),
    [
        ({"message": "no capacity", "code": 429}, ModelUnavailable),
        ({"message": "no capacity", "code": "rate_limit"}, ModelUnavailable),
        ("no capacity", ModelUnavailable),
        ({"message": f"no capacity for {KEY}", "code": 400}, ModelRefused),
    ],
)
async def test_an_error_inside_a_stream_is_an_error(error: Any, kind: type[ModelError]):
    model = ModelServer(events(chunk("Hel"), {"error": error}, hold=True))
    async with chat(model) as client:
        with pytest.raises(kind, match="no capacity") as failure:
            await client.complete(HELLO, on_text=lambda _: None)
    assert KEY not in str(failure.value)
    assert len(model.asked) == 1, "text was handed over: no other try"


async def test_llama_cpp_ends_a_stream_with_an_error_of_its_own():
    line = b'error: {"code": 400, "message": "the request exceeds the context"}\n\n'
    async with chat(ModelServer(events(chunk("Hel"), line, done=False))) as client:
        with pytest.raises(ModelRefused, match="exceeds the context"):
            await client.complete(HELLO, on_text=lambda _: None)


@table(
    ("answer", "words"),
    [
        (events(chunk("Hel"), "{not json"), "not JSON: {not json"),
        (events(chunk("Hel"), "[" * 5000), "not JSON"),
        (events(chunk("Hel"), "7"), "not an object"),
        (events(), "an empty stream"),
        (events({"choices": []}), "an empty stream"),
        (raw(b"<html>Sign in</html>", kind="text/html"), "not JSON: <html>Sign in"),
        (raw(b"", kind="application/json"), "not JSON: nothing at all"),
        (events(*[chunk(tool_calls=[{"index": at, "id": str(at)}]) for at in range(200)]), "128 tool calls"),
    ],
)
async def test_a_stream_that_is_none_is_said_to_be_none(answer: Any, words: str):
    async with chat(ModelServer(answer)) as client:
        with pytest.raises(ModelReplyInvalid, match=words):
            await client.complete(HELLO, on_text=lambda _: None)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (events(*[chunk("x" * 1000)] * 60), "more than 50,000 characters"),
        (events(b": " + b"x" * 900_000), "more than 800,000 bytes"),
        (endless(), "more than 50,000 bytes"),
    ],
)
async def test_a_stream_has_a_limit(answer: Any, words: str):
    async with chat(ModelServer(answer), limit=50_000) as client:
        with pytest.raises(ModelReplyInvalid, match=words):
            await client.complete(HELLO, on_text=lambda _: None)


async def test_what_a_server_refuses_about_streaming_is_left_out_from_then_on():
    def picky(body: dict[str, Any]) -> Any:
        if "stream_options" in body:
            return create_error(400, "Unrecognized request argument supplied: stream_options")
        if "stream" in body:
            return create_error(400, "this model does not support streaming", param="stream")
        return create_reply("fine")

    model, pieces = ModelServer(picky), list[str]()
    async with chat(model) as client:
        for _ in range(2):
            assert (await client.complete(HELLO, on_text=pieces.append)).text == "fine"
    assert pieces == ["fine", "fine"]
    assert len(model.asked) == 4


async def test_a_stream_that_stops_moving_is_a_timeout():
    async with chat(ModelServer(events(chunk("Hel"), done=False, hold=True)), timeout=1) as client:
        with pytest.raises(ModelTimeout, match="within 1 s"):
            await client.complete(HELLO, on_text=lambda _: None)


async def test_cancelling_in_the_middle_ends_the_connection_at_once():
    left = anyio.Event()

    class Talkative(ModelServer):
        async def complete(self, request: Any) -> Any:
            response: Any = await super().complete(request)
            inner = response.body_iterator

            async def watch() -> Any:
                try:
                    async for piece in inner:
                        yield piece
                finally:
                    left.set()

            response.body_iterator = watch()
            return response

    model, begun = Talkative(events(chunk("Hel"), done=False, hold=True)), anyio.Event()
    async with chat(model) as client:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def listen() -> None:
                    await client.complete(HELLO, on_text=lambda _: begun.set())

                tasks.start_soon(listen)
                await begun.wait()
                tasks.cancel_scope.cancel()
            await left.wait()


async def test_an_error_of_the_reader_is_the_readers_own():
    def full(_: str) -> None:
        message = "disk full"
        raise OSError(message)

    model = ModelServer(events(*HI))
    async with chat(model) as client:
        with pytest.raises(OSError, match="disk full"):
            await client.complete(HELLO, on_text=full)
    assert len(model.asked) == 1
