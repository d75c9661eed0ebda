"""Match an unknown parameter name or enum value to the only one it can mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from fingerpost.call.arguments.coercion import ScalarReading, read_scalar
from fingerpost.catalog.tool_names import count_edits
from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.data_files import read_sections
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.schemas import SchemaNode, get_json_type, is_equal, is_list, is_object

_SECTIONS: Final = read_sections("fingerpost.call.arguments", "names.txt")


def _parse_sets(title: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(group.split("/")) for group in _SECTIONS[title].split())


ABBREVIATIONS: Final = dict(pair.split("=", 1) for pair in _SECTIONS["abbreviations"].split())
SYNONYM_GROUPS: Final[dict[str, frozenset[int]]] = {}
for _number, _line in enumerate(_SECTIONS["synonyms"].splitlines()):
    for _word in _line.split():
        SYNONYM_GROUPS[_word] = SYNONYM_GROUPS.get(_word, frozenset()) | {_number}
FILLER_WORDS: Final = parse_word_set(_SECTIONS["filler_words"])
OPPOSING_WORDS: Final = parse_word_set(_SECTIONS["opposing_words"])
GENERIC_WORDS: Final = parse_word_set(_SECTIONS["generic_words"])
WHOLE_WORDS: Final = parse_word_set(_SECTIONS["whole_words"])
DISTINCT_NAMES: Final = _parse_sets("distinct_names")
OPPOSITE_VALUES: Final = _parse_sets("opposite_values")
SAME_VALUES: Final = _parse_sets("same_values")

# Words that add nothing if the value has the right format: `start` for `start_date`.
VALUE_PATTERNS: Final = {
    "id": r"(?=.*\d)[\w.:-]+|[A-Z0-9_-]+",
    "date": r".*\d.*",
    "time": r".*\d.*",
    "day": r".*\d.*",
    "email": r"\S+@\S+",
    "url": r"\w+://\S+|\S+\.\S+",
    "link": r"\w+://\S+|\S+\.\S+",
    "path": r"\S*[/\\.]\S*",
    "file": r"\S*[/\\.]\S*",
    "address": r".*\S.*",
    "list": r".*",
    "array": r".*",
    "code": r"[A-Za-z0-9_-]{1,12}",
}

MAX_NAME_LENGTH: Final = 80


@lru_cache(maxsize=8192)
def normalize_name(name: str) -> str:
    """Return the name without case and separators."""
    short = name[:MAX_NAME_LENGTH]
    return "".join(split_words(short)) or short.casefold()


@lru_cache(maxsize=8192)
def split_name(name: str) -> tuple[str, ...]:
    """Return the words of a name in the singular, with abbreviations expanded."""
    plain = (to_singular(word) for word in split_words(name[:MAX_NAME_LENGTH]))
    return tuple(ABBREVIATIONS.get(word, word) for word in plain)


MAX_CHOICE_LENGTH: Final = 80
MAX_CHOICES: Final = 500
_MIN_PREFIX_LENGTH: Final = 3

ChoiceTest = Callable[[str, str], bool]


def find_intended_choice(value: Json, choices: Sequence[Json]) -> ScalarReading | None:
    """Return the only permitted value that the given one can mean, or None."""
    typed = _match_other_type(value, choices)
    if typed is not None:
        return typed
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_CHOICE_LENGTH:
        return None
    texts = [choice for choice in choices[:MAX_CHOICES] if isinstance(choice, str)]
    for likeness, reason in _CHOICE_TESTS:
        alike = [choice for choice in texts if likeness(value, choice)]
        if len(alike) == 1:
            return None if _is_opposite(value, alike[0], texts) else ScalarReading(alike[0], reason)
        if alike:
            return None
    return None


def _match_other_type(value: Json, choices: Sequence[Json]) -> ScalarReading | None:
    """Match `"3"` to 1, 2, 3, or `3` to "1", "2", "3"."""
    found = [
        choice
        for choice in choices[:MAX_CHOICES]
        if (reading := read_scalar(get_json_type(choice), value)) is not None
        and choice is not None
        and is_equal(reading.value, choice)
    ]
    return ScalarReading(found[0], "the same value of another type") if len(found) == 1 else None


def _has_same_letters(given: str, choice: str) -> bool:
    return bool(split_words(given)) and normalize_name(given) == normalize_name(choice)


def _is_same_folded(given: str, choice: str) -> bool:
    return given.strip().casefold() == choice.strip().casefold()


def _has_same_meaning(given: str, choice: str) -> bool:
    one, other = to_singular(normalize_name(given)), to_singular(normalize_name(choice))
    return bool(one) and (one == other or any(one in group and other in group for group in SAME_VALUES))


def _is_prefix(given: str, choice: str) -> bool:
    """Return whether `given` abbreviates `choice`: `info` and `information`, not `read` and `read_write`."""
    one, other = normalize_name(given), normalize_name(choice)
    if len(split_words(given)) != 1 or len(split_words(choice)) != 1:
        return False
    short, long = sorted((one, other), key=len)
    return len(short) >= _MIN_PREFIX_LENGTH and short not in WHOLE_WORDS and long.startswith(short)


def _is_choice_typo(given: str, choice: str) -> bool:
    return _is_typo(normalize_name(given), normalize_name(choice))


def _is_typo(one: str, other: str) -> bool:
    """Return whether the words differ by a typo: one from five letters, two from nine, none in numbers."""
    shorter = min(len(one), len(other))
    most = 0 if shorter < 5 else 1 if shorter < 9 else 2
    if most == 0 or one.endswith(other) or other.endswith(one):
        return False
    return (
        re.findall(r"\d+", one) == re.findall(r"\d+", other) and count_edits(one, other, limit=most) <= most
    )


def _is_opposite(given: str, choice: str, choices: Sequence[str]) -> bool:
    """Return whether the word is the opposite of the choice, or near it with its opposite among them."""
    one, other = normalize_name(given), normalize_name(choice)
    if one == other:
        return False
    return frozenset({one, other}) in OPPOSITE_VALUES or any(
        frozenset({one, normalize_name(each)}) in OPPOSITE_VALUES and count_edits(one, other, limit=2) <= 2
        for each in choices
    )


_CHOICE_TESTS: Final[tuple[tuple[ChoiceTest, str], ...]] = (
    (_is_same_folded, "the same value in another case"),
    (_has_same_letters, "the same value in another case or with other separators"),
    (_has_same_meaning, "another way to write the same value"),
    (_is_prefix, "the beginning of one permitted value only"),
    (_is_choice_typo, "a typo: one permitted value is this near"),
)


MAX_UNKNOWN_KEYS: Final = 64
MAX_PAIRS: Final = 4_000  # pairs of key and name that are compared in every way
MAX_EVIDENCE_LENGTH: Final = 200


@frozen
class GivenObject:
    """An object of the arguments, with its open parameters."""

    given: JsonObject
    parameters: Callable[[str], SchemaNode]
    required: frozenset[str]
    topic: frozenset[str]
    fits: Callable[[str, str], bool]  # whether the key's value fits the parameter
    spend: Callable[[int], None]  # counts steps of comparing names


@frozen
class Rename:
    """A key and the parameter that it stands for."""

    key: str
    parameter: str
    reason: str


NameTest = Callable[[GivenObject, str, str], bool]

_SAME_LETTERS: Final = "the same name in another case or with other separators"


def find_renames(
    arguments: GivenObject, keys: Sequence[str], parameters: Sequence[str], *, typos_too: bool = True
) -> tuple[Rename, ...]:
    """Return the certain renames of unknown keys to open parameters.

    Without `typos_too`, match only by meaning: the keys were written correctly for another tool.
    """
    left, wanted = list(keys[:MAX_UNKNOWN_KEYS]), list(parameters)
    arguments.spend(len(wanted) // 2)
    if len(left) * len(wanted) > MAX_PAIRS:
        return _match_same_letters(left, wanted)
    found: list[Rename] = []
    for likeness, reason in (*_MEANING_TESTS, *(_SPELLING_TESTS if typos_too else ())):
        if not left or not wanted:
            break
        arguments.spend(len(left) * len(wanted))
        pairs = [(key, name) for key in left for name in wanted if likeness(arguments, key, name)]
        for rename in _keep_unambiguous(pairs, reason):
            found.append(rename)
            wanted.remove(rename.parameter)
        taken = {key for key, _ in pairs}  # includes ambiguous keys: a weaker match must not decide them
        left = [key for key in left if key not in taken]
    if typos_too:
        found.extend(_match_last_pair(arguments, left, wanted))
    return tuple(found)


def _match_same_letters(keys: Sequence[str], parameters: Sequence[str]) -> tuple[Rename, ...]:
    """Match names by normalised lookup only, because there are too many to compare."""
    spelt: dict[str, list[str]] = {}
    for name in parameters:
        spelt.setdefault(normalize_name(name), []).append(name)
    pairs = [(key, name) for key in keys for name in spelt.get(normalize_name(key), ())]
    return tuple(_keep_unambiguous(pairs, _SAME_LETTERS))


def _keep_unambiguous(pairs: list[tuple[str, str]], reason: str) -> Iterator[Rename]:
    keys, names = Counter(key for key, _ in pairs), Counter(name for _, name in pairs)
    for key, name in pairs:
        if keys[key] == 1 and names[name] == 1:
            yield Rename(key=key, parameter=name, reason=reason)


def _has_same_name_letters(arguments: GivenObject, key: str, name: str) -> bool:
    return normalize_name(key) == normalize_name(name)


def _is_named_in_schema(arguments: GivenObject, key: str, name: str) -> bool:
    """Return whether the schema gives the parameter this title or alias."""
    node = arguments.parameters(name).keywords
    others = [
        node.get("title"),
        *(_to_sequence(node.get(word)) for word in ("aliases", "alias", "x-aliases")),
    ]
    flat = [text for other in others for text in _to_sequence(other) if isinstance(text, str)]
    return any(normalize_name(key) == normalize_name(text) for text in flat) and arguments.fits(key, name)


def _to_sequence(value: Json) -> Sequence[Json]:
    return value if is_list(value) else (value,)


def _has_same_words(arguments: GivenObject, key: str, name: str) -> bool:
    one, other = split_name(key), split_name(name)
    if not one or not other:
        return False
    alike = (
        one == other or ("to" not in one and sorted(one) == sorted(other)) or "".join(one) == "".join(other)
    )
    return alike and arguments.fits(key, name)


def _are_synonyms(arguments: GivenObject, key: str, name: str) -> bool:
    one, other = _get_synonym_groups("".join(split_name(key))), _get_synonym_groups("".join(split_name(name)))
    return bool(one & other) and arguments.fits(key, name)


def _get_synonym_groups(name: str) -> frozenset[int]:
    return SYNONYM_GROUPS.get(name, frozenset())


def _has_only_filler_words(arguments: GivenObject, key: str, name: str) -> bool:
    """Return whether the names differ only by words without meaning."""
    one, other = Counter(split_name(key)), Counter(split_name(name))
    extra = (one - other) + (other - one)
    if not one or not other or (one - other and other - one) or not (one & other):
        return False
    value = arguments.given[key]
    if list(one) == ["id"] and name in arguments.required:
        return arguments.fits(key, name)  # with two such parameters, neither is chosen
    says_nothing = all(_is_filler(word, arguments.topic, value) for word in extra)
    return says_nothing and arguments.fits(key, name)


def _is_filler(word: str, topic: frozenset[str], value: Json) -> bool:
    if word in OPPOSING_WORDS:
        return False
    if word in VALUE_PATTERNS:
        return _looks_like(VALUE_PATTERNS[word], value)
    return word in FILLER_WORDS or word in topic


def _looks_like(pattern: str, value: Json) -> bool:
    if is_object(value) or is_list(value):
        return pattern == ".*"
    text = str(value)
    return len(text) <= MAX_EVIDENCE_LENGTH and re.fullmatch(pattern, text) is not None


def _are_synonyms_without_topic(arguments: GivenObject, key: str, name: str) -> bool:
    """Return whether the names are synonyms without the tool's topic: `search_text` for `query`."""
    one, other = (
        "".join(word for word in split_name(each) if word in OPPOSING_WORDS or word not in arguments.topic)
        for each in (key, name)
    )
    return bool(_get_synonym_groups(one) & _get_synonym_groups(other)) and arguments.fits(key, name)


