"""The Inspector, a client of other people's making, in both eras, over HTTP and over stdio."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from fingerpost.records import ServerSpec
from fingerpost.testing import served
from tests.conformance.fixture_server import application
from tests.conformance.run import COMPILED
from tests.kit import warm
from tests.kit.gateways import open_gateway
from tests.kit.programs import PATH, ROOT, newer_node
from tests.requirements import proves

Object = dict[str, Any]

INSPECTOR: Final = ROOT / "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
ERAS: Final = ("legacy", "modern")  # what the Inspector calls them
PATIENCE_MS: Final = "120000"


class Inspector:
    """Runs the Inspector's command line against one target."""

    def __init__(self, target: Sequence[str], era: str, home: Path) -> None:
        self._target = target
        self._era = era
        self._home = home

    async def ask(self, method: str, *options: str) -> Object:
        """The result of one method."""
        words = ["--cli", *self._target, "--protocol-era", self._era, "--connect-timeout", PATIENCE_MS]
        words += ["--format", "json", "--quiet"]
        done = await anyio.run_process(
            [newer_node(), str(INSPECTOR), *words, "--method", method, *options],
            env={**os.environ, **COMPILED, "PATH": PATH, "HOME": str(self._home)},
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)["result"]


@asynccontextmanager
async def over_http(era: str, folder: Path) -> AsyncGenerator[Inspector]:
    async with served(application()) as upstream:
        spec = ServerSpec(name="fixture", transport="http", url=f"{upstream}/mcp", prefix=False)
        async with open_gateway(spec, folder=folder / "gateway") as address:
            yield Inspector([f"{address}/mcp"], era, folder)


@asynccontextmanager
async def over_stdio(era: str, folder: Path) -> AsyncGenerator[Inspector]:
    """The Inspector starts `fingerpost stdio` itself, as a desktop client would."""
    async with served(application()) as upstream:
        settings, catalog = anyio.Path(folder) / "fingerpost.toml", anyio.Path(folder) / "mcp.json"
        await settings.write_text(
            f"""
            policy = [{{ verdict = "allow" }}]
            store.url = "sqlite:///{folder / "store.db"}"
            servers.fixture = {{ url = "{upstream}/mcp", prefix = false }}
            """
        )
        # The Inspector lists once. A gateway that does not know its servers lists without those that take
        # longer than a few seconds, as here on a busy machine; one that has listed them before has them all.
        known = await anyio.run_process([*warm.command(), "servers", "--config", str(settings)])
        assert b"fixture" in known.stdout
        entry = {"command": f"{warm.folder()}/fingerpost", "args": ["stdio", "--config", str(settings)]}
        await catalog.write_text(json.dumps({"mcpServers": {"fingerpost": entry}}))
        yield Inspector(["--config", str(catalog), "--server", "fingerpost"], era, folder)


async def _list_and_read(inspector: Inspector) -> None:
    listed = (await inspector.ask("tools/list"))["tools"]
    names = {tool["name"] for tool in listed}
    assert {"test_simple_text", "test_multiple_content_types", "json_schema_2020_12_tool"} <= names
    rich = next(tool for tool in listed if tool["name"] == "json_schema_2020_12_tool")["inputSchema"]
    assert rich["$defs"]["address"]["$anchor"] == "addressDef"
    read = await inspector.ask("resources/read", "--uri", "test://template/42/data")
    assert json.loads(read["contents"][0]["text"])["id"] == "42"


async def _call_and_prompt(inspector: Inspector) -> None:
    called = await inspector.ask("tools/call", "--tool-name", "test_multiple_content_types")
    assert [part["type"] for part in called["content"]] == ["text", "image", "resource"]
    words = ("--prompt-name", "test_prompt_with_arguments", "--prompt-args", "arg1=red", "arg2=blue")
    prompt = await inspector.ask("prompts/get", *words)
    assert "arg1='red', arg2='blue'" in prompt["messages"][0]["content"]["text"]


@pytest.mark.process
@pytest.mark.parametrize(("era", "use"), [("modern", _list_and_read), ("legacy", _call_and_prompt)])
@proves("G1", "G8")
async def test_the_inspector_works_over_http(
    era: str, use: Callable[[Inspector], Awaitable[None]], tmp_path: Path
) -> None:
    """Each method of it starts Node anew; the conformance suite asks all of them in both eras."""
    async with over_http(era, tmp_path) as inspector:
        await use(inspector)


@pytest.mark.process
@pytest.mark.parametrize("era", ERAS)
@proves("G1", "G8")
async def test_the_inspector_starts_us_over_stdio(era: str, tmp_path: Path) -> None:
    """Each command of it starts the gateway anew, so one for each era is enough."""
    async with over_stdio(era, tmp_path) as inspector:
        called = await inspector.ask("tools/call", "--tool-name", "test_image_content")
        assert called["content"][0]["mimeType"] == "image/png"
