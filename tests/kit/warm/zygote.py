"""The fork server: a process that has loaded everything a command loads, and forks one for every request.

Run: `python zygote.py ADDRESS`. It has one thread and no event loop, so what it forks is as good as new: own
process, session, folder, environment, streams and signals. A script with `-W` ends as interpreters do;
everything else does what they do at the end and leaves the rest to the system. The fork server ends, and all
its commands with it, when its input ends.

`python zygote.py ADDRESS tests ARGUMENT…` forks test workers: it has loaded the tests that pytest collects
for these arguments.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import importlib
import io
import json
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final, Literal, TextIO, cast

STREAMS: Final = 3
FIRST: Final = 4  # bytes of the length of a request
PATIENCE: Final = 60.0  # seconds for the rest of a request
UNREAD: Final = 120  # how the interpreter ends when its last words cannot be written
LOADED: Final = (  # what commands load only when they run; nothing here starts a thread
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "argparse",
    "click._textwrap",
    "encodings.idna",
    "fingerpost.router.request_runner",
    "fingerpost.router.request_narrower",
    "fingerpost.router.request_ranker",
    "fingerpost.servers",
    "fingerpost.testing.faults.stdio",
    "fingerpost.testing.models",
    "fingerpost.testing.servers",
    "httpx2",
    "onnxruntime",
    "prometheus_client",
    "psycopg",
    "sqlalchemy.dialects.postgresql.psycopg",
    "mcp_server_fetch.server",
    "mcp_server_git.server",
    "mcp_server_time.server",
    "rapidfuzz",
    "rich.console",
    "rich.live",
    "rich.logging",
    "rich.markdown",
    "rich.status",
    "rich.table",
    "tzdata.zoneinfo",
    "uvicorn.lifespan.off",
    "uvloop",
)


REAL_TOOLS: Final = Path(__file__).parents[2] / "choose" / "keyless" / "real_tools.jsonl"
WARM_UP: Final = (
    ["tools"],
    ["call", "weather/forecast", "city=Rome"],
    ["ask", "What is the weather?"],
    ["route", "Which tables does the database have?"],
    ["chat", "--mode", "keyless"],
    ["trace"],
    ["approvals"],
    ["servers"],
    ["doctor"],
)
NOBODY: Final = "http://127.0.0.1:9/v1"  # a model that never answers: connections are refused at once

PROGRAMS: Final = {  # what we can be: the module and function that the installed program calls
    "fingerpost": ("fingerpost.surfaces.cli.main", "main"),
    "mcp-server-fetch": ("mcp_server_fetch", "main"),
    "mcp-server-git": ("mcp_server_git", "main"),
    "mcp-server-time": ("mcp_server_time", "main"),
}


@dataclass(frozen=True)
class CommandRequest:
    """One program to run: as it was given to `launch.py`."""

    program: str  # one of PROGRAMS, or `python`
    arguments: list[str]
    folder: str
    environment: dict[str, str]
    streams: list[int]


def load() -> None:
    cli = importlib.import_module("fingerpost.surfaces.cli")
    for module in pkgutil.iter_modules(cli.__path__):
        importlib.import_module(f"fingerpost.surfaces.cli.{module.name}")
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("mcp.server.mcpserver.server").Settings.model_rebuild()
    build_deferred()
    warm_up()
    freeze()


def load_tests(arguments: list[str]) -> None:
    """Collect the tests once: every worker collects them again, but does not load their modules again."""
    pytest = importlib.import_module("pytest")
    # A module that cannot be loaded is for the workers to report. Modules may keep the streams that they find
    # when they are loaded: they must be those of the process.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    pytest.main([*arguments, "--collect-only", "-n0", "--capture=no"])
    sys.stdout.flush()
    build_deferred()
    freeze()


def build_deferred() -> None:
    """Build what our package builds when it is first used: patterns, and schemas of events and settings."""
    importlib.import_module("fingerpost.regex").compile_prepared()
    codec = importlib.import_module("fingerpost.records.codec")
    for kind in importlib.import_module("fingerpost.events").Event.kinds.values():
        with suppress(ValueError):  # there is nothing to build one of
            codec.from_plain(kind, {})
    models = [importlib.import_module("fingerpost.settings.model").Section]
    while models:
        model = models.pop()
        model.model_rebuild()
        models += model.__subclasses__()


@contextmanager
def silence() -> Generator[None]:
    """Nothing is read or shown."""
    given, sys.stdin = sys.stdin, io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        yield
    sys.stdin = given


def freeze() -> None:
    tasks = Path("/proc/self/task")  # of Linux
    assert not tasks.exists() or len(list(tasks.iterdir())) == 1, "a thread would be lost in a fork"
    gc.collect()
    gc.freeze()  # what all commands share is looked through by none of them


def warm_up() -> None:
    """Run commands once: what is built when it is first used is then there for all commands."""
    command = importlib.import_module("fingerpost.surfaces.cli.main").fingerpost
    before = dict(os.environ)
    with TemporaryDirectory(prefix="warm-up-") as folder, chdir(folder):
        file_server = Path(__file__).parents[1] / "file_server.py"
        tools, servers = Path(folder, "tools.json"), Path(folder, "mcp.json")
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        forecast = {"name": "forecast", "description": "Tell the weather.", "inputSchema": schema}
        # Patterns of the scanner are compiled when a definition has their words.
        lines = REAL_TOOLS.read_text(encoding="utf-8").splitlines()
        real = {one["name"]: one for one in (json.loads(line)["definition"] for line in lines)}
        tools.write_text(json.dumps([forecast, *real.values()]), encoding="utf-8")
        entry = {"command": sys.executable, "args": ["-I", "-S", str(file_server), str(tools)]}
        servers.write_text(json.dumps({"mcpServers": {"weather": entry}}), encoding="utf-8")
        model = f'[models.prime]\nmodel = "any"\nbase_url = "{NOBODY}"\nretries = 0\n'
        Path(folder, "fingerpost.toml").write_text(model, encoding="utf-8")
        os.environ |= {
            "HOME": folder,
            "XDG_CONFIG_HOME": folder,
            "XDG_DATA_HOME": folder,
            "FINGERPOST_STORE__URL": f"sqlite:///{folder}/store.db",
            "FINGERPOST_FLAGS__DENSE_SCORES": "false",
        }
        try:
            for arguments in WARM_UP:
                # A command that fails is for the tests to report.
                with silence(), suppress(Exception):
                    command.main([*arguments, "--servers", str(servers)], "fingerpost", standalone_mode=False)
        finally:
            os.environ.clear()
            os.environ.update(before)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(PATIENCE)


class ForkServer:
    """Takes wishes and forks; tells the launchers how their commands ended."""

    def __init__(self, address: str) -> None:
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(address)
        self._door.listen(128)
        self._woken, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        self._events = selectors.DefaultSelector()
        for source in (self._door, self._woken, sys.stdin):
            self._events.register(source, selectors.EVENT_READ)
        self._lines: dict[int, socket.socket] = {}  # of running commands, by their process
        self._loaded = False
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test session, which ends us
        signal.set_wakeup_fd(self._wake.fileno())

    def load(self, load: Callable[[], None]) -> None:
        """Load with `load` what all commands share, before the first of them."""
        # The event loops of what is run once leave a closed descriptor as the one to write to.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        load()
        signal.set_wakeup_fd(self._wake.fileno())
        signal.signal(signal.SIGCHLD, _do_nothing)
        self._loaded = True

    def next_command(self) -> CommandRequest | None:
        """Returns in every forked process with its command, and in the first one with none at the end."""
        while True:
            for key, _ in self._events.select():
                if key.fileobj is sys.stdin:
                    self._end_all()
                    return None
                if key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._reap()
                elif key.fileobj is self._door:
                    request = self._take_request()
                    if request is not None:
                        return request
                else:
                    self._hear(key.data)

    def _take_request(self) -> CommandRequest | None:
        line, _ = self._door.accept()
        if not self._loaded:
            self.load(load)
        try:
            request = _read(line)
        except (OSError, ValueError):  # the launcher is gone already
            line.close()
            return None
        child = os.fork()
        if child == 0:
            line.close()
            self._forget()
            return request
        for stream in request.streams:
            os.close(stream)
        self._lines[child] = line
        self._events.register(line, selectors.EVENT_READ, child)
        return None

    def _hear(self, child: int) -> None:
        """A signal to pass on; or the launcher is gone, and its command goes too."""
        line = self._lines.get(child)
        if line is None:
            return
        try:
            numbers = line.recv(64)
        except OSError:
            numbers = b""
        for number in numbers:
            os.kill(child, number)
        if not numbers:
            self._events.unregister(line)
            _end(child)

    def _reap(self) -> None:
        while self._lines:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child == 0:
                return
            line = self._lines.pop(child)
            if line in self._events.get_map():
                self._events.unregister(line)
            with suppress(OSError):  # its launcher may be gone
                line.send(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
            line.close()

    def _end_all(self) -> None:
        for child in self._lines:
            _end(child)
        while self._lines:
            self._reap()
            time.sleep(0.01)
        signal.set_wakeup_fd(-1)  # its socket is closed before the last signal can come

    def _forget(self) -> None:
        """In a forked process: nothing of ours stays open or handles a signal."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._events.close()
        for mine in (self._door, self._woken, self._wake, *self._lines.values()):
            mine.close()


