"""Code in backticks. Code is shown as it is, unless all of it is one call of a real tool.

A block about syntax, a configuration file, an example request: all of them are code and
stay. What models do wrong is to put the call itself into a block, and that is a whole one.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard import forms
from fingerpost.choose.guard.blocks import call_block_end, may_begin_block
from fingerpost.choose.guard.forms import Kind
from fingerpost.choose.guard.labels import LABEL, label_begun
from fingerpost.choose.guard.literals import program_calls
from fingerpost.choose.guard.modes import Until
from fingerpost.choose.guard.names import distinctive, is_invented, is_namespaced
from fingerpost.choose.guard.reading import read_calls
from fingerpost.choose.guard.tags import STRONG, WEAK, tag_name
from fingerpost.choose.guard.talk import about_syntax, announces_call, is_announcement
from fingerpost.choose.guard.values import call_head, has_call_shape, names_real_tool
from fingerpost.choose.guard.verdicts import WAIT, Hide, Pass, Place, Show, Verdict

_LONGEST_SPAN: Final = 1_000
_LONGEST_INFO: Final = 120
_LONGEST_HEAD: Final = 400
_RUN: Final = re.compile(r"`+|~{3,}")
_TOOL_INFO: Final = re.compile(
    r"\s*(?:json|xml|python|text)?[\s:_-]*(?:tool[_ -]?(?:calls?|code|use|request|invocation)"
    r"|function[_ -]?calls?|tools?|קריאה לכלי)\s*",
    re.IGNORECASE,
)
_LANGUAGE: Final = re.compile(r"\A(?:json|xml|python|text|tool_code|tool_call)\s+(?=\S)", re.IGNORECASE)
_PROGRAM: Final = re.compile(r"\[?\s{0,9}(?:print\(\s{0,9})?(?!print\()([^\W\d][\w.]{0,120})\s?\(")
_PROGRAM_BEGUN: Final = re.compile(r"\[?\s{0,9}(?:print\(\s{0,9})?(?:[^\W\d][\w.]{0,120})?\s?\Z")


def closing_of(fence: str) -> re.Pattern[str]:
    """How a code block that was opened so ends; models forget the line break before it."""
    sign = re.escape(fence[0])
    return re.compile(rf"(?:\n[ \t>]{{0,12}}|(?<=[^\s{sign}])){sign}{{{len(fence)},}}[ \t]*(?=\n|\Z)")


def examine_code(place: Place) -> Verdict:
    """What the backticks at this place begin: a code block, code in a sentence, or nothing."""
    run = _RUN.match(place.text, place.at)
    if run is None or (run[0][0] == "~" and not place.begins_line):
        return Show(place.at + 1)
    if run.end() == len(place.text) and not place.final:
        return WAIT
    end = _span_end(place, run)
    if end is None:
        return WAIT
    if end > 0:
        return _span(place, run.end(), end, len(run[0]))
    if len(run[0]) >= 3:
        return _block(place, run)
    return Show(run.end())


def _span_end(place: Place, run: re.Match[str]) -> int | None:
    """Where the same backticks close on the same line; 0: nowhere; None: not in sight yet."""
    if run[0][0] == "~":
        return 0
    stop = place.text.find("\n", run.end(), run.end() + _LONGEST_SPAN)
    limit = stop if stop >= 0 else min(len(place.text), run.end() + _LONGEST_SPAN)
    count = len(run[0])
    for found in re.compile(r"`+").finditer(place.text, run.end(), limit):
        if len(found[0]) == count:
            grows = found.end() == len(place.text) and not place.final
            return None if grows else found.end()
    seen_all = stop >= 0 or place.final or limit - run.end() >= _LONGEST_SPAN
    return 0 if seen_all else None


def _span(place: Place, start: int, end: int, count: int) -> Verdict:
    """Code in a sentence is shown. A call that is all of a line, or all that was announced in it, is one."""
    announced = place.takes_lines and announces_call(place.line) and is_announcement(place.line)
    if not (place.begins_line or announced) or place.about:
        return Show(end)
    behind, complete = place.ahead(end, 40)
    line, newline, _ = behind.partition("\n")
    if line.strip(" \t.") or (len(line) == 40):
        return Show(end)
    if not newline and not complete:
        return WAIT
    content = _LANGUAGE.sub("", place.text[start : end - count].strip())
    program = program_calls(content) if announced else ()
    called = bool(program) and all(distinctive(call.written) for call in program)
    return Hide(end, "fenced") if called or _is_call(content, place, "") else Show(end)


def _block(place: Place, run: re.Match[str]) -> Verdict:
    stop = place.text.find("\n", run.end(), run.end() + _LONGEST_INFO)
    if stop < 0:
        waits = len(place.text) - run.end() < _LONGEST_INFO and not place.final
        return WAIT if waits else Pass(run.end(), run[0])
    info = place.text[run.end() : stop]
    opening = Pass(stop, run[0])
    if place.about:
        return opening
    head = place.text[stop + 1 : stop + 1 + _LONGEST_HEAD]
    all_seen = place.final or len(head) == _LONGEST_HEAD
    likely = bool(_TOOL_INFO.fullmatch(info)) or _may_be_call(head.lstrip(), place)
    if likely is None:
        return opening if all_seen else WAIT
    return _whole_block(place, run, stop, info) if likely else opening


def _may_be_call(head: str, place: Place) -> bool | None:
    """Whether a block that begins so can be a call; None: too little of it has come."""
    names = place.names
    if not head:
        return None
    if head[0] in "{[":
        possible = call_head(head, names, unknown=place.takes_unknown)
        return possible if possible is not False or head[0] == "{" else _may_be_program(head, place)
    if head[0] == "<":
        return _may_be_marker(head)
    if LABEL.match(head):
        return True
    lines = may_begin_block(head)
    program = _may_be_program(head, place)
    if lines or program:
        return True
    return None if lines is None or program is None or label_begun(head) else False


def _may_be_program(head: str, place: Place) -> bool | None:
    program = _PROGRAM.match(head)
    if program is not None:
        name = program[1]
        return place.names.knows(name) or is_namespaced(name) or (place.expects_call and is_invented(name))
    return None if _PROGRAM_BEGUN.match(head) else False


def _may_be_marker(head: str) -> bool | None:
    pipes = re.match(r"<\|([^|<>\n]{1,80})\|>", head)
    if pipes is not None:
        return forms.token(pipes[1]).kind is Kind.BLOCK or forms.token(pipes[1]).kind is Kind.CHANNEL
    if re.match(r"<\|[^<>\n]{0,80}\Z", head):
        return None
    tag = re.match(r"<\s?(\|?[\w:.\-|]{1,80})", head)
    if tag is None:
        return None if len(head) == 1 else head.startswith("<|DSML")
    if tag.end() == len(head):
        return None
    plain = tag_name(tag[1])
    return (plain in STRONG and STRONG[plain] != "thought") or plain in WEAK


def _whole_block(place: Place, run: re.Match[str], stop: int, info: str) -> Verdict:
    closing = closing_of(run[0])
    found = closing.search(place.text, stop, place.limit)
    grows = found is not None and found.end() == len(place.text) and not place.final
    if (found is None and not place.closed) or grows:
        return WAIT
    content = place.text[stop : found.start() if found is not None else place.limit].strip()
    if not _is_call(content.removesuffix(run[0]).rstrip(), place, info):
        return Pass(stop, run[0])
    if found is not None:
        return Hide(found.end(), "fenced")
    return Hide(place.limit, "fenced", None if place.final else Until(closing))


def _is_call(content: str, place: Place, info: str) -> bool:
    """Whether all of this code is a call: of a real tool, or in a syntax nobody writes by chance."""
    names = place.names
    if content[:1] in ("{", "[") and names_real_tool(content, names):
        return True
    if content[:1] in ("{", "[") and place.takes_unknown and has_call_shape(content, place.request):
        return True
    program = program_calls(content)
    if program and place.takes_unknown and all(is_namespaced(call.written) for call in program):
        return True
    if program and place.expects_call and all(is_invented(call.written) for call in program):
        return True
    if place.takes_lines and call_block_end(content) == len(content) > 0:
        return True
    if program and any(names.knows(call.written) for call in program):
        sure = all(call.keyworded and (call.arguments or distinctive(call.written)) for call in program)
        return sure or bool(_TOOL_INFO.fullmatch(info))
    marked = _may_be_marker(content) is True if content.startswith("<") else bool(LABEL.match(content))
    calls = read_calls(content, names) if marked or _TOOL_INFO.fullmatch(info) else ()
    if any(names.knows(call.written) and (call.arguments is not None or not info) for call in calls):
        return True
    strong = content.startswith("<") and _is_strong(content)
    return (strong or bool(_TOOL_INFO.fullmatch(info))) and not about_syntax(place.before)


def _is_strong(content: str) -> bool:
    if content.startswith("<|"):
        return True
    tag = re.match(r"<\s?(\|?[\w:.\-|]{1,80})", content)
    return tag is not None and (tag_name(tag[1]) in STRONG or content.lower().startswith("<function="))
