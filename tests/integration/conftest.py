"""One browser and one running program for all tests here.

Both are gone before a test elsewhere runs on the same worker: Playwright's event loop would be in its way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.integration.program import House, clock_server, file_server, serving
from tests.integration.scripted_upstream import Call, answered, last, offered, scripted_upstream, words
from tests.kit import warm
from tests.kit.browser import chromium

HOSTILE_SERVER = Path(__file__).with_name("hostile_server.py")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="package")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    command, *before = warm.python()
    servers: dict[str, Any] = {
        "time": clock_server(),
        "files": file_server(folder),
        "strange": {"command": command, "args": [*before, str(HOSTILE_SERVER)], "trust_hints": True},
    }
    with (
        scripted_upstream(script) as upstream,
        serving(folder, servers, upstream.environment()) as program,
    ):
        yield House(program, upstream)


def script(body: dict[str, Any]) -> str | Call:
    """The model of the house: calls what fits the person's words, then tells what came back."""
    return _after(body) if last(body)["role"] == "tool" else _first(body)


def _first(body: dict[str, Any]) -> str | Call:
    said, tools = words(body), offered(body)
    if "Tokyo" in said and "time__get_current_time" in tools:
        return Call("call_clock", "time__get_current_time", {"timezone": "Asia/Tokyo"})
    if "stir" in said and "strange__stir_pot" in tools:
        return Call("call_pot", "strange__stir_pot", {"pot": "the red one"})
    path = re.search(r'"(/\S+)"', said)
    if path is not None and "files__write_file" in tools:
        return Call("call_write", "files__write_file", {"path": path[1], "content": "Hello"})
    return "Hello. What can be done for you?"


def _after(body: dict[str, Any]) -> str | Call:
    called = answered(body)
    if called == "time__get_current_time" and "show_map" in offered(body):
        return Call("call_map", "show_map", {"place": "Tokyo"})
    if called == "strange__stir_pot":
        return f"It said: {last(body)['content']}"
    return "It is late in Tokyo."
