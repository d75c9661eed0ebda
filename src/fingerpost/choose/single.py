"""The single decision: one question with the tools beside it, asked again after each result.

The model answers, or calls tools and is shown what came back. Everything is made from
the packet: the conversation, the request, each step. A later turn begins with the
messages of the one before, byte for byte.

A model whose server takes no tools is told about them with the request and replies in
JSON (`tools=False`). They stand behind the conversation, because they change from request
to request and it does not: only there they cost nothing that was known before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, cast

from fingerpost.choose.brought import Brought
from fingerpost.choose.definitions import definitions, listed, names, written
from fingerpost.choose.steps import arguments_of, as_tool_messages, exposed_names, model_name, step_text
from fingerpost.llm import ModelRequest, ResponseSchema
from fingerpost.llm.fields import mapping, named_tool
from fingerpost.llm.tool_calls import read_arguments
from fingerpost.records import Json, JsonObject, Message, Packet, Step, ToolCard
from fingerpost.settings import ChooseSettings

MOST_CALLS: Final = 8  # in one turn
NOTHING: Final = Brought()
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
    finding: Sequence[JsonObject] = (),
    guides: str = "",
    use: Mapping[str, str] = MappingProxyType({}),
    note: str = "",
    brought: Brought = NOTHING,
) -> ModelRequest:
    """What the model is asked in this turn.

    `order`: the keys as the conversation has been offered them (`stable_offer`). `own`:
    definitions of Fingerpost's own tools, in the OpenAI format. `finding`: the way to other tools, which is
    told and closed like the routed ones. `use`: what to say of each tool in its
    definition (`describe_use`); `guides`: the same as text for a model that takes none. `final`: no more
    calls, except of the tools the caller `brought` and of `own`. `note`: what was wrong with the model's
    last reply; it stands last and only in this turn.
    """
    routed = () if brought.tools and final else (*definitions(cards, order=order, use=use), *finding)
    offered = (*brought.tools, *routed, *own)
    closed = brought.wants_text or (final and not brought.tools and not own)
    steps = packet.tool_routing.steps
    # Who wants text is told of no tools. The last of several turns begins as those before it did, in JSON.
    in_json = not tools and bool(offered) and (not closed or (bool(steps) and not brought.wants_text))
    told = as_tool_messages(steps, cards) if tools else _as_text(steps, cards, in_json=in_json)
    listing = (listed((*brought.tools, *routed)), JSON_FORMAT) if in_json else ()
    prompt = with_tools(packet.content.original_prompt, guides, *listing)
    callable_now = (*brought.tools, *own) if final and not closed else offered
    choice = "none" if closed else brought.chooses(called=bool(steps))
    return brought.onto(
        ModelRequest(
            messages=(
                *opening(system, history, prompt, brought.parts),
                *(brought.since if tools else in_words(brought.since, in_json=in_json)),
                *told,
                *ending(
                    note,
                    own_told(own, final=final, listing=not tools) if not closed else "",
                    NO_MORE_TOOLS if closed and steps else "",
                ),
            ),
            temperature=settings.answer_temperature,
            max_tokens=settings.answer_tokens,
            tools=offered if tools else (),
            tool_choice=choice if tools and offered else None,
            choice_is_callers=brought.choice is not None,
            schema=_schema(names(callable_now), choice) if in_json else None,
        )
    )


def own_told(own: Sequence[JsonObject], *, final: bool, listing: bool) -> str:
    """What is said of our own tools behind everything else, so that the prompt begins as before.

    `listing`: their definitions, for a model that gets none beside the messages.
    """
    if not own:
        return ""
    also = f"You can also call:\n{listed(own)}" if listing else ""
    only = f"Of the tools only {', '.join(names(own))} can be called now; otherwise answer." if final else ""
    return "\n\n".join(part for part in (also, only) if part)


def opening(
    system: str, history: Sequence[Message], prompt: str, parts: tuple[JsonObject, ...] = ()
) -> tuple[Message, ...]:
    """What every request begins with: the system prompt, the conversation, the person's words.

    A system message that begins the conversation follows ours in the same one: many models know
    but one, and only in the first place.
    """
    request = Message(role="user", text=prompt, parts=parts)
    if system and history and history[0].role == "system" and not history[0].parts:
        first = Message(role="system", text=f"{system}\n\n{history[0].text}")
        return (first, *history[1:], request)
    first = (Message(role="system", text=system),) if system else ()
    return (*first, *history, request)


def ending(*notes: str) -> tuple[Message, ...]:
    """What is said last, if anything, in one message."""
    told = "\n\n".join(note for note in notes if note)
    return (Message(role="user", text=told),) if told else ()


def with_tools(prompt: str, *about: str) -> str:
    """The person's words behind what is told about the tools for them, if anything is."""
    told = "\n\n".join(part for part in about if part)
    return f"# TOOLS FOR THIS REQUEST\n{told}\n\n# REQUEST\n{prompt}" if told else prompt


