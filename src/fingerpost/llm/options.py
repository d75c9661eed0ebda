"""Options as a caller of ours wrote them for the model: they go out as they are, before our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.llm.fields import mapping
from fingerpost.records import Json, JsonObject

LIMIT: Final = "max_tokens"
NEWER_LIMIT: Final = "max_completion_tokens"  # what OpenAI's own newer models insist on
# What a request is made of, and what would change the shape of the reply we read.
_NOT_OPTIONS: Final = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "stream",
        "stream_options",
        "n",
        "functions",
        "function_call",
    }
)


def of_caller(options: JsonObject) -> dict[str, Json]:
    """The options among these fields."""
    return {name: value for name, value in options.items() if name not in _NOT_OPTIONS}


def is_shaped(options: JsonObject) -> bool:
    """Whether the answer has to have a shape of the caller's: then nothing may be added to it."""
    kind = mapping(options.get("response_format")).get("type", "text")
    return kind != "text"


def limit_of(options: JsonObject) -> int | None:
    """The tokens the answer may have, under either name."""
    for name in (NEWER_LIMIT, LIMIT):
        value = options.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def number_of(options: JsonObject, name: str) -> float | None:
    value = options.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def stops_of(options: JsonObject) -> list[str]:
    """Where the model has to stop: one text or several."""
    value = options.get("stop")
    written = value if isinstance(value, list) else [value]
    return [text for text in written if isinstance(text, str) and text]


def schema_of(options: JsonObject) -> tuple[str, JsonObject] | None:
    """The name and the schema of the shape asked for; None where it is not described."""
    asked = mapping(mapping(options.get("response_format")).get("json_schema"))
    schema = asked.get("schema")
    if not isinstance(schema, Mapping):
        return None
    name = asked.get("name")
    return (name if isinstance(name, str) and name else "answer"), cast("JsonObject", schema)
