"""What stands around a value in the request: the words before and behind it, and what they make of it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from fingerpost.catalog.words import singular, word_set
from fingerpost.choose.certain.values import Kind, Role, Value
from fingerpost.frozen import frozen

_WINDOW: Final = 100  # characters looked at on either side
_QUOTES: Final = "\"'`“”‘’«»„"
_PIECE = re.compile(r"[^\s,;:!?()=\"`“”‘’«»„]{1,100}|[,;:!?()=\n]")
_BREAKS: Final = frozenset(";!?\n()")
_MARKS: Final = frozenset(",:=")
_GLUED = re.compile(r"(?<![א-ת])([א-ת]{1,2})-?$")

# Words between a preposition and its object that say nothing of their own.
_FILLERS: Final = word_set(
    """
    the a an my our this that file files folder directory path page site city address url currency
    language time timezone zone branch repo repository account user את הקובץ קובץ תיקיית התיקייה העיר
    """
)
_FROM: Final = word_set("from since after starting מאז מן החל מתוך אחרי")
_TO: Final = word_set("to into until till before toward towards onto through against אל עד לתוך לפני")
_DENIALS: Final = word_set(
    """
    not no don't dont doesn't never except excluding exclude without ignore ignoring skip skipping
    unless avoid besides keep keeping spare leave לא בלי ללא חוץ למעט מלבד במקום
    """
)
_COMPARING: Final = word_set(
    "compare compared comparing similar equal identical relative closer next belongs"
)
# A number after one of these is not the number that is meant.
_VAGUE: Final = word_set(
    """
    half double twice triple third quarter than over under around about roughly approximately almost nearly
    between
    """
)
_DENYING_PAIRS: Final = frozenset(
    {("instead", "of"), ("rather", "than"), ("other", "than"), ("apart", "from")}
)
_CUES: Final = {
    "first": "first",
    "last": "last",
    "latest": "last",
    "final": "last",
    "top": "top",
    "most": "most",
}
_ADJECTIVES: Final = word_set(
    "recent latest new newest last first next more random different top best oldest"
)
# Kinds for which "in" says what it is to become: "20 EUR in USD", "say it in Italian".
_BECOMES: Final = frozenset({Kind.LANGUAGE, Kind.CURRENCY})


@frozen(kw_only=False)
class Around:
    """The words before a stretch, the nearest first, and those behind it; none beyond the sentence."""

    before: tuple[str, ...]
    behind: tuple[str, ...]
    glued: str = ""  # Hebrew prefix letters right before it


def around(text: str, start: int, end: int) -> Around:
    """What stands next to a stretch of the text."""
    head = text[max(0, start - _WINDOW) : start].rstrip(_QUOTES)
    found = _GLUED.search(head)
    if found is not None:
        head = head[: found.start()]
    tail = text[end : end + _WINDOW].lstrip(_QUOTES + "%°")
    return Around(
        before=tuple(reversed(_last_sentence(_PIECE.findall(head)))),
        behind=tuple(_first_sentence(_PIECE.findall(tail))),
        glued=found[1] if found is not None else "",
    )


def _last_sentence(pieces: list[str]) -> list[str]:
    kept: list[str] = []
    for piece in pieces:
        if piece in _BREAKS or (piece.endswith(".") and len(piece) > 2):
            kept.clear()
            continue
        kept.append(piece.lower().replace("’", "'"))
    return kept


def _first_sentence(pieces: list[str]) -> list[str]:
    kept: list[str] = []
    for piece in pieces:
        if piece in _BREAKS or piece == ".":
            break
        kept.append(piece.lower().rstrip("."))
        if piece.endswith("."):
            break
    return [piece for piece in kept if piece]


def placed(value: Value, text: str) -> Value:
    """The value with what its surroundings say."""
    near = around(text, value.start, value.end)
    words = [piece for piece in near.before if piece not in _MARKS]
    label = words[0] if words and words[0][0].isalpha() and not near.glued else ""
    vague = value.kind is Kind.NUMBER and any(word in _VAGUE for word in words[:4])
    return replace(
        value,
        reading=None if vague else value.reading,
        before=tuple(words[:3]),
        role=_role(near, value.kind),
        label=singular(label),
        noun=_noun(near.behind),
        behind=tuple(singular(word) for word in near.behind[:3]),
        cue=next((_CUES[word] for word in words[:2] if word in _CUES), ""),
        denied=_is_denied(near.before),
    )


def _role(near: Around, kind: Kind) -> Role | None:
    if near.glued:
        becomes = near.glued[-1] == "ב" and kind in _BECOMES
        return Role.TO if becomes else {"מ": Role.FROM, "ל": Role.TO}.get(near.glued[-1])
    before = near.before
    if before[:2] == ("many", "how") or (kind in _BECOMES and before[:1] == ("in",)):
        return Role.TO
    for place, word in enumerate(before[:4]):
        if word in _FROM:
            return Role.FROM
        if word in _TO:
            compared = any(other in _COMPARING for other in before[place + 1 : place + 6])
            return None if compared else Role.TO
        if word not in _FILLERS:
            return None
    return None


def _noun(behind: tuple[str, ...]) -> str:
    for word in behind[:3]:
        if not word[0].isalpha() or any(letter.isdigit() for letter in word):
            return ""
        if word not in _ADJECTIVES:
            return singular(word)
    return ""


def _is_denied(before: tuple[str, ...]) -> bool:
    """Whether a word that leaves things out stands close before, in the same part of the sentence."""
    for place, word in enumerate(before[:6]):
        if word in (",", "but"):
            return False
        if (
            word in _DENIALS
            or word.removeprefix("ו") in _DENIALS
            or (place and (word, before[place - 1]) in _DENYING_PAIRS)
        ):
            return True
    return False
