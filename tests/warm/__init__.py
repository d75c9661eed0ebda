"""Our command without its start-up: one process has loaded everything, and forks a real one per command.

Loading the MCP library takes longer than most commands do. `zygote.py` loads it once for all test
workers; `launch.py` is what a test starts in place of the command: it hands its folder, environment,
streams and arguments over, passes signals on, and ends as the command ended.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self

ADDRESS: Final = "WARM_COMMAND_ADDRESS"  # not FINGERPOST_…: that would be a setting
HERE: Final = Path(__file__).parent
PATIENCE: Final = 10.0  # seconds


class Zygote:
    """The process that forks commands, for as long as a test session lasts.

    It loads nothing before the first command: a run without commands does not pay for it.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="warm-")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        address = f"{self._folder.name}/commands"
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), address],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # numpy would start a thread when it is loaded
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"listening\n"
        _write_shim(Path(self._folder.name), address)
        os.environ[ADDRESS] = address
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        os.environ.pop(ADDRESS, None)
        self._process.communicate(timeout=PATIENCE)  # the end of its input is the end of it
        self._folder.cleanup()


def command() -> list[str]:
    """What to start in place of `fingerpost`."""
    return [sys.executable, "-I", "-S", str(HERE / "launch.py"), os.environ[ADDRESS]]


def folder() -> str:
    """A folder to put first in PATH: its `fingerpost` is the one without the start-up."""
    return str(Path(os.environ[ADDRESS]).parent)


def _write_shim(folder: Path, address: str) -> None:
    shim = folder / "fingerpost"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{HERE / "launch.py"}" "{address}" "$@"\n')
    shim.chmod(0o700)
