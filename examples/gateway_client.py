"""Any MCP client, one entry in its configuration, every server behind it.

The client starts `fingerpost stdio`, as an editor or a desktop assistant would, and speaks
plain MCP with it: it finds the tools for a request, calls one that reads, and one that
writes. Before that one runs, the person at the client is shown exactly what would.

    $ python examples/gateway_client.py
    2026-07-28: find_tools, describe_tool, call_tool, read_result
    found: time__convert_time(…)
    12:00 in Oslo is …:00 in Tokyo
    dana reads:
        tool: files/write_file
        effect: destroy (it can overwrite files)
        requested by: … via mcp …
        why: no rule allows overwriting or deleting
        path = "…/list.md"
        content = "Buy milk."
    the file says: Buy milk.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import anyio
from mcp import Client, StdioServerParameters
from mcp.client import ClientRequestContext
from mcp.client.stdio import stdio_client
from mcp_types import ElicitRequestParams, ElicitResult, TextContent

FOLDER = Path(".fingerpost/errands").absolute()
SERVERS = {
    "time": {"command": "mcp-server-time"},
    "files": {"command": "mcp-server-filesystem", "args": [str(FOLDER)]},
}
GATEWAY = StdioServerParameters(
    command="fingerpost",
    args=["stdio", "--servers", str(FOLDER / "mcp.json"), "--mode", "route"],
    env={"PATH": os.environ["PATH"], "FINGERPOST_STORE__URL": "sqlite:///.fingerpost/gateway.db"},
)


async def approve(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    """What a client does when it is asked: show it to its person. Ours reads and agrees."""
    print("dana reads:")
    print("\n".join(line for line in params.message.splitlines() if line.startswith("    ")))
    return ElicitResult(action="accept", content={"decision": "approve"})


async def call(client: Client, name: str, **arguments: str) -> str:
    """The text a tool answers with."""
    result = await client.call_tool("call_tool", {"name": name, "arguments": arguments})
    return "".join(part.text for part in result.content if isinstance(part, TextContent))


async def main() -> None:
    async with Client(stdio_client(GATEWAY), elicitation_callback=approve) as client:
        listed = (await client.list_tools()).tools
        print(f"{client.protocol_version}: {', '.join(tool.name for tool in listed)}")

        found = await client.call_tool("find_tools", {"request": "What is 12:00 in Oslo for Tokyo?"})
        answer = cast("dict[str, Any]", found.structured_content)
        print("found:", answer["tools"][0]["signature"])

        zones = {"source_timezone": "Europe/Oslo", "target_timezone": "Asia/Tokyo"}
        there = json.loads(await call(client, "time__convert_time", time="12:00", **zones))
        print("12:00 in Oslo is", there["target"]["datetime"][11:16], "in Tokyo")

        await call(client, "files__write_file", path=str(FOLDER / "list.md"), content="Buy milk.")
    print("the file says:", (FOLDER / "list.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "mcp.json").write_text(json.dumps({"mcpServers": SERVERS}), encoding="utf-8")
    anyio.run(main)
