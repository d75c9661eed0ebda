"""The scripted model of the test kit keeps to its script."""

from __future__ import annotations

import anyio
import pytest

from fingerpost.errors import ModelUnavailable
from fingerpost.llm import ChatModel, ModelReply, ModelRequest
from fingerpost.records import Message
from fingerpost.testing import HANG, ScriptedModel, calls


def ask(text: str) -> ModelRequest:
    return ModelRequest(messages=(Message(role="user", text=text),))


async def test_lines_come_in_order_and_every_request_is_kept():
    gone = ModelUnavailable("gone", model="scripted")
    written = ModelReply(text="two", model="other")
    model: ChatModel = ScriptedModel(["one", gone, written])
    assert (await model.complete(ask("a"))).text == "one"
    with pytest.raises(ModelUnavailable):
        await model.complete(ask("b"))
    assert await model.complete(ask("c")) is written
    assert isinstance(model, ScriptedModel)
    assert [request.messages[0].text for request in model.asked] == ["a", "b", "c"]


async def test_a_function_answers_by_what_it_is_asked():
    async def echo(request: ModelRequest) -> str:
        return request.messages[-1].text.upper()

    assert (await ScriptedModel(echo).complete(ask("hi"))).text == "HI"
    assert (await ScriptedModel(lambda _: "yes").complete(ask("hi"))).text == "yes"


async def test_tool_calls_are_written_as_a_model_writes_them():
    reply = await ScriptedModel([calls(("look", {"at": "é"}), ("jump", {}), text="Let me see.")]).complete(
        ask("hi")
    )
    assert (reply.text, reply.finish) == ("Let me see.", "tool_calls")
    assert reply.tool_calls == (
        {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "é"}'}},
        {"id": "call_2", "type": "function", "function": {"name": "jump", "arguments": "{}"}},
    )
    assert calls(("look", {}), first=3).tool_calls[0]["id"] == "call_3"


async def test_text_is_streamed_in_pieces_that_are_the_whole():
    pieces = list[str]()
    await ScriptedModel(["a text of some length"]).complete(ask("hi"), on_text=pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == "a text of some length"


async def test_a_script_that_ran_out_fails_the_test():
    with pytest.raises(AssertionError, match="no more lines"):
        await ScriptedModel([]).complete(ask("hi"))


async def test_a_hanging_model_can_be_cancelled():
    with anyio.move_on_after(0.05) as scope:
        await ScriptedModel([HANG]).complete(ask("hi"))
    assert scope.cancelled_caught
