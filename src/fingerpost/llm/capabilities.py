"""What a model's server can really do. Many take `response_format` and `tools` and do nothing with them.

Two ways to know: `probe` asks two tiny questions; `findings` looks at ordinary exchanges.
Both only state what they saw: None is "not known".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fingerpost.errors import ModelError, ModelRefused
from fingerpost.frozen import frozen
from fingerpost.llm.base import ChatModel, ModelReply, ModelRequest, ResponseSchema
from fingerpost.llm.fields import as_mapping
from fingerpost.llm.structured import structured
from fingerpost.records import JsonObject, Message

PROBE_TOKENS: Final = 200
_FINISH_REASONS: Final = (None, "stop", "tool_calls", "function_call")
_WORD: Final = "fingerpost-7f3a"  # nobody says it who is not made to
_SCHEMA: Final = ResponseSchema(
    name="probe",
    schema={
        "type": "object",
        "properties": {"word": {"type": "string", "enum": [_WORD]}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
_TOOL_NAME: Final = "note_word"
_TOOL: Final[JsonObject] = {
    "type": "function",
    "function": {
        "name": _TOOL_NAME,
        "description": "Takes note of one word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "description": "The word"}},
            "required": ["word"],
        },
    },
}


@frozen
class Capabilities:
    """Whether a server keeps to a schema, and whether its model calls tools. None: not known."""

    json_schema: bool | None = None
    tools: bool | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to find out."""
        return self.json_schema is not None and self.tools is not None

    def or_else(self, other: Capabilities) -> Capabilities:
        """This, with `other` for what is not known here."""
        return Capabilities(
            json_schema=other.json_schema if self.json_schema is None else self.json_schema,
            tools=other.tools if self.tools is None else self.tools,
        )


async def probe(model: ChatModel) -> Capabilities:
    """Ask `model` two tiny questions. What cannot be told from its answers stays unknown; never raises."""
    return Capabilities(
        json_schema=await _run_probe(model, _probe_schema), tools=await _run_probe(model, _probe_tools)
    )


async def _run_probe(
    model: ChatModel, question: Callable[[ChatModel], Awaitable[bool | None]]
) -> bool | None:
    try:
        return await question(model)
    except ModelRefused:
        return False
    except ModelError:
        return None


async def _probe_schema(model: ChatModel) -> bool | None:
    request = ModelRequest(
        messages=(Message(role="user", text="Say hello, in one word."),),
        temperature=0.0,
        max_tokens=PROBE_TOKENS,
        schema=_SCHEMA,
    )
    reply = await model.complete(request)
    if structured(reply.text, _SCHEMA.schema) is not None:
        return True
    return False if is_finished(reply) else None


async def _probe_tools(model: ChatModel) -> bool | None:
    request = ModelRequest(
        messages=(Message(role="user", text=f"Call {_TOOL_NAME} with the word hello."),),
        temperature=0.0,
        max_tokens=PROBE_TOKENS,
        tools=(_TOOL,),
        tool_choice="required",
    )
    reply = await model.complete(request)
    if has_called(reply, (_TOOL,)):
        return True
    return False if is_finished(reply) else None


def has_called(reply: ModelReply, tools: tuple[JsonObject, ...]) -> bool:
    """Whether one of these tools is called in the way that tools are."""
    names = {as_mapping(tool.get("function")).get("name") for tool in tools}
    written = [as_mapping(as_mapping(call).get("function")).get("name") for call in reply.tool_calls]
    return any(isinstance(name, str) and name in names for name in written)


def is_finished(reply: ModelReply) -> bool:
    """Whether the model said all it wanted: one that was cut off, or stopped by a filter, shows nothing."""
    return reply.finish in _FINISH_REASONS
