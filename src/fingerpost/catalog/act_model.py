"""Judges sentences of definitions by the acts and objects that they speak of, whatever their wording.

Each word has a vector (its meaning) and the classes of `acts.toml`. A window of five words gives some values;
the largest of each over the sentence are added up with weights, together with where the sentence stands. The
weights are fitted by `training/fit_acts.py`. Several sentences are judged at once, which is much cheaper.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from importlib import import_module
from pkgutil import get_data
from typing import Any, Final

from fingerpost.catalog.words import to_singular
from fingerpost.data_files import read_data_table
from fingerpost.frozen import frozen

WEIGHTS_FILE: Final = "acts.npz"
REACH: Final = 2  # words before and after that a window has
_MAX_WORDS: Final = 60
_MAX_PARTS: Final = 5  # of a name with underscores
_MAX_OPENING: Final = 6
_ROWS: Final = 12  # of one product: larger ones are spread over threads, which costs more than it saves
_PACKAGE: Final = "fingerpost.catalog"
# Weights and classes; a definition is judged again when they change.
ACT_MODEL_ID: Final = ",".join(
    str(zlib.crc32(get_data(_PACKAGE, file) or b"")) for file in (WEIGHTS_FILE, "acts.toml")
)

FLAGS: Final[tuple[str, ...]] = (
    "opening",
    "description",
    "parameter",
    "choice",
    "chatty",
    "secure",
    "imperative",
    "foreign",
    "person",
    "address",
    "path",
    "variable",
    "marked",
    "command",
    "identifier",
    "own_secret",
    "own_context",
    "own_instruction",
    "own_tools",
    "own_private",
    "own_model",
    "own_user",
)
_OWN: Final = {flag.partition("_")[2]: flag for flag in FLAGS if flag.startswith("own_")}
_WORD = re.compile(r"\.?[^\W_](?:[\w'’-]*[^\W_])?")
_PARTS = re.compile(r"[^\W_]+")
_SEGMENT = re.compile(r"[;:,](?=\s)")
_PATTERNS: Final = {
    "person": r"[\w.+-]{1,64}@[\w-]{1,63}\.\w|\+\d{9}|0x[0-9a-fA-F]{40}|\b[A-Z]{2}\d{2}[A-Z0-9]{12}"
    r"|\baccount \d[\d-]{5}|\bbc1\w{20}|\bacct_\w",
    "address": r"https?://[^\s)>\"'`]{4}|\b\d{1,3}(?:\.\d{1,3}){3}\b"
    r"|\b[\w-]{1,63}\.(?:example|ru|xyz|io|co)\b",
    "variable": r"\b[A-Z][A-Z0-9_]{0,40}_(?:KEY|TOKEN|SECRET|PASSWORD|PASS|URL|ID)\b|\$[A-Z_]{4}",
    "marked": r"\b(?:in|into|as|to|through|via|under|for|of|argument|parameter|field|the)\s(?:the )?"
    r"[`'\"«]\s?\w{1,40}\s?[`'\"»]",
    "command": r"`[^`]{0,80}(?:\$|\||&&|~|/)[^`]{0,80}`|\b(?:rm -rf|chmod|curl -|cat [~/])",
}


@frozen(kw_only=False)
class ReadSentence:
    """A sentence as the model sees it: the words with their classes, and the flags of the whole."""

    words: tuple[str, ...]
    classes: tuple[Set[str], ...]
    flags: Set[str]


class _Lexicon:
    """The words of `acts.toml` by class."""

    def __init__(self) -> None:
        table = read_data_table(_PACKAGE, "acts.toml")
        self.names: Final = tuple(sorted(table["classes"]))
        self.foreign: Final[Mapping[str, str]] = table["foreign"]
        self.acts: Final = frozenset(table["sets"]["acts"].split())
        self.leading: Final = frozenset(table["sets"]["leading"].split())
        self.patterns: Final = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}
        words: dict[str, set[str]] = {}
        for name, text in table["classes"].items():
            for word in text.split():
                words.setdefault(word if word.startswith(".") else word.replace("_", " "), set()).add(name)
        self._words: Final = {word: frozenset(found) for word, found in words.items()}
        self._leads: Final = frozenset(word.split()[0] for word in words if " " in word)

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def get_classes(self, word: str) -> frozenset[str]:
        """Return the classes of a word, also of an inflected one."""
        for base in iterate_bases(word):
            if (found := self._words.get(base)) is not None:
                return found
        return frozenset()

    def get_phrase(self, words: Sequence[str]) -> frozenset[str]:
        """Return the classes of the phrase that these words begin with."""
        if words[0] not in self._leads:
            return frozenset()
        empty = frozenset[str]()
        two = self._words.get(" ".join(words[:2]), empty) if len(words) > 1 else empty
        return two | (self._words.get(" ".join(words[:3]), empty) if len(words) > 2 else empty)


_ENDINGS: Final = (
    ("ies", "y"),
    ("es", ""),
    ("s", ""),
    ("ied", "y"),
    ("ed", ""),
    ("ed", "e"),
    ("ing", ""),
    ("ing", "e"),
)


def iterate_bases(word: str) -> Iterator[str]:
    """Yield a word and what it can be an inflected form of."""
    word = word.replace("’", "'")
    yield word
    word = word.removesuffix("'s")
    yield word
    for ending, added in _ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 2:
            stem = word[: -len(ending)]
            yield stem + added
            if len(stem) > 3 and stem[-1] == stem[-2]:
                yield stem[:-1]


@cache
def _load_lexicon() -> _Lexicon:
    return _Lexicon()


@lru_cache(maxsize=8192)
def _get_classes(word: str) -> frozenset[str]:
    return _load_lexicon().get_classes(word)


def read_sentence(
    text: str, flags: Set[str], own: Set[str], foreign: Mapping[str, Sequence[int]]
) -> ReadSentence:
    """Read a sentence. `flags` say where it stands, `own` are words of the tool, `foreign` the places of
    meanings in other languages.
    """
    lexicon = _load_lexicon()
    words = _split_words(text)
    classes: list[Set[str]] = []
    found = set(flags)
    for place, word in enumerate(words):
        known = _get_classes(word)
        if not own.isdisjoint((word, to_singular(word))):
            found.update(_OWN[name] for name in known if name in _OWN)
        classes.append(known | lexicon.get_phrase(words[place : place + 3]))
    for tag, places in foreign.items():
        if (name := lexicon.foreign.get(tag)) is not None:
            found.add("foreign")
            for place in places:
                at = min(place, len(words) - 1)
                classes[at] = {*classes[at], name}
    found.update(name for name, pattern in lexicon.patterns.items() if pattern.search(text))
    if "_" in text and any("_" in word for word in text.split()):
        found.add("identifier")
    if "opening" not in found and any(map(_opens_with_act, _SEGMENT.split(text, maxsplit=4))):
        found.add("imperative")
    return ReadSentence(words, tuple(classes), found)


def _split_words(text: str) -> tuple[str, ...]:
    words: list[str] = []
    for word in _WORD.findall(text.lower())[:_MAX_WORDS]:
        if "_" in word or ("-" in word and word not in _load_lexicon()):
            words += _PARTS.findall(word)[:_MAX_PARTS]
        else:
            words.append(word)
    return tuple(words[:_MAX_WORDS]) or ("",)


def _opens_with_act(segment: str) -> bool:
    lexicon = _load_lexicon()
    for word in _WORD.findall(segment[:80].lower())[:_MAX_OPENING]:
        if word not in lexicon.leading:
            written = word in lexicon or not word.endswith(("s", "ed", "ing"))
            return written and not lexicon.acts.isdisjoint(_get_classes(word))
    return False


class ActModel:
    """The fitted network."""

    def __init__(self, weights: Mapping[str, Any]) -> None:
        self._np: Any = import_module("numpy")  # loaded on first use
        names = bytes(weights["words"]).decode().split("\n")
        self._numbers: Final = {word: number for number, word in enumerate(names)}
        self._vectors = weights["vectors"]
        self._classes: Final = {name: number for number, name in enumerate(_load_lexicon().names)}
        wide = weights["window"].astype("float32")  # offset, vector and classes, values
        size = self._vectors.shape[1]
        self._values: Final[int] = wide.shape[2]
        self._of_vector = self._np.concatenate(list(wide[:, :size] * weights["scale"][None, :, None]), axis=1)
        self._of_class = self._np.concatenate(list(wide[:, size:]), axis=1)
        self._bias = weights["bias"].astype("float32")
        self._weights = weights["weights"].astype("float32")
        self._by_flag = weights["by_flag"].astype("float32")
        self._flags = weights["flags"].astype("float32")
        self._start = float(weights["start"][0])

    def get_number(self, word: str) -> int:
        """Return the number of a word's vector, or of the empty one."""
        for base in iterate_bases(word):
            if (number := self._numbers.get(base)) is not None:
                return number
        return 0

    def score(self, sentences: Sequence[ReadSentence]) -> list[float]:
        """Return for each sentence how much it is for the model rather than about the tool."""
        np = self._np
        numbers: list[int] = []
        rows: list[int] = []
        classes: list[int] = []
        starts: list[int] = []
        valid: list[bool] = []
        flags = np.zeros((len(sentences), len(FLAGS)), dtype="float32")
        for index, sentence in enumerate(sentences):
            numbers += [0] * REACH
            valid += [False] * REACH
            starts.append(len(numbers))
            for word, named in zip(sentence.words, sentence.classes, strict=True):
                for name in named:
                    rows.append(len(numbers))
                    classes.append(self._classes[name])
                numbers.append(self.get_number(word))
                valid.append(True)
            flags[index, [FLAGS.index(flag) for flag in sentence.flags]] = 1
        numbers += [0] * REACH
        valid += [False] * REACH
        vectors = self._vectors[numbers].astype("float32")
        parts = (vectors[at : at + _ROWS] @ self._of_vector for at in range(0, len(vectors), _ROWS))
        wide = np.concatenate(list(parts))
        np.add.at(wide, rows, self._of_class[classes])
        values = np.tile(self._bias, (len(numbers), 1))
        for offset in range(-REACH, REACH + 1):
            part = wide[:, (offset + REACH) * self._values : (offset + REACH + 1) * self._values]
            if offset < 0:
                values[-offset:] += part[:offset]
            elif offset > 0:
                values[:-offset] += part[offset:]
            else:
                values += part
        values[~np.array(valid)] = 0
        best = np.maximum(np.maximum.reduceat(values, starts, axis=0), 0)
        scores = best @ self._weights + flags @ self._flags + ((flags @ self._by_flag) * best).sum(1)
        return (scores + self._start).tolist()


@cache
def load_act_model() -> ActModel:
    """Return the model of the package."""
    np: Any = import_module("numpy")
    with np.load(io.BytesIO(get_data(_PACKAGE, WEIGHTS_FILE) or b"")) as weights:
        return ActModel(dict(weights))


def release_act_model() -> bool:
    """Forget what judging loaded (4 MiB). Return whether there was any."""
    loaded = load_act_model.cache_info().currsize > 0
    for loader in (load_act_model, _load_lexicon, _get_classes):
        loader.cache_clear()
    return loaded


def list_classes() -> tuple[str, ...]:
    """Return the names of the classes of words, in the order of the weights."""
    return _load_lexicon().names
