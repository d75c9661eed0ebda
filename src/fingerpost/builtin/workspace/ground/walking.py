"""All that lies below a folder, in a fixed order, through descriptors: links are never followed."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from fingerpost.builtin.workspace.ground.ignoring import (
    GITIGNORE_NAME,
    MAX_GITIGNORE_BYTES,
    IgnoreRules,
    parse_patterns,
)
from fingerpost.frozen import frozen

MAX_DEPTH: Final = 64
MAX_ENTRIES: Final = 500_000
WALK_TIMEOUT_S: Final = 20.0
_WALK_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WALK_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen(kw_only=False)
class WalkedEntry:
    """One file or folder below. `folder` is open only until the next entry is taken."""

    folder: int
    name: str
    path: str  # seen from the root
    is_folder: bool
    is_file: bool  # an ordinary one
    depth: int

    def open_file(self) -> int:
        """The file, for reading. Raises `OSError`."""
        return os.open(self.name, _WALK_FILE_FLAGS, dir_fd=self.folder)

    def get_stat(self) -> os.stat_result:
        """Raises `OSError`."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)


@dataclass(slots=True, kw_only=True)
class FolderWalk:
    """How to walk, and how it went."""

    ignored: frozenset[str] = frozenset()  # names of folders passed over
    gitignore: bool = True
    max_depth: int = MAX_DEPTH
    seconds: float = WALK_TIMEOUT_S
    count: int = 0
    stop_reason: str = ""  # why it did not see everything; empty: it did
    _deadline: float = field(default=0.0, init=False)

    def walk(self, folder: int, path: str, ignore_rules: IgnoreRules | None = None) -> Generator[WalkedEntry]:
        """Everything below an open folder; `path` is where it lies, seen from the root."""
        self._deadline = time.monotonic() + self.seconds
        yield from self._walk_folder(folder, f"{path}/" if path else "", ignore_rules, 1)

    def _walk_folder(
        self, folder: int, prefix: str, ignore_rules: IgnoreRules | None, depth: int
    ) -> Generator[WalkedEntry]:
        entries = self._list_entries(folder)
        if self.gitignore and any(entry.name == GITIGNORE_NAME for entry in entries):
            ignore_rules = _add_rules(folder, prefix, ignore_rules)
        for entry in entries:
            if self._is_exhausted():
                return
            is_folder = entry.is_dir(follow_symlinks=False)
            path = prefix + entry.name
            if self._is_included(entry.name, path, ignore_rules, is_folder=is_folder):
                continue
            yield WalkedEntry(
                folder, entry.name, path, is_folder, entry.is_file(follow_symlinks=False), depth
            )
            if is_folder:
                yield from self._walk_subfolder(folder, entry.name, path, ignore_rules, depth)

    def _walk_subfolder(
        self, folder: int, name: str, path: str, ignore_rules: IgnoreRules | None, depth: int
    ) -> Generator[WalkedEntry]:
        if depth >= self.max_depth:
            if self.max_depth == MAX_DEPTH:
                self.stop_reason = f"folders deeper than {MAX_DEPTH} were left out"
            return
        try:
            below = os.open(name, _WALK_FOLDER_FLAGS, dir_fd=folder)
        except OSError:  # gone, swapped for something else, or not ours to read
            return
        try:
            yield from self._walk_folder(below, f"{path}/", ignore_rules, depth + 1)
        finally:
            os.close(below)

    def _list_entries(self, folder: int) -> list[os.DirEntry[str]]:
        with suppress(OSError), os.scandir(folder) as entries:
            return sorted(entries, key=_get_sort_key)
        return []

    def _is_included(
        self, name: str, path: str, ignore_rules: IgnoreRules | None, *, is_folder: bool
    ) -> bool:
        if is_folder and name in self.ignored:
            return True
        return ignore_rules is not None and ignore_rules.is_ignored(path, folder=is_folder)

    def _is_exhausted(self) -> bool:
        self.count += 1
        if self.count > MAX_ENTRIES:
            self.stop_reason = f"only the first {MAX_ENTRIES} entries were looked at"
        elif not self.count % 64 and time.monotonic() > self._deadline:
            self.stop_reason = f"it stopped after {self.seconds:g} seconds"
        return self.stop_reason != "" and not self.stop_reason.startswith("folders")


def load_parent_rules(folders: Iterable[tuple[int, str]]) -> IgnoreRules | None:
    """What the folders from the root down to a start ignore: each open, with its path (`` or `a/b/`)."""
    found: IgnoreRules | None = None
    for folder, prefix in folders:
        found = _add_rules(folder, prefix, found)
    return found


def _add_rules(folder: int, prefix: str, parent: IgnoreRules | None) -> IgnoreRules | None:
    try:
        descriptor = os.open(GITIGNORE_NAME, _WALK_FILE_FLAGS, dir_fd=folder)
    except OSError:
        return parent
    try:
        data = os.read(descriptor, MAX_GITIGNORE_BYTES)
    except OSError:
        return parent
    finally:
        os.close(descriptor)
    patterns = parse_patterns(data.decode("utf-8", "replace"))
    return IgnoreRules(prefix, patterns, parent) if patterns else parent


def _get_sort_key(entry: os.DirEntry[str]) -> str:
    return entry.name
