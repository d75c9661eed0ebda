"""Shared by all tests: one async backend, and no blocking call on the event loop goes unseen."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import pytest
from _pytest.runner import runtestprotocol
from _pytest.unraisableexception import gc_collect_iterations_key
from blockbuster import BlockBuster
from execnet import XSpec
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # pyright: ignore[reportMissingTypeStubs]
from xdist.scheduler import LoadScopeScheduling  # pyright: ignore[reportMissingTypeStubs]
from xdist.workermanage import WorkerController  # pyright: ignore[reportMissingTypeStubs]

from tests.kit.certificates import CertificateAuthority
from tests.kit.warm import WorkerZygote, Zygote

if TYPE_CHECKING:
    from tests.kit.stores import Postgres

# Fewer than hypothesis's own 100: there are many property tests, and each run draws other examples.
EXAMPLES: Final = 20
FEW_EXAMPLES: Final = 8  # for `make test-fast`


@pytest.hookimpl(tryfirst=True)  # tests take their settings when they are collected
def pytest_configure(config: pytest.Config) -> None:
    """Choose what is reported and how many examples are drawn. How quickly they are says how busy the machine
    is, nothing about the code.
    """
    # Once is enough to report what is left of the last tests: a worker's heap takes 0.6 s to look through.
    config.stash[gc_collect_iterations_key] = 1
    count = FEW_EXAMPLES if "not slow" in config.option.markexpr else EXAMPLES
    checks = [HealthCheck.too_slow]
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(ShortReports())
    settings.register_profile("suite", max_examples=count, deadline=None, suppress_health_check=checks)
    settings.load_profile("suite")


# A shell ignores Ctrl-C for what it starts in the background, and programs hand that down to their children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """One zygote for all commands, which workers find in their environment, and one that forks workers."""
    if hasattr(config, "workerinput") or config.option.collectonly:
        return (yield)
    with TemporaryDirectory(prefix="trusted-") as folder:
        # Reading all that a machine trusts takes 50 ms, for every client of every program that has one.
        os.environ["SSL_CERT_FILE"] = str(CertificateAuthority(Path(folder), "whom all tests trust").file)
        with ExitStack() as running:
            if "not process" not in config.option.markexpr:
                running.enter_context(Zygote())
            if config.option.numprocesses:
                arguments = map(str, config.invocation_params.args)
                workers = running.enter_context(WorkerZygote(list(arguments)))
                config.pluginmanager.register(ForkedWorkers(workers))
            return (yield)


class ForkedWorkers:
    """Has xdist start its workers from a process that has loaded the tests."""

    def __init__(self, zygote: WorkerZygote) -> None:
        self._zygote = zygote

    def pytest_xdist_setupnodes(self, specs: Sequence[XSpec]) -> None:
        for spec in specs:
            spec.python = self._zygote.python()


# Fixtures that start a program. `postgresql` is a parameter of fixtures that run on both databases.
PROCESS_FIXTURES: Final = frozenset({"postgres", "browser", "llama"})


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that start a program through a fixture or a parameter."""
    for item in items:
        spec = getattr(item, "callspec", None)
        databases = () if spec is None else [one for one in spec.params.values() if isinstance(one, str)]
        if not PROCESS_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) or "postgresql" in databases:
            item.add_marker("process")


_STARTED: Final[list[str]] = []  # programs started by the running test
# Started once, by the test that comes first: the watchdog of a test worker with its first server, the list of
# fonts with matplotlib's first drawing on a machine (it is kept in the user's cache), the name of the
# processor with the first request of an OpenAI client.
_ONCE: Final = ("watchdog.py", "fc-list", "['uname', '-p']")
_START_EVENTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"})


def _watch_starts() -> None:
    """Note the programs that this process starts, not those of its forks."""
    own = os.getpid()

    def note_start(event: str, arguments: tuple[object, ...]) -> None:
        if event not in _START_EVENTS or os.getpid() != own:
            return
        what = str(arguments[:2])
        if not any(program in what for program in _ONCE):
            _STARTED.append(what[:200])

    sys.addaudithook(note_start)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that starts a program and does not say so: `make test-fast` would run it."""
    _STARTED.clear()
    result = yield
    if _STARTED and item.get_closest_marker("process") is None:
        pytest.fail(f"mark this test with @pytest.mark.process: it starts {_STARTED[0]}")
    return result


SLOW_STEP: Final = 0.1  # seconds


class ShortReports:
    """Leaves out of a worker's reports the set-up and tear-down of a test if they are quick and did not fail.

    A report costs half a millisecond here and in the process that prints it; most would print nothing.
    """

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            if report.when == "call" or not report.passed or report.duration > SLOW_STEP:
                item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL server of this worker. Imported by other folders, it would be a server for each."""
    from tests.kit.stores import Postgres  # takes half a second, and only workers need it

    # Not in pytest's own folder: run by root the server is another user, and every session that starts
    # closes that folder to other users again.
    with TemporaryDirectory(prefix="fingerpost-") as folder:
        server = Postgres(Path(folder) / "data")
        yield server
        server.stop()


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


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without what would slow it down: the search for garbage, and for programs that are started.

    What was collected stays until the end, so the garbage collector need not look through it again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.set_threshold(10_000, 20, 20)  # a third of the time that Python's own thresholds take
        gc.freeze()
        if not session.config.option.collectonly:
            _watch_starts()


def pytest_xdist_auto_num_workers() -> int:
    """Three more than there are cores: tests wait for half of their time."""
    return (os.cpu_count() or 1) + 3


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return FileScheduling(config, log)


# Folders whose files share a browser or a running program.
_SHARING: Final = ("tests/surfaces/console/", "tests/integration/")


# Few tests that take long: begun last, they would run while the other workers have nothing left.
_FIRST: Final = (
    "tests/deploy/test_instance_faults.py",
    "tests/surfaces/console/",
    "tests/integration/",
    "tests/llm/test_real_model.py",
    "tests/conformance/test_gateway.py",
    "tests/conformance/test_inspector.py",
    "tests/deploy/test_instances.py",
    "tests/surfaces/gateway/test_soak.py",
    "tests/surfaces/cli/test_streams.py",
    "tests/surfaces/openai/test_real_model.py",
    "tests/security/test_fuzz.py",
    "tests/test_wheel.py",
    "tests/test_structure.py",
    "tests/docs/test_site.py",
)


class FileScheduling(LoadScopeScheduling):
    """Gives all tests of a file, or of a folder that shares something, to one worker: first those that take
    long, then those with the most tests.

    What they share is then started once. The marks of `--dist loadgroup` have no effect with pytest 9.2 and
    xdist 3.8: https://github.com/pytest-dev/pytest-xdist/issues/1386
    """

    def _assign_work_unit(self, node: WorkerController) -> None:
        for scope in reversed(_FIRST):
            if scope in self.workqueue:
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _SHARING if nodeid.startswith(folder)), nodeid.partition("::")[0])
