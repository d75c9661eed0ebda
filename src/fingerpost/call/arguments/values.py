"""JSON values: copied, compared, named and shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeGuard, cast

from fingerpost.records import Json, JsonObject, check_json
from fingerpost.redaction import MASK, is_secret_name, scrub, scrub_json

MAX_DEPTH: Final = 32  # the library recurses several frames a level
MAX_NODES: Final = 20_000
MAX_SHOWN_LENGTH: Final = 60
MAX_KEPT_LENGTH: Final = 400  # characters of a text a repair remembers
MAX_SCRUBBED_LENGTH: Final = 4_000  # a secret that begins within what is shown ends within this
MAX_KEPT_NODES: Final = 200  # values of an object or list a repair remembers


def is_object(value: Json) -> TypeGuard[JsonObject]:
    return isinstance(value, Mapping)


def is_list(value: Json) -> TypeGuard[Sequence[Json]]:
    return isinstance(value, list | tuple)


def copy_json(value: Json) -> Json:
    """The same JSON in dicts and lists of our own."""
    if is_object(value):
        return {key: copy_json(entry) for key, entry in value.items()}
    if is_list(value):
        return [copy_json(item) for item in value]
    return value


def copy_object(value: JsonObject) -> dict[str, Json]:
    return {key: copy_json(entry) for key, entry in value.items()}


def find_excess(value: JsonObject) -> str | None:
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


def get_json_type(value: Json) -> str:
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


def is_of_type(value: Json, types: frozenset[str]) -> bool:
    """Whether a value is of one of these types. No types: anything is."""
    if not types:
        return True
    kind = get_json_type(value)
    if kind in types:
        return True
    if kind == "integer":
        return "number" in types
    return kind == "number" and "integer" in types and cast("float", value).is_integer()


def is_equal(one: Json, other: Json) -> bool:
    """Equality as JSON has it: `true` is not 1, though 1.0 is."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(is_equal(one[key], other[key]) for key in one)
    if is_list(one) and is_list(other):
        return len(one) == len(other) and all(map(is_equal, one, other))
    return one == other


def redact_value(path: str, value: Json) -> Json:
    """A value as a repair may remember it: without secrets, and not too much of it."""
    if value is None or isinstance(value, bool | int | float):
        return MASK if value is not None and is_secret_name(path.rpartition(".")[2]) else value
    if is_secret_name(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        text = scrub(value[:MAX_SCRUBBED_LENGTH])
        return (
            text if len(value) <= MAX_KEPT_LENGTH else f"{text[:MAX_KEPT_LENGTH]}… ({len(value)} characters)"
        )
    if count_nodes(value) > MAX_KEPT_NODES:
        return f"{'an object' if is_object(value) else 'a list'} of more than {MAX_KEPT_NODES} values"
    return cast("Json", scrub_json(_cut_texts(value)))


def _cut_texts(value: Json) -> Json:
    """The same with every text cut to what can be scrubbed in no time."""
    if is_object(value):
        return {key: _cut_texts(entry) for key, entry in value.items()}
    if is_list(value):
        return [_cut_texts(item) for item in value]
    if isinstance(value, str) and len(value) > MAX_KEPT_LENGTH:
        return f"{scrub(value[:MAX_SCRUBBED_LENGTH])[:MAX_KEPT_LENGTH]}… ({len(value)} characters)"
    return value


def format_value(path: str, value: Json) -> str:
    """A value as it reads in an error: short, and without secrets."""
    if isinstance(value, str) and value and is_secret_name(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        # Cut first, then scrub: a secret cut in half must not slip through, so leave it room.
        text = scrub(value[:MAX_SCRUBBED_LENGTH])
        return json.dumps(shorten(text, MAX_SHOWN_LENGTH), ensure_ascii=False)
    if is_object(value) or is_list(value):
        noun = "object" if is_object(value) else "list"
        return (
            f"a {noun}" if len(value) == 0 else f"{noun} {shorten(_format_safely(value), MAX_SHOWN_LENGTH)}"
        )
    return to_json(value)


def _format_safely(value: Json) -> str:
    return to_json(cast("Json", scrub_json(value)))


def shorten(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def to_json(value: Json) -> str:
    """A value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=dict)
