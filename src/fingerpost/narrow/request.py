"""The request to narrow for: its text, its needs, and its dependence on earlier turns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import Enum, auto
from itertools import islice, pairwise
from typing import Final

from fingerpost.catalog.effects import AMBIGUOUS_VERBS, DESTROY_VERBS, NOUN_LIKE, READ_VERBS, WRITE_VERBS
from fingerpost.catalog.words import STOP_WORDS
from fingerpost.data_files import read_patterns, read_word_sets
from fingerpost.frozen import frozen
from fingerpost.records import Effort, HiddenTool, Message, ServerChoice
from fingerpost.records.json import to_valid_text
from fingerpost.regex import prepare_re
from fingerpost.settings import Settings

# The topic of a request is at its beginning and the instruction often at its end;
# pasted text is in between.
HEAD_LENGTH: Final = 4000
TAIL_LENGTH: Final = 1000
_CUT_NOTE: Final = "\n…\n"
_WORDS: Final = read_word_sets("fingerpost.narrow", "words/requests.txt")
_PATTERNS: Final = read_patterns("fingerpost.narrow", "words/parts.txt")


@frozen
class NarrowRequest:
    """One request to narrow the catalog for.

    `hidden` are tools that policy hides from this caller: they are not scored and appear only in
    explanations. `health` maps unusable servers to the reason; all other servers are healthy.
    """

    text: str
    history: tuple[Message, ...] = ()
    conversation: str | None = None
    caller: str | None = None
    profile: str | None = None
    allowed: frozenset[str] | None = None  # only these tools, by key; None: all
    hidden: Mapping[str, HiddenTool] = field(default_factory=dict[str, HiddenTool])
    servers: ServerChoice | None = None
    max_tools: int | None = None  # None: from the settings
    health: Mapping[str, str] = field(default_factory=dict[str, str])
    used: tuple[str, ...] = ()  # tools used in this conversation, latest last
    # Their habits count; decides which names explanations show. None: no habits, all names.
    person: str | None = None
    settings: Settings | None = None  # settings of this request, if they differ from the default
    effort: Effort | None = None  # a quick or a thorough answer is requested
    about: str | None = None  # key of a tool to explain even with a low score


def bound_text(text: str) -> str:
    """Return valid text of limited length: of a very long request, the beginning and the end."""
    if len(text) > HEAD_LENGTH + TAIL_LENGTH:
        text = text[:HEAD_LENGTH] + _CUT_NOTE + text[-TAIL_LENGTH:]
    return to_valid_text(text).strip()


def get_earlier_turns(history: tuple[Message, ...]) -> tuple[str, ...]:
    """Return the person's last two earlier messages, latest first."""
    texts = (bound_text(message.text) for message in reversed(history[-40:]) if message.role == "user")
    return tuple(islice((text for text in texts if text), 2))


# The maximum weight of an earlier turn.
MAX_EARLIER_WEIGHT: Final = 0.4
_LATER_TURN_FACTOR: Final = 0.5  # weight of each earlier turn relative to the next one
_MIN_INDEPENDENT_WORDS: Final = 8  # content words that make a request independent
_COMPLETE_SENTENCE_WEIGHT: Final = 0.25  # relative to a request of the same length that refers to something
_MAX_FRAGMENT_WORDS: Final = 6  # words after the opening
_MAX_NAME_WORDS: Final = 2  # words of a fragment that is only a name: "Paris?"


class Dependence(Enum):
    """How a request depends on earlier turns."""

    COMPLETE = auto()
    REFERS = auto()
    FRAGMENT = auto()


_FOLLOWUP_OPENING: Final = prepare_re(_PATTERNS["fragment opening"], re.IGNORECASE)
# In Hebrew "and" is a prefix letter. Before these letters it starts a clause, not a fragment.
_HEBREW_AND: Final = prepare_re(r"^\W*ו(?=[א-ת]{2})(?!(?:ת|א|נ|י)[א-ת]{3})")
_AGAIN: Final = prepare_re(_PATTERNS["again"], re.IGNORECASE)
_POINTING: Final = prepare_re(_PATTERNS["pointing"], re.IGNORECASE)
_EXPLETIVES: Final = prepare_re(_PATTERNS["expletive"], re.IGNORECASE)
_FOLLOWUP_WORD: Final = prepare_re(r"[^\W_]+(?:['’][^\W_]+)*")
_LETTERS: Final = prepare_re(r"[^\W\d_]{2,}")
_NAMED: Final = prepare_re(r"[\w-]\.[a-z]{1,5}\b|[/@\\\"“«]", re.IGNORECASE)
_LOW_CONTENT_WORDS: Final = STOP_WORDS | _WORDS["low content"]


def classify_dependence(text: str) -> Dependence:
    """Return how the request depends on earlier turns."""
    if _is_fragment(text):
        return Dependence.FRAGMENT
    if _POINTING.search(_EXPLETIVES.sub(" ", text)) is not None:
        return Dependence.REFERS
    return Dependence.COMPLETE