def _as_text(steps: Sequence[Step], cards: Sequence[ToolCard], *, in_json: bool) -> tuple[Message, ...]:
    """Each step as the model would have written it, and the result as the next message."""
    known = exposed_names(cards)
    messages: list[Message] = []
    for step in steps:
        name = model_name(step.tool, known)
        calls: list[Json] = [{"tool": name, "arguments": arguments_of(step)}]
        messages.append(Message(role="assistant", text=_calling(calls, "", in_json=in_json)))
        messages.append(Message(role="user", text=f"Result of {name}:\n{step_text(step)}"))
    return tuple(messages)


def in_words(since: Sequence[Message], *, in_json: bool = True) -> tuple[Message, ...]:
    """Calls of the caller's tools and what came of them, for a model that knows no such messages."""
    told: list[Message] = []
    called: dict[object, str] = {}
    for message in since:
        if message.role == "tool":
            name = called.get(message.tool_call_id, "a tool")
            told.append(Message(role="user", text=f"Result of {name}:\n{message.text}"))
            continue
        functions = [mapping(call.get("function")) for call in message.tool_calls]
        ids = (call.get("id") for call in message.tool_calls)
        called.update(zip(ids, (str(function.get("name")) for function in functions), strict=True))
        made: list[Json] = [
            {"tool": str(function.get("name")), "arguments": _read(function.get("arguments"))}
            for function in functions
        ]
        text = _calling(made, message.text, in_json=in_json) if made else message.text
        told.append(Message(role=message.role, text=text))
    return tuple(told)


def _calling(calls: list[Json], said: str, *, in_json: bool) -> str:
    """A turn that calls: in JSON, or in words where a reply in JSON would be taken for the answer."""
    if in_json:
        return written({"calls": calls, "answer": said or None})
    return "\n".join(part for part in (said, f"(Tools called: {written(calls)})") if part)


def _read(arguments: object) -> Json:
    found = read_arguments(arguments)
    return {} if isinstance(found, str) else cast("JsonObject", found)


def _schema(tools: Sequence[str], choice: Json = "auto") -> ResponseSchema:
    """What a turn is; one that has to answer makes no calls."""
    must = choice == "required" or named_tool(choice) is not None
    tools = [name for name in tools if name == (named_tool(choice) or name)]
    call: JsonObject = {
        "type": "object",
        "properties": {"tool": {"type": "string", "enum": list(tools)}, "arguments": {"type": "object"}},
        "required": ["tool", "arguments"],
        "additionalProperties": False,
    }
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "calls": {
                "type": "array",
                "items": call,
                **({"minItems": 1} if must else {}),
                "maxItems": 0 if choice == "none" else MOST_CALLS,
            },
            "answer": {"type": "string" if choice == "none" else ["string", "null"]},
        },
        "required": ["calls", "answer"],
        "additionalProperties": False,
    }
    return ResponseSchema(name="turn", schema=schema)
