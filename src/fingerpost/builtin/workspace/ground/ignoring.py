"""What a `.gitignore` leaves out, as git reads it: the last pattern that fits decides, deeper files first.

Read are the files of that name from the root down; not the user's own global one, nor .git/info/exclude.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from fingerpost.frozen import frozen

FILE: Final = ".gitignore"
MOST_BYTES: Final = 65_536
MOST_PATTERNS: Final = 1000
LONGEST: Final = 500


@frozen(kw_only=False)
class Pattern:
    """One line: what it fits, whether it takes back what others ignored, whether it means folders alone."""

    fits: re.Pattern[str]
    negated: bool
    folders: bool


@frozen(kw_only=False)
class Ignoring:
    """The patterns of one folder, and those of the folders above it."""

    base: str  # the folder they stand in, seen from the root: `` or `a/b/`
    patterns: tuple[Pattern, ...]  # the last line first
    above: Ignoring | None = None

    def ignores(self, path: str, *, folder: bool) -> bool:
        """Whether an entry is left out; `path` is seen from the root, and lies below `base`."""
        level: Ignoring | None = self
        while level is not None:
            below = path[len(level.base) :]
            for pattern in level.patterns:
                if (folder or not pattern.folders) and pattern.fits.fullmatch(below):
                    return not pattern.negated
            level = level.above
        return False


def read_patterns(text: str) -> tuple[Pattern, ...]:
    """The patterns of a file, the last first. A line that makes no sense fits nothing."""
    found: list[Pattern] = []
    for line in text.splitlines()[:MOST_PATTERNS]:
        pattern = _read_line(line)
        if pattern is not None:
            found.append(pattern)
    return tuple(reversed(found))


@lru_cache(maxsize=4096)
def _read_line(line: str) -> Pattern | None:
    line = _without_trailing_spaces(line)
    if not line or line.startswith("#") or len(line) > LONGEST:
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
        fits = re.compile(("" if anchored else "(?:.*/)?") + translated(line), re.DOTALL)
    except re.error:
        return None
    return Pattern(fits, negated, folders)


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and stripped != line:
        return f"{stripped} "
    return stripped


def translated(glob: str) -> str:
    """A path pattern as a regular expression: `*` stays within a name, `**` crosses folders."""
    made: list[str] = []
    place = 0
    while place < len(glob):
        piece, place = _next(glob, place)
        made.append(piece)
    return "".join(made)


def _next(glob: str, place: int) -> tuple[str, int]:
    if glob.startswith("**", place):
        return _stars(glob, place)
    char = glob[place]
    if char == "*":
        return "[^/]*", place + 1
    if char == "?":
        return "[^/]", place + 1
    if char == "[":
        return _choice(glob, place)
    if char == "\\" and place + 1 < len(glob):
        return re.escape(glob[place + 1]), place + 2
    return re.escape(char), place + 1


def _stars(glob: str, place: int) -> tuple[str, int]:
    end = place
    while end < len(glob) and glob[end] == "*":
        end += 1
    alone = place == 0 or glob[place - 1] == "/"
    if alone and end == len(glob):
        return ".+" if place else ".*", end
    if alone and glob[end] == "/":
        return "(?:.*/)?", end + 1
    return "[^/]*", end


def _choice(glob: str, place: int) -> tuple[str, int]:
    end = place + 1
    if glob[end : end + 1] in ("!", "^"):
        end += 1
    end = glob.find("]", end + 1)
    if end < 0:
        return re.escape("["), place + 1
    inside = glob[place + 1 : end]
    turned = inside[:1] in ("!", "^")
    inside = inside[1:] if turned else inside
    inside = inside.replace("\\", "\\\\").replace("[", "\\[").replace("&", "\\&").replace("~", "\\~")
    inside = inside.replace("|", "\\|").replace("^", "\\^")
    return f"(?!/)[{'^' if turned else ''}{inside}]", end + 1
