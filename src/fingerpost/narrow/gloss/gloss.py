"""Translate a request into English word by word: Hebrew by its lexicon, others by a table."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Final

from fingerpost.data_files import read_data_text
from fingerpost.frozen import frozen
from fingerpost.narrow.gloss.hebrew import (
    HebrewToken,
    Lexicon,
    WordMeaning,
    fold_word,
    get_lexicon,
    split_prefixes,
    tokenize,
)
from fingerpost.narrow.lexical_terms import UNSPACED_CHARACTERS, remove_accents
from fingerpost.records import Signals
from fingerpost.regex import prepare_re

MIN_SKELETON_LENGTH: Final = 3
MIN_BRAND_SKELETON_LENGTH: Final = 2

_HEBREW_CONSONANTS: Final = {
    "ב": "b", "ג": "g", "ד": "d", "ו": "", "ז": "s", "ח": "k", "ט": "t", "י": "", "כ": "k", "ל": "l",
    "מ": "m", "נ": "n", "ס": "s", "פ": "p", "צ": "s", "ק": "k", "ר": "r", "ש": "s", "ת": "t",
    "א": "", "ה": "", "ע": "",
}  # fmt: skip
_LATIN_DIGRAPHS: Final = (
    ("sch", "s"), ("tch", "s"), ("sh", "s"), ("ch", "k"), ("ph", "p"), ("th", "t"), ("ck", "k"), ("qu", "k"),
    ("tz", "s"), ("ts", "s"), ("x", "ks"), ("ce", "s"), ("ci", "s"), ("cy", "s"), ("wh"),
)  # fmt: skip
_LATIN_CONSONANTS: Final = str.maketrans(
    {"c": "k", "q": "k", "f": "p", "v": "b", "z": "s", "j": "g"} | dict.fromkeys("aeiouyhw")
)
_REPEATED_LETTERS: Final = prepare_re(r"(.)\1+")


def get_hebrew_skeleton(word: str) -> str:
    """Return the consonants of a folded Hebrew word."""
    return _REPEATED_LETTERS.sub(r"\1", "".join(_HEBREW_CONSONANTS.get(letter, "") for letter in word))


def get_latin_skeleton(word: str) -> str:
    """Return the consonants of a Latin word, in the same classes as the Hebrew ones."""
    word = word.lower()
    for pair, sound in _LATIN_DIGRAPHS:
        word = word.replace(pair, sound)
    return _REPEATED_LETTERS.sub(r"\1", word.translate(_LATIN_CONSONANTS))


class SoundIndex:
    """Latin names, indexed by their sound in Hebrew letters.

    Two consonants are enough for a brand (`אוקטה`, Okta); for any other word they would match too much.
    """

    def __init__(self, names: Iterable[str] = (), *, brands: Iterable[str] = ()) -> None:
        self._by_sound: dict[str, list[str]] = {}
        known = frozenset(brands)
        for name in sorted({*names, *known}):
            skeleton = get_latin_skeleton(name)
            if len(skeleton) >= (MIN_BRAND_SKELETON_LENGTH if name in known else MIN_SKELETON_LENGTH):
                self._by_sound.setdefault(skeleton, []).append(name)

    def find_similar(self, word: str) -> tuple[str, ...]:
        """Return the names that a folded Hebrew word may stand for."""
        return tuple(
            name for name in self._by_sound.get(get_hebrew_skeleton(word), ()) if _has_same_start(word, name)
        )


def _has_same_start(word: str, name: str) -> bool:
    """Return whether both start with a vowel or both with a consonant: `אפל` is not `Paul`."""
    return (word[0] in "אעיהו") == (name[0].lower() in "aeiouyhw")


MAX_GLOSSED_LENGTH: Final = 4000
_MAX_ENGLISH_WORDS: Final = 3
_MAX_IDIOM_WORDS: Final = 4
_MIN_CONVERSION_UNITS: Final = 2
_UNSURE_COST: Final = 2  # from this cost on, nearly equal meanings are included too

Gloss = tuple[tuple[str, tuple[str, ...]], ...]

_NO_NAMES: Final = SoundIndex()


def gloss_words(text: str, names: SoundIndex = _NO_NAMES) -> Gloss:
    """Return each word or idiom of the text with its English words, best first, or with none."""
    known = get_lexicon()
    found = list(_iterate_glosses(list(tokenize(text[:MAX_GLOSSED_LENGTH])), known, names))
    if _is_conversion_question(found, known):
        found.insert(0, ("", ("convert",)))
    return tuple(found)


def _is_conversion_question(found: list[tuple[str, tuple[str, ...]]], lexicon: Lexicon) -> bool:
    """Return whether a question names two units: "How much is a mile in kilometres" asks for a conversion."""
    asks = any(words[:1] == ("how",) for _, words in found)
    named = {words[0] for word, words in found if words and lexicon.is_unit(fold_word(word))}
    return asks and len(named) >= _MIN_CONVERSION_UNITS


def join_gloss(glossed: Gloss) -> str:
    """Return the English words of a gloss in order, without duplicates."""
    return " ".join(dict.fromkeys(word for _, words in glossed for word in words))


def _iterate_glosses(
    words: list[HebrewToken], lexicon: Lexicon, names: SoundIndex
) -> Iterator[tuple[str, tuple[str, ...]]]:
    place = 0
    while place < len(words):
        word = words[place]
        ahead = words[place : place + _MAX_IDIOM_WORDS]
        if word.hebrew and (idiom := lexicon.find_idiom([token.plain for token in ahead])):
            entry, length = idiom
            yield " ".join(token.text for token in ahead[:length]), entry.english[:_MAX_ENGLISH_WORDS]
            place += length
            continue
        yield word.text, _translate_word(word, lexicon, names) if word.hebrew else (word.text,)
        place += 1


def _translate_word(word: HebrewToken, lexicon: Lexicon, names: SoundIndex) -> tuple[str, ...]:
    readings = lexicon.look_up(word.plain)
    if not readings:
        for _, rest in split_prefixes(word.plain):
            if like := names.find_similar(rest):
                return like[:_MAX_ENGLISH_WORDS]
        return ()
    # Alternate: the first word of each meaning, then the second of each.
    turns = zip_longest(*(reading.entry.english for reading in _keep_likely(readings)))
    return tuple(dict.fromkeys(word for turn in turns for word in turn if word))[:_MAX_ENGLISH_WORDS]


def _keep_likely(readings: tuple[WordMeaning, ...]) -> list[WordMeaning]:
    best = readings[0].cost
    slack = 1 if best >= _UNSURE_COST else 0
    return [reading for reading in readings if reading.cost <= best + slack]


# Languages with a table of words, `languages/*.txt`. A table is read with the first request in its language.
TABLE_LANGUAGES: Final = frozenset(("ar", "bn", "de", "es", "fr", "hi", "id", "ja", "pt", "ru", "ur", "zh"))
LATIN_LANGUAGES: Final = frozenset(("de", "es", "fr", "id", "pt"))
_VERB_FINAL_LANGUAGES: Final = frozenset(("bn", "hi", "ja", "ur"))
_UNSPACED_LANGUAGES: Final = frozenset(("ja", "zh"))
_POSTPOSITIONS: Final = frozenset(("about", "from", "in", "on", "to", "with"))
_PHRASE_BOUNDS: Final = _POSTPOSITIONS | {"and", "i", "if", "or", "you"}
_POLITE_QUESTION: Final = "can you"
_MIN_KNOWN_SHARE: Final = 0.4  # of the words; with less the text is hardly in the language
_MAX_PHRASE_WORDS: Final = 6
_MAX_UNSPACED_LENGTH: Final = 20  # characters of a word without spaces
_MIN_STEM_LENGTH: Final = 2
_MAX_ENDING_LENGTH: Final = 5
_MIN_COMPOUND_LENGTH: Final = 8
_MIN_COMPOUND_PART: Final = 4

# Prefixes and endings that a word of the table may have in a request, longest first.
_ARTICLES_AND_PREPOSITIONS: Final = {
    "ar": ("وبال", "وال", "بال", "كال", "فال", "ولل", "لل", "ال", "وب", "ول", "و", "ف", "ب", "ل", "ك"),
    "id": ("meng", "meny", "mem", "men", "me", "di", "ber", "ter"),
}
_ENDINGS: Final = {
    "ar": ("كما", "هما", "ها", "هم", "كم", "نا", "ات", "ان", "ين", "ون", "ني", "ي", "ه", "ك", "ا", "ت"),
    "bn": (
        "গুলোতে", "গুলোকে", "গুলোর", "গুলো", "গুলি", "টাকে", "টার", "টা", "টি", "তে", "ের", "কে", "র", "ে",
        "য়",
    ),
    "hi": ("ियों", "ियां", "ाओं", "ों", "ें", "ां", "ो", "े", "ी"),
    "id": ("kannya", "kanlah", "nya", "kan", "lah", "kah", "mu", "ku", "i"),
    "ur": ("یوں", "یاں", "وں", "یں", "ے", "ی"),
}  # fmt: skip

_FOLDED_SPELLINGS: Final = str.maketrans(
    dict.fromkeys("أإآٱ", "ا")
    | dict.fromkeys("ىیئ", "ي")
    | dict.fromkeys("ةہۃھ", "ه")
    | dict.fromkeys("ـ\u200d\u0654\u093c\u09bc", "")
    | dict.fromkeys("؟？", "?")
    | dict.fromkeys("،，、", ",")
    | dict.fromkeys("。।", ".")
    | dict.fromkeys("“”„«»「」『』", '"')
    | {"ک": "ك", "ؤ": "و", "ँ": "ं", "ß": "ss", "’": "'", "\u200c": " ", "！": "!", "；": ";", "：": ":"}
)
_REQUEST_TOKEN: Final = prepare_re(
    r'(?P<kept>"[^"\n]{1,400}"|[a-zA-Z]{2,8}://[!-~]{1,400}'
    r"|[A-Za-z0-9_~-]{0,80}(?:[./@\\][A-Za-z0-9_~-]{1,80}){1,20}"
    r"|[A-Za-z]{0,40}\d[\w-]{0,40}[A-Za-z][\w-]{0,40}|\d{1,40}(?:[.,:]\d{1,40}){0,10})"
    r"|(?P<word>[\u0900-\u0963\u0971-\u097f]+|[\u0980-\u09e3\u09f0-\u09ff]+"
    f"|(?P<unspaced>[{UNSPACED_CHARACTERS}]+)|[^\\W\\d_{UNSPACED_CHARACTERS}]+)"
    r"|(?P<stop>[?!.,;:\n])"
)


@frozen(kw_only=False)
class TableEntry:
    """A meaning: English words and how they stand in a request."""

    english: str
    kind: str = ""  # "!" an instruction, "?" a question word, "" any other
    rest: str = ""  # English words that stay in place where an instruction is moved to the front

    @classmethod
    def parse(cls, text: str) -> TableEntry:
        kind = text[0] if text[0] in "!?" else ""
        english, _, rest = text.removeprefix(kind).partition("|")
        return cls("" if english == "-" else english, kind, rest)


class LanguageTable:
    """The words of one language with their English meanings.

    A line is `english: form form`, with `!` before an instruction and `?` before a question word. `-` stands
    for words without meaning. Of `!rename|to`, only `rename` is moved to the front. In a form, `_` joins
    words; a `*` at the end of a single word stands for any ending.
    """

    def __init__(self, language: str, lines: Iterable[str]) -> None:
        self._language = language
        self._forms: dict[tuple[str, ...], TableEntry] = {}
        self._stems: dict[str, TableEntry] = {}
        self._accented: dict[str, TableEntry] = {}
        self._phrase_lengths: dict[str, int] = {}  # by first word: words of the longest phrase
        self._longest = 1  # characters of a word without spaces
        self._prefixes = tuple(map(fold_spelling, _ARTICLES_AND_PREPOSITIONS.get(language, ())))
        self._endings = tuple(map(fold_spelling, _ENDINGS.get(language, ())))
        parsed = [(TableEntry.parse(english), forms.split()) for english, forms in map(_split_line, lines)]
        given = [(form, entry) for entry, forms in parsed for form in forms]
        # `é` and `e` are different words. Without an accent, the word that has none comes first.
        for form, entry in sorted(given, key=lambda pair: not pair[0].isascii()):
            self._add(form, entry)
            if not form.isascii() and language in LATIN_LANGUAGES:
                self._accented.setdefault(form, entry)

    def _add(self, form: str, entry: TableEntry) -> None:
        if self._language in _UNSPACED_LANGUAGES:
            folded = fold_spelling(form)
            self._forms.setdefault((folded,), entry)
            self._longest = max(self._longest, len(folded))
            return
        words = tuple(re.split(r"[_'-]", fold_spelling(form)))
        if words[-1].endswith("*"):
            words = (words[0][:-1],)
            self._stems.setdefault(words[0], entry)
        self._forms.setdefault(words, entry)
        self._phrase_lengths[words[0]] = max(len(words), self._phrase_lengths.get(words[0], 1))

    @property
    def word_count(self) -> int:
        """The number of words and phrases."""
        return len(self._forms)

    def match(self, words: Sequence[str]) -> tuple[TableEntry, int] | None:
        """Return the meaning of the longest phrase at the start of these folded words, and its words."""
        bases = self._list_bases(words[0])
        longest = max(self._phrase_lengths.get(base, 1) for base in bases)
        for length in range(min(longest, len(words)), 1, -1):
            # An ending or a prefix is looked for at the edges of a phrase only.
            for last in self._list_bases(words[length - 1]):
                for first in bases:
                    if (entry := self._forms.get((first, *words[1 : length - 1], last))) is not None:
                        return entry, length
        entry = self._match_word(words[0])
        return None if entry is None else (entry, 1)

    def match_accented(self, word: str) -> TableEntry | None:
        """Return the meaning of a word with an accent, if the table has it with the accent."""
        return self._accented.get(word)

    def _match_word(self, word: str) -> TableEntry | None:
        for base in self._list_bases(word):
            if (entry := self._forms.get((base,))) is not None:
                return entry
        for length in range(len(word) - 1, max(_MIN_STEM_LENGTH, len(word) - _MAX_ENDING_LENGTH) - 1, -1):
            if (entry := self._stems.get(word[:length])) is not None:
                return entry
        return None

    def _list_bases(self, word: str) -> list[str]:
        """Return the word, then the word without a prefix, an ending or both."""
        whole = [word, *(word[len(prefix) :] for prefix in self._prefixes if word.startswith(prefix))]
        cut = [base[: -len(ending)] for base in whole for ending in self._endings if base.endswith(ending)]
        return [word, *(base for base in (*whole[1:], *cut) if len(base) >= _MIN_STEM_LENGTH)]

    def split_compound(self, word: str) -> tuple[TableEntry, ...]:
        """Return the meanings of both parts of a German compound (`Umgebungsvariablen`), or nothing."""
        if self._language != "de" or len(word) < _MIN_COMPOUND_LENGTH:
            return ()
        for place in range(_MIN_COMPOUND_PART, len(word) - _MIN_COMPOUND_PART + 1):
            second = self._match_word(word[place:])
            first = self._match_word(word[:place].removesuffix("s")) or self._match_word(word[:place])
            if first is not None and second is not None and first.english and second.english:
                return first, second
        return ()

    def match_start(self, text: str) -> tuple[TableEntry, int] | None:
        """Return the longest word at the start of a text without spaces and its number of characters."""
        for length in range(min(self._longest, len(text)), 0, -1):
            if (entry := self._forms.get((text[:length],))) is not None:
                return entry, length
        return None


def _split_line(line: str) -> tuple[str, str]:
    english, _, forms = line.partition(": ")
    return english, forms


@lru_cache(maxsize=8192)
def fold_spelling(text: str) -> str:
    """Return a text in the spelling of the tables: lower case, without accents and spelling variants."""
    return remove_accents(text).translate(_FOLDED_SPELLINGS).casefold()


@lru_cache(maxsize=len(TABLE_LANGUAGES))
def load_table(language: str) -> LanguageTable:
    """Return the table of a language. It is read on first use."""
    text = read_data_text("fingerpost.narrow", f"gloss/languages/{language}.txt")
    return LanguageTable(language, (line for line in text.splitlines() if line and not line.startswith("#")))


def translate_request(text: str, language: str) -> str:
    """Return a request of a language with a table as English words in the order of an English request. Return
    nothing if too few of its words are known.
    """
    table = load_table(language)
    words = _RequestWords(table, language)
    text = text[:MAX_GLOSSED_LENGTH]
    # Vowel marks are no letters, so they would divide words.
    text = unicodedata.normalize("NFC", text) if language in LATIN_LANGUAGES else remove_accents(text)
    for found in _REQUEST_TOKEN.finditer(text.translate(_FOLDED_SPELLINGS)):
        words.add(found)
    return words.join()


class _RequestWords:
    """The words of a request, collected in order, with their meanings."""

    def __init__(self, table: LanguageTable, language: str) -> None:
        self._table = table
        self._language = language
        self._waiting: list[str] = []  # words that follow each other, not looked up yet
        self._clause: list[TableEntry] = []
        self._clauses: list[str] = []
        self._known = 0
        self._unknown = 0

    def add(self, token: re.Match[str]) -> None:
        if token["word"] is not None and token["unspaced"] is None:
            self._waiting.append(token["word"])
            return
        self._look_up_waiting()
        if token["unspaced"] is not None:
            self._look_up_unspaced(token["unspaced"].casefold())
        elif token["kept"] is not None:
            kept = token["kept"]
            digits = "".join(str(unicodedata.digit(letter, letter)) for letter in kept)
            self._clause.append(TableEntry(digits))
        else:
            self._end_clause(token["stop"])

    def join(self) -> str:
        self._look_up_waiting()
        self._end_clause("")
        if self._known < _MIN_KNOWN_SHARE * (self._known + self._unknown) or not self._known:
            return ""
        return re.sub(r" (?=[?!.,;:])", "", " ".join(self._clauses)).strip(" ,;:")

    def _look_up_waiting(self) -> None:
        folded = [fold_spelling(word) for word in self._waiting]
        place = 0
        while place < len(folded):
            accented = self._table.match_accented(self._waiting[place].casefold())
            phrase = folded[place : place + _MAX_PHRASE_WORDS]
            found = self._table.match(phrase) if accented is None else (accented, 1)
            if found is not None:
                entry, length = found
                self._known += length
                self._take(entry)
                place += length
                continue
            parts = self._table.split_compound(folded[place])
            if parts:
                self._known += 1
                for part in parts:
                    self._take(part)
            else:
                self._keep_unknown(self._waiting[place])
            place += 1
        self._waiting.clear()

    def _keep_unknown(self, word: str) -> None:
        """Keep a word in Latin letters: a name, or one that is similar in English."""
        if word.isascii():
            self._unknown += self._language in LATIN_LANGUAGES and word.islower()
            self._clause.append(TableEntry(word))
        else:
            self._unknown += 1

    def _look_up_unspaced(self, text: str) -> None:
        place = 0
        while place < len(text):
            found = self._table.match_start(text[place : place + _MAX_UNSPACED_LENGTH])
            if found is None:
                place += 1
                continue
            entry, length = found
            self._known += 1
            self._take(entry)
            place += length

    def _take(self, entry: TableEntry) -> None:
        if not entry.english or (self._clause and self._clause[-1] is entry):
            return
        if self._language in _VERB_FINAL_LANGUAGES and entry.english in _POSTPOSITIONS:
            self._clause.insert(self._find_phrase_start(), entry)
        else:
            self._clause.append(entry)

    def _find_phrase_start(self) -> int:
        """Return where the words begin that a postposition belongs to: in English it stands before them."""
        place = len(self._clause)
        for entry in reversed(self._clause):
            if entry.kind or entry.english in _PHRASE_BOUNDS:
                break
            place -= 1
        return place

    def _end_clause(self, stop: str) -> None:
        parts: list[list[TableEntry]] = [[]]
        for entry in self._clause:
            # "and" separates clauses if there is an instruction or a question on both sides.
            if entry.english == "and" and any(word.kind for word in parts[-1]):
                parts.append([])
            else:
                parts[-1].append(entry)
        if len(parts) > 1 and not any(word.kind for word in parts[-1]):
            last = parts.pop()
            parts[-1] += [TableEntry("and"), *last]
        for place, part in enumerate(parts):
            is_last = place == len(parts) - 1
            ordered = self._order_clause(part, is_question=stop == "?" and is_last)
            self._clauses += [entry.english for entry in ordered] + ([] if is_last else ["and"])
        if stop and self._clauses:
            self._clauses.append("." if stop == "\n" else stop)
        self._clause = []

    def _order_clause(self, clause: list[TableEntry], *, is_question: bool) -> list[TableEntry]:
        """Put the instruction or the question word first, as in English."""
        verbs = [entry for entry in clause if entry.kind == "!"]
        questions = [entry for entry in clause if entry.kind == "?"]
        if verbs and questions and questions[0].english == _POLITE_QUESTION:
            rest = [entry for entry in clause if entry is not questions[0] and entry is not verbs[0]]
            return [questions[0], verbs[0], *rest]
        if questions and (not verbs or (is_question and clause[0] is not verbs[0])):
            first = questions[0]
        elif verbs:
            first = verbs[-1 if self._language in _VERB_FINAL_LANGUAGES else 0]
        else:
            return clause
        rest = [TableEntry(first.rest)] if first.rest else []
        place = clause.index(first)
        return [first, *clause[:place], *rest, *clause[place + 1 :]]


def count_known_words(words: Sequence[str], language: str) -> int:
    """Return how many of these words the table of a language has."""
    if language not in TABLE_LANGUAGES:
        return 0
    table = load_table(language)
    return sum(table.match([fold_spelling(word)]) is not None for word in words)


def gloss_text(text: str, language: str) -> str:
    """Return the English words of a text in another language, or nothing for a language without words."""
    if language == "he":
        return join_gloss(gloss_words(text))
    return translate_request(text, language) if language in TABLE_LANGUAGES else ""


def get_english_text(text: str, signals: Signals) -> str:
    """Return the translation of a request in a language with a table, else the request itself."""
    return signals.gloss or text if signals.language in TABLE_LANGUAGES else text
