"""Tool calls as models write them in the OpenAI format, read one by one.

A call that cannot be read becomes an answer for the model that shows what was
wrong, so that it can write it again. Its neighbours are unaffected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ToolCall, check_json
from fingerpost.redaction import scrub

MAX_CALLS = 128
MAX_ARGUMENT_CHARACTERS = 4_000_000
EXCERPT_LENGTH = 40


@frozen
class UnreadableToolCall:
    """A call that could not be read: which, and what was wrong with it."""

    reference: str | None
    name: str
    message: str


def parse_tool_calls(message: JsonObject) -> list[ToolCall | UnreadableToolCall]:
    """The tool calls of one assistant message, in order; none when it made none."""
    return [_parse_entry(entry) for entry in _iterate_entries(message)][:MAX_CALLS]


def _iterate_entries(message: JsonObject) -> Iterator[object]:
    calls = message.get("tool_calls")
    if isinstance(calls, Sequence) and not isinstance(calls, str):
        yield from calls
    elif calls is not None:
        yield calls
    if (single := message.get("function_call")) is not None:  # the format before tool_calls
        yield {"function": single}


def _parse_entry(entry: object) -> ToolCall | UnreadableToolCall:
    fields = cast("Mapping[str, Any]", entry if isinstance(entry, Mapping) else {})
    reference = fields.get("id")
    reference = reference if isinstance(reference, str) else None
    function = fields.get("function")
    if not isinstance(function, Mapping):
        return UnreadableToolCall(
            reference=reference, name="", message="the call has no function object with a name and arguments"
        )
    written = cast("Mapping[str, Any]", function)
    name = written.get("name")
    if not isinstance(name, str) or not name.strip():
        return UnreadableToolCall(reference=reference, name="", message="the call names no function")
    arguments = read_arguments(written.get("arguments"))
    if isinstance(arguments, str):
        return UnreadableToolCall(reference=reference, name=name, message=arguments)
    return ToolCall(name=name.strip(), arguments=arguments, reference=reference)


def read_arguments(written: object) -> dict[str, Any] | str:
    """Arguments as an object; a text says what is wrong with them."""
    if written is None or written == "":
        return {}
    if isinstance(written, str):
        if len(written) > MAX_ARGUMENT_CHARACTERS:
            return f"the arguments are longer than {MAX_ARGUMENT_CHARACTERS:,} characters"
        try:
            written = json.loads(written)
        except json.JSONDecodeError as error:
            return _format_excerpt(written, error)
        except (ValueError, RecursionError):
            return "the arguments hold a number too long or a nesting too deep to read"
    if not isinstance(written, Mapping):
        return f"the arguments must be a JSON object, not {_describe_kind(written)}"
    if (reason := check_json(cast("object", written))) is not None:
        return f"the arguments {reason}" if not reason.startswith("is ") else f"the argument object {reason}"
    return dict(cast("Mapping[str, Any]", written))


def _format_excerpt(written: str, error: json.JSONDecodeError) -> str:
    """The place where the JSON breaks, with a little of what stands around it."""
    around = (
        written[max(0, error.pos - EXCERPT_LENGTH) : error.pos]
        + "⟦here⟧"
        + written[error.pos : error.pos + EXCERPT_LENGTH]
    )
    return f"the arguments are not valid JSON: {error.msg} at character {error.pos}: {scrub(around)}"


def _describe_kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "a boolean" if isinstance(value, bool) else f"the {type(value).__name__} {value!s:.40}"
