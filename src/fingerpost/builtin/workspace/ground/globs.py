"""Path patterns as regular expressions: `*` stays within a name, `**` crosses folders.

Patterns come from a model or from a file in a stranger's folder, so none may take long to try. What lies
between two stars has a fixed length, and its first place is as good as any later one: once it is found, it is
not looked for again (the groups are atomic). Otherwise twenty stars and one long name would take years.
"""

from __future__ import annotations

import re
from typing import Final

ANYWHERE: Final = "(?:.*/)?"  # in front of a pattern without a slash
_STAR: Final = "[^/]*"
_FIRST_FOLDERS: Final = "(?:.*?/)??"


def translated(glob: str) -> str:
    """The pattern as a regular expression, for `fullmatch` with `re.DOTALL`."""
    stretches: list[list[str]] = [[]]  # what stands between `**/` and `**/`
    place = 0
    while place < len(glob):
        if (end := _folders(glob, place)) is not None:
            stretches.append([])
            place = end
            continue
        piece, place = _next(glob, place)
        stretches[-1].append(piece)
    made = [_with_stars(stretch) for stretch in stretches]
    if len(made) == 1:
        return made[0]
    middle = "".join(f"(?>{_FIRST_FOLDERS}{stretch})" for stretch in made[1:-1])
    return f"{made[0]}{middle}{ANYWHERE}{made[-1]}"


def _with_stars(pieces: list[str]) -> str:
    """In each name, what stands between two stars is found once; behind the last star anything may fit."""
    made: list[str] = []
    since_star: list[str] | None = None
    for piece in pieces:
        if piece == _STAR and since_star is not None:
            made.append(f"(?>[^/]*?{''.join(since_star)})")
        if piece == _STAR:
            since_star = []
        elif piece == "/" and since_star is not None:
            made += [_STAR, *since_star, piece]
            since_star = None
        elif since_star is not None:
            since_star.append(piece)
        else:
            made.append(piece)
    if since_star is not None:
        made += [_STAR, *since_star]
    return "".join(made)


def _folders(glob: str, place: int) -> int | None:
    """Where `**/` at this place ends, if there is one."""
    if not glob.startswith("**", place) or not _is_alone(glob, place):
        return None
    end = _past_stars(glob, place)
    return end + 1 if glob[end : end + 1] == "/" else None


def _next(glob: str, place: int) -> tuple[str, int]:
    char = glob[place]
    if char == "*":
        end = _past_stars(glob, place)
        if end - place > 1 and end == len(glob) and _is_alone(glob, place):
            return ".+" if place else ".*", end
        return _STAR, end
    if char == "?":
        return "[^/]", place + 1
    if char == "[":
        return _choice(glob, place)
    if char == "\\" and place + 1 < len(glob):
        return re.escape(glob[place + 1]), place + 2
    return re.escape(char), place + 1


def _is_alone(glob: str, place: int) -> bool:
    return place == 0 or glob[place - 1] == "/"


def _past_stars(glob: str, place: int) -> int:
    while glob[place : place + 1] == "*":
        place += 1
    return place


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
