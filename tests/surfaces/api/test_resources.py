"""Usage, figures, evals, settings, and who may see and do all this."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from fingerpost.records import Right
from fingerpost.settings import load
from fingerpost.testing import tool_server
from tests.kit.api_resources import open_api_and_router, reading_tool
from tests.requirements import proves


@proves("I8")
async def test_figures_come_from_what_happened(tmp_path: Path):
    async with open_api_and_router(
        tmp_path, tool_server("files", [reading_tool("look"), reading_tool("idle")]).spec()
    ) as api:
        assert (await api.ok("/api/usage"))["items"] == []
        await api.router.call("files/look", {})
        await api.router.store.journal.flush()
        (line,) = (await api.ok("/api/usage"))["items"]
        assert (line["tool"], line["calls"], line["failures"]) == ("files/look", 1, 0)
        figures = await api.ok("/api/insight?hours=1&step=minute")
        assert figures["step"] == "minute" and figures["totals"]["calls"] == 1
        assert figures["never_used"] == ["files/idle"]
        for wrong in ("hours=0", "hours=-3", "hours=nan", "hours=1e9", "step=year"):
            await api.problem(400, f"/api/insight?{wrong}")


async def test_kept_evals_are_listed_newest_first_and_none_comes_with_a_hint(tmp_path: Path):
    async with open_api_and_router(tmp_path) as api:
        empty = await api.ok("/api/evals")
        assert empty["items"] == [] and "fingerpost eval" in empty["hint"]
        for name in ("monday", "tuesday"):
            report = {"figures": {"recall@5": {"value": 0.9, "queries": 10}}}
            await api.router.store.evals.add(name, report)
        page = await api.ok("/api/evals?limit=1")
        assert [kept["name"] for kept in page["items"]] == ["tuesday"] and page["hint"] == ""
        assert page["items"][0]["report"]["figures"]["recall@5"]["value"] == 0.9
        rest = await api.ok("/api/evals", params={"before": page["next"]})
        assert [kept["name"] for kept in rest["items"]] == ["monday"] and rest["next"] is None


async def test_settings_tell_where_they_come_from_and_keep_secrets(tmp_path: Path):
    file = tmp_path / "fingerpost.toml"
    await anyio.Path(file).write_text(
        "[smart_routing]\nmax_tools = 33\n"
        '[models.prime]\nmodel = "m"\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "correct-horse-battery"\n'
    )
    loaded = await anyio.to_thread.run_sync(partial(load, config=file, environ={}, cwd=tmp_path))
    async with open_api_and_router(tmp_path, loaded=loaded) as api:
        shown = await api.ok("/api/settings?changed=true")
        lines = {line["path"]: line for line in shown["settings"]}
        routing = lines["smart_routing.max_tools"]
        assert (routing["value"], routing["kind"]) == (33, "file")
        assert routing["origin"].endswith("fingerpost.toml:2")
        assert shown["files"] == ["fingerpost.toml"]
        secret = await api.get("/api/settings")
        assert "correct-horse" not in secret.text and "models.prime.api_key" in secret.text
        part = await api.ok("/api/settings?section=smart_routing")
        assert {line["path"].split(".")[0] for line in part["settings"]} == {"smart_routing"}
        assert "smart_routing" in (await api.problem(404, "/api/settings?section=nonsense"))["detail"]


async def test_settings_a_program_gave_are_told_from_defaults(tmp_path: Path):
    async with open_api_and_router(tmp_path, smart_routing={"max_tools": 12}) as api:
        lines = {line["path"]: line for line in (await api.ok("/api/settings"))["settings"]}
        assert lines["smart_routing.max_tools"]["kind"] == "argument"
        assert lines["smart_routing.max_servers"]["kind"] == "default"


READING = (
    "/api/tools",
    "/api/tools/files/look",
    "/api/servers",
    "/api/servers/files",
    "/api/pins",
    "/api/usage",
    "/api/insight",
    "/api/evals",
    "/api/settings",
    "/api/audit",
    "/api/audit/export",
)
CHANGING: dict[str, Any] = {
    "/api/tools/files/look/switch": {"on": False},
    "/api/servers/files/switch": {"on": False},
    "/api/servers/files/reconnect": None,
    "/api/servers/files/breaker/reset": None,
    "/api/servers/files/instructions/accept": {"fingerprint": "f"},
    "/api/pins/files/look/accept": {"fingerprint": "f"},
}


@pytest.mark.slow
@proves("I3")
async def test_reading_needs_watch_and_changing_needs_manage(tmp_path: Path):
    async with open_api_and_router(tmp_path, tool_server("files", [reading_tool("look")]).spec()) as api:
        user = await api.key("user", Right.USE)
        watcher = await api.key("watcher", Right.WATCH)
        manager = await api.key("manager", Right.USE, Right.MANAGE)
        for path in READING:
            assert (await api.get(path, headers=watcher)).status_code == 200, path
            for who in (user, manager):
                assert (await api.get(path, headers=who)).status_code == 403, path
        for path, body in CHANGING.items():
            for who in (user, watcher):
                assert (await api.post(path, body, headers=who)).status_code == 403, path
        assert api.router.tools.get("files/look") is not None  # none of them did anything
        assert (await api.post("/api/audit/verify", headers=manager)).status_code == 403
        switched = await api.post("/api/tools/files/look/switch", {"on": False}, headers=manager)
        assert switched.json()["reason"] == "switched off by manager"
