"""What the start of a line begins: a label, a call as program text, a line drawn around a call."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.blocks import call_block_end, may_begin_block, paragraph_end
from fingerpost.choose.guard.brackets import value_end
from fingerpost.choose.guard.delimiters import examine_delimiter
from fingerpost.choose.guard.labels import label_at
from fingerpost.choose.guard.literals import program_calls
from fingerpost.choose.guard.modes import Body
from fingerpost.choose.guard.names import distinctive, is_invented, is_namespaced
from fingerpost.choose.guard.react import examine_label
from fingerpost.choose.guard.reading import json_value
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Verdict

_LONGEST_HEAD: Final = 200
_PROGRAM: Final = re.compile(r"[ \t]{0,8}(?:print\(|await )?[ \t]?(?!print\()([^\W\d][\w.]{1,120})\(")
_PROGRAM_BEGUN: Final = re.compile(r"[ \t]{0,8}(?:print\(|await )?[ \t]?([^\W\d][\w.]{0,120})?\Z")
_CHANNEL: Final = re.compile(r"[ \t]{0,4}>{3}([\w.\-/]{1,120})\n\s{0,9}(?=\{)")
_CHANNEL_BEGUN: Final = re.compile(r"[ \t]{0,4}>{1,3}(?:[\w.\-/]{1,120}\n?\s{0,9})?\Z")
_NAMED: Final = re.compile(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) )?"
    r"([^\W\d][\w.\-/]{1,120})[ \t]?\n?[ \t]{0,8}(?=\{)"
)
_NAMED_BEGUN: Final = re.compile(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) |/[a-z]{0,4}\Z)?"
    r"(?:([^\W\d][\w.\-/]{0,120})[ \t]?\n?[ \t]{0,8})?\Z"
)
_NAME_BEGUN: Final = r"[a-z]+(?:_\w*|[A-Z]\w*)?"
_SIGNS: Final = r"(?:[=\-*~+_%@]{2,12}|#{1,6})"
_LONGEST_DRAWN: Final = 100
_DRAWN: Final = re.compile(
    rf"[ \t]{{0,4}}{_SIGNS}[ \t]?(?P<end>end(?:[ _]of)?[ _]|סוף )?(?:(?:begin|start)(?:[ _]of)?[ _]|תחילת )?"
    r"(?:\w{1,20}[ _]){0,3}?"
    r"(?:(?:tool|function)[ _-]?(?:calls?|use|request|invocation|code)|קריאה לכלי|קריאת כלי)"
    r"[ \t]?:?[ \t]?[=\-*#~+_%@]{0,12}[ \t]{0,9}(?=\n|\Z)",
    re.IGNORECASE,
)
_DRAWN_BEGUN: Final = re.compile(
    rf"[ \t]{{0,4}}(?:[=\-*~+_%@#]{{1,12}}"
    rf"|{_SIGNS}[ \t]?[\w \t\-]{{0,90}}:?[ \t]?[=\-*#~+_%@]{{0,12}}[ \t]{{0,9}})\Z"
)
_DRAWN_CLOSER: Final = re.compile(
    r"\n[ \t]{0,4}[=\-*#~+_%@]{1,12}[ \t]?(?:end|/|סוף)[^\n]{0,60}(?=\n|\Z)", re.IGNORECASE
)


def examine_line(place: Place) -> Verdict | None:
    """What begins with this line; None: nothing, the rest is looked at as usual."""
    block = _examine_block(place)
    if block is not None:
        return block
    rest, complete = place.ahead(place.at, _LONGEST_HEAD)
    label = label_at(place.text, place.at, final=place.final)
    if not isinstance(label, bool):
        return examine_label(place, label)
    delimiter = examine_delimiter(place)
    if delimiter is not None:
        return delimiter
    drawn = _DRAWN.match(rest)
    if drawn is not None and drawn.end() < _LONGEST_DRAWN and (drawn.end() < len(rest) or complete):
        return _drawn(place, place.at + drawn.end(), ending=bool(drawn["end"]))
    channel = _CHANNEL.match(rest)
    if channel is not None:
        known = place.names.knows(channel[1]) and not place.about
        return Hide(place.at + channel.end(), "functionary", Body(None)) if known else None
    named = _NAMED.match(rest)
    if named is not None:
        return _named(place, named)
    program = _PROGRAM.match(rest)
    if program is not None:
        return _program(place, program)
    if complete:
        return None
    return WAIT if label or _begun(rest, place) else None


def _examine_block(place: Place) -> Verdict | None:
    """Lines of a session or of YAML that are a call; None: they are not."""
    if not place.takes_lines or _continues_session(place.before):
        return None
    rest, complete = place.ahead(place.at, 2 * _LONGEST_HEAD)
    may_be = may_begin_block(rest)
    if not may_be:
        return WAIT if may_be is None and not complete else None
    end = paragraph_end(place.text, place.at, place.limit)
    if end is None and not place.closed:
        return WAIT
    length = call_block_end(place.text[place.at : place.limit if end is None else end])
    return Hide(place.at + length, "lines") if length else None


def _continues_session(before: str) -> bool:
    """Whether what was shown just before this line is part of a session that is no call."""
    return ">>>" in before.rpartition("\n\n")[2]


def _begun(rest: str, place: Place) -> bool:
    named = _NAMED_BEGUN.match(rest)
    first = not place.before.strip() and place.takes_unknown
    invented = first and named is not None and re.fullmatch(_NAME_BEGUN, (named[1] or "")) is not None
    if named is not None and (not named[1] or place.names.begins(named[1]) or invented):
        return True
    if "\n" in rest:
        return _CHANNEL_BEGUN.match(rest) is not None
    if _CHANNEL_BEGUN.match(rest) or (_DRAWN_BEGUN.match(rest) and len(rest) <= _LONGEST_DRAWN):
        return True
    program = _PROGRAM_BEGUN.match(rest)
    if program is None:
        return False
    word = program[1] or ""
    if not word:
        return not rest.strip() or rest.endswith(("(", " "))
    if first and re.fullmatch(_NAME_BEGUN, word):
        return True
    return place.names.begins(word) or any(prefix.startswith(word) for prefix in ("print", "await"))


def _drawn(place: Place, end: int, *, ending: bool) -> Verdict | None:
    """A line such as `=== TOOL CALL ===`; a heading of that name is one too, so what follows decides."""
    if place.about:
        return None
    if ending:
        return Hide(end, "marker", alone=True)
    rest, complete = place.ahead(end, 300)
    behind = rest.lstrip()
    if not complete:
        return WAIT
    behind = re.sub(r"\A`{3}\w{0,12}\s*", "", behind)
    word = re.match(
        r"(?:(?:tool|name|function|כלי|שם)[ \t]?:[ \t]?)?[`\"']?([\w.\-/]{2,120})", behind, re.IGNORECASE
    )
    named = word is not None and place.names.knows(word[1]) and distinctive(word[1])
    if not named and not re.match(r"\{\s{0,9}[\"'](?:name|tool|function|action|tool_name)[\"']", behind):
        return None
    return Hide(end, "marker", Body(_DRAWN_CLOSER))


def _named(place: Place, found: re.Match[str]) -> Verdict | None:
    """`get_weather {"city": "Haifa"}`: a tool's name and its arguments, and nothing between them."""
    unknown = not place.before.strip() and is_invented(found[1]) and place.takes_unknown
    if not (distinctive(found[1]) and (place.names.foreseen(found[1]) or unknown)) or place.about:
        return None
    start = place.at + found.end()
    length = value_end(place.text[start : place.limit], 0)
    if length is None:
        return None if place.closed else WAIT
    if not isinstance(json_value(place.text[start : start + length]), dict):
        return None
    return Hide(start + length, "marker")


