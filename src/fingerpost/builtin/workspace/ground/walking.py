"""All that lies below a folder, in a fixed order, through descriptors: links are never followed."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fingerpost.builtin.workspace.ground.ignoring import FILE, MOST_BYTES, Ignoring, read_patterns
from fingerpost.frozen import frozen

DEEPEST: Final = 64
MOST_ENTRIES: Final = 500_000
SECONDS: Final = 20.0
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen(kw_only=False)
class Entry:
    """One file or folder below. `folder` is open only until the next entry is taken."""

    folder: int
    name: str
    path: str  # seen from the root
    is_folder: bool
    is_file: bool  # an ordinary one
    depth: int

    def open(self) -> int:
        """The file, for reading. Raises `OSError`."""
        return os.open(self.name, _FILE, dir_fd=self.folder)

    def look(self) -> os.stat_result:
        """Raises `OSError`."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)


@dataclass(slots=True, kw_only=True)
class Walking:
    """How to walk, and how it went."""

    ignored: frozenset[str] = frozenset()  # names of folders passed over
    gitignore: bool = True
    deepest: int = DEEPEST
    seconds: float = SECONDS
    seen: int = 0
    stopped: str = ""  # why it did not see everything; empty: it did
    _until: float = field(default=0.0, init=False)

    def below(self, folder: int, path: str, ignoring: Ignoring | None = None) -> Generator[Entry]:
        """Everything below an open folder; `path` is where it lies, seen from the root."""
        self._until = time.monotonic() + self.seconds
        yield from self._walk(folder, f"{path}/" if path else "", ignoring, 1)

    def _walk(self, folder: int, prefix: str, ignoring: Ignoring | None, depth: int) -> Generator[Entry]:
        entries = self._entries(folder)
        if self.gitignore and any(entry.name == FILE for entry in entries):
            ignoring = _with(folder, prefix, ignoring)
        for entry in entries:
            if self._spent():
                return
            is_folder = entry.is_dir(follow_symlinks=False)
            path = prefix + entry.name
            if self._passes(entry.name, path, ignoring, is_folder=is_folder):
                continue
            yield Entry(folder, entry.name, path, is_folder, entry.is_file(follow_symlinks=False), depth)
            if is_folder:
                yield from self._descend(folder, entry.name, path, ignoring, depth)

    def _descend(
        self, folder: int, name: str, path: str, ignoring: Ignoring | None, depth: int
    ) -> Generator[Entry]:
        if depth >= self.deepest:
            if self.deepest == DEEPEST:
                self.stopped = f"folders deeper than {DEEPEST} were left out"
            return
        try:
            below = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:  # gone, swapped for something else, or not ours to read
            return
        try:
            yield from self._walk(below, f"{path}/", ignoring, depth + 1)
        finally:
            os.close(below)

    def _entries(self, folder: int) -> list[os.DirEntry[str]]:
        with suppress(OSError), os.scandir(folder) as entries:
            return sorted(entries, key=_by_name)
        return []

    def _passes(self, name: str, path: str, ignoring: Ignoring | None, *, is_folder: bool) -> bool:
        if is_folder and name in self.ignored:
            return True
        return ignoring is not None and ignoring.ignores(path, folder=is_folder)

    def _spent(self) -> bool:
        self.seen += 1
        if self.seen > MOST_ENTRIES:
            self.stopped = f"only the first {MOST_ENTRIES} entries were looked at"
        elif not self.seen % 64 and time.monotonic() > self._until:
            self.stopped = f"it stopped after {self.seconds:g} seconds"
        return self.stopped != "" and not self.stopped.startswith("folders")


def ignoring_above(folders: Iterable[tuple[int, str]]) -> Ignoring | None:
    """What the folders from the root down to a start ignore: each open, with its path (`` or `a/b/`)."""
    found: Ignoring | None = None
    for folder, prefix in folders:
        found = _with(folder, prefix, found)
    return found


def _with(folder: int, prefix: str, above: Ignoring | None) -> Ignoring | None:
    try:
        descriptor = os.open(FILE, _FILE, dir_fd=folder)
    except OSError:
        return above
    try:
        data = os.read(descriptor, MOST_BYTES)
    except OSError:
        return above
    finally:
        os.close(descriptor)
    patterns = read_patterns(data.decode("utf-8", "replace"))
    return Ignoring(prefix, patterns, above) if patterns else above


def _by_name(entry: os.DirEntry[str]) -> str:
    return entry.name
