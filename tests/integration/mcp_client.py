"""The SDK's MCP client, as a function."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
from mcp import Client
from mcp_types import TextContent

from tests.integration.program import ServeProgram


def call(program: ServeProgram, tool: str, arguments: dict[str, Any]) -> tuple[bool, str]:
    """A call by a client that cannot ask its person anything: whether it failed, and the text."""

    async def make() -> tuple[bool, str]:
        async with Client(f"{program.address}/mcp/all") as client:
            result = await client.call_tool(tool, arguments)
            [content] = result.content
            assert isinstance(content, TextContent)
            return bool(result.is_error), content.text

    with ThreadPoolExecutor() as threads:  # the event loop of this thread is Playwright's
        return threads.submit(anyio.run, make).result()
