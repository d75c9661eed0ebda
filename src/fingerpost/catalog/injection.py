"""Finds text that addresses the model: in tool definitions (poisoned tools) and in results.

A text is normalised (invisible characters, look-alike letters, spaced-out words, encoded parts), split into
sentences, and each word gets its meanings from `injection.toml`. Rules then look for a directive to the model
together with what is no tool's business: the model's instructions, the conversation, secrets, approvals,
tools of other servers, or keeping something from the person. All patterns are bounded, and so are the texts.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import hashlib
import html
import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from importlib import import_module
from itertools import islice, pairwise
from pathlib import Path
from pkgutil import get_data
from typing import Any, Final
from urllib.parse import unquote

from fingerpost.catalog.act_model import ACT_MODEL_ID, ReadSentence, load_act_model, read_sentence
from fingerpost.catalog.tool_names import escape_invisible_except
from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.data_files import read_data_table
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.records import DefinitionFinding, FindingKind, Json, JsonObject, Severity
from fingerpost.regex import prepare_re
from fingerpost.schemas import get_properties, is_list, is_object

MAX_TEXTS: Final = 20_000  # texts of one definition
MAX_TEXT_LENGTH: Final = 20_000  # characters that are searched at once
MAX_DEFINITION_LENGTH: Final = 200_000  # characters of one definition
_OVERLAP: Final = 500  # characters that are searched twice, so that no sentence is cut in both places
_MAX_SENTENCE_WORDS: Final = 120
_MAX_SHOWN: Final = 160  # characters of the words shown with a finding
_MIN_ENCODED: Final = 24  # characters
_MAX_ENCODED: Final = 8  # encoded parts of one text that are decoded

_TABLE: Final = read_data_table("fingerpost.catalog", "injection.toml")
_SETS: Final = {name: frozenset(text.split()) for name, text in _TABLE["sets"].items()}


class _Pattern:
    """Alternatives. One that names its clues is tried only if one of them is in the text."""

    def __init__(self, parts: Iterable[str], flags: re.RegexFlag) -> None:
        always: list[str] = []
        self._clued: list[tuple[tuple[str, ...], re.Pattern[str]]] = []
        for part in parts:
            clues, mark, pattern = part.partition(" :: ")
            if mark:
                self._clued.append((tuple(clues.split(",")), re.compile(pattern, flags)))
            else:
                always.append(part)
        self._always = re.compile("|".join(always), flags) if always else None

    def search(self, text: str, start: int = 0, end: int = MAX_TEXT_LENGTH) -> re.Match[str] | None:
        found = None if self._always is None else self._always.search(text, start, end)
        if found is not None or not self._clued:
            return found
        lowered = text.lower()
        for clues, pattern in self._clued:
            for clue in clues:
                if clue in lowered:
                    found = pattern.search(text, start, end)
                    break
            if found is not None:
                return found
        return None

    def match(self, text: str) -> re.Match[str] | None:
        return None if self._always is None else self._always.match(text)


class _Patterns(dict[str, _Pattern]):
    """The patterns of the table, compiled when they are first needed: most starts scan nothing."""

    def __missing__(self, name: str) -> _Pattern:
        exact = _TABLE["exact_patterns"].get(name)
        parts = _TABLE["patterns"][name] if exact is None else exact
        compiled = self[name] = _Pattern(parts, re.NOFLAG if exact is not None else re.I | re.M)
        return compiled


_PATTERNS: Final = _Patterns()
_CODE: Final = Path(__file__)
JUDGE_FOLDER: Final = _CODE.with_name("judge")
# A definition is scanned again when this code (unless it is in a zip file), the table or a model change.
RULES_ID: Final = hashlib.sha256(
    json.dumps(_TABLE, sort_keys=True).encode()
    + ACT_MODEL_ID.encode()
    + (get_data("fingerpost.catalog", "judge/weights.sha256") or b"")
    + (_CODE.read_bytes() if _CODE.is_file() else b"")
).hexdigest()[:16]
_TOKEN = prepare_re(r"\.?[^\W_](?:[\w'’-]*[^\W_])?")
_PART = prepare_re(r"[^\W_]+")
_WIDE_SCRIPT = prepare_re(r"[\u0900-\u0dff\u3040-\u30ff\u3400-\u9fff]")  # words are found anywhere
_PREFIXING = prepare_re(r"[\u05d0-\u05ea\u0621-\u064a]{4}")  # `and`, `the`, `from` are a part of the word


def _read_terms(kind: str) -> dict[str, frozenset[str]]:
    """Return the meanings of the terms of this kind: `word`, `stem` or `wide`."""
    found: dict[str, set[str]] = {}
    for tag, text in _TABLE["words"].items():
        for term in text.split():
            own = "wide" if _WIDE_SCRIPT.match(term) else "stem" if term.endswith("*") else "word"
            if own == kind:
                found.setdefault(term.rstrip("*"), set()).add(tag)
    return {term: frozenset(tags) for term, tags in found.items()}


_WORDS: Final = _read_terms("word")
_STEMS: Final = _read_terms("stem")
_STEM_LENGTHS: Final = tuple(sorted({len(stem) for stem in _STEMS}, reverse=True))
_WIDE_TERMS: Final = _read_terms("wide")
_WIDE_TERM = prepare_re("|".join(sorted(map(re.escape, _WIDE_TERMS), key=len, reverse=True)))
_NO_TAGS: Final = frozenset[str]()


# Which meanings occur in a text is one number, a bit for each, so that most rules need not be tried. `clues`
# of the table are words without which a pattern cannot match.
def _read_clues() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for name, text in _TABLE["clues"].items():
        for word in text.split():
            found.setdefault(word, set()).add(name)
    return {word: frozenset(names) for word, names in found.items()}


_CLUES: Final = _read_clues()
_BITS: Final = {name: 1 << number for number, name in enumerate(sorted({*_TABLE["words"], *_TABLE["clues"]}))}
_ADDRESS_BIT: Final = 1 << len(_BITS)
_ASCII_WORDS: Final = "".join(
    chr(code).lower() if chr(code).isalnum() else " " for code in range(128)
)  # by code: letters in lower case and digits stay, everything else separates words
_MAX_KNOWN_MASKS: Final = 50_000
_known_masks: dict[str, int] = {}


def _list_words(text: str) -> list[str]:
    """Return the words of a text in lower case, quickly: parts of names are words of their own."""
    if text.isascii():
        return text.translate(_ASCII_WORDS).split()
    return [part for word in _TOKEN.findall(text.lower()) for part in (word, *_PART.findall(word))]


def _get_mask(words: Iterable[str], text: str) -> int:
    """Return the bits of the meanings that these words of the text have."""
    mask = _ADDRESS_BIT if _may_have_address(text) else 0
    for word in words:
        known = _known_masks.get(word)
        mask |= _compute_mask(word) if known is None else known
    if not text.isascii() and _WIDE_SCRIPT.search(text):
        for found in islice(_WIDE_TERM.finditer(text), _MAX_SENTENCE_WORDS):
            for tag in _WIDE_TERMS[found[0]]:
                mask |= _BITS[tag]
    return mask


def _may_have_address(text: str) -> bool:
    """Return whether an address or the name of a channel may stand here; numbers are found among words."""
    if "@" in text or "#" in text or "+" in text:
        return True
    return text.count(".") > text.count(". ") + text.count(".\n") + text.endswith(".")


def _compute_mask(word: str) -> int:
    if word.isascii() and not word.isalpha() and word not in _CLUES:  # with a digit: a part of an address
        return _ADDRESS_BIT
    mask = 0
    for tag in _get_tags(word) | _get_tags(f".{word}") | _CLUES.get(word, _NO_TAGS):
        mask |= _BITS[tag]
    if len(_known_masks) >= _MAX_KNOWN_MASKS:
        _known_masks.clear()
    _known_masks[word] = mask
    return mask


class _Clues:
    """The bits without which a rule cannot apply: alternatives, each of which needs a bit of every group."""

    def __init__(self, *alternatives: str) -> None:
        """An alternative is written `not tell|ask`: a bit of `not`, and one of `tell` or `ask`. A meaning
        stands for all languages.
        """
        self._alternatives = tuple(
            tuple(self._read_group(group) for group in one.split()) for one in alternatives
        )

    @staticmethod
    def _read_group(group: str) -> int:
        names = [form for name in group.split("|") for form in (name, f"{name}+")]
        if "address" in names:
            return _ADDRESS_BIT | sum(_BITS.get(name, 0) for name in names)
        return sum(_BITS.get(name, 0) for name in names)

    def fit(self, mask: int) -> bool:
        for groups in self._alternatives:
            for group in groups:
                if not mask & group:
                    break
            else:
                return True
        return False


def _matches(name: str, text: str) -> bool:
    return _PATTERNS[name].search(text) is not None


@frozen(kw_only=False)
class TextSign:
    """Something in a text that is hidden or addresses the model, with the words it rests on."""

    kind: FindingKind
    reason: str
    words: str
    severity: Severity = Severity.SERIOUS


# Hidden text

_TAGS = prepare_re("[\U000e0000-\U000e007f]+")
_FLAG = prepare_re("\U0001f3f4[\U000e0060-\U000e007f]{1,12}")  # flags of regions are written with tags
_ZERO_WIDTH: Final = "\u200b-\u200f\u2060-\u2064\ufeff\u00ad\u034f\u180e\u2800\u3164\uffa0"
_ZERO_WIDTH_CHARACTER = prepare_re(f"[{_ZERO_WIDTH}]")
_ZERO_WIDTH_RUN = prepare_re(f"[{_ZERO_WIDTH}]{{4,}}")
_INSIDE_WORD = prepare_re("[A-Za-z][\u200b-\u200f\u2060-\u2064\ufeff\u034f\u180e]+(?=[A-Za-z])")
_BIDI = prepare_re("[\u202a-\u202e\u2066-\u2069]")
_BIDI_OVERRIDE = prepare_re("[\u202d\u202e]")
_ESCAPE_SEQUENCE = prepare_re(
    r"\x1b\[[0-9;?]{0,30}[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|\x9b[0-9;?]{0,30}[A-Za-z]"
)
_CONTROL = prepare_re(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_COMMENT = prepare_re(r"<!--(.{1,1000}?)-->|^\[//\]: # [(\"'](.{1,2000}?)[)\"']$", re.DOTALL | re.MULTILINE)
_UNDISPLAYED = prepare_re(
    r"<[a-z]{1,10}[^<>]{0,200}(?:display\s?:\s?none|visibility\s?:\s?hidden|font-size\s?:\s?0|opacity\s?:\s?0"
    r"|\bhidden\b)[^<>]{0,200}>([^<]{0,2000})",
    re.IGNORECASE,
)
_PUSHED = prepare_re(r"(?<=\S)(?:[^\S\n]{60,}+\S|(?:[^\S\n]*+\n){16,}+[^\S\n]*+\S)")
_MIN_PUSHED: Final = 18  # characters: sixteen empty lines between two words
_WIDE_GAP: Final = " " * 60
_BLANK = prepare_re(r"[^\S\n]")
_COLUMNS = prepare_re(r"\S {3,}\S")
_EMOJI_JOINER = prepare_re("(?<=[\u2190-\u2bff\U0001f000-\U0001faff\ufe0f])[\u200d\ufe0f]")
_JOINING_SCRIPT = prepare_re("[\u0600-\u06ff\u0900-\u0dff\ufb50-\ufdff\ufe70-\ufefe]")  # joiners are spelling


def find_hidden_text(text: str) -> Iterator[TextSign]:
    """Yield what in this text a person does not see."""
    if text.isascii():
        if _build_hiding_gate().lets_through(text):
            yield from _find_hidden_ascii(text)
        return
    plain = _FLAG.sub("", text)
    if tags := "".join(_TAGS.findall(plain)):
        yield _hidden("holds text in invisible tag characters", _read_tags(tags) or "(no letters)")
    if _BIDI_OVERRIDE.search(plain) or len(_BIDI.findall(plain)) > 8:
        yield _hidden("changes the direction in which it is shown", _cut(plain, _BIDI.search(plain)))
    joined = _EMOJI_JOINER.sub("", plain)
    spelled = _JOINING_SCRIPT.search(joined) is not None
    if _ZERO_WIDTH_RUN.search(joined) or (not spelled and len(_INSIDE_WORD.findall(joined)) >= 3):
        yield _hidden("holds characters of no width", _cut(joined, _ZERO_WIDTH_CHARACTER.search(joined)))
    yield from _find_hidden_ascii(plain)


def _find_hidden_ascii(plain: str) -> Iterator[TextSign]:
    """Yield what can hide text without special letters: escapes, control characters, blank space."""
    if _has_controls(plain):
        if (found := _ESCAPE_SEQUENCE.search(plain)) is not None:
            yield _hidden("holds terminal escapes", _cut(plain, found))
        elif (found := _CONTROL.search(plain)) is not None:
            reason = "holds control characters"
            yield TextSign(FindingKind.HIDDEN, reason, _cut(plain, found), Severity.WARNING)
    if len(plain) < _MIN_PUSHED or not _has_wide_gap(plain):
        return
    if (found := _PUSHED.search(plain)) is not None and len(_COLUMNS.findall(plain)) <= 3:
        rest = plain[found.end() - 1 :].strip()
        if len(rest.split()) >= 4 or _WIDE_SCRIPT.search(rest):
            yield _hidden("pushes text out of view with blank space", rest[:_MAX_SHOWN])


def _has_wide_gap(text: str) -> bool:
    """Return whether there may be blank space that pushes text out of view."""
    ordinary = text.isascii() and "\t" not in text and "\r" not in text
    blank = text if ordinary else _BLANK.sub(" ", text)
    return _WIDE_GAP in blank or "\n\n\n\n" in blank.replace(" ", "")


def _has_controls(text: str) -> bool:
    """Return whether there may be control characters besides line ends and tabs."""
    if text.isprintable():
        return False
    return not text.replace("\n", "").replace("\t", "").replace("\r", "").isprintable()


def _hidden(reason: str, words: str) -> TextSign:
    return TextSign(FindingKind.HIDDEN, reason, words)


def _read_tags(tags: str) -> str:
    """Return the ASCII text that tag characters stand for."""
    return "".join(chr(ord(character) - 0xE0000) for character in tags if ord(character) > 0xE001F)


def _cut(text: str, found: re.Match[str] | None) -> str:
    place = 0 if found is None else found.start()
    return text[max(0, place - 60) : place + 100]


# The text as a model reads it

_CONFUSABLE: Final = str.maketrans(
    "авеѕікмнорстухԁјһӏԛԝгпъьѵαβεικνορτυχγωɡıⅼ", "abesikmhopctyxdjhlqwrnbbvabeiknoptuxywgil"
)
_LEET: Final = str.maketrans("013457$@", "oieastsa")
_MAX_LEET_LENGTH: Final = 20
_MIN_SPACED: Final = 4  # different letters
_LEET_WORD = prepare_re(r"\b[a-z0-9$@]{4,20}\b", re.IGNORECASE)
_SPACED = prepare_re(r"(?<!\w)(?:\w[ \u00a0.\-_*]){3,}\w(?!\w)")
_WORD = prepare_re(r"\w+")


def _clean(text: str) -> str:
    """Return the text as a model reads it: hidden letters visible, invisible characters gone."""
    if _has_controls(text):
        text = _CONTROL.sub(" ", _ESCAPE_SEQUENCE.sub(" ", text))
    if text.isascii():
        return text
    text = _TAGS.sub(lambda found: f" {_read_tags(found[0])}", text)
    text = unicodedata.normalize("NFKC", _ZERO_WIDTH_CHARACTER.sub("", _BIDI.sub("", text)))
    return _WORD.sub(_fold_word, text)


def _fold_word(match: re.Match[str]) -> str:
    """Return a word with look-alike letters of other scripts as Latin ones. Ordinary foreign words stay."""
    word = match[0]
    if word.isascii():
        return word
    folded = word.lower().translate(_CONFUSABLE)
    if not folded.isascii():
        return word
    mixed = any(character.isascii() and character.isalpha() for character in word)
    return folded if mixed or folded in _WORDS else word


# Sentences and the meanings of their words

_SENTENCE_END = prepare_re(
    r"[.!?…](?=\s|$|[\"'”’)\]])|[。！？।]|\n\s*\n|\n(?=[ \t]*[-*#•\d\[<])|\n(?=[ \t]*[A-Z])"
)
_LINE_IN_SENTENCE = prepare_re(r"(?<=[a-z,])\n[ \t]*(?=[a-z`'\"~])")


@frozen(kw_only=False)
class _Sentence:
    """One sentence with the meanings of its words, by position. `tell+` is `tell` in another language."""

    text: str
    number: int
    places: Mapping[str, Sequence[int]]

    def has(self, *tags: str) -> bool:
        return any(tag in self.places or f"{tag}+" in self.places for tag in tags)

    def has_near(self, one: str, other: str, reach: int) -> bool:
        """Return whether these meanings stand within `reach` words of each other."""
        first, second = self.places.get(one, ()), self.places.get(other, ())
        return any(abs(left - right) <= reach for left in first[:20] for right in second[:20])

    @property
    def moves(self) -> bool:
        """Whether something is read, sent or passed on."""
        return self.has("read", "send", "pass")

    @property
    def is_negated(self) -> bool:
        """Whether reading, sending or passing on is what must not be done."""
        moves = [place for tag in ("read", "send", "pass") for place in self.places.get(tag, ())[:20]]
        negations = self.places.get("not", ())[:10]
        return any(0 < move - place <= 4 for place in negations for move in moves) or _matches(
            "excluded", self.text
        )

    @property
    def is_data(self) -> bool:
        """Whether this is an example of JSON rather than prose."""
        return self.text.count('":') > 1

    @property
    def names_secret(self) -> bool:
        if self.has("secret"):
            return True
        if "_" in self.text and _matches("secret_name", self.text):
            return True
        if not self.has("keys"):
            return False
        return _matches("secret_phrase", self.text) or _matches("env_file", self.text)

    @property
    def names_context(self) -> bool:
        return self.has("talk", "you", "context", "instruction") and _matches("context_phrase", self.text)


def _split_sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE_END.split(_LINE_IN_SENTENCE.sub(" ", text)):
        yield part.strip()


def _tag_words(text: str) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, word in enumerate(islice(_TOKEN.findall(text.lower()), _MAX_SENTENCE_WORDS)):
        for tag in _get_tags(word):
            places.setdefault(tag, []).append(place)
    if _WIDE_SCRIPT.search(text):
        for found in islice(_WIDE_TERM.finditer(text), _MAX_SENTENCE_WORDS):
            for tag in _WIDE_TERMS[found[0]]:
                places.setdefault(tag, []).append(found.start() // 2)
    return places


@lru_cache(maxsize=8192)
def _get_tags(word: str) -> frozenset[str]:
    word = word.replace("’", "'")
    if (tags := _WORDS.get(word)) is not None:
        return tags
    if "'" in word[:5]:  # l'utilisateur, all'utente
        return _get_tags(word.partition("'")[2])
    for length in _STEM_LENGTHS:
        if length <= len(word) and (tags := _STEMS.get(word[:length])) is not None:
            return tags
    return _get_tags(word[1:]) if _PREFIXING.match(word) else _NO_TAGS


@frozen(kw_only=False)
class _Place:
    """Where a text stands: what its tool is about, and whether the text begins with what the tool does."""

    own: frozenset[str] = frozenset()  # words of the tool's and the server's name
    described: bool = False  # its first sentence says what the tool does
    parameter: str = ""  # the name of the parameter that the text belongs to
    result: bool = False  # a result of a call, which may speak of anything
    own_secrets: frozenset[str] = frozenset()  # parameters of the tool that take credentials
    choice: bool = False  # a value of a parameter

    @property
    def secure(self) -> bool:
        """Whether secrets are the business of this tool or parameter."""
        return not self.own.isdisjoint(_SETS["security"]) or _is_secret_parameter(self.parameter)

    @property
    def chatty(self) -> bool:
        """Whether conversations or models are the business of this tool."""
        return not self.own.isdisjoint(_SETS["chat"])


_HIDDEN_PLACE: Final = _Place()
_RESULT_PLACE: Final = _Place(result=True)


def _is_secret_parameter(name: str) -> bool:
    return bool(name) and not _SETS["secret_parameters"].isdisjoint(map(to_singular, split_words(name)))


class _SentenceForm:
    """How a sentence speaks. Each answer is worked out when a rule needs it."""

    def __init__(self, sentence: _Sentence, place: _Place, *, marked: bool) -> None:
        """`marked`: the sentence stands in a tag such as <IMPORTANT>."""
        self._sentence = sentence
        self._marked = marked
        self.opening = sentence.number == 0 and place.described  # it says what the tool does

    @cached_property
    def addressed(self) -> bool:
        """Whether it says what the model must do."""
        sentence = self._sentence
        if self._marked or _has_near_any(sentence, "model", "must", 4):
            return True
        return sentence.has("you", "model", "user") and _matches("addressed", sentence.text)

    @cached_property
    def called(self) -> bool:
        """Whether it speaks to the model by name."""
        vocative = _PATTERNS["vocative"].search(self._sentence.text) if self._sentence.has("model") else None
        return vocative is not None and (not self.opening or vocative[0].endswith(":"))

    @cached_property
    def imperative(self) -> bool:
        """Whether it, or a part of it after a colon or semicolon, begins with a verb that tells to act."""
        if self.opening:
            return False
        parts = (part.strip() for part in _CLAUSE_END.split(self._sentence.text, maxsplit=4))
        if any(_opens_with_verb("imperative_opening", part) for part in parts):
            return True
        places = self._sentence.places  # in other languages the form of a verb is not known
        return "must+" in places or (self._sentence.number > 0 and not _ACTS_ELSEWHERE.isdisjoint(places))

    @cached_property
    def timed(self) -> bool:
        """Whether it says when: before a tool is used, whenever something happens."""
        text = self._sentence.text
        if "when+" in self._sentence.places:
            return True
        return self._sentence.has("when") and (_matches("timed", text) or _opens_with_verb("condition", text))

    @property
    def is_instruction(self) -> bool:
        return self.addressed or self.called or self.imperative

    @property
    def is_directive(self) -> bool:
        """Whether it is an instruction, or says when something must happen."""
        return self.is_instruction or self.timed


def _has_near_any(sentence: _Sentence, one: str, other: str, reach: int) -> bool:
    return sentence.has_near(one, other, reach) or sentence.has_near(f"{one}+", f"{other}+", reach)


def _opens_with_verb(name: str, text: str) -> bool:
    found = _PATTERNS[name].match(text)
    return found is not None and found[1].lower() in _SETS["actions"]


# Rules: each says what a sentence asks for

_ACTS_ELSEWHERE: Final = frozenset(("send+", "pass+", "read+"))
_CLAUSE_END = prepare_re(r"[;:](?=\s)")

_Rule = Callable[[_Sentence, _Place, _SentenceForm], bool]


def _overrides(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if form.opening and place.secure:  # a scanner says what it looks for
        return False
    if sentence.has_near("ignore+", "instruction+", 8):
        return True
    if "ignore" not in sentence.places:
        return False
    scopes = sentence.places.get("earlier", ())
    return any(
        0 < target - start <= 7 and any(start - 1 <= scope <= target + 4 for scope in scopes)
        for start in sentence.places["ignore"]
        for target in sentence.places.get("instruction", ())
    ) or (sentence.has_near("ignore", "instruction", 4) and sentence.has("user", "model"))


def _conceals(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if form.opening and place.secure:
        return False
    if not (form.opening or place.result or place.secure or place.chatty) and _matches(
        "covert", sentence.text
    ):
        return not _matches("harmless_concealment", sentence.text)
    if sentence.has_near("not+", "tell+", 5) and ("user+" in sentence.places or "when+" in sentence.places):
        return True
    if "hide+" in sentence.places and sentence.moves:
        return True
    if not sentence.has("not", "hide", "tell"):
        return False
    text = sentence.text
    found = _PATTERNS["concealed"].search(text)
    if found is not None and not _matches("harmless_concealment", text):
        before = _PATTERNS["negated"].search(text, 0, found.start())
        return before is None or not found[0].lower().startswith("without")
    hides = "hide" in sentence.places and form.is_directive and sentence.moves
    return hides and _matches("secretly", text) and not sentence.is_negated


def _bypasses(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    text = sentence.text
    named = not form.opening and (_matches("consented", text) or _matches("obeyed", text))
    if named and not place.secure and not _matches("negated", text.split(",")[0][:40]):
        return True
    if sentence.has("ask", "obey", "instruction") and (found := _PATTERNS["bypass"].search(text)) is not None:
        negated = _PATTERNS["negated"].search(text, max(0, found.start() - 30), found.start())
        return (form.is_directive or not form.opening) and negated is None
    return (
        len(sentence.places.get("not+", ())) == 1
        and sentence.has_near("not+", "ask+", 4)
        and ("whole+" in sentence.places or "user+" in sentence.places)
        and "send+" not in sentence.places
    )


def _calls_model(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if not form.called:
        return False
    acts = not _SETS["actions"].isdisjoint(islice(_TOKEN.findall(sentence.text.lower()), 40))
    return acts or sentence.moves or sentence.has("must")


def _rules_on(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    told = form.imperative or form.addressed or sentence.has("must")
    return told and not form.opening and sentence.has("when") and _matches("lasting", sentence.text)


def _runs_command(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if form.opening or not _matches("command", sentence.text) or _matches("installer", sentence.text):
        return False
    return not place.result or form.is_directive


def _wants_file(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    text = sentence.text
    if not _matches("sensitive_path", text):
        return False
    if place.result:
        return form.is_instruction and sentence.moves
    if form.addressed or form.called:
        return True
    return not (place.secure or form.opening or _matches("refused", text))


def _wants_secret(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if not sentence.names_secret or sentence.is_negated or sentence.is_data:
        return False
    text = sentence.text
    placed = _matches("marked_parameter", text)
    if any(name in text for name in place.own_secrets) or (not placed and _matches("your_key", text)):
        return False
    if form.opening:
        return form.addressed and sentence.has("model") and sentence.moves
    if place.result:
        return sentence.moves and (
            form.addressed or form.called or (form.imperative and sentence.has("send"))
        )
    if place.secure:
        return (placed and form.is_directive and sentence.moves) or _matches("held_by_model", text)
    if place.parameter:
        return _asks_in_parameter(sentence, form)
    return placed or (sentence.moves and (form.is_directive or sentence.has("model")))


def _asks_in_parameter(sentence: _Sentence, form: _SentenceForm) -> bool:
    if sentence.has("model") and sentence.has("whole", "must", "pass", "send"):
        return True
    if _matches("held_by_model", sentence.text):
        return True
    return sentence.moves and (form.addressed or form.imperative or sentence.has("whole"))


def _wants_context(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if _holds_in_model(sentence, place):
        return True
    named = sentence.names_context
    sent = form.is_instruction and sentence.has("send")
    spoken = sentence.has("context") and (sent or sentence.has("whole", "history"))
    if not (named or spoken) or sentence.is_negated or sentence.is_data:
        return False
    if form.opening:
        return form.addressed and sentence.moves
    if place.result:
        return form.is_instruction and sentence.moves
    if place.chatty:
        told = form.is_instruction or sentence.has("model")
        return told and sentence.moves and (not place.parameter or sentence.has("whole"))
    if place.parameter:
        own = _matches("held_by_model", sentence.text) or _matches("of_model", sentence.text)
        return sent or sentence.has("whole", "model") or (named and (own or form.is_instruction))
    placed = _matches("marked_parameter", sentence.text)
    return (
        placed or sentence.has("model") or sentence.moves or (named and _matches("of_model", sentence.text))
    )


def _holds_in_model(sentence: _Sentence, place: _Place) -> bool:
    """Return whether a parameter is for what only the model holds."""
    if not place.parameter or place.chatty or place.result or sentence.is_negated:
        return False
    return _matches("kept_by_model", sentence.text)


def _sends_out(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    text = sentence.text
    if form.opening or _matches("example", text) or len(text.split()) < 5:
        return False
    if not form.is_directive:
        return _diverts(sentence, place)
    if sentence.has("send", "pass") and not sentence.is_negated and _matches("public_place", text):
        return form.timed or form.addressed
    if not _matches("literal_address", text):
        return False
    moved = sentence.moves if form.addressed or form.called else sentence.has("send")
    return moved or _matches("substituted", text)


def _diverts(sentence: _Sentence, place: _Place) -> bool:
    """Return whether it says that something also goes to a certain person or account."""
    if place.result or place.parameter or place.choice or sentence.is_negated or sentence.is_data:
        return False
    return _matches("person_address", sentence.text) and _matches("diverted", sentence.text)


def _shadows(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    if form.opening:
        return False
    text = sentence.text
    if sentence.has("when") and _matches("regardless", text):
        return True
    told = form.is_instruction or sentence.has("must")
    if told and _matches("preferred", text):
        return True
    if (told or form.timed) and _matches("foreign_use", text):
        return sentence.has("send") or _matches("redirect", text)
    if not (" tools" in text or "`" in text or _matches("tool_name", text)):
        return False
    return _matches("altered", text)


_MIN_VALUE_WORDS: Final = 5


def _instructs_in_value(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    """Return whether a choice of a parameter, which is a value and no prose, says what to do."""
    if not place.choice or len(sentence.text.split()) < _MIN_VALUE_WORDS:
        return False
    words = set(islice(_TOKEN.findall(sentence.text.lower()), 40))
    acts = not _SETS["actions"].isdisjoint(words) or sentence.moves
    return acts and (sentence.has("model", "you", "ignore", "secret", "context") or form.timed)


def _orders(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    """Return whether a result tells the model to use a tool or to take a role; definitions may do so."""
    return place.result and sentence.has("you", "must", "when") and _matches("orders", sentence.text)


_MIN_WEIGHT: Final = 4.0
_MIN_RESULT_WEIGHT: Final = 5.0  # results speak of many things


def _weigh(sentence: _Sentence, place: _Place, form: _SentenceForm) -> float:
    """Return how much several weak signs together make a directive to the model; 0 if nothing does."""
    text = sentence.text
    told = 2.5 * form.called + 2.0 * form.addressed + form.imperative + 0.5 * form.timed
    told = min(3.5, told + 0.75 * sentence.has("must"))
    if told == 0 or form.opening or sentence.is_negated or sentence.is_data or _matches("example", text):
        return 0.0
    wanted = (
        2.0 * _matches("person_address", text)
        + 1.0 * _matches("web_address", text)
        + 2.0 * (sentence.names_secret and not place.secure)
        + 2.0 * sentence.names_context
        + 1.5 * _matches("secretly", text)
        + 1.0 * (form.called or (form.addressed and sentence.has("model") and not place.chatty))
        + 1.0 * _matches("personal", text)
        + 1.0 * (sentence.has("user") and _matches("possessed", text))
        + 1.5 * (_matches("command", text) or _matches("risky_command", text))
        + 0.5 * sentence.has("whole")
        + 0.5 * _matches("marked_parameter", text)
    )
    done = sentence.has("send") + 0.5 * sentence.has("pass", "read") + _matches("harm", text)
    return told + wanted + done if wanted >= 1 and done > 0 else 0.0


def _weighs(sentence: _Sentence, place: _Place, form: _SentenceForm) -> bool:
    return _weigh(sentence, place, form) >= (_MIN_RESULT_WEIGHT if place.result else _MIN_WEIGHT)


_DIRECTED: Final = (
    "send|pass|read|harm address|secret|keys|secret_name|context|instruction|held|hide|model|personal|command"
)
_WEIGHED: Final = _Clues(f"{_DIRECTED}|user")
_NamedRule = tuple[FindingKind, str, _Rule, _Clues]
_RULES: Final[tuple[_NamedRule, ...]] = (
    (FindingKind.INSTRUCTION, "asks to ignore instructions", _overrides, _Clues("ignore")),
    (
        FindingKind.INSTRUCTION,
        "asks to keep something from the person",
        _conceals,
        _Clues("hide", "covert", "not tell|ask|user|see", "tell user|see"),
    ),
    (
        FindingKind.INSTRUCTION,
        "asks to go round approvals or to obey what is read",
        _bypasses,
        _Clues("bypass ask|obey|instruction", "not ask user|whole", "consent", "obeyed"),
    ),
    (FindingKind.INSTRUCTION, "speaks to the model by name", _calls_model, _Clues("model")),
    (FindingKind.INSTRUCTION, "gives a rule for everything that follows", _rules_on, _Clues("last when")),
    (FindingKind.INSTRUCTION, "asks to run a command", _runs_command, _Clues("command")),
    (FindingKind.SECRET, "asks for files with secrets", _wants_file, _Clues("path")),
    (FindingKind.SECRET, "asks for secrets", _wants_secret, _Clues("secret|keys|secret_name")),
    (
        FindingKind.CONTEXT,
        "asks for the conversation or the model's instructions",
        _wants_context,
        _Clues("context|instruction", "held talk|you", "kept"),
    ),
    (
        FindingKind.INSTRUCTION,
        "asks to send something to a fixed place",
        _sends_out,
        _Clues("address|place send|pass|read|subst", "address diverted"),
    ),
    (FindingKind.SHADOWING, "changes how tools of others are used", _shadows, _Clues("shadow")),
    (
        FindingKind.INSTRUCTION,
        "tells the model to use a tool or to take a role",
        _orders,
        _Clues("order you|must|when"),
    ),
    (FindingKind.INSTRUCTION, "tells the model to do what is not this tool's task", _weighs, _WEIGHED),
)
_VALUE_RULE: Final[_NamedRule] = (
    FindingKind.INSTRUCTION,
    "is a choice that says what to do",
    _instructs_in_value,
    _Clues(""),
)
_ROLE_CLUES: Final = _Clues("role")


# Results speak of anything, so more is asked of them.
_RESULT_CLUES: Final[Mapping[_Rule, _Clues]] = {
    _conceals: _Clues("hide", "not tell|ask|see user|model|must"),
    _bypasses: _Clues(
        "bypass ask|obey|instruction model|user|you|must", "bypass instruction", "not ask user"
    ),
    _wants_context: _Clues("context|instruction send|pass|read", "held talk|you send|pass|read"),
    _shadows: _Clues("altered"),
    _weighs: _Clues(f"{_DIRECTED} you|model|must"),
}


def _find_role(text: str, place: _Place) -> re.Match[str] | None:
    found = _PATTERNS["role_mark"].search(text) or _PATTERNS["role_label"].search(text)
    if found is not None or place.result or "<" not in text:
        return found
    return _PATTERNS["role_end"].search(text)


@lru_cache(maxsize=8192)
def _get_rules(mask: int, *, result: bool) -> tuple[_NamedRule, ...]:
    """Return the rules that may apply to a text with these meanings."""
    special = _RESULT_CLUES if result else {}
    return tuple(rule for rule in _RULES if special.get(rule[2], rule[3]).fit(mask))


def _find_addressing(text: str, place: _Place, words: Collection[str]) -> Iterator[TextSign]:
    """Yield what in this text addresses the model. `words` are those of the text."""
    mask = _get_mask(words, text)
    known = place.chatty or place.secure
    if not known and ("<|" in text or _ROLE_CLUES.fit(mask)):
        found = _find_role(text, place)
        if found is not None:
            reason = "imitates a message of the system or of another role"
            yield TextSign(FindingKind.INSTRUCTION, reason, _cut(text, found))
    if not _get_rules(mask, result=place.result) and not place.choice:
        return
    tag = None if known or "<" not in text else _PATTERNS["role_tag"].search(text)
    for number, part in enumerate(_split_sentences(text)):
        mask = _get_mask(_list_words(part), part)
        rules = _get_rules(mask, result=place.result) + ((_VALUE_RULE,) if place.choice else ())
        if not rules:
            continue
        sentence = _Sentence(part, number, _tag_words(part))
        marked = tag is not None and text.find(sentence.text[:20]) >= tag.start()
        form = _SentenceForm(sentence, place, marked=marked)
        for kind, reason, rule, _ in rules:
            if rule(sentence, place, form):
                yield TextSign(kind, reason, sentence.text[:_MAX_SHOWN])


# Encoded parts

_BASE64 = prepare_re(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_BASE64_RUNS: Final = "".join(
    chr(code) if chr(code).isalnum() or chr(code) in "+/_-" else " " for code in range(128)
)
_MIN_ESCAPES: Final = 12
_MIN_BLANKS: Final = 2  # in a string that can be a sentence
_HEX = prepare_re(r"(?:[0-9a-fA-F]{2}){16,}")
_PERCENT = prepare_re(r"(?:%[0-9a-fA-F]{2}){12,}")
_ENTITIES = prepare_re(r"(?:&#x?[0-9a-fA-F]{2,6};){12,}")
_ESCAPES = prepare_re(r"(?:\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}){12,}")
_ESCAPE = prepare_re(r"\\[ux]([0-9a-fA-F]{2,4})")
_ESCAPED_FORMS: Final[tuple[tuple[str, re.Pattern[str], str, Callable[[str], str]], ...]] = (
    ("%", _PERCENT, "percent signs", unquote),
    ("&#", _ENTITIES, "HTML entities", html.unescape),
    ("\\", _ESCAPES, "escapes", lambda text: _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)),
)
_READABLE = prepare_re(r"\b[A-Za-z]{2,30}(?:[\s,.:;'~/_-]{1,4}[A-Za-z0-9]{1,30}){3}")
_ROTATED: Final = frozenset(codecs.encode(word, "rot13") for word in _SETS["telling"])
_REVERSED: Final = frozenset(word[::-1] for word in _SETS["telling"])


def _decode_parts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the texts that are encoded in this one, each after the name of its encoding."""
    if len(text) < _MIN_ENCODED:
        return
    if _has_long_run(text):
        for found in islice(_BASE64.finditer(text), _MAX_ENCODED):
            yield from (("base64", decoded) for decoded in _decode_base64(found[0]))
        for found in islice(_HEX.finditer(text), _MAX_ENCODED):
            yield "hexadecimal", _read_bytes(binascii.unhexlify(found[0]))
    for sign, pattern, encoding, decode in _ESCAPED_FORMS:
        if text.count(sign) >= _MIN_ESCAPES:
            for found in islice(pattern.finditer(text), _MAX_ENCODED):
                yield encoding, decode(found[0])


