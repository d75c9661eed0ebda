"""Words that say where a call begins or ends, in brackets, between rulers or on a line of their own.

`[Start of Memory Helper Tool Call]`, `--- Begin Function Call ---`, `*** TOOL CALL END ***`: models
make them up, in any decoration. A certificate, a book or a meeting begins and ends as well: what
begins here must be called a tool's or a function's call.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.modes import Body
from fingerpost.choose.guard.names import distinctive
from fingerpost.choose.guard.verdicts import WAIT, Hide, Place, Verdict

RULER: Final = r"\-=*~+%@—–═━─"
_LONGEST: Final = 120
_LONGEST_BODY: Final = 2_000
_SPACE: Final = r"[ \t_\-]{1,3}"
_WORDS: Final = rf"(?:[^\W_]{{1,20}}{_SPACE}){{0,4}}?"
_SURE: Final = (
    r"(?:tools?[ _-]{0,3}(?:calls?|calling|use|usage|requests?|invocations?|code|execution"
    r"|inputs?|outputs?|results?"
    r"|responses?|commands?|query|action)"
    r"|functions?[ _-]{0,3}(?:calls?|calling|invocations?|use)"
    r"|(?:plugin|mcp|helper|skill)s?[ _-]{0,3}(?:calls?|use|requests?|invocations?|inputs?"
    r"|outputs?|results?|responses?)"
    r"|(?:api|agent|action)[ _-]{0,3}(?:calls?|invocations?)"
    r"|helper|קריאה לכלי|קריאת כלי|הפעלת כלי|שימוש בכלי)"
)
_WEAK: Final = r"(?:lookup|query|search|retrieval|call|invocation|request)"
_LAST: Final = r"(?![ \t_\-]{0,3}[^\W_])"  # no word follows
_NOUN: Final = rf"(?:(?P<sure>{_SURE}){_LAST}|(?P<weak>{_WEAK}){_LAST})"
_STARTS: Final = r"(?:start|begin|beginning|open|opening|תחילת)"
_ENDS: Final = r"(?:end|ending|finish|stop|close|closing|סוף)"
_OF: Final = rf"(?:s|ing)?(?:{_SPACE}of)?{_SPACE}(?:(?:the|a|an|my|this){_SPACE})?"
_PHRASE: Final = (
    rf"(?:(?:(?P<start>{_STARTS})|(?P<end>{_ENDS})){_OF}{_WORDS}{_NOUN}"
    rf"|{_WORDS}(?P<noun>{_SURE})[ \t_:\-]{{1,3}}(?:(?P<last_start>{_STARTS})|(?P<last_end>{_ENDS})))"
)
_OPENING: Final = (
    rf"[ \t]{{0,4}}(?P<open>(?P<bracket>[\[({{<«]{{1,3}})[ \t]?[|!{RULER}#_]{{0,6}}"
    rf"|[{RULER}#_>/|<!]{{1,24}})?[ \t]{{0,2}}"
)
_CLOSING: Final = rf"[ \t]{{0,2}}:?[ \t]?(?P<close>[|!{RULER}#_/<]{{0,24}}(?P<last>[\])}}>»]{{0,3}}))"
_DELIMITER: Final = re.compile(rf"{_OPENING}{_PHRASE}{_CLOSING}", re.IGNORECASE)
_BEGUN: Final = re.compile(
    rf"[ \t]{{0,4}}(?:[\[({{<«]{{1,3}}[ \t]?[|!{RULER}#_]{{0,6}}|[{RULER}#_>/|<!]{{1,24}})?[ \t]{{0,2}}"
    rf"(?P<words>[^\W_][\w \t\-:]{{0,100}}|)[ \t]{{0,2}}:?[ \t]?[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}\Z"
)
_FIRST_WORDS: Final = (
    "start",
    "begin",
    "open",
    "end",
    "finish",
    "stop",
    "close",
    "closing",
    "סוף",
    "תחילת",
)
_FIRST: Final = re.compile(r"[\W_]{0,30}")
_LATE: Final = re.compile(rf"{_WORDS}{_SURE}", re.IGNORECASE)
_CLOSER: Final = re.compile(
    rf"[\[({{<«|!{RULER}#_/> \t]{{0,30}}"
    rf"(?:{_ENDS}{_OF}{_WORDS}(?:{_SURE}|{_WEAK}){_LAST}|{_WORDS}{_SURE}[ \t_:\-]{{1,3}}{_ENDS})"
    rf"[ \t]{{0,2}}[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}",
    re.IGNORECASE,
)
_BODY: Final = re.compile(r"\s{0,20}(?:`{3}\w{0,12}\s{0,9})?(?:\[\s{0,9})?(?:\{|[^\W\d][\w.]{1,80}\()")
_ASIDE_VERBS: Final = ("calling", "invoking", "using", "running", "executing")
_ASIDE: Final = re.compile(
    rf"\((?:{'|'.join(_ASIDE_VERBS)})[ ](?:the |a )?(?P<before>(?:tool|function):? )?"
    r"[`'\"]?(?P<name>[\w.\-/]{2,80}?)[`'\"]?(?P<behind> (?:tool|function))?"
    r"(?:[ ][^()\n]{0,80}?)?[ ]?(?:\.{2,3}|…)[ ]?\)",
    re.IGNORECASE,
)


def examine_aside(place: Place) -> Verdict | None:
    """`Sure! (calling brew_tea...)`: an aside that says which tool is at work; None: none."""
    if not place.takes_unknown:
        return None
    rest, complete = place.ahead(place.at, _LONGEST)
    found = _ASIDE.match(rest)
    if found is not None:
        named = distinctive(found["name"]) or found["before"] or found["behind"]
        return Hide(place.at + found.end(), "marker") if named else None
    written = rest[1:].casefold()
    begun = any(verb.startswith(written) or written.startswith(f"{verb} ") for verb in _ASIDE_VERBS)
    return WAIT if begun and not complete and "\n" not in rest and ")" not in rest else None


def examine_delimiter(place: Place) -> Verdict | None:
    """What the words at this place begin or end; None: no call."""
    if place.about:
        return None
    rest, complete = place.ahead(place.at, _LONGEST)
    if not _worth_a_look(rest):
        return None
    found = _DELIMITER.match(rest)
    if found is None or found.end() == len(rest):
        if not complete and _may_become(place, rest):
            return WAIT
        if found is None:
            return None
    return _judge(place, found)


def _worth_a_look(rest: str) -> bool:
    """Whether the words behind the decoration can be such at all: nearly all are not."""
    start = _FIRST.match(rest)
    words = rest[start.end() :].casefold() if start is not None else ""
    if not words or words.startswith(_FIRST_WORDS) or any(word.startswith(words) for word in _FIRST_WORDS):
        return True
    return any(noun in words for noun in ("tool", "function", "plugin", "mcp", "helper", "call", "כלי"))


def _may_become(place: Place, rest: str) -> bool:
    begun = _BEGUN.match(rest)
    if begun is None:
        return False
    words = begun["words"].casefold()
    if any(word.startswith(words[: len(word)]) for word in _FIRST_WORDS):
        return True
    return begun.start("words") > 0 and _LATE.match(words) is not None


def _judge(place: Place, found: re.Match[str]) -> Verdict | None:
    end = place.at + found.end()
    behind, complete = place.ahead(end, _LONGEST)
    ends_line = not behind.partition("\n")[0].strip()
    if not complete and not behind.strip():
        return WAIT
    decorated = _is_decorated(found, ends_line=ends_line)
    if not decorated and not (place.begins_line and (ends_line or found["open"])):
        return None
    if found["end"] or found["last_end"]:
        left_over = place.behind or (decorated and place.begins_line and not found["weak"])
        return Hide(end, "marker", alone=True) if left_over else None
    if decorated and place.begins_line and not found["weak"]:
        return Hide(end, "marker", Body(_CLOSER))
    return _with_body(place, found, end)


def _is_decorated(found: re.Match[str], *, ends_line: bool) -> bool:
    """Whether brackets or rulers are around the words: those of a sentence and a heading are not."""
    if found["bracket"]:
        return bool(found["last"])
    opening = (found["open"] or "").strip()
    if not opening.strip("#"):
        return "#" in found["close"]
    return len(opening) > 1 and (len(found["close"]) > 1 or ends_line)


def _with_body(place: Place, found: re.Match[str], end: int) -> Verdict | None:
    """In a sentence or as a heading, what follows decides: a call, or at least its end."""
    limit = min(len(place.text), end + _LONGEST_BODY)
    body = _BODY.match(place.text, end, limit)
    closer = _CLOSER.search(place.text, end, limit)
    if body is not None and not found["weak"]:
        return Hide(end, "marker", Body(_CLOSER))
    if closer is None and not place.final and limit - end < _LONGEST_BODY:
        return WAIT
    if place.final and not place.text[end:].strip():
        return Hide(end, "marker")
    if closer is None or (found["weak"] and body is None):
        return None
    return Hide(end, "marker", Body(_CLOSER))
