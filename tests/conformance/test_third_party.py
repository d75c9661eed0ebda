"""Servers of other people's making behind the gateway, and the SDK's client in front of it, in both eras."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import mcp_types as types
import pytest
from mcp import Client
from mcp.client import ClientRequestContext

from fingerpost import Server
from tests.kit.gateways import open_gateway
from tests.kit.programs import program
from tests.requirements import proves

Mode = Literal["legacy", "2026-07-28"]
MODES: tuple[Mode, ...] = ("legacy", "2026-07-28")


async def _agree(context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
    """A person who fills in their name and leaves the rest."""
    assert isinstance(params, types.ElicitRequestFormParams)
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def _reply(
    context: ClientRequestContext, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult:
    """A model that says one thing."""
    content = types.TextContent(type="text", text="a reply of the client's model")
    return types.CreateMessageResult(role="assistant", content=content, model="scripted")


def _text(result: types.CallToolResult) -> str:
    assert not result.is_error, result
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def _use_tools(client: Client) -> None:
    received: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)

    names = {tool.name for tool in (await client.list_tools()).tools}
    assert {"everything__echo", "memory__read_graph", "time__convert_time"} <= names
    assert "hello" in _text(await client.call_tool("everything__echo", {"message": "hello"}))
    image = await client.call_tool("everything__get-tiny-image", {})
    assert [part.type for part in image.content] == ["text", "image", "text"]
    weather = await client.call_tool("everything__get-structured-content", {"location": "New York"})
    assert "temperature" in weather.structured_content
    steps = {"duration": 0.3, "steps": 3}
    await client.call_tool("everything__trigger-long-running-operation", steps, progress_callback=hear)
    assert received == [1, 2, 3]
    there = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    assert "21:00" in _text(await client.call_tool("time__convert_time", there))


async def _use_memory(client: Client, name: str) -> None:
    entity = {"name": name, "entityType": "client", "observations": ["came by the gateway"]}
    await client.call_tool("memory__create_entities", {"entities": [entity]})
    graph = json.loads(_text(await client.call_tool("memory__search_nodes", {"query": name})))
    assert [found["name"] for found in graph["entities"]] == [name]


async def _use_materials(client: Client) -> None:
    uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
    assert "demo://resource/static/document/features.md" in uris
    [read] = (await client.read_resource("demo://resource/dynamic/text/1")).contents
    assert isinstance(read, types.TextResourceContents)
    prompt = await client.get_prompt("everything__args-prompt", {"city": "Haifa"})
    assert "Haifa" in prompt.messages[0].content.model_dump_json()
    reference = types.PromptReference(type="ref/prompt", name="everything__completable-prompt")
    completion = await client.complete(reference, {"name": "department", "value": "E"})
    assert "Engineering" in completion.completion.values


async def _be_asked(client: Client) -> None:
    """The server speaks the older era: in the newer one its questions come as `input_required`."""
    elicited = _text(await client.call_tool("everything__trigger-elicitation-request", {}))
    assert "Ada" in elicited
    sampled = await client.call_tool("everything__trigger-sampling-request", {"prompt": "say something"})
    assert "a reply of the client's model" in _text(sampled)


@pytest.mark.process
@proves("G1", "G8")
async def test_real_servers_serve_clients_of_both_eras(tmp_path: Path) -> None:
    servers = (
        Server.stdio("everything", [program("mcp-server-everything")]),
        Server.stdio(
            "memory",
            [program("mcp-server-memory")],
            env={"MEMORY_FILE_PATH": str(tmp_path / "memory.json")},
        ),
        Server.stdio("time", [program("mcp-server-time"), "--local-timezone", "UTC"]),
    )
    async with open_gateway(*servers, folder=tmp_path, call={"data_flow": "off"}) as address:
        for mode in MODES:
            async with Client(
                f"{address}/mcp", mode=mode, elicitation_callback=_agree, sampling_callback=_reply
            ) as client:
                await _use_tools(client)
                await _use_memory(client, f"client-{mode}")
                await _use_materials(client)
                await _be_asked(client)