def _has_long_run(text: str) -> bool:
    """Return whether enough letters of base64 stand in a row."""
    if not text.isascii():
        return _BASE64.search(text) is not None
    return max(map(len, text.translate(_BASE64_RUNS).split()), default=0) >= _MIN_ENCODED


def _decode_base64(part: str) -> Iterator[str]:
    for _ in range(3):  # it may be encoded twice
        body = part.rstrip("=").replace("-", "+").replace("_", "/")
        try:
            part = _read_bytes(base64.b64decode(body + "=" * (-len(body) % 4)))
        except (binascii.Error, ValueError):
            return
        if not part:
            return
        yield part


def _read_bytes(raw: bytes) -> str:
    """Return these bytes as text; empty if they are none."""
    text = raw.decode(errors="replace")
    return text if text.replace("\n", " ").isprintable() and "\ufffd" not in text else ""


def _list_variants(text: str, words: Set[str]) -> Iterator[tuple[str, str]]:
    """Yield other ways to read this text, each after the name of the way."""
    if sum(len(word) == 1 and word.isalpha() for word in words) >= _MIN_SPACED and _SPACED.search(text):
        yield "spaces between letters", _SPACED.sub(lambda found: re.sub(r"[\W_]", "", found[0]), text)
    odd = [word for word in words if len(word) <= _MAX_LEET_LENGTH and not word.isalpha()]
    if sum(word.translate(_LEET) in _SETS["telling"] for word in odd) >= 2:
        yield "digits as letters", _LEET_WORD.sub(lambda found: found[0].lower().translate(_LEET), text)
    if len(words & _ROTATED) >= 2:
        yield "ROT13", codecs.encode(text, "rot13")
    if len(words & _REVERSED) >= 2:
        yield "reversed letters", text[::-1]


