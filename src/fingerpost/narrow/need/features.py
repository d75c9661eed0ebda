"""Cues and hashed features of a request for the need classifier."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from fingerpost.data_files import read_sections, read_word_sets
from fingerpost.frozen import frozen
from fingerpost.records import EntityKind, Signals
from fingerpost.regex import prepare_re


@frozen(kw_only=False)
class NeedCue:
    """A cue. `side` limits its effect: +1 only for a tool, -1 only against one, 0 either."""

    name: str
    side: int
    reason: str


_SIDES: Final = {"+": 1, "-": -1, "=": 0}
_WORDS_FILE: Final = "words/need.txt"
NEED_WORDS: Final = read_word_sets("fingerpost.narrow", _WORDS_FILE)
_BEFORE_AN_INSTRUCTION: Final = NEED_WORDS["before an instruction"]
_FIRST_PERSON: Final = NEED_WORDS["first person"]


def _read_cues() -> Iterator[NeedCue]:
    for line in read_sections("fingerpost.narrow", _WORDS_FILE)["cues"].strip().splitlines():
        name, side, reason = re.split(" ([-+=]) ", line, maxsplit=1)
        yield NeedCue(name, _SIDES[side], reason)


CUES: Final = tuple(_read_cues())
CUE_POSITION: Final = {cue.name: place for place, cue in enumerate(CUES)}

MAX_PHRASE_WORDS: Final = 4


@cache
def read_phrases(language: str) -> dict[str, tuple[str, ...]]:
    """Return each phrase of the language with the names of its lists. The result is cached."""
    found: dict[str, tuple[str, ...]] = {}
    for name, text in read_sections("fingerpost.narrow", f"need/words/{language}.txt").items():
        for phrase in (part.strip() for part in re.split("[,\n]", text.strip())):
            found[phrase] = (*found.get(phrase, ()), name)
    return found


@cache
def list_phrase_beginnings(language: str) -> frozenset[str]:
    """Return each phrase of the language that has several words without its last ones."""
    spaced = (phrase.split(" ") for phrase in read_phrases(language))
    return frozenset(" ".join(words[:count]) for words in spaced for count in range(1, len(words)))


HEAD_LENGTH: Final = 1200
TAIL_LENGTH: Final = 400
FEATURE_SLOTS: Final = 1 << 14
_MAX_WORDS: Final = 200  # limit for cues and features
_MAX_SMALL_TALK_WORDS: Final = 7
_MAX_EXPRESSION_LENGTH: Final = 80

_REMOVED_PATTERNS: Final = (
    ("url", prepare_re(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)),
    ("email", prepare_re(r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,4}\b")),
    (
        "path",
        prepare_re(
            r"(?<![\w/.])(?:~|\.{1,2})?/[\w.+@-]+(?:/[\w.+@-]*)*"
            r"|(?<![\w/])[A-Za-z]:\\[^\s\"']+"
            r"|(?<![\w/])(?:[\w+@-]+/)*[\w+@-]+\.(?:md|txt|json|jsonl|ya?ml|toml|ini|cfg|conf|csv|tsv|xml|html?|"
            r"css|py|ipynb|js|ts|tsx|jsx|java|go|rs|rb|php|sh|sql|log|pdf|docx?|xlsx?|pptx?|odt|tex|epub|png|"
            r"jpe?g|gif|svg|webp|mp[34]|wav|mov|zip|tar|gz|tgz|db|sqlite|parquet)\b",
            re.IGNORECASE,
        ),
    ),
)
_CUE_BY_ENTITY: Final = {
    EntityKind.PATH: "path",
    EntityKind.URL: "url",
    EntityKind.EMAIL: "email",
    EntityKind.ID: "id",
    EntityKind.DATE: "date",
    EntityKind.TIME: "time",
}
_TOKEN: Final = prepare_re(
    r"[a-z]+(?:[-'+.][a-z0-9]+)*\+*|[א-ת]+(?:[\"'-][א-ת]+)*'?|\d+(?:[.,]\d+)*|[?!.:;,\n]|[^\W\d_]+"
)
_SENTENCE_ENDS: Final = frozenset(".!?;:\n")
_BREAKS: Final = _SENTENCE_ENDS | {","}
_YES_OR_NO: Final = frozenset(("לא", "כן"))
_PLUS: Final = frozenset(("ועוד", "פחות"))
_POSSESSIVES: Final = frozenset(("my", "our", "mine"))
_HEBREW_POSSESSIVES: Final = frozenset(("שלי", "שלנו", "לי", "אליי", "אלי"))
_HEBREW_PREFIXES: Final = "והבלמשכ"
_POLITE: Final = prepare_re(
    r"\b(?:can|could|would|will) (?:you|u)\b|\bplease\b|\bkindly\b|\bpls\b|בבקשה|אפשר|תוכל|אתה יכול"
)
_ARITHMETIC: Final = prepare_re(
    r"\s*(?:what(?:'s| is)|how much is|calculate|compute|solve|כמה זה|כמה הם|כמה)?\s*"
    r"\(?-?\d{1,6}(?:[.,]\d+)?%?(?:\s*(?:[-+*/x×÷^=%()]|plus|minus|times|divided by|over|of|percent of|"
    r"ועוד|פחות|כפול|חלקי|לחלק ל-?|אחוז מ-?)\s*\(?-?\d{1,6}(?:[.,]\d+)?%?\)?)+\s*[=?.!]*\s*",
    re.IGNORECASE,
)
_NAMED: Final = prepare_re(r"(?<=[a-z,א-ת] )[A-Z][\w&'’.-]*[a-z]\w*")
_ODD_NAME: Final = prepare_re(
    r"\b[A-Z]?[a-z]+[A-Z]\w*\b|\b(?=\w*\d)(?=\w*[A-Z])[A-Z0-9][\w-]{3,}\b|\b[A-Z]{2,}\d+\w*\b|#\w+|\br/\w+"
)
# Quoted text is the topic of the request, not the instruction.
_QUOTED: Final = prepare_re(r"(?<!\w)(?:\"[^\"]{2,600}\"|“[^”]{2,600}”|«[^»]{2,600}»|'[^'\n]{2,200}')(?!\w)")
_GIVEN: Final = prepare_re(r"[:\n]\s{0,9}\S{1,60}(?:\s{1,9}\S{1,60}){3}")
_BLANK: Final = prepare_re(r"_{2,}|\.{4,}|<\w+>|\[\w*\]|…\s*\?")
_WHAT_END: Final = prepare_re(r"(?:\w[, ]+what(?: \w+){0,3}|\b(?:is|are|to|of|with|have|be|called))\s*\?\s*$")
_HOW_MADE: Final = prepare_re(
    r"^how (?:is|are|was|were) [^?]{1,60}(?:made|done|built|formed|found|set|chosen|used|\wed)\b"
)
_CONDITION: Final = prepare_re(r"^(?:if|suppose|imagine|assuming|let's say|אם|נניח|אילו|דמיין)\b")


@frozen(kw_only=False)
class NeedFeatures:
    """The words, cues and hashed features of a request."""

    words: tuple[str, ...]  # lower case, with punctuation that ends a clause
    cues: dict[str, str]  # each cue with the words that show it ("" for a cue of form)
    features: tuple[tuple[int, str], ...]  # hashed features, each with its words

    @property
    def plain_words(self) -> tuple[str, ...]:
        return tuple(word for word in self.words if word not in _BREAKS)


def cut_middle(text: str) -> str:
    """Keep the beginning and end of a long text: pasted text is usually in between."""
    if len(text) > HEAD_LENGTH + TAIL_LENGTH:
        text = f"{text[:HEAD_LENGTH]}\n{text[-TAIL_LENGTH:]}"
    return text.replace("’", "'").replace("״", '"').replace("׳", "'")


def extract_words(text: str) -> NeedFeatures:
    """Return the words of a request, with the cues that are no words and without features."""
    cues: dict[str, str] = {}
    text = _remove_entities(cut_middle(text), Signals(), cues)
    return NeedFeatures(_list_words(text.lower()), cues, ())


def _list_words(lowered: str) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(_QUOTED.sub(" ", lowered)))[:_MAX_WORDS]


def extract_features(text: str, signals: Signals) -> NeedFeatures:
    """Return the cues and features of a request."""
    cues: dict[str, str] = {}
    text = _remove_entities(cut_middle(text), signals, cues)
    lowered = text.lower()
    words = _list_words(lowered)
    _add_word_cues(words, cues)
    if signals.gloss:
        known = read_phrases("english")
        for word in signals.gloss.lower().split()[:_MAX_WORDS]:
            for name in known.get(word, ()):
                if name in _GLOSS_CUES:
                    cues.setdefault(name, word)
    _add_form_cues(text, lowered, words, cues)
    return NeedFeatures(words, cues, _hash_features(words, cues, signals))


def _remove_entities(text: str, signals: Signals, cues: dict[str, str]) -> str:
    for name, pattern in _REMOVED_PATTERNS:
        if (match := pattern.search(text)) is not None:
            cues[name] = match.group()[:60]
            text = pattern.sub(" ", text)
    for entity in signals.entities:
        name = _CUE_BY_ENTITY.get(entity.kind)
        if name is None:
            continue
        cues.setdefault(name, entity.text[:60])
        if name not in ("date", "time"):
            text = text.replace(entity.text, " ")
    return text.strip()


def _list_word_forms(word: str) -> tuple[str, ...]:
    """Return the word and, for Hebrew, the rest without one or two prefix letters."""
    if not "א" <= word[0] <= "ת" or len(word) < 4:
        return (word,)
    found = [word]
    while len(found) < 3 and len(found[-1]) > 3 and found[-1][0] in _HEBREW_PREFIXES:
        found.append(found[-1][1:])
    return tuple(found)


def _find_phrases_at(words: Sequence[str], index: int) -> Iterator[tuple[str, str]]:
    """Return each phrase that starts at this index, with the name of its list."""
    language = "hebrew" if "א" <= words[index][0] <= "ת" else "english"
    known, beginnings = read_phrases(language), list_phrase_beginnings(language)
    for form in _list_word_forms(words[index]):
        phrase = form
        for length in range(1, MAX_PHRASE_WORDS + 1):
            for name in known.get(phrase, ()):
                yield name, phrase
            if index + length >= len(words) or phrase not in beginnings:
                break
            phrase = f"{phrase} {words[index + length]}"


def _is_instruction_start(words: Sequence[str], index: int) -> bool:
    if index == 0 or words[index - 1] in _BREAKS:
        return True
    if words[index - 1] == "to":
        return index > 1 and words[index - 2] in NEED_WORDS["before to"]
    return words[index - 1] in _BEFORE_AN_INSTRUCTION


def _add_word_cues(words: Sequence[str], cues: dict[str, str]) -> None:
    owner = -9
    for place, word in enumerate(words):
        if word in _BREAKS:
            continue
        if word in _POSSESSIVES:
            owner = place
        hebrew = "א" <= word[0] <= "ת"
        for name, phrase in _find_phrases_at(words, place):
            if name == "account":
                if place - owner <= 3 or (hebrew and _is_near_possessive(words, place)):
                    cues.setdefault("own", phrase)
                continue
            # English verbs may be nouns: "book a table" is an action, "a good book" is not.
            if name in ("act", "command") and not hebrew and not _is_instruction_start(words, place):
                continue
            if _has_other_meaning(name, phrase, place, words):
                continue
            cues.setdefault(name, phrase)
            if place == 0:
                cues.setdefault(f"opens with {'act' if name == 'command' else name}", phrase)


def _has_other_meaning(name: str, phrase: str, index: int, words: Sequence[str]) -> bool:
    if name == "chat":  # "hey, can you check the build?" is not only a greeting; "not" is not "no"
        return len(words) > _MAX_SMALL_TALK_WORDS or (index > 0 and phrase in _YES_OR_NO)
    return phrase in _PLUS and not any(word[0].isdigit() for word in words)  # "and also" in Hebrew


def _is_near_possessive(words: Sequence[str], index: int) -> bool:
    return any(word in _HEBREW_POSSESSIVES for word in words[max(0, index - 3) : index + 4])


# A gloss has no word order, so only unambiguous words count.
_GLOSS_CUES: Final = frozenset(
    ("file", "live", "reference", "service", "artefact", "convert", "current", "offer")
)


def _add_form_cues(text: str, lowered: str, words: Sequence[str], cues: dict[str, str]) -> None:
    spoken = [word for word in words if word not in _BREAKS]
    sentences = sum(
        1
        for place, word in enumerate(words)
        if word in _SENTENCE_ENDS and place and words[place - 1] not in _SENTENCE_ENDS
    )
    named = _NAMED.search(text)
    odd = _ODD_NAME.search(text)
    forms = {
        "named": named is not None,
        "odd name": odd is not None,
        "question": text.endswith("?") or (bool(spoken) and spoken[0] in NEED_WORDS["question"]),
        "asks the reader": _POLITE.search(lowered) is not None,
        "first person": not _FIRST_PERSON.isdisjoint(spoken),
        "given text": _GIVEN.search(text) is not None,
        "quoted": _QUOTED.search(text) is not None,
        "blank": _BLANK.search(text) is not None,
        "ends in what": _WHAT_END.search(lowered) is not None,
        "short": len(spoken) <= 3,
        "long": len(spoken) >= 30,
        "several sentences": sentences >= 2,
        "numbers": any(word[0].isdigit() for word in spoken),
        "arithmetic": len(text) <= _MAX_EXPRESSION_LENGTH and _ARITHMETIC.fullmatch(text) is not None,
        "condition": _CONDITION.search(lowered) is not None,
    }
    shown = {"named": named, "odd name": odd}
    for name, holds in forms.items():
        if holds:
            match = shown.get(name)
            cues[name] = match.group()[:60] if match is not None else ""
    if _HOW_MADE.search(lowered):
        cues.setdefault("explain", "")
    if "artefact" in cues and "make" in cues:
        cues["made"] = cues["artefact"]
    if "live" in cues and not cues.keys() & {"explain", "advice", "write", "opinion", "life"}:
        cues["asks live"] = cues["live"]
    if cues.keys() & {"advice", "explain"} and cues.keys() & {"service", "odd name", "own"}:
        cues["help with a thing"] = ""
    for name in [name for name in cues if name.startswith("opens with ") and name not in _OPENING_CUES]:
        del cues[name]


_OPENING_CUES: Final = frozenset(
    f"opens with {name}" for name in ("act", "seek", "make", "write", "explain", "opinion", "advice")
)


def _hash_feature(feature: str) -> int:
    return zlib.crc32(feature.encode()) & (FEATURE_SLOTS - 1)


def _get_feature_stem(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word


def _hash_features(
    words: Sequence[str], cues: dict[str, str], signals: Signals
) -> tuple[tuple[int, str], ...]:
    """Hash words, word pairs and the beginning of the request into feature slots."""
    found: dict[int, str] = {}
    before = "^"
    for word in words:
        if word in _BREAKS:
            before = "^" if word in _SENTENCE_ENDS else before
            continue
        stem = "0" if word[0].isdigit() else _get_feature_stem(word)
        found.setdefault(_hash_feature(f"w {stem}"), word)
        for form in _list_word_forms(word)[1:]:
            found.setdefault(_hash_feature(f"w {form}"), word)
        found.setdefault(_hash_feature(f"p {before} {stem}"), word if before == "^" else f"{before} {word}")
        before = stem
    spoken = [word for word in words if word not in _BREAKS]
    if len(spoken) > 1:
        found.setdefault(_hash_feature(f"open {spoken[0]} {spoken[1]}"), f"{spoken[0]} {spoken[1]}")
    for word in signals.gloss.lower().split()[:_MAX_WORDS]:
        found.setdefault(_hash_feature(f"w {_get_feature_stem(word)}"), word)
    for intent in signals.intents[:3]:
        found.setdefault(_hash_feature(f"intent {intent.category}"), "")
    return tuple(found.items())
