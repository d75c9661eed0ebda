"""Options as a caller of ours wrote them for the model: they go out as they are, before our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from fingerpost.llm.fields import as_mapping
from fingerpost.records import Json, JsonObject

TOKEN_LIMIT_OPTION: Final = "max_tokens"  # noqa: S105 - no secret
NEW_TOKEN_LIMIT_OPTION: Final = "max_completion_tokens"  # noqa: S105 - what OpenAI's own newer models insist on
# What a request is made of, and what would change the shape of the reply we read.
_NON_OPTION_FIELDS: Final = frozenset(
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


def get_caller_options(options: JsonObject) -> dict[str, Json]:
    """The options among these fields."""
    return {name: value for name, value in options.items() if name not in _NON_OPTION_FIELDS}


def has_response_format(options: JsonObject) -> bool:
    """Whether the answer has to have a shape of the caller's: then nothing may be added to it."""
    kind = as_mapping(options.get("response_format")).get("type", "text")
    return kind != "text"


def get_token_limit(options: JsonObject) -> int | None:
    """The tokens the answer may have, under either name."""
    for name in (NEW_TOKEN_LIMIT_OPTION, TOKEN_LIMIT_OPTION):
        value = options.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def get_number(options: JsonObject, name: str) -> float | None:
    value = options.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def get_stop_texts(options: JsonObject) -> list[str]:
    """Where the model has to stop: one text or several."""
    value = options.get("stop")
    written = value if isinstance(value, list) else [value]
    return [text for text in written if isinstance(text, str) and text]


def get_response_schema(options: JsonObject) -> tuple[str, JsonObject] | None:
    """The name and the schema of the shape asked for; None where it is not described."""
    asked = as_mapping(as_mapping(options.get("response_format")).get("json_schema"))
    schema = asked.get("schema")
    if not isinstance(schema, Mapping):
        return None
    name = asked.get("name")
    return (name if isinstance(name, str) and name else "answer"), cast("JsonObject", schema)
