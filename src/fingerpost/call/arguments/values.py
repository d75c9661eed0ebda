"""JSON values of arguments: copies, limits, and texts about them without secrets."""

from __future__ import annotations

import json
from typing import Final, cast

from fingerpost.records import Json, JsonObject, find_json_problem
from fingerpost.redaction import MASK, is_secret_name, scrub, scrub_json
from fingerpost.schemas import is_list, is_object

MAX_DEPTH: Final = 32  # the library needs several stack frames per level
MAX_NODES: Final = 20_000
MAX_SHOWN_LENGTH: Final = 60
MAX_KEPT_LENGTH: Final = 400  # characters of a text in the record of a repair
MAX_SCRUBBED_LENGTH: Final = 4_000  # a secret that begins in the shown part ends within this length
MAX_KEPT_NODES: Final = 200  # values of an object or list in the record of a repair


def copy_json(value: Json) -> Json:
    """Return a deep copy made of dicts and lists."""
    if is_object(value):
        return {key: copy_json(entry) for key, entry in value.items()}
    if is_list(value):
        return [copy_json(item) for item in value]
    return value


def copy_object(value: JsonObject) -> dict[str, Json]:
    return {key: copy_json(entry) for key, entry in value.items()}


def find_excess(value: JsonObject) -> str | None:
    """Return why these arguments are too large to check, or None."""
    reason = find_json_problem(value, max_depth=MAX_DEPTH)
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


def redact_value(path: str, value: Json) -> Json:
    """Return the value for the record of a repair: without secrets, and shortened."""
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
    """Return the value with all texts cut to a length that is quick to scrub."""
    if is_object(value):
        return {key: _cut_texts(entry) for key, entry in value.items()}
    if is_list(value):
        return [_cut_texts(item) for item in value]
    if isinstance(value, str) and len(value) > MAX_KEPT_LENGTH:
        return f"{scrub(value[:MAX_SCRUBBED_LENGTH])[:MAX_KEPT_LENGTH]}… ({len(value)} characters)"
    return value


def format_value(path: str, value: Json) -> str:
    """Format a value for an error message: short, and without secrets."""
    if isinstance(value, str) and value and is_secret_name(path.rpartition(".")[2]):
        return MASK
    if isinstance(value, str):
        # Scrub more than is shown, so that a secret is not cut in half before it is recognised.
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
    """Return the value as JSON text."""
    return json.dumps(value, ensure_ascii=False, default=dict)
