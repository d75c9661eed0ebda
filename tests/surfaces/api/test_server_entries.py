"""Servers are added, changed and removed over the API: tried first, saved, and in use at once."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

from fingerpost.records import Right, Scope, ServerState
from tests.kit.api_resources import ServedApiAndGateway, by_key, open_api_of, until
from tests.kit.configurations import (
    get_servers_file,
    open_followed,
    read_servers,
    serve_tools,
    write_servers,
)
from tests.kit.routers import open_router
from tests.requirements import proves

SECRET = "sk-live-0123456789abcdefghij"


async def _send(api: ServedApiAndGateway, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await api.client.request(method, path, json=body)
    assert answer.status_code == status, f"{answer.status_code}: {answer.text}"
    return answer.json() if answer.content else None


@pytest.mark.slow
@proves("S6")
async def test_a_server_is_tried_added_changed_and_removed(tmp_path: Path):
    async with (
        serve_tools(tmp_path, "look") as first,
        serve_tools(tmp_path, "look", "find") as second,
        open_followed(tmp_path) as router,
        open_api_of(router) as api,
    ):
        assert (await api.ok("/api/servers"))["file"] == ".config/fingerpost/servers.json"
        pasted = {"mcpServers": {"books": {"url": first, "headers": {"X-Token": SECRET}}}}
        trial = await api.ok("/api/server-trials", {"entry": pasted})
        assert (trial["name"], trial["connected"], trial["needs_sign_in"]) == ("books", True, False)
        look = next(tool for tool in trial["tools"] if tool["name"] == "up__look")
        assert (look["description"], look["effect"]) == ("Read look", "read")
        assert trial["entry"]["headers"] == {"X-Token": "[redacted]"}
        assert await read_servers(tmp_path) is None and not router.servers.statuses

        saved = await _send(api, "POST", "/api/servers", {"entry": pasted}, 201)
        assert (saved["server"]["name"], saved["trial"]["connected"]) == ("books", True)
        await until(lambda: router.tools.get("books/up__look") is not None)
        assert await read_servers(tmp_path) == pasted
        file = await anyio.Path(get_servers_file(tmp_path)).stat()
        assert stat.S_IMODE(file.st_mode) == 0o600
        await _send(api, "POST", "/api/servers", {"entry": pasted}, 409)

        view = await api.ok("/api/servers/books/entry")
        assert view["editable"] and view["file"] == ".config/fingerpost/servers.json:3"
        assert SECRET not in json.dumps(view)
        changed = {**view["entry"], "url": second}
        await _send(api, "PUT", "/api/servers/books", {"entry": changed})
        assert router.servers.get_spec("books").url == second
        assert (await read_servers(tmp_path))["mcpServers"]["books"]["headers"] == {"X-Token": SECRET}

        await _send(api, "DELETE", "/api/servers/books", status=204)
        assert not router.servers.statuses and not router.tools.cards
        assert (await read_servers(tmp_path)) == {"mcpServers": {}}
        await _send(api, "DELETE", "/api/servers/books", status=404)
        rows = (await api.ok("/api/audit?kind=server_entry_changed"))["items"]
        assert [(row["data"]["change"], row["data"]["by"]) for row in rows] == [
            ("removed", "local"),
            ("changed", "local"),
            ("added", "local"),
        ]
        assert SECRET not in json.dumps(await api.ok("/api/audit"))


@pytest.mark.slow
@proves("S6")
async def test_an_entry_that_does_not_work_is_saved_only_on_request(tmp_path: Path):
    dead = {"name": "dead", "entry": {"url": "http://127.0.0.1:9/mcp"}}
    async with open_followed(tmp_path) as router, open_api_of(router) as api:
        trial = await api.ok("/api/server-trials", dead)
        assert not trial["connected"] and trial["reason"]
        problem = await _send(api, "POST", "/api/servers", dead, 422)
        assert problem["detail"].startswith("dead could not be connected: ") and problem["hint"]
        wrong = {"name": "wrong", "entry": {"command": "x", "url": "http://127.0.0.1:9/"}}
        problem = await _send(api, "POST", "/api/servers", wrong, 422)
        assert "both a command and a url" in problem["detail"]
        assert await read_servers(tmp_path) is None
        await _send(api, "POST", "/api/servers", {**dead, "check": False}, 201)
        assert router.servers.get_status("dead").state is not ServerState.READY
        hidden = {"entry": {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Token": "[redacted]"}}}
        problem = await _send(api, "PUT", "/api/servers/dead", hidden, 422)
        assert "X-Token is masked" in problem["detail"]


@pytest.mark.slow
@proves("S6")
async def test_only_a_person_who_manages_everything_adds_servers(tmp_path: Path):
    body = {"name": "x", "entry": {"url": "http://127.0.0.1:9/mcp"}, "check": False}
    await write_servers(tmp_path, {})
    async with open_followed(tmp_path) as router, open_api_of(router) as api:
        operator = dict(api.client.headers)
        for headers in (
            {},  # a local caller without a key
            await api.key("watcher", Right.USE, Right.WATCH, Right.APPROVE),
            await api.key("limited", Right.MANAGE, scope=Scope(servers=("files",))),
        ):
            api.client.headers = {**headers, "x-csrf-token": ""}
            api.client.cookies.clear()
            await _send(api, "POST", "/api/servers", body, 403)
            await _send(
                api,
                "POST",
                "/api/server-trials",
                {"name": "x", "entry": body["entry"]},
                403,
            )
        api.client.headers = operator
        assert not router.servers.statuses
    async with open_router(tmp_path) as router, open_api_of(router) as api:
        problem = await _send(api, "POST", "/api/servers", body, 409)
        assert "there is no servers file" in problem["detail"]
        assert by_key(await api.ok("/api/servers")) == {}
