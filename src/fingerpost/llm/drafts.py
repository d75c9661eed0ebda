"""Tool calls that come in pieces, put together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fingerpost.llm.fields import MOST_CALLS, calls_of, invalid, mapping
from fingerpost.records import JsonObject, as_valid_text, check_json


@dataclass(slots=True, kw_only=True)
class _Draft:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])

    def add(self, delta: Mapping[str, Any]) -> int:
        """Take one piece in; gives the number of characters it added."""
        function = mapping(delta.get("function"))
        self.id = text_or_nothing(delta.get("id")) or self.id
        name = text_or_nothing(function.get("name"))
        if name != self.name:  # a server that repeats the whole name with every piece means it once
            self.name += name
        written = _as_text(function.get("arguments"))
        self.arguments.append(written)
        return len(name) + len(written)

    def whole(self) -> JsonObject:
        arguments = as_valid_text("".join(self.arguments))
        function = {"name": as_valid_text(self.name), "arguments": arguments}
        return {"id": as_valid_text(self.id), "type": "function", "function": function}


class CallDrafts:
    """The calls of one streamed reply."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._all: list[_Draft] = []
        self._at: dict[int, _Draft] = {}  # by the index the server gives, the one being written there

    def __len__(self) -> int:
        return len(self._all)

    def add(self, delta: Mapping[str, Any]) -> int:
        """Take one piece in; gives the number of characters it added."""
        return self._of(delta).add(delta)

    def whole(self) -> tuple[JsonObject, ...]:
        """The calls as they would have been written at once, in the order in which they began."""
        return calls_of([draft.whole() for draft in self._all])

    def _of(self, delta: Mapping[str, Any]) -> _Draft:
        """The call this piece belongs to.

        The index says so. Servers that leave it out, or give every call the same, are
        understood by the id: another id is another call.
        """
        index = delta.get("index")
        place = index if isinstance(index, int) else 0
        known, named = self._at.get(place), text_or_nothing(delta.get("id"))
        if known is not None and (not named or not known.id or named == known.id):
            return known
        if len(self._all) >= MOST_CALLS:
            raise invalid(f"more than {MOST_CALLS} tool calls at once", self._model)
        made = self._at[place] = _Draft()
        self._all.append(made)
        return made


def _as_text(arguments: object) -> str:
    """Arguments are text in this format; some servers send the object itself."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(arguments) if arguments and check_json(arguments) is None else ""


def text_or_nothing(value: object) -> str:
    return value if isinstance(value, str) else ""
