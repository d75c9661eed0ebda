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

from tests.integration.program import ProgramWithModel, clock_server, file_server, run_program
from tests.integration.scripted_upstream import (
    UpstreamCall,
    get_answered_tool,
    get_last_user_text,
    last,
    list_offered,
    run_scripted_upstream,
)
from tests.kit import warm
from tests.kit.browser import chromium

HOSTILE_SERVER = Path(__file__).with_name("hostile_server.py")
_UNSCANNED = {"FINGERPOST_FLAGS__SCAN_DEFINITIONS": "false"}  # the hostile server has to be offered


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="package")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramWithModel]:
    folder = tmp_path_factory.mktemp("house")
    command, *before = warm.python()
    servers: dict[str, Any] = {
        "time": clock_server(),
        "files": file_server(folder),
        "strange": {"command": command, "args": [*before, str(HOSTILE_SERVER)], "trust_hints": True},
    }
    with (
        run_scripted_upstream(script) as upstream,
        run_program(folder, servers, {**upstream.environment(), **_UNSCANNED}) as program,
    ):
        yield ProgramWithModel(program, upstream)


def script(body: dict[str, Any]) -> str | UpstreamCall:
    """The scripted model: calls the tool that fits the request, then reports the result."""
    return _after(body) if last(body)["role"] == "tool" else _first(body)


def _first(body: dict[str, Any]) -> str | UpstreamCall:
    user_text, tools = get_last_user_text(body), list_offered(body)
    if "Tokyo" in user_text and "time__get_current_time" in tools:
        return UpstreamCall("call_clock", "time__get_current_time", {"timezone": "Asia/Tokyo"})
    if "stir" in user_text and "strange__stir_pot" in tools:
        return UpstreamCall("call_pot", "strange__stir_pot", {"pot": "the red one"})
    path = re.search(r'"(/\S+)"', user_text)
    if path is not None and "files__write_file" in tools:
        return UpstreamCall("call_write", "files__write_file", {"path": path[1], "content": "Hello"})
    return "Hello. What can be done for you?"


def _after(body: dict[str, Any]) -> str | UpstreamCall:
    called = get_answered_tool(body)
    if called == "time__get_current_time" and "show_map" in list_offered(body):
        return UpstreamCall("call_map", "show_map", {"place": "Tokyo"})
    if called == "strange__stir_pot":
        return f"It said: {last(body)['content']}"
    return "It is late in Tokyo."
