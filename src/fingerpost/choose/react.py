"""The ReAct agent's question: think, then act or answer, one step in each turn.

Replies are JSON, so that any model can take part. What happened so far is told from the
packet: thoughts from its reflection log, actions and observations from its steps. The tools
are told with the request, behind the conversation, which stays known when they change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from fingerpost.choose.brought import Brought
from fingerpost.choose.definitions import definitions, listed, names, written
from fingerpost.choose.single import NOTHING, ending, opening, own_told, with_tools
from fingerpost.choose.steps import arguments_of, exposed_names, model_name, step_text
from fingerpost.llm import ModelRequest, ResponseSchema
from fingerpost.records import Json, JsonObject, Message, Packet, ToolCard
from fingerpost.settings import ChooseSettings

LONGEST_THOUGHT: Final = 2000
FORMAT: Final = """\
Work in steps. In each step reply with one JSON object and nothing else:
{"thought": "what you know and what you need", "action": {"tool": "exact name", "arguments": {…}}, \
"answer": null} to use a tool, or
{"thought": "why this is enough", "action": null, "answer": "your answer"} to finish.
One action in each step; what it returned comes in the next message as an observation. Never write an \
observation yourself."""
LAST_TURN: Final = (
    "This is the last step: no action is possible any more. Give your answer now, from the observations "
    "above; say which tool it comes from and what is missing."
)


def react_request(
    packet: Packet,
    cards: Sequence[ToolCard],
    *,
    system: str,
    history: Sequence[Message],
    settings: ChooseSettings,
    last: bool = False,
    order: Sequence[str] = (),
    own: Sequence[JsonObject] = (),
    finding: Sequence[JsonObject] = (),
    guides: str = "",
    note: str = "",
    brought: Brought = NOTHING,
) -> ModelRequest:
    """What the agent is asked now; the arguments are those of `turn_request`, `last` is its `final`."""
    routed = (*definitions(cards, order=order), *finding)
    callable_now = own if last else (*routed, *own)
    form = f"# FORMAT\n{FORMAT}"
    request = with_tools(packet.content.original_prompt, guides, listed(routed))
    return brought.onto(
        ModelRequest(
            messages=(
                *opening(f"{system}\n\n{form}" if system else form, history, request, brought.parts),
                *_so_far(packet, cards),
                *ending(note, own_told(own, final=last, listing=True), LAST_TURN if last and not own else ""),
            ),
            temperature=settings.answer_temperature,
            max_tokens=settings.answer_tokens,
            schema=_schema(names(callable_now)),
        )
    )


def _so_far(packet: Packet, cards: Sequence[ToolCard]) -> Iterator[Message]:
    known = exposed_names(cards)
    thoughts = _thoughts(packet)
    for number, step in enumerate(packet.tool_routing.steps):
        action: Json = {"tool": model_name(step.tool, known), "arguments": arguments_of(step)}
        thought = thoughts[number] if number < len(thoughts) else ""
        turn: Json = {"thought": thought[:LONGEST_THOUGHT], "action": action, "answer": None}
        yield Message(role="assistant", text=written(turn))
        yield Message(role="user", text=f"Observation: {step_text(step)}")


def _thoughts(packet: Packet) -> list[str]:
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


def _schema(tools: Sequence[str]) -> ResponseSchema:
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
