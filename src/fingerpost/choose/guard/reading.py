"""The calls a stopped block holds: their names and arguments, as far as they can be read.

Every family writes a call as one of four: JSON, a name before JSON that is only the
arguments, tags with one tag per argument, or program text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn, cast

from fingerpost.choose.guard.brackets import value_end
from fingerpost.choose.guard.literals import literal, program_calls
from fingerpost.choose.guard.names import Names
from fingerpost.choose.guard.shapes import MOST_CALLS, Call, as_arguments, calls_in
from fingerpost.choose.guard.vocabulary import words
from fingerpost.records import Json, JsonObject, check_json

LONGEST_BLOCK: Final = 64_000  # characters looked at
_MOST_ATTEMPTS: Final = 60
_OPENING: Final = re.compile(r"[{\[]")
_WORD: Final = re.compile(r"[^\W\d][\w.\-/:]{0,120}")
_SPARE_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*[}\]])', re.DOTALL)
_OBSERVATION: Final = re.compile(
    r"^[ \t>*_#-]{0,12}(?:observation|תצפית)[ \t]?\d{0,3}[ \t*_]{0,4}:", re.IGNORECASE | re.MULTILINE
)
_NAMED: Final = re.compile(
    r"(?:<\s*(?:[\w|]{1,20}[:|])?(?:invoke|function|tool|call|tool_call|function_call|tool_use)\b[^<>]{0,60}?"
    r"(?:name|tool)\s*=\s*[\"']?|<\s*function\s*=\s*[\"']?|<\s*tool\s*=\s*[\"']?|call tool=\")"
    r"([\w.\-/:]{1,120})",
    re.IGNORECASE,
)
_NAME_TAG: Final = re.compile(
    r"<\s*(?:tool_?name|function_?name|name|tool|function|action)\s*>\s*([\w.\-/:]{1,120})\s*<\s*/",
    re.IGNORECASE,
)
_PARAMETER: Final = re.compile(
    r"<\s*(?:[\w|]{1,20}[:|])?(?:parameter|param|arg|argument)(?:\s+[^<>]{0,40}?(?:name|key)\s*=\s*"
    r"|\s*=\s*)[\"']?"
    r"([\w.\-]{1,80})[\"']?(?:\s[^<>]{0,60})?>(.*?)(?:<\s*/\s*(?:[\w|]{1,20}[:|])?(?:parameter|param"
    r"|arg|argument)\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_PAIR: Final = re.compile(
    r"<\s*arg_key\s*>\s*([\w.\-]{1,80})\s*<\s*/\s*arg_key\s*>\s*<\s*arg_value\s*>(.{0,8000}?)<\s*/\s*arg_value\s*>",
    re.IGNORECASE | re.DOTALL,
)
_OPEN_PAIR: Final = re.compile(
    r'argument key="([\w.\-]{1,80})"[^<>]{0,60}<\|sep\|>(.{0,8000}?)<\|close\|>', re.DOTALL
)
_LEAF: Final = re.compile(r"<\s*([^\W\d][\w\-]{0,80})\s*>([^<]*)<\s*/\s*\1\s*>")
_WRAPPER_TAGS: Final = words(
    "tool_name toolname name tool function function_name action server_name arguments args parameters"
)


def _refuse(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)


_DECODER: Final = json.JSONDecoder(parse_constant=_refuse, strict=False)


def read_calls(block: str, names: Names) -> tuple[Call, ...]:
    """The calls in this block. A `Call` whose name no real tool has is not left out: it was still a call."""
    text = block[:LONGEST_BLOCK]
    found = tuple(_json_calls(text, names))[:MOST_CALLS]
    # A name with nothing to it is believed only when no other reading gives arguments.
    if found and any(call.arguments for call in found):
        return found
    return _tag_calls(text, names) or found or _program(text, names) or _only_name(text, names)


def before_observation(block: str) -> str:
    """A script up to its first observation. That one is invented, so what builds on it is not to be done."""
    found = _OBSERVATION.search(block, 0, LONGEST_BLOCK)
    return block if found is None else block[: found.start()]


def json_value(text: str) -> object:
    """What this text is as JSON, with a spare comma or as a Python literal; None when it is neither."""
    for candidate in (text, _without_spare_commas(text)):
        try:
            return json.loads(candidate, parse_constant=_refuse, strict=False)
        except (ValueError, RecursionError):
            continue
    return literal(text)


def _json_calls(text: str, names: Names) -> Iterator[Call]:
    """Calls in JSON. An object that is no call is the arguments of the name that stands before it."""
    at = behind = 0
    for _ in range(_MOST_ATTEMPTS):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        value, at = _value_at(text, opening.start())
        if value is None:
            # Inside an object that broke off, what is whole is only a part of the arguments.
            if opening[0] == "{":
                return
            at = opening.end()
            continue
        calls = calls_in(value, names)
        if not calls and isinstance(value, dict):
            name = _last_name(text[behind : opening.start()], names)
            calls = (Call(written=name, arguments=as_arguments(cast("object", value))),) if name else ()
        if calls:
            behind = at
        yield from calls


def _value_at(text: str, start: int) -> tuple[object, int]:
    """The value that begins here and where it ends; None when it cannot be read."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        end = value_end(text, start, final=True)
    return (None, start) if end is None else (json_value(text[start:end]), end)


