"""What a ReAct agent said in one turn: JSON as asked for, or the classic `Thought: … Action: …` lines.

A reply with both an action and an answer acts: the answer was written before the result
was known. Observations the model wrote itself, and whatever it built on them, do not count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from fingerpost.choose.definitions import written
from fingerpost.choose.naming import meant
from fingerpost.choose.reading import outermost
from fingerpost.frozen import frozen
from fingerpost.llm.structured import without_thoughts
from fingerpost.llm.tool_calls import read_arguments
from fingerpost.records import Json, JsonObject, ToolCall, ToolCard, as_valid_text

LONGEST_TEXT: Final = 4_000_000  # characters read: an answer may be long
LONGEST_THOUGHT: Final = 4000
NOT_UNDERSTOOD: Final = "it is neither an action nor an answer in the format asked for"

_LABEL = re.compile(
    r"[ \t]{0,8}[*_#>]{0,3}[ \t]{0,2}(thought|action input|action|observation|final answer|answer)"
    r"[*_]{0,2}[ \t]{0,2}:[*_]{0,2}",
    re.IGNORECASE,
)
_NO_TOOL: Final = frozenset({"", "none", "null", "no", "n/a", "no tool", "no action"})
_FINISH: Final = frozenset({"final answer", "final_answer", "answer", "finish"})


@frozen
class ReactTurn:
    """One step of the agent: a call, an answer, or a problem for it to put right."""

    thought: str = ""
    call: ToolCall | None = None
    answer: str | None = None
    problem: str = ""


def read_react(
    text: str, cards: Sequence[ToolCard], *, own: Sequence[str] = (), last: bool = False
) -> ReactTurn:
    """The step in this reply. In the `last` turn plain prose is an answer, and nothing is called."""
    said = without_thoughts(as_valid_text(text[:LONGEST_TEXT]))
    fields = _object(said) or _labelled(said)
    turn = _step(fields, cards, own) if fields else ReactTurn(problem=NOT_UNDERSTOOD)
    return _at_the_end(turn, said) if last else turn


def _object(text: str) -> JsonObject:
    """The last object that is a step; one inside another, or inside one cut short, is none."""
    for group in reversed(outermost(text, whole=True)):
        for entry in reversed(group):
            if "action" in entry or "answer" in entry:
                return entry
    return {}


def _step(fields: JsonObject, cards: Sequence[ToolCard], own: Sequence[str]) -> ReactTurn:
    thought = _text(fields.get("thought"))[:LONGEST_THOUGHT]
    action, arguments = _action(fields)
    answer = _text(fields.get("answer")) or None
    if action.casefold() in _FINISH:
        action, answer = "", answer or _text(arguments) or None
    if action.casefold() not in _NO_TOOL:
        call = _call(action, arguments, cards, own)
        if isinstance(call, str):
            return ReactTurn(thought=thought, problem=call)
        return ReactTurn(thought=thought, call=call)
    return ReactTurn(thought=thought, answer=answer, problem="" if answer else NOT_UNDERSTOOD)


def _action(fields: JsonObject) -> tuple[str, Json]:
    """The tool's name and what it is given, in any of the ways models write them."""
    action = fields.get("action")
    if isinstance(action, Mapping):
        name = action.get("tool", action.get("name", action.get("action")))
        given = action.get("arguments", action.get("args", action.get("action_input", action.get("input"))))
        return (name.strip() if isinstance(name, str) else ""), given
    given = fields.get("action_input", fields.get("arguments"))
    return (action.strip().strip("`*\"'") if isinstance(action, str) else ""), given


def _call(name: str, given: Json, cards: Sequence[ToolCard], own: Sequence[str]) -> ToolCall | str:
    found = meant(ToolCall(name=name, arguments={}), cards, own=own)
    if isinstance(found, str):
        return found
    arguments = _arguments(given, next((card for card in cards if card.key == found.name), None))
    if isinstance(arguments, str):
        return f"the action {found.name} could not be read: {arguments}"
    return ToolCall(name=found.name, arguments=arguments)


def _arguments(given: Json, card: ToolCard | None) -> JsonObject | str:
    """An object; from plain words only where the tool needs exactly one text."""
    if isinstance(given, str) and not given.lstrip().startswith(("{", "[", "`")):
        words = given.strip().strip("\"'")
        parameter = _only_text(card) if card is not None else None
        if words and parameter is not None:
            return {parameter: words}
    read = read_arguments(given)
    if isinstance(read, str) and isinstance(given, str):
        objects = [entry for group in outermost(given) for entry in group]
        return read_arguments(objects[0]) if len(objects) == 1 else read
    return read


def _only_text(card: ToolCard) -> str | None:
    required = card.intelligence.parameters.required
    if len(required) != 1:
        return None
    schema = card.definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    of_it = properties.get(required[0]) if isinstance(properties, Mapping) else None
    return required[0] if isinstance(of_it, Mapping) and of_it.get("type") == "string" else None


def _labelled(text: str) -> JsonObject:
    """The classic form: what stands behind each label up to the next one, the first of each kind."""
    fields: dict[str, list[str]] = {}
    label = ""
    for line in text.splitlines():
        found = _LABEL.match(line)
        if found is not None:
            label = found[1].lower()
            if label == "observation" and "action" in fields:
                break  # it went on without waiting
            line = line[found.end() :]
            if label in fields:
                label = ""  # a second step in the same breath
        if label:
            fields.setdefault(label, []).append(line)
    said = {name: "\n".join(lines).strip() for name, lines in fields.items()}
    renamed: dict[str, Json] = {
        "thought": said.get("thought", ""),
        "action": said.get("action", ""),
        "action_input": said.get("action input"),
        "answer": said.get("final answer", said.get("answer", "")),
    }
    return renamed if said.keys() - {"observation"} else {}


def _text(value: Json) -> str:
    if isinstance(value, str):
        return as_valid_text(value).strip()
    return "" if value is None else written(value)


def _at_the_end(turn: ReactTurn, said: str) -> ReactTurn:
    if turn.answer is not None:
        return turn
    prose = turn.problem == NOT_UNDERSTOOD and not turn.thought and said and not said.startswith(("{", "["))
    if prose:
        return ReactTurn(answer=said)
    return ReactTurn(thought=turn.thought, problem=turn.problem or "the last step gives no answer")