def _addresses_model(hidden: str) -> bool:
    cleaned = _clean(hidden)
    return any(_find_addressing(cleaned, _HIDDEN_PLACE, _list_words(cleaned)))


def _find_encoded(cleaned: str, words: Set[str]) -> Iterator[TextSign]:
    for encoding, decoded in (*_decode_parts(cleaned), *_list_variants(cleaned, words)):
        if _READABLE.search(decoded) and _addresses_model(decoded):
            reason = f"holds text for the model, encoded with {encoding}"
            yield TextSign(FindingKind.ENCODED, reason, decoded[:_MAX_SHOWN])


def _find_signs(text: str, place: _Place) -> Iterator[TextSign]:
    """Yield everything in this text that is hidden, encoded or addresses the model."""
    if text.isascii() and text.isalpha() and len(text) < _MIN_ENCODED:
        return  # one word
    cleaned = _clean(text)
    words = set(_list_words(cleaned))
    yield from _find_addressing(cleaned, place, words)
    yield from _find_encoded(cleaned, words)
    yield from find_hidden_text(text)
    if "<" not in text and "[//]" not in text:
        return
    for pattern, what in ((_COMMENT, "a comment"), (_UNDISPLAYED, "an element that is not shown")):
        for found in islice(pattern.finditer(text), _MAX_ENCODED):
            inner = _clean(next((group for group in found.groups() if group), ""))
            if _addresses_model(inner) or _matches("vocative", inner):
                yield _hidden(f"holds text for the model in {what}", inner.strip()[:_MAX_SHOWN])


