"""What a search is for, where the request marks it off cleanly: "search my notes for API design"."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import singular, word_set, words
from fingerpost.choose.certain.slots import is_search
from fingerpost.choose.certain.taking import Taken, Taking
from fingerpost.choose.certain.values import Kind
from fingerpost.records import ToolCard

LONGEST: Final = 200

_FOR = re.compile(
    r"\b(?:(?:search|searching|look|looking|query|lookup)\b(?P<where>[^\n.?!]{0,60}?) (?:for|about|on)"
    r"|find\b[^\n.?!]{0,60}? about) "
    r"(?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_ABOUT = re.compile(
    r"\b(?:say|says|know|have|anything|something|information|info|notes?|pages?|mention|mentions) about "
    r"(?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_MENTIONING = re.compile(
    r"\b(?:which|what|find|show me|list)\b[^\n.?!]{0,30}?\b(?:files?|notes?|documents?|pages?|places)\b"
    r"(?: (?:that|which|where))? (?:mentions?|contains?|speaks? of|refers? to) (?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_HEBREW = re.compile(
    r"(?:^|\s)(?:חפשי?|תחפשי?|לחפש|מצאי?|תמצאי?|למצוא)(?P<where>[^\n.?!]{0,60}?)"
    r" (?:על|אחר|את) (?P<what>[^\n]{2,300})"
)
_LEAD = re.compile(
    r"^(?:the )?(?:information|info|anything|everything|something|details|מידע|משהו) (?:about|on|על) "
)
_TAIL_END = re.compile(r"[\s,]{1,3}(?:please|thanks|thank you|בבקשה|תודה)[.!?]{0,3}$", re.IGNORECASE)
_PLACE = re.compile(
    r"^(?P<what>.{2,200}) (?:in|from|on|inside|within) (?:my|the|our) (?P<place>[\w ]{2,40})$"
)
_MORE = re.compile(
    r"(?:,|\band\b|\bthen\b|;)\s{1,2}(?:then |also )?"
    r"(?:send|email|e-mail|mail|delete|remove|save|write|tell|show|open"
    r"|give|make|create|summari[sz]e|translate|read|print|list|put|add|copy|move|post|explain|compare|sort|count|let"
    r"|book|call|remind|update|store)\b|\b(?:then|afterwards)\b|(?:^|\s)ו(?:אז|שלח|תשלח|מחק|תמחק)",
    re.IGNORECASE,
)
_EMPTY: Final = word_set(
    """
    it this that them these those me something anything everything stuff things one some any him her us
    זה אותו אותה
    """
)
_DANGLING = re.compile(
    r"[\s,]{1,3}(?:from|with|by|since|before|after|until|in|at|of|and|the|limit|to|for|only|as)$"
)
_COUNTED = re.compile(
    r"^\d{1,5} |\b(?:limit|max|top|most|first|last)(?: to| of)? \d"
    r"|\b\d{1,5} (?:results|items|hits|entries)\b",
    re.IGNORECASE,
)
_THINGS: Final = frozenset({Kind.PATH, Kind.URL, Kind.EMAIL, Kind.PATTERN})


def take_phrase(taking: Taking, card: ToolCard) -> None:
    """The words to search for, when the tool's one required text is what it searches for."""
    needed = [slot for slot in taking.slots if slot.required and slot.parameter.shape.type == "string"]
    if len(needed) != 1 or needed[0].name in taking.taken or not is_search(card, needed[0]):
        return
    slot = needed[0]
    ways = (_HEBREW, _MENTIONING, _FOR, _ABOUT)
    found = next((match for way in ways if (match := way.search(taking.text))), None)
    if found is None:
        return
    start = found.start("what")
    said = _cut_at_used(taking, start, found["what"])
    said = _cleaned(said, card) if said is not None else None
    if said is None or _holds_a_day(taking, start, said) or _speaks_of_things(taking, said):
        return
    place = taking.text.find(said, found.start())
    reason = f'the request asks to search for "{said}"'
    taking.take(slot, Taken(argument=said, reason=reason, stretches=((place, place + len(said)),)))


def _cut_at_used(taking: Taking, start: int, said: str) -> str | None:
    """The phrase up to what another parameter took; None when that stands in its middle."""
    inside = sorted(stretch for stretch in taking.used() if start <= stretch[0] < start + len(said))
    if not inside:
        return said
    behind = said[max(last for _, last in inside) - start :]
    if re.search(r"[^\W_]", behind):
        return None
    said = said[: inside[0][0] - start].rstrip(" ,\"'`")
    for _ in range(3):
        said = _DANGLING.sub("", said).rstrip(" ,")
    return said


def _cleaned(said: str, card: ToolCard) -> str | None:
    said = _TAIL_END.sub("", said.strip()).rstrip(" ?.!,")
    said = _LEAD.sub("", said)
    if _MORE.search(said) or _COUNTED.search(said):
        return None
    if placed := _PLACE.match(said):
        known = {
            singular(word)
            for word in (*words(card.name), *words(card.server), *words(card.description[:200]))
        }
        if not known & {singular(word) for word in words(placed["place"])}:
            return None
        said = placed["what"]
    if not 2 <= len(said) <= LONGEST or said.lower() in _EMPTY or said.split()[0].lower() in _EMPTY:
        return None
    return said if _is_balanced(said) else None


def _is_balanced(said: str) -> bool:
    return said.count('"') % 2 == 0 and "`" not in said


def _speaks_of_things(taking: Taking, said: str) -> bool:
    """Whether files, pages or people are named that this search would not look at."""
    return any(value.kind in _THINGS and value.text != said for value in taking.free_values())


def _holds_a_day(taking: Taking, start: int, said: str) -> bool:
    """ "mail from last week": the day is a condition, not a word to look for."""
    return any(
        value.kind in (Kind.DATE, Kind.MOMENT) and start <= value.start < start + len(said)
        for value in taking.values
    )
