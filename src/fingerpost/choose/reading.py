"""Objects out of what a model wrote, read so that nothing is taken for an answer that is only part of one.

`llm.structured` finds any value that fits a schema. Where a reading leads to a call,
that is too much: inside a reply that was cut short stand the arguments and the
alternatives, each a fine object of its own. Here only whole, outermost objects count;
what a model thought before it answered does not count; and an object that says two
things under one name says nothing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn, TypeVar, cast

from fingerpost.frozen import frozen
from fingerpost.llm import Ask, ModelReply, ModelRequest
from fingerpost.records import Json, JsonObject, Message
from fingerpost.records.json import MAX_DEPTH, as_valid_text
from fingerpost.redaction import scrub

T = TypeVar("T")

LONGEST_REPLY: Final = 100_000  # characters in which objects are looked for: many times what was asked for
MOST_OBJECTS: Final = 200
_MOST_STRAYS: Final = 4  # braces in prose that never close: each costs a look at all the rest
_SHOWN_AGAIN: Final = 2_000
_LONGEST_TEXT: Final = 20_000

_THOUGHT: Final = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_OPENING: Final = re.compile(r"[{\[]")
# What begins like data, well written or not. A brace or bracket followed by anything else is prose.
_BEGINS_AS_DATA: Final = re.compile(
    r"""\{\s*+(?:["'{}\[/\#]|[\w$-]{1,40}+\s*+[:=])|\[\s*+(?:["'{\[\]/\#0-9-]|true|false|null)"""
)
# A string (even one that never ends) is passed over whole, so that a bracket inside it does not count.
_MARKS: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_SPARE_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*+[}\]])', re.DOTALL)
_ODD_CLAIM: Final = re.compile(r'("confidence"\s{0,9}:\s{0,9})([^\s",{}\[\]\\]{1,40})', re.IGNORECASE)


@frozen
class Unusable:
    """A reply nothing can be made of, and what was wrong with it, in words the model can act on."""

    problem: str


async def understood(
    ask: Ask, request: ModelRequest, read: Callable[[ModelReply], T | Unusable]
) -> T | Unusable:
    """What `read` makes of the reply. One that is unusable is asked for once more, saying what was wrong.

    A `ModelError` passes.
    """
    reply = await ask(request)
    found = read(reply)
    if not isinstance(found, Unusable):
        return found
    return read(await ask(_again(request, reply, found.problem)))


def _again(request: ModelRequest, reply: ModelReply, problem: str) -> ModelRequest:
    said = as_valid_text(reply.text[:_SHOWN_AGAIN]).strip()
    before = (Message(role="assistant", text=said),) if said else ()
    told = f"That could not be used: {problem}. Answer once more, with JSON only, in the form asked for."
    return replace(request, messages=(*request.messages, *before, Message(role="user", text=told)))


def unread(reply: ModelReply, problem: str) -> Unusable:
    """The problem; a reply that was cut short says so."""
    cut = "; it was cut short, so answer more briefly" if reply.finish == "length" else ""
    return Unusable(problem=f"{problem}{cut}")


def outermost(text: str, *, whole: bool = False) -> list[tuple[JsonObject, ...]]:
    """The objects in `text` that stand in no other, in order; those of one list together.

    `whole`: where all of `text` is one value it may be of any length, because an answer may stand in it.
    """
    found = _grouped(decoded((text if whole else text[:LONGEST_REPLY]).strip()))
    if found:
        return [found]
    return [group for value in _scanned(_answer(text[:LONGEST_REPLY])) if (group := _grouped(value))]


def _grouped(value: object) -> tuple[JsonObject, ...]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(cast("JsonObject", each) for each in values[:MOST_OBJECTS] if isinstance(each, dict))


def _answer(text: str) -> str:
    """What was written after thinking. A thought that never ended is not an answer."""
    begin, end, thinking = 0, len(text), False
    for tag in _THOUGHT.finditer(text):
        if tag[1]:
            begin, end, thinking = tag.end(), len(text), False
        elif not thinking:
            end, thinking = tag.start(), True
    return text[begin:end]


def _scanned(text: str) -> Iterator[object]:
    at, strays = 0, 0
    for _ in range(MOST_OBJECTS):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        begin = opening.start()
        end = _end_of(text, begin)
        if end is not None:
            at = end
            yield decoded(text[begin:end])
        elif _BEGINS_AS_DATA.match(text, begin) or strays == _MOST_STRAYS:
            return  # cut short: what follows is inside it
        else:
            at, strays = begin + 1, strays + 1


def _end_of(text: str, begin: int) -> int | None:
    """Where the bracket at `begin` is closed; None where it is not, or not within reason."""
    depth = 0
    for mark in _MARKS.finditer(text, begin):
        if mark[0] in "{[":
            depth += 1
            if depth > 2 * MAX_DEPTH:
                return None  # nobody would hold it anyway
        elif mark[0] in "}]":
            depth -= 1
            if depth == 0:
                return mark.end()
    return None


def decoded(text: str) -> object:
    """The value, or None. A comma too many and a claim that is no number are put right."""
    if not text.startswith(("{", "[")):
        return None
    for candidate in (text, _mended(text)):
        try:
            return json.loads(
                candidate, strict=False, object_pairs_hook=_unambiguous, parse_constant=_refused
            )
        except (ValueError, RecursionError):
            continue
    return None


def _mended(text: str) -> str:
    text = _SPARE_COMMA.sub(lambda match: "" if match[0] == "," else match[0], text)
    return _ODD_CLAIM.sub(_quoted, text)


def _quoted(match: re.Match[str]) -> str:
    try:
        json.loads(match[2], parse_constant=_refused)
    except ValueError:
        return f'{match[1]}"{match[2]}"'
    return match[0]


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            message = f"two values for {key[:40]!r}"
            raise ValueError(message)
        found[key] = value
    return found


def _refused(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)


def fields_of(entry: object) -> Mapping[str, Json]:
    """The fields of an object by plain names: `Tool-Name` is `tool_name`. Nothing for anything else."""
    if not isinstance(entry, Mapping):
        return {}
    written = cast("JsonObject", entry)
    return {re.sub(r"[\s-]+", "_", key[:64].strip().casefold()): value for key, value in written.items()}


def confidence_in(value: object) -> float | None:
    """A confidence between 0 and 1 as models write it: 0.85, 85, "85%"; None when it is none.

    What lies a little above 1 is 1, from 2 to 100 it is per cent; below 0 it is 0.
    """
    if isinstance(value, str):
        value = _number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -math.inf < value <= 100:  # no number, endless, or a figure nobody can interpret
        return None
    return min(1.0, max(0.0, float(value))) if value < 2 else value / 100


def _number(text: str) -> float | None:
    share = text.endswith("%")
    digits = text.removesuffix("%").strip().replace(",", ".", 1)
    if not re.fullmatch(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})", digits):
        return None
    return float(digits) / 100 if share and float(digits) <= 100 else None if share else float(digits)


def line_of(value: object, limit: int) -> str:
    """A text on one line, whole characters only, at most so long; nothing for anything but a text."""
    if not isinstance(value, str):
        return ""
    line = scrub(" ".join(as_valid_text(value[:_LONGEST_TEXT]).split()))
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
