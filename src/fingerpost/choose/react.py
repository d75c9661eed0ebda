"""The ReAct agent: the request of each turn, and the parser of the reply."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fingerpost.choose.client_options import ClientOptions
from fingerpost.choose.offered_tools import (
    build_definitions,
    dump_stable_json,
    format_definitions,
    get_tool_names,
    resolve_call,
)
from fingerpost.choose.prompts import (
    build_closed_schema,
    format_step_text,
    get_name_for_model,
    map_exposed_names,
    sort_arguments,
)
from fingerpost.choose.tool_loop import (
    NO_CLIENT_OPTIONS,
    build_call_schema,
    build_closing_message,
    build_opening_messages,
    describe_own_tools,
    prepend_tools,
)
from fingerpost.frozen import frozen
from fingerpost.llm import ModelRequest, ResponseSchema
from fingerpost.llm.content import find_outermost_objects, read_arguments, strip_reasoning
from fingerpost.records import Json, JsonObject, Message, Packet, ToolCall, ToolCard, to_valid_text
from fingerpost.schemas import get_properties, is_object
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
    """Build the request of this turn, from the arguments of `build_turn_request`; `last` is its `final`."""
    routed = (*build_definitions(cards, order=order), *find_tools)
    callable_now = own_tools if last else (*routed, *own_tools)
    form = f"# FORMAT\n{REACT_FORMAT}"
    system = f"{system}\n\n{form}" if system else form
    prompt = prepend_tools(packet.content.original_prompt, guides, format_definitions(routed))
    opening = build_opening_messages(system, history, prompt, client.content_parts)
    own = describe_own_tools(own_tools, final=last, listing=True)
    closing = build_closing_message(note, own, LAST_TURN_NOTE if last and not own_tools else "")
    return client.apply_to(
        ModelRequest(
            messages=(*opening, *_build_step_messages(packet, cards), *closing),
            temperature=settings.answer_temperature,
            max_tokens=settings.answer_tokens,
            schema=_build_react_schema(get_tool_names(callable_now)),
        )
    )


def _build_step_messages(packet: Packet, cards: Sequence[ToolCard]) -> Iterator[Message]:
    known = map_exposed_names(cards)
    thoughts: list[str] = []  # the one before each execution
    latest = ""
    for entry in packet.reasoning.reflection_log:
        if entry.stage == "thought":
            latest = entry.text
        elif entry.stage == "execution":
            thoughts.append(latest)
            latest = ""
    for number, step in enumerate(packet.tool_routing.steps):
        action: Json = {"tool": get_name_for_model(step.tool, known), "arguments": sort_arguments(step)}
        thought = thoughts[number] if number < len(thoughts) else ""
        turn: Json = {"thought": thought[:MAX_SHOWN_THOUGHT_LENGTH], "action": action, "answer": None}
        yield Message(role="assistant", text=dump_stable_json(turn))
        yield Message(role="user", text=f"Observation: {format_step_text(step)}")


def _build_react_schema(tools: Sequence[str]) -> ResponseSchema:
    """Build the schema of a reply. Without tools, only an answer is allowed."""
    nothing: JsonObject = {"type": "null"}
    schema = build_closed_schema(
        {
            "thought": {"type": "string"},
            "action": {"anyOf": [build_call_schema(tools), nothing]} if tools else nothing,
            "answer": {"type": ["string", "null"] if tools else "string"},
        }
    )
    return ResponseSchema(name="step", schema=schema)


MAX_REACT_TEXT_LENGTH: Final = 4_000_000  # characters; an answer may be long
MAX_THOUGHT_LENGTH: Final = 4000
NOT_UNDERSTOOD_PROBLEM: Final = "it is neither an action nor an answer in the format asked for"

_REACT_LABEL = re.compile(
    r"[ \t]{0,8}[*_#>]{0,3}[ \t]{0,2}(thought|action input|action|observation|final answer|answer)"
    r"[*_]{0,2}[ \t]{0,2}:[*_]{0,2}",
    re.IGNORECASE,
)
_NO_TOOL_WORDS: Final = frozenset({"", "none", "null", "no", "n/a", "no tool", "no action"})
_FINISH_WORDS: Final = frozenset({"final answer", "final_answer", "answer", "finish"})


@frozen
class ReactTurn:
    """One step of the agent: a call, an answer, or a problem for the agent to correct."""

    thought: str = ""
    call: ToolCall | None = None
    answer: str | None = None
    problem: str = ""


def parse_react_turn(
    text: str, cards: Sequence[ToolCard], *, own_names: Sequence[str] = (), last: bool = False
) -> ReactTurn:
    """Parse the step in this reply. In the `last` turn, plain prose is an answer and calls are ignored."""
    content = strip_reasoning(to_valid_text(text[:MAX_REACT_TEXT_LENGTH]))
    fields = _find_step_object(content) or _parse_labelled_lines(content)
    turn = _parse_step(fields, cards, own_names) if fields else ReactTurn(problem=NOT_UNDERSTOOD_PROBLEM)
    return _finish_turn(turn, content) if last else turn


def _find_step_object(text: str) -> JsonObject:
    """Return the last outermost object that is a step, or an empty object."""
    for group in reversed(find_outermost_objects(text, whole=True)):
        for entry in reversed(group):
            if "action" in entry or "answer" in entry:
                return entry
    return {}


def _parse_step(fields: JsonObject, cards: Sequence[ToolCard], own_names: Sequence[str]) -> ReactTurn:
    thought = _as_text_value(fields.get("thought"))[:MAX_THOUGHT_LENGTH]
    action, arguments = _parse_action(fields)
    answer = _as_text_value(fields.get("answer")) or None
    if action.casefold() in _FINISH_WORDS:
        action, answer = "", answer or _as_text_value(arguments) or None
    if action.casefold() not in _NO_TOOL_WORDS:
        call = _resolve_react_call(action, arguments, cards, own_names)
        if isinstance(call, str):
            return ReactTurn(thought=thought, problem=call)
        return ReactTurn(thought=thought, call=call)
    return ReactTurn(thought=thought, answer=answer, problem="" if answer else NOT_UNDERSTOOD_PROBLEM)


def _parse_action(fields: JsonObject) -> tuple[str, Json]:
    """Return the tool's name and its input, in any of the formats models use."""
    action = fields.get("action")
    if isinstance(action, Mapping):
        name = action.get("tool", action.get("name", action.get("action")))
        given = action.get("arguments", action.get("args", action.get("action_input", action.get("input"))))
        return (name.strip() if isinstance(name, str) else ""), given
    given = fields.get("action_input", fields.get("arguments"))
    return (action.strip().strip("`*\"'") if isinstance(action, str) else ""), given