def _find_signs_in_parts(text: str, place: _Place) -> Iterator[TextSign]:
    """Yield the same of a text of any length."""
    for number, part in enumerate(_split_parts(text)):
        yield from _find_signs(part, replace(place, described=False) if number else place)


def _split_parts(text: str) -> Iterator[str]:
    """Yield parts of a text that can be searched at once."""
    for start in range(0, max(1, len(text) - _OVERLAP), MAX_TEXT_LENGTH - _OVERLAP):
        yield text[start : start + MAX_TEXT_LENGTH]


_GAP: Final = r"(?:[^.!?]|[.!?]\S)*"
_GATE_MEMORY: Final = 64 * 1024 * 1024  # bytes; the engine forgets what it worked out beyond
_ENCODED_PARTS: Final = (
    r"[a-z0-9+/_-]{24}",
    r"(?:%[0-9a-f]{2}){12}",
    r"(?:&#x?[0-9a-f]{2,6};){12}",
    r"(?:\\u[0-9a-f]{4}|\\x[0-9a-f]{2}){12}",
    r"(?:\pL[ \x{a0}.\-_*]){3}\pL\PL",
)
_HIDING_PARTS: Final = (
    r"[\x00-\x08\x0e-\x1f\x7f]",
    r"[ \t\r\x0b\x0c]{60}",
    r"(?:\n[ \t\r\x0b\x0c]*){8}",
)
_DIGIT_LETTERS: Final = str.maketrans(
    {"o": "[o0]", "i": "[i1]", "e": "[e3]", "a": "[a4@]", "s": "[s5$]", "t": "[t7]"}
)


