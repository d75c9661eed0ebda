"""A tool of our own, as a record: its definition, what it does to the world, and who does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from fingerpost.builtin.kit.caller import ToolCaller
from fingerpost.builtin.kit.reply import ToolQuestion, ToolReply
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Json, JsonObject
from fingerpost.settings import ToolOverride

ToolHandler: TypeAlias = Callable[[JsonObject, ToolCaller], Awaitable[ToolReply | ToolQuestion]]

_HINTS: Final[Mapping[Effect, Mapping[str, bool]]] = {
    Effect.READ: {"readOnlyHint": True},
    Effect.WRITE: {"readOnlyHint": False, "destructiveHint": False},
    Effect.DESTROY: {"readOnlyHint": False, "destructiveHint": True},
}


async def _need_no_grant(arguments: JsonObject) -> str:
    """No grant is needed."""
    return ""


async def _find_no_fault(arguments: JsonObject) -> None:
    """Nothing is known against the call."""


@frozen
class BuiltinTool:
    """One tool. `effect` is the worst it can do, whatever is switched off: so its annotations say."""

    name: str
    title: str
    description: str
    run: ToolHandler
    effect: Effect
    properties: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    required: tuple[str, ...] = ()
    output_schema: JsonObject | None = None
    # Both raise `ToolRefused`, before a person is asked. `check` (also just before it runs): what is wrong
    # with the arguments beyond their schema, looking at nothing else. `feasible`: why the call would fail
    # now, changing nothing.
    check: Callable[[JsonObject], None] = lambda _: None
    feasible: Callable[[JsonObject], Awaitable[None]] = _find_no_fault
    # Why only a person's grant for this very call lets it run, whatever the rules say; empty: it need not.
    needs_grant: Callable[[JsonObject], Awaitable[str]] = _need_no_grant
    open_world: bool = False  # reaches beyond this machine
    # What the router knows of it beyond the definition: the fields of `ToolOverride` but for `match`.
    # `effect` and `operations` there are what holds with the present switches.
    knowledge: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def definition(self) -> JsonObject:
        """As a server lists it."""
        schema: dict[str, Json] = {
            "type": "object",
            "properties": dict(self.properties),
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(self.required)
        told: dict[str, Json] = {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": schema,
            "annotations": {**_HINTS[self.effect], "title": self.title, "openWorldHint": self.open_world},
        }
        if self.output_schema is not None:
            told["outputSchema"] = self.output_schema
        return told

    def build_override(self, server: str) -> ToolOverride:
        """What is known of it, as if a person had written it; a person's own words come behind it and win."""
        known: dict[str, Any] = {"effect": self.effect, **self.knowledge}
        return ToolOverride.model_validate({"match": f"{server}/{self.name}", **known})
