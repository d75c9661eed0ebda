"""Tools that answer by themselves: every kind of content, logging, progress, errors, a rich schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import MCPError

from tests.conformance.fixture_call import FixtureCall, Object

Run = Callable[[FixtureCall], Awaitable[Object]]

PNG: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
WAV: Final = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA=="

RICH_SCHEMA: Final[Object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

REGION: Final[Object] = {"region": {"type": "string", "x-mcp-header": "Region"}}


def text(words: str) -> Object:
    """A result that is one text."""
    return {"content": [{"type": "text", "text": words}]}


def embed_resource(uri: str, mime: str, words: str) -> Object:
    """A resource inside other content."""
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


async def simple_text(call: FixtureCall) -> Object:
    return text("This is a simple text response for testing.")


async def image(call: FixtureCall) -> Object:
    return {"content": [{"type": "image", "data": PNG, "mimeType": "image/png"}]}


async def audio(call: FixtureCall) -> Object:
    return {"content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]}


async def resource(call: FixtureCall) -> Object:
    words = "This is an embedded resource content."
    return {"content": [embed_resource("test://embedded-resource", "text/plain", words)]}


async def return_mixed_content(call: FixtureCall) -> Object:
    first: list[Object] = text("Multiple content types test:")["content"]
    picture: Object = {"type": "image", "data": PNG, "mimeType": "image/png"}
    data = embed_resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return {"content": [*first, picture, data]}


async def log_messages(call: FixtureCall) -> Object:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log(words)
        await anyio.sleep(0.05)
    return text("Logged three messages.")


async def report_progress(call: FixtureCall) -> Object:
    for done in (0, 50, 100):
        await call.progress(done, 100)
        await anyio.sleep(0.05)
    return text("Reported progress three times.")


async def return_error(call: FixtureCall) -> Object:
    return {**text("This tool intentionally returns an error for testing"), "isError": True}


async def needs_sampling(call: FixtureCall) -> Object:
    """Does nothing but insist on a capability of the client."""
    if not call.can("sampling"):
        missing: Object = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "This tool needs sampling", missing)
    return text("The client declared sampling.")


async def reconnection(call: FixtureCall) -> Object:
    """Closes the stream of its own answer: the client has to come back for it."""
    if call.context.close_sse_stream is not None:
        await call.context.close_sse_stream()
    await anyio.sleep(0.1)
    return text("Reconnection test completed successfully.")


async def region(call: FixtureCall) -> Object:
    return text(f"The region is {call.arguments['region']}")


async def return_structured_content(call: FixtureCall) -> Object:
    contact = call.arguments
    return {**text(f"Stored {len(contact)} fields."), "structuredContent": {"stored": len(contact)}}


def tool(name: str, description: str, run: Run, properties: Any = None) -> tuple[Object, Run]:
    """A definition, and what runs when it is called. Every property is required."""
    schema: Object = {"type": "object", "properties": properties or {}}
    if properties:
        schema["required"] = list(properties)
    return {"name": name, "description": description, "inputSchema": schema}, run


PLAIN_TOOLS: Final[tuple[tuple[Object, Run], ...]] = (
    tool("test_simple_text", "Answers with one text", simple_text),
    tool("test_image_content", "Answers with an image", image),
    tool("test_audio_content", "Answers with audio", audio),
    tool("test_embedded_resource", "Answers with an embedded resource", resource),
    tool("test_multiple_content_types", "Answers with text, image and resource", return_mixed_content),
    tool("test_tool_with_logging", "Sends three log messages", log_messages),
    tool("test_logging_tool", "Sends log messages only to those who ask for them", log_messages),
    tool("test_tool_with_progress", "Reports progress three times", report_progress),
    tool("test_error_handling", "Always answers with an error", return_error),
    tool("test_missing_capability", "Refuses clients without sampling", needs_sampling),
    tool("test_region", "Has an argument that goes along as a header, too", region, REGION),
    tool("test_reconnection", "Closes its stream before it answers", reconnection),
    (
        {
            "name": "json_schema_2020_12_tool",
            "description": "Tool with JSON Schema 2020-12 features",
            "inputSchema": RICH_SCHEMA,
            "outputSchema": {"type": "object", "properties": {"stored": {"type": "integer"}}},
        },
        return_structured_content,
    ),
)