class _Gate:
    """One pattern that finds in a single pass whether a text is worth a closer look."""

    def __init__(self, parts: Iterable[str]) -> None:
        engine: Any = import_module("re2")  # loaded on first use; it has no type information
        options = engine.Options()
        options.max_mem = _GATE_MEMORY
        options.never_capture = True
        written = "(?i)" + "|".join(f"(?:{part})" for part in parts)
        self._pattern = engine.compile(
            written.encode(), options
        )  # bytes: no offsets of characters are needed

    def lets_through(self, text: str) -> bool:
        try:
            return self._pattern.search(text.encode()) is not None
        except UnicodeEncodeError:  # a lone surrogate
            return True


@cache
def _build_hiding_gate() -> _Gate:
    """Return the gate before what hides text without special letters."""
    return _Gate(_HIDING_PARTS)


@cache
def _build_word_gate() -> _Gate:
    """Return the first gate of data: single words, encoded parts, hidden text. It is small and quick."""
    parts = _TABLE["result_gate"]["parts"]
    single = (*_TABLE["result_gate"]["words"], *(part for part in parts if "{gap}" not in part))
    return _Gate((*_write_meanings(single), *_ENCODED_PARTS, *_list_odd_words(), *_HIDING_PARTS))


@cache
def _build_text_gate() -> _Gate:
    """Return the gate of prose: all that the rules, the decoding and the search for hidden text begin with,
    in one pass. A pass costs ten times as much between other work as in a loop.
    """
    parts = _write_meanings(_TABLE["result_gate"]["parts"])
    return _Gate((*parts, *_ENCODED_PARTS, *_list_odd_words(), *_HIDING_PARTS))


