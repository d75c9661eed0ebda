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

from fingerpost.call.spellings import as_path, climbs, readings
from fingerpost.records import JsonObject

LONGEST_TEXT: Final = 65_536  # a longer one is not read through on the event loop


class Fit(IntEnum):
    """Whether something fits; of several conditions the least decides."""

    NO = 0
    MAYBE = 1
    YES = 2


def fits_exactly(pattern: str, text: str) -> Fit:
    """For rules that allow: the text fits in every reading, and does not climb where the pattern does not."""
    if len(text) > LONGEST_TEXT or (".." not in pattern and climbs(text)):
        return Fit.NO
    return Fit.YES if all(fnmatchcase(reading, pattern) for reading in readings(text)) else Fit.NO


def fits_somehow(pattern: str, text: str, folder: str | None = None) -> Fit:
    """For rules that ask or deny: one reading of the text fits, seen from `folder` when it is a path."""
    if len(text) > LONGEST_TEXT:
        return Fit.MAYBE
    patterns = {_fold(pattern), _fold(as_path(pattern))}
    forms = {_fold(form) for form in _forms(text, folder)}
    return Fit.YES if any(fnmatchcase(form, each) for form in forms for each in patterns) else Fit.NO


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _forms(text: str, folder: str | None) -> Iterator[str]:
    for reading in readings(text):
        yield reading
        yield reading.rstrip(". ")
        path = as_path(reading)
        yield path
        if path.casefold().startswith("file:"):
            path = posixpath.normpath("/" + path[5:].lstrip("/").removeprefix("localhost/"))
            yield path
        if not path.startswith("/"):
            if folder is not None:
                yield posixpath.normpath(f"{folder}/{path}")
            if path.startswith("../"):
                yield posixpath.normpath(f"/{path}")  # from wherever it starts, enough `..` end at the root


def argument_fits(
    arguments: JsonObject, name: str, pattern: str, *, allowing: bool, folder: str | None
) -> Fit:
    """Whether the argument `name` (dotted: nested) fits. One that is missing does not."""
    found = list(_at(arguments, name.split("."), exactly=allowing))
    if allowing:
        texts = [text for node in found for text in _leaves(node)]
        if not texts or None in texts:
            return Fit.NO
        return min(Fit.NO if text is None else fits_exactly(pattern, text) for text in texts)
    forms = [form for node in found for form in _all_texts(node)]
    return max((fits_somehow(pattern, form, folder) for form in forms), default=Fit.NO)


class _Missing:
    """Stands where an argument should be and is not."""


def _at(node: object, name: Sequence[str], *, exactly: bool) -> Iterator[object]:
    """Every value the dotted name leads to; through a list, in each of its items."""
    if not name:
        yield node
    elif isinstance(node, Mapping):
        entries = cast("Mapping[str, object]", node)
        found = [
            (value, name[length:])
            for length in range(1, len(name) + 1)
            for key, value in entries.items()
            if _same_name(key, ".".join(name[:length]), exactly=exactly)
        ]
        for value, rest in found:
            yield from _at(value, rest, exactly=exactly)
        if not found:
            yield _Missing()
    elif isinstance(node, list | tuple) and node:
        for item in cast("Sequence[object]", node):
            yield from _at(item, name, exactly=exactly)
    else:
        yield _Missing()


def _same_name(key: str, name: str, *, exactly: bool) -> bool:
    return key == name if exactly else key == name or _plain(key) == _plain(name)


def _plain(name: str) -> str:
    return "".join(char for char in _fold(name) if char.isalnum())


def _leaves(node: object) -> Iterator[str | None]:
    """Every scalar below `node` as text; None for what is missing, null or empty."""
    if isinstance(node, Mapping):
        below: Sequence[object] = list(cast("Mapping[str, object]", node).values())
    elif isinstance(node, list | tuple):
        below = cast("Sequence[object]", node)
    else:
        yield _text(node)
        return
    if not below:
        yield None
    for item in below:
        yield from _leaves(item)


def _all_texts(node: object) -> Iterator[str]:
    """Every scalar below `node`, and a list as one line: `["rm", "-rf", "/"]` is `rm -rf /`."""
    texts = ["null" if text is None else text for text in _leaves(node)]
    if isinstance(node, _Missing):
        return
    yield from texts
    if len(texts) > 1:
        yield " ".join(texts)
    yield from (text.removesuffix(".0") for text in texts if text.endswith(".0"))


def _text(value: object) -> str | None:
    if value is None or isinstance(value, _Missing):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
