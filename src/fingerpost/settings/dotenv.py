"""`.env` files, as an `envFile` entry names them: `NAME=value`, one per line."""

from __future__ import annotations

import re

from fingerpost.frozen import frozen

_DOTENV_LINE = re.compile(
    r"""
    (?:export\s+)? (?P<name>[A-Za-z_][A-Za-z0-9_.-]*) \s*=\s*
    (?: "(?P<double>(?:[^"\\]|\\.)*)"\s*(?:\#.*)? | '(?P<single>[^']*)'\s*(?:\#.*)? | (?P<plain>.*) )
    """,
    re.VERBOSE | re.DOTALL,
)
_DOTENV_COMMENT = re.compile(r"(?:^|\s)#")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


@frozen(kw_only=False)
class BadDotenvLine:
    """A line that is not `NAME=value`. Its text may be a secret and is not kept."""

    line: int


def read_dotenv(text: str) -> tuple[dict[str, str], tuple[BadDotenvLine, ...]]:
    """The variables of a `.env` text, and the lines that are none."""
    values: dict[str, str] = {}
    bad: list[BadDotenvLine] = []
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        match = _DOTENV_LINE.fullmatch(line)
        if match is None:
            bad.append(BadDotenvLine(number))
        else:
            values[match["name"]] = _parse_value(match)
    return values, tuple(bad)


def _parse_value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape[1], escape[1]), match["double"])
    if match["single"] is not None:
        return match["single"]
    return _DOTENV_COMMENT.split(match["plain"], maxsplit=1)[0].strip()