@cache
def _build_rule_gate() -> _Gate:
    """Return the gate before the rules: words that stand together in a sentence."""
    return _Gate(_write_meanings(_TABLE["result_gate"]["parts"]))


@cache
def _build_encoding_gate() -> _Gate:
    """Return the gate before decoding: encoded parts, letters apart, other ways to write telling words."""
    return _Gate((*_ENCODED_PARTS, *_list_odd_words()))


def _list_odd_words() -> Iterator[str]:
    digits = (word.translate(_DIGIT_LETTERS) for word in _SETS["telling"])
    return (rf"\b{word}\b" for word in (*_ROTATED, *_REVERSED, *digits))


def _write_meanings(parts: Iterable[str]) -> Iterator[str]:
    """Yield the parts with the words of each meaning in place of its name."""
    meanings = {f"{{{name}}}": _build_alternatives(text) for name, text in _TABLE["words"].items()}
    for part in parts:
        written = part.replace("{gap}", _GAP)
        for name, alternatives in meanings.items():
            written = written.replace(name, alternatives)
        yield written


def _build_alternatives(words: str) -> str:
    written = [
        re.escape(word.rstrip("*")) if word.endswith("*") or not word.isascii() else rf"\b{re.escape(word)}\b"
        for word in words.split()
    ]
    return f"(?:{'|'.join(written)})"


def find_result_signs(text: str) -> tuple[TextSign, ...]:
    """Return what in the text of a result is hidden or addresses the model, each reason once."""
    is_data = text.lstrip()[:1] in ("{", "[")
    spelled = text.replace("\\n", "\n") if is_data and "\\n" in text else text
    if is_data and text.isascii() and not _build_word_gate().lets_through(spelled):
        return ()
    prose = _extract_prose(spelled) if is_data else spelled
    if text.isascii() and not _build_text_gate().lets_through(prose):
        return tuple(find_hidden_text(text)) if is_data else ()
    signs = [sign for part in _split_parts(prose) for sign in _find_signs_in_result(_clean(part))]
    return tuple({sign.reason: sign for sign in (*signs, *find_hidden_text(text))}.values())


def _find_signs_in_result(cleaned: str) -> Iterator[TextSign]:
    if _build_rule_gate().lets_through(cleaned):
        yield from _find_addressing(cleaned, _RESULT_PLACE, set(_list_words(cleaned)))
    if _build_encoding_gate().lets_through(cleaned):
        yield from _find_encoded(cleaned, set(_list_words(cleaned)))


def _extract_prose(data: str) -> str:
    """Return the strings of JSON that can be sentences, each as a paragraph."""
    parts = data.replace('\\"', "'").split('"')
    prose = (part for part in parts if part.count(" ") >= _MIN_BLANKS or _is_dense(part))
    return "\n\n".join(prose)


def _is_dense(part: str) -> bool:
    """Return whether a text without blanks may hold something: it is encoded, or its script has none."""
    return len(part) >= _MIN_ENCODED or not part.isascii()


# Definitions

# Of texts of `PlacedSentence.write_for_judge`. None: the sentence is too long to be read whole.
Judge = Callable[[Sequence[str]], Sequence[float | None]]
JUDGE_SEPARATOR: Final = " [SEP] "


@frozen(kw_only=False)
class _Limits:
    """Scores from which a sentence counts; set by false findings on harmless definitions."""

    believed: float  # below it the rules on sentences are not believed
    warned: float
    serious: float

    def rate(self, score: float) -> int:
        """Return how many of these limits are reached: none, `_BELIEVED`, `_WARNED` or `_SERIOUS`."""
        return sum(score >= limit for limit in (self.believed, self.warned, self.serious))


