"""The workspace as others see it: over MCP, and among the tools of other servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from mcp.client import Client

from fingerpost.builtin import BuiltinHost, make_server, open_router
from fingerpost.settings import Settings
from fingerpost.testing import tool_server
from tests.requirements import proves


@proves("A8", "U1")
async def test_the_named_tools_work_over_mcp(folder: Path):
    (folder / "a.txt").write_text("hello\n")
    server = make_server("workspace", BuiltinHost(folder=folder))
    async with server.open(), Client(server.mcp) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"ai.read", "ai.write", "ai.execute", "embedding.query"} <= set(tools)
        reads = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
        assert reads == {"ai.read", "search_files", "embedding.query"}

        async def call_text(name: str, **arguments: object) -> str:
            result = await client.call_tool(name, arguments)
            return "".join(getattr(block, "text", "") for block in result.content)

        assert await call_text("ai.read", path="a.txt") == "hello\n"
        assert "+bye" in await call_text("ai.write", path="a.txt", content="bye\n")
        assert "Would run: ls" in await call_text("ai.execute", command="ls")
        assert "a.txt:1" in await call_text("embedding.query", query="hello")
        assert "path" in await call_text("ai.read", path=5)


def tool(name: str, description: str, **parameters: str) -> dict[str, object]:
    properties = {each: {"type": "string", "description": about} for each, about in parameters.items()}
    return {
        "name": name,
        "description": description,
        "inputSchema": {"type": "object", "properties": properties},
    }


OTHERS = (
    tool_server("github", [
        tool("search_issues", "Search issues and pull requests of a repository", query="Search text"),
        tool("create_issue", "Create a new issue", title="Title", body="Body"),
        tool("get_file_contents", "Get the contents of a file of a GitHub repository", repo="Repository"),
    ]),
    tool_server("mail", [tool("search_messages", "Search e-mail messages", query="Search text")]),
    tool_server("weather", [tool("get_forecast", "Weather forecast for a city", city="City")]),
    tool_server("web", [tool("web_search", "Search the web", query="Search text")]),
    tool_server("database", [tool("run_query", "Run an SQL query on the database", sql="SQL")]),
)  # fmt: skip

BEST = {
    "which files mention retry": "workspace/search_files",
    "read the file notes.md": "workspace/ai.read",
    "create a file todo.txt with the text buy milk": "workspace/ai.write",
    "rename draft.md to final.md": "workspace/file_operations",
    "replace foo by bar in config.toml": "workspace/file_operations",
    "list the files in src": "workspace/file_operations",
    "run the tests": "workspace/run_tests",
    "run pytest -q": "workspace/ai.execute",
    "start the development server in the background": "workspace/terminal_operations",
    "where in the code are failed calls repeated": "workspace/embedding.query",
    "what is the weather in Oslo": "weather/get_forecast",
}


@pytest.mark.slow
@proves("A8")
async def test_requests_about_files_and_commands_find_these_tools(settings: Settings, folder: Path):
    enabled = settings.model_copy(
        update={"builtin": settings.builtin.model_copy(update={"enabled": ("workspace",)})}
    )
    async with open_router([other.spec() for other in OTHERS], settings=enabled, folder=folder) as router:
        await router.connect()
        assert await router.settle(30)
        found = {request: (await router.narrow(request)).shortlist.offered[0].tool for request in BEST}
        assert found == BEST
        assert not (await router.narrow("what is the capital of France")).shortlist.offered


@pytest.mark.slow
@proves("A9", "U5")
async def test_without_a_model_files_are_read_searched_and_a_write_is_shown(settings: Settings, folder: Path):
    (folder / "notes.md").write_text("We retry failed calls.\n")
    enabled = settings.model_copy(
        update={"builtin": settings.builtin.model_copy(update={"enabled": ("workspace",)})}
    )
    async with open_router(settings=enabled, folder=folder) as router:
        await router.connect()
        assert await router.settle(30)

        async def answer(request: str) -> str:
            return (await router.route(request)).answer or ""

        assert "We retry failed calls." in await answer("read the file notes.md")
        assert "notes.md:1: We retry failed calls." in await answer('which files mention "retry"?')
        shown = await answer('create a file todo.txt with the content "buy milk"')
        assert "+buy milk" in shown and "allow_write = true" in shown
        shown = await answer("run `ls -la`")
        assert "Would run: ls -la" in shown and "allow_execute = true" in shown
    assert not (folder / "todo.txt").exists()
