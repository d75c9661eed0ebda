"""Path patterns as regular expressions: `*` stays within a name, `**` crosses folders.

Patterns come from a model or from a file in a stranger's folder, so none may take long to try. What lies
between two stars has a fixed length, and its first place is as good as any later one: once it is found, it is
not looked for again (the groups are atomic). Otherwise twenty stars and one long name would take years.
"""

from __future__ import annotations

import re
from typing import Final

ANY_FOLDER_PATTERN: Final = "(?:.*/)?"  # in front of a pattern without a slash
_STAR_PATTERN: Final = "[^/]*"
_LEADING_FOLDERS: Final = "(?:.*?/)??"


def translate_glob(glob: str) -> str:
    """The pattern as a regular expression, for `fullmatch` with `re.DOTALL`."""
    stretches: list[list[str]] = [[]]  # what stands between `**/` and `**/`
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
    """In each name, what stands between two stars is found once; behind the last star anything may fit."""
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
    """Where `**/` at this place ends, if there is one."""
    if not glob.startswith("**", position) or not _is_single_star(glob, position):
        return None
    end = _skip_stars(glob, position)
    return end + 1 if glob[end : end + 1] == "/" else None


def _translate_next(glob: str, position: int) -> tuple[str, int]:
    char = glob[position]
    if char == "*":
        end = _skip_stars(glob, position)
        if end - position > 1 and end == len(glob) and _is_single_star(glob, position):
            return ".+" if position else ".*", end
        return _STAR_PATTERN, end
    if char == "?":
        return "[^/]", position + 1
    if char == "[":
        return _translate_class(glob, position)
    if char == "\\" and position + 1 < len(glob):
        return re.escape(glob[position + 1]), position + 2
    return re.escape(char), position + 1


def _is_single_star(glob: str, position: int) -> bool:
    return position == 0 or glob[position - 1] == "/"


def _skip_stars(glob: str, position: int) -> int:
    while glob[position : position + 1] == "*":
        position += 1
    return position


def _translate_class(glob: str, position: int) -> tuple[str, int]:
    end = position + 1
    if glob[end : end + 1] in ("!", "^"):
        end += 1
    end = glob.find("]", end + 1)
    if end < 0:
        return re.escape("["), position + 1
    inside = glob[position + 1 : end]
    turned = inside[:1] in ("!", "^")
    inside = inside[1:] if turned else inside
    inside = inside.replace("\\", "\\\\").replace("[", "\\[").replace("&", "\\&").replace("~", "\\~")
    inside = inside.replace("|", "\\|").replace("^", "\\^")
    return f"(?!/)[{'^' if turned else ''}{inside}]", end + 1
