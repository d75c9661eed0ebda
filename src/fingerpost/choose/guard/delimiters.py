"""Words that say where a call begins or ends, in brackets, between rulers or on a line of their own.

`[Start of Memory Helper Tool Call]`, `--- Begin Function Call ---`, `*** TOOL CALL END ***`: models
make them up, in any decoration. A certificate, a book or a meeting begins and ends as well: what
begins here must be called a tool's or a function's call.
"""

from __future__ import annotations

import re
from typing import Final

from fingerpost.choose.guard.modes import MarkedCall
from fingerpost.choose.guard.names import is_distinctive
from fingerpost.choose.guard.verdicts import WAIT_FOR_MORE, HideUntil, ScanPosition, ScanVerdict

RULER: Final = r"\-=*~+%@—–═━─"
_MAX_DELIMITER_LENGTH: Final = 120
_MAX_DELIMITED_LENGTH: Final = 2_000
_DELIMITER_SPACE: Final = r"[ \t_\-]{1,3}"
_DELIMITER_WORDS: Final = rf"(?:[^\W_]{{1,20}}{_DELIMITER_SPACE}){{0,4}}?"
_SURE_WORDS: Final = (
    r"(?:tools?[ _-]{0,3}(?:calls?|calling|use|usage|requests?|invocations?|code|execution"
    r"|inputs?|outputs?|results?"
    r"|responses?|commands?|query|action)"
    r"|functions?[ _-]{0,3}(?:calls?|calling|invocations?|use)"
    r"|(?:plugin|mcp|helper|skill)s?[ _-]{0,3}(?:calls?|use|requests?|invocations?|inputs?"
    r"|outputs?|results?|responses?)"
    r"|(?:api|agent|action)[ _-]{0,3}(?:calls?|invocations?)"
    r"|helper|קריאה לכלי|קריאת כלי|הפעלת כלי|שימוש בכלי)"
)
_WEAK_WORDS: Final = r"(?:lookup|query|search|retrieval|call|invocation|request)"
_LAST_WORD: Final = r"(?![ \t_\-]{0,3}[^\W_])"  # no word follows
_CALL_NOUN: Final = rf"(?:(?P<sure>{_SURE_WORDS}){_LAST_WORD}|(?P<weak>{_WEAK_WORDS}){_LAST_WORD})"
_START_WORDS: Final = r"(?:start|begin|beginning|open|opening|תחילת)"
_END_WORDS: Final = r"(?:end|ending|finish|stop|close|closing|סוף)"
_OF_TOOL: Final = (
    rf"(?:s|ing)?(?:{_DELIMITER_SPACE}of)?{_DELIMITER_SPACE}(?:(?:the|a|an|my|this){_DELIMITER_SPACE})?"
)
_DELIMITER_PHRASE: Final = (
    rf"(?:(?:(?P<start>{_START_WORDS})|(?P<end>{_END_WORDS})){_OF_TOOL}{_DELIMITER_WORDS}{_CALL_NOUN}"
    rf"|{_DELIMITER_WORDS}(?P<noun>{_SURE_WORDS})[ "
    rf"\t_:\-]{{1,3}}(?:(?P<last_start>{_START_WORDS})|(?P<last_end>{_END_WORDS})))"
)
_OPENING_DECORATION: Final = (
    rf"[ \t]{{0,4}}(?P<open>(?P<bracket>[\[({{<«]{{1,3}})[ \t]?[|!{RULER}#_]{{0,6}}"
    rf"|[{RULER}#_>/|<!]{{1,24}})?[ \t]{{0,2}}"
)
_CLOSING_DECORATION: Final = (
    rf"[ \t]{{0,2}}:?[ \t]?(?P<close>[|!{RULER}#_/<]{{0,24}}(?P<last>[\])}}>»]{{0,3}}))"
)
_DELIMITER: Final = re.compile(
    rf"{_OPENING_DECORATION}{_DELIMITER_PHRASE}{_CLOSING_DECORATION}", re.IGNORECASE
)
_DELIMITER_START: Final = re.compile(
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
_LEADING_DECORATION: Final = re.compile(r"[\W_]{0,30}")
_LATE_PHRASE: Final = re.compile(rf"{_DELIMITER_WORDS}{_SURE_WORDS}", re.IGNORECASE)
_DELIMITER_CLOSER: Final = re.compile(
    rf"[\[({{<«|!{RULER}#_/> \t]{{0,30}}"
    rf"(?:{_END_WORDS}{_OF_TOOL}{_DELIMITER_WORDS}(?:{_SURE_WORDS}|{_WEAK_WORDS}){_LAST_WORD}"
    rf"|{_DELIMITER_WORDS}{_SURE_WORDS}[ \t_:\-]{{1,3}}{_END_WORDS})"
    rf"[ \t]{{0,2}}[|!{RULER}#_/<]{{0,24}}[\])}}>»]{{0,3}}",
    re.IGNORECASE,
)
_DELIMITED_BODY: Final = re.compile(
    r"\s{0,20}(?:`{3}\w{0,12}\s{0,9})?(?:\[\s{0,9})?(?:\{|[^\W\d][\w.]{1,80}\()"
)
_ASIDE_VERBS: Final = ("calling", "invoking", "using", "running", "executing")
_ASIDE: Final = re.compile(
    rf"\((?:{'|'.join(_ASIDE_VERBS)})[ ](?:the |a )?(?P<before>(?:tool|function):? )?"
    r"[`'\"]?(?P<name>[\w.\-/]{2,80}?)[`'\"]?(?P<behind> (?:tool|function))?"
    r"(?:[ ][^()\n]{0,80}?)?[ ]?(?:\.{2,3}|…)[ ]?\)",
    re.IGNORECASE,
)


def examine_aside(position: ScanPosition) -> ScanVerdict | None:
    """`Sure! (calling brew_tea...)`: an aside that says which tool is at work; None: none."""
    if not position.accepts_unknown_tools:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DELIMITER_LENGTH)
    found = _ASIDE.match(rest)
    if found is not None:
        named = is_distinctive(found["name"]) or found["before"] or found["behind"]
        return HideUntil(position.at + found.end(), "marker") if named else None
    written = rest[1:].casefold()
    begun = any(verb.startswith(written) or written.startswith(f"{verb} ") for verb in _ASIDE_VERBS)
    return WAIT_FOR_MORE if begun and not complete and "\n" not in rest and ")" not in rest else None


