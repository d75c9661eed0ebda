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

from fingerpost.call.arguments.choices import allowed_slips
from fingerpost.call.arguments.names import canonical, normal
from fingerpost.call.arguments.shapes import Shape
from fingerpost.call.arguments.synonyms import DISTINCT, EVIDENT, FILLERS, GENERIC, GROUPS, TURNING
from fingerpost.call.arguments.values import is_list, is_object, same
from fingerpost.catalog.slips import slips
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

MOST_KEYS: Final = 64
MOST_PAIRS: Final = 4_000  # of a key and a name that are compared in every way
LONGEST_EVIDENCE: Final = 200


@frozen
class Asked:
    """One object as given, with what is still open."""

    given: JsonObject
    parameters: Callable[[str], Shape]
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


Likeness = Callable[[Asked, str, str], bool]

_SAME_LETTERS: Final = "the same name in another case or with other separators"


def renames(
    asked: Asked, keys: Sequence[str], parameters: Sequence[str], *, slips_too: bool = True
) -> tuple[Rename, ...]:
    """The certain renames of these unknown keys to these open parameters.

    Without `slips_too` only by meaning: the keys were written for another tool, and written well.
    """
    left, wanted = list(keys[:MOST_KEYS]), list(parameters)
    asked.spend(len(wanted) // 2)
    if len(left) * len(wanted) > MOST_PAIRS:
        return _spelt_otherwise(left, wanted)
    found: list[Rename] = []
    for likeness, reason in (*_BY_MEANING, *(_BY_LETTERS if slips_too else ())):
        if not left or not wanted:
            break
        asked.spend(len(left) * len(wanted))
        pairs = [(key, name) for key in left for name in wanted if likeness(asked, key, name)]
        for rename in _certain(pairs, reason):
            found.append(rename)
            wanted.remove(rename.parameter)
        taken = {key for key, _ in pairs}  # including those in doubt: a weaker likeness settles nothing
        left = [key for key in left if key not in taken]
    if slips_too:
        found.extend(_last_pair(asked, left, wanted))
    return tuple(found)


def _spelt_otherwise(keys: Sequence[str], parameters: Sequence[str]) -> tuple[Rename, ...]:
    """Of very many names: those of the same letters, each looked up and not compared."""
    spelt: dict[str, list[str]] = {}
    for name in parameters:
        spelt.setdefault(normal(name), []).append(name)
    pairs = [(key, name) for key in keys for name in spelt.get(normal(key), ())]
    return tuple(_certain(pairs, _SAME_LETTERS))


def _certain(pairs: list[tuple[str, str]], reason: str) -> Iterator[Rename]:
    keys, names = Counter(key for key, _ in pairs), Counter(name for _, name in pairs)
    for key, name in pairs:
        if keys[key] == 1 and names[name] == 1:
            yield Rename(key=key, parameter=name, reason=reason)


def _same_letters(asked: Asked, key: str, name: str) -> bool:
    return normal(key) == normal(name)


def _own_words(asked: Asked, key: str, name: str) -> bool:
    """The schema gives the parameter a title or other names."""
    node = asked.parameters(name).node
    others = [node.get("title"), *(_listed(node.get(word)) for word in ("aliases", "alias", "x-aliases"))]
    flat = [text for other in others for text in _listed(other) if isinstance(text, str)]
    return any(normal(key) == normal(text) for text in flat) and asked.fits(key, name)


def _listed(value: Json) -> Sequence[Json]:
    return value if is_list(value) else (value,)


def _same_words(asked: Asked, key: str, name: str) -> bool:
    one, other = canonical(key), canonical(name)
    if not one or not other:
        return False
    alike = (
        one == other or ("to" not in one and sorted(one) == sorted(other)) or "".join(one) == "".join(other)
    )
    return alike and asked.fits(key, name)


def _synonyms(asked: Asked, key: str, name: str) -> bool:
    one, other = _group("".join(canonical(key))), _group("".join(canonical(name)))
    return bool(one & other) and asked.fits(key, name)


def _group(name: str) -> frozenset[int]:
    return GROUPS.get(name, frozenset())


def _more_words(asked: Asked, key: str, name: str) -> bool:
    """One name has only words more than the other that say nothing new."""
    one, other = Counter(canonical(key)), Counter(canonical(name))
    extra = (one - other) + (other - one)
    if not one or not other or (one - other and other - one) or not (one & other):
        return False
    value = asked.given[key]
    if list(one) == ["id"] and name in asked.required:
        return asked.fits(key, name)  # were there two such parameters, neither would be chosen
    says_nothing = all(_is_idle(word, asked.topic, value) for word in extra)
    return says_nothing and asked.fits(key, name)


def _is_idle(word: str, topic: frozenset[str], value: Json) -> bool:
    if word in TURNING:
        return False
    if word in EVIDENT:
        return _looks(EVIDENT[word], value)
    return word in FILLERS or word in topic


def _looks(shape: str, value: Json) -> bool:
    if is_object(value) or is_list(value):
        return shape == ".*"
    text = str(value)
    return len(text) <= LONGEST_EVIDENCE and re.fullmatch(shape, text) is not None


def _synonyms_within(asked: Asked, key: str, name: str) -> bool:
    """`search_text` for `query`: synonyms once the tool's own subject is left out."""
    one, other = (_without(canonical(each), asked.topic) for each in (key, name))
    return bool(_group(one) & _group(other)) and asked.fits(key, name)


def _without(words: tuple[str, ...], topic: frozenset[str]) -> str:
    return "".join(word for word in words if word in TURNING or word not in topic)


def _initial(asked: Asked, key: str, name: str) -> bool:
    """`r` for the number `radius`, when no other missing parameter begins with that letter."""
    short, long = sorted((normal(key), normal(name)), key=len)
    value = asked.given[key]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    alike = len(short) == 1 and len(long) > 1 and long.startswith(short)
    return alike and is_number and name in asked.required and asked.fits(key, name)


def _slip(asked: Asked, key: str, name: str) -> bool:
    one, other = normal(key), normal(name)
    most = allowed_slips(one, other)
    if most == 0 or name not in asked.required or frozenset({one, other}) in DISTINCT:
        return False
    if one.endswith(other) or other.endswith(one) or _numbers(one) != _numbers(other):
        return False
    if any(frozenset(pair) in DISTINCT for pair in zip(canonical(key), canonical(name), strict=False)):
        return False
    return slips(one, other, most=most) <= most and asked.fits(key, name)


def _numbers(text: str) -> list[str]:
    return re.findall(r"\d+", text)


def _last_pair(asked: Asked, keys: list[str], parameters: list[str]) -> Iterator[Rename]:
    """One key and one required parameter are left, and nothing else could take the value."""
    required = [name for name in parameters if name in asked.required]
    if len(keys) != 1 or len(required) != 1:
        return
    key, name = keys[0], required[0]
    if [other for other in parameters if asked.fits(key, other)] != [name]:
        return
    if normal(key) in GENERIC or normal(name) in GENERIC:
        yield Rename(key=key, parameter=name, reason="the one value given for the one parameter left")
    elif _is_telling(asked.parameters(name), asked.given[key]):
        yield Rename(key=key, parameter=name, reason="only this parameter takes such a value")


def _is_telling(shape: Shape, value: Json) -> bool:
    """Whether the value's form alone shows where it belongs."""
    if any(same(value, choice) for choice in shape.choices):
        return isinstance(value, str) and len(value) > 1
    return is_object(value) and bool(shape.required) and all(name in value for name in shape.required)


_BY_MEANING: Final[tuple[tuple[Likeness, str], ...]] = (
    (_same_letters, _SAME_LETTERS),
    (_own_words, "the schema's own word for this parameter"),
    (_same_words, "the same name, abbreviated or in the plural"),
    (_synonyms, "a common synonym of this parameter"),
    (_more_words, "the same name with a word that adds nothing"),
    (_synonyms_within, "a common synonym of this parameter"),
)
_BY_LETTERS: Final[tuple[tuple[Likeness, str], ...]] = (
    (_initial, "the first letter of this parameter's name"),
    (_slip, "a slip of the pen: one missing parameter is this near"),
)