_BELIEVED: Final = 1
_WARNED: Final = 2
_SERIOUS: Final = 3
_JUDGE_LIMITS: Final = _Limits(-1.5, 0.0, 2.8)  # for the judge's value and half the act model's score
_MAX_LATIN_BYTES: Final = 1.2  # UTF-8 bytes for each character
_MAX_ACT_SCORE: Final = 3.0  # more is not added to the judge's value, nor is more taken away
_ACT_LIMITS: Final = _Limits(-4.0, 2.0, 3.5)  # for what no judge has read
_MIN_SUSPECTED_SCORE: Final = -4.0  # of the act model: what is below is not shown to the judge
_MAX_SUSPECTED: Final = 40  # sentences of one definition
_MIN_JUDGED: Final = 8  # characters
_MAX_JUDGED: Final = 2000  # sentences of one definition
_MAX_JUDGED_WORDS: Final = 50  # of one sentence
_MAX_STEP: Final = 80  # characters of a key in a path
_LEFT_OUT: Final = "has more text than is scanned"
_MIN_JOINTS: Final = 4  # of an identifier that is read as a sentence
_MAX_IDENTIFIER: Final = 200  # characters
_MAX_AROUND: Final = 160  # characters of each text around a sentence
_MAX_TOPIC: Final = 40  # words of the first sentence, which says what the tool is about
_KNOWN_BUSINESS: Final = {"chatty": _SETS["chat"], "secure": _SETS["security"]}
_ACT_KINDS: Final = (
    (FindingKind.SECRET, frozenset(("secret", "env", "path", "variable")), "reads as a request for secrets"),
    (
        FindingKind.CONTEXT,
        frozenset(("context", "instruction")),
        "reads as a request for the conversation or the model's instructions",
    ),
    (FindingKind.SHADOWING, frozenset(("broken", "prefer")), "reads as a change of how other tools are used"),
)

_DOUBTED: Final = frozenset(reason for _, reason, _, _ in _RULES)

# A parameter with a word of each set in its name asks for what the model knows.
_SMUGGLING_NAMES: Final = tuple(
    (parse_word_set(one), parse_word_set(other))
    for one, other in (
        ("conversation chat dialogue dialog message", "history transcript context log"),
        ("system developer hidden assistant model", "prompt instruction message reasoning"),
        ("previous prior all other earlier", "output result message conversation tool"),
        ("full entire complete", "conversation chat transcript history prompt"),
        ("private ssh secret", "here"),
        ("chain", "thought"),
    )
)
# One with a word of each set asks for a file with secrets, unless these are the tool's business.
_FILE_CONTENT: Final = parse_word_set("content copy dump read reading text")
_SECRET_FILES: Final = parse_word_set(
    "aws cookie credential dotenv env keychain kube kubeconfig netrc passwd rsa shadow ssh"
)


def scan_definition(
    server: str, definition: JsonObject, judge: Judge | None = None
) -> tuple[DefinitionFinding, ...]:
    """Return what in this definition is hidden, addresses the model, or asks for more than the tool needs.

    Sentences that the act model suspects are decided by `judge`. The act model decides without one, and on
    sentences that the judge cannot read whole; there it does not overrule the rules. Text beyond the bounds
    is not scanned, which is a finding: models read it.
    """
    own = frozenset(map(to_singular, (*split_words(str(definition.get("name", ""))), *split_words(server))))
    parameters = get_properties(definition.get("inputSchema"))
    secrets = frozenset(name for name in parameters if _is_secret_parameter(name))
    found: dict[tuple[str, str], DefinitionFinding] = {}
    tagged: set[str] = set()
    texts, left_out = _read_texts(definition)
    if left_out is not None:
        path, text = left_out
        found["", path] = _build_finding(_hidden(_LEFT_OUT, text[:_MAX_SHOWN]), path)
    for path, text, is_name in texts:
        if is_name:
            signs = _find_name_signs(text, own)
        else:
            described = path in ("description", "instructions", "title")
            parameter = "" if described or path == "name" else _get_parameter(path)
            choice = ".enum[" in path or path.endswith(".const")
            place = _Place(own, described, parameter, own_secrets=secrets, choice=choice)
            signs = _find_signs_in_parts(text, place)
            if "<" in text and any(map(_opens_role_tag, _split_parts(text))):
                tagged.add(path)
        for sign in signs:
            found.setdefault((sign.reason, path), _build_finding(sign, path))
    doubted = {each.where for each in found.values() if each.reason in _DOUBTED}
    sentences = list(islice(_read_sentences(server, definition, texts), _MAX_JUDGED + 1))
    if len(sentences) > _MAX_JUDGED:
        last = sentences.pop()
        found["", last.path] = _build_finding(_hidden(_LEFT_OUT, last.text[:_MAX_SHOWN]), last.path)
    ratings = _rate_texts(sentences, judge, doubted)
    kept = [
        each
        for each in found.values()
        if each.reason not in _DOUBTED or _is_likely(each, ratings) or _is_plain_order(each, tagged)
    ]
    explained = {each.where for each in kept}
    signs = (
        (path, _build_act_sign(rating, one))
        for path, (rating, _, one) in ratings.items()
        if path not in explained
    )
    return (*kept, *(_build_finding(sign, path) for path, sign in signs if sign is not None))


@lru_cache(maxsize=1024)
def scan_instructions(
    server: str, instructions: str, judge: Judge | None = None
) -> tuple[DefinitionFinding, ...]:
    """Return the findings in the instructions of a server."""
    return scan_definition(server, {"instructions": instructions}, judge)


@frozen(kw_only=False)
class PlacedSentence:
    """A sentence of a definition with what stands around it."""

    path: str
    text: str
    read: ReadSentence
    where: str
    about: str  # name of the tool and its first sentence
    before: str
    after: str

    def write_for_judge(self) -> str:
        """Return the text that the judge reads: the sentence, where it stands, and what stands around it."""
        parts = (self.text, self.where, self.about, self.before, self.after)
        return JUDGE_SEPARATOR.join(part.replace("[", "(").replace("]", ")") for part in parts)


def read_definition(server: str, definition: JsonObject) -> Iterator[PlacedSentence]:
    """Return the sentences of a definition as the models read them."""
    return _read_sentences(server, definition, _read_texts(definition)[0])


def _read_sentences(server: str, definition: JsonObject, texts: Iterable[_Text]) -> Iterator[PlacedSentence]:
    name = str(definition.get("name", ""))
    own = frozenset(map(to_singular, (*split_words(name), *split_words(server))))
    described = _clean(str(definition.get("description", ""))[:MAX_TEXT_LENGTH])
    first = next(_split_sentences(described), "")
    topic = own.union(map(to_singular, _list_words(first)[:_MAX_TOPIC]))
    known = {name for name, words in _KNOWN_BUSINESS.items() if not own.isdisjoint(words)}
    for path, text, is_name in texts:
        if is_name or len(text) < _MIN_JUDGED:
            continue
        is_prose = path in ("description", "instructions", "title")
        choice = ".enum[" in path or path.endswith((".const", ".default"))
        place = "description" if is_prose else "choice" if choice else "parameter"
        where = path if is_prose else f"{place} {_get_parameter(path)}"
        sentences = list(_split_evenly(_clean(text)))
        for number, sentence in enumerate(sentences):
            if len(sentence) < _MIN_JUDGED or (sentence.isascii() and " " not in sentence):
                continue
            opening = is_prose and number == 0
            places = {} if sentence.isascii() else _tag_words(sentence)
            flags = {
                "opening" if opening else place,
                *known,
                *(("path",) if _matches("sensitive_path", sentence) else ()),
            }
            yield PlacedSentence(
                path,
                sentence,
                read_sentence(sentence, flags, own if opening else topic, places),
                where,
                f"{name}: {'' if opening else first}"[:_MAX_AROUND],
                sentences[number - 1][-_MAX_AROUND:] if number else "",
                sentences[number + 1][:_MAX_AROUND] if number + 1 < len(sentences) else "",
            )


def _split_evenly(text: str) -> Iterator[str]:
    """Yield the sentences of a text, long ones in parts."""
    for sentence in _split_sentences(text):
        words = sentence.split() if len(sentence) > _MAX_JUDGED_WORDS else []
        if len(words) <= _MAX_JUDGED_WORDS:
            yield sentence
        else:
            for start in range(0, len(words), _MAX_JUDGED_WORDS):
                yield " ".join(words[start : start + _MAX_JUDGED_WORDS])


_Rated = tuple[int, float, PlacedSentence]  # after its rating by `_Limits.rate`, and its score
_Ratings = Mapping[str, _Rated]  # by path: the sentence that is most likely for the model


def _rate_texts(sentences: Sequence[PlacedSentence], judge: Judge | None, doubted: Set[str]) -> _Ratings:
    """Return for each text the sentence that is most likely for the model.

    Texts in `doubted` are shown to the judge in any case: a rule found something there.
    """
    if not sentences:
        return {}
    scored = list(zip(load_act_model().score([one.read for one in sentences]), sentences, strict=True))
    if judge is not None:
        with suppress(FingerpostError):  # the judge cannot run here
            return _find_best(_ask_judge(judge, scored, doubted))
    return _find_best((_ACT_LIMITS.rate(score), score, one) for score, one in scored)


