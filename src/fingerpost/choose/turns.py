"""What a model decided in one turn: calls, an answer, or something that cannot be used.

A call leaves here only if it names a tool that was offered and its arguments are an
object. Whatever else the model wrote becomes a sentence it can learn from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from fingerpost.catalog import escape_invisible_except
from fingerpost.choose.brought import build_client_call, split_tool_calls
from fingerpost.choose.definitions import dump_stable_json
from fingerpost.choose.naming import resolve_call
from fingerpost.choose.reading import find_outermost_objects
from fingerpost.choose.single import MAX_CALLS_PER_TURN
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply
from fingerpost.llm.structured import strip_reasoning
from fingerpost.llm.tool_calls import UnreadableToolCall, parse_tool_calls, read_arguments
from fingerpost.records import JsonObject, ToolCall, ToolCard, to_valid_text
from fingerpost.redaction import scrub

MAX_PROBLEMS: Final = 8
MAX_PROBLEM_LENGTH: Final = 1000


@frozen
class ModelTurn:
    """What is to be done: make these calls, or give this text. Problems are for the model to put right.

    `handed` are calls of the caller's own tools, in the OpenAI format: theirs to make.
    """

    calls: tuple[ToolCall, ...] = ()
    handed: tuple[JsonObject, ...] = ()
    text: str = ""
    problems: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The problems as the next request tells them; empty when there are none."""
        if not self.problems:
            return ""
        return "Your last reply could not be used as it is:\n- " + "\n- ".join(self.problems)


def parse_turn(
    reply: ModelReply,
    cards: Sequence[ToolCard],
    *,
    tools: bool = True,
    own_names: Collection[str] = (),
    client_tools: frozenset[str] = frozenset(),
) -> ModelTurn:
    """What this reply says. `tools` as in the request; `own`: names of Fingerpost's own tools.

    `callers`: the names of tools the caller brought.
    """
    text = to_valid_text(reply.text)
    if reply.tool_calls:
        calls = split_tool_calls(reply.tool_calls, client_tools)
        turn = _build_turn(parse_tool_calls({"tool_calls": list(calls.routed_calls)}), text, cards, own_names)
        return replace(turn, handed=calls.client_calls)
    if tools:
        return ModelTurn(text=text.strip())
    return _split_client_calls(_parse_json_turn(text, cards, {*own_names, *client_tools}), client_tools)


def _split_client_calls(turn: ModelTurn, client_tools: frozenset[str]) -> ModelTurn:
    """The same turn, the calls of the caller's tools told apart from ours."""
    handed = tuple(
        build_client_call(call.name, dump_stable_json(call.arguments))
        for call in turn.calls
        if call.name in client_tools
    )
    return replace(
        turn, handed=handed, calls=tuple(call for call in turn.calls if call.name not in client_tools)
    )


def _parse_json_turn(text: str, cards: Sequence[ToolCard], own_names: Collection[str]) -> ModelTurn:
    fields = _find_turn_object(text)
    if fields is None:
        said = strip_reasoning(text)
        if said and not said.startswith(("{", "[")) and '"calls"' not in said:
            return ModelTurn(text=said)  # it just answered
        return ModelTurn(problems=("it is not a JSON object with `calls` and `answer`",))
    answer, calls = fields.get("answer"), fields.get("calls")
    entries = calls if isinstance(calls, list | tuple) else [] if calls is None else [calls]
    turn = _build_turn(
        map(_parse_call_entry, entries),
        to_valid_text(answer) if isinstance(answer, str) else "",
        cards,
        own_names,
    )
    if turn.calls or turn.text or turn.problems:
        return turn
    return ModelTurn(problems=("it neither calls a tool nor answers",))


def _find_turn_object(text: str) -> JsonObject | None:
    """The last object that is a turn; or a list of bare calls, which is as good as one."""
    for group in reversed(find_outermost_objects(text, whole=True)):
        for entry in reversed(group):
            if "calls" in entry or "answer" in entry:
                return entry
        if all("arguments" in entry for entry in group):
            return {"calls": group}
    return None


def _parse_call_entry(entry: object) -> ToolCall | UnreadableToolCall:
    fields = cast("Mapping[str, object]", entry if isinstance(entry, Mapping) else {})
    name = fields.get("tool", fields.get("name"))
    if not isinstance(name, str) or not name.strip():
        return UnreadableToolCall(reference=None, name="", message="the call names no tool")
    arguments = read_arguments(fields.get("arguments"))
    if isinstance(arguments, str):
        return UnreadableToolCall(reference=None, name=name, message=arguments)
    return ToolCall(name=name.strip(), arguments=arguments)


def _build_turn(
    entries: Iterable[ToolCall | UnreadableToolCall],
    text: str,
    cards: Sequence[ToolCard],
    own_names: Collection[str],
) -> ModelTurn:
    calls: list[ToolCall] = []
    problems: list[str] = []
    for entry in entries:
        read = (
            _describe_unreadable(entry)
            if isinstance(entry, UnreadableToolCall)
            else resolve_call(entry, cards, own_names=own_names)
        )
        if isinstance(read, str):
            problems.append(read[:MAX_PROBLEM_LENGTH])
        else:
            calls.append(read)
    if len(calls) > MAX_CALLS_PER_TURN:
        problems.append(
            f"only the first {MAX_CALLS_PER_TURN} of {len(calls)} calls were made: call fewer at once"
        )
    return ModelTurn(
        calls=tuple(calls[:MAX_CALLS_PER_TURN]), text=text.strip(), problems=tuple(problems[:MAX_PROBLEMS])
    )


def _describe_unreadable(entry: UnreadableToolCall) -> str:
    name = f" of {scrub(escape_invisible_except(entry.name[:80]))}" if entry.name else ""
    return f"the call{name} could not be read: {entry.message}. Write it again."
