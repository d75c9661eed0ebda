"""Code in backticks. Code is shown as it is, unless all of it is one call of a real tool.

A block about syntax, a configuration file, an example request: all of them are code and
stay. What models do wrong is to put the call itself into a block, and that is a whole one.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard import forms
from fingerpost.choose.guard.blocks import find_call_block_end, may_begin_block
from fingerpost.choose.guard.forms import MarkerKind
from fingerpost.choose.guard.labels import LABEL_PATTERN, may_become_label
from fingerpost.choose.guard.literals import parse_program_calls
from fingerpost.choose.guard.modes import UntilCloser
from fingerpost.choose.guard.names import is_distinctive, is_namespaced, is_tool_like
from fingerpost.choose.guard.reading import parse_calls
from fingerpost.choose.guard.tags import STRONG_TAGS, WEAK_TAGS, normalize_tag_name
from fingerpost.choose.guard.talk import is_about_syntax, is_announcement, is_announcing_call
from fingerpost.choose.guard.values import has_call_shape, is_real_tool_call, may_be_call_head
from fingerpost.choose.guard.verdicts import (
    WAIT_FOR_MORE,
    HideUntil,
    ScanPosition,
    ScanVerdict,
    ShowCodeBlock,
    ShowUntil,
)

_MAX_SPAN_LENGTH: Final = 1_000
_MAX_INFO_LENGTH: Final = 120
_MAX_CODE_HEAD_LENGTH: Final = 400
_BACKTICK_RUN: Final = re.compile(r"`+|~{3,}")
_TOOL_INFO_STRING: Final = re.compile(
    r"\s*(?:json|xml|python|text)?[\s:_-]*(?:tool[_ -]?(?:calls?|code|use|request|invocation)"
    r"|function[_ -]?calls?|tools?|קריאה לכלי)\s*",
    re.IGNORECASE,
)
_INFO_LANGUAGE: Final = re.compile(r"\A(?:json|xml|python|text|tool_code|tool_call)\s+(?=\S)", re.IGNORECASE)
_CODE_CALL: Final = re.compile(r"\[?\s{0,9}(?:print\(\s{0,9})?(?!print\()([^\W\d][\w.]{0,120})\s?\(")
_CODE_CALL_START: Final = re.compile(r"\[?\s{0,9}(?:print\(\s{0,9})?(?:[^\W\d][\w.]{0,120})?\s?\Z")


def build_fence_closer(fence: str) -> re.Pattern[str]:
    """How a code block that was opened so ends; models forget the line break before it."""
    sign = re.escape(fence[0])
    return re.compile(rf"(?:\n[ \t>]{{0,12}}|(?<=[^\s{sign}])){sign}{{{len(fence)},}}[ \t]*(?=\n|\Z)")


def examine_code(position: ScanPosition) -> ScanVerdict:
    """What the backticks at this place begin: a code block, code in a sentence, or nothing."""
    run = _BACKTICK_RUN.match(position.text, position.at)
    if run is None or (run[0][0] == "~" and not position.is_line_start):
        return ShowUntil(position.at + 1)
    if run.end() == len(position.text) and not position.final:
        return WAIT_FOR_MORE
    end = _find_span_end(position, run)
    if end is None:
        return WAIT_FOR_MORE
    if end > 0:
        return _examine_span(position, run.end(), end, len(run[0]))
    if len(run[0]) >= 3:
        return _examine_code_block(position, run)
    return ShowUntil(run.end())


def _find_span_end(position: ScanPosition, run: re.Match[str]) -> int | None:
    """Where the same backticks close on the same line; 0: nowhere; None: not in sight yet."""
    if run[0][0] == "~":
        return 0
    stop = position.text.find("\n", run.end(), run.end() + _MAX_SPAN_LENGTH)
    limit = stop if stop >= 0 else min(len(position.text), run.end() + _MAX_SPAN_LENGTH)
    count = len(run[0])
    for found in re.compile(r"`+").finditer(position.text, run.end(), limit):
        if len(found[0]) == count:
            grows = found.end() == len(position.text) and not position.final
            return None if grows else found.end()
    seen_all = stop >= 0 or position.final or limit - run.end() >= _MAX_SPAN_LENGTH
    return 0 if seen_all else None


def _examine_span(position: ScanPosition, start: int, end: int, count: int) -> ScanVerdict:
    """Code in a sentence is shown. A call that is all of a line, or all that was announced in it, is one."""
    announced = (
        position.accepts_lines and is_announcing_call(position.line) and is_announcement(position.line)
    )
    if not (position.is_line_start or announced) or position.is_about_syntax:
        return ShowUntil(end)
    behind, complete = position.look_ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t.") or (len(line) == 40):
        return ShowUntil(end)
    if not newline and not complete:
        return WAIT_FOR_MORE
    content = _INFO_LANGUAGE.sub("", position.text[start : end - count].strip())
    program = parse_program_calls(content) if announced else ()
    called = bool(program) and all(is_distinctive(call.name) for call in program)
    return HideUntil(end, "fenced") if called or _is_code_call(content, position, "") else ShowUntil(end)


def _examine_code_block(position: ScanPosition, run: re.Match[str]) -> ScanVerdict:
    stop = position.text.find("\n", run.end(), run.end() + _MAX_INFO_LENGTH)
    if stop < 0:
        waits = len(position.text) - run.end() < _MAX_INFO_LENGTH and not position.final
        return WAIT_FOR_MORE if waits else ShowCodeBlock(run.end(), run[0])
    info = position.text[run.end() : stop]
    opening = ShowCodeBlock(stop, run[0])
    if position.is_about_syntax:
        return opening
    head = position.text[stop + 1 : stop + 1 + _MAX_CODE_HEAD_LENGTH]
    all_seen = position.final or len(head) == _MAX_CODE_HEAD_LENGTH
    likely = bool(_TOOL_INFO_STRING.fullmatch(info)) or _may_be_code_call(head.lstrip(), position)
    if likely is None:
        return opening if all_seen else WAIT_FOR_MORE
    return _examine_whole_block(position, run, stop, info) if likely else opening


def _may_be_code_call(head: str, position: ScanPosition) -> bool | None:
    """Whether a block that begins so can be a call; None: too little of it has come."""
    names = position.names
    if not head:
        return None
    if head[0] in "{[":
        possible = may_be_call_head(head, names, allow_unknown=position.accepts_unknown_tools)
        return possible if possible is not False or head[0] == "{" else _may_be_code_program(head, position)
    if head[0] == "<":
        return _may_be_code_marker(head)
    if LABEL_PATTERN.match(head):
        return True
    lines = may_begin_block(head)
    program = _may_be_code_program(head, position)
    if lines or program:
        return True
    return None if lines is None or program is None or may_become_label(head) else False


def _may_be_code_program(head: str, position: ScanPosition) -> bool | None:
    program = _CODE_CALL.match(head)
    if program is not None:
        name = program[1]
        return (
            position.names.is_known(name)
            or is_namespaced(name)
            or (position.expects_call and is_tool_like(name))
        )
    return None if _CODE_CALL_START.match(head) else False


def _may_be_code_marker(head: str) -> bool | None:
    pipes = re.match(r"<\|([^|<>\n]{1,80})\|>", head)
    if pipes is not None:
        return (
            forms.build_token_marker(pipes[1]).kind is MarkerKind.BLOCK
            or forms.build_token_marker(pipes[1]).kind is MarkerKind.CHANNEL
        )
    if re.match(r"<\|[^<>\n]{0,80}\Z", head):
        return None
    tag = re.match(r"<\s?(\|?[\w:.\-|]{1,80})", head)
    if tag is None:
        return None if len(head) == 1 else head.startswith("<|DSML")
    if tag.end() == len(head):
        return None
    plain = normalize_tag_name(tag[1])
    return (plain in STRONG_TAGS and STRONG_TAGS[plain] != "thought") or plain in WEAK_TAGS


def _examine_whole_block(position: ScanPosition, run: re.Match[str], stop: int, info: str) -> ScanVerdict:
    closing = build_fence_closer(run[0])
    found = closing.search(position.text, stop, position.limit)
    grows = found is not None and found.end() == len(position.text) and not position.final
    if (found is None and not position.is_closed) or grows:
        return WAIT_FOR_MORE
    content = position.text[stop : found.start() if found is not None else position.limit].strip()
    if not _is_code_call(content.removesuffix(run[0]).rstrip(), position, info):
        return ShowCodeBlock(stop, run[0])
    if found is not None:
        return HideUntil(found.end(), "fenced")
    return HideUntil(position.limit, "fenced", None if position.final else UntilCloser(closing))


def _is_code_call(content: str, position: ScanPosition, info: str) -> bool:
    """Whether all of this code is a call: of a real tool, or in a syntax nobody writes by chance."""
    names = position.names
    if content[:1] in ("{", "[") and is_real_tool_call(content, names):
        return True
    if (
        content[:1] in ("{", "[")
        and position.accepts_unknown_tools
        and has_call_shape(content, position.request)
    ):
        return True
    program = parse_program_calls(content)
    if program and position.accepts_unknown_tools and all(is_namespaced(call.name) for call in program):
        return True
    if program and position.expects_call and all(is_tool_like(call.name) for call in program):
        return True
    if position.accepts_lines and find_call_block_end(content) == len(content) > 0:
        return True
    if program and any(names.is_known(call.name) for call in program):
        sure = all(call.has_keywords and (call.arguments or is_distinctive(call.name)) for call in program)
        return sure or bool(_TOOL_INFO_STRING.fullmatch(info))
    marked = (
        _may_be_code_marker(content) is True
        if content.startswith("<")
        else bool(LABEL_PATTERN.match(content))
    )
    calls = parse_calls(content, names) if marked or _TOOL_INFO_STRING.fullmatch(info) else ()
    if any(names.is_known(call.name) and (call.arguments is not None or not info) for call in calls):
        return True
    strong = content.startswith("<") and _is_unmistakable_syntax(content)
    return (strong or bool(_TOOL_INFO_STRING.fullmatch(info))) and not is_about_syntax(position.before)


def _is_unmistakable_syntax(content: str) -> bool:
    if content.startswith("<|"):
        return True
    tag = re.match(r"<\s?(\|?[\w:.\-|]{1,80})", content)
    return tag is not None and (
        normalize_tag_name(tag[1]) in STRONG_TAGS or content.lower().startswith("<function=")
    )
