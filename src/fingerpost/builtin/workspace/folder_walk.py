"""Walks through folders in a fixed order, with glob patterns and `.gitignore`. Links are never followed."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from fingerpost.frozen import frozen

ANY_FOLDER_PATTERN: Final = "(?:.*/)?"  # prefix of a pattern without a slash
_STAR_PATTERN: Final = "[^/]*"
_LEADING_FOLDERS: Final = "(?:.*?/)??"


def translate_glob(glob: str) -> str:
    """Translate the pattern to a regular expression for `fullmatch` with `re.DOTALL`."""
    stretches: list[list[str]] = [[]]  # the pieces between `**/` and `**/`
    place = 0
    while place < len(glob):
        if (end := _find_folders_end(glob, place)) is not None:
            stretches.append([])
            place = end
            continue
        piece, place = _translate_next(glob, place)
        stretches[-1].append(piece)
    made = [_join_with_stars(stretch) for stretch in stretches]
    if len(made) == 1:
        return made[0]
    middle = "".join(f"(?>{_LEADING_FOLDERS}{stretch})" for stretch in made[1:-1])
    return f"{made[0]}{middle}{ANY_FOLDER_PATTERN}{made[-1]}"


def _join_with_stars(pieces: list[str]) -> str:
    """Join the pieces with stars. Each piece between two stars is matched once, to avoid backtracking."""
    made: list[str] = []
    since_star: list[str] | None = None
    for piece in pieces:
        if piece == _STAR_PATTERN and since_star is not None:
            made.append(f"(?>[^/]*?{''.join(since_star)})")
        if piece == _STAR_PATTERN:
            since_star = []
        elif piece == "/" and since_star is not None:
            made += [_STAR_PATTERN, *since_star, piece]
            since_star = None
        elif since_star is not None:
            since_star.append(piece)
        else:
            made.append(piece)
    if since_star is not None:
        made += [_STAR_PATTERN, *since_star]
    return "".join(made)


def _find_folders_end(glob: str, position: int) -> int | None:
    """Return the end of `**/` at this position, or None if there is none."""
    if not glob.startswith("**", position) or not _is_segment_start(glob, position):
        return None
    end = _skip_stars(glob, position)
    return end + 1 if glob[end : end + 1] == "/" else None


def _translate_next(glob: str, position: int) -> tuple[str, int]:
    char = glob[position]
    if char == "*":
        end = _skip_stars(glob, position)
        if end - position > 1 and end == len(glob) and _is_segment_start(glob, position):
            return ".+" if position else ".*", end
        return _STAR_PATTERN, end
    if char == "?":
        return "[^/]", position + 1
    if char == "[":
        return _translate_class(glob, position)
    if char == "\\" and position + 1 < len(glob):
        return re.escape(glob[position + 1]), position + 2
    return re.escape(char), position + 1


def _is_segment_start(glob: str, position: int) -> bool:
    return position == 0 or glob[position - 1] == "/"


def _skip_stars(glob: str, position: int) -> int:
    while glob[position : position + 1] == "*":
        position += 1
    return position


def _translate_class(glob: str, position: int) -> tuple[str, int]:
    end = glob.find("]", position + (3 if glob[position + 1 : position + 2] in ("!", "^") else 2))
    if end < 0:
        return re.escape("["), position + 1
    inside = glob[position + 1 : end]
    negated = inside[:1] in ("!", "^")
    inside = inside[1:] if negated else inside
    inside = re.sub(r"([\\\[&~|^])", r"\\\1", inside)
    return f"(?!/)[{'^' if negated else ''}{inside}]", end + 1


GITIGNORE_NAME: Final = ".gitignore"
MAX_GITIGNORE_BYTES: Final = 65_536
MAX_PATTERNS: Final = 1000
MAX_PATTERN_LENGTH: Final = 500


@frozen(kw_only=False)
class IgnorePattern:
    """One line of a `.gitignore`: its pattern, whether it negates, and whether it applies to folders only."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@frozen(kw_only=False)
