"""A router that follows its settings files, and an MCP server at an address for entries of them."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from fingerpost import Router
from fingerpost.events import EventSink
from fingerpost.settings import Loaded, load
from fingerpost.testing import tool_server
from tests.kit.api_resources import reading_tool
from tests.kit.gateways import open_gateway


def get_servers_file(folder: Path) -> Path:
    """The user's own servers file, if this folder is their home."""
    return folder / ".config" / "fingerpost" / "servers.json"


async def read_servers(folder: Path) -> Any:
    """Return what the user's own servers file contains, or None if there is none."""
    file = anyio.Path(get_servers_file(folder))
    return json.loads(await file.read_text("utf-8")) if await file.exists() else None


async def write_servers(folder: Path, entries: Mapping[str, Mapping[str, Any]] | str) -> None:
    """Write the user's own servers file."""
    file = anyio.Path(get_servers_file(folder))
    await file.parent.mkdir(parents=True, exist_ok=True)
    text = entries if isinstance(entries, str) else json.dumps({"mcpServers": entries})
    await file.write_text(text, "utf-8")


def load_folder(folder: Path, **overrides: Any) -> Loaded:
    """Settings of a person whose home and working directory this is."""
    given = {
        "store.url": f"sqlite:///{folder}/store.db",
        "narrow.vectors": str(folder / "vectors"),
        "flags.dense_scores": False,
        **overrides,
    }
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
    return load(overrides=given, environ=environ, cwd=folder)


@asynccontextmanager
async def open_followed(folder: Path, *sinks: EventSink, **overrides: Any) -> AsyncGenerator[Router]:
    """A router that was opened with the files in this folder, follows them, and is connected."""
    loaded = await anyio.to_thread.run_sync(partial(load_folder, folder, **overrides))
    async with Router(loaded.specs, settings=loaded.settings, sinks=sinks) as router:
        router.follow_settings(loaded)
        await router.connect()
        yield router


@asynccontextmanager
async def serve_tools(folder: Path, *names: str) -> AsyncGenerator[str]:
    """The address of an MCP server with these tools, which only read. They are called `up__NAME`."""
    upstream = tool_server("up", [reading_tool(name) for name in names])
    async with open_gateway(upstream.spec(), folder=folder / f"upstream-{'-'.join(names)}") as address:
        yield f"{address}/mcp/all"