def _last_name(text: str, names: Names) -> str:
    """The last real tool named here."""
    words = [found[0] for found in _WORD.finditer(text[-400:])]
    return next((word for word in reversed(words) if names.knows(word)), "")


def _tag_calls(text: str, names: Names) -> tuple[Call, ...]:
    """One call per named tag, each with the parameters that follow it."""
    marks = [(found.start(), found[1]) for found in _NAMED.finditer(text)][:MOST_CALLS]
    if not marks:
        marks = [(found.start(), found[1]) for found in _NAME_TAG.finditer(text) if names.knows(found[1])]
    if not marks:
        marks = [(found.start(), found[0]) for found in _WORD.finditer(text[:400]) if names.knows(found[0])][
            :1
        ]
    calls: list[Call] = []
    for index, (start, name) in enumerate(marks[:MOST_CALLS]):
        end = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        arguments = _tag_arguments(text[start:end], name)
        if arguments is not None:
            calls.append(Call(written=name, arguments=arguments))
    return tuple(calls)


def _tag_arguments(text: str, name: str) -> JsonObject | None:
    for pattern in (_PARAMETER, _PAIR, _OPEN_PAIR):
        if found := pattern.findall(text):
            return {key: _plain_value(value) for key, value in found[:MOST_CALLS]}
    leaves = [
        (key, value) for key, value in _LEAF.findall(text) if key.lower() not in _WRAPPER_TAGS and key != name
    ]
    if leaves:
        return {key: _plain_value(value) for key, value in leaves[:MOST_CALLS]}
    return None


def _plain_value(text: str) -> Json:
    """What stands in a tag: JSON where it is a number, a truth or a container, else text as it is."""
    inner = text.strip("\n")
    try:
        value: object = json.loads(inner, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return inner
    if isinstance(value, str) or check_json(value) is not None:
        return inner
    return cast("Json", value)


_CALL_IN_TEXT: Final = re.compile(r"\[?\s*(?:print\(\s*)?[^\W\d][\w.]{0,120}\s*\(")


def _program(text: str, names: Names) -> tuple[Call, ...]:
    """Program text somewhere in the block, beginning with a call and ending with its line or the block."""
    for found in list(_CALL_IN_TEXT.finditer(text))[:8]:
        end = _program_end(text, found.start())
        calls = program_calls(text[found.start() : end])
        if any(names.knows(call.written) for call in calls):
            return calls
    return ()


def _program_end(text: str, start: int) -> int:
    from_last = max(text.rfind(")", start), text.rfind("]", start))
    marker = text.find("<", start)
    if marker >= 0 and from_last > marker:
        from_last = max(text.rfind(")", start, marker), text.rfind("]", start, marker))
    return from_last + 1 if from_last >= 0 else len(text)


def _only_name(text: str, names: Names) -> tuple[Call, ...]:
    """A real tool named and nothing more that can be read."""
    name = next((found[0] for found in _WORD.finditer(text[:600]) if names.knows(found[0])), "")
    return (Call(written=name, arguments=None),) if name else ()


def _without_spare_commas(text: str) -> str:
    return _SPARE_COMMA.sub(lambda match: match[0] if match[0] != "," else "", text)
