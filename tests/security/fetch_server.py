"""A stdio server with a tool that makes web requests and one that deletes; it counts what it deletes.

Run as a program: `python -m tests.security.fetch_server COUNT_FILE`.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server


def define(name: str, description: str, *, reads: bool, **properties: str) -> types.Tool:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties)[:1],
    }
    return types.Tool(
        name=name,
        description=description,
        input_schema=schema,
        annotations=types.ToolAnnotations(read_only_hint=reads),
    )


TOOLS = [
    define("fetch_url", "Fetch a page.", reads=True, url="string", method="string", body="string",
           headers="object"),
    define("delete_note", "Delete one note for ever.", reads=False, path="string"),
]  # fmt: skip


def fetch(arguments: dict[str, Any]) -> str:
    body = arguments.get("body")
    more: dict[str, str] = arguments.get("headers") or {}
    headers = {"content-type": "application/json", **more}
    request = urllib.request.Request(
        arguments["url"],
        data=None if body is None else body.encode(),
        method=arguments.get("method", "GET"),
        headers=headers,
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return f"{answer.status} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


async def main(count: Path) -> None:
    async def list_tools(context: ServerRequestContext[Any], params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=TOOLS)

    async def call(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == "fetch_url":
            reply_text = await anyio.to_thread.run_sync(fetch, arguments)
        else:
            with count.open("a") as file:
                file.write(json.dumps(arguments) + "\n")
            reply_text = "deleted"
        return types.CallToolResult(content=[types.TextContent(type="text", text=reply_text)])

    server: Server[Any] = Server("web", version="1", on_list_tools=list_tools, on_call_tool=call)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
