"""JSON values: copied, compared, named and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard, cast

from fingerpost.records import Json, JsonObject, check_json
from fingerpost.redaction import MASK, names_secret, scrub, scrub_json

MAX_DEPTH: Final = 32  # the library recurses several frames a level
MAX_NODES: Final = 20_000
LONGEST_SHOWN: Final = 60
LONGEST_KEPT: Final = 400  # characters of a text a repair remembers
LONGEST_SCRUBBED: Final = 4_000  # a secret that begins within what is shown ends within this
MOST_KEPT: Final = 200  # values of an object or list a repair remembers


def is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, Mapping)


def is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, list | tuple)


def plain(value: Json) -> Json:
    """The same JSON in dicts and lists of our own."""
    if is_object(value):
        return {key: plain(entry) for key, entry in value.items()}
    if is_list(value):
        return [plain(item) for item in value]
    return value


def plain_object(value: JsonObject) -> dict[str, Json]:
    return {key: plain(entry) for key, entry in value.items()}


def excess(value: JsonObject) -> str | None:
    """Why these arguments are more than we are willing to check, or None."""
    reason = check_json(value, max_depth=MAX_DEPTH)
    if reason is not None:
        return reason
    return None if count_nodes(value) <= MAX_NODES else f"holds more than {MAX_NODES} values"


def count_nodes(value: Json) -> int:
    count, todo = 0, [value]
    while todo and count <= MAX_NODES:
        node = todo.pop()
        count += 1
        if is_object(node):
            todo.extend(node.values())
        elif is_list(node):
            todo.extend(node)
    return count


def type_of(value: Json) -> str:
    """The JSON Schema type of a value; a whole float is a number that may stand for an integer."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "object" if is_object(value) else "array"


def is_of(value: Json, types: frozenset[str]) -> bool:
    """Whether a value is of one of these types. No types: anything is."""
    if not types:
        return True
    kind = type_of(value)
    if kind in types:
        return True
    if kind == "integer":
        return "number" in types
    return kind == "number" and "integer" in types and cast("float", value).is_integer()


def same(one: Json, other: Json) -> bool:
    """Equality as JSON has it: `true` is not 1, though 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def kept(path: str, value: Json) -> Json:
    """A value as a repair may remember it: without secrets, and not too much of it."""
    if value is None or isinstance(value, bool | int | float):
        return MASK if value is not None and names_secret(path.rpartition(".")[2]) else value
    if names_secret(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        text = scrub(value[:LONGEST_SCRUBBED])
        return text if len(value) <= LONGEST_KEPT else f"{text[:LONGEST_KEPT]}… ({len(value)} characters)"
    if count_nodes(value) > MOST_KEPT:
        return f"{'an object' if is_object(value) else 'a list'} of more than {MOST_KEPT} values"
    return cast("Json", scrub_json(_cut(value)))


def _cut(value: Json) -> Json:
    """The same with every text cut to what can be scrubbed in no time."""
    if is_object(value):
        return {key: _cut(entry) for key, entry in value.items()}
    if is_list(value):
        return [_cut(item) for item in value]
    if isinstance(value, str) and len(value) > LONGEST_KEPT:
        return f"{scrub(value[:LONGEST_SCRUBBED])[:LONGEST_KEPT]}… ({len(value)} characters)"
    return value


def shown(path: str, value: Json) -> str:
    """A value as it reads in an error: short, and without secrets."""
    if isinstance(value, str) and value and names_secret(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        # Cut first, then scrub: a secret cut in half must not slip through, so leave it room.
        text = scrub(value[:LONGEST_SCRUBBED])
        return json.dumps(shortened(text, LONGEST_SHOWN), ensure_ascii=False)
    if is_object(value) or is_list(value):
        noun = "object" if is_object(value) else "list"
        return f"a {noun}" if len(value) == 0 else f"{noun} {shortened(_safe_text(value), LONGEST_SHOWN)}"
    return written(value)


def _safe_text(value: Json) -> str:
    return written(cast("Json", scrub_json(value)))


def shortened(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def written(value: Json) -> str:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=dict)
