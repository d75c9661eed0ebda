"""Tool lists with something wrong in them, shared by the stdio and the HTTP faults."""

from __future__ import annotations

from typing import Any

Tools = list[Any]

GOOD: dict[str, Any] = {
    "name": "echo",
    "description": "Answers with its arguments.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}


def named(name: str, **fields: Any) -> dict[str, Any]:
    """A sound definition under another name, with some fields replaced."""
    return {**GOOD, "name": name, **fields}


def nested(depth: int) -> dict[str, Any]:
    """A schema of objects within objects."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth // 2):  # each step adds two levels: `properties` and the schema in it
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def bad_schemas() -> Tools:
    """Four broken definitions between two good ones."""
    return [
        GOOD,
        named("text_schema", inputSchema="object"),
        named("odd_type", inputSchema={"type": "strnig"}),
        named("odd_part", inputSchema={"type": "object", "properties": {"a": {"type": "txt"}}}),
        {"name": "no_schema"},
        named("also_good"),
    ]


def odd_names() -> Tools:
    """Names that are empty, no text, too long, invisible, confusable, or just unusual."""
    return [
        GOOD,
        named(""),
        {**GOOD, "name": 7},
        {**GOOD, "name": None},
        named("x" * 5000),
        named("ec\u200bho"),
        named("\u0435cho"),  # a Cyrillic letter that looks like a Latin one
        named("\u202eohce"),
        named("a tool / with spaces"),
        named("כלי"),
        "not an object",
    ]


def ref_loop() -> Tools:
    return [
        GOOD,
        named(
            "loop",
            inputSchema={
                "type": "object",
                "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
                "properties": {"root": {"$ref": "#/$defs/node"}},
            },
        ),
    ]


def network_ref(url: str) -> Tools:
    return [GOOD, named("remote", inputSchema={"type": "object", "properties": {"a": {"$ref": url}}})]


def duplicate_names() -> Tools:
    return [GOOD, named("twin", description="the first"), named("twin", description="the second")]


def many(count: int) -> Tools:
    return [named(f"tool_{number}") for number in range(count)]
