"""Tool calls that come in pieces, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fingerpost.llm.fields import MAX_REPLY_CALLS, as_mapping, build_invalid_reply, read_calls
from fingerpost.records import JsonObject, check_json, to_valid_text


@dataclass(slots=True, kw_only=True)
class _ToolCallDraft:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def add(self, delta: Mapping[str, Any]) -> int:
        """Take one piece in; gives the number of characters it added."""
        function = as_mapping(delta.get("function"))
        self.id = get_text_or_empty(delta.get("id")) or self.id
        name = get_text_or_empty(function.get("name"))
        if name != self.name:  # a server that repeats the whole name with every piece means it once
            self.name += name
        written = _to_argument_text(function.get("arguments"))
        self.arguments.append(written)
        return len(name) + len(written)

    def build_call(self) -> JsonObject:
        arguments = to_valid_text("".join(self.arguments))
        function = {"name": to_valid_text(self.name), "arguments": arguments}
        return {"id": to_valid_text(self.id), "type": "function", "function": function}


class ToolCallAssembler:
    """The calls of one streamed reply."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._all: list[_ToolCallDraft] = []
        self._at: dict[int, _ToolCallDraft] = {}  # by the index the server gives, the one being written there

    def __len__(self) -> int:
        return len(self._all)

    def add(self, delta: Mapping[str, Any]) -> int:
        """Take one piece in; gives the number of characters it added."""
        return self._get_draft(delta).add(delta)

    def build_calls(self) -> tuple[JsonObject, ...]:
        """The calls as they would have been written at once, in the order in which they began."""
        return read_calls([draft.build_call() for draft in self._all])

    def _get_draft(self, delta: Mapping[str, Any]) -> _ToolCallDraft:
        """The call this piece belongs to.

        The index says so. Servers that leave it out, or give every call the same, are
        understood by the id: another id is another call.
        """
        index = delta.get("index")
        place = index if isinstance(index, int) else 0
        known, named = self._at.get(place), get_text_or_empty(delta.get("id"))
        if known is not None and (not named or not known.id or named == known.id):
            return known
        if len(self._all) >= MAX_REPLY_CALLS:
            raise build_invalid_reply(f"more than {MAX_REPLY_CALLS} tool calls at once", self._model)
        made = self._at[place] = _ToolCallDraft()
        self._all.append(made)
        return made


def _to_argument_text(arguments: object) -> str:
    """Arguments are text in this format; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments) if arguments and check_json(arguments) is None else ""


def get_text_or_empty(value: object) -> str:
    return value if isinstance(value, str) else ""
