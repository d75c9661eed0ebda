"""What a model decided in one turn: calls, an answer, or something that cannot be used.

A call leaves here only if it names a tool that was offered and its arguments are an
object. Whatever else the model wrote becomes a sentence it can learn from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast

from fingerpost.catalog import visible
from fingerpost.choose.brought import called_by_name, parted
from fingerpost.choose.definitions import written
from fingerpost.choose.naming import meant
from fingerpost.choose.reading import outermost
from fingerpost.choose.single import MOST_CALLS
from fingerpost.frozen import frozen
from fingerpost.llm import ModelReply
from fingerpost.llm.structured import without_thoughts
from fingerpost.llm.tool_calls import Unreadable, parse_tool_calls, read_arguments
from fingerpost.records import JsonObject, ToolCall, ToolCard, as_valid_text
from fingerpost.redaction import scrub

MOST_PROBLEMS: Final = 8
LONGEST_PROBLEM: Final = 1000


@frozen
class Turn:
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


def read_turn(
    reply: ModelReply,
    cards: Sequence[ToolCard],
    *,
    tools: bool = True,
    own: Collection[str] = (),
    callers: frozenset[str] = frozenset(),
) -> Turn:
    """What this reply says. `tools` as in the request; `own`: names of Fingerpost's own tools.

    `callers`: the names of tools the caller brought.
    """
    text = as_valid_text(reply.text)
    if reply.tool_calls:
        calls = parted(reply.tool_calls, callers)
        turn = _turn(parse_tool_calls({"tool_calls": list(calls.others)}), text, cards, own)
        return replace(turn, handed=calls.callers)
    if tools:
        return Turn(text=text.strip())
    return _handing(_from_json(text, cards, {*own, *callers}), callers)


def _handing(turn: Turn, callers: frozenset[str]) -> Turn:
    """The same turn, the calls of the caller's tools told apart from ours."""
    handed = tuple(
        called_by_name(call.name, written(call.arguments)) for call in turn.calls if call.name in callers
    )
    return replace(turn, handed=handed, calls=tuple(call for call in turn.calls if call.name not in callers))


def _from_json(text: str, cards: Sequence[ToolCard], own: Collection[str]) -> Turn:
    fields = _fields(text)
    if fields is None:
        said = without_thoughts(text)
        if said and not said.startswith(("{", "[")) and '"calls"' not in said:
            return Turn(text=said)  # it just answered
        return Turn(problems=("it is not a JSON object with `calls` and `answer`",))
    answer, calls = fields.get("answer"), fields.get("calls")
    entries = calls if isinstance(calls, list | tuple) else [] if calls is None else [calls]
    turn = _turn(map(_entry, entries), as_valid_text(answer) if isinstance(answer, str) else "", cards, own)
    if turn.calls or turn.text or turn.problems:
        return turn
    return Turn(problems=("it neither calls a tool nor answers",))


def _fields(text: str) -> JsonObject | None:
    """The last object that is a turn; or a list of bare calls, which is as good as one."""
    for group in reversed(outermost(text, whole=True)):
        for entry in reversed(group):
            if "calls" in entry or "answer" in entry:
                return entry
        if all("arguments" in entry for entry in group):
            return {"calls": group}
    return None


def _entry(entry: object) -> ToolCall | Unreadable:
    fields = cast("Mapping[str, object]", entry if isinstance(entry, Mapping) else {})
    name = fields.get("tool", fields.get("name"))
    if not isinstance(name, str) or not name.strip():
        return Unreadable(reference=None, name="", message="the call names no tool")
    arguments = read_arguments(fields.get("arguments"))
    if isinstance(arguments, str):
        return Unreadable(reference=None, name=name, message=arguments)
    return ToolCall(name=name.strip(), arguments=arguments)


def _turn(
    entries: Iterable[ToolCall | Unreadable], text: str, cards: Sequence[ToolCard], own: Collection[str]
) -> Turn:
    calls: list[ToolCall] = []
    problems: list[str] = []
    for entry in entries:
        read = _unreadable(entry) if isinstance(entry, Unreadable) else meant(entry, cards, own=own)
        if isinstance(read, str):
            problems.append(read[:LONGEST_PROBLEM])
        else:
            calls.append(read)
    if len(calls) > MOST_CALLS:
        problems.append(f"only the first {MOST_CALLS} of {len(calls)} calls were made: call fewer at once")
    return Turn(calls=tuple(calls[:MOST_CALLS]), text=text.strip(), problems=tuple(problems[:MOST_PROBLEMS]))


def _unreadable(entry: Unreadable) -> str:
    name = f" of {scrub(visible(entry.name[:80]))}" if entry.name else ""
    return f"the call{name} could not be read: {entry.message}. Write it again."
