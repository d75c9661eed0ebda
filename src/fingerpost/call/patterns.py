"""Whether a value fits a pattern of a rule.

The question has two readings. A rule that allows must not be talked into it:
the value has to fit exactly, in every spelling a tool might read it in. A rule
that asks or denies must not be talked out of it: one spelling that fits is
enough. So `/safe/*` does not allow `/safe/../etc`, and `/etc/*` denies
`/ETC/passwd`, `%2Fetc/x` and `/safe/../etc/x`.

Patterns are those of the shell: `*`, `?`, `[abc]`.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import Final, cast

from fingerpost.call.spellings import has_parent_step, list_readings, normalize_path
from fingerpost.records import JsonObject

MAX_TEXT_LENGTH: Final = 65_536  # a longer one is not read through on the event loop


class PatternFit(IntEnum):
    """Whether something fits; of several conditions the least decides."""

    NO = 0
    MAYBE = 1
    YES = 2


def match_exactly(pattern: str, text: str) -> PatternFit:
    """For rules that allow: the text fits in every reading, and does not climb where the pattern does not."""
    if len(text) > MAX_TEXT_LENGTH or (".." not in pattern and has_parent_step(text)):
        return PatternFit.NO
    return (
        PatternFit.YES
        if all(fnmatchcase(reading, pattern) for reading in list_readings(text))
        else PatternFit.NO
    )


def match_loosely(pattern: str, text: str, folder: str | None = None) -> PatternFit:
    """For rules that ask or deny: one reading of the text fits, seen from `folder` when it is a path."""
    if len(text) > MAX_TEXT_LENGTH:
        return PatternFit.MAYBE
    patterns = {_casefold(pattern), _casefold(normalize_path(pattern))}
    forms = {_casefold(form) for form in _list_forms(text, folder)}
    return (
        PatternFit.YES
        if any(fnmatchcase(form, each) for form in forms for each in patterns)
        else PatternFit.NO
    )


def _casefold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _list_forms(text: str, folder: str | None) -> Iterator[str]:
    for reading in list_readings(text):
        yield reading
        yield reading.rstrip(". ")
        path = normalize_path(reading)
        yield path
        if path.casefold().startswith("file:"):
            path = posixpath.normpath("/" + path[5:].lstrip("/").removeprefix("localhost/"))
            yield path
        if not path.startswith("/"):
            if folder is not None:
                yield posixpath.normpath(f"{folder}/{path}")
            if path.startswith("../"):
                yield posixpath.normpath(f"/{path}")  # from wherever it starts, enough `..` end at the root


def match_argument(
    arguments: JsonObject, name: str, pattern: str, *, allowing: bool, folder: str | None
) -> PatternFit:
    """Whether the argument `name` (dotted: nested) fits. One that is missing does not."""
    found = list(_find_values(arguments, name.split("."), exactly=allowing))
    if allowing:
        texts = [text for node in found for text in _iterate_leaves(node)]
        if not texts or None in texts:
            return PatternFit.NO
        return min(PatternFit.NO if text is None else match_exactly(pattern, text) for text in texts)
    forms = [form for node in found for form in _iterate_texts(node)]
    return max((match_loosely(pattern, form, folder) for form in forms), default=PatternFit.NO)


class _MissingArgument:
    """Stands where an argument should be and is not."""


def _find_values(node: object, name: Sequence[str], *, exactly: bool) -> Iterator[object]:
    """Every value the dotted name leads to; through a list, in each of its items."""
    if not name:
        yield node
    elif isinstance(node, Mapping):
        entries = cast("Mapping[str, object]", node)
        found = [
            (value, name[length:])
            for length in range(1, len(name) + 1)
            for key, value in entries.items()
            if _is_same_name(key, ".".join(name[:length]), exactly=exactly)
        ]
        for value, rest in found:
            yield from _find_values(value, rest, exactly=exactly)
        if not found:
            yield _MissingArgument()
    elif isinstance(node, list | tuple) and node:
        for item in cast("Sequence[object]", node):
            yield from _find_values(item, name, exactly=exactly)
    else:
        yield _MissingArgument()


def _is_same_name(key: str, name: str, *, exactly: bool) -> bool:
    return key == name if exactly else key == name or _normalize_name(key) == _normalize_name(name)


def _normalize_name(name: str) -> str:
    return "".join(char for char in _casefold(name) if char.isalnum())


def _iterate_leaves(node: object) -> Iterator[str | None]:
    """Every scalar below `node` as text; None for what is missing, null or empty."""
    if isinstance(node, Mapping):
        below: Sequence[object] = list(cast("Mapping[str, object]", node).values())
    elif isinstance(node, list | tuple):
        below = cast("Sequence[object]", node)
    else:
        yield _to_text(node)
        return
    if not below:
        yield None
    for item in below:
        yield from _iterate_leaves(item)


def _iterate_texts(node: object) -> Iterator[str]:
    """Every scalar below `node`, and a list as one line: `["rm", "-rf", "/"]` is `rm -rf /`."""
    texts = ["null" if text is None else text for text in _iterate_leaves(node)]
    if isinstance(node, _MissingArgument):
        return
    yield from texts
    if len(texts) > 1:
        yield " ".join(texts)
    yield from (text.removesuffix(".0") for text in texts if text.endswith(".0"))


def _to_text(value: object) -> str | None:
    if value is None or isinstance(value, _MissingArgument):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
