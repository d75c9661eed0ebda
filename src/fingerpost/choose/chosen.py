"""What a selecting model's reply says, as far as it is true of the tools it was offered.

Asked for one JSON object, models also send lists, wrap the object in another, call the
fields by other names, write arguments as text, or answer with a tool call. All of that
is read where it is certain. What is left is a selection of an offered tool, a plain
"no tool", or a problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fingerpost.choose.offered import Offered
from fingerpost.choose.reading import Unusable, confidence_in, decoded, fields_of, line_of, outermost, unread
from fingerpost.llm import ModelReply
from fingerpost.llm.tool_calls import read_arguments
from fingerpost.records import Chosen, Json, JsonObject, Selection

MOST_ALTERNATIVES: Final = 3
UNSAID_CONFIDENCE: Final = 0.5  # of a selection that does not say how sure it is
LONGEST_REASONING: Final = 1_000
LONGEST_REMAINING: Final = 500
_ALTERNATIVES_READ: Final = 20
_DEEPEST_WRAPPING: Final = 3
_NO_NAME: Final = '"tool" must be the name of a tool or null'

_TOOL: Final = ("tool", "tool_name", "selected_tool", "selected_tool_name", "chosen_tool", "toolname")
_NAME: Final = ("name", "function", "function_name", "action")  # a tool only beside arguments
_ARGUMENTS: Final = (
    "arguments", "params", "parameters", "args", "input", "tool_input", "action_input", "tool_arguments",
    "tool_params", "tool_parameters",
)  # fmt: skip
_REASONING: Final = ("reasoning", "reason", "explanation", "rationale", "thought")
_WRAPPINGS: Final = (
    "selection", "result", "response", "answer", "output", "tool_call", "tool_calls", "function_call", "call",
    "choice", "tool_use", "data", "properties",
)  # fmt: skip


def read_chosen(reply: ModelReply, offered: Offered) -> Chosen | Unusable:
    """The choice in a reply. Of several objects the last counts: models think first and answer then."""
    for group in reversed(outermost(reply.text)):
        found = _in_group(group, offered)
        if found is not None:
            return unread(reply, found.problem) if isinstance(found, Unusable) else found
    if reply.tool_calls:
        found = _in_group(reply.tool_calls, offered) or Unusable(problem="the tool call names no tool")
        return unread(reply, found.problem) if isinstance(found, Unusable) else found
    if not reply.text.strip():
        return unread(reply, "the reply was empty")
    return unread(reply, 'the reply holds no JSON object with a "tool"')


def _in_group(group: Sequence[JsonObject], offered: Offered) -> Chosen | Unusable | None:
    """The first choice of those made together; what the others call is left for later. None: no choice."""
    choices = [fields for entry in group if (fields := _choice(entry)) is not None]
    if not choices:
        return None
    found = _chosen(choices[0], offered)
    if isinstance(found, Unusable) or found.remaining or found.selection is None:
        return found
    later = [name for fields in choices[1:] if isinstance(name := _named(fields), str)]
    remaining = line_of(f"then {', '.join(later[:5])}", LONGEST_REMAINING) if later else ""
    return replace(found, remaining=remaining)


def _choice(entry: object, depth: int = 0) -> Mapping[str, Json] | None:
    """The fields of the object that makes the choice: this one, or one it is only the wrapping of."""
    fields = fields_of(entry)
    if any(key in fields for key in _TOOL):
        return fields
    if any(key in fields for key in _NAME) and any(key in fields for key in _ARGUMENTS):
        return fields
    function = fields.get("function")
    if isinstance(function, Mapping):
        return _choice(function, depth + 1) if depth < _DEEPEST_WRAPPING else None
    inner = next((fields[key] for key in _WRAPPINGS if key in fields), None)
    if isinstance(inner, Sequence) and not isinstance(inner, str):
        inner = next((each for each in inner if isinstance(each, Mapping)), None)
    return _choice(inner, depth + 1) if inner is not None and depth < _DEEPEST_WRAPPING else None


def _named(fields: Mapping[str, Json]) -> Json:
    return next((fields[key] for key in (*_TOOL, *_NAME) if key in fields), None)


def _chosen(fields: Mapping[str, Json], offered: Offered) -> Chosen | Unusable:
    named = _named(fields)
    if isinstance(named, Mapping):  # {"tool": {"name": …, "arguments": …}}
        inner = fields_of(named)
        if not isinstance(_named(inner), str):
            return Unusable(problem=_NO_NAME)
        fields = {**{key: each for key, each in fields.items() if key not in (*_TOOL, *_NAME)}, **inner}
        named = _named(inner)
    reasoning = line_of(_first(fields, _REASONING), LONGEST_REASONING)
    if named is None or (isinstance(named, str) and offered.is_none(named) and not offered.find(named)):
        return Chosen(
            selection=None,
            alternatives=_alternatives(fields.get("alternatives"), offered),
            reasoning=reasoning,
        )
    selection = _selection(named, fields, offered, unsaid=UNSAID_CONFIDENCE)
    if isinstance(selection, Unusable):
        return selection
    others = _alternatives(fields.get("alternatives"), offered, but=selection.tool)
    remaining = line_of(fields.get("remaining"), LONGEST_REMAINING)
    return Chosen(selection=selection, alternatives=others, reasoning=reasoning, remaining=remaining)


def _selection(
    named: Json, fields: Mapping[str, Json], offered: Offered, *, unsaid: float = 0.0
) -> Selection | Unusable:
    if not isinstance(named, str):
        return Unusable(problem=_NO_NAME)
    card = offered.find(named)
    if card is None:
        return Unusable(problem=offered.unknown(named))
    arguments = _arguments(_first(fields, _ARGUMENTS))
    if isinstance(arguments, str):
        return Unusable(problem=arguments)
    return Selection(
        tool=card.key,
        arguments=arguments,
        reasoning=line_of(_first(fields, _REASONING), LONGEST_REASONING),
        confidence=_claimed(fields, unsaid=unsaid),
    )


def _claimed(fields: Mapping[str, Json], *, unsaid: float) -> float:
    """How sure the model says it is: `unsaid` where it does not say, nothing where it cannot be read."""
    said = fields.get("confidence")
    return unsaid if said is None else confidence_in(said) or 0.0


def _arguments(written: Json) -> dict[str, Json] | str:
    """Arguments as an object, also those written as text; a text says what is wrong with them."""
    if isinstance(written, str) and written.strip():
        found = decoded(written.strip())
        if found is not None:
            return read_arguments(found)
        read = read_arguments(written)
        return read if isinstance(read, str) else "the arguments say two things under one name"
    return read_arguments(None if isinstance(written, str) or written == [] else written)


def _alternatives(value: Json, offered: Offered, *, but: str = "") -> tuple[Selection, ...]:
    """Those that can be read, each tool once; the others are dropped, they decide nothing."""
    found: dict[str, Selection] = {}
    for entry in _entries(value):
        fields = {"tool": entry} if isinstance(entry, str) else _choice(entry) or fields_of(entry)
        read = _selection(_named(fields), fields, offered)
        if isinstance(read, Selection) and read.tool != but:
            found.setdefault(read.tool, read)
    return tuple(found.values())[:MOST_ALTERNATIVES]


def _entries(value: Json) -> Iterator[Json]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        yield from value[:_ALTERNATIVES_READ]


def _first(fields: Mapping[str, Json], names: Sequence[str]) -> Json:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
