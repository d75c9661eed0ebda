"""The single decision: one question with the tools beside it, asked again after each result.

The model answers, or calls tools and is shown what came back. Everything is made from
the packet: the conversation, the request, each step. A later turn begins with the
messages of the one before, byte for byte.

A model whose server takes no tools is told about them with the request and replies in
JSON (`tools=False`). They stand behind the conversation, because they change from request
to request and it does not: only there they cost nothing that was known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.choose.definitions import definitions, listed, names, written
from fingerpost.choose.steps import arguments_of, as_tool_messages, exposed_names, model_name, step_text
from fingerpost.llm import ModelRequest, ResponseSchema
from fingerpost.records import Json, JsonObject, Message, Packet, Step, ToolCard
from fingerpost.settings import ChooseSettings

MOST_CALLS: Final = 8  # in one turn
NO_MORE_TOOLS: Final = (
    "No further tool can be called now. Answer the request with what the results above show, say which tool "
    "it comes from, and say plainly what is missing."
)
JSON_FORMAT: Final = """\
Reply with one JSON object and nothing else:
{"calls": [{"tool": "exact name", "arguments": {…}}], "answer": null} to call tools, or
{"calls": [], "answer": "your answer"} to answer. Results come in the next message."""


def turn_request(
    packet: Packet,
    cards: Sequence[ToolCard],
    *,
    system: str,
    history: Sequence[Message],
    settings: ChooseSettings,
    final: bool = False,
    tools: bool = True,
    order: Sequence[str] = (),
    own: Sequence[JsonObject] = (),
    guides: str = "",
    note: str = "",
) -> ModelRequest:
    """What the model is asked in this turn.

    `order`: the keys as the conversation has been offered them (`stable_offer`). `own`:
    definitions of Fingerpost's own tools, in the OpenAI format. `guides`: what to say about each tool
    (`tool_guides`) where that is not in the system prompt. `final`: no more calls. `note`: what was
    wrong with the model's last reply; it stands last and only in this turn.
    """
    offered = (*definitions(cards, order=order), *own)
    steps = packet.tool_routing.steps
    told = as_tool_messages(steps, cards) if tools else _as_json(steps, cards)
    listing = () if tools or not offered else (listed(offered), JSON_FORMAT)
    return ModelRequest(
        messages=(
            *opening(system, history, with_tools(packet.content.original_prompt, guides, *listing)),
            *told,
            *ending(note, NO_MORE_TOOLS if final and steps else ""),
        ),
        temperature=settings.answer_temperature,
        max_tokens=settings.answer_tokens,
        tools=offered if tools else (),
        tool_choice=("none" if final else "auto") if tools and offered else None,
        schema=_schema(names(offered)) if offered and not tools and not final else None,
    )


def opening(system: str, history: Sequence[Message], prompt: str) -> tuple[Message, ...]:
    """What every request begins with: the system prompt, the conversation, the person's words."""
    first = (Message(role="system", text=system),) if system else ()
    return (*first, *history, Message(role="user", text=prompt))


def ending(*notes: str) -> tuple[Message, ...]:
    """What is said last, if anything, in one message."""
    told = "\n\n".join(note for note in notes if note)
    return (Message(role="user", text=told),) if told else ()


def with_tools(prompt: str, *about: str) -> str:
    """The person's words behind what is told about the tools for them, if anything is."""
    told = "\n\n".join(part for part in about if part)
    return f"# TOOLS FOR THIS REQUEST\n{told}\n\n# REQUEST\n{prompt}" if told else prompt


def _as_json(steps: Sequence[Step], cards: Sequence[ToolCard]) -> tuple[Message, ...]:
    """Each step as the JSON the model would have written, and the result as the next message."""
    known = exposed_names(cards)
    messages: list[Message] = []
    for step in steps:
        name = model_name(step.tool, known)
        call: Json = {"calls": [{"tool": name, "arguments": arguments_of(step)}], "answer": None}
        messages.append(Message(role="assistant", text=written(call)))
        messages.append(Message(role="user", text=f"Result of {name}:\n{step_text(step)}"))
    return tuple(messages)


def _schema(tools: Sequence[str]) -> ResponseSchema:
    call: JsonObject = {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": list(tools)}, "arguments": {"type": "object"}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "calls": {"type": "array", "items": call, "maxItems": MOST_CALLS},
            "answer": {"type": ["string", "null"]},
        },
        "required": ["calls", "answer"],
        "additionalProperties": False,
    }
    return ResponseSchema(name="turn", schema=schema)