class IgnoreRules:
    """The patterns of one folder and of its parents."""

    base: str  # their folder relative to the root: `` or `a/b/`
    patterns: tuple[IgnorePattern, ...]  # last line first
    above: IgnoreRules | None = None

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Return whether an entry is ignored. `path` is relative to the root and below `base`."""
        level: IgnoreRules | None = self
        while level is not None:
            below = path[len(level.base) :]
            for pattern in level.patterns:
                if (folder or not pattern.folders_only) and pattern.regex.fullmatch(below):
                    return not pattern.negated
            level = level.above
        return False


def parse_patterns(text: str) -> tuple[IgnorePattern, ...]:
    """Parse the patterns of a file, last line first. An invalid line matches nothing."""
    found = map(_parse_line, reversed(text.splitlines()[:MAX_PATTERNS]))
    return tuple(pattern for pattern in found if pattern is not None)


@lru_cache(maxsize=4096)
def _parse_line(line: str) -> IgnorePattern | None:
    stripped = line.rstrip(" ")
    line = f"{stripped} " if stripped.endswith("\\") and stripped != line else stripped
    if not line or line.startswith("#") or len(line) > MAX_PATTERN_LENGTH:
        return None
    negated = line.startswith("!")
    line = line[1:] if negated else line
    folders = line.endswith("/")
    line = line.rstrip("/") if folders else line
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line:
        return None
    try:
        fits = re.compile(("" if anchored else ANY_FOLDER_PATTERN) + translate_glob(line), re.DOTALL)
    except re.error:
        return None
    return IgnorePattern(fits, negated, folders)


MAX_DEPTH: Final = 64
MAX_ENTRIES: Final = 500_000
WALK_TIMEOUT_S: Final = 20.0
_WALK_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WALK_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen(kw_only=False)
class WalkedEntry:
    """A file or folder of a walk. `folder` is open only until the next entry."""

    folder: int
    name: str
    path: str  # relative to the root
    is_folder: bool
    is_file: bool  # a regular file
    depth: int

    def open_file(self) -> int:
        """Open the file for reading. Raises `OSError`."""
        return os.open(self.name, _WALK_FILE_FLAGS, dir_fd=self.folder)

    def get_stat(self) -> os.stat_result:
        """Return the stat of the entry. Raises `OSError`."""
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)


@dataclass(slots=True, kw_only=True)
class FolderWalk:
    """The options and the state of a walk."""

    ignored: frozenset[str] = frozenset()  # names of skipped folders
    gitignore: bool = True
    max_depth: int = MAX_DEPTH
    seconds: float = WALK_TIMEOUT_S
    count: int = 0
    stop_reason: str = ""  # why the walk is incomplete; empty if it is complete
    _deadline: float = field(default=0.0, init=False)

    def walk(self, folder: int, path: str, ignore_rules: IgnoreRules | None = None) -> Generator[WalkedEntry]:
        """Yield everything below an open folder. `path` is its location relative to the root."""
        self._deadline = time.monotonic() + self.seconds
        yield from self._walk_folder(folder, f"{path}/" if path else "", ignore_rules, 1)

    def _walk_folder(
        self, folder: int, prefix: str, ignore_rules: IgnoreRules | None, depth: int
    ) -> Generator[WalkedEntry]:
        entries = self._list_entries(folder)
        if self.gitignore and any(entry.name == GITIGNORE_NAME for entry in entries):
            ignore_rules = _add_rules(folder, prefix, ignore_rules)
        for entry in entries:
            self.count += 1
            if self.count > MAX_ENTRIES:
                self.stop_reason = f"only the first {MAX_ENTRIES} entries were looked at"
            elif not self.count % 64 and time.monotonic() > self._deadline:
                self.stop_reason = f"it stopped after {self.seconds:g} seconds"
            if self.stop_reason != "" and not self.stop_reason.startswith("folders"):
                return
            is_folder = entry.is_dir(follow_symlinks=False)
            path = prefix + entry.name
            if is_folder and entry.name in self.ignored:
                continue
            if ignore_rules is not None and ignore_rules.is_ignored(path, folder=is_folder):
                continue
            is_file = entry.is_file(follow_symlinks=False)
            yield WalkedEntry(folder, entry.name, path, is_folder, is_file, depth)
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
        except OSError:  # deleted, replaced, or not readable
            return
        try:
            yield from self._walk_folder(below, f"{path}/", ignore_rules, depth + 1)
        finally:
            os.close(below)

    def _list_entries(self, folder: int) -> list[os.DirEntry[str]]:
        with suppress(OSError), os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
        return []


def load_parent_rules(folders: Iterable[tuple[int, str]]) -> IgnoreRules | None:
    """Load the ignore rules of the open folders from the root to a start, with their paths (`` or `a/b/`)."""
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
