"""The ReAct agent's question: think, then act or answer, one step in each turn.

Replies are JSON, so that any model can take part. What happened so far is told from the
packet: thoughts from its reflection log, actions and observations from its steps. The tools
are told with the request, behind the conversation, which stays known when they change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fingerpost.choose.brought import ClientOptions
from fingerpost.choose.definitions import (
    build_definitions,
    dump_stable_json,
    format_definitions,
    get_tool_names,
)
from fingerpost.choose.single import (
    NO_CLIENT_OPTIONS,
    build_closing_message,
    build_opening_messages,
    describe_own_tools,
    prepend_tools,
)
from fingerpost.choose.steps import format_step_text, get_model_name, map_exposed_names, sort_arguments
from fingerpost.llm import ModelRequest, ResponseSchema
from fingerpost.records import Json, JsonObject, Message, Packet, ToolCard
from fingerpost.settings import ChooseSettings

MAX_SHOWN_THOUGHT_LENGTH: Final = 2000
REACT_FORMAT: Final = """\
Work in steps. In each step reply with one JSON object and nothing else:
{"thought": "what you know and what you need", "action": {"tool": "exact name", "arguments": {…}}, \
"answer": null} to use a tool, or
{"thought": "why this is enough", "action": null, "answer": "your answer"} to finish.
One action in each step; what it returned comes in the next message as an observation. Never write an \
observation yourself."""
LAST_TURN_NOTE: Final = (
    "This is the last step: no action is possible any more. Give your answer now, from the observations "
    "above; say which tool it comes from and what is missing."
)


def build_react_request(
    packet: Packet,
    cards: Sequence[ToolCard],
    *,
    system: str,
    history: Sequence[Message],
    settings: ChooseSettings,
    last: bool = False,
    order: Sequence[str] = (),
    own_tools: Sequence[JsonObject] = (),
    find_tools: Sequence[JsonObject] = (),
    guides: str = "",
    note: str = "",
    client: ClientOptions = NO_CLIENT_OPTIONS,
) -> ModelRequest:
    """What the agent is asked now; the arguments are those of `turn_request`, `last` is its `final`."""
    routed = (*build_definitions(cards, order=order), *find_tools)
    callable_now = own_tools if last else (*routed, *own_tools)
    form = f"# FORMAT\n{REACT_FORMAT}"
    request = prepend_tools(packet.content.original_prompt, guides, format_definitions(routed))
    return client.apply_to(
        ModelRequest(
            messages=(
                *build_opening_messages(
                    f"{system}\n\n{form}" if system else form, history, request, client.content_parts
                ),
                *_build_step_messages(packet, cards),
                *build_closing_message(
                    note,
                    describe_own_tools(own_tools, final=last, listing=True),
                    LAST_TURN_NOTE if last and not own_tools else "",
                ),
            ),
            temperature=settings.answer_temperature,
            max_tokens=settings.answer_tokens,
            schema=_build_react_schema(get_tool_names(callable_now)),
        )
    )


def _build_step_messages(packet: Packet, cards: Sequence[ToolCard]) -> Iterator[Message]:
    known = map_exposed_names(cards)
    thoughts = _collect_thoughts(packet)
    for number, step in enumerate(packet.tool_routing.steps):
        action: Json = {"tool": get_model_name(step.tool, known), "arguments": sort_arguments(step)}
        thought = thoughts[number] if number < len(thoughts) else ""
        turn: Json = {"thought": thought[:MAX_SHOWN_THOUGHT_LENGTH], "action": action, "answer": None}
        yield Message(role="assistant", text=dump_stable_json(turn))
        yield Message(role="user", text=f"Observation: {format_step_text(step)}")


def _collect_thoughts(packet: Packet) -> list[str]:
    """The thought before each execution, in order; the log only grows, so earlier ones never move."""
    thoughts: list[str] = []
    latest = ""
    for entry in packet.reasoning.reflection_log:
        if entry.stage == "thought":
            latest = entry.text
        elif entry.stage == "execution":
            thoughts.append(latest)
            latest = ""
    return thoughts


def _build_react_schema(tools: Sequence[str]) -> ResponseSchema:
    """The shape of a reply; without tools there is nothing to do but answer."""
    action: JsonObject = {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": list(tools)}, "arguments": {"type": "object"}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    nothing: JsonObject = {"type": "null"}
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            "action": {"anyOf": [action, nothing]} if tools else nothing,
            "answer": {"type": ["string", "null"] if tools else "string"},
        },
        "required": ["thought", "action", "answer"],
        "additionalProperties": False,
    }
    return ResponseSchema(name="step", schema=schema)
