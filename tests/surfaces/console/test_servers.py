"""Servers are added, edited and removed in the browser: tried first, then saved."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio.from_thread import BlockingPortal, start_blocking_portal
from playwright.sync_api import Browser, expect

from tests.kit.browser import ConsoleServer, check_access, shoot, visit
from tests.kit.configurations import get_servers_file, open_followed, serve_tools
from tests.kit.gateways import serve_gateway
from tests.requirements import proves

SECRET = "sk-live-0123456789abcdefghij"


@asynccontextmanager
async def serve_followed(folder: Path, portal: BlockingPortal) -> AsyncGenerator[ConsoleServer]:
    async with open_followed(folder) as router, serve_gateway(router) as address:
        yield ConsoleServer(address, router, portal)


@proves("V12", "S6")
def test_a_server_is_tried_added_edited_and_removed(browser: Browser, tmp_path: Path):
    file = get_servers_file(tmp_path)
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(serve_tools(tmp_path, "look", "find")) as url,
        portal.wrap_async_context_manager(serve_followed(tmp_path, portal)) as server,
        visit(browser, server, "#/servers") as page,
    ):
        page.get_by_role("link", name="Add a server").click()
        page.get_by_role("tab", name="JSON").click()
        pasted = {"mcpServers": {"dead": {"url": "http://127.0.0.1:1/mcp"}, "books": {"url": url}}}
        page.get_by_label("JSON").fill(json.dumps(pasted))
        page.get_by_role("button", name="Test connection").click()
        expect(page.get_by_text("Not connected", exact=True)).to_be_visible()
        expect(page.get_by_role("button", name="Save anyway")).to_be_visible()
        page.get_by_label("Server", exact=True).select_option("books")
        page.get_by_role("tab", name="Form").click()
        expect(page.get_by_label("URL (required)")).to_have_value(url)
        page.get_by_label("Headers").fill(f"X-Token: {SECRET}")
        expect(page.get_by_role("button", name="Save")).to_be_disabled()
        page.get_by_role("button", name="Test connection").click()
        expect(page.get_by_role("list", name="Tools of the server")).to_contain_text("up__look read")
        assert not file.exists()
        check_access(page)
        shoot(page, "server-add")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("heading", level=1, name="books")).to_be_visible()
        expect(page.get_by_role("link", name="up__find")).to_be_visible()
        assert json.loads(file.read_text())["mcpServers"]["books"]["headers"] == {"X-Token": SECRET}
        page.get_by_role("link", name="Edit").click()
        expect(page.get_by_label("Headers")).to_have_value("X-Token: [redacted]")
        page.get_by_label("Headers").fill("X-Token: [redacted]\nX-More: 1")
        page.get_by_role("button", name="Test connection").click()
        page.get_by_role("button", name="Save", exact=True).click()
        expect(page.get_by_role("button", name="Remove…")).to_be_visible()
        saved = json.loads(file.read_text())["mcpServers"]["books"]
        assert saved["headers"] == {"X-Token": SECRET, "X-More": "1"}
        page.get_by_role("button", name="Remove…").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(page.get_by_role("heading", name="No servers yet")).to_be_visible()
        assert json.loads(file.read_text()) == {"mcpServers": {}}
