"""Changing one entry of a JSON file as text, so that comments, order and spacing of the rest stay.

Comments and trailing commas are first blanked, character for character: what is
left is plain JSON, in which every place is also a place of the real text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.settings.jsonc import plain_json

_SPACE = re.compile(r"[ \t\r\n]*")
_COMMENT_OR_COMMA = re.compile(r"//[^\r\n]*|/\*.*?\*/|,", re.DOTALL)
_INDENT = re.compile(r"^([ \t]+)\S", re.MULTILINE)
_DECODER: Final = json.JSONDecoder()


class NotEditable(Exception):
    """The text is not built in a way we can change safely; the message says why."""


@frozen(kw_only=False)
class _Member:
    key: str
    start: int  # of the key's quote
    value: int
    end: int


@frozen(kw_only=False)
class _Object:
    start: int  # of {
    end: int  # of }
    members: tuple[_Member, ...]

    def last(self, key: str) -> _Member | None:
        """The member of this name; of several the one that a parser keeps."""
        return next((member for member in reversed(self.members) if member.key == key), None)


def put(text: str, place: Sequence[str], name: str, value: object) -> str:
    """`text` with `value` under `name` in the object at `place`, which is made where it is missing."""
    plain = plain_json(text)
    if not plain.strip():
        whole = json.dumps(_nested([*place, name], value), indent=2, ensure_ascii=False)
        return f"{text.rstrip()}\n{whole}\n" if text.strip() else f"{whole}\n"
    at = _SPACE.match(plain)
    found = _object(plain, at.end() if at else 0)
    for depth, key in enumerate(place):
        member = found.last(key)
        if member is None:
            return _insert(text, found, key, _nested([*place[depth + 1 :], name], value))
        if plain[member.value] != "{":
            message = f'"{key}" is not an object'
            raise NotEditable(message)
        found = _object(plain, member.value)
    present = found.last(name)
    if present is None:
        return _insert(text, found, name, value)
    indent = _line_indent(text, present.start)
    written = _render(value, indent, _unit(text), _newline(text), inline=_on_one_line(text, found))
    return text[: present.value] + written + text[present.end :]


def drop(text: str, place: Sequence[str], name: str) -> str:
    """`text` without `name` in the object at `place`; the same text when it is not there."""
    plain = plain_json(text)
    if not plain.strip():
        return text
    at = _SPACE.match(plain)
    found = _object(plain, at.end() if at else 0)
    for key in place:
        member = found.last(key)
        if member is None or plain[member.value] != "{":
            return text
        found = _object(plain, member.value)
    while (member := found.last(name)) is not None:
        text = _without(text, found, member)
        found = _object(plain_json(text), found.start)
    return text


def _nested(path: Sequence[str], value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


def _object(plain: str, start: int) -> _Object:
    """The members of the object that begins at `start` of a valid JSON text."""
    members: list[_Member] = []
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        key, after = _DECODER.raw_decode(plain, at)
        value = _skip(plain, _skip(plain, after) + 1)
        _, end = _DECODER.raw_decode(plain, value)
        members.append(_Member(key, at, value, end))
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)
    return _Object(start, at, tuple(members))


def _skip(plain: str, at: int) -> int:
    match = _SPACE.match(plain, at)
    return match.end() if match else at


def _insert(text: str, into: _Object, key: str, value: object) -> str:
    """A new member after the last one, in the manner of those that are there."""
    newline, unit = _newline(text), _unit(text)
    inline = bool(into.members) and _on_one_line(text, into)
    outer = _line_indent(text, into.start)
    indent = _line_indent(text, into.members[-1].start) if into.members else outer + unit
    member = f"{json.dumps(key, ensure_ascii=False)}: {_render(value, indent, unit, newline, inline=inline)}"
    if not into.members:
        kept = text[into.start + 1 : into.end].rstrip()  # comments, perhaps
        return f"{text[: into.start + 1]}{kept}{newline}{indent}{member}{newline}{outer}{text[into.end :]}"
    last = into.members[-1]
    comma = _comma(text, last.end, into.end)
    tail = text[last.end : into.end]
    rest = tail.rstrip()  # comments behind the last member stay with it
    before = text[: last.end] + ("" if comma is not None else ",") + rest
    gap = " " if inline else newline + indent
    after_ours = "," if comma is not None else ""
    return f"{before}{gap}{member}{after_ours}{tail[len(rest) :]}{text[into.end :]}"


def _without(text: str, inside: _Object, member: _Member) -> str:
    place = inside.members.index(member)
    before = text[: member.start].rstrip()
    if plain_json(text)[len(before) - 1].isspace():  # a comment stands there, and its line must end
        before = text[: member.start].rstrip(" \t")
    following = inside.members[place + 1].start if place + 1 < len(inside.members) else inside.end
    comma = _comma(text, member.end, following)
    after = text[member.end :] if comma is None else text[member.end : comma] + text[comma + 1 :]
    if comma is None and place > 0:  # it was the last: the comma in front of it goes
        previous = inside.members[place - 1]
        at = _comma(text, previous.end, member.start)
        if at is not None:
            before = before[:at] + before[at + 1 :]
    left = before + after
    inner = left[inside.start + 1 : len(left) - (len(text) - inside.end)]
    return left if inner.strip() else f"{left[: inside.start]}{{}}{text[inside.end + 1 :]}"


def _comma(text: str, start: int, end: int) -> int | None:
    """Where the comma is between two members, comments passed over."""
    return next((m.start() for m in _COMMENT_OR_COMMA.finditer(text, start, end) if m[0] == ","), None)


def _render(value: object, indent: str, unit: str, newline: str, *, inline: bool) -> str:
    if inline:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return f"{newline}{indent}".join(lines)


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _on_one_line(text: str, found: _Object) -> bool:
    return "\n" not in text[found.start : found.end]


def _unit(text: str) -> str:
    """What one level is indented by: the smallest step from one line to a deeper next one."""
    indents = [match[1] for match in _INDENT.finditer(text)]
    if not indents:
        return "  "
    if indents[0].startswith("\t"):
        return "\t"
    widths = [0, *(len(indent) for indent in indents)]
    steps = [second - first for first, second in pairwise(widths) if second > first]
    return " " * min(steps, default=2)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
