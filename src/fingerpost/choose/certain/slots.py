"""What each parameter would take: which kinds of value, in which role, in which form."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.choose.certain.schema import Parameter, parse_parameters
from fingerpost.choose.certain.values import ValueKind, ValueRole
from fingerpost.frozen import frozen
from fingerpost.records import Effect, ToolCard
from fingerpost.redaction import is_secret_name

_KIND_BY_FORMAT: Final = {
    "uri": ValueKind.URL,
    "url": ValueKind.URL,
    "email": ValueKind.EMAIL,
    "date": ValueKind.DATE,
    "date-time": ValueKind.MOMENT,
    "time": ValueKind.TIME,
    "uuid": ValueKind.ID,
    "ipv4": ValueKind.HOST,
    "hostname": ValueKind.HOST,
}
_KIND_BY_NAME: Final = {
    ValueKind.PATH: parse_word_set("path file filename filepath dir directory folder cwd pathname"),
    ValueKind.URL: parse_word_set("url uri link href website webpage"),
    ValueKind.EMAIL: parse_word_set("email mail recipient"),
    ValueKind.DATE: parse_word_set("date day deadline due since until birthday"),
    ValueKind.MOMENT: parse_word_set("datetime timestamp"),
    ValueKind.TIME: parse_word_set("time"),
    ValueKind.ZONE: parse_word_set("timezone tz zone"),
    ValueKind.REVISION: parse_word_set("sha commit revision rev commitish"),
    ValueKind.ID: parse_word_set("id uuid guid"),
    ValueKind.LANGUAGE: parse_word_set("language lang locale"),
    ValueKind.CURRENCY: parse_word_set("currency"),
    ValueKind.CITY: parse_word_set("city town location place"),
    ValueKind.HOST: parse_word_set("host hostname domain ip"),
    ValueKind.PATTERN: parse_word_set("pattern glob"),
    ValueKind.SQL: parse_word_set("sql statement"),
}
# Names that say where something goes but not what it is: the rest of the tool has to say it.
_NEUTRAL_NAMES: Final = parse_word_set(
    "source target destination src dst dest input output from to origin contain base"
)
_KIND_BY_DESCRIPTION: Final = (
    (ValueKind.ZONE, re.compile(r"\btime ?zone\b", re.IGNORECASE)),
    (ValueKind.EMAIL, re.compile(r"\be-?mail\b|\brecipient\b", re.IGNORECASE)),
    (ValueKind.URL, re.compile(r"\bUR[LI]\b")),
    (ValueKind.CURRENCY, re.compile(r"\bcurrency\b", re.IGNORECASE)),
    (ValueKind.LANGUAGE, re.compile(r"\blanguage\b", re.IGNORECASE)),
    (ValueKind.REVISION, re.compile(r"\b(?:commits?|sha|revisions?)\b", re.IGNORECASE)),
    (ValueKind.PATH, re.compile(r"\b(?:path|file|folder|directory)\b", re.IGNORECASE)),
    (ValueKind.CITY, re.compile(r"\bcity\b", re.IGNORECASE)),
)
_SQL_MENTION = re.compile(r"\bSQL\b")
_CODE_MENTION = re.compile(
    r"\b(?:SQL|GraphQL|JQL|Cypher|XPath|JSONPath|regex|regular expression|CSS selector|jq)\b", re.IGNORECASE
)
_FROM_NAMES: Final = parse_word_set("from source src origin since start begin after checkin sender old")
_TO_NAMES: Final = parse_word_set("to target destination dst dest until end before checkout recipient new")
_SECRET_NAMES: Final = parse_word_set(
    "password passwd passphrase secret token credential credentials pin otp cvv apikey pwd"
)
_KEY_NAMES: Final = parse_word_set("api access private secret ssh auth encryption signing license")
_QUOTED_VALUE = re.compile(r"['‘“\"`]([A-Za-z][\w-]{1,30})['’”\"`]")
_EXAMPLE_MARK = re.compile(r"\be\.?g\b|\bfor example\b|\bsuch as\b|\blike\b|\bi\.e\b", re.IGNORECASE)


@frozen
class ParameterSlot:
    """One parameter with what it would take."""

    parameter: Parameter
    words: tuple[str, ...]  # of its name, in the singular
    kinds: frozenset[ValueKind] = frozenset()
    role: ValueRole | None = None
    options: tuple[str, ...] = ()  # only these will do, as the schema or its description lists them
    is_secret: bool = False
    description_words: frozenset[str] = field(default_factory=frozenset[str])  # words of its description
    tool_words: frozenset[str] = field(
        default_factory=frozenset[str]
    )  # words of its name, description and listed values

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def required(self) -> bool:
        return self.parameter.required

    @property
    def is_text(self) -> bool:
        """Whether it takes whatever somebody puts between quotes."""
        free = not self.kinds - {ValueKind.PATTERN, ValueKind.SQL}
        return self.parameter.shape.type == "string" and free and not self.options

    @property
    def is_number(self) -> bool:
        return self.parameter.shape.type in ("integer", "number") and not self.parameter.is_list


def build_slots(card: ToolCard) -> tuple[ParameterSlot, ...]:
    """The tool's parameters, each with what it would take."""
    known = parse_parameters(card)
    listed = " ".join(option for parameter in known for option in parameter.shape.options)
    spoken = (*split_words(card.name), *split_words(card.description[:400]), *split_words(listed))
    about = frozenset(to_singular(word) for word in spoken)
    return tuple(_build_slot(parameter, card, about) for parameter in known)


