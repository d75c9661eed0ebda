"""Whether a result says nothing: a tool that finds nothing is worth a second tool.

Only what is surely empty counts. `{"open_issues": []}` is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fingerpost.call.execution.dialogue import is_input_required
from fingerpost.records import Json, JsonObject

_EMPTY_VALUES = frozenset({"", "[]", "{}", "null", '""'})
_MAX_CHECKED_LENGTH = 64  # a longer text is not white space around brackets


def is_empty_result(result: JsonObject) -> bool:
    """No structured content, and no content but blank text or an empty list, object or null."""
    if is_input_required(result):
        return False
    structured = result.get("structuredContent")
    if structured is not None and not _is_empty_structured(structured):
        return False
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return content is None
    return all(map(_is_empty_block, cast("Sequence[Json]", content)))


def _is_empty_structured(structured: Json) -> bool:
    if isinstance(structured, dict):
        members = cast("JsonObject", structured)
        # Server libraries wrap a bare value as {"result": value}.
        return not members or (set(members) == {"result"} and members["result"] in ("", None, [], {}))
    return structured in ("", [], {})


def _is_empty_block(block: Json) -> bool:
    if not isinstance(block, dict):
        return False
    members = cast("JsonObject", block)
    text = members.get("text")
    if members.get("type") != "text" or not isinstance(text, str):
        return False
    stripped = text.strip()
    return len(stripped) <= _MAX_CHECKED_LENGTH and "".join(stripped.split()) in _EMPTY_VALUES
