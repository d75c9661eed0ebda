"""What a `.gitignore` leaves out, as git reads it: the last pattern that fits decides, deeper files first.

Read are the files of that name from the root down; not the user's own global one, nor .git/info/exclude.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from fingerpost.builtin.workspace.ground.globs import ANYWHERE, translated
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
        fits = re.compile(("" if anchored else ANYWHERE) + translated(line), re.DOTALL)
    except re.error:
        return None
    return Pattern(fits, negated, folders)


def _without_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and stripped != line:
        return f"{stripped} "
    return stripped