def is_search(card: ToolCard, slot: ParameterSlot) -> bool:
    """Whether the tool looks something up by words in ordinary language, given in this parameter."""
    named = {"query", "q", "search", "keyword", "topic", "term", "phrase", "searchterm", "text"}
    verbs = {"search", "find", "lookup", "query", "look", "seek"}
    return (
        card.effect.value is Effect.READ
        and slot.is_text
        and ValueKind.SQL not in slot.kinds
        and not slot.parameter.is_list
        and slot.words[-1:] != ()
        and slot.words[-1] in named
        and bool(verbs & {*split_words(card.name), *slot.words})
        and _CODE_MENTION.search(slot.parameter.description) is None
    )


def _build_slot(parameter: Parameter, card: ToolCard, tool: frozenset[str]) -> ParameterSlot:
    name = tuple(to_singular(word) for word in split_words(parameter.name[:80]))
    options = parameter.shape.options or _parse_listed_values(parameter)
    return ParameterSlot(
        parameter=parameter,
        words=name,
        kinds=_infer_kinds(parameter, name, card),
        role=_infer_slot_role(name),
        options=options,
        is_secret=_is_secret(parameter, name),
        description_words=frozenset(to_singular(word) for word in split_words(parameter.description)),
        tool_words=tool,
    )


def _infer_kinds(parameter: Parameter, name: tuple[str, ...], card: ToolCard) -> frozenset[ValueKind]:
    if parameter.shape.options:
        return frozenset({ValueKind.LANGUAGE}) if name[-1:] in (("language",), ("lang",)) else frozenset()
    if parameter.shape.type in ("integer", "number"):
        return frozenset({ValueKind.NUMBER})
    if parameter.shape.type != "string":
        return frozenset()
    if parameter.shape.form:
        kind = _KIND_BY_FORMAT.get(parameter.shape.form)
        return frozenset() if kind is None else frozenset({kind})
    if _SQL_MENTION.search(parameter.description):
        return frozenset({ValueKind.SQL})
    kind = _infer_kind_from_name(name) or _infer_kind_from_context(parameter, name, card)
    return frozenset() if kind is None else frozenset({kind})


def _infer_kind_from_name(name: tuple[str, ...]) -> ValueKind | None:
    if name[-2:] == ("time", "zone"):
        return ValueKind.ZONE
    if name[-2:] in (("file", "name"), ("folder", "name"), ("directory", "name")):
        return ValueKind.PATH
    if name[-2:] in (("language", "code"), ("currency", "code")):
        return ValueKind.LANGUAGE if name[-2] == "language" else ValueKind.CURRENCY
    if name[:1] == ("date",) and name[-1:] in (("from",), ("to",), ("start",), ("end",)):
        return ValueKind.DATE
    if name in (("check", "in"), ("check", "out"), ("checkin",), ("checkout",)):
        return ValueKind.DATE
    if len(name) > 1 and name[-1] == "key" and name[-2] not in _KEY_NAMES:
        return ValueKind.ID
    head = name[-1:] or ("",)
    return next((kind for kind, heads in _KIND_BY_NAME.items() if head[0] in heads), None)


def _infer_kind_from_context(parameter: Parameter, name: tuple[str, ...], card: ToolCard) -> ValueKind | None:
    """For a name like `source`: what its description or, without one, the tool's name is about."""
    if not name or name[-1] not in _NEUTRAL_NAMES:
        return None
    text = parameter.description[:200] or card.name.replace("_", " ").replace("-", " ")
    if not parameter.description and parameter.name == "target":
        text = f"{card.name} {card.description[:200]}"
    return next((kind for kind, pattern in _KIND_BY_DESCRIPTION if pattern.search(text)), None)


def _infer_slot_role(name: tuple[str, ...]) -> ValueRole | None:
    if name in (("check", "in"), ("check", "out")):
        return ValueRole.FROM if name[1] == "in" else ValueRole.TO
    known = set(name)
    is_from, is_to = bool(known & _FROM_NAMES), bool(known & _TO_NAMES)
    if is_from == is_to:
        return None
    return ValueRole.FROM if is_from else ValueRole.TO


def _is_secret(parameter: Parameter, name: tuple[str, ...]) -> bool:
    if parameter.shape.type not in ("string", ""):
        return False
    known = set(name)
    if (
        known & _SECRET_NAMES
        or ("key" in known and known & _KEY_NAMES)
        or is_secret_name(parameter.name[:80])
    ):
        return True
    return name == ("key",) and bool(set(split_words(parameter.description)) & (_KEY_NAMES | _SECRET_NAMES))


def _parse_listed_values(parameter: Parameter) -> tuple[str, ...]:
    """Values a description lists in quotes ("'local', 'remote' or 'all'"), unless they are examples."""
    if parameter.shape.type != "string" or parameter.shape.form or parameter.is_list:
        return ()
    text = parameter.description[:300]
    found = tuple(dict.fromkeys(_QUOTED_VALUE.findall(text)))
    return found if len(found) > 1 and _EXAMPLE_MARK.search(text) is None else ()