def _program(place: Place, found: re.Match[str]) -> Verdict | None:
    """`get_weather(city="Haifa")` as a line of its own."""
    unknown = place.takes_unknown and (
        is_namespaced(found[1]) or (is_invented(found[1]) and not place.before.strip())
    )
    if not (place.names.foreseen(found[1]) or unknown) or place.about:
        return None
    start = place.at + found.start(1)
    wrapped = found[0].lstrip().startswith("print(")
    opening = place.at + found.end() - 1 if not wrapped else place.text.index("(", place.at)
    length = value_end(place.text[opening : place.limit], 0)
    if length is None:
        return WAIT if not place.closed else None
    end = opening + length
    behind, complete = place.ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t;"):
        return None
    if not newline and not complete:
        return WAIT
    begin = place.text.index("print(", place.at) if wrapped else start
    calls = program_calls(place.text[begin:end])
    if calls and unknown and is_namespaced(calls[0].written):
        return Hide(end, "pythonic")
    if not calls or not all(call.keyworded for call in calls) or not any(call.arguments for call in calls):
        return None
    if not place.names.foreseen(found[1]) and place.text[end : place.limit].strip(" \t\n;"):
        return None  # only where it is all of the answer
    if not place.names.foreseen(found[1]) and not place.closed:
        return WAIT
    return Hide(end, "pythonic")
