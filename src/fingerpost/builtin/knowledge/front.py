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

from fingerpost.builtin.knowledge.records import Front

MOST_LINES: Final = 200
MOST_ITEMS: Final = 100
LONGEST: Final = 300
_FENCE: Final = "---"
_ENDS: Final = ("---", "...")
_KEY = re.compile(r"([A-Za-z][\w -]{0,60}?)\s{0,20}:(?:\s(.{0,2000})|$)")
_ITEM = re.compile(r"\s{0,40}-\s(.{0,2000})")
_QUOTED = re.compile(r"""\s{0,40}("(?:[^"\\]|\\.){0,2000}"|'(?:[^']|''){0,2000}')""")


def read_front(lines: Sequence[str]) -> Front:
    """What the front matter says. A file without one, or with one that does not end, has none."""
    if not lines or lines[0].rstrip() != _FENCE:
        return Front()
    for place, line in enumerate(lines[1 : MOST_LINES + 1], start=1):
        if line.rstrip() in _ENDS:
            return _front(_values(lines[1:place]), place + 1)
    return Front()


def _front(values: dict[str, list[str]], lines: int) -> Front:
    def first(*names: str) -> str:
        return next((value[0] for name in names if (value := values.get(name))), "")

    def words(*names: str) -> list[str]:
        """A list, or one value with its parts behind each other."""
        said = [value for name in names for value in values.get(name, ())]
        return said if len(said) != 1 else re.split(r"[,\s]+", said[0])

    return Front(
        title=first("title"),
        description=first("description", "summary"),
        tags=normal_tags(words("tags", "tag", "keywords")),
        aliases=tuple(dict.fromkeys((*values.get("aliases", ()), *values.get("alias", ())))),
        date=first("date", "created", "updated"),
        lines=lines,
    )


def normal_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags as they are compared: without `#`, in small letters, each once."""
    return tuple(dict.fromkeys(tag for raw in tags if (tag := raw.strip().lstrip("#").casefold())))


def _values(lines: Sequence[str]) -> dict[str, list[str]]:
    """The values of each key, by its name in small letters."""
    values: dict[str, list[str]] = {}
    items: list[str] = []
    for line in lines:
        if (item := _ITEM.match(line)) is not None:
            _keep(items, item[1])
        elif (found := _KEY.match(line)) is not None:
            items = values.setdefault(found[1].strip().lower(), [])
            _take(items, found[2] or "")
    return {name: found for name, found in values.items() if found}


def _take(items: list[str], written: str) -> None:
    """`value`, `"value"` or `[value, value]`."""
    written = written.strip()
    if written.startswith("["):
        inner = written[1:].rpartition("]")[0]
        while inner.strip():
            quoted = _QUOTED.match(inner)
            end = quoted.end() if quoted is not None else 0
            head, _, rest = inner[end:].partition(",")
            _keep(items, inner[:end] + head)
            inner = rest
    elif written not in ("|", ">", "|-", ">-", "{}", "~", "null"):
        _keep(items, written)


def _keep(items: list[str], written: str) -> None:
    value = _scalar(written)
    if value and len(items) < MOST_ITEMS:
        items.append(value)


def _scalar(written: str) -> str:
    if (quoted := _QUOTED.match(written)) is not None:
        inner = quoted[1][1:-1]
        plain = inner.replace("''", "'") if quoted[1][0] == "'" else re.sub(r"\\(.)", r"\1", inner)
    else:
        plain = re.split(r"(?:^|\s)#", written, maxsplit=1)[0] if " #" in written else written
    return " ".join(plain.split())[:LONGEST]