def _is_fragment(text: str) -> bool:
    opening = _FOLLOWUP_OPENING.match(text) or _HEBREW_AND.match(text)
    rest = text[opening.end() :] if opening is not None else text
    words = [word.casefold() for word in _FOLLOWUP_WORD.findall(rest)[: _MAX_FRAGMENT_WORDS + 1]]
    if len(words) > _MAX_FRAGMENT_WORDS or _NAMED.search(text) is not None:
        return False
    if _AGAIN.search(text) is not None:
        return True
    if opening is not None:
        return not words or words[0] not in _WORDS["clause start"]
    if not words or words[0] in _WORDS["clause start"]:
        return False
    if words[0] in _WORDS["fragment start"] or len(words) == 1:
        return True
    return len(words) <= _MAX_NAME_WORDS and text.rstrip().endswith("?")


def compute_history_weight(text: str) -> float:
    """Return how much earlier turns count for the request, 0 to 1."""
    content = sum(1 for word in _LETTERS.findall(text) if word.casefold() not in _LOW_CONTENT_WORDS)
    weight = max(0.0, 1 - content / _MIN_INDEPENDENT_WORDS)
    dependence = classify_dependence(text)
    if dependence is Dependence.FRAGMENT:
        return 1.0 if content <= 1 else weight
    if dependence is Dependence.REFERS:
        return weight
    return 0.0 if _NAMED.search(text) is not None else _COMPLETE_SENTENCE_WEIGHT * weight


def compute_turn_weights(text: str, turns: int) -> tuple[float, ...]:
    """Return the weight of each earlier turn, latest first."""
    first = MAX_EARLIER_WEIGHT * compute_history_weight(text)
    return tuple(first * _LATER_TURN_FACTOR**place for place in range(turns))


MAX_NEEDS: Final = 4
MAX_SPLIT_LENGTH: Final = 5000  # characters examined
_MIN_NEED_WORDS: Final = 2
_MIN_NEED_LETTERS: Final = 8

_ASKING_VERBS: Final = (
    READ_VERBS | WRITE_VERBS | AMBIGUOUS_VERBS | DESTROY_VERBS | _WORDS["everyday verbs"]
) - _WORDS["not verbs"]
# Words that are often nouns ("a movie and book list"): verbs only when an object follows.
_DOUBTFUL_VERBS: Final = (NOUN_LIKE | _WORDS["doubtful verbs"]) & _ASKING_VERBS
_OBJECT: Final = _PATTERNS["object"]


def _join_words(words: frozenset[str]) -> str:
    return f"(?:{'|'.join(sorted(words, key=len, reverse=True))})"


_CERTAIN_VERB: Final = _join_words(_ASKING_VERBS - _DOUBTFUL_VERBS) + r"\b"
_DOUBTFUL_VERB: Final = rf"{_join_words(_DOUBTFUL_VERBS)}\s+(?={_OBJECT})"
_ANY_VERB: Final = _join_words(_ASKING_VERBS) + r"\b"
_POLITE_OPENING: Final = (
    r"(?:please\s+|kindly\s+|also\s+|finally\s+|lastly\s+|next\s+|then\s+|just\s+|maybe\s+)*"
)
_VERB: Final = rf"{_POLITE_OPENING}(?:{_CERTAIN_VERB}|{_DOUBTFUL_VERB})"

_QUESTION_WORD: Final = _PATTERNS["question word"]

_ENGLISH_JOINT: Final = prepare_re(
    r"[,;]?\s+(?:and|but)\s+(?:then|also|finally|lastly|after\s+that|afterwards)\b,?\s+"
    r"|[,;]\s+(?:then|after\s+that|afterwards|plus)\s+"
    rf"|,\s+(?:and\s+)?(?={_VERB})"
    rf"|\s+(?:and|then)\s+(?={_VERB})"
    rf"|,?\s+and\s+(?={_QUESTION_WORD})",
    re.IGNORECASE,
)
_HEBREW_VERBS: Final = "|".join(sorted(_WORDS["hebrew verbs"]))
_HEBREW_JOINT: Final = prepare_re(
    r",?\s+(?:ואז|וגם|ואחר\s+כך|ואחרי\s+זה|ואחרי\s+כן|ולאחר\s+מכן|ובנוסף|ולבסוף|וכן)\s+"
    rf"|,?\s+(?=ו(?:{_HEBREW_VERBS})\b)"
)
_OTHER_JOINT: Final = prepare_re(_PATTERNS["joint"], re.IGNORECASE)
_JOINTS: Final = {"en": _ENGLISH_JOINT, "he": _HEBREW_JOINT}

