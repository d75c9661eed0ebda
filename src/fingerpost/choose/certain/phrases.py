"""What a search is for, where the request marks it off cleanly: "search my notes for API design"."""

from __future__ import annotations

import re
from typing import Final

from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.choose.certain.slots import is_search
from fingerpost.choose.certain.taking import AssignedArgument, FillState
from fingerpost.choose.certain.values import ValueKind
from fingerpost.records import ToolCard

MAX_PHRASE_LENGTH: Final = 200

_SEARCH_FOR = re.compile(
    r"\b(?:(?:search|searching|look|looking|query|lookup)\b(?P<where>[^\n.?!]{0,60}?) (?:for|about|on)"
    r"|find\b[^\n.?!]{0,60}? about) "
    r"(?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_SEARCH_ABOUT = re.compile(
    r"\b(?:say|says|know|have|anything|something|information|info|notes?|pages?|mention|mentions) about "
    r"(?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_SEARCH_MENTIONING = re.compile(
    r"\b(?:which|what|find|show me|list)\b[^\n.?!]{0,30}?\b(?:files?|notes?|documents?|pages?|places)\b"
    r"(?: (?:that|which|where))? (?:mentions?|contains?|speaks? of|refers? to) (?P<what>[^\n]{2,300})",
    re.IGNORECASE,
)
_SEARCH_HEBREW = re.compile(
    r"(?:^|\s)(?:חפשי?|תחפשי?|לחפש|מצאי?|תמצאי?|למצוא)(?P<where>[^\n.?!]{0,60}?)"
    r" (?:על|אחר|את) (?P<what>[^\n]{2,300})"
)
_PHRASE_LEAD = re.compile(
    r"^(?:the )?(?:information|info|anything|everything|something|details|מידע|משהו) (?:about|on|על) "
)
_TAIL_END = re.compile(r"[\s,]{1,3}(?:please|thanks|thank you|בבקשה|תודה)[.!?]{0,3}$", re.IGNORECASE)
_PLACE_SUFFIX = re.compile(
    r"^(?P<what>.{2,200}) (?:in|from|on|inside|within) (?:my|the|our) (?P<place>[\w ]{2,40})$"
)
_FURTHER_CLAUSE = re.compile(
    r"(?:,|\band\b|\bthen\b|;)\s{1,2}(?:then |also )?"
    r"(?:send|email|e-mail|mail|delete|remove|save|write|tell|show|open"
    r"|give|make|create|summari[sz]e|translate|read|print|list|put|add|copy|move|post|explain|compare|sort|count|let"
    r"|book|call|remind|update|store)\b|\b(?:then|afterwards)\b|(?:^|\s)ו(?:אז|שלח|תשלח|מחק|תמחק)",
    re.IGNORECASE,
)
_EMPTY_PHRASES: Final = parse_word_set(
    """
    it this that them these those me something anything everything stuff things one some any him her us
    זה אותו אותה
    """
)
_DANGLING_WORDS = re.compile(
    r"[\s,]{1,3}(?:from|with|by|since|before|after|until|in|at|of|and|the|limit|to|for|only|as)$"
)
_COUNTED_PHRASE = re.compile(
    r"^\d{1,5} |\b(?:limit|max|top|most|first|last)(?: to| of)? \d"
    r"|\b\d{1,5} (?:results|items|hits|entries)\b",
    re.IGNORECASE,
)
_THING_KINDS: Final = frozenset({ValueKind.PATH, ValueKind.URL, ValueKind.EMAIL, ValueKind.PATTERN})


def assign_search_phrase(state: FillState, card: ToolCard) -> None:
    """The words to search for, when the tool's one required text is what it searches for."""
    needed = [slot for slot in state.slots if slot.required and slot.parameter.shape.type == "string"]
    if len(needed) != 1 or needed[0].name in state.assigned or not is_search(card, needed[0]):
        return
    slot = needed[0]
    ways = (_SEARCH_HEBREW, _SEARCH_MENTIONING, _SEARCH_FOR, _SEARCH_ABOUT)
    found = next((match for way in ways if (match := way.search(state.text))), None)
    if found is None:
        return
    start = found.start("what")
    said = _cut_at_used_span(state, start, found["what"])
    said = _clean_phrase(said, card) if said is not None else None
    if said is None or _contains_day(state, start, said) or _names_other_things(state, said):
        return
    place = state.text.find(said, found.start())
    reason = f'the request asks to search for "{said}"'
    state.assign(slot, AssignedArgument(argument=said, reason=reason, spans=((place, place + len(said)),)))


def _cut_at_used_span(state: FillState, start: int, text: str) -> str | None:
    """The phrase up to what another parameter took; None when that stands in its middle."""
    inside = sorted(
        stretch for stretch in state.iterate_used_spans() if start <= stretch[0] < start + len(text)
    )
    if not inside:
        return text
    behind = text[max(last for _, last in inside) - start :]
    if re.search(r"[^\W_]", behind):
        return None
    text = text[: inside[0][0] - start].rstrip(" ,\"'`")
    for _ in range(3):
        text = _DANGLING_WORDS.sub("", text).rstrip(" ,")
    return text


def _clean_phrase(text: str, card: ToolCard) -> str | None:
    text = _TAIL_END.sub("", text.strip()).rstrip(" ?.!,")
    text = _PHRASE_LEAD.sub("", text)
    if _FURTHER_CLAUSE.search(text) or _COUNTED_PHRASE.search(text):
        return None
    if placed := _PLACE_SUFFIX.match(text):
        known = {
            to_singular(word)
            for word in (
                *split_words(card.name),
                *split_words(card.server),
                *split_words(card.description[:200]),
            )
        }
        if not known & {to_singular(word) for word in split_words(placed["place"])}:
            return None
        text = placed["what"]
    if (
        not 2 <= len(text) <= MAX_PHRASE_LENGTH
        or text.lower() in _EMPTY_PHRASES
        or text.split()[0].lower() in _EMPTY_PHRASES
    ):
        return None
    return text if _is_balanced(text) else None


def _is_balanced(text: str) -> bool:
    return text.count('"') % 2 == 0 and "`" not in text


def _names_other_things(state: FillState, text: str) -> bool:
    """Whether files, pages or people are named that this search would not look at."""
    return any(value.kind in _THING_KINDS and value.text != text for value in state.get_free_values())


def _contains_day(state: FillState, start: int, text: str) -> bool:
    """ "mail from last week": the day is a condition, not a word to look for."""
    return any(
        value.kind in (ValueKind.DATE, ValueKind.MOMENT) and start <= value.start < start + len(text)
        for value in state.values
    )
