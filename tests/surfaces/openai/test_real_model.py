"""/v1 in front of a real model server. What is asserted is protocol, never quality."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from openai import AsyncOpenAI

from fingerpost import Router
from tests.kit.chat_completions import serve_completions, user
from tests.kit.real_model import NAME, real_model
from tests.kit.routers import build_settings
from tests.requirements import proves

pytestmark = pytest.mark.timeout(180)  # one thread on a busy machine


@pytest.fixture(scope="module")
def llama() -> Generator[str]:
    with real_model() as address:
        yield address


@asynccontextmanager
async def open_client(llama: str, folder: Path) -> AsyncGenerator[AsyncOpenAI]:
    models = {"prime": {"model": NAME, "base_url": f"{llama}/v1", "timeout": 120}}
    async with (
        Router(settings=build_settings(folder, models=models)) as router,
        serve_completions(router) as (address, _),
    ):
        client = AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=120)
        async with client:
            yield client


@proves("O1", "O8")
async def test_answers_whole_and_in_pieces(llama: str, tmp_path: Path):
    count = [user("Count to ten.")]
    async with open_client(llama, tmp_path) as client:
        whole = await client.chat.completions.create(
            model="fingerpost", messages=count, max_tokens=6, temperature=0
        )
        stream = await client.chat.completions.create(
            model=NAME,
            messages=count,
            max_tokens=6,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        listed = [model.id async for model in client.models.list()]
    assert whole.choices[0].finish_reason == chunks[-2].choices[0].finish_reason == "length"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content != ""
    assert whole.usage is not None
    assert chunks[-1].usage == whole.usage
    assert whole.usage.completion_tokens == 6
    assert listed.count(NAME) == 1
    assert listed[0] == "fingerpost"


@proves("O6")
async def test_the_server_stops_when_the_client_leaves(llama: str, tmp_path: Path):
    async with open_client(llama, tmp_path) as client:
        stream = await client.chat.completions.create(
            model="fingerpost", messages=[user("Count to a thousand.")], max_tokens=900, stream=True
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        async with httpx2.AsyncClient() as plain:
            with anyio.fail_after(60):
                while (await plain.get(f"{llama}/slots")).json()[0]["is_processing"]:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
