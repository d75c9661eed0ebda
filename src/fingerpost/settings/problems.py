"""Origins of values, and problems with them.

Every value has a `ValueOrigin`, so that a `Problem` can name the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Literal, TypeAlias

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.redaction import MASK, is_secret_name, scrub

KeyPath: TypeAlias = tuple[str | int, ...]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_MAX_SHOWN_LENGTH = 60


@frozen
class ValueOrigin:
    """Where a value was written: a file and line, an environment variable, an argument, or nowhere."""

    kind: Literal["default", "file", "environment", "argument"] = "default"
    file: str | None = None
    line: int | None = None
    name: str | None = None  # of the variable or the argument

    def __str__(self) -> str:
        if self.kind == "file":
            return f"{self.file}:{self.line}" if self.line else f"{self.file}"
        return self.kind if self.name is None else f"{self.kind} {self.name}"


DEFAULT_ORIGIN = ValueOrigin()


@frozen
class Problem:
    """One problem, its location and its fix.

    Texts are redacted on creation, because a problem may quote user input.
    """

    message: str
    fix: str
    path: str = ""  # dotted: smart_routing.max_tools
    origin: ValueOrigin = DEFAULT_ORIGIN
    warning: bool = False  # reported, but does not prevent loading

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", scrub(self.message))
        object.__setattr__(self, "fix", scrub(self.fix))

    @property
    def file(self) -> str | None:
        return self.origin.file

    @property
    def line(self) -> int | None:
        return self.origin.line

    def __str__(self) -> str:
        where = "" if self.origin.kind == "default" else f"{self.origin}: "
        path = "" if self.path in ("", self.origin.name) else f"{self.path}: "
        return f"{where}{path}{self.message}"

    def as_warning(self) -> Problem:
        return replace(self, warning=True)


def format_path(path: Iterable[str | int]) -> str:
    """Return the path in TOML notation: `servers."my server".command`, `tools[0].match`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        name = (
            part if _BARE_KEY.fullmatch(part) else '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'
        )
        text += f".{name}" if text else name
    return text


def format_value(value: object, path: KeyPath = ()) -> str:
    """Return `value` for a message: short, on one line, masked if its name indicates a secret."""
    if any(isinstance(part, str) and (is_secret_name(part) or part in {"env", "headers"}) for part in path):
        return MASK
    # The text of a table would be too long; its kind is enough.
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = scrub(value) if isinstance(value, str) else str(value)
    # Do not double the backslashes of a Windows path.
    text = repr(text).replace("\\\\", "\\") if isinstance(value, str) else text
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}…"


def find_nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name most similar to `word`, or None."""
    by_lower = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def to_error(problems: tuple[Problem, ...]) -> ConfigError:
    """Combine all problems in one error."""
    if len(problems) == 1:
        return ConfigError(str(problems[0]), hint=problems[0].fix, problems=problems)
    lines = [f"{len(problems)} problems in the settings"]
    for problem in problems:
        lines += [f"  {problem}", f"    fix: {problem.fix}"]
    return ConfigError("\n".join(lines), hint="`fingerpost config check` shows them again", problems=problems)
