"""The calls a stopped block holds: their names and arguments, as far as they can be read.

Every family writes a call as one of four: JSON, a name before JSON that is only the
arguments, tags with one tag per argument, or program text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final, NoReturn, cast

from fingerpost.choose.guard.brackets import find_value_end
from fingerpost.choose.guard.literals import parse_literal, parse_program_calls
from fingerpost.choose.guard.names import WrittenToolNames
from fingerpost.choose.guard.shapes import MAX_CALLS, WrittenCall, find_calls, parse_json_arguments
from fingerpost.choose.guard.vocabulary import split_words
from fingerpost.records import Json, JsonObject, check_json

MAX_BLOCK_LENGTH: Final = 64_000  # characters looked at
_MAX_PARSE_ATTEMPTS: Final = 60
_JSON_OPENING: Final = re.compile(r"[{\[]")
_NAME_WORD: Final = re.compile(r"[^\W\d][\w.\-/:]{0,120}")
_SPARE_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*[}\]])', re.DOTALL)
_OBSERVATION_LABEL: Final = re.compile(
    r"^[ \t>*_#-]{0,12}(?:observation|תצפית)[ \t]?\d{0,3}[ \t*_]{0,4}:", re.IGNORECASE | re.MULTILINE
)
_NAMED_TAG: Final = re.compile(
    r"(?:<\s*(?:[\w|]{1,20}[:|])?(?:invoke|function|tool|call|tool_call|function_call|tool_use)\b[^<>]{0,60}?"
    r"(?:name|tool)\s*=\s*[\"']?|<\s*function\s*=\s*[\"']?|<\s*tool\s*=\s*[\"']?|call tool=\")"
    r"([\w.\-/:]{1,120})",
    re.IGNORECASE,
)
_NAME_TAG: Final = re.compile(
    r"<\s*(?:tool_?name|function_?name|name|tool|function|action)\s*>\s*([\w.\-/:]{1,120})\s*<\s*/",
    re.IGNORECASE,
)
_PARAMETER_TAG: Final = re.compile(
    r"<\s*(?:[\w|]{1,20}[:|])?(?:parameter|param|arg|argument)(?:\s+[^<>]{0,40}?(?:name|key)\s*=\s*"
    r"|\s*=\s*)[\"']?"
    r"([\w.\-]{1,80})[\"']?(?:\s[^<>]{0,60})?>(.*?)(?:<\s*/\s*(?:[\w|]{1,20}[:|])?(?:parameter|param"
    r"|arg|argument)\s*>|\Z)",
    re.IGNORECASE | re.DOTALL,
)
_TAG_PAIR: Final = re.compile(
    r"<\s*arg_key\s*>\s*([\w.\-]{1,80})\s*<\s*/\s*arg_key\s*>\s*<\s*arg_value\s*>(.{0,8000}?)<\s*/\s*arg_value\s*>",
    re.IGNORECASE | re.DOTALL,
)
_OPEN_TAG_PAIR: Final = re.compile(
    r'argument key="([\w.\-]{1,80})"[^<>]{0,60}<\|sep\|>(.{0,8000}?)<\|close\|>', re.DOTALL
)
_LEAF_TAG: Final = re.compile(r"<\s*([^\W\d][\w\-]{0,80})\s*>([^<]*)<\s*/\s*\1\s*>")
_WRAPPER_TAGS: Final = split_words(
    "tool_name toolname name tool function function_name action server_name arguments args parameters"
)


def _reject_constant(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)


_JSON_DECODER: Final = json.JSONDecoder(parse_constant=_reject_constant, strict=False)


def parse_calls(block: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """The calls in this block. A `Call` whose name no real tool has is not left out: it was still a call."""
    text = block[:MAX_BLOCK_LENGTH]
    found = tuple(_parse_json_calls(text, names))[:MAX_CALLS]
    # A name with nothing to it is believed only when no other reading gives arguments.
    if found and any(call.arguments for call in found):
        return found
    return (
        _parse_tag_calls(text, names)
        or found
        or _parse_program_in_text(text, names)
        or _parse_name_only(text, names)
    )


def cut_at_observation(block: str) -> str:
    """A script up to its first observation. That one is invented, so what builds on it is not to be done."""
    found = _OBSERVATION_LABEL.search(block, 0, MAX_BLOCK_LENGTH)
    return block if found is None else block[: found.start()]


def parse_json_value(text: str) -> object:
    """What this text is as JSON, with a spare comma or as a Python literal; None when it is neither."""
    for candidate in (text, _remove_spare_commas(text)):
        try:
            return json.loads(candidate, parse_constant=_reject_constant, strict=False)
        except (ValueError, RecursionError):
            continue
    return parse_literal(text)


def _parse_json_calls(text: str, names: WrittenToolNames) -> Iterator[WrittenCall]:
    """Calls in JSON. An object that is no call is the arguments of the name that stands before it."""
    at = behind = 0
    for _ in range(_MAX_PARSE_ATTEMPTS):
        opening = _JSON_OPENING.search(text, at)
        if opening is None:
            return
        value, at = _parse_value_at(text, opening.start())
        if value is None:
            # Inside an object that broke off, what is whole is only a part of the arguments.
            if opening[0] == "{":
                return
            at = opening.end()
            continue
        calls = find_calls(value, names)
        if not calls and isinstance(value, dict):
            name = _find_last_name(text[behind : opening.start()], names)
            calls = (
                (WrittenCall(name=name, arguments=parse_json_arguments(cast("object", value))),)
                if name
                else ()
            )
        if calls:
            behind = at
        yield from calls


def _parse_value_at(text: str, start: int) -> tuple[object, int]:
    """The value that begins here and where it ends; None when it cannot be read."""
    try:
        return _JSON_DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        end = find_value_end(text, start, final=True)
    return (None, start) if end is None else (parse_json_value(text[start:end]), end)


def _find_last_name(text: str, names: WrittenToolNames) -> str:
    """The last real tool named here."""
    words = [found[0] for found in _NAME_WORD.finditer(text[-400:])]
    return next((word for word in reversed(words) if names.is_known(word)), "")


def _parse_tag_calls(text: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """One call per named tag, each with the parameters that follow it."""
    marks = [(found.start(), found[1]) for found in _NAMED_TAG.finditer(text)][:MAX_CALLS]
    if not marks:
        marks = [(found.start(), found[1]) for found in _NAME_TAG.finditer(text) if names.is_known(found[1])]
    if not marks:
        marks = [
            (found.start(), found[0]) for found in _NAME_WORD.finditer(text[:400]) if names.is_known(found[0])
        ][:1]
    calls: list[WrittenCall] = []
    for index, (start, name) in enumerate(marks[:MAX_CALLS]):
        end = marks[index + 1][0] if index + 1 < len(marks) else len(text)
        arguments = _parse_tag_arguments(text[start:end], name)
        if arguments is not None:
            calls.append(WrittenCall(name=name, arguments=arguments))
    return tuple(calls)


def _parse_tag_arguments(text: str, name: str) -> JsonObject | None:
    for pattern in (_PARAMETER_TAG, _TAG_PAIR, _OPEN_TAG_PAIR):
        if found := pattern.findall(text):
            return {key: _parse_tag_value(value) for key, value in found[:MAX_CALLS]}
    leaves = [
        (key, value)
        for key, value in _LEAF_TAG.findall(text)
        if key.lower() not in _WRAPPER_TAGS and key != name
    ]
    if leaves:
        return {key: _parse_tag_value(value) for key, value in leaves[:MAX_CALLS]}
    return None


def _parse_tag_value(text: str) -> Json:
    """What stands in a tag: JSON where it is a number, a truth or a container, else text as it is."""
    inner = text.strip("\n")
    try:
        value: object = json.loads(inner, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return inner
    if isinstance(value, str) or check_json(value) is not None:
        return inner
    return cast("Json", value)


_CALL_IN_TEXT: Final = re.compile(r"\[?\s*(?:print\(\s*)?[^\W\d][\w.]{0,120}\s*\(")


def _parse_program_in_text(text: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """Program text somewhere in the block, beginning with a call and ending with its line or the block."""
    for found in list(_CALL_IN_TEXT.finditer(text))[:8]:
        end = _find_program_end(text, found.start())
        calls = parse_program_calls(text[found.start() : end])
        if any(names.is_known(call.name) for call in calls):
            return calls
    return ()


def _find_program_end(text: str, start: int) -> int:
    from_last = max(text.rfind(")", start), text.rfind("]", start))
    marker = text.find("<", start)
    if marker >= 0 and from_last > marker:
        from_last = max(text.rfind(")", start, marker), text.rfind("]", start, marker))
    return from_last + 1 if from_last >= 0 else len(text)


def _parse_name_only(text: str, names: WrittenToolNames) -> tuple[WrittenCall, ...]:
    """A real tool named and nothing more that can be read."""
    name = next((found[0] for found in _NAME_WORD.finditer(text[:600]) if names.is_known(found[0])), "")
    return (WrittenCall(name=name, arguments=None),) if name else ()


def _remove_spare_commas(text: str) -> str:
    return _SPARE_COMMA.sub(lambda match: match[0] if match[0] != "," else "", text)
