"""What goes out: the request in the words of the chat-completions format."""

from __future__ import annotations

from typing import Any, cast

from fingerpost.llm import ModelRequest, ResponseSchema
from fingerpost.llm.openai_chat import build_body
from fingerpost.records import JsonObject, Message
from tests.kit.tables import table

CLOSED: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@table(
    ("schema", "strict"),
    [
        (CLOSED, True),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"a": {"type": "object"}}}, False),
        ({**CLOSED, "properties": {"a": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"a": {"type": "array", "items": {"type": ["object", "null"]}}}}, False),
    ],
)
def test_only_a_schema_that_says_everything_is_asked_for_strictly(schema: JsonObject, strict: bool) -> None:
    request = ModelRequest(
        messages=(Message(role="user", text="x"),), schema=ResponseSchema(name="s", schema=schema)
    )
    asked = cast("Any", build_body(request, model="m"))["response_format"]["json_schema"]
    assert asked["strict"] is strict
    assert asked["schema"] == schema
