"""Whether a result says nothing: a tool that finds nothing is worth a second tool.

Only what is surely empty counts. `{"open_issues": []}` is an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fingerpost.call.execution.dialogue import awaits_input
from fingerpost.records import Json, JsonObject

_NOTHING = frozenset({"", "[]", "{}", "null", '""'})
_LONGEST = 64  # a longer text is not white space around brackets


def is_empty(result: JsonObject) -> bool:
    """No structured content, and no content but blank text or an empty list, object or null."""
    if awaits_input(result):
        return False
    structured = result.get("structuredContent")
    if structured is not None and not _holds_nothing(structured):
        return False
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return content is None
    return all(map(_says_nothing, cast("Sequence[Json]", content)))


def _holds_nothing(structured: Json) -> bool:
    if isinstance(structured, dict):
        members = cast("JsonObject", structured)
        # Server libraries wrap a bare value as {"result": value}.
        return not members or (set(members) == {"result"} and members["result"] in ("", None, [], {}))
    return structured in ("", [], {})


def _says_nothing(block: Json) -> bool:
    if not isinstance(block, dict):
        return False
    members = cast("JsonObject", block)
    text = members.get("text")
    if members.get("type") != "text" or not isinstance(text, str):
        return False
    stripped = text.strip()
    return len(stripped) <= _LONGEST and "".join(stripped.split()) in _NOTHING
