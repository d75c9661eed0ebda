"""What there is: the entries of a folder, and files by the pattern of their names."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground import PathEntry, format_name
from fingerpost.builtin.workspace.ground.globs import ANY_FOLDER_PATTERN, translate_glob
from fingerpost.builtin.workspace.ground.ignoring import IgnoreRules
from fingerpost.builtin.workspace.ground.walking import FolderWalk, WalkedEntry, load_parent_rules
from fingerpost.builtin.workspace.workplace import WorkspaceContext

MAX_LISTED: Final = 2000
MAX_PATTERN_LENGTH: Final = 300


@contextmanager
def walk_folder(
    workspace: WorkspaceContext, path: str, walk: FolderWalk
) -> Generator[tuple[PathEntry, Generator[WalkedEntry]]]:
    """All below a folder. What its parents' `.gitignore` says holds, unless the folder itself is ignored."""
    with workspace.root_folder.open_entry(path) as place:
        folder = place.open_folder()
        try:
            above = _load_parent_rules(workspace, place) if walk.gitignore and not place.outside else None
            yield place, walk.walk(folder, "/".join(place.names), above)
        finally:
            os.close(folder)


def _load_parent_rules(workspace: WorkspaceContext, entry: PathEntry) -> IgnoreRules | None:
    held: list[tuple[int, str]] = []
    try:
        held.append((workspace.root_folder.open_root(), ""))
        for number, name in enumerate(entry.names[:-1], start=1):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=held[-1][0])
            held.append((below, "/".join(entry.names[:number]) + "/"))
        found = load_parent_rules(held) if entry.names else None
    except OSError:
        return None
    finally:
        for folder, _ in held:
            os.close(folder)
    if found is None or any(_is_hidden(found, entry.names[:end]) for end in range(1, len(entry.names) + 1)):
        return None
    return found


def _is_hidden(ignore_rules: IgnoreRules, names: tuple[str, ...]) -> bool:
    return ignore_rules.is_ignored("/".join(names), folder=True)


def list_folder(
    workspace: WorkspaceContext, path: str, *, max_depth: int, include_ignored: bool, limit: int
) -> str:
    """The entries of a folder, folders with a slash, files with their size; deeper ones where wished."""
    walking = workspace.build_walk(include_ignored=include_ignored, max_depth=max_depth)
    lines: list[str] = []
    with walk_folder(workspace, path, walking) as (place, found):
        start = len(place.names)
        lines.extend(_format_entry(entry, start) for entry in islice(found, limit + 1))
        shown = place.display_path
    more = _format_truncation(len(lines) > limit, limit, walking)
    if not lines:
        return f"{shown} is empty{'' if include_ignored else ', apart from what is ignored'}."
    return "\n".join((f"{shown}:", *lines[:limit])) + more


def _format_entry(entry: WalkedEntry, start: int) -> str:
    name = format_name("/".join(entry.path.split("/")[start:]))
    if entry.is_folder:
        return f"{name}/"
    try:
        if entry.is_file:
            return f"{name}  {entry.get_stat().st_size} bytes"
        target = format_name(os.readlink(entry.name, dir_fd=entry.folder))
    except OSError:
        return f"{name}  (not a file)"
    return f"{name} -> {target}"


def find_files(
    workspace: WorkspaceContext, pattern: str, path: str, *, include_ignored: bool, limit: int
) -> str:
    """Files and folders whose path fits a pattern (`*.md`, `src/**/test_*.py`), in order."""
    fits = compile_path_pattern(pattern)
    walking = workspace.build_walk(include_ignored=include_ignored)
    found: list[str] = []
    with walk_folder(workspace, path, walking) as (place, below):
        start = len("/".join(place.names)) + 1 if place.names else 0
        for entry in below:
            if fits.fullmatch(entry.path[start:]):
                found.append(format_name(entry.path) + ("/" if entry.is_folder else ""))
                if len(found) > limit:
                    break
        shown = place.display_path
    if not found:
        more = f" ({walking.stop_reason})" if walking.stop_reason else ""
        return f"Nothing in {shown} fits {pattern}{more}. {walking.count} entries were looked at."
    return "\n".join(found[:limit]) + _format_truncation(len(found) > limit, limit, walking)


def compile_path_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern for paths; one without a slash fits the name in whatever folder."""
    if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
        message = f"The pattern must have 1 to {MAX_PATTERN_LENGTH} characters."
        raise ToolRefused(message, hint="Such as *.md, or src/**/test_*.py.")
    plain = pattern.removeprefix("./").removeprefix("/")
    branches = [translate_glob(each) for each in _expand_braces(plain)]
    prefix = "" if "/" in plain else ANY_FOLDER_PATTERN
    try:
        return re.compile(f"{prefix}(?:{'|'.join(branches)})", re.DOTALL)
    except re.error as error:
        message = f"The pattern {pattern} cannot be read: {error}."
        raise ToolRefused(message, hint="`*`, `**`, `?`, `[abc]` and `{md,txt}` have a meaning.") from error


def _expand_braces(pattern: str) -> list[str]:
    """`*.{md,txt}` is `*.md` and `*.txt`; one pair of braces, as everybody writes it."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None or "," not in match[1]:
        return [pattern]
    return [pattern[: match.start()] + each + pattern[match.end() :] for each in match[1].split(",")]


def _format_truncation(cut: bool, limit: int, walk: FolderWalk) -> str:
    notes: list[str] = []
    if cut:
        notes.append(f"only the first {limit} are shown: narrow it down, or raise `limit`")
    if walk.stop_reason:
        notes.append(walk.stop_reason)
    return f"\n[{'; '.join(notes)}]" if notes else ""
