"""What the start of a line begins: a label, a call as program text, a line drawn around a call."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.blocks import find_call_block_end, find_paragraph_end, may_begin_block
from fingerpost.choose.guard.brackets import find_value_end
from fingerpost.choose.guard.delimiters import examine_delimiter
from fingerpost.choose.guard.labels import match_label
from fingerpost.choose.guard.literals import parse_program_calls
from fingerpost.choose.guard.modes import MarkedCall
from fingerpost.choose.guard.names import is_distinctive, is_namespaced, is_tool_like
from fingerpost.choose.guard.react import examine_label
from fingerpost.choose.guard.reading import parse_json_value
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict

_MAX_LINE_HEAD_LENGTH: Final = 200
_LINE_CALL: Final = re.compile(r"[ \t]{0,8}(?:print\(|await )?[ \t]?(?!print\()([^\W\d][\w.]{1,120})\(")
_LINE_CALL_START: Final = re.compile(r"[ \t]{0,8}(?:print\(|await )?[ \t]?([^\W\d][\w.]{0,120})?\Z")
_CHANNEL_LINE: Final = re.compile(r"[ \t]{0,4}>{3}([\w.\-/]{1,120})\n\s{0,9}(?=\{)")
_CHANNEL_LINE_START: Final = re.compile(r"[ \t]{0,4}>{1,3}(?:[\w.\-/]{1,120}\n?\s{0,9})?\Z")
_NAME_AND_ARGUMENTS: Final = re.compile(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) )?"
    r"([^\W\d][\w.\-/]{1,120})[ \t]?\n?[ \t]{0,8}(?=\{)"
)
_NAME_AND_ARGUMENTS_START: Final = re.compile(
    r"[ \t]{0,8}(?:[@/!]|/(?:tool|call|use) |/[a-z]{0,4}\Z)?"
    r"(?:([^\W\d][\w.\-/]{0,120})[ \t]?\n?[ \t]{0,8})?\Z"
)
_NAME_START: Final = r"[a-z]+(?:_\w*|[A-Z]\w*)?"
_LINE_SIGNS: Final = r"(?:[=\-*~+_%@]{2,12}|#{1,6})"
_MAX_RULER_LENGTH: Final = 100
_RULER_LINE: Final = re.compile(
    rf"[ \t]{{0,4}}{_LINE_SIGNS}[ \t]?(?P<end>end(?:[ _]of)?[ _]|סוף "
    r")?(?:(?:begin|start)(?:[ _]of)?[ _]|תחילת )?"
    r"(?:\w{1,20}[ _]){0,3}?"
    r"(?:(?:tool|function)[ _-]?(?:calls?|use|request|invocation|code)|קריאה לכלי|קריאת כלי)"
    r"[ \t]?:?[ \t]?[=\-*#~+_%@]{0,12}[ \t]{0,9}(?=\n|\Z)",
    re.IGNORECASE,
)
_RULER_LINE_START: Final = re.compile(
    rf"[ \t]{{0,4}}(?:[=\-*~+_%@#]{{1,12}}"
    rf"|{_LINE_SIGNS}[ \t]?[\w \t\-]{{0,90}}:?[ \t]?[=\-*#~+_%@]{{0,12}}[ \t]{{0,9}})\Z"
)
_RULER_LINE_CLOSER: Final = re.compile(
    r"\n[ \t]{0,4}[=\-*#~+_%@]{1,12}[ \t]?(?:end|/|סוף)[^\n]{0,60}(?=\n|\Z)", re.IGNORECASE
)


def examine_line(position: ScanPosition) -> ScanVerdict | None:
    """What begins with this line; None: nothing, the rest is looked at as usual."""
    block = _examine_call_block(position)
    if block is not None:
        return block
    rest, complete = position.look_ahead(position.at, _MAX_LINE_HEAD_LENGTH)
    label = match_label(position.text, position.at, final=position.final)
    if not isinstance(label, bool):
        return examine_label(position, label)
    delimiter = examine_delimiter(position)
    if delimiter is not None:
        return delimiter
    drawn = _RULER_LINE.match(rest)
    if drawn is not None and drawn.end() < _MAX_RULER_LENGTH and (drawn.end() < len(rest) or complete):
        return _examine_ruler_line(position, position.at + drawn.end(), ending=bool(drawn["end"]))
    channel = _CHANNEL_LINE.match(rest)
    if channel is not None:
        known = position.names.is_known(channel[1]) and not position.is_about_syntax
        return HideUntil(position.at + channel.end(), "functionary", MarkedCall(None)) if known else None
    named = _NAME_AND_ARGUMENTS.match(rest)
    if named is not None:
        return _examine_named_call(position, named)
    program = _LINE_CALL.match(rest)
    if program is not None:
        return _examine_program_line(position, program)
    if complete:
        return None
    return WAIT_FOR_MORE if label or _may_begin_syntax(rest, position) else None


def _examine_call_block(position: ScanPosition) -> ScanVerdict | None:
    """Lines of a session or of YAML that are a call; None: they are not."""
    if not position.accepts_lines or _is_in_session(position.before):
        return None
    rest, complete = position.look_ahead(position.at, 2 * _MAX_LINE_HEAD_LENGTH)
    may_be = may_begin_block(rest)
    if not may_be:
        return WAIT_FOR_MORE if may_be is None and not complete else None
    end = find_paragraph_end(position.text, position.at, position.limit)
    if end is None and not position.is_closed:
        return WAIT_FOR_MORE
    length = find_call_block_end(position.text[position.at : position.limit if end is None else end])
    return HideUntil(position.at + length, "lines") if length else None


def _is_in_session(before: str) -> bool:
    """Whether what was shown just before this line is part of a session that is no call."""
    return ">>>" in before.rpartition("\n\n")[2]


def _may_begin_syntax(rest: str, position: ScanPosition) -> bool:
    named = _NAME_AND_ARGUMENTS_START.match(rest)
    first = not position.before.strip() and position.accepts_unknown_tools
    invented = first and named is not None and re.fullmatch(_NAME_START, (named[1] or "")) is not None
    if named is not None and (not named[1] or position.names.is_prefix(named[1]) or invented):
        return True
    if "\n" in rest:
        return _CHANNEL_LINE_START.match(rest) is not None
    if _CHANNEL_LINE_START.match(rest) or (_RULER_LINE_START.match(rest) and len(rest) <= _MAX_RULER_LENGTH):
        return True
    program = _LINE_CALL_START.match(rest)
    if program is None:
        return False
    word = program[1] or ""
    if not word:
        return not rest.strip() or rest.endswith(("(", " "))
    if first and re.fullmatch(_NAME_START, word):
        return True
    return position.names.is_prefix(word) or any(prefix.startswith(word) for prefix in ("print", "await"))


def _examine_ruler_line(position: ScanPosition, end: int, *, ending: bool) -> ScanVerdict | None:
    """A line such as `=== TOOL CALL ===`; a heading of that name is one too, so what follows decides."""
    if position.is_about_syntax:
        return None
    if ending:
        return HideUntil(end, "marker", is_stray=True)
    rest, complete = position.look_ahead(end, 300)
    behind = rest.lstrip()
    if not complete:
        return WAIT_FOR_MORE
    behind = re.sub(r"\A`{3}\w{0,12}\s*", "", behind)
    word = re.match(
        r"(?:(?:tool|name|function|כלי|שם)[ \t]?:[ \t]?)?[`\"']?([\w.\-/]{2,120})", behind, re.IGNORECASE
    )
    named = word is not None and position.names.is_known(word[1]) and is_distinctive(word[1])
    if not named and not re.match(r"\{\s{0,9}[\"'](?:name|tool|function|action|tool_name)[\"']", behind):
        return None
    return HideUntil(end, "marker", MarkedCall(_RULER_LINE_CLOSER))


def _examine_named_call(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    """`get_weather {"city": "Haifa"}`: a tool's name and its arguments, and nothing between them."""
    unknown = not position.before.strip() and is_tool_like(found[1]) and position.accepts_unknown_tools
    if (
        not (is_distinctive(found[1]) and (position.names.is_known_from_start(found[1]) or unknown))
        or position.is_about_syntax
    ):
        return None
    start = position.at + found.end()
    length = find_value_end(position.text[start : position.limit], 0)
    if length is None:
        return None if position.is_closed else WAIT_FOR_MORE
    if not isinstance(parse_json_value(position.text[start : start + length]), dict):
        return None
    return HideUntil(start + length, "marker")


