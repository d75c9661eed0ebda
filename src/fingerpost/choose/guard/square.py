"""Words and calls in square brackets: `[TOOL_CALLS]`, `[Calling tool: …]`, `[get_weather(city="Haifa")]`."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.brackets import find_value_end
from fingerpost.choose.guard.literals import parse_program_calls
from fingerpost.choose.guard.modes import MarkedCall, UntilCloser
from fingerpost.choose.guard.names import WrittenToolNames, is_distinctive, is_tool_like
from fingerpost.choose.guard.values import MAX_SEARCHED_LENGTH, examine_json
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict, ShowUntil
from fingerpost.choose.guard.vocabulary import split_words

_MAX_BRACKETED_LENGTH: Final = 2_000  # characters in which the end of a marked block is looked for
_BRACKET_MARKER: Final = re.compile(
    r"\[\[?\s*(?P<end>/|END[ _]|end[ _](?:of[ _])?|סוף )?(?:start[ _](?:of[ _])?|begin[ _]|תחילת )?"
    r"(?P<word>(?:available[ _]|memory[ _])?(?:tools?|functions?)[ _-]?(?:calls?|requests?|use|uses"
    r"|results?|invocations?|code)"
    r"|AVAILABLE_TOOLS|TOOLS?|ARGS|CALL_ID|TOOL_CONTENT|THINK|קריאה לכלי|קריאת כלי|הפעלת כלי"
    r"|שימוש בכלי)\s*\]\]?",
    re.IGNORECASE,
)
_MARKER_PARTS: Final = split_words("tool tools args call_id tool_content")  # markers only beside another one
_BRACKET_MARKER_CLOSER: Final = re.compile(r"\[\[?\s*(?:/|END[ _]|סוף )[^\[\]\n]{1,40}\]\]?", re.IGNORECASE)
_MARKER_WORDS: Final = tuple(
    lead + word
    for lead in ("", "/", "end_", "end ", "start_", "start ", "begin_", "begin ", "סוף ", "תחילת ")
    for word in (
        "available_tools",
        "memory tool call",
        "memory_tool_call",
        "tool_calls",
        "tool calls",
        "tool-calls",
        "toolcalls",
        "tool_requests",
        "tool requests",
        "tool_results",
        "tool results",
        "tool_invocations",
        "tool_use",
        "tool use",
        "tool_uses",
        "tools",
        "tool_code",
        "function_calls",
        "function calls",
        "functions",
        "args",
        "call_id",
        "tool_content",
        "think",
        "קריאה לכלי",
        "קריאת כלי",
        "הפעלת כלי",
        "שימוש בכלי",
    )
)
_BRACKETED_PROGRAM: Final = re.compile(r"\[\s{0,40}([^\W\d][\w.\-]{0,120})\s?(\()")
_BRACKETED_CALL: Final = re.compile(
    r"\[\s{0,3}(?:calling|call|using|use|invoking|invoke|executing|execute|running|run|tool|function"
    r"|קורא ל|מפעיל|מריץ|כלי)\b"
    r"[\s:]{0,3}(?:the\s|tool\b|function\b|call\b|:|\s|כלי\b|את\s"
    r"|הכלי\b){0,3}[\s:=`\"']{0,4}([\w.\-/]{2,120})[^\[\]\n]{0,20}[({:=\]]",
    re.IGNORECASE,
)
_BRACKETED_CALL_WORDS: Final = split_words(
    "calling call using use invoking invoke executing execute running run tool function קורא מפעיל מריץ כלי"
)


def examine_square_bracket(position: ScanPosition) -> ScanVerdict:
    """What the `[` at this place begins."""
    if position.text.startswith("[[[", position.at):
        return ShowUntil(position.find_last_two("["))
    rest, complete = position.look_ahead(position.at, 200)
    inner = rest.lstrip("[ \t\n")
    if not inner and len(rest) < 100:
        return ShowUntil(position.at + 1) if complete else WAIT_FOR_MORE
    if inner.startswith("{"):
        return examine_json(position)
    if inner[0] in "\"'":
        return _examine_pair(position, rest, complete=complete)
    if not _may_be_bracket_syntax(rest, inner, position):
        return ShowUntil(position.at + 1)
    return _examine_bracketed_words(position, rest) if complete else WAIT_FOR_MORE


_NAME_ARGUMENTS_PAIR: Final = re.compile(r"\[\s{0,40}([\"'])([\w.\-/]{2,120})\1\s{0,9},\s{0,40}\{")
_NAME_ARGUMENTS_PAIR_START: Final = re.compile(
    r"\[\s{0,40}[\"'][\w.\-/]{0,120}(?:[\"']\s{0,9}(?:,\s{0,40})?)?\Z"
)


def _examine_pair(position: ScanPosition, rest: str, *, complete: bool) -> ScanVerdict:
    """`["get_weather", {"city": "Haifa"}]`"""
    found = _NAME_ARGUMENTS_PAIR.match(rest)
    if found is None:
        return (
            WAIT_FOR_MORE
            if _NAME_ARGUMENTS_PAIR_START.match(rest) and not complete
            else ShowUntil(position.at + 1)
        )
    if not (is_distinctive(found[2]) and position.names.is_known(found[2])) or position.is_about_syntax:
        return ShowUntil(position.at + 1)
    end = find_value_end(position.text[position.at : position.limit], 0)
    if end is None and not position.is_closed:
        return WAIT_FOR_MORE
    return HideUntil(position.at + end if end is not None else position.limit, "json")


def _may_be_bracket_syntax(rest: str, inner: str, position: ScanPosition) -> bool:
    """Whether words in square brackets that begin so can be a marker or a call."""
    names, first = position.names, not position.before.strip() and position.accepts_unknown_tools
    words = re.match(r"[\w /-]{0,60}", inner)
    stem = words[0].casefold() if words is not None else ""
    if stem.startswith(tuple(_BRACKETED_CALL_WORDS)):
        return True
    name = re.match(r"[^\W\d][\w.\-]{0,120}", inner)
    if len(stem) == len(inner) or (name is not None and name.end() == len(inner)):
        begun = name is not None and (names.is_prefix(name[0]) or first)
        return begun or any(word.startswith(stem) for word in (*_MARKER_WORDS, *_BRACKETED_CALL_WORDS))
    known = name is not None and (names.is_known_from_start(name[0]) or (first and is_tool_like(name[0])))
    called = name is not None and inner[name.end()] in "( " and known
    return called or _BRACKET_MARKER.match(rest) is not None


def _examine_bracketed_words(position: ScanPosition, rest: str) -> ScanVerdict:
    marker = _BRACKET_MARKER.match(rest)
    if marker is not None:
        return _examine_bracket_marker(position, marker)
    spoken = _BRACKETED_CALL.match(rest)
    if spoken is not None:
        return _examine_bracketed_call(position, spoken)
    program = _BRACKETED_PROGRAM.match(rest)
    if program is not None:
        return _examine_bracketed_program(position, program[1])
    inner = rest.lstrip("[ ")
    cut = (
        position.final and len(rest) == len(position.text) - position.at and "_" in inner and len(inner) >= 5
    )
    if (
        cut
        and any(word.startswith(inner.casefold()) for word in _MARKER_WORDS)
        and not position.is_about_syntax
    ):
        return HideUntil(len(position.text), "marker")
    return ShowUntil(position.at + 1)


_CALL_AFTER_MARKER: Final = re.compile(
    r"\s{0,20}(?:[{<`]|\[\s{0,20}[{\w]|[\w.\-/]{1,100}\s{0,3}(?:\[(?:ARGS|CALL_ID)|[({]))"
)


def _examine_bracket_marker(position: ScanPosition, marker: re.Match[str]) -> ScanVerdict:
    end = position.at + marker.end()
    behind, complete = position.look_ahead(end, 160)
    if not complete:
        return WAIT_FOR_MORE
    loud = marker["word"].isupper()
    if position.is_about_syntax or (behind.startswith(("(", "]", ":")) and not loud):
        return ShowUntil(end)
    if marker["word"].casefold() == "think":
        return _examine_bracketed_thought(position, marker, end)
    if marker["end"]:
        return (
            HideUntil(end, "mistral", is_stray=True)
            if loud or position.is_line_start or position.follows_hidden
            else ShowUntil(end)
        )
    if marker["word"].casefold() in _MARKER_PARTS:
        return HideUntil(end, "mistral", is_stray=True) if position.follows_hidden else ShowUntil(end)
    cut = not behind.strip() and (loud or "_" in marker["word"])
    if cut or _CALL_AFTER_MARKER.match(behind) or _starts_with_tool(behind, position.names):
        return HideUntil(end, _get_marker_family(marker[0]), MarkedCall(_BRACKET_MARKER_CLOSER))
    if not position.is_line_start:
        return ShowUntil(end)
    closes = _BRACKET_MARKER_CLOSER.search(
        position.text, end, min(len(position.text), end + _MAX_BRACKETED_LENGTH)
    )
    if closes is None and not position.final and len(position.text) - end < _MAX_BRACKETED_LENGTH:
        return WAIT_FOR_MORE
    return (
        ShowUntil(end)
        if closes is None
        else HideUntil(end, _get_marker_family(marker[0]), MarkedCall(_BRACKET_MARKER_CLOSER))
    )


def _get_marker_family(marker: str) -> str:
    if re.search("[א-ת]", marker):
        return "hebrew"
    return "mistral" if marker.startswith(("[TOOL_CALLS", "[TOOL_RESULTS", "[AVAILABLE")) else "marker"


def _starts_with_tool(text: str, names: WrittenToolNames) -> bool:
    word = re.match(r"\s{0,20}([\w.\-/]{2,120})", text)
    return word is not None and is_distinctive(word[1]) and names.is_known(word[1])


def _examine_bracketed_thought(position: ScanPosition, marker: re.Match[str], end: int) -> ScanVerdict:
    if not marker["word"].isupper() or not position.is_line_start:
        return ShowUntil(end)
    if marker["end"]:
        return HideUntil(end, "thought", is_stray=True)
    return HideUntil(end, "thought", UntilCloser(re.compile(r"\[/THINK\]")))


def _examine_bracketed_call(position: ScanPosition, spoken: re.Match[str]) -> ScanVerdict:
    """`[Calling tool: get_weather({"city": "Haifa"})]`"""
    known = position.names.is_known(spoken[1]) and not spoken[0].endswith("]")
    invented = position.accepts_unknown_tools and (
        is_tool_like(spoken[1]) or re.search(r"(?:tool|function)[\s:]", spoken[0], re.I)
    )
    if not (is_distinctive(spoken[1]) and (known or invented)) or position.is_about_syntax:
        return ShowUntil(position.at + 1)
    end = find_value_end(position.text[position.at : position.limit], 0)
    if end is None and not position.is_closed:
        return WAIT_FOR_MORE
    return HideUntil(position.at + end if end is not None else position.limit, "marker")


def _examine_bracketed_program(position: ScanPosition, name: str) -> ScanVerdict:
    """`[get_weather(city="Haifa")]`: a list of calls, and nothing but calls."""
    unknown = position.accepts_unknown_tools and is_tool_like(name) and not position.before.strip()
    if not (position.names.is_known(name) or unknown):
        return ShowUntil(position.at + 1)
    end = find_value_end(position.text[position.at : position.limit], 0)
    if end is None and not position.is_closed:
        return WAIT_FOR_MORE
    to = position.at + end if end is not None else position.limit
    calls = parse_program_calls(position.text[position.at : to])
    known = any(position.names.is_known(call.name) or unknown for call in calls)
    cut = end is None and is_distinctive(name) and position.is_line_start
    if ((known and all(call.has_keywords for call in calls)) or cut) and not (
        position.is_about_syntax and position.line
    ):
        return HideUntil(to, "pythonic")
    return ShowUntil(
        position.at + 1, values_checked_to=to if end is not None else position.at + MAX_SEARCHED_LENGTH
    )
