"""Values found in a request, with their kind, role and surrounding words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, StrEnum, auto
from typing import Final

from fingerpost.catalog.words import parse_word_set, to_singular
from fingerpost.choose.keyless.tables import get_words
from fingerpost.frozen import frozen
from fingerpost.regex import prepare_re


class ValueKind(StrEnum):
    """The kind of a value, which decides the parameters that accept it."""

    PATH = "path"
    URL = "address"
    HOST = "host"
    EMAIL = "e-mail address"
    DATE = "date"
    MOMENT = "date with time"
    TIME = "time"
    ID = "id"
    REVISION = "revision"
    NUMBER = "number"
    TEXT = "quoted text"
    NAME = "name"
    PATTERN = "pattern"
    SQL = "SQL statement"
    ZONE = "time zone"
    CITY = "city"
    LANGUAGE = "language"
    CURRENCY = "currency"
    OPTION = "listed value"


# Values that are taken as they are written.
UNPARSED_KINDS: Final = frozenset(
    {ValueKind.PATH, ValueKind.ID, ValueKind.HOST, ValueKind.CITY, ValueKind.REVISION, ValueKind.PATTERN}
)


class ValueRole(Enum):
    """Source or destination: "from Rome to Athens"."""

    FROM = auto()
    TO = auto()


@frozen
class RequestValue:
    """One interpretation of one span of the request."""

    kind: ValueKind
    text: str  # as written
    start: int
    end: int
    reading: str | float | None = None  # parsed: an ISO date, a zone, a code; None: not certain
    unit: str = ""  # of a number: "minutes"
    role: ValueRole | None = None
    before: tuple[str, ...] = ()  # the last words before it, nearest first
    label: str = ""  # the word right before it: "issue" in "issue 42"
    noun: str = ""  # the word after it: "lines" in "20 lines"
    behind: tuple[str, ...] = ()  # the next words, in the singular
    cue: str = ""  # first, last, top, most
    denied: bool = False  # excluded: "not b.txt", "except b.txt"

    def overlaps_with(self, other: RequestValue) -> bool:
        return self.start < other.end and other.start < self.end


_WINDOW_LENGTH: Final = 100  # characters on either side
_QUOTES: Final = "\"'`“”‘’«»„"
_TEXT_PIECE = prepare_re(r"[^\s,;:!?()=\"`“”‘’«»„]{1,100}|[,;:!?()=\n]")
_SENTENCE_BREAKS: Final = frozenset(";!?\n()")
_PUNCTUATION: Final = frozenset(",:=")
_HEBREW_PREFIX = prepare_re(r"(?<![א-ת])([א-ת]{1,2})-?$")

# Words between a preposition and its object that carry no meaning here.
_FILLERS: Final = get_words("fillers")
_FROM_WORDS: Final = parse_word_set("from since after starting מאז מן החל מתוך אחרי")
_TO_WORDS: Final = get_words("to_words")
_NEGATION_WORDS: Final = get_words("negation_words")
_COMPARISON_WORDS: Final = get_words("comparison_words")
# A number after one of these is not an exact value.
_VAGUE_WORDS: Final = get_words("vague_words")
_NEGATION_PAIRS: Final = frozenset({"instead of", "rather than", "other than", "apart from"})
_CUES: Final = {**{cue: cue for cue in ("first", "last", "top", "most")}, "latest": "last", "final": "last"}
_ADJECTIVES: Final = get_words("adjectives")
# Kinds for which "in" marks the target: "20 EUR in USD", "say it in Italian".
_CONVERTED_KINDS: Final = frozenset({ValueKind.LANGUAGE, ValueKind.CURRENCY})


@frozen(kw_only=False)
class WordContext:
    """The words before a span, nearest first, and the words after it, within the sentence."""

    before: tuple[str, ...]
    behind: tuple[str, ...]
    prefix: str = ""  # Hebrew prefix letters directly before it


def get_word_context(text: str, start: int, end: int) -> WordContext:
    """Return the words around a span of the text."""
    head = text[max(0, start - _WINDOW_LENGTH) : start].rstrip(_QUOTES)
    found = _HEBREW_PREFIX.search(head)
    if found is not None:
        head = head[: found.start()]
    tail = text[end : end + _WINDOW_LENGTH].lstrip(_QUOTES + "%°")
    return WordContext(
        before=tuple(reversed(_trim_to_last_sentence(_TEXT_PIECE.findall(head)))),
        behind=tuple(_trim_to_first_sentence(_TEXT_PIECE.findall(tail))),
        prefix=found[1] if found is not None else "",
    )


def _trim_to_last_sentence(pieces: list[str]) -> list[str]:
    kept: list[str] = []
    for piece in pieces:
        if piece in _SENTENCE_BREAKS or (piece.endswith(".") and len(piece) > 2):
            kept.clear()
            continue
        kept.append(piece.lower().replace("’", "'"))
    return kept


def _trim_to_first_sentence(pieces: list[str]) -> list[str]:
    kept: list[str] = []
    for piece in pieces:
        if piece in _SENTENCE_BREAKS or piece == ".":
            break
        kept.append(piece.lower().rstrip("."))
        if piece.endswith("."):
            break
    return [piece for piece in kept if piece]


def add_context(value: RequestValue, text: str) -> RequestValue:
    """Return the value with the fields derived from the words around it."""
    near = get_word_context(text, value.start, value.end)
    words = [piece for piece in near.before if piece not in _PUNCTUATION]
    label = words[0] if words and words[0][0].isalpha() and not near.prefix else ""
    vague = value.kind is ValueKind.NUMBER and any(word in _VAGUE_WORDS for word in words[:4])
    return replace(
        value,
        reading=None if vague else value.reading,
        before=tuple(words[:3]),
        role=_infer_role(near, value.kind),
        label=to_singular(label),
        noun=_find_noun(near.behind),
        behind=tuple(to_singular(word) for word in near.behind[:3]),
        cue=next((_CUES[word] for word in words[:2] if word in _CUES), ""),
        denied=_is_negated(near.before),
    )


def _infer_role(near: WordContext, kind: ValueKind) -> ValueRole | None:
    if near.prefix:
        becomes = near.prefix[-1] == "ב" and kind in _CONVERTED_KINDS
        return ValueRole.TO if becomes else {"מ": ValueRole.FROM, "ל": ValueRole.TO}.get(near.prefix[-1])
    before = near.before
    if before[:2] == ("many", "how") or (kind in _CONVERTED_KINDS and before[:1] == ("in",)):
        return ValueRole.TO
    for place, word in enumerate(before[:4]):
        if word in _FROM_WORDS:
            return ValueRole.FROM
        if word in _TO_WORDS:
            compared = any(other in _COMPARISON_WORDS for other in before[place + 1 : place + 6])
            return None if compared else ValueRole.TO
        if word not in _FILLERS:
            return None
    return None


def _find_noun(behind: tuple[str, ...]) -> str:
    for word in behind[:3]:
        if not word[0].isalpha() or any(letter.isdigit() for letter in word):
            return ""
        if word not in _ADJECTIVES:
            return to_singular(word)
    return ""


def _is_negated(before: tuple[str, ...]) -> bool:
    """Return whether a word of exclusion comes shortly before, in the same clause."""
    for place, word in enumerate(before[:6]):
        if word in (",", "but"):
            return False
        if word in _NEGATION_WORDS or word.removeprefix("ו") in _NEGATION_WORDS:
            return True
        if place and f"{word} {before[place - 1]}" in _NEGATION_PAIRS:
            return True
    return False


_CONJUNCTION = prepare_re(
    r"[\"'`”’»]?\s?(?:,|and|or|&|, ?and|, ?or|plus|\+|ו-?|או)(?:\s[\w'-]{1,12})?\s?(?:[א-ת]-?)?[\"'`“‘«]?"
)


def group_joined_values(values: Iterable[RequestValue], text: str) -> list[list[RequestValue]]:
    """Return the groups of values joined by "and", "or" or commas, without excluded values."""
    found: list[list[RequestValue]] = []
    last: dict[ValueKind, RequestValue] = {}
    for value in values:
        if value.denied:
            continue
        before = last.get(value.kind)
        if before is not None and _CONJUNCTION.fullmatch(text[before.end : value.start][:30]):
            joined = next((group for group in found if group[-1] is before), None)
            if joined is None:
                found.append([before, value])
            else:
                joined.append(value)
        last[value.kind] = value
    return found


def share_roles(values: list[RequestValue], text: str) -> tuple[RequestValue, ...]:
    """Give joined values the role of the first one: in "into French and German" both are targets."""
    shared = {
        id(value): group[0].role
        for group in group_joined_values(values, text)
        for value in group[1:]
        if value.role is None
    }
    return tuple(replace(value, role=shared.get(id(value), value.role)) for value in values)
