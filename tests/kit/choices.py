"""Cards and packets for the tests of prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from jsonschema import Draft202012Validator

from fingerpost.events import ThoughtNoted, ToolResultInjected
from fingerpost.llm import ModelRequest
from fingerpost.records import Json, JsonObject, Message, Packet, Step, ToolCard, ToolResult
from fingerpost.settings.model import ToolOverride
from tests.kit.catalogs import catalog, create_listing


def definition(name: str, description: str, *required: str, **parts: Json) -> JsonObject:
    properties: JsonObject = {parameter: {"type": "string"} for parameter in required}
    schema: JsonObject = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": description, "inputSchema": schema, **parts}


TIME = definition("get_current_time", "Get the current time in a time zone. Takes IANA names.", "timezone")
CONVERT = definition("convert_time", "Convert a time between zones.", "source", "time", "target")
READ = definition("read_file", "Read a file.", "path", annotations={"readOnlyHint": True})
WRITE = definition("write_file", "Write a file.", "path", "content", annotations={"readOnlyHint": False})
DELETE = definition("delete_file", "Delete a file for good.", "path", annotations={"destructiveHint": True})
FILES: JsonObject = {
    "name": "file_operations",
    "description": "Work with files",
    "inputSchema": {
        "type": "object",
        "properties": {"operation": {"type": "string"}, "path": {"type": "string"}},
        "required": ["operation"],
    },
}


def cards(*overrides: ToolOverride) -> tuple[ToolCard, ...]:
    """Six tools of three servers, by key."""
    return catalog(
        create_listing("time", TIME, CONVERT),
        create_listing("files", READ, WRITE, DELETE),
        create_listing("desk", FILES),
        overrides=overrides,
    ).snapshot.cards


def pick(*keys: str, among: Sequence[ToolCard] = ()) -> tuple[ToolCard, ...]:
    known = {card.key: card for card in among or cards()}
    return tuple(known[key] for key in keys)


def step(number: int, tool: str = "time/get_current_time", *, success: bool = True, text: str = "") -> Step:
    return Step(
        tool=tool,
        arguments={"timezone": f"Zone/{number}"},
        success=success,
        text=text or f"<data-1>\nresult {number}\n</data-1>",
        call_id=f"call_{number:04}",
        error=None if success else "timeout",
    )


def packet(
    prompt: str = "What time is it in Tokyo?",
    *steps: Step,
    history: Sequence[Message] = (),
    thoughts: Sequence[str] = (),
) -> Packet:
    """A packet that has made these steps, by the events that make them."""
    made = Packet.start(prompt, session_id="ses_1", caller="dana", history=tuple(history))
    for number, one in enumerate(steps):
        if number < len(thoughts):
            made = ThoughtNoted(packet_id=made.packet_id, turn=number, text=thoughts[number]).apply(made)
        result = ToolResult(success=one.success, output=one.text)
        made = ToolResultInjected(packet_id=made.packet_id, result=result, step=one).apply(made)
    return made


def create_history(*texts: str) -> tuple[Message, ...]:
    """A conversation: the person, the assistant, the person …"""
    return tuple(
        Message(role="user" if number % 2 == 0 else "assistant", text=text)
        for number, text in enumerate(texts)
    )


def fits(value: Json, request: ModelRequest) -> bool:
    """Whether a reply has the shape the request asks for."""
    assert request.schema is not None
    return bool(cast("Any", Draft202012Validator(request.schema.schema)).is_valid(value))
