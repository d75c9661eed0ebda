"""Where the programs are that tests start: ours, and the servers of Python and Node."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = (Path(sys.executable).parent, ROOT / "node_modules" / ".bin", ROOT / ".venv-mcp1" / "bin")

PATH = os.pathsep.join([*map(str, FOLDERS), os.environ["PATH"]])


def program(name: str) -> str:
    """The full path of an installed program."""
    found = shutil.which(name, path=PATH)
    assert found is not None, f"{name} is not installed; run `make install`"
    return found
