"""The same question wherever the person is: a terminal, the API, /v1, an MCP client of either era."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult
from openai import AsyncOpenAI

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.llm import ModelRequest
from fingerpost.testing import ScriptedModel, calls, served
from fingerpost.testing.models import ScriptLine
from tests.kit import api
from tests.kit.command_line import CommandLine
from tests.kit.gateways import serve_gateway, wait_until_connected
from tests.kit.routers import build_settings
from tests.kit.strong_model import StrongModel, settings_for
from tests.kit.terminal import Terminal
from tests.requirements import proves
from tests.surfaces.cli.conftest import person

__all__ = ["person"]

TOOL = "collaboration__user_collaboration"
WISH = "Ask me which city you should look at"
QUESTION: dict[str, Any] = {"operation": "ask", "question": "Which city?", "options": ["Oslo", "Rome"]}


def create_asking_model() -> ScriptedModel:
    """Asks, and says what it has heard."""

    def say(request: ModelRequest) -> ScriptLine:
        texts = [message.text for message in request.messages if "Rome" in message.text]
        answered = any("answered: Rome" in text or text == "Rome" for text in texts)
        return "So Rome it is." if answered else calls((TOOL, QUESTION))

    return ScriptedModel(say)


@asynccontextmanager
async def open_collaboration_router(
    folder: Path, model: ScriptedModel | None = None, **more: Any
) -> AsyncGenerator[Router]:
    given = build_settings(folder, builtin={"enabled": ["collaboration"]}, choose={"mode": "simple"}, **more)
    async with open_router(settings=given, folder=folder, model=model) as router:
        await wait_until_connected(router)
        yield router


@proves("U10")
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_an_mcp_client_that_can_be_asked_is_asked(tmp_path: Path, mode: Any) -> None:
    seen: list[ElicitRequestParams] = []

    async def answer(context: Any, params: ElicitRequestParams) -> ElicitResult:
        seen.append(params)
        return ElicitResult(action="accept", content={"answer": "Rome"})

    async def decline(context: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="decline")

    async with open_collaboration_router(tmp_path) as router, serve_gateway(router) as address:
        async with Client(f"{address}/mcp/all", mode=mode, elicitation_callback=answer) as client:
            result: Any = await client.call_tool(TOOL, QUESTION)
            assert result.content[0].text == "The person answered: Rome"
            assert "Which city?" in str(seen[0]) and "Oslo" in str(seen[0])
        async with Client(f"{address}/mcp/all", mode=mode, elicitation_callback=decline) as client:
            result = await client.call_tool(TOOL, QUESTION)
            assert "would rather not say" in result.content[0].text
        async with Client(f"{address}/mcp/all", mode=mode) as client:  # its person cannot be reached
            result = await client.call_tool(TOOL, QUESTION)
            assert result.content[0].text.startswith("Ask the person: Which city? (one of: Oslo, Rome)")
            assert not result.is_error


@pytest.mark.slow
@proves("U10")
async def test_over_v1_the_question_is_the_reply_and_the_next_message_the_answer(tmp_path: Path) -> None:
    async with (
        open_collaboration_router(tmp_path, create_asking_model()) as router,
        serve_gateway(router) as address,
    ):
        client = AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        talk: list[Any] = [{"role": "user", "content": WISH}]
        asked = await client.chat.completions.create(model="fingerpost", messages=talk)
        text = asked.choices[0].message.content
        assert text == "Which city?\n1. Oslo\n2. Rome"
        assert asked.choices[0].finish_reason == "stop"
        talk += [{"role": "assistant", "content": text}, {"role": "user", "content": "Rome"}]
        done = await client.chat.completions.create(model="fingerpost", messages=talk)
        assert "So Rome it is." in str(done.choices[0].message.content)
        await client.close()


@proves("U10", "U11")
async def test_over_the_api_the_same_request_continues_and_callers_cannot_set_a_parent(
    tmp_path: Path,
) -> None:
    async with (
        open_collaboration_router(tmp_path, create_asking_model()) as router,
        api.serve_api(router) as door,
    ):
        asked = (await door.post("/api/ask", {"request": WISH})).json()
        assert asked["outcome"] == "asked"
        assert asked["question"]["missing"][0]["options"] == ["Oslo", "Rome"]
        done = (await door.post("/api/ask", {"request": "2", "answers": asked["packet_id"]})).json()
        assert done["outcome"] == "answered" and done["packet_id"] == asked["packet_id"]
        assert "So Rome it is." in done["answer"]
        smuggled = await door.post("/api/ask", {"request": WISH, "parent": asked["packet_id"]})
        if smuggled.status_code == 200:
            line = (await door.get(f"/api/packets/{smuggled.json()['packet_id']}")).json()["line"]
            assert line["parent"] is None
        else:
            assert smuggled.status_code in (400, 422)


@pytest.mark.process
@proves("U10")
async def test_at_a_terminal_the_question_is_shown_and_the_next_line_answers_it(person: CommandLine) -> None:
    model = StrongModel(
        select=lambda read: {"tool": TOOL, "arguments": QUESTION},
        answer=lambda read: "So Rome it is." if "answered: Rome" in read else "Nobody knows.",
    )

    def talk() -> None:
        with Terminal(person, "chat") as screen:
            screen.until("› ")
            screen.types(WISH)
            shown = screen.until("2. Rome")
            assert "Which city?" in shown
            screen.types("2")
            screen.until("So Rome it is.")
            screen.until("› ")
            screen.ends_input()
            assert screen.end() == 0

    async with served(model.app) as address:
        own = '[builtin]\nenabled = ["collaboration"]\n'
        person.writes("fingerpost.toml", settings_for(address) + own)
        await anyio.to_thread.run_sync(talk)
