"""A caller with tools of their own: they arrive unchanged, and calls of them go back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fingerpost.llm import ModelRequest
from fingerpost.testing import ScriptedModel, calls
from tests.kit.chat_completions import MAP, ask, open_served_completions, user
from tests.requirements import proves

TIME = "What time is it in Tokyo? Show it on the map, too."
CLOCK = ("time__get_current_time", {"timezone": "Asia/Tokyo"})
SHOW = ("show_map", {"place": "Tokyo"})


def plays(*lines: Any) -> ScriptedModel:
    return ScriptedModel(lines)


def shape(request: ModelRequest) -> list[tuple[str, list[str]]]:
    """The messages to a model: roles, and the ids of calls or the call answered."""
    return [
        (
            message.role,
            [message.tool_call_id]
            if message.tool_call_id
            else [str(call["id"]) for call in message.tool_calls],
        )
        for message in request.messages
        if message.role != "system"
    ]


@proves("O3")
async def test_the_callers_tool_is_called_by_the_caller(tmp_path: Path):
    model = plays(calls(SHOW), "There it is.")
    async with open_served_completions(tmp_path, model) as completions, completions.client() as client:
        messages: list[Any] = [user("Show me Tokyo on the map")]
        first = await client.chat.completions.create(model="fingerpost", messages=messages, tools=[MAP])  # pyright: ignore[reportArgumentType]
        choice = first.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        call: Any = choice.message.tool_calls[0]
        assert (call.id, call.function.name) == ("call_1", "show_map")
        assert json.loads(call.function.arguments) == {"place": "Tokyo"}
        assert model.asked[0].tools[0] == MAP
        messages += [
            choice.message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": "shown"},
        ]
        second = await client.chat.completions.create(model="fingerpost", messages=messages, tools=[MAP])  # pyright: ignore[reportArgumentType]
    assert second.choices[0].message.content == "There it is."
    assert shape(model.asked[1])[-2:] == [("assistant", ["call_1"]), ("tool", ["call_1"])]
    assert completions.clock.calls == []


@proves("O3")
async def test_in_a_stream_calls_come_with_their_index(tmp_path: Path):
    model = plays(calls(SHOW, ("show_map", {"place": "Osaka"})))
    async with (
        open_served_completions(tmp_path, model) as completions,
        completions.client() as client,
        client.chat.completions.stream(
            model="fingerpost",
            messages=[user("Show me Tokyo on the map")],
            tools=[MAP],  # pyright: ignore[reportArgumentType]
        ) as stream,
    ):
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    made = final.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments)["place"] for call in made] == ["Tokyo", "Osaka"]
    assert final.choices[0].finish_reason == "tool_calls"


@proves("O2", "O3")
async def test_what_was_done_here_stands_before_the_callers_call_when_it_comes_back(tmp_path: Path):
    model = plays(calls(CLOCK), calls(SHOW, first=2), "Nine in the evening, and there it is.")
    async with open_served_completions(tmp_path, model) as completions:
        body: dict[str, Any] = {"model": "fingerpost", "messages": [user(TIME)], "tools": [MAP]}
        first = await ask(completions, body)
        handed = first.json["choices"][0]["message"]
        assert [call["id"] for call in handed["tool_calls"]] == ["call_2"]
        assert first.json["fingerpost"]["tools_used"] == ["time/get_current_time"]
        result = {"role": "tool", "tool_call_id": "call_2", "content": "shown"}
        second = await ask(completions, {**body, "messages": [user(TIME), handed, result]})
    assert second.text.startswith("Nine in the evening")
    prompt = shape(model.asked[-1])
    assert [role for role, _ in prompt] == ["user", "assistant", "tool", "assistant", "tool"]
    assert prompt[1][1] == prompt[2][1]
    assert prompt[3][1] == prompt[4][1] == ["call_2"]
    assert completions.clock.calls == [("get_current_time", {"timezone": "Asia/Tokyo"})]


@proves("O3")
async def test_that_holds_after_a_restart_too(tmp_path: Path):
    body: dict[str, Any] = {"model": "fingerpost", "messages": [user(TIME)], "tools": [MAP]}
    async with open_served_completions(tmp_path, plays(calls(CLOCK), calls(SHOW, first=2))) as completions:
        handed = (await ask(completions, body)).json["choices"][0]["message"]
    model = plays("Nine in the evening, and there it is.")
    result = {"role": "tool", "tool_call_id": "call_2", "content": "shown"}
    async with open_served_completions(tmp_path, model) as completions:
        assert (await ask(completions, {**body, "messages": [user(TIME), handed, result]})).status == 200
    assert [role for role, _ in shape(model.asked[-1])] == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.slow
@proves("O3")
async def test_responses_with_functions_of_the_caller(tmp_path: Path):
    function: Any = {"type": "function", **MAP["function"], "strict": False}
    model = plays(calls(SHOW), "There it is.", calls(SHOW))
    async with open_served_completions(tmp_path, model) as completions, completions.client() as client:
        items: Any = [user("Show me Tokyo on the map")]
        first = await client.responses.create(model="fingerpost", input=items, tools=[function])
        call: Any = first.output[0]
        assert (call.type, call.call_id, call.name) == ("function_call", "call_1", "show_map")
        items += [
            call.model_dump(exclude_none=True),
            {"type": "function_call_output", "call_id": call.call_id, "output": "shown"},
        ]
        second = await client.responses.create(model="fingerpost", input=items, tools=[function])
        assert second.output_text == "There it is."
        async with client.responses.stream(
            model="fingerpost", input="Show me Tokyo on the map", tools=[function]
        ) as stream:
            kinds = [event.type async for event in stream]
            final: Any = (await stream.get_final_response()).output[0]
    assert "response.function_call_arguments.done" in kinds
    assert final.arguments == call.arguments
    assert model.asked[0].tools[0] == {"type": "function", "function": {**MAP["function"], "strict": False}}


async def test_options_and_pictures_reach_the_model(tmp_path: Path):
    model = plays("A cat.")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    message = {"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}
    options: dict[str, Any] = {"temperature": 0.3, "seed": 7, "reasoning_effort": "low", "made_up": {"x": 1}}
    async with open_served_completions(tmp_path, model) as completions:
        answer = await ask(completions, {"model": "fingerpost", "messages": [message], **options})
    assert answer.text == "A cat."
    assert model.asked[0].options == options
    assert picture in model.asked[0].messages[-1].parts


@proves("O3")
@pytest.mark.parametrize("mode", ["simple", "staged"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_call_written_as_text_comes_back_as_a_call(tmp_path: Path, mode: str, stream: bool):
    """Smaller models write calls the way they were trained to, and not all servers read them."""
    text = '<tool_call>\n{"name": "show_map", "arguments": {"place": "Tokyo"}}\n</tool_call>'
    asked = {
        "model": "fingerpost",
        "messages": [user("Tell me a tale of bears")],
        "tools": [MAP],
        "fingerpost": {"mode": mode},
        "stream": stream,
    }
    async with (
        open_served_completions(tmp_path, ScriptedModel(lambda request: text)) as completions,
        completions.plain() as client,
    ):
        got = await client.post("/v1/chat/completions", json=asked)
    chunks = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    choices = [chunk["choices"][0] for chunk in chunks] if stream else got.json()["choices"]
    deltas = [choice.get("delta" if stream else "message") for choice in choices]
    (call,) = [call for each in deltas for call in each.get("tool_calls", [])]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == SHOW
    assert call["id"]
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert not any(each.get("content") for each in deltas)


async def test_a_caller_who_wants_text_gets_no_call_out_of_it(tmp_path: Path):
    text = 'Well.\n<tool_call>{"name": "show_map", "arguments": {"place": "Tokyo"}}</tool_call>'
    asked = {"model": "fingerpost", "messages": [user("Tell me a tale of bears")], "tools": [MAP]}
    async with open_served_completions(tmp_path, ScriptedModel(lambda request: text)) as completions:
        answer = await ask(completions, {**asked, "tool_choice": "none"})
    assert answer.text == "Well."
    assert "tool_calls" not in answer.json["choices"][0]["message"]


@proves("A13", "O3")
async def test_with_tool_routing_off_only_the_callers_tools_reach_the_model(tmp_path: Path):
    model = plays(calls(SHOW), "There it is.")
    async with open_served_completions(tmp_path, model, tool_routing={"enabled": False}) as completions:
        body: dict[str, Any] = {"model": "fingerpost", "messages": [user(TIME)], "tools": [MAP]}
        handed = await ask(completions, body)
        without = await ask(completions, {"model": "fingerpost", "messages": [user(TIME)]})
    assert [call["function"]["name"] for call in handed.json["choices"][0]["message"]["tool_calls"]] == [
        "show_map"
    ]
    assert without.text == "There it is."
    assert [asked.tools for asked in model.asked] == [(MAP,), ()]
    assert completions.clock.calls == []
