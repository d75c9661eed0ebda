"""The openai clients for Python and Node, with nothing changed but the base URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from openai import OpenAI

from fingerpost.testing import ScriptedModel, calls
from tests.kit.chat_completions import open_served_completions, user
from tests.kit.programs import program
from tests.requirements import proves

NODE = Path(__file__).with_name("client.mjs")
TIME = "What time is it in Tokyo?"


def tells_time() -> ScriptedModel:
    """Calls the clock where it is offered, then says something."""

    def say(request: Any) -> Any:
        if request.tools and request.messages[-1].role == "user":
            return calls(("time__get_current_time", {"timezone": "Asia/Tokyo"}))
        return "It is nine in the evening."

    return ScriptedModel(say)


@proves("O1", "O2", "O8")
async def test_a_whole_answer(tmp_path: Path):
    async with open_served_completions(tmp_path, tells_time()) as completions, completions.client() as client:
        raw = await client.chat.completions.with_raw_response.create(
            model="fingerpost", messages=[user(TIME)]
        )
        answer = raw.parse()
    assert answer.object == "chat.completion"
    choice = answer.choices[0]
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    assert choice.message.content == "It is nine in the evening.\n\nSource: time/get_current_time"
    assert completions.clock.calls == [("get_current_time", {"timezone": "Asia/Tokyo"})]
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    extension: Any = (answer.model_extra or {})["fingerpost"]
    assert extension["outcome"] == "answered"
    assert extension["tools_considered"] == 2
    assert extension["tools_offered"] == extension["tools_used"] == ["time/get_current_time"]
    assert answer.id == f"chatcmpl-{extension['packet_id']}"
    assert raw.headers["x-request-id"] == raw.headers["x-fingerpost-packet"] == extension["packet_id"]
    assert raw.headers["x-fingerpost-tools-used"] == "time/get_current_time"
    assert int(raw.headers["x-fingerpost-saved-tokens"]) == extension["saved_tokens"] > 0


@proves("O1", "O8")
async def test_an_answer_in_pieces(tmp_path: Path):
    async with open_served_completions(tmp_path, tells_time()) as completions, completions.client() as client:
        stream = await client.chat.completions.create(
            model="fingerpost", messages=[user(TIME)], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert stream.response.headers["x-fingerpost-packet"] in chunks[0].id
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(piece or "" for piece in pieces).startswith("It is nine in the evening.")
    assert sum(bool(piece) for piece in pieces) > 2
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert (chunks[-2].model_extra or {})["fingerpost"]["tools_used"] == ["time/get_current_time"]
    assert (chunks[-1].choices, chunks[-1].usage is not None) == ([], True)


@proves("O1")
async def test_the_stream_helper_of_the_client(tmp_path: Path):
    async with (
        open_served_completions(tmp_path, tells_time()) as completions,
        completions.client() as client,
        client.chat.completions.stream(model="fingerpost", messages=[user(TIME)]) as stream,
    ):
        kinds = {event.type async for event in stream}
        final = await stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert (final.choices[0].message.content or "").startswith("It is nine")


@proves("O1")
async def test_the_client_without_an_event_loop(tmp_path: Path):
    async with open_served_completions(tmp_path, tells_time()) as completions:

        def talk() -> tuple[str, str, list[str]]:
            with OpenAI(base_url=f"{completions.address}/v1", api_key="none needed") as client:
                whole = client.chat.completions.create(model="scripted", messages=[user("Hello!")])
                stream = client.chat.completions.create(
                    model="fingerpost", messages=[user("Hello!")], stream=True
                )
                pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
                return str(whole.choices[0].message.content), "".join(pieces), list(_ids(client))

        whole, streamed, models = await anyio.to_thread.run_sync(talk)
    assert whole == streamed == "It is nine in the evening."
    assert models[:2] == ["fingerpost", "fingerpost:staged"]
    assert "scripted" in models


def _ids(client: OpenAI) -> list[str]:
    assert client.models.retrieve("fingerpost:react").owned_by == "fingerpost"
    return [model.id for model in client.models.list()]


@pytest.mark.process
@proves("O1")
async def test_the_client_of_node(tmp_path: Path):
    async with open_served_completions(tmp_path, tells_time()) as completions:
        with anyio.fail_after(30):
            done = await anyio.run_process(
                [program("node"), str(NODE), f"{completions.address}/v1"], check=False
            )
    assert done.returncode == 0, done.stderr.decode()
    data = json.loads(done.stdout)
    assert data["whole"].startswith("It is nine in the evening.")
    assert data["streamed"].startswith("It is nine in the evening.")
    assert data["finish"] == "stop"
    assert data["helper"].startswith("It is nine in the evening.")
    assert data["response"].startswith("It is nine in the evening.")
    assert data["models"][0] == "fingerpost"
    assert data["error"] == {"status": 404, "code": "model_not_found", "param": "model"}


async def test_without_any_model(tmp_path: Path):
    async with open_served_completions(tmp_path) as completions, completions.client() as client:
        answer = await client.chat.completions.create(
            model="fingerpost", messages=[user("What time is it in Asia/Tokyo?")]
        )
        listed = [model.id async for model in client.models.list()]
    assert "21:00 in Asia/Tokyo" in (answer.choices[0].message.content or "")
    assert answer.usage is not None and answer.usage.total_tokens == 0
    assert listed == ["fingerpost", "fingerpost:keyless"]


@pytest.mark.slow
@proves("O1")
async def test_responses_whole_and_streamed(tmp_path: Path):
    async with open_served_completions(tmp_path, tells_time()) as completions, completions.client() as client:
        whole = await client.responses.create(model="fingerpost", instructions="Be brief.", input=TIME)
        assert whole.output_text.startswith("It is nine")
        assert (whole.status, whole.instructions) == ("completed", "Be brief.")
        assert whole.usage is not None and whole.usage.total_tokens > 0
        async with client.responses.stream(model="fingerpost", input=[user(TIME)]) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_text.delta") > 2
    assert final.output_text == whole.output_text
    assert (final.model_extra or {})["fingerpost"]["tools_used"] == ["time/get_current_time"]


@pytest.mark.slow
async def test_many_at_once_do_not_disturb_each_other(tmp_path: Path):
    model = ScriptedModel(lambda request: request.messages[-1].text.upper(), seconds=0.02)
    received: dict[int, str] = {}
    async with open_served_completions(tmp_path, model) as completions, completions.client() as client:

        async def talk(number: int) -> None:
            words = [user(f"please repeat: number {number}")]
            if number % 2:
                stream = await client.chat.completions.create(model="fingerpost", messages=words, stream=True)
                received[number] = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            else:
                whole = await client.chat.completions.create(model="fingerpost", messages=words)
                received[number] = whole.choices[0].message.content or ""

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(talk, number)
    assert received == {number: f"PLEASE REPEAT: NUMBER {number}" for number in range(12)}


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_extension_can_be_switched_off(tmp_path: Path, wanted: bool):
    more = {"completions": {"extension": wanted}}
    async with (
        open_served_completions(tmp_path, tells_time(), **more) as completions,
        completions.client() as client,
    ):
        answer = await client.chat.completions.create(model="fingerpost", messages=[user("Hello!")])
    assert ("fingerpost" in (answer.model_extra or {})) is wanted
