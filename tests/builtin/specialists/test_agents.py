"""The agent, and who gets a specialist at all."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fingerpost import Router
from fingerpost.builtin import open_router
from fingerpost.llm import ModelRequest
from fingerpost.records import Effect, Scope
from fingerpost.settings import BuiltinSettings, Settings
from fingerpost.testing import ScriptedModel, calls, tool_server
from fingerpost.testing.models import ScriptLine
from tests.requirements import proves

AGENT = "specialists/use_mcp_agent"
OURS = {
    f"specialists/{name}" for name in ("use_mcp_agent", "use_multiagent_orchestration", "use_asset_service")
}


def tool(name: str, description: str, *, reads: bool = True, **properties: Any) -> dict[str, Any]:
    shown = properties or {"path": {"type": "string"}}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": shown, "required": list(shown)},
        "annotations": {"readOnlyHint": reads, "destructiveHint": not reads},
    }


FILES = [
    tool("read_file", "Read the whole content of a file"),
    tool("search_files", "Search for text in files", query={"type": "string"}),
    tool("delete_file", "Delete a file", reads=False),
]
WEB = [
    tool("fetch_page", "Fetch a web page by its address", url={"type": "string"}),
    tool("get_weather", "Current weather for a city", city={"type": "string"}),
]


@asynccontextmanager
async def open_specialist_router(
    settings: Settings, folder: Path, model: ScriptedModel | None = None
) -> AsyncGenerator[Router]:
    made = settings.model_copy(update={"builtin": BuiltinSettings(enabled=("specialists",))})
    servers = [tool_server("files", FILES).spec(), tool_server("web", WEB).spec()]
    async with open_router(servers, settings=made, folder=folder, model=model) as router:
        await router.connect()
        yield router


def list_offered(request: ModelRequest) -> set[str]:
    return {str(tool["function"]["name"]) for tool in request.tools}  # pyright: ignore


@proves("B3")
async def test_the_agent_works_with_the_other_servers_and_says_what_it_used(
    settings: Settings, tmp_path: Path
):
    def play(request: ModelRequest) -> ScriptLine:
        if any(message.role == "tool" for message in request.messages):
            return "The file says hello."
        return calls(("files__read_file", {"path": "notes.txt"}))

    model = ScriptedModel(play)
    async with open_specialist_router(settings, tmp_path, model) as router:
        outcome = await router.call(AGENT, {"task": "Read the file notes.txt and search the files for hello"})
        assert outcome.success, outcome.content
        assert outcome.content.startswith("The file says hello.")
        assert "The agent is done and used files/read_file." in outcome.content
        assert not any("specialists" in name for request in model.asked for name in list_offered(request))
        model.asked.clear()
        await router.call(AGENT, {"task": "Draw a bar chart of sales: Q1 12, Q2 18, from the file notes.txt"})
        assert model.asked and not any(
            "specialists" in name for one in model.asked for name in list_offered(one)
        )
        bounded = (Scope(servers=("web", "specialists")),)
        kept_out = await router.call(AGENT, {"task": "Read the file notes.txt"}, scopes=bounded)
        assert "used no tool" in kept_out.content, kept_out.content


@proves("B3")
async def test_what_the_agent_may_not_do_alone_waits_for_a_person(settings: Settings, tmp_path: Path):
    model = ScriptedModel(lambda _: calls(("files__delete_file", {"path": "notes.txt"})))
    async with open_specialist_router(settings, tmp_path, model) as router:
        outcome = await router.call(AGENT, {"task": "Delete the file notes.txt"}, caller="dana")
        assert outcome.success and "The agent waits for an approval" in outcome.content, outcome.content
        pending = re.search(r'"pending":"([^"]+)"', outcome.content)
        assert pending is not None
        waiting = await router.calls.approvals.get(pending[1])
        assert waiting is not None and (waiting.tool, waiting.caller) == ("files/delete_file", "dana")


@proves("B3")
async def test_without_a_model_the_agent_routes_by_itself(settings: Settings, tmp_path: Path):
    async with open_specialist_router(settings, tmp_path) as router:
        outcome = await router.call(AGENT, {"task": "read the file notes.txt"})
    assert outcome.success and "used files/read_file" in outcome.content, outcome.content


EXPLICIT = (
    ("Have an agent go through the files and collect all addresses", "use_mcp_agent"),
    ("Let the MCP agent fetch that page and save a summary to a file", "use_mcp_agent"),
    ("Get several expert perspectives on moving to microservices", "use_multiagent_orchestration"),
    ("Let a panel of experts debate whether we should raise prices", "use_multiagent_orchestration"),
    ("Draw a bar chart of sales: Q1 12, Q2 18, Q3 9", "use_asset_service"),
    ("Generate an image of a lighthouse at night", "use_asset_service"),
    ("Create a 3D model of a red cylinder", "use_asset_service"),
    ("Make a flowchart: order -> pay -> ship", "use_asset_service"),
    ("Compose a short melody as audio", "use_asset_service"),
)
ORDINARY = (
    "What is the weather in Oslo?",
    "Read the file notes.txt",
    "Search the files for the word budget",
    "Fetch the page https://example.org",
    "What is the capital of France?",
    "Thank you, that helped a lot!",
    "Delete the file old.txt",
    "Explain how a bar chart differs from a histogram",
    "Write a haiku about the sea",
)


@pytest.mark.slow
@proves("B3")
async def test_explicit_requests_get_the_specialist_and_ordinary_ones_do_not(
    settings: Settings, tmp_path: Path
):
    async with open_specialist_router(settings, tmp_path) as router:
        await router.settle(20)

        async def first(request: str) -> str:
            found = [candidate.tool for candidate in (await router.narrow(request)).shortlist.offered]
            return found[0] if found else ""

        got = {request: await first(request) for request, _ in EXPLICIT}
        assert got == {request: f"specialists/{wanted}" for request, wanted in EXPLICIT}
        wrongly = {request: found for request in ORDINARY if (found := await first(request)) in OURS}
        assert wrongly == {}


async def test_their_definitions_say_what_they_are_for(settings: Settings, tmp_path: Path):
    async with open_specialist_router(settings, tmp_path) as router:
        cards = {card.key: card for card in router.tools.cards if card.key in OURS}
    assert set(cards) == OURS
    for card in cards.values():
        assert "ONLY" in card.description and card.effect.value is Effect.WRITE
