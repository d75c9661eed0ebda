"""Shared by all tests: one async backend, and no blocking call on the event loop goes unseen."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

# Half of hypothesis's own number: there are many property tests, and each run draws other examples.
settings.register_profile("suite", max_examples=50)
settings.load_profile("suite")


# A shell ignores Ctrl-C for what it starts in the background, and programs hand that down to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_blocking_calls() -> Iterator[None]:
    """A blocking call (file, sleep, socket) made by our code on the event loop fails the test."""
    guard = BlockBuster(scanned_modules=["fingerpost"])
    guard.activate()
    yield
    guard.deactivate()


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: many tests wait for a program they started."""
    return (os.cpu_count() or 1) + 2
