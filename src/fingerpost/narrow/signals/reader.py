"""Read the signals of a request: language, gloss, intents, mentions and entities."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from fingerpost.catalog.words import split_words
from fingerpost.data_files import read_sections, read_word_sets
from fingerpost.frozen import frozen
from fingerpost.narrow.gloss.gloss import (
    TABLE_LANGUAGES,
    Gloss,
    SoundIndex,
    count_known_words,
    gloss_words,
    join_gloss,
    translate_request,
)
from fingerpost.narrow.gloss.hebrew import is_hebrew
from fingerpost.narrow.signals.intents import (
    find_intents,
    find_official_data_intent,
    is_asking_to_recall,
    is_only_asking,
    is_urgent,
)
from fingerpost.narrow.signals.mentions import MentionFinder, get_name_words, is_ordinary_name
from fingerpost.records import Entity, EntityKind, Signals, ToolCard
from fingerpost.regex import prepare_re

# One or two Hebrew letters joined to a Latin name by a hyphen are a preposition: `ב-main.py`.
GLUED_PREFIXES: Final = prepare_re(r"^[א-ת]{1,3}-(?=[\w~/.])")
TRAILING_PUNCTUATION: Final = ".,;:!?)]}>״\"'"


@frozen(kw_only=False)
class EntityPattern:
    """One kind of entity, its pattern, and a cheap check that a lower-case text must pass first."""

    kind: EntityKind
    pattern: re.Pattern[str]
    prefilter: re.Pattern[str]


def _read_patterns() -> Iterator[EntityPattern]:
    sections = read_sections("fingerpost.narrow", "words/entities.txt")
    lists = {title: "|".join(text.split()) for title, text in sections.items() if title[0] == "§"}
    for title, text in sections.items():
        if title not in lists:
            prefilter, *alternatives = text.strip().splitlines()
            pattern = _LIST_NAME.sub(lambda name: lists[name[0]], "|".join(alternatives))
            kind = EntityKind(title.partition(":")[0])
            yield EntityPattern(kind, prepare_re(pattern, re.IGNORECASE), prepare_re(prefilter))


_LIST_NAME: Final = prepare_re("§[^§]+§")
*ENTITY_PATTERNS, _QUOTED_TEXT = _read_patterns()


MAX_ENTITIES: Final = 40
_OPEN_ENDED_KINDS: Final = frozenset(
    {EntityKind.URL, EntityKind.PATH}
)  # their patterns may include trailing punctuation

TextSpan = tuple[int, int]


def find_entities(text: str) -> tuple[Entity, ...]:
    """Return paths, addresses, dates, times, ids, amounts and quoted texts, in text order."""
    found: list[tuple[TextSpan, Entity]] = []
    taken: list[TextSpan] = []
    lowered = text.lower()
    for entity_pattern in ENTITY_PATTERNS:
        if entity_pattern.prefilter.search(lowered) is None:
            continue
        new = [
            item
            for item in _iterate_matches(entity_pattern.kind, entity_pattern.pattern, text)
            if _is_free(item[0], taken)
        ]
        found.extend(new)
        taken.extend(span for span, _ in new)
    # A quoted text is an entity even if it contains another: "save it as 'notes.txt'".
    found.extend(_iterate_matches(EntityKind.QUOTED, _QUOTED_TEXT.pattern, text))
    found.sort(key=lambda item: item[0])
    return tuple(entity for _, entity in found[:MAX_ENTITIES])


def _iterate_matches(
    kind: EntityKind, pattern: re.Pattern[str], text: str
) -> Iterator[tuple[TextSpan, Entity]]:
    for count, match in enumerate(pattern.finditer(text)):
        if count >= MAX_ENTITIES:
            return
        start, end = match.span(match.lastindex or 0)
        if glued := GLUED_PREFIXES.match(text[start:end]):
            start += glued.end()
        if kind in _OPEN_ENDED_KINDS:
            end -= len(text[start:end]) - len(text[start:end].rstrip(TRAILING_PUNCTUATION))
        if start < end:
            yield (start, end), Entity(kind=kind, text=text[start:end])


def _is_free(span: TextSpan, taken: list[TextSpan]) -> bool:
    return all(span[1] <= start or end <= span[0] for start, end in taken)


UNKNOWN: Final = "und"
ENGLISH: Final = "en"
HEBREW: Final = "he"
MAX_DETECTED_LENGTH: Final = 4000

# Parts that are not the request's own text. Quotes open after a space: in a Hebrew word they are spelling.
_IGNORED_PARTS: Final = prepare_re(
    r"[a-z]{2,8}://\S{1,2000}"
    r"|(?<!\S)\S{0,200}[/\\@]\S{1,400}"
    r"|`[^`]{1,400}`"
    r'|(?<!\w)"[^"\n]{1,200}"(?!\w)'
    r"|(?<!\w)'[^'\n]{1,200}'(?!\w)"
    r"|“[^”\n]{1,200}”|«[^»\n]{1,200}»"
)
_WORD: Final = prepare_re(r"[^\W\d_]+")
_KANA: Final = prepare_re("[\u3040-\u30ff]")
_UNSPACED_RUN: Final = prepare_re("[\u3040-\u30ff\u3400-\u9fff]+")

# First and last character of each script, and its language.
_SCRIPTS: Final = (
    (0x0590, 0x05FF, HEBREW), (0xFB1D, 0xFB4F, HEBREW),
    (0x0600, 0x06FF, "ar"), (0x0750, 0x077F, "ar"), (0xFB50, 0xFDFF, "ar"), (0xFE70, 0xFEFF, "ar"),
    (0x0400, 0x052F, "ru"), (0x0370, 0x03FF, "el"), (0x1F00, 0x1FFF, "el"),
    (0x3040, 0x30FF, "ja"), (0xFF66, 0xFF9F, "ja"),
    (0xAC00, 0xD7AF, "ko"), (0x1100, 0x11FF, "ko"), (0x3130, 0x318F, "ko"),
    (0x3400, 0x4DBF, "zh"), (0x4E00, 0x9FFF, "zh"), (0xF900, 0xFAFF, "zh"), (0x20000, 0x2FA1F, "zh"),
    (0x0900, 0x097F, "hi"), (0x0980, 0x09FF, "bn"), (0x0B80, 0x0BFF, "ta"), (0x0C00, 0x0C7F, "te"),
    (0x0E00, 0x0E7F, "th"), (0x0530, 0x058F, "hy"), (0x10A0, 0x10FF, "ka"), (0x1200, 0x137F, "am"),
    (0x0041, 0x024F, "latin"), (0x1E00, 0x1EFF, "latin"),
)  # fmt: skip
_UNSPACED: Final = frozenset({"zh", "ja", "th"})
_LETTERS_PER_WORD: Final = 2  # in scripts without spaces

_FUNCTION_WORDS: Final = read_word_sets("fingerpost.narrow", "words/languages.txt")
_LANGUAGES_BY_WORD: Final = {
    word: tuple(name for name, little in _FUNCTION_WORDS.items() if word in little)
    for word in frozenset[str]().union(*_FUNCTION_WORDS.values())
}
_UKRAINIAN_LETTERS: Final = frozenset("іїєґІЇЄҐ")
_URDU_LETTERS: Final = frozenset("ٹڈڑںےھہ")
_URDU_WORDS: Final = frozenset(("کا", "کی", "کو", "کر", "اور", "ایک", "سے", "دو"))
_PERSIAN_LETTERS: Final = frozenset("پچژگ")


def detect_language(text: str) -> str:
    """Return the main language of the text: `en`, `he`, `zh` …; `und` without letters."""
    text = text.strip()[:MAX_DETECTED_LENGTH]
    own = _IGNORED_PARTS.sub(" ", text)
    return _detect_from_words(_WORD.findall(own)) or _detect_from_words(_WORD.findall(text)) or UNKNOWN


def _detect_from_words(words: list[str]) -> str | None:
    weights: dict[str, float] = defaultdict(float)
    latin: list[str] = []
    for word in words:
        script = "latin" if word.isascii() else _get_script(word)
        if script == "latin" and not word.isascii() and (run := _UNSPACED_RUN.search(word)) is not None:
            word = run.group()  # a Latin name stands before it, without a space
            script = _get_script(word)
        if script == "latin":
            latin.append(word.lower())
        elif script is not None:
            weights[script] += len(word) / _LETTERS_PER_WORD if script in _UNSPACED else 1
    if not weights:
        return _detect_european(latin)[0] if latin else None
    if "ja" in weights:  # Japanese uses both scripts
        weights["ja"] += weights.pop("zh", 0)
    script, weight = max(weights.items(), key=lambda item: item[1])
    european, little_words = _detect_european(latin)
    if weight < len(latin) and weight <= little_words:
        return european
    return _refine_by_letters(script, words)


def _get_script(word: str) -> str | None:
    """Return the script of the first letter. Japanese mixes two scripts, so one kana anywhere decides."""
    code = ord(word[0])
    script = next((name for first, last, name in _SCRIPTS if first <= code <= last), None)
    return "ja" if script == "zh" and _KANA.search(word) else script


def _detect_european(words: list[str]) -> tuple[str, int]:
    """Return the language with the most function words and their number. Return English if none leads."""
    counts = Counter(name for word in words for name in _LANGUAGES_BY_WORD.get(word, ()))
    if not counts:
        return ENGLISH, 0
    most = max(counts.values())
    if most == counts[ENGLISH]:
        return ENGLISH, most
    best = [name for name, count in counts.items() if count == most]
    if len(best) > 1:  # Spanish and Portuguese have many words in common
        best.sort(key=lambda name: -count_known_words(words, name))
    return best[0], most


def _refine_by_letters(script: str, words: list[str]) -> str:
    """Distinguish languages with the same script by the letters that only one of them has."""
    letters = frozenset("".join(words))
    if script == "ru" and letters & _UKRAINIAN_LETTERS:
        return "uk"
    if script == "ar" and (letters & _URDU_LETTERS or not _URDU_WORDS.isdisjoint(words)):
        return "ur"
    if script == "ar" and letters & _PERSIAN_LETTERS:
        return "fa"
    return script


_HEAD_LENGTH: Final = 6000
_TAIL_LENGTH: Final = 2000
_MIN_NAME_LENGTH: Final = 4
_MAX_SAMPLED_TOOLS: Final = 100


class SignalReader:
    """Reads the signals of requests, with the names of the current tools."""

    def __init__(self) -> None:
        self._names = SoundIndex()
        self._mentions = MentionFinder()
        self._cards: Sequence[ToolCard] = ()
        self._tool_languages: Counter[str] | None = None  # counted when a request needs it

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """Set the tools."""
        self._cards, self._tool_languages = cards, None
        names = frozenset(_list_name_words(cards))
        servers = frozenset(word for card in cards for word in get_name_words(card.server))
        self._names = SoundIndex(
            names, brands=(word for word in names & servers if not is_ordinary_name((word,)))
        )
        self._mentions = MentionFinder(cards)

    def read(self, text: str) -> Signals:
        """Return the signals of a request."""
        text = _cut_long_text(text)
        language = detect_language(text)
        glossed, english = self._gloss(text, language)
        judged = english if language != HEBREW and english else text
        entities = find_entities(text)
        return Signals(
            language=language,
            gloss=english,
            intents=(*find_intents(judged, glossed, entities), *find_official_data_intent(judged)),
            urgent=is_urgent(judged),
            mentions=self._mentions.find(text, glossed),
            entities=entities,
            asks=is_only_asking(judged),
            recalls=is_asking_to_recall(judged),
        )

    def read_need(self, need: str, whole: Signals, *, with_names: bool) -> Signals:
        """Return the signals of one need of a request that its scores depend on: intents and mentions only
        `with_names`.
        """
        language = detect_language(need)
        glossed, english = self._gloss(need, language)
        judged = english if language != HEBREW and english else need
        entities = tuple(entity for entity in whole.entities if entity.text in need)
        signals = Signals(language=language, gloss=english, entities=entities, asks=is_only_asking(judged))
        if not with_names:
            return signals
        return replace(
            signals,
            intents=(*find_intents(judged, glossed, entities), *find_official_data_intent(judged)),
            mentions=self._mentions.find(need, glossed),
        )

    def _gloss(self, text: str, language: str) -> tuple[Gloss, str]:
        """Return the words of a Hebrew text with their meanings, and the text in English words."""
        glossed: Gloss = gloss_words(text, self._names) if is_hebrew(text) else ()
        return glossed, join_gloss(glossed) if language == HEBREW else self._translate(text, language)

    def _translate(self, text: str, language: str) -> str:
        """Return a request in English words, unless most tools are described in its language."""
        if language not in TABLE_LANGUAGES:
            return ""
        if self._tool_languages is None:
            sample = self._cards[:: 1 + len(self._cards) // _MAX_SAMPLED_TOOLS]
            self._tool_languages = Counter(detect_language(card.description[:200]) for card in sample)
        if 2 * self._tool_languages[language] > self._tool_languages.total():
            return ""
        return translate_request(text, language)


def _cut_long_text(text: str) -> str:
    if len(text) <= _HEAD_LENGTH + _TAIL_LENGTH:
        return text
    # A line break, because no entity or phrase extends over it.
    return f"{text[:_HEAD_LENGTH]}\n{text[-_TAIL_LENGTH:]}"


def _list_name_words(cards: Iterable[ToolCard]) -> Iterable[str]:
    """Return the words of server and tool names, which a request may write in Hebrew letters."""
    for card in cards:
        for word in (*split_words(card.server), *split_words(card.name)):
            if len(word) >= _MIN_NAME_LENGTH and word.isascii():
                yield word