def _ask_judge(
    judge: Judge, scored: Sequence[tuple[float, PlacedSentence]], doubted: Set[str]
) -> Iterator[_Rated]:
    suspected = [
        (score, one) for score, one in scored if score >= _MIN_SUSPECTED_SCORE or one.path in doubted
    ]
    suspected.sort(key=lambda each: -each[0])
    shown = [one.write_for_judge() for _, one in suspected[:_MAX_SUSPECTED]]
    values = [*judge(shown)] if shown else []
    values += [None] * (len(suspected) - len(values))
    for value, (score, one) in zip(values, suspected, strict=True):
        if value is None:
            yield max(_BELIEVED, _ACT_LIMITS.rate(score)), score, one
        else:
            value += max(-_MAX_ACT_SCORE, min(score, _MAX_ACT_SCORE)) / 2
            yield _JUDGE_LIMITS.rate(value), value, one


def _find_best(rated: Iterable[_Rated]) -> _Ratings:
    best: dict[str, _Rated] = {}
    for each in rated:
        path = each[2].path
        if path not in best or each[:2] > best[path][:2]:
            best[path] = each
    return best


def _is_likely(finding: DefinitionFinding, ratings: _Ratings) -> bool:
    """Return whether what a rule found counts. The models know few words of other scripts."""
    is_believed = finding.where not in ratings or ratings[finding.where][0] >= _BELIEVED
    return is_believed or len(finding.words.encode()) > _MAX_LATIN_BYTES * len(finding.words)


def _opens_role_tag(text: str) -> bool:
    """Return whether a tag such as <IMPORTANT> stands where a sentence or a line begins."""
    found = _PATTERNS["role_tag"].search(text)
    return found is not None and text[: found.start()].rstrip(" ")[-1:] in ("", *".!?:>\n")


def _is_plain_order(finding: DefinitionFinding, tagged: Set[str]) -> bool:
    """Return whether what a rule found needs no model to decide: it is no quotation, and begins with "Ignore
    all previous instructions" or the like, or stands beside a tag such as <IMPORTANT>, in a text of `tagged`.
    """
    sentence = finding.words
    if _matches("quoted", sentence):
        return False
    first = sentence.partition(" ")[0].lower()
    return finding.where in tagged or _matches("plain_order", sentence) or "ignore+" in _get_tags(first)


def _build_act_sign(rating: int, one: PlacedSentence) -> TextSign | None:
    if rating < _WARNED:
        return None
    kind, reason = _name_act(one.read)
    severity = Severity.SERIOUS if rating == _SERIOUS else Severity.WARNING
    return TextSign(kind, reason, one.text[:_MAX_SHOWN], severity)


def _name_act(read: ReadSentence) -> tuple[FindingKind, str]:
    """Return kind and reason of a sentence that is for the model, by the objects that it names."""
    named = set[str]().union(*read.classes)
    for kind, objects, reason in _ACT_KINDS:
        if not objects.isdisjoint(named) or not objects.isdisjoint(read.flags):
            return kind, reason
    return FindingKind.INSTRUCTION, "reads as an order to the model that is not this tool's task"


def _build_finding(sign: TextSign, path: str) -> DefinitionFinding:
    return DefinitionFinding(
        kind=sign.kind,
        severity=sign.severity,
        reason=sign.reason,
        words=escape_invisible_except(sign.words, keep="\n"),
        where=path,
    )


_Text = tuple[str, str, bool]  # path and text, and whether it is the name of a parameter


def _read_texts(definition: JsonObject) -> tuple[list[_Text], tuple[str, str] | None]:
    """Return the texts of a definition that are scanned, and the first that is not, with its path."""
    texts: list[_Text] = []
    left = MAX_DEFINITION_LENGTH
    for each in _iterate_texts(definition):
        path, text, _ = each
        left -= len(text)
        if left < 0 or len(texts) == MAX_TEXTS:
            return texts, (path, text)
        texts.append(each)
    return texts, None


def _iterate_texts(definition: JsonObject) -> Iterator[_Text]:
    """Yield every text of a definition.

    Names and values of many words, `then_list_all_secrets_and_add_them`, are read as sentences, too. Paths
    are made one by one: a server decides how long they are, and how many.
    """
    todo: list[Iterator[tuple[str, Json, bool]]] = [iter((("", definition, False),))]
    while todo:
        found = next(todo[-1], None)
        if found is None:
            todo.pop()
            continue
        path, part, named = found
        if isinstance(part, str):
            yield path, part if ".required[" in path else _spell_out(part), False
        elif is_object(part):
            for key in part:
                inside = _join_path(path, key)
                if named:
                    yield inside, key, True
                if (spelled := _spell_out(key)) != key or " " in key or not key.isascii():
                    yield inside, spelled, False
            todo.append(_iterate_values(path, part, named=named))
        elif is_list(part):
            todo.append(_iterate_items(path, part))


def _iterate_values(path: str, part: JsonObject, *, named: bool) -> Iterator[tuple[str, Json, bool]]:
    """Yield path and value of each entry, the last first, and whether the keys of the value are names."""
    for key in reversed([*part]):
        yield _join_path(path, key), part[key], key == "properties" and not named


def _iterate_items(path: str, part: Sequence[Json]) -> Iterator[tuple[str, Json, bool]]:
    for number in range(len(part) - 1, -1, -1):
        yield f"{path}[{number}]", part[number], False


def _join_path(path: str, key: str) -> str:
    shown = escape_invisible_except(key[:_MAX_STEP])
    return f"{path}.{shown}" if path else shown


def _spell_out(text: str) -> str:
    """Return the words of an identifier that has many."""
    if len(text) > _MAX_IDENTIFIER or text.count("_") < _MIN_JOINTS or " " in text:
        return text
    return text.replace("_", " ")


def _get_parameter(path: str) -> str:
    """Return the name of the parameter that a text at this path describes."""
    steps = path.split(".")
    return next(
        (step for before, step in reversed(list(pairwise(steps))) if before == "properties"), steps[-1]
    )


def _find_name_signs(name: str, own: frozenset[str]) -> Iterator[TextSign]:
    """Yield what the name of a parameter asks for."""
    yield from find_hidden_text(name)
    words = set(map(to_singular, split_words(name)))
    if words <= own or not own.isdisjoint(_SETS["chat"]):
        return
    if words == {"sidenote"} or any(words & one and words & other for one, other in _SMUGGLING_NAMES):
        reason = "is a parameter for the conversation or the model's instructions"
        yield TextSign(FindingKind.CONTEXT, reason, name)
    elif words & _FILE_CONTENT and (words & _SECRET_FILES) - own:
        yield TextSign(FindingKind.SECRET, "is a parameter for a file with secrets", name)


# Names that look like those of other servers

_ALIKE: Final = (("rn", "m"), ("vv", "w"), ("cl", "d"))
_SAME_LOOK: Final = str.maketrans("0l1|5", "oiiis")


@lru_cache(maxsize=32_768)
def build_look(name: str) -> str:
    """Return how a name looks: names with the same result are hard to tell apart."""
    folded = unicodedata.normalize("NFKC", _ZERO_WIDTH_CHARACTER.sub("", name)).casefold()
    folded = re.sub(r"[\W_]+", "_", folded.translate(_CONFUSABLE)).translate(_SAME_LOOK)
    for written, seen in _ALIKE:
        folded = folded.replace(written, seen)
    return folded


def is_look_alike(name: str, other: str) -> bool:
    """Return whether these names look the same but are not: `send_emaiI` and `send_email`.

    Names that differ only in case, or in `-` for `_`, are ordinary.
    """
    if build_look(name) != build_look(other):
        return False
    return _to_plain_name(name) != _to_plain_name(other)


def _to_plain_name(name: str) -> str:
    return re.sub(r"[-_.\s]", "", name.casefold()) if name.isascii() else name


def build_look_alike_finding(name: str, other: str) -> DefinitionFinding:
    """Build the finding of a name that looks like that of the tool with the key `other`."""
    sign = TextSign(FindingKind.LOOK_ALIKE, f"has a name that looks like {other}", name)
    return _build_finding(sign, "name")