def examine_delimiter(position: ScanPosition) -> ScanVerdict | None:
    """What the words at this place begin or end; None: no call."""
    if position.is_about_syntax:
        return None
    rest, complete = position.look_ahead(position.at, _MAX_DELIMITER_LENGTH)
    if not _may_be_delimiter(rest):
        return None
    found = _DELIMITER.match(rest)
    if found is None or found.end() == len(rest):
        if not complete and _may_become_delimiter(position, rest):
            return WAIT_FOR_MORE
        if found is None:
            return None
    return _classify_delimiter(position, found)


def _may_be_delimiter(rest: str) -> bool:
    """Whether the words behind the decoration can be such at all: nearly all are not."""
    start = _LEADING_DECORATION.match(rest)
    words = rest[start.end() :].casefold() if start is not None else ""
    if not words or words.startswith(_FIRST_WORDS) or any(word.startswith(words) for word in _FIRST_WORDS):
        return True
    return any(noun in words for noun in ("tool", "function", "plugin", "mcp", "helper", "call", "כלי"))


def _may_become_delimiter(position: ScanPosition, rest: str) -> bool:
    begun = _DELIMITER_START.match(rest)
    if begun is None:
        return False
    words = begun["words"].casefold()
    if any(word.startswith(words[: len(word)]) for word in _FIRST_WORDS):
        return True
    return begun.start("words") > 0 and _LATE_PHRASE.match(words) is not None


def _classify_delimiter(position: ScanPosition, found: re.Match[str]) -> ScanVerdict | None:
    end = position.at + found.end()
    behind, complete = position.look_ahead(end, _MAX_DELIMITER_LENGTH)
    ends_line = not behind.partition("\n")[0].strip()
    if not complete and not behind.strip():
        return WAIT_FOR_MORE
    decorated = _is_decorated(found, ends_line=ends_line)
    if not decorated and not (position.is_line_start and (ends_line or found["open"])):
        return None
    if found["end"] or found["last_end"]:
        left_over = position.follows_hidden or (decorated and position.is_line_start and not found["weak"])
        return HideUntil(end, "marker", is_stray=True) if left_over else None
    if decorated and position.is_line_start and not found["weak"]:
        return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))
    return _include_body(position, found, end)


def _is_decorated(found: re.Match[str], *, ends_line: bool) -> bool:
    """Whether brackets or rulers are around the words: those of a sentence and a heading are not."""
    if found["bracket"]:
        return bool(found["last"])
    opening = (found["open"] or "").strip()
    if not opening.strip("#"):
        return "#" in found["close"]
    return len(opening) > 1 and (len(found["close"]) > 1 or ends_line)


def _include_body(position: ScanPosition, found: re.Match[str], end: int) -> ScanVerdict | None:
    """In a sentence or as a heading, what follows decides: a call, or at least its end."""
    limit = min(len(position.text), end + _MAX_DELIMITED_LENGTH)
    body = _DELIMITED_BODY.match(position.text, end, limit)
    closer = _DELIMITER_CLOSER.search(position.text, end, limit)
    if body is not None and not found["weak"]:
        return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))
    if closer is None and not position.final and limit - end < _MAX_DELIMITED_LENGTH:
        return WAIT_FOR_MORE
    if position.final and not position.text[end:].strip():
        return HideUntil(end, "marker")
    if closer is None or (found["weak"] and body is None):
        return None
    return HideUntil(end, "marker", MarkedCall(_DELIMITER_CLOSER))
