"""What a model says reaches the caller as it said it: long, refused, thought about, or nothing at all."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio.lowlevel
import pytest

from fingerpost import Router
from fingerpost.choose.answer import MAX_CHECKED_ANSWER_LENGTH
from fingerpost.llm import ModelReply, ModelRequest, OnText
from fingerpost.router.modes.answer import MAX_ANSWER_LENGTH
from fingerpost.testing import ScriptedModel, calls, tool_server
from tests.kit.chat_completions import (
    MAP,
    ServedCompletions,
    ask,
    open_served_completions,
    serve_completions,
    user,
)
from tests.kit.routers import build_settings
from tests.requirements import proves

TALE = "Tell me a tale of bears"
LONG = json.dumps({"rows": [{"number": number, "value": "abcdefgh"} for number in range(5500)]})


def says(*replies: ModelReply | str) -> ScriptedModel:
    return ScriptedModel(replies)


class FluentModel(ScriptedModel):
    """Streams thousand characters at a time: what is long must not be many pieces as well."""

    async def complete(self, request: ModelRequest, *, on_text: OnText | None = None) -> ModelReply:
        whole = await super().complete(request)
        for at in range(0, len(whole.text) if on_text else 0, 997):
            assert on_text is not None
            on_text(whole.text[at : at + 997])
            await anyio.lowlevel.checkpoint()
        return whole


def reply(text: str = "", *, finish: str = "stop", refusal: str = "", reasoning: str = "") -> ModelReply:
    return ModelReply(text=text, model="scripted", finish=finish, refusal=refusal, reasoning=reasoning)


def body(**more: Any) -> dict[str, Any]:
    return {"model": "fingerpost", "messages": [user(TALE)], **more}


async def whole(completions: ServedCompletions, **more: Any) -> Any:
    """The only choice of a whole answer."""
    return (await ask(completions, body(**more))).json["choices"][0]


async def read_stream(completions: ServedCompletions, **more: Any) -> tuple[dict[str, str], str | None]:
    """Everything the deltas of an answer add up to, and why it ended."""
    deltas: dict[str, str] = {}
    finish: str | None = None
    async with completions.plain() as client:
        got = await client.post("/v1/chat/completions", json=body(stream=True, **more))
    for line in got.text.splitlines():
        if not line.startswith("data: {"):
            continue
        (choice,) = json.loads(line.removeprefix("data: "))["choices"]
        for name, piece in choice["delta"].items():
            if isinstance(piece, str):
                deltas[name] = deltas.get(name, "") + piece
        finish = choice["finish_reason"] or finish
    return deltas, finish


@pytest.mark.slow
@proves("O1")
@pytest.mark.parametrize("shaped", [True, False], ids=["in a shape", "guarded"])
async def test_a_long_answer_arrives_as_it_was_written(tmp_path: Path, shaped: bool):
    more: dict[str, Any] = {"response_format": {"type": "json_object"}} if shaped else {}
    text = f"\n{LONG}\n" if shaped else "bears and\n\n bears".join("abc " * 100 for _ in range(500)) + "\n"
    assert len(text) > MAX_CHECKED_ANSWER_LENGTH
    async with open_served_completions(tmp_path, FluentModel([text, text])) as completions:
        choice = await whole(completions, **more)
        pieces, finish = await read_stream(completions, **more)
    assert choice["message"]["content"] == pieces["content"] == text.strip()
    assert choice["finish_reason"] == finish == "stop"


@pytest.mark.slow
async def test_an_answer_longer_than_is_kept_says_that_it_was_cut(tmp_path: Path):
    text = "a" * (MAX_ANSWER_LENGTH + 1)
    # Whole alone: the kit's model would take half a million steps to stream it. Looking for invented calls in
    # it would take two seconds, and comes later.
    async with open_served_completions(tmp_path, says(text), flags={"syntax_guard": False}) as completions:
        choice = await whole(completions)
    assert (len(choice["message"]["content"]), choice["finish_reason"]) == (MAX_ANSWER_LENGTH, "length")


@pytest.mark.slow
async def test_a_long_answer_in_a_shape_of_ours_is_whole(tmp_path: Path):
    text = "bears " * 30_000 + "end"
    turn = json.dumps({"thought": "easy", "action": None, "answer": text})
    async with open_served_completions(tmp_path, says(turn)) as completions:
        choice = await whole(completions, fingerpost={"mode": "react"})
    assert choice["message"]["content"] == text


@proves("O1")
@pytest.mark.parametrize("mode", ["simple", "single", "staged", "react"])
async def test_a_refusal_is_passed_on_as_one(tmp_path: Path, mode: str):
    model = ScriptedModel(lambda request: reply(refusal="I cannot help with bears."))
    async with open_served_completions(tmp_path, model) as completions:
        choice = await whole(completions, fingerpost={"mode": mode})
        pieces, finish = await read_stream(completions, fingerpost={"mode": mode})
    assert (choice["message"]["content"], choice["message"]["refusal"]) == (None, "I cannot help with bears.")
    assert (pieces["content"], pieces["refusal"]) == ("", "I cannot help with bears.")
    assert choice["finish_reason"] == finish == "stop"


@pytest.mark.parametrize(("end", "text"), [("content_filter", ""), ("stop", ""), ("content_filter", "Once")])
async def test_an_answer_without_words_stays_without(tmp_path: Path, end: str, text: str):
    model = ScriptedModel(lambda request: reply(text, finish=end))
    async with open_served_completions(tmp_path, model) as completions:
        choice = await whole(completions)
        pieces, finish = await read_stream(completions)
    assert choice["message"]["content"] == pieces["content"] == text
    assert choice["finish_reason"] == finish == end


async def test_a_person_reads_words_where_the_model_has_none(tmp_path: Path):
    async with open_served_completions(tmp_path, says(reply(), reply(refusal="I cannot."))) as completions:
        silent = await completions.router.route(TALE, mode="simple")
        refused = await completions.router.route(TALE, mode="simple")
    assert "gave no answer" in silent.answer
    assert (refused.answer, refused.refusal) == ("I cannot.", "I cannot.")


@pytest.mark.slow
async def test_a_refusal_in_the_responses_api_is_a_part_of_its_own(tmp_path: Path):
    model = ScriptedModel(lambda request: reply(refusal="I cannot."))
    async with open_served_completions(tmp_path, model) as completions, completions.client() as client:
        answer = await client.responses.create(model="fingerpost", input=TALE)
        stream = await client.responses.create(model="fingerpost", input=TALE, stream=True)
        events: list[Any] = [event async for event in stream]
    part = answer.model_dump()["output"][0]["content"][0]
    assert (part["type"], part["refusal"], answer.output_text) == ("refusal", "I cannot.", "")
    assert [event.refusal for event in events if event.type == "response.refusal.done"] == ["I cannot."]
    assert events[-1].response.output[0].content[0].refusal == "I cannot."


async def test_what_the_model_thought_goes_to_the_caller_and_into_no_prompt(tmp_path: Path):
    thinks = calls(("time__get_current_time", {"timezone": "Asia/Tokyo"}))
    lines = (replace(thinks, reasoning="first thought"), reply("It is nine.", reasoning="second thought"))
    asked = {"messages": [user("What time is it in Tokyo?")]}
    model = says(*lines, *lines)
    async with open_served_completions(tmp_path, model) as completions:
        choice = await whole(completions, **asked)
        pieces, _ = await read_stream(completions, **asked)
    assert choice["message"]["reasoning_content"] == pieces["reasoning_content"] == "second thought"
    prompt = "".join(message.text for request in model.asked for message in request.messages)
    assert "thought" not in prompt


async def test_no_limit_of_ours_goes_with_the_callers_question(tmp_path: Path):
    model = ScriptedModel(lambda request: "Once upon a time.")
    async with open_served_completions(tmp_path, model) as completions:
        for more in ({}, {"tools": [MAP]}, {"fingerpost": {"mode": "react"}}):
            await whole(completions, **more)
        await whole(completions, max_tokens=77)
        await completions.router.route(TALE, mode="simple")
    answering = [request for request in model.asked if request.messages[0].role == "system"]
    assert [request.max_tokens for request in answering[:-1]] == [None] * (len(answering) - 1)
    assert answering[-2].options == {"max_tokens": 77}
    assert answering[-1].max_tokens == completions.router.settings.choose.answer_tokens


@pytest.mark.slow
@proves("O8")
async def test_a_conversation_that_was_shortened_says_so(tmp_path: Path):
    received: list[Any] = []
    for number in range(60):
        received += [user(f"u{number} " + "x y " * 700), {"role": "assistant", "content": "y z " * 700}]
    async with open_served_completions(tmp_path, ScriptedModel(lambda request: "Bears.")) as completions:
        long = await ask(completions, body(messages=[*received, user(TALE)]))
        short = await ask(completions, body())
    left_out = long.json["fingerpost"]["shortened"]["messages_left_out"]
    assert 0 < left_out < len(received)
    assert "shortened" not in short.json["fingerpost"]


@pytest.mark.slow
async def test_the_same_question_in_many_chats_is_no_loop(tmp_path: Path):
    def say(request: Any) -> Any:
        last = request.messages[-1]
        zone = {"timezone": "Asia/Tokyo"}
        return last.text if last.role == "tool" else calls(("time__get_current_time", zone))

    async with open_served_completions(tmp_path, ScriptedModel(say)) as completions:
        answers = [
            await ask(completions, body(messages=[user("What time is it in Tokyo?")])) for _ in range(8)
        ]
    assert all("it is 21:00" in answer.text for answer in answers)
    assert len(completions.clock.calls) == len(answers)


@proves("F47")
async def test_a_model_that_goes_round_within_one_request_is_stopped(tmp_path: Path):
    received: list[str] = []

    def say(request: Any) -> Any:
        received.append(request.messages[-1].text)
        stopped = "loop" in received[-1]
        return "Enough." if stopped else calls(("time__get_current_time", {"timezone": "Asia/Tokyo"}))

    asked = body(messages=[user("What time is it in Tokyo?")], fingerpost={"max_turns": 20})
    async with open_served_completions(tmp_path, ScriptedModel(say)) as completions:
        answer = await ask(completions, asked)
    assert answer.text.startswith("Enough.")
    assert "with the same arguments" in received[-1]
    assert len(completions.clock.calls) < 10


HELLO = [user("Hello!")]
INVENTED = "<tool_call>\nmake_coffee\n</tool_call>"
DONE = json.dumps({"thought": "That is it.", "action": None, "answer": INVENTED})


@proves("A15")
@pytest.mark.parametrize("mode", ["staged", "single", "simple", "react"])
async def test_a_call_of_a_tool_that_does_not_exist_is_asked_again_for_words(tmp_path: Path, mode: str):
    first = DONE if mode == "react" else INVENTED
    model = says(*(first, "I cannot make coffee.") * 2)
    async with open_served_completions(tmp_path, model) as completions:
        choice = await whole(completions, messages=HELLO, fingerpost={"mode": mode})
        deltas, finish = await read_stream(completions, messages=HELLO, fingerpost={"mode": mode})
    assert choice["message"]["content"] == "I cannot make coffee."
    assert (deltas["content"], finish) == ("I cannot make coffee.", "stop")
    for again in model.asked[1::2]:
        assert not again.tools
        assert "no such tool" in again.messages[-1].text.lower()


@pytest.mark.slow
@proves("A15")
@pytest.mark.parametrize("mode", ["staged", "single", "simple", "react"])
async def test_a_model_that_writes_nothing_but_invented_calls_never_leaves_an_empty_answer(
    tmp_path: Path, mode: str
):
    first = DONE if mode == "react" else INVENTED
    async with open_served_completions(tmp_path, says(*(first, INVENTED) * 2)) as completions:
        choice = await whole(completions, messages=HELLO, fingerpost={"mode": mode})
        deltas, _ = await read_stream(completions, messages=HELLO, fingerpost={"mode": mode})
    for content in (choice["message"]["content"], deltas["content"]):
        assert "tool that does not exist" in content
        assert "make_coffee" not in content


@pytest.mark.slow
@proves("D6", "O1")
@pytest.mark.parametrize("mode", ["single", "simple"])
async def test_a_model_reads_on_in_a_result_that_was_cut_and_again_in_a_later_request(
    tmp_path: Path, mode: str
):
    def say(request: ModelRequest) -> ModelReply | str:
        prompt = "\n".join(message.text for message in request.messages)
        handles, pages = re.findall(r"res_[a-z]{13}", prompt), prompt.count("line 1 of\nline 2 of\n")
        if not handles:
            return calls(("logs__read_log", {}))
        tools = [tool["function"]["name"] for tool in json.loads(json.dumps(request.tools))]
        is_first = "And the rest?" not in prompt
        if "read_result" in tools and pages < (2 if is_first else 1):
            return calls(("read_result", {"handle": handles[0]}))
        return f"Read {pages}, all of it is {handles[0]}."

    async def tell(name: str, arguments: dict[str, Any]) -> str:
        return "\n".join(f"line {number} of" for number in range(2000))

    log: dict[str, Any] = {
        "name": "read_log",
        "description": "Read the text of the log file of a service",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True},
    }
    logs = tool_server("logs", [log], call=tell)
    asked = {"model": f"fingerpost:{mode}", "messages": [user("Read the log file of the service mail")]}
    made = build_settings(tmp_path, digest={"max_tokens": 300})
    async with Router([logs.spec()], settings=made, model=ScriptedModel(say)) as router:
        await router.connect()
        async with serve_completions(router) as (address, app):
            completions = ServedCompletions(address, router, app, logs, logs)
            first = await ask(completions, asked)
            text = [*asked["messages"], {"role": "assistant", "content": first.text}, user("And the rest?")]
            later = await ask(completions, {**asked, "messages": text})
    assert first.text.startswith("Read 2, all of it is res_")
    assert later.text.startswith("Read 1, all of it is res_")


ANNOUNCED = f"Let me check.\n\n{INVENTED}"


@proves("A15")
@pytest.mark.parametrize("mode", ["staged", "single", "simple", "react"])
async def test_an_announcement_of_an_invented_call_is_not_the_answer(tmp_path: Path, mode: str):
    answered = json.dumps({"thought": "That is it.", "action": None, "answer": ANNOUNCED})
    first = answered if mode == "react" else ANNOUNCED
    begun = "" if mode == "react" else "Let me check.\n\n"  # a turn of react is not streamed
    model = says(*(first, "I cannot make coffee.") * 2)
    async with open_served_completions(tmp_path, model) as completions:
        choice = await whole(completions, messages=HELLO, fingerpost={"mode": mode})
        deltas, finish = await read_stream(completions, messages=HELLO, fingerpost={"mode": mode})
    assert choice["message"]["content"] == "I cannot make coffee."
    assert (deltas["content"], finish) == (f"{begun}I cannot make coffee.", "stop")
    for again in model.asked[1::2]:
        assert not again.tools
        assert "no such tool" in again.messages[-1].text.lower()


@proves("A15")
@pytest.mark.parametrize("mode", ["staged", "single"])
async def test_a_model_that_only_announces_invented_calls_again_is_said_to_do_so(tmp_path: Path, mode: str):
    async with open_served_completions(tmp_path, says(ANNOUNCED, ANNOUNCED)) as completions:
        content = (await whole(completions, messages=HELLO, fingerpost={"mode": mode}))["message"]["content"]
    assert "tool that does not exist" in content


@proves("A15")
@pytest.mark.parametrize("mode", ["staged", "single", "simple"])
async def test_an_answer_beside_an_invented_call_is_not_asked_for_again(tmp_path: Path, mode: str):
    model = says(f"Coffee is a drink made of roasted beans.\n\n{INVENTED}", "Never asked.")
    async with open_served_completions(tmp_path, model) as completions:
        content = (await whole(completions, messages=HELLO, fingerpost={"mode": mode}))["message"]["content"]
    assert content == "Coffee is a drink made of roasted beans."
