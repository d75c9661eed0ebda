"""Front matter: the few forms of YAML that notes have on top. What is none of them is passed over.

---
title: "Tomatoes: what worked"
tags: [garden, food]
aliases:
  - Tomato notes
date: 2026-05-01
---
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from fingerpost.builtin.knowledge.records import FrontMatter

MAX_FRONT_LINES: Final = 200
MAX_FRONT_ITEMS: Final = 100
MAX_VALUE_LENGTH: Final = 300
_FRONT_FENCE: Final = "---"
_ENDS: Final = ("---", "...")
_KEY = re.compile(r"([A-Za-z][\w -]{0,60}?)\s{0,20}:(?:\s(.{0,2000})|$)")
_ITEM = re.compile(r"\s{0,40}-\s(.{0,2000})")
_QUOTED = re.compile(r"""\s{0,40}("(?:[^"\\]|\\.){0,2000}"|'(?:[^']|''){0,2000}')""")


def read_front_matter(lines: Sequence[str]) -> FrontMatter:
    """What the front matter says. A file without one, or with one that does not end, has none."""
    if not lines or lines[0].rstrip() != _FRONT_FENCE:
        return FrontMatter()
    for place, line in enumerate(lines[1 : MAX_FRONT_LINES + 1], start=1):
        if line.rstrip() in _ENDS:
            return _build_front_matter(_read_values(lines[1:place]), place + 1)
    return FrontMatter()


def _build_front_matter(values: dict[str, list[str]], lines: int) -> FrontMatter:
    def first(*names: str) -> str:
        return next((value[0] for name in names if (value := values.get(name))), "")

    def words(*names: str) -> list[str]:
        """A list, or one value with its parts behind each other."""
        said = [value for name in names for value in values.get(name, ())]
        return said if len(said) != 1 else re.split(r"[,\s]+", said[0])

    return FrontMatter(
        title=first("title"),
        description=first("description", "summary"),
        tags=normalize_tags(words("tags", "tag", "keywords")),
        aliases=tuple(dict.fromkeys((*values.get("aliases", ()), *values.get("alias", ())))),
        date=first("date", "created", "updated"),
        lines=lines,
    )


def normalize_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags as they are compared: without `#`, in small letters, each once."""
    return tuple(dict.fromkeys(tag for raw in tags if (tag := raw.strip().lstrip("#").casefold())))


def _read_values(lines: Sequence[str]) -> dict[str, list[str]]:
    """The values of each key, by its name in small letters."""
    values: dict[str, list[str]] = {}
    items: list[str] = []
    for line in lines:
        if (item := _ITEM.match(line)) is not None:
            _add_value(items, item[1])
        elif (found := _KEY.match(line)) is not None:
            items = values.setdefault(found[1].strip().lower(), [])
            _add_values(items, found[2] or "")
    return {name: found for name, found in values.items() if found}


def _add_values(items: list[str], written: str) -> None:
    """`value`, `"value"` or `[value, value]`."""
    written = written.strip()
    if written.startswith("["):
        inner = written[1:].rpartition("]")[0]
        while inner.strip():
            quoted = _QUOTED.match(inner)
            end = quoted.end() if quoted is not None else 0
            head, _, rest = inner[end:].partition(",")
            _add_value(items, inner[:end] + head)
            inner = rest
    elif written not in ("|", ">", "|-", ">-", "{}", "~", "null"):
        _add_value(items, written)


def _add_value(items: list[str], written: str) -> None:
    value = _read_scalar(written)
    if value and len(items) < MAX_FRONT_ITEMS:
        items.append(value)


def _read_scalar(written: str) -> str:
    if (quoted := _QUOTED.match(written)) is not None:
        inner = quoted[1][1:-1]
        plain = inner.replace("''", "'") if quoted[1][0] == "'" else re.sub(r"\\(.)", r"\1", inner)
    else:
        plain = re.split(r"(?:^|\s)#", written, maxsplit=1)[0] if " #" in written else written
    return " ".join(plain.split())[:MAX_VALUE_LENGTH]