# Not after a single letter ("J.K. Rowling", "10 a.m.").
_SENTENCE_END: Final = prepare_re(
    r"(?<=\w\w[.!?])\s+|(?<=[!?])\s+|(?<=[\d)\]\"'”’][.!?])\s+(?=[A-Z])|(?<=[;。！？；])\s*|\n+"
)
_LIST_ITEM: Final = prepare_re(r"^\s*(?:\(?\d{1,2}[.):]|[-*•–])\s+(?=\S)", re.MULTILINE)
_INLINE_LIST_ITEM: Final = prepare_re(r"(?:^|(?<=[\s:;,.]))\(?[1-9][).]\s+(?=\S)")

_NEED_OPENING: Final = _PATTERNS["need opening"]
_ASKS_SOMETHING: Final = prepare_re(
    rf"^(?:{_NEED_OPENING})*{_POLITE_OPENING}(?:{_ANY_VERB}|what|which|who|whose|when|where|how|is|are|"
    r"does|do|did|will|has|have|show|let's)\b"
    r"|\b(?:can|could|would|will)\s+(?:you|u|we)\b"
    r"|\b(?:please|pls|kindly)\b"
    r"|\bI(?:\s+(?:also|just|really|still))?(?:'d|’d|\s+would)?(?:\s+(?:also|really))?\s+(?:like|love|want|need|wish)\b"
    r"|\b(?:looking\s+for|wondering|curious|tell\s+me|let\s+me\s+know|give\s+me|show\s+me|help\s+me)\b"
    r"|\?",
    re.IGNORECASE,
)

# A part with only these words ("can you help me with that?") is not a separate need.
_EMPTY_PIECE_WORDS: Final = STOP_WORDS | _WORDS["empty"]
_SPLIT_WORD: Final = prepare_re(r"[^\W\d_]+|\d+")
_WIDE_GAP: Final = prepare_re(r"[^\S\n]{20,}")  # long white space would make the joint patterns slow


_SQL_STATEMENT: Final = prepare_re(
    r"(?:(?:[Pp]lease|[Rr]un|[Ee]xecute|this|the|sql|SQL|query:?|statement:?) ){0,5}"
    r"(?:SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|ALTER|PRAGMA) [^\n]*"
)


def split_needs(text: str, language: str = "en") -> tuple[str, ...]:
    """Split a request into its needs, in order. Return the whole request when it has only one."""
    whole = text.strip()
    if not whole:
        return ()
    if _SQL_STATEMENT.match(whole):
        return (whole,)
    looked_at = _WIDE_GAP.sub(" ", whole[:MAX_SPLIT_LENGTH])
    needs = [piece for piece in _split_pieces(looked_at, language) if _is_need(piece, language)]
    return _merge_shortest(needs) if len(needs) > 1 else (whole,)


def _split_pieces(text: str, language: str) -> Iterator[str]:
    joint = _JOINTS.get(language, _OTHER_JOINT)
    for item in _split_list_items(text):
        for sentence in _SENTENCE_END.split(item):
            yield from _join_small_parts(joint.split(sentence))


def _split_list_items(text: str) -> list[str]:
    """Return the items of a list, with the introduction first."""
    for mark in (_LIST_ITEM, _INLINE_LIST_ITEM):
        if len(mark.findall(text)) > 1:
            return mark.split(text)
    return [text]


_SHOWN_RESULT: Final = prepare_re(_PATTERNS["shown result"], re.IGNORECASE)


def _join_small_parts(parts: Iterable[str]) -> Iterator[str]:
    """Join parts that are too small to be a need with the part before ("find it, read, send")."""
    kept = ""
    for part in parts:
        piece = part.strip(" ,;:\t")
        if not piece:
            continue
        if kept and (_is_too_small(piece) or _SHOWN_RESULT.match(piece)):
            kept = f"{kept}, {piece}"
            continue
        if kept:
            yield kept
        kept = piece
    if kept:
        yield kept


def _is_too_small(piece: str) -> bool:
    spaced = piece.isascii() or " " in piece
    return len(piece.split()) < _MIN_NEED_WORDS if spaced else len(piece) < _MIN_NEED_LETTERS // 2


def _is_need(piece: str, language: str) -> bool:
    if _is_too_small(piece) or len(piece) < _MIN_NEED_LETTERS // 2:
        return False
    if language != "en":
        return True
    return _ASKS_SOMETHING.search(piece) is not None and _has_content(piece)


def _has_content(piece: str) -> bool:
    return any(word.lower() not in _EMPTY_PIECE_WORDS for word in _SPLIT_WORD.findall(piece))


def _merge_shortest(needs: list[str]) -> tuple[str, ...]:
    """Merge neighbours, the shortest first, until at most `MAX_NEEDS` are left."""
    joined = list(needs)
    while len(joined) > MAX_NEEDS:
        lengths = [len(first) + len(second) for first, second in pairwise(joined)]
        at = lengths.index(min(lengths))
        joined[at : at + 2] = [f"{joined[at]}; {joined[at + 1]}"]
    return tuple(joined)
