"""Words and calls in square brackets: `[TOOL_CALLS]`, `[Calling tool: …]`, `[get_weather(city="Haifa")]`."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.brackets import value_end
from fingerpost.choose.guard.literals import program_calls
from fingerpost.choose.guard.modes import Body, Until
from fingerpost.choose.guard.names import Names, distinctive, is_invented
from fingerpost.choose.guard.values import SEARCHED, examine_json
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Show, Verdict
from fingerpost.choose.guard.vocabulary import words

_LONGEST_MARKED: Final = 2_000  # characters in which the end of a marked block is looked for
_MARKER: Final = re.compile(
    r"\[\[?\s*(?P<end>/|END[ _]|end[ _](?:of[ _])?|סוף )?(?:start[ _](?:of[ _])?|begin[ _]|תחילת )?"
    r"(?P<word>(?:available[ _]|memory[ _])?(?:tools?|functions?)[ _-]?(?:calls?|requests?|use|uses"
    r"|results?|invocations?|code)"
    r"|AVAILABLE_TOOLS|TOOLS?|ARGS|CALL_ID|TOOL_CONTENT|THINK|קריאה לכלי|קריאת כלי|הפעלת כלי"
    r"|שימוש בכלי)\s*\]\]?",
    re.IGNORECASE,
)
_PARTS: Final = words("tool tools args call_id tool_content")  # markers only beside another one
_MARKER_CLOSER: Final = re.compile(r"\[\[?\s*(?:/|END[ _]|סוף )[^\[\]\n]{1,40}\]\]?", re.IGNORECASE)
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
_IN_BRACKETS: Final = re.compile(r"\[\s{0,40}([^\W\d][\w.\-]{0,120})\s?(\()")
_SPOKEN: Final = re.compile(
    r"\[\s{0,3}(?:calling|call|using|use|invoking|invoke|executing|execute|running|run|tool|function"
    r"|קורא ל|מפעיל|מריץ|כלי)\b"
    r"[\s:]{0,3}(?:the\s|tool\b|function\b|call\b|:|\s|כלי\b|את\s"
    r"|הכלי\b){0,3}[\s:=`\"']{0,4}([\w.\-/]{2,120})[^\[\]\n]{0,20}[({:=\]]",
    re.IGNORECASE,
)
_SPOKEN_WORDS: Final = words(
    "calling call using use invoking invoke executing execute running run tool function קורא מפעיל מריץ כלי"
)


def examine_square(place: Place) -> Verdict:
    """What the `[` at this place begins."""
    if place.text.startswith("[[[", place.at):
        return Show(place.last_two("["))
    rest, complete = place.ahead(place.at, 200)
    inner = rest.lstrip("[ \t\n")
    if not inner and len(rest) < 100:
        return Show(place.at + 1) if complete else WAIT
    if inner.startswith("{"):
        return examine_json(place)
    if inner[0] in "\"'":
        return _pair(place, rest, complete=complete)
    if not _of_interest(rest, inner, place):
        return Show(place.at + 1)
    return _square(place, rest) if complete else WAIT


_PAIR: Final = re.compile(r"\[\s{0,40}([\"'])([\w.\-/]{2,120})\1\s{0,9},\s{0,40}\{")
_PAIR_BEGUN: Final = re.compile(r"\[\s{0,40}[\"'][\w.\-/]{0,120}(?:[\"']\s{0,9}(?:,\s{0,40})?)?\Z")


def _pair(place: Place, rest: str, *, complete: bool) -> Verdict:
    """`["get_weather", {"city": "Haifa"}]`"""
    found = _PAIR.match(rest)
    if found is None:
        return WAIT if _PAIR_BEGUN.match(rest) and not complete else Show(place.at + 1)
    if not (distinctive(found[2]) and place.names.knows(found[2])) or place.about:
        return Show(place.at + 1)
    end = value_end(place.text[place.at : place.limit], 0)
    if end is None and not place.closed:
        return WAIT
    return Hide(place.at + end if end is not None else place.limit, "json")


def _of_interest(rest: str, inner: str, place: Place) -> bool:
    """Whether words in square brackets that begin so can be a marker or a call."""
    names, first = place.names, not place.before.strip() and place.takes_unknown
    words = re.match(r"[\w /-]{0,60}", inner)
    stem = words[0].casefold() if words is not None else ""
    if stem.startswith(tuple(_SPOKEN_WORDS)):
        return True
    name = re.match(r"[^\W\d][\w.\-]{0,120}", inner)
    if len(stem) == len(inner) or (name is not None and name.end() == len(inner)):
        begun = name is not None and (names.begins(name[0]) or first)
        return begun or any(word.startswith(stem) for word in (*_MARKER_WORDS, *_SPOKEN_WORDS))
    known = name is not None and (names.foreseen(name[0]) or (first and is_invented(name[0])))
    called = name is not None and inner[name.end()] in "( " and known
    return called or _MARKER.match(rest) is not None


def _square(place: Place, rest: str) -> Verdict:
    marker = _MARKER.match(rest)
    if marker is not None:
        return _marker(place, marker)
    spoken = _SPOKEN.match(rest)
    if spoken is not None:
        return _spoken(place, spoken)
    program = _IN_BRACKETS.match(rest)
    if program is not None:
        return _program(place, program[1])
    inner = rest.lstrip("[ ")
    cut = place.final and len(rest) == len(place.text) - place.at and "_" in inner and len(inner) >= 5
    if cut and any(word.startswith(inner.casefold()) for word in _MARKER_WORDS) and not place.about:
        return Hide(len(place.text), "marker")
    return Show(place.at + 1)


_CALL_BEHIND: Final = re.compile(
    r"\s{0,20}(?:[{<`]|\[\s{0,20}[{\w]|[\w.\-/]{1,100}\s{0,3}(?:\[(?:ARGS|CALL_ID)|[({]))"
)


def _marker(place: Place, marker: re.Match[str]) -> Verdict:
    end = place.at + marker.end()
    behind, complete = place.ahead(end, 160)
    if not complete:
        return WAIT
    loud = marker["word"].isupper()
    if place.about or (behind.startswith(("(", "]", ":")) and not loud):
        return Show(end)
    if marker["word"].casefold() == "think":
        return _thought(place, marker, end)
    if marker["end"]:
        return Hide(end, "mistral", alone=True) if loud or place.begins_line or place.behind else Show(end)
    if marker["word"].casefold() in _PARTS:
        return Hide(end, "mistral", alone=True) if place.behind else Show(end)
    cut = not behind.strip() and (loud or "_" in marker["word"])
    if cut or _CALL_BEHIND.match(behind) or _begins_with_tool(behind, place.names):
        return Hide(end, _family(marker[0]), Body(_MARKER_CLOSER))
    if not place.begins_line:
        return Show(end)
    closes = _MARKER_CLOSER.search(place.text, end, min(len(place.text), end + _LONGEST_MARKED))
    if closes is None and not place.final and len(place.text) - end < _LONGEST_MARKED:
        return WAIT
    return Show(end) if closes is None else Hide(end, _family(marker[0]), Body(_MARKER_CLOSER))


def _family(marker: str) -> str:
    if re.search("[א-ת]", marker):
        return "hebrew"
    return "mistral" if marker.startswith(("[TOOL_CALLS", "[TOOL_RESULTS", "[AVAILABLE")) else "marker"


def _begins_with_tool(text: str, names: Names) -> bool:
    word = re.match(r"\s{0,20}([\w.\-/]{2,120})", text)
    return word is not None and distinctive(word[1]) and names.knows(word[1])


def _thought(place: Place, marker: re.Match[str], end: int) -> Verdict:
    if not marker["word"].isupper() or not place.begins_line:
        return Show(end)
    if marker["end"]:
        return Hide(end, "thought", alone=True)
    return Hide(end, "thought", Until(re.compile(r"\[/THINK\]")))


def _spoken(place: Place, spoken: re.Match[str]) -> Verdict:
    """`[Calling tool: get_weather({"city": "Haifa"})]`"""
    known = place.names.knows(spoken[1]) and not spoken[0].endswith("]")
    invented = place.takes_unknown and (
        is_invented(spoken[1]) or re.search(r"(?:tool|function)[\s:]", spoken[0], re.I)
    )
    if not (distinctive(spoken[1]) and (known or invented)) or place.about:
        return Show(place.at + 1)
    end = value_end(place.text[place.at : place.limit], 0)
    if end is None and not place.closed:
        return WAIT
    return Hide(place.at + end if end is not None else place.limit, "marker")


def _program(place: Place, name: str) -> Verdict:
    """`[get_weather(city="Haifa")]`: a list of calls, and nothing but calls."""
    unknown = place.takes_unknown and is_invented(name) and not place.before.strip()
    if not (place.names.knows(name) or unknown):
        return Show(place.at + 1)
    end = value_end(place.text[place.at : place.limit], 0)
    if end is None and not place.closed:
        return WAIT
    to = place.at + end if end is not None else place.limit
    calls = program_calls(place.text[place.at : to])
    known = any(place.names.knows(call.written) or unknown for call in calls)
    cut = end is None and distinctive(name) and place.begins_line
    if ((known and all(call.keyworded for call in calls)) or cut) and not (place.about and place.line):
        return Hide(to, "pythonic")
    return Show(place.at + 1, blind=to if end is not None else place.at + SEARCHED)
