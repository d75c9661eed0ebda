"""What a `.gitignore` leaves out, as git reads it: the last pattern that fits decides, deeper files first.

Read are the files of that name from the root down; not the user's own global one, nor .git/info/exclude.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from fingerpost.builtin.workspace.ground.globs import ANY_FOLDER_PATTERN, translate_glob
from fingerpost.frozen import frozen

GITIGNORE_NAME: Final = ".gitignore"
MAX_GITIGNORE_BYTES: Final = 65_536
MAX_PATTERNS: Final = 1000
MAX_PATTERN_LINE: Final = 500


@frozen(kw_only=False)
class IgnorePattern:
    """One line: what it fits, whether it takes back what others ignored, whether it means folders alone."""

    regex: re.Pattern[str]
    negated: bool
    folders_only: bool


@frozen(kw_only=False)
class IgnoreRules:
    """The patterns of one folder, and those of the folders above it."""

    base: str  # the folder they stand in, seen from the root: `` or `a/b/`
    patterns: tuple[IgnorePattern, ...]  # the last line first
    above: IgnoreRules | None = None

    def is_ignored(self, path: str, *, folder: bool) -> bool:
        """Whether an entry is left out; `path` is seen from the root, and lies below `base`."""
        level: IgnoreRules | None = self
        while level is not None:
            below = path[len(level.base) :]
            for pattern in level.patterns:
                if (folder or not pattern.folders_only) and pattern.regex.fullmatch(below):
                    return not pattern.negated
            level = level.above
        return False


def parse_patterns(text: str) -> tuple[IgnorePattern, ...]:
    """The patterns of a file, the last first. A line that makes no sense fits nothing."""
    found: list[IgnorePattern] = []
    for line in text.splitlines()[:MAX_PATTERNS]:
        pattern = _parse_line(line)
        if pattern is not None:
            found.append(pattern)
    return tuple(reversed(found))


@lru_cache(maxsize=4096)
def _parse_line(line: str) -> IgnorePattern | None:
    line = _strip_trailing_spaces(line)
    if not line or line.startswith("#") or len(line) > MAX_PATTERN_LINE:
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


def _strip_trailing_spaces(line: str) -> str:
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and stripped != line:
        return f"{stripped} "
    return stripped
