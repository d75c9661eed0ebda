"""A file replaced in one step: a crash leaves the old one or the new one, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

# Entries of servers may hold secrets: nobody but the owner reads a file we create.
PRIVATE: Final = 0o600


def replace_whole(target: Path, data: bytes, mode: int) -> None:
    """Write the file beside its place, and put it there when it is on disk."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
