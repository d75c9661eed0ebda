"""What a caller brings along for the model that answers: tools of their own, options, images, results.

Nothing of it goes to a model that selects, reviews or summarises, and nothing into the journal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import field, replace
from typing import Final

from fingerpost.choose.naming import without_prefix
from fingerpost.frozen import frozen
from fingerpost.llm import ModelRequest
from fingerpost.llm.fields import mapping, named_tool
from fingerpost.llm.options import is_shaped
from fingerpost.records import Json, JsonObject, Message, ToolCard, new_id

LONGEST_NAME: Final = 64  # of a tool, as providers take it
MOST_TOLD: Final = 50
_RENAMED: Final = "_routed"
_BESIDE: Final = (
    "The answering model has these tools as well. Where one of them suits better, choose none of yours; "
    "these cannot be chosen here:"
)


@frozen
class Brought:
    """Everything optional: most requests bring nothing."""

    tools: tuple[JsonObject, ...] = ()  # definitions in the OpenAI format, passed on as they are
    choice: Json = None  # "auto", "none", "required", or one tool by name
    since: tuple[Message, ...] = ()  # behind the request
    parts: tuple[JsonObject, ...] = ()  # beside its words
    options: JsonObject = field(default_factory=dict[str, Json])
    own_terms: bool = False  # how long an answer may be is theirs to say, in the options or not at all
    model: str | None = None
    history: tuple[Message, ...] = ()  # with the parts that the packet's own does not hold

    @property
    def names(self) -> frozenset[str]:
        """What the caller's tools are called."""
        return frozenset(name for tool in self.tools if (name := _name(tool)))

    @property
    def wants_text(self) -> bool:
        """No tool of either kind is to be called."""
        return self.choice == "none"

    @property
    def is_settled(self) -> bool:
        """The caller has said what comes next (no tool, or one of theirs): no routed tool is offered."""
        return self.wants_text or named_tool(self.choice) in self.names

    @property
    def is_shaped(self) -> bool:
        """The answer has a shape of the caller's: it is passed on as it was written."""
        return is_shaped(self.options)

    @property
    def has_system(self) -> bool:
        """The caller says themselves who the assistant is."""
        return any(message.role in ("system", "developer") for message in (*self.history, *self.since))

    def onto(self, request: ModelRequest) -> ModelRequest:
        """The request with the caller's options, for the model they ask for."""
        limit = None if self.own_terms else request.max_tokens
        return replace(request, options=self.options, model=self.model, max_tokens=limit)

    def chooses(self, *, called: bool) -> Json:
        """How the model is to choose. What had to be called has been once a routed tool was."""
        if self.choice is None or (called and not self.wants_text):
            return "auto"
        return self.choice


def beside(brought: Brought) -> str:
    """The caller's tools as whoever selects among ours is told of them; empty where there are none."""
    if not brought.tools:
        return ""
    functions = [mapping(tool.get("function")) for tool in brought.tools[:MOST_TOLD]]
    told = [
        {
            "name": str(function.get("name"))[:LONGEST_NAME],
            "does": str(function.get("description") or "")[:200],
        }
        for function in functions
    ]
    lines = "\n".join(json.dumps(entry, ensure_ascii=False) for entry in told)
    return f"{_BESIDE}\n{lines}"


def distinct(cards: Sequence[ToolCard], taken: frozenset[str]) -> tuple[ToolCard, ...]:
    """The cards under names no tool of the caller has: theirs stay as they are, ours give way."""
    used = {name.casefold() for name in taken}
    if not used:
        return tuple(cards)
    given = used | {card.exposed_name.casefold() for card in cards}
    found: list[ToolCard] = []
    for card in cards:
        name = card.exposed_name
        if name.casefold() in used:
            name = _another(name, given)
            given.add(name.casefold())
        found.append(card if name == card.exposed_name else replace(card, exposed_name=name))
    return tuple(found)


def _another(name: str, given: set[str]) -> str:
    number = 1
    while True:
        ending = _RENAMED if number == 1 else f"{_RENAMED}_{number}"
        made = name[: LONGEST_NAME - len(ending)] + ending
        if made.casefold() not in given:
            return made
        number += 1


@frozen
class Parted:
    """The calls of one reply, by whose tools they are of."""

    callers: tuple[JsonObject, ...]
    others: tuple[JsonObject, ...]


def parted(calls: Sequence[JsonObject], names: frozenset[str]) -> Parted:
    """Calls of the caller's tools as they were written, each under an id, and the rest."""
    callers: list[JsonObject] = []
    others: list[JsonObject] = []
    ids: set[str] = set()
    for call in calls:
        name = _name(call)
        if without_prefix(name) not in names and name not in names:
            others.append(call)
            continue
        made = _answerable(call, name if name in names else without_prefix(name), ids)
        ids.add(str(made["id"]))
        callers.append(made)
    return Parted(callers=tuple(callers), others=tuple(others))


def called_by_name(name: str, arguments: str) -> JsonObject:
    """A call that a model wrote in words, as one of the caller's tools is called."""
    function: JsonObject = {"name": name, "arguments": arguments}
    return {"id": new_id("call"), "type": "function", "function": function}


def _answerable(call: JsonObject, name: str, ids: set[str]) -> JsonObject:
    """The call as it stands, unless nobody could answer it: without an id, or under that of another."""
    written = call.get("id")
    known = isinstance(written, str) and written and written not in ids
    if known and _name(call) == name:
        return call
    function: JsonObject = {**mapping(call.get("function")), "name": name}
    return {**call, "id": written if known else new_id("call"), "function": function}


def _name(definition: object) -> str:
    """Of a definition or of a call; models write calls of any shape."""
    name = mapping(mapping(definition).get("function")).get("name")
    return name if isinstance(name, str) else ""
