"""The choices a schema offers, however it writes them.

A list of values stands in `enum` or `const`, directly or in a branch (`anyOf`,
`oneOf`, `allOf`), behind a reference into the same schema, in the elements of a
list or in an object inside. The schema is its server's, so only so much of it
is looked through, the outer parts first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote

from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

MAX_PARTS: Final = 4000  # schemas and values
_BRANCH_KEYWORDS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NESTED_KEYWORDS: Final = ("items", "additionalProperties", "contains", "if", "then", "else")
_MAP_KEYWORDS: Final = ("properties", "patternProperties", "dependentSchemas")


@frozen
class SchemaChoices:
    """Each choice with the parameter it is for, and whether all of the schema was looked through."""

    offered: tuple[tuple[str, str], ...]
    complete: bool


@frozen
class SchemaParameters:
    """Each part of a schema with the parameter it describes, and whether all of it was looked through."""

    named: tuple[tuple[str, JsonObject], ...]
    complete: bool


def collect_parameters(schema: Json) -> SchemaParameters:
    """The parameters of this schema, and those inside of them."""
    named: list[tuple[str, JsonObject]] = []
    todo: deque[tuple[str, Json]] = deque([("", schema)])
    followed: set[tuple[str, str]] = set()
    while todo and len(named) < MAX_PARTS:
        name, part = todo.popleft()
        if isinstance(part, Mapping):
            named.append((name, part))
            todo.extend(_iterate_nested(name, part, schema, followed))
    return SchemaParameters(named=tuple(named), complete=not todo)


def collect_choices(schema: Json) -> SchemaChoices:
    """What the parameters of this schema may be chosen from."""
    offered: dict[tuple[str, str], None] = {}
    todo: deque[tuple[str, Json]] = deque([("", schema)])
    followed: set[tuple[str, str]] = set()
    left = MAX_PARTS
    while todo and left > 0:
        name, part = todo.popleft()
        left -= 1
        if not isinstance(part, Mapping):
            continue
        for value in _iterate_values(part):
            left -= 1
            if left < 0:
                break
            if isinstance(value, str):
                offered.setdefault((name, value))
        todo.extend(_iterate_nested(name, part, schema, followed))
    return SchemaChoices(offered=tuple(offered), complete=not todo and left >= 0)


def _iterate_nested(
    name: str, part: JsonObject, schema: Json, followed: set[tuple[str, str]]
) -> Iterator[tuple[str, Json]]:
    """The schemas inside this one, and the one that it refers to unless that was followed before."""
    yield from _iterate_inner(name, part)
    reference = part.get("$ref")
    if isinstance(reference, str) and (name, reference) not in followed:
        followed.add((name, reference))
        yield name, _resolve_reference(reference, schema)


def _iterate_values(part: JsonObject) -> Iterator[Json]:
    values = part.get("enum")
    if isinstance(values, list | tuple):
        yield from values
    if "const" in part:
        yield part["const"]


def _iterate_inner(name: str, part: JsonObject) -> Iterator[tuple[str, Json]]:
    """The schemas inside this one, each with the parameter that it describes."""
    for word in _MAP_KEYWORDS:
        named = part.get(word)
        if isinstance(named, Mapping):
            yield from named.items()
    for word in _BRANCH_KEYWORDS:
        branches = part.get(word)
        if isinstance(branches, list | tuple):
            yield from ((name, branch) for branch in branches)
    for word in _NESTED_KEYWORDS:
        if word in part:
            yield name, part[word]


def _resolve_reference(reference: str, schema: Json) -> Json:
    """What a reference into the same schema means; nothing where it leads nowhere."""
    if not reference.startswith("#"):
        return None
    found = schema
    for step in unquote(reference[1:]).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping):
            found = found.get(key)
        elif isinstance(found, list | tuple) and key.isdecimal() and int(key[:6]) < len(found):
            found = found[int(key[:6])]
        else:
            return None
    return found