def _end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    with suppress(ProcessLookupError):  # it may not have begun a session yet
        os.killpg(child, signal.SIGKILL)


def _do_nothing(_: int, __: FrameType | None) -> None:
    """A handler of our own is what makes a signal wake us."""


def _read(line: socket.socket) -> CommandRequest:
    line.settimeout(PATIENCE)
    head, streams, _, _ = socket.recv_fds(line, FIRST, STREAMS)
    length = int.from_bytes(head)
    body = b""
    while len(body) < length:
        piece = line.recv(length - len(body))
        if not piece:
            raise ValueError("the wish ended in the middle")
        body += piece
    line.settimeout(None)
    command: dict[str, Any] = marshal.loads(body)
    return CommandRequest(
        command["program"], command["arguments"], command["folder"], command["environment"], list(streams)
    )


def become(request: CommandRequest) -> None:
    """Take on everything the command was given, as if it had been started with it."""
    os.setsid()
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    added = filter(None, request.environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:0] = [folder for folder in added if folder not in sys.path]
    sys.argv = [request.program, *request.arguments]
    unbuffered = bool(request.environment.get("PYTHONUNBUFFERED"))
    encoding, _, errors = request.environment.get("PYTHONIOENCODING", "").partition(":")
    encoding, errors = encoding or "utf-8", errors or ("strict" if encoding else "surrogateescape")
    sys.stdin = sys.__stdin__ = _text(0, "r", encoding, errors)
    sys.stdout = sys.__stdout__ = _text(1, "w", encoding, errors, at_once=unbuffered)
    sys.stderr = sys.__stderr__ = _text(2, "w", encoding, "backslashreplace", at_once=unbuffered, lines=True)


