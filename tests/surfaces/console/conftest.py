"""One browser for this folder, one server for a module.

The browser's library runs an event loop of its own in the thread of the tests for as long as it is open. So
all tests with a browser go to one worker, one after another, and the browser is closed after them: tests that
come later there need the thread for loops of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.kit.browser import ConsoleServer, chromium, run_module_server


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with run_module_server(tmp_path_factory.mktemp("house")) as opened:
        yield opened