def _examine_program_line(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    """`get_weather(city="Haifa")` as a line of its own."""
    unknown = position.accepts_unknown_tools and (
        is_namespaced(found[1]) or (is_tool_like(found[1]) and not position.before.strip())
    )
    if not (position.names.is_known_from_start(found[1]) or unknown) or position.is_about_syntax:
        return None
    start = position.at + found.start(1)
    wrapped = found[0].lstrip().startswith("print(")
    opening = position.at + found.end() - 1 if not wrapped else position.text.index("(", position.at)
    length = find_value_end(position.text[opening : position.limit], 0)
    if length is None:
        return WAIT_FOR_MORE if not position.is_closed else None
    end = opening + length
    behind, complete = position.look_ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t;"):
        return None
    if not newline and not complete:
        return WAIT_FOR_MORE
    begin = position.text.index("print(", position.at) if wrapped else start
    calls = parse_program_calls(position.text[begin:end])
    if calls and unknown and is_namespaced(calls[0].name):
        return HideUntil(end, "pythonic")
    if not calls or not all(call.has_keywords for call in calls) or not any(call.arguments for call in calls):
        return None
    if not position.names.is_known_from_start(found[1]) and position.text[end : position.limit].strip(
        " \t\n;"
    ):
        return None  # only where it is all of the answer
    if not position.names.is_known_from_start(found[1]) and not position.is_closed:
        return WAIT_FOR_MORE
    return HideUntil(end, "pythonic")