def _text(
    number: int, mode: str, encoding: str, errors: str, *, at_once: bool = False, lines: bool = False
) -> TextIO:
    stream: Any = open(number, mode, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
    if mode == "w":
        stream.reconfigure(line_buffering=lines or stream.isatty(), write_through=at_once)
    return stream


def run(request: CommandRequest) -> None:
    if request.program == "python":
        run_python(request.arguments)
        return
    module, function = PROGRAMS[request.program]
    sys.exit(getattr(importlib.import_module(module), function)())


def run_python(arguments: list[str]) -> None:
    """`python [-u] [-W FILTER]… (-c CODE | -m MODULE | SCRIPT) [ARGUMENT]…`, in one that has begun."""
    if arguments[0] == "-u":  # of execnet, which writes to the descriptors
        arguments = arguments[1:]
    while arguments[0] == "-W":
        action, _, category = arguments[1].partition("::")
        kind = getattr(builtins, category) if category else Warning
        warnings.simplefilter(cast('Literal["error", "ignore"]', action), kind)
        arguments = arguments[2:]
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
        exec(compile(arguments[1], "<string>", "exec"), names)
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


def end_quickly(code: str | int | None) -> None:
    """End as the interpreter does, but leave what we loaded to the system.

    Taking apart what all commands share takes longer than most of them run.
    """
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    cast("Any", threading)._shutdown()
    cast("Any", atexit)._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):  # its reader is gone
        code = code or UNREAD
    os._exit(code or 0)


def main() -> None:
    sys.path.pop(0)  # the folder of this file, where a command would not look
    zygote = ForkServer(sys.argv[1])
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    if sys.argv[2:]:
        zygote.load(partial(load_tests, sys.argv[3:]))
    request = zygote.next_command()
    if request is not None:
        become(request)
        try:
            run(request)
        except SystemExit as end:
            if _is_watched(request):
                raise
            end_quickly(end.code)
        if not _is_watched(request):
            end_quickly(None)


def _is_watched(request: CommandRequest) -> bool:
    """Whether warnings count: some come only when the interpreter takes everything apart at its end."""
    return request.program == "python" and request.arguments[0] == "-W"


if __name__ == "__main__":
    main()
