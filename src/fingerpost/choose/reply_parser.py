"""Parse JSON objects and confidences from model replies."""

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
from fingerpost.records.json import MAX_DEPTH, to_valid_text
from fingerpost.redaction import scrub

T = TypeVar("T")

MAX_REPLY_LENGTH: Final = 100_000  # characters searched for objects; far above the size asked for
MAX_OBJECTS: Final = 200
_MAX_STRAY_BRACKETS: Final = 4  # unclosed braces in prose; each costs a scan of the rest
_MAX_REPEATED_LENGTH: Final = 2_000
_MAX_TEXT_LENGTH: Final = 20_000

_THOUGHT_TAG: Final = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_OBJECT_OPENING: Final = re.compile(r"[{\[]")
# The start of data, valid or not. A brace or bracket followed by anything else is prose.
_DATA_START: Final = re.compile(
    r"""\{\s*+(?:["'{}\[/\#]|[\w$-]{1,40}+\s*+[:=])|\[\s*+(?:["'{\[\]/\#0-9-]|true|false|null)"""
)
# A string, even an unclosed one, is matched as a whole, so that brackets inside it do not count.
_STRINGS_AND_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_SPARE_COMMA: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*+[}\]])', re.DOTALL)
_UNQUOTED_CLAIM: Final = re.compile(r'("confidence"\s{0,9}:\s{0,9})([^\s",{}\[\]\\]{1,40})', re.IGNORECASE)


@frozen
class UnusableReply:
    """A reply that cannot be parsed, with a description of the problem for the model."""

    problem: str


async def ask_and_parse(
    ask: Ask, request: ModelRequest, parse: Callable[[ModelReply], T | UnusableReply]
) -> T | UnusableReply:
    """Ask the model and parse the reply. If it is unusable, ask once more with the problem.

    A `ModelError` is not caught.
    """
    reply = await ask(request)
    found = parse(reply)
    if not isinstance(found, UnusableReply):
        return found
    return parse(await ask(_build_retry_request(request, reply, found.problem)))


def _build_retry_request(request: ModelRequest, reply: ModelReply, problem: str) -> ModelRequest:
    text = to_valid_text(reply.text[:_MAX_REPEATED_LENGTH]).strip()
    before = (Message(role="assistant", text=text),) if text else ()
    correction = (
        f"That could not be used: {problem}. Answer once more, with JSON only, in the form asked for."
    )
    return replace(request, messages=(*request.messages, *before, Message(role="user", text=correction)))


def build_unusable_reply(reply: ModelReply, problem: str) -> UnusableReply:
    """Build an unusable reply with this problem, and a note if the reply was truncated."""
    cut = "; it was cut short, so answer more briefly" if reply.finish == "length" else ""
    return UnusableReply(problem=f"{problem}{cut}")


def find_outermost_objects(text: str, *, whole: bool = False) -> list[tuple[JsonObject, ...]]:
    """Return the outermost objects in `text`, in order. The objects of one list form one group.

    With `whole`, a text that is one JSON value may have any length, because it may contain an answer.
    """
    found = _group_objects(decode_json((text if whole else text[:MAX_REPLY_LENGTH]).strip()))
    if found:
        return [found]
    return [
        group
        for value in _scan_values(_strip_thoughts(text[:MAX_REPLY_LENGTH]))
        if (group := _group_objects(value))
    ]


def _group_objects(value: object) -> tuple[JsonObject, ...]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(cast("JsonObject", each) for each in values[:MAX_OBJECTS] if isinstance(each, dict))


def _strip_thoughts(text: str) -> str:
    """Return the text after the reasoning. Reasoning without an end is removed."""
    begin, end, thinking = 0, len(text), False
    for tag in _THOUGHT_TAG.finditer(text):
        if tag[1]:
            begin, end, thinking = tag.end(), len(text), False
        elif not thinking:
            end, thinking = tag.start(), True
    return text[begin:end]


def _scan_values(text: str) -> Iterator[object]:
    at, strays = 0, 0
    for _ in range(MAX_OBJECTS):
        opening = _OBJECT_OPENING.search(text, at)
        if opening is None:
            return
        begin = opening.start()
        end = _find_closing_bracket(text, begin)
        if end is not None:
            at = end
            yield decode_json(text[begin:end])
        elif _DATA_START.match(text, begin) or strays == _MAX_STRAY_BRACKETS:
            return  # cut off: the rest is inside this value
        else:
            at, strays = begin + 1, strays + 1


def _find_closing_bracket(text: str, begin: int) -> int | None:
    """Return the end of the bracket at `begin`. Return None when it is not closed or nested too deeply."""
    depth = 0
    for mark in _STRINGS_AND_BRACKETS.finditer(text, begin):
        if mark[0] in "{[":
            depth += 1
            if depth > 2 * MAX_DEPTH:
                return None  # too deep to be stored
        elif mark[0] in "}]":
            depth -= 1
            if depth == 0:
                return mark.end()
    return None


def decode_json(text: str) -> object:
    """Parse JSON or return None. A trailing comma and an unquoted confidence are repaired."""
    if not text.startswith(("{", "[")):
        return None
    for candidate in (text, _repair_json(text)):
        try:
            return json.loads(
                candidate,
                strict=False,
                object_pairs_hook=_reject_repeated_keys,
                parse_constant=_reject_constant,
            )
        except (ValueError, RecursionError):
            continue
    return None


def _repair_json(text: str) -> str:
    text = _SPARE_COMMA.sub(lambda match: "" if match[0] == "," else match[0], text)
    return _UNQUOTED_CLAIM.sub(_quote_claim, text)


def _quote_claim(match: re.Match[str]) -> str:
    try:
        json.loads(match[2], parse_constant=_reject_constant)
    except ValueError:
        return f'{match[1]}"{match[2]}"'
    return match[0]


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            message = f"two values for {key[:40]!r}"
            raise ValueError(message)
        found[key] = value
    return found


def _reject_constant(constant: str) -> NoReturn:
    message = f"{constant} is not JSON"
    raise ValueError(message)


def get_plain_fields(entry: object) -> Mapping[str, Json]:
    """Return the fields of an object under normalized names: `Tool-Name` becomes `tool_name`. Return nothing
    for other values.
    """
    if not isinstance(entry, Mapping):
        return {}
    written = cast("JsonObject", entry)
    return {re.sub(r"[\s-]+", "_", key[:64].strip().casefold()): value for key, value in written.items()}


def parse_confidence(value: object) -> float | None:
    """Parse a confidence to 0..1 as models write it: 0.85, 85, "85%". Return None if it is none.

    Values from 1 to below 2 become 1, values from 2 to 100 are percent, and negative values become 0.
    """
    if isinstance(value, str):
        value = _parse_number(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not -math.inf < value <= 100:  # NaN, infinite, or out of range
        return None
    return min(1.0, max(0.0, float(value))) if value < 2 else value / 100


def _parse_number(text: str) -> float | None:
    share = text.endswith("%")
    digits = text.removesuffix("%").strip().replace(",", ".", 1)
    if not re.fullmatch(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})", digits):
        return None
    return float(digits) / 100 if share and float(digits) <= 100 else None if share else float(digits)


def to_single_line(value: object, limit: int) -> str:
    """Return the text on one line with at most `limit` characters. Return an empty string for other
    values.
    """
    if not isinstance(value, str):
        return ""
    line = scrub(" ".join(to_valid_text(value[:_MAX_TEXT_LENGTH]).split()))
    return line if len(line) <= limit else f"{line[: limit - 1].rstrip()}…"
