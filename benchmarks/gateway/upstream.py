"""The server everything is measured in front of: the MCP library's own, with tools that do nothing much.

Run as a program, on a port (`--port`) or on standard input and output (without). `--servers N` puts N
of them into one process, at /s0/mcp, /s1/mcp and so on: it is the gateway's cost that is measured.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.routing import Mount

VERBS = ("search", "create", "update", "delete", "list", "fetch", "export", "archive")
NOUNS = ("invoice", "ticket", "customer", "document", "calendar event", "repository", "message", "report")


def echo_tool() -> types.Tool:
    return types.Tool(
        name="echo",
        description="Return the text that was sent.",
        annotations=types.ToolAnnotations(read_only_hint=True),
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    )


def large_tool() -> types.Tool:
    return types.Tool(
        name="large",
        description="Return a text of so many MiB; without words, rows of data.",
        annotations=types.ToolAnnotations(read_only_hint=True),
        input_schema={
            "type": "object",
            "properties": {"mebibytes": {"type": "number"}, "words": {"type": "string"}},
            "required": ["mebibytes"],
        },
    )


def filler_tool(number: int) -> types.Tool:
    """A tool that is never called, of the usual length."""
    verb, noun = VERBS[number % 8], NOUNS[number // 8 % 8]
    return types.Tool(
        name=f"tool_{number:05d}",
        description=(
            f"{verb.capitalize()} a {noun} in workspace {number}. Use it when somebody wants to {verb} one "
            f"{noun} by id, by owner or by free text; returns the matching {noun} records as JSON."
        ),
        input_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": f"Free text over the {noun} records"},
                "owner": {"type": "string", "description": "Owner of the record (e-mail address)"},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
                "order": {"type": "string", "enum": ["asc", "desc"], "default": "desc"},
            },
            "required": ["query"],
        },
    )


def note_tool() -> types.Tool:
    return types.Tool(
        name="note",
        description="Write the text down, in a line of its own.",
        annotations=types.ToolAnnotations(read_only_hint=False),
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    )


def make_server(tools: int, record: Path | None = None) -> Server[Any]:
    listed = [echo_tool(), large_tool(), *(filler_tool(number) for number in range(2, tools))]
    if record is not None:
        listed.append(note_tool())

    async def list_tools(_: object, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(_: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        given = params.arguments or {}
        text = str(given.get("text", ""))
        if params.name == "large":
            size = float(given["mebibytes"]) * 2**20
            words = str(given.get("words", ""))
            if not words:
                rows = [{"number": n, "name": f"row {n}", "tags": ["a", "b"]} for n in range(int(size / 62))]
                return types.CallToolResult(content=[], structured_content={"rows": rows})
            text = words * int(size / len(words.encode()))
        if params.name == "note" and record is not None:
            with record.open("a", encoding="utf-8") as lines:
                lines.write(f"{text}\n")
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)])

    return Server("bench", version="1.0", on_list_tools=list_tools, on_call_tool=call_tool)


def make_app(
    tools: int, servers: int, *, json_response: bool = False, record: Path | None = None
) -> Starlette:
    # The Host check belongs to a server in a browser's reach; here it would only be measured along.
    free = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    apps = [
        make_server(tools, record).streamable_http_app(transport_security=free, json_response=json_response)
        for _ in range(servers)
    ]
    if servers == 1:
        return apps[0]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for app in apps:
                await stack.enter_async_context(app.router.lifespan_context(app))
            yield

    return Starlette(routes=[Mount(f"/s{n}", app) for n, app in enumerate(apps)], lifespan=lifespan)


async def serve_stdio(tools: int) -> None:
    from mcp.server.stdio import stdio_server

    server = make_server(tools)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--tools", type=int, default=30)
    reader.add_argument("--port", type=int, default=0, help="without: standard input and output")
    reader.add_argument("--servers", type=int, default=1)
    reader.add_argument("--json", action="store_true", help="answer with JSON, not with a stream")
    reader.add_argument("--record", type=Path, help="offer the tool note, which writes to this file")
    asked = reader.parse_args()
    if not asked.port:
        anyio.run(serve_stdio, asked.tools)
        return
    import uvicorn

    app = make_app(asked.tools, asked.servers, json_response=asked.json, record=asked.record)
    uvicorn.run(app, host="127.0.0.1", port=asked.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
