"""Clients that disconnect, and a router that closes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from fingerpost import Router
from fingerpost.llm import OpenAIChat
from fingerpost.settings import ModelSettings
from fingerpost.testing import HANG, ScriptedModel, calls, served, tool_server
from tests.kit.chat_completions import open_served_completions, user
from tests.kit.chat_completions import serve_completions as serving
from tests.kit.model_server import Hanging, create_reply
from tests.kit.routers import build_settings, open_router
from tests.requirements import proves


class Patient(ScriptedModel):
    """Never answers, and says when it is asked and when the asker is gone."""

    def __init__(self) -> None:
        self.reached, self.gone = anyio.Event(), anyio.Event()
        super().__init__(self._wait)

    async def _wait(self, request: Any) -> str:
        self.reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.gone.set()
        return HANG


async def disconnect_when(reached: anyio.Event, address: str, **more: Any) -> None:
    """Ask, and hang up as soon as the work has begun."""
    body = {"model": "fingerpost", "messages": [user("What time is it in Tokyo?")], **more}
    async with httpx2.AsyncClient(timeout=20) as client, anyio.create_task_group() as tasks:

        async def ask() -> None:
            await client.post(f"{address}/v1/chat/completions", json=body)

        tasks.start_soon(ask)
        await reached.wait()
        tasks.cancel_scope.cancel()


@proves("O6")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_the_question_to_the_model(tmp_path: Path, stream: bool):
    model = Patient()
    async with open_served_completions(tmp_path, model) as completions:
        with anyio.fail_after(30):
            await disconnect_when(model.reached, completions.address, stream=stream)
            await model.gone.wait()


@proves("O6")
async def test_the_upstream_server_sees_the_connection_close(tmp_path: Path):
    upstream = Hanging(create_reply("too late"))
    async with served(upstream.app) as address:
        chosen = ModelSettings(model="tiny", base_url=f"{address}/v1", api_key="k", retries=0)
        async with (
            OpenAIChat(chosen) as model,
            Router(settings=build_settings(tmp_path), model=model) as router,
            serving(router) as (at, _),
        ):
            with anyio.fail_after(30):
                await disconnect_when(upstream.reached, at, stream=True)
                await upstream.gone.wait()


@proves("O6")
async def test_a_client_that_leaves_ends_the_call_of_a_tool(tmp_path: Path):
    reached, gone = anyio.Event(), anyio.Event()

    async def hang(name: str, arguments: dict[str, Any]) -> str:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.set()
        return ""

    look = {
        "name": "get_current_time",
        "description": "Get the current time in a city",
        "annotations": {"readOnlyHint": True},
    }
    slow = tool_server("time", [look], call=hang)
    model = ScriptedModel(lambda request: calls(("time__get_current_time", {})))
    async with open_router(tmp_path, (slow.spec(),), model) as router, serving(router) as (address, _):
        with anyio.fail_after(30):
            await disconnect_when(reached, address, stream=True)
            await gone.wait()


@pytest.mark.parametrize("stream", [False, True])
async def test_closing_gives_what_runs_a_little_time(tmp_path: Path, stream: bool):
    proceed, asked = anyio.Event(), anyio.Event()

    async def say(request: Any) -> str:
        asked.set()
        await proceed.wait()
        return "just in time"

    got: list[httpx2.Response] = []
    body = {"model": "fingerpost", "messages": [user("Hello!")], "stream": stream}
    async with (
        open_served_completions(tmp_path, ScriptedModel(say)) as completions,
        completions.plain() as client,
    ):

        async def ask() -> None:
            got.append(await client.post("/v1/chat/completions", json=body))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await asked.wait()
            tasks.start_soon(completions.app.drain, 5.0)
            late = await client.post("/v1/chat/completions", json=body)
            assert (late.status_code, late.json()["error"]["type"]) == (503, "server_error")
            proceed.set()
    assert got[0].status_code == 200
    assert all(word in got[0].text for word in ("just", "time", "stop"))
    assert "error" not in got[0].text


async def test_closing_ends_what_takes_too_long(tmp_path: Path):
    model = Patient()
    async with open_served_completions(tmp_path, model) as completions, completions.plain() as client:
        whole: list[httpx2.Response] = []
        body = {"model": "fingerpost", "messages": [user("Hello!")]}

        async def ask() -> None:
            whole.append(await client.post("/v1/chat/completions", json=body))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await model.reached.wait()
            await completions.app.drain(0.0)
    assert whole[0].status_code == 503
    assert "shutting down" in json.loads(whole[0].text)["error"]["message"]
