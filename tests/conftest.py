"""Shared by all tests: one async backend, and no blocking call on the event loop goes unseen."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from blockbuster import BlockBuster
from hypothesis import HealthCheck, settings

from tests.kit.certificates import CertificateAuthority
from tests.kit.warm import Zygote

# A third of hypothesis's own number: there are many property tests, and each run draws other examples.
# How quickly examples are drawn says how busy the machine is, nothing about the code.
settings.register_profile(
    "suite", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


# A shell ignores Ctrl-C for what it starts in the background, and programs hand that down to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """One zygote for all workers: they find it in the environment they inherit."""
    if hasattr(config, "workerinput"):
        return (yield)
    with TemporaryDirectory(prefix="trusted-") as folder:
        # Reading all that a machine trusts takes 50 ms, for every client of every program that has one.
        os.environ["SSL_CERT_FILE"] = str(CertificateAuthority(Path(folder), "whom all tests trust").file)
        with Zygote():
            return (yield)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def no_blocking_calls() -> Iterator[None]:
    """A blocking call (file, sleep, socket) made by our code on the event loop fails the test."""
    guard = BlockBuster(scanned_modules=["fingerpost"])
    guard.activate()
    yield
    guard.deactivate()


def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: many tests wait for a program they started."""
    return (os.cpu_count() or 1) + 2
