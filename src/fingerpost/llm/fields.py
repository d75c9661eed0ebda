"""Fields of what a model's server sent, read one by one.

Servers that call themselves compatible leave fields out, send null, or send
something else altogether. Nothing here raises because of that; `invalid` makes
the error for whoever cannot go on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from fingerpost.errors import ModelReplyInvalid
from fingerpost.llm.base import ModelUsage
from fingerpost.records import JsonObject, as_valid_text, check_json
from fingerpost.redaction import scrub

MOST_CALLS: Final = 128  # tool calls in one reply
_SHOWN: Final = 120


def mapping(value: object) -> Mapping[str, Any]:
    """The object, or an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def entries(value: object) -> list[object]:
    """The list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def parsed(text: str | bytes) -> object:
    """The JSON value in all of `text`. Raises `ValueError` when there is none, however deep it goes."""
    try:
        return cast("object", json.loads(text))
    except RecursionError as deep:
        message = "nested too deeply"
        raise ValueError(message) from deep


def text_in(content: object) -> str:
    """The text of a message, plain or in parts, as it was written: it may hold half characters."""
    if isinstance(content, list):
        parts = (mapping(part).get("text") for part in cast("list[object]", content))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def text_of(content: object) -> str:
    """The text of a message, such as can be stored and sent."""
    return as_valid_text(text_in(content))


def thoughts_in(message: Mapping[str, Any]) -> str:
    """What the model thought before it answered; servers have two names for it."""
    return text_in(message.get("reasoning_content")) or text_in(message.get("reasoning"))


def usage_of(value: object) -> ModelUsage | None:
    """Tokens as counted by the server, if it did and the count can be true."""
    fields = mapping(value)
    prompt, completion = fields.get("prompt_tokens"), fields.get("completion_tokens")
    if not _is_count(prompt) or not _is_count(completion):
        return None
    return ModelUsage(prompt_tokens=cast("int", prompt), completion_tokens=cast("int", completion))


def calls_of(values: Iterable[object]) -> tuple[JsonObject, ...]:
    """The tool calls among these that are objects, as they were written."""
    objects = (cast("JsonObject", value) for value in values if isinstance(value, dict))
    return tuple(entry for entry in objects if check_json(entry) is None)


def named_tool(choice: object) -> str | None:
    """The one tool that a choice asks for by name."""
    name = mapping(mapping(choice).get("function")).get("name")
    return name if isinstance(name, str) and name else None


def name_in(fields: Mapping[str, Any], *, otherwise: str) -> str:
    """The model's name as the server gives it."""
    named = fields.get("model")
    return named if isinstance(named, str) and named else otherwise


def shown(content: bytes | str) -> str:
    """The beginning of something foreign, fit for a message."""
    start = content[: 4 * _SHOWN]
    text = " ".join((start.decode(errors="replace") if isinstance(start, bytes) else start).split())
    return scrub(text)[:_SHOWN] or "nothing at all"


def invalid(what: str, model: str) -> ModelReplyInvalid:
    """The error for a reply that is none."""
    return ModelReplyInvalid(f"{model} answered with {what}", model=model, hint="Is its base_url right?")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
