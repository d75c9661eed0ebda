"""Which parameter an unknown key was meant for.

From the surest likeness to the weakest; each looks only at the keys and the
parameters the surer ones left. A key that could mean two parameters, or two
keys that could mean one, are left alone: the model is asked instead. A key that
is itself a parameter is never looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from fingerpost.call.arguments.choices import count_allowed_typos
from fingerpost.call.arguments.names import normalize_name, split_name
from fingerpost.call.arguments.shapes import SchemaNode
from fingerpost.call.arguments.synonyms import (
    DISTINCT_NAMES,
    FILLER_WORDS,
    GENERIC_WORDS,
    OPPOSING_WORDS,
    SELF_EVIDENT_NAMES,
    SYNONYM_GROUPS,
)
from fingerpost.call.arguments.values import is_equal, is_list, is_object
from fingerpost.catalog.slips import count_edits
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

MAX_UNKNOWN_KEYS: Final = 64
MAX_PAIRS: Final = 4_000  # of a key and a name that are compared in every way
MAX_EVIDENCE_LENGTH: Final = 200


@frozen
class GivenObject:
    """One object as given, with what is still open."""

    given: JsonObject
    parameters: Callable[[str], SchemaNode]
    required: frozenset[str]
    topic: frozenset[str]
    fits: Callable[[str, str], bool]  # whether the key's value could be the parameter's
    spend: Callable[[int], None]  # takes steps for comparing names


@frozen
class Rename:
    """A key and the parameter it was meant for."""

    key: str
    parameter: str
    reason: str


NameTest = Callable[[GivenObject, str, str], bool]

_SAME_LETTERS: Final = "the same name in another case or with other separators"


def find_renames(
    arguments: GivenObject, keys: Sequence[str], parameters: Sequence[str], *, typos_too: bool = True
) -> tuple[Rename, ...]:
    """The certain renames of these unknown keys to these open parameters.

    Without `slips_too` only by meaning: the keys were written for another tool, and written well.
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
        taken = {key for key, _ in pairs}  # including those in doubt: a weaker likeness settles nothing
        left = [key for key in left if key not in taken]
    if typos_too:
        found.extend(_match_last_pair(arguments, left, wanted))
    return tuple(found)


def _match_same_letters(keys: Sequence[str], parameters: Sequence[str]) -> tuple[Rename, ...]:
    """Of very many names: those of the same letters, each looked up and not compared."""
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
    """The schema gives the parameter a title or other names."""
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
    """One name has only words more than the other that say nothing new."""
    one, other = Counter(split_name(key)), Counter(split_name(name))
    extra = (one - other) + (other - one)
    if not one or not other or (one - other and other - one) or not (one & other):
        return False
    value = arguments.given[key]
    if list(one) == ["id"] and name in arguments.required:
        return arguments.fits(key, name)  # were there two such parameters, neither would be chosen
    says_nothing = all(_is_filler(word, arguments.topic, value) for word in extra)
    return says_nothing and arguments.fits(key, name)


def _is_filler(word: str, topic: frozenset[str], value: Json) -> bool:
    if word in OPPOSING_WORDS:
        return False
    if word in SELF_EVIDENT_NAMES:
        return _looks_like(SELF_EVIDENT_NAMES[word], value)
    return word in FILLER_WORDS or word in topic


def _looks_like(node: str, value: Json) -> bool:
    if is_object(value) or is_list(value):
        return node == ".*"
    text = str(value)
    return len(text) <= MAX_EVIDENCE_LENGTH and re.fullmatch(node, text) is not None


def _are_synonyms_without_topic(arguments: GivenObject, key: str, name: str) -> bool:
    """`search_text` for `query`: synonyms once the tool's own subject is left out."""
    one, other = (_remove_topic(split_name(each), arguments.topic) for each in (key, name))
    return bool(_get_synonym_groups(one) & _get_synonym_groups(other)) and arguments.fits(key, name)


def _remove_topic(words: tuple[str, ...], topic: frozenset[str]) -> str:
    return "".join(word for word in words if word in OPPOSING_WORDS or word not in topic)


def _is_initial(arguments: GivenObject, key: str, name: str) -> bool:
    """`r` for the number `radius`, when no other missing parameter begins with that letter."""
    short, long = sorted((normalize_name(key), normalize_name(name)), key=len)
    value = arguments.given[key]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    alike = len(short) == 1 and len(long) > 1 and long.startswith(short)
    return alike and is_number and name in arguments.required and arguments.fits(key, name)


def _is_name_typo(arguments: GivenObject, key: str, name: str) -> bool:
    one, other = normalize_name(key), normalize_name(name)
    most = count_allowed_typos(one, other)
    if most == 0 or name not in arguments.required or frozenset({one, other}) in DISTINCT_NAMES:
        return False
    if one.endswith(other) or other.endswith(one) or _get_numbers(one) != _get_numbers(other):
        return False
    if any(
        frozenset(pair) in DISTINCT_NAMES for pair in zip(split_name(key), split_name(name), strict=False)
    ):
        return False
    return count_edits(one, other, limit=most) <= most and arguments.fits(key, name)


def _get_numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _match_last_pair(arguments: GivenObject, keys: list[str], parameters: list[str]) -> Iterator[Rename]:
    """One key and one required parameter are left, and nothing else could take the value."""
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
    """Whether the value's form alone shows where it belongs."""
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
    (_is_name_typo, "a slip of the pen: one missing parameter is this near"),
)