def _resolve_react_call(
    name: str, given: Json, cards: Sequence[ToolCard], own_names: Sequence[str]
) -> ToolCall | str:
    found = resolve_call(ToolCall(name=name, arguments={}), cards, own_names=own_names)
    if isinstance(found, str):
        return found
    arguments = _parse_react_arguments(given, next((card for card in cards if card.key == found.name), None))
    if isinstance(arguments, str):
        return f"the action {found.name} could not be read: {arguments}"
    return ToolCall(name=found.name, arguments={**found.arguments, **arguments})


def _parse_react_arguments(given: Json, card: ToolCard | None) -> JsonObject | str:
    """Return the arguments as an object, or an error. Plain text is for a tool with one required text."""
    if isinstance(given, str) and not given.lstrip().startswith(("{", "[", "`")):
        words = given.strip().strip("\"'")
        parameter = _find_only_text_parameter(card) if card is not None else None
        if words and parameter is not None:
            return {parameter: words}
    read = read_arguments(given)
    if isinstance(read, str) and isinstance(given, str):
        objects = [entry for group in find_outermost_objects(given) for entry in group]
        return read_arguments(objects[0]) if len(objects) == 1 else read
    return read


def _find_only_text_parameter(card: ToolCard) -> str | None:
    required = card.intelligence.parameters.required
    if len(required) != 1:
        return None
    schema = get_properties(card.definition.get("inputSchema")).get(required[0])
    return required[0] if is_object(schema) and schema.get("type") == "string" else None


def _parse_labelled_lines(text: str) -> JsonObject:
    """Parse the classic labelled lines: the text from each label to the next. The first of a label counts."""
    fields: dict[str, list[str]] = {}
    label = ""
    for line in text.splitlines():
        found = _REACT_LABEL.match(line)
        if found is not None:
            label = found[1].lower()
            if label == "observation" and "action" in fields:
                break  # the model invented the observation
            line = line[found.end() :]
            if label in fields:
                label = ""  # a second step in the same reply: ignore it
        if label:
            fields.setdefault(label, []).append(line)
    texts = {name: "\n".join(lines).strip() for name, lines in fields.items()}
    renamed: dict[str, Json] = {
        "thought": texts.get("thought", ""),
        "action": texts.get("action", ""),
        "action_input": texts.get("action input"),
        "answer": texts.get("final answer", texts.get("answer", "")),
    }
    return renamed if texts.keys() - {"observation"} else {}


def _as_text_value(value: Json) -> str:
    if isinstance(value, str):
        return to_valid_text(value).strip()
    return "" if value is None else dump_stable_json(value)


def _finish_turn(turn: ReactTurn, text: str) -> ReactTurn:
    if turn.answer is not None:
        return turn
    is_prose = text and not text.startswith(("{", "["))
    if turn.problem == NOT_UNDERSTOOD_PROBLEM and not turn.thought and is_prose:
        return ReactTurn(answer=text)
    return ReactTurn(thought=turn.thought, problem=turn.problem or "the last step gives no answer")
