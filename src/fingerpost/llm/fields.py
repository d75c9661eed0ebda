"""Fields of what a model's server sent, read one by one.

Servers that call themselves compatible leave fields out, send null, or send
something else altogether. Nothing here raises because of that; `build_invalid_reply` makes
the error for whoever cannot go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from fingerpost.errors import ModelReplyInvalid
from fingerpost.llm.base import ModelUsage
from fingerpost.records import JsonObject, check_json, to_valid_text
from fingerpost.redaction import scrub

MAX_REPLY_CALLS: Final = 128  # tool calls in one reply
_MAX_EXCERPT_LENGTH: Final = 120


def as_mapping(value: object) -> Mapping[str, Any]:
    """The object, or an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[object]:
    """The list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def parse_json(text: str | bytes) -> object:
    """The JSON value in all of `text`. Raises `ValueError` when there is none, however deep it goes."""
    try:
        return cast("object", json.loads(text))
    except RecursionError as deep:
        message = "nested too deeply"
        raise ValueError(message) from deep


def read_raw_text(content: object) -> str:
    """The text of a message, plain or in parts, as it was written: it may hold half characters."""
    if isinstance(content, list):
        parts = (as_mapping(part).get("text") for part in cast("list[object]", content))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def read_text(content: object) -> str:
    """The text of a message, such as can be stored and sent."""
    return to_valid_text(read_raw_text(content))


def read_reasoning(message: Mapping[str, Any]) -> str:
    """What the model thought before it answered; servers have two names for it."""
    return read_raw_text(message.get("reasoning_content")) or read_raw_text(message.get("reasoning"))


def read_usage(value: object) -> ModelUsage | None:
    """Tokens as counted by the server, if it did and the count can be true."""
    fields = as_mapping(value)
    prompt, completion = fields.get("prompt_tokens"), fields.get("completion_tokens")
    if not _is_count(prompt) or not _is_count(completion):
        return None
    return ModelUsage(prompt_tokens=cast("int", prompt), completion_tokens=cast("int", completion))


def read_calls(values: Iterable[object]) -> tuple[JsonObject, ...]:
    """The tool calls among these that are objects, as they were written."""
    objects = (cast("JsonObject", value) for value in values if isinstance(value, dict))
    return tuple(entry for entry in objects if check_json(entry) is None)


def get_named_tool(choice: object) -> str | None:
    """The one tool that a choice asks for by name."""
    name = as_mapping(as_mapping(choice).get("function")).get("name")
    return name if isinstance(name, str) and name else None


def read_model_name(fields: Mapping[str, Any], *, default: str) -> str:
    """The model's name as the server gives it."""
    named = fields.get("model")
    return named if isinstance(named, str) and named else default


def format_excerpt(content: bytes | str) -> str:
    """The beginning of something foreign, fit for a message."""
    start = content[: 4 * _MAX_EXCERPT_LENGTH]
    text = " ".join((start.decode(errors="replace") if isinstance(start, bytes) else start).split())
    return scrub(text)[:_MAX_EXCERPT_LENGTH] or "nothing at all"


def build_invalid_reply(what: str, model: str) -> ModelReplyInvalid:
    """The error for a reply that is none."""
    return ModelReplyInvalid(f"{model} answered with {what}", model=model, hint="Is its base_url right?")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
