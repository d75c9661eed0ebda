"""What there is: the entries of a folder, and files by the pattern of their names."""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from fingerpost.builtin.kit import ToolRefused
from fingerpost.builtin.workspace.ground import Place, shown_name
from fingerpost.builtin.workspace.ground.globs import ANYWHERE, translated
from fingerpost.builtin.workspace.ground.ignoring import Ignoring
from fingerpost.builtin.workspace.ground.walking import Entry, Walking, ignoring_above
from fingerpost.builtin.workspace.workplace import Workplace

MOST_LISTED: Final = 2000
LONGEST_PATTERN: Final = 300


@contextmanager
def entries(work: Workplace, path: str, walking: Walking) -> Generator[tuple[Place, Generator[Entry]]]:
    """All below a folder. What its parents' `.gitignore` says holds, unless the folder itself is ignored."""
    with work.ground.at(path) as place:
        folder = place.open_folder()
        try:
            above = _above(work, place) if walking.gitignore and not place.outside else None
            yield place, walking.below(folder, "/".join(place.names), above)
        finally:
            os.close(folder)


def _above(work: Workplace, place: Place) -> Ignoring | None:
    held: list[tuple[int, str]] = []
    try:
        held.append((work.ground.open_root(), ""))
        for number, name in enumerate(place.names[:-1], start=1):
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(name, flags, dir_fd=held[-1][0])
            held.append((below, "/".join(place.names[:number]) + "/"))
        found = ignoring_above(held) if place.names else None
    except OSError:
        return None
    finally:
        for folder, _ in held:
            os.close(folder)
    if found is None or any(_hides(found, place.names[:end]) for end in range(1, len(place.names) + 1)):
        return None
    return found


def _hides(ignoring: Ignoring, names: tuple[str, ...]) -> bool:
    return ignoring.ignores("/".join(names), folder=True)


def list_dir(work: Workplace, path: str, *, deepest: int, everything: bool, limit: int) -> str:
    """The entries of a folder, folders with a slash, files with their size; deeper ones where wished."""
    walking = work.walking(everything=everything, deepest=deepest)
    lines: list[str] = []
    with entries(work, path, walking) as (place, found):
        start = len(place.names)
        lines.extend(_line(entry, start) for entry in islice(found, limit + 1))
        shown = place.shown
    more = _more(len(lines) > limit, limit, walking)
    if not lines:
        return f"{shown} is empty{'' if everything else ', apart from what is ignored'}."
    return "\n".join((f"{shown}:", *lines[:limit])) + more


def _line(entry: Entry, start: int) -> str:
    name = shown_name("/".join(entry.path.split("/")[start:]))
    if entry.is_folder:
        return f"{name}/"
    try:
        if entry.is_file:
            return f"{name}  {entry.look().st_size} bytes"
        target = shown_name(os.readlink(entry.name, dir_fd=entry.folder))
    except OSError:
        return f"{name}  (not a file)"
    return f"{name} -> {target}"


def find_files(work: Workplace, pattern: str, path: str, *, everything: bool, limit: int) -> str:
    """Files and folders whose path fits a pattern (`*.md`, `src/**/test_*.py`), in order."""
    fits = path_pattern(pattern)
    walking = work.walking(everything=everything)
    found: list[str] = []
    with entries(work, path, walking) as (place, below):
        start = len("/".join(place.names)) + 1 if place.names else 0
        for entry in below:
            if fits.fullmatch(entry.path[start:]):
                found.append(shown_name(entry.path) + ("/" if entry.is_folder else ""))
                if len(found) > limit:
                    break
        shown = place.shown
    if not found:
        more = f" ({walking.stopped})" if walking.stopped else ""
        return f"Nothing in {shown} fits {pattern}{more}. {walking.seen} entries were looked at."
    return "\n".join(found[:limit]) + _more(len(found) > limit, limit, walking)


def path_pattern(pattern: str) -> re.Pattern[str]:
    """A pattern for paths; one without a slash fits the name in whatever folder."""
    if not pattern or len(pattern) > LONGEST_PATTERN:
        message = f"The pattern must have 1 to {LONGEST_PATTERN} characters."
        raise ToolRefused(message, hint="Such as *.md, or src/**/test_*.py.")
    plain = pattern.removeprefix("./").removeprefix("/")
    branches = [translated(each) for each in _alternatives(plain)]
    prefix = "" if "/" in plain else ANYWHERE
    try:
        return re.compile(f"{prefix}(?:{'|'.join(branches)})", re.DOTALL)
    except re.error as error:
        message = f"The pattern {pattern} cannot be read: {error}."
        raise ToolRefused(message, hint="`*`, `**`, `?`, `[abc]` and `{md,txt}` have a meaning.") from error


def _alternatives(pattern: str) -> list[str]:
    """`*.{md,txt}` is `*.md` and `*.txt`; one pair of braces, as everybody writes it."""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if match is None or "," not in match[1]:
        return [pattern]
    return [pattern[: match.start()] + each + pattern[match.end() :] for each in match[1].split(",")]


def _more(cut: bool, limit: int, walking: Walking) -> str:
    notes: list[str] = []
    if cut:
        notes.append(f"only the first {limit} are shown: narrow it down, or raise `limit`")
    if walking.stopped:
        notes.append(walking.stopped)
    return f"\n[{'; '.join(notes)}]" if notes else ""
