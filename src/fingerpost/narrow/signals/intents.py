"""Intents of a request: its categories, whether it only asks, and whether it is urgent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from fingerpost.catalog.words import CATEGORIES, OFFICIAL_DATA, to_singular
from fingerpost.data_files import read_patterns, read_sections, read_word_sets
from fingerpost.narrow.gloss.gloss import Gloss
from fingerpost.narrow.gloss.hebrew import fold_word, split_prefixes
from fingerpost.records import Entity, EntityKind, IntentMatch
from fingerpost.regex import prepare_re

_CATEGORY_WORDS: Final = read_word_sets("fingerpost.narrow", "words/categories.txt")
_WEAK_WORDS: Final = _CATEGORY_WORDS["weak"]  # they count little and never decide alone
_PATTERNS: Final = read_patterns("fingerpost.narrow", "words/moods.txt")

_INTENT_WORD: Final = prepare_re(r"[a-z0-9]+")
_STRONG_WEIGHT: Final = 1.0
_WEAK_WEIGHT: Final = 0.35
_PHRASE_WEIGHT: Final = 1.5
_MAX_EVIDENCE: Final = 6
_MAX_EVIDENCE_LENGTH: Final = 60

# Categories suggested by an entity. Dates and numbers suggest none.
_CATEGORY_BY_ENTITY: Final = {
    EntityKind.PATH: ("files", 0.8),
    EntityKind.URL: ("web_page", 0.8),
    EntityKind.EMAIL: ("communication", 0.6),
}

IntentVote = tuple[str, float, str]  # category, weight, the words


def find_intents(text: str, glossed: Gloss, found: Iterable[Entity]) -> tuple[IntentMatch, ...]:
    """Return the categories of the request, best first, each with a score from 0 to 1."""
    weights: dict[str, dict[str, float]] = {}
    for category, weight, words in (
        *_vote_by_words(text),
        *_vote_by_gloss(glossed),
        *_vote_by_entities(found),
    ):
        word_weights = weights.setdefault(category, {})
        word_weights[words] = max(word_weights.get(words, 0.0), weight)
    matches = [
        IntentMatch(
            category=category,
            score=round(1 - 0.5 ** sum(word_weights.values()), 3),
            words=tuple(sorted(word_weights, key=lambda words: -word_weights[words]))[:_MAX_EVIDENCE],
        )
        for category, word_weights in weights.items()
    ]
    return tuple(sorted(matches, key=lambda match: (-match.score, match.category)))


def _vote_by_words(text: str) -> Iterator[IntentVote]:
    words = [found.group() for found in _INTENT_WORD.finditer(text.lower())]
    for word in dict.fromkeys(words):
        yield from _vote_for_word(word, word)
    # Phrases are indexed by their first word, so that their number does not matter.
    for place, word in enumerate(words):
        for category, phrase in _build_phrase_index().get(word, ()):
            if tuple(words[place : place + len(phrase)]) == phrase:
                yield category, _PHRASE_WEIGHT, " ".join(phrase)


def _vote_by_gloss(glossed: Gloss) -> Iterator[IntentVote]:
    """Vote by Hebrew words that a category lists, and by their English translations."""
    for word, english in glossed:
        if not english or english == (word,):
            continue
        own = [(name, word) for name in _find_hebrew_categories(word)]
        yield from ((name, _STRONG_WEIGHT, spoken) for name, spoken in own)
        # The first English word is the most likely; later ones count less.
        for place, meaning in enumerate(english):
            yield from (
                (name, weight / (place + 1), word) for name, weight, _ in _vote_for_word(meaning, word)
            )


def _find_hebrew_categories(word: str) -> tuple[str, ...]:
    for _, rest in split_prefixes(fold_word(word)):
        if rest in _build_hebrew_index():
            return _build_hebrew_index()[rest]
    return ()


def _vote_by_entities(found: Iterable[Entity]) -> Iterator[IntentVote]:
    for entity in found:
        if entity.kind in _CATEGORY_BY_ENTITY:
            category, weight = _CATEGORY_BY_ENTITY[entity.kind]
            yield category, weight, entity.text[:_MAX_EVIDENCE_LENGTH]


def _vote_for_word(word: str, evidence: str) -> Iterator[IntentVote]:
    categories = _build_english_index().get(to_singular(word), ())
    for category in categories:
        weight = _WEAK_WEIGHT if word in _WEAK_WORDS else _STRONG_WEIGHT
        yield category, weight / len(categories) ** 0.5, evidence


@lru_cache(maxsize=1)
def _build_english_index() -> dict[str, tuple[str, ...]]:
    listed = ((category.name, category.english | _CATEGORY_WORDS[category.name]) for category in CATEGORIES)
    return _invert_lists((name, map(to_singular, words)) for name, words in listed)


@lru_cache(maxsize=1)
def _build_hebrew_index() -> dict[str, tuple[str, ...]]:
    return _invert_lists((category.name, map(fold_word, category.hebrew)) for category in CATEGORIES)


@lru_cache(maxsize=1)
def _build_phrase_index() -> dict[str, Sequence[tuple[str, tuple[str, ...]]]]:
    by_first: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for category, phrases in read_sections("fingerpost.narrow", "words/category_phrases.txt").items():
        for phrase in phrases.strip().splitlines():
            words = tuple(phrase.split())
            by_first.setdefault(words[0], []).append((category, words))
    return dict(by_first)


def _invert_lists(lists: Iterable[tuple[str, Iterable[str]]]) -> dict[str, tuple[str, ...]]:
    by_word: dict[str, dict[str, None]] = {}
    for category, words in lists:
        for word in words:
            by_word.setdefault(word, {}).setdefault(category)
    return {word: tuple(categories) for word, categories in by_word.items()}


_OFFICIAL_CUES: Final = prepare_re(_PATTERNS["official data"], re.IGNORECASE)


# Every cue in English has one of these; words are looked for much faster than patterns.
_OFFICIAL_WORDS: Final = (
    "official", "government", "ministry", "municipal", "gov", "census", "statistic", "registry",
    "data portal", "public sector",
)  # fmt: skip


def find_official_data_intent(text: str) -> tuple[IntentMatch, ...]:
    """Return the intent for official data with the words that show it, if the request has it."""
    if not _has_any(text, _OFFICIAL_WORDS):
        return ()
    found = tuple(dict.fromkeys(match.group().strip() for match in _OFFICIAL_CUES.finditer(text)))
    return (IntentMatch(category=OFFICIAL_DATA, score=1.0, words=found[:4]),) if found else ()


MAX_MOOD_LENGTH: Final = 2000

_QUESTION_START: Final = prepare_re(_PATTERNS["question"], re.IGNORECASE)
_REQUEST_START: Final = prepare_re(_PATTERNS["request"], re.IGNORECASE)
_WHETHER_QUESTION: Final = prepare_re(_PATTERNS["whether"], re.IGNORECASE)
_SENTENCE_END: Final = prepare_re(r"[.!?]\s+\S")
_LATER_CHANGE: Final = prepare_re(_PATTERNS["later change"], re.IGNORECASE)
_LOOK_VERB: Final = prepare_re(_PATTERNS["look"], re.IGNORECASE)
_CHANGE_START: Final = prepare_re(_PATTERNS["change"], re.IGNORECASE)
_RECALL_REQUEST: Final = prepare_re(_PATTERNS["recall"], re.IGNORECASE)


def is_only_asking(text: str) -> bool:
    """Return whether the request only reads and changes nothing."""
    beginning = text[:MAX_MOOD_LENGTH].strip()
    if _LOOK_VERB.match(beginning) is not None:
        return _LATER_CHANGE.search(beginning) is None
    if _REQUEST_START.match(beginning) is not None or _LATER_CHANGE.search(beginning) is not None:
        return False
    if _QUESTION_START.match(beginning) is not None:
        return True
    return beginning.endswith("?") and _SENTENCE_END.search(beginning) is None


def is_wishing_change(text: str) -> bool:
    """Return whether the request begins with an instruction to change something."""
    return _CHANGE_START.match(text[:MAX_MOOD_LENGTH].strip()) is not None


def is_asking_whether(text: str) -> bool:
    """Return whether the request asks if something exists or how much, so it names no item."""
    return is_only_asking(text) and _WHETHER_QUESTION.match(text.strip()) is not None


# Every such request in English has one of these.
_RECALL_WORDS: Final = (
    "did i", "did we", "have i", "have we", "had i", "had we", "do i have", "do we have", "do you",
    "where is", "where are", "where was", "where were", "there", "note", "minutes", "documentation", "docs",
    "wiki", "handbook", "guide", "manual", "polic", "knowledge base", "journal", "diary", "records", "memor",
)  # fmt: skip


def is_asking_to_recall(text: str) -> bool:
    """Return whether the request asks for something written down, decided or remembered earlier."""
    beginning = text[:MAX_MOOD_LENGTH].replace("’", "'")
    return _has_any(beginning, _RECALL_WORDS) and _RECALL_REQUEST.search(beginning) is not None


def _has_any(text: str, words: Iterable[str]) -> bool:
    """Return whether one of these English words is in the text, or the text may be in Hebrew."""
    lowered = text.lower()
    return not text.isascii() or any(word in lowered for word in words)


_NOT_URGENT: Final = prepare_re(_PATTERNS["not urgent"], re.IGNORECASE)
_URGENT_WORDS: Final = prepare_re(_PATTERNS["urgent"], re.IGNORECASE)


# Every pattern needs one of these in the text, and this check is cheap.
_URGENCY_CUES: Final = (
    "urgent", "asap", "a.s.a.p", "immediately", "hurry", "quick", "time", "as soon", "as fast", "away",
    "delay", "at once", "rush", "right now", "this is", "is down",
    "דחו", "דחיפו", "מיד", "מייד", "בהקדם", "בהיל", "ברגע זה", "דיחוי", "שיהוי", "בוער", "ממהר", "מהר",
    "במהירות",
)  # fmt: skip


def is_urgent(text: str) -> bool:
    """Return whether the request is marked as urgent."""
    lowered = text.lower()
    if not any(cue in lowered for cue in _URGENCY_CUES):
        return False
    if _URGENT_WORDS.search(text) is None:
        return False
    return _URGENT_WORDS.search(_NOT_URGENT.sub(" ", text)) is not None