def _is_initial(arguments: GivenObject, key: str, name: str) -> bool:
    """Return whether one name is the initial of the other and the value is a number: `r` for `radius`."""
    short, long = sorted((normalize_name(key), normalize_name(name)), key=len)
    value = arguments.given[key]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    alike = len(short) == 1 and len(long) > 1 and long.startswith(short)
    return alike and is_number and name in arguments.required and arguments.fits(key, name)


def _is_name_typo(arguments: GivenObject, key: str, name: str) -> bool:
    pairs = [
        (normalize_name(key), normalize_name(name)),
        *zip(split_name(key), split_name(name), strict=False),
    ]
    if name not in arguments.required or any(frozenset(pair) in DISTINCT_NAMES for pair in pairs):
        return False
    return _is_typo(*pairs[0]) and arguments.fits(key, name)


def _match_last_pair(arguments: GivenObject, keys: list[str], parameters: list[str]) -> Iterator[Rename]:
    """Match the only key left to the only required parameter left, if nothing else takes the value."""
    required = [name for name in parameters if name in arguments.required]
    if len(keys) != 1 or len(required) != 1:
        return
    key, name = keys[0], required[0]
    if [other for other in parameters if arguments.fits(key, other)] != [name]:
        return
    if normalize_name(key) in GENERIC_WORDS or normalize_name(name) in GENERIC_WORDS:
        yield Rename(key=key, parameter=name, reason="the one value given for the one parameter left")
    elif _is_unmistakable(arguments.parameters(name), arguments.given[key]):
        yield Rename(key=key, parameter=name, reason="only this parameter takes such a value")


def _is_unmistakable(node: SchemaNode, value: Json) -> bool:
    """Return whether the value's format alone identifies its parameter."""
    if any(is_equal(value, choice) for choice in node.choices):
        return isinstance(value, str) and len(value) > 1
    return is_object(value) and bool(node.required) and all(name in value for name in node.required)


_MEANING_TESTS: Final[tuple[tuple[NameTest, str], ...]] = (
    (_has_same_name_letters, _SAME_LETTERS),
    (_is_named_in_schema, "the schema's own word for this parameter"),
    (_has_same_words, "the same name, abbreviated or in the plural"),
    (_are_synonyms, "a common synonym of this parameter"),
    (_has_only_filler_words, "the same name with a word that adds nothing"),
    (_are_synonyms_without_topic, "a common synonym of this parameter"),
)
_SPELLING_TESTS: Final[tuple[tuple[NameTest, str], ...]] = (
    (_is_initial, "the first letter of this parameter's name"),
    (_is_name_typo, "a typo: one missing parameter is this near"),
)
