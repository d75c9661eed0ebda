"""What callers have written in the folder since a person last looked at it."""

from __future__ import annotations

import hashlib
import logging
import os
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Final

log = logging.getLogger("fingerpost.builtin")

_MAX_LIST_BYTES: Final = 64 * 1024  # after that it is known well enough that much was written
_MAX_NAMES_SHOWN: Final = 3


class UnreviewedWrites:
    """A list in a file beside the store, so that it outlives a restart and other processes see it.

    Its methods block for a moment.
    """

    def __init__(self, folder: Path, root: Path) -> None:
        self._place = folder
        self._root = root
        self._lost: list[str] = []  # what could not be kept in the file
        self._lock = Lock()

    @cached_property
    def file(self) -> Path:
        digest = hashlib.sha256(os.fsencode(self._root.resolve())).hexdigest()[:24]
        return self._place / f"workspace-{digest}.writes"

    def record_names(self, *names: str) -> None:
        """Before something is written."""
        lines = "".join(f"{name[:300]!r}\n" for name in names)
        with self._lock:
            try:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("a", encoding="utf-8") as file:
                    if file.tell() < _MAX_LIST_BYTES:
                        file.write(lines)
            except OSError as error:
                log.warning("%s cannot be written: %s", self.file, error.strerror)
                self._lost.extend(names)

    def list_names(self) -> list[str]:
        """What was written, the oldest first, each once."""
        try:
            lines = self.file.read_text("utf-8", "replace").splitlines()
        except FileNotFoundError:
            lines = []
        except OSError:
            lines = ["'…'"]  # whether something was written cannot be known
        return list(dict.fromkeys([*(line.strip("'\"") for line in lines), *self._lost]))

    def describe(self) -> str:
        """What was written, in a few words; empty: nothing."""
        names = self.list_names()
        more = len(names) - _MAX_NAMES_SHOWN
        return ", ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")

    def mark_reviewed(self) -> list[str]:
        """A person has looked at the folder. Returns what was written until then."""
        names = self.list_names()
        self.file.unlink(missing_ok=True)
        self._lost.clear()
        return names
