"""Programs without their start-up: one process has loaded everything, and forks a real one per command.

Loading the MCP library takes longer than most commands do. `zygote.py` loads it once for all test
workers; `launch.py` is what a test starts in place of a program (our command, a server written in Python,
a Python script): it hands its folder, environment, streams and arguments over, passes signals on, and
ends as the program ended. Servers that cannot be forked (Node, another environment of Python) are started
when a tool of theirs is called; until then `recorded.py` answers what they answered before.
"""

from __future__ import annotations

import marshal
import os
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Thread
from types import TracebackType
from typing import IO, Final, Self

from tests.kit.programs import PATH

ADDRESS: Final = "WARM_COMMAND_ADDRESS"  # not FINGERPOST_…: that would be a setting
SERVERS: Final = ("mcp-server-fetch", "mcp-server-git", "mcp-server-time")
RECORDED: Final = (
    "mcp-server-everything",
    "mcp-server-filesystem",
    "mcp-server-memory",
    "mcp-server-sqlite",
)
HERE: Final = Path(__file__).parent
PATIENCE: Final = 60.0  # seconds


class _ForkServer:
    """A process that forks others, for as long as a test session lasts."""

    def __init__(self, *what: str) -> None:
        self._what = what
        self._folder = TemporaryDirectory(prefix="warm-")
        self.address = f"{self._folder.name}/commands"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), self.address, *self._what],
            # Without them numpy and onnxruntime would start a thread when they are loaded.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.communicate(timeout=PATIENCE)  # the end of its input is the end of it
        self._folder.cleanup()


class Zygote(_ForkServer):
    """The process that forks commands.

    It loads nothing before the first command: a run without commands does not pay for it.
    """

    def __enter__(self) -> Self:
        super().__enter__()
        os.environ[ADDRESS] = self.address
        _write_shims(Path(self.address).parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.environ.pop(ADDRESS, None)
        super().__exit__(kind, error, trace)


class WorkerZygote(_ForkServer):
    """The process that forks test workers: it begins at once to load the tests that `arguments` select."""

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__("tests", *arguments)

    def python(self) -> str:
        """What xdist starts in place of Python."""
        return shlex.join(_launcher("python", self.address))


def run_command(
    arguments: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: str | None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run` returns for our command, without a process that stands for it."""
    command = ["fingerpost", *arguments]
    sys.audit("subprocess.Popen", command[0], command, str(folder), None)
    request = {
        "program": command[0],
        "arguments": command[1:],
        "folder": str(folder),
        "environment": dict(environment),
    }
    body = marshal.dumps(request)
    with TemporaryFile() as out, TemporaryFile() as err, socket.socket(socket.AF_UNIX) as line:
        line.settimeout(timeout)
        line.connect(os.environ[ADDRESS])
        given = 0 if stdin is None else _pass_text(stdin)
        try:
            socket.send_fds(line, [len(body).to_bytes(4)], [given, out.fileno(), err.fileno()])
        finally:
            if given:
                os.close(given)
        line.sendall(body)
        ended = line.recv(8)
        code = int.from_bytes(ended, signed=True) if ended else 70
        return subprocess.CompletedProcess(command, code, _read_text(out), _read_text(err))


def _pass_text(text: str) -> int:
    """The end of a pipe that the text can be read from."""
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as pipe, suppress(BrokenPipeError):  # noqa: PTH123 - a descriptor
            pipe.write(text.encode())

    Thread(target=write, daemon=True).start()
    return reader


def _read_text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")


def command() -> list[str]:
    """What to start in place of `fingerpost`."""
    return _launcher("fingerpost")


def python() -> list[str]:
    """What to start in place of `python`: understands `-W`, then `-c`, `-m` or a script."""
    return _launcher("python")


def server(name: str) -> str:
    """The full path of one of `SERVERS`, without its start-up."""
    assert name in SERVERS
    return f"{folder()}/{name}"


def _launcher(program: str, address: str | None = None) -> list[str]:
    return [sys.executable, "-I", "-S", str(HERE / "launch.py"), address or os.environ[ADDRESS], program]


def folder() -> str:
    """A folder to put first in PATH: the programs in it are those without the start-up."""
    return str(Path(os.environ[ADDRESS]).parent)


def _write_shims(folder: Path) -> None:
    for program in ("fingerpost", *SERVERS):
        _write_shim(folder / program, _launcher(program))
    (answers := folder / "answers").mkdir()
    for program in RECORDED:
        real = shutil.which(program, path=PATH)
        if real is not None:
            recorded = [sys.executable, "-I", "-S", str(HERE / "recorded.py"), str(answers), real]
            _write_shim(folder / program, recorded)


def _write_shim(shim: Path, command: list[str]) -> None:
    shim.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    shim.chmod(0o700)
