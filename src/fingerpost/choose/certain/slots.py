"""What each parameter would take: which kinds of value, in which role, in which form."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Final

from fingerpost.catalog.words import singular, word_set, words
from fingerpost.choose.certain.schema import Parameter, parameters
from fingerpost.choose.certain.values import Kind, Role
from fingerpost.frozen import frozen
from fingerpost.records import Effect, ToolCard
from fingerpost.redaction import names_secret

_FORMATS: Final = {
    "uri": Kind.URL,
    "url": Kind.URL,
    "email": Kind.EMAIL,
    "date": Kind.DATE,
    "date-time": Kind.MOMENT,
    "time": Kind.TIME,
    "uuid": Kind.ID,
    "ipv4": Kind.HOST,
    "hostname": Kind.HOST,
}
_HEADS: Final = {
    Kind.PATH: word_set("path file filename filepath dir directory folder cwd pathname"),
    Kind.URL: word_set("url uri link href website webpage"),
    Kind.EMAIL: word_set("email mail recipient"),
    Kind.DATE: word_set("date day deadline due since until birthday"),
    Kind.MOMENT: word_set("datetime timestamp"),
    Kind.TIME: word_set("time"),
    Kind.ZONE: word_set("timezone tz zone"),
    Kind.REVISION: word_set("sha commit revision rev commitish"),
    Kind.ID: word_set("id uuid guid"),
    Kind.LANGUAGE: word_set("language lang locale"),
    Kind.CURRENCY: word_set("currency"),
    Kind.CITY: word_set("city town location place"),
    Kind.HOST: word_set("host hostname domain ip"),
    Kind.PATTERN: word_set("pattern glob"),
    Kind.SQL: word_set("sql statement"),
}
# Names that say where something goes but not what it is: the rest of the tool has to say it.
_NEUTRAL: Final = word_set("source target destination src dst dest input output from to origin contain base")
_BY_DESCRIPTION: Final = (
    (Kind.ZONE, re.compile(r"\btime ?zone\b", re.IGNORECASE)),
    (Kind.EMAIL, re.compile(r"\be-?mail\b|\brecipient\b", re.IGNORECASE)),
    (Kind.URL, re.compile(r"\bUR[LI]\b")),
    (Kind.CURRENCY, re.compile(r"\bcurrency\b", re.IGNORECASE)),
    (Kind.LANGUAGE, re.compile(r"\blanguage\b", re.IGNORECASE)),
    (Kind.REVISION, re.compile(r"\b(?:commits?|sha|revisions?)\b", re.IGNORECASE)),
    (Kind.PATH, re.compile(r"\b(?:path|file|folder|directory)\b", re.IGNORECASE)),
    (Kind.CITY, re.compile(r"\bcity\b", re.IGNORECASE)),
)
_SQL = re.compile(r"\bSQL\b")
_CODE = re.compile(
    r"\b(?:SQL|GraphQL|JQL|Cypher|XPath|JSONPath|regex|regular expression|CSS selector|jq)\b", re.IGNORECASE
)
_FROM: Final = word_set("from source src origin since start begin after checkin sender old")
_TO: Final = word_set("to target destination dst dest until end before checkout recipient new")
_SECRETS: Final = word_set(
    "password passwd passphrase secret token credential credentials pin otp cvv apikey pwd"
)
_KEYS: Final = word_set("api access private secret ssh auth encryption signing license")
_LISTED = re.compile(r"['‘“\"`]([A-Za-z][\w-]{1,30})['’”\"`]")
_EXAMPLES = re.compile(r"\be\.?g\b|\bfor example\b|\bsuch as\b|\blike\b|\bi\.e\b", re.IGNORECASE)


@frozen
class Slot:
    """One parameter with what it would take."""

    parameter: Parameter
    words: tuple[str, ...]  # of its name, in the singular
    kinds: frozenset[Kind] = frozenset()
    role: Role | None = None
    options: tuple[str, ...] = ()  # only these will do, as the schema or its description lists them
    secret: bool = False
    about: frozenset[str] = field(default_factory=frozenset[str])  # words of its description
    tool: frozenset[str] = field(
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
        free = not self.kinds - {Kind.PATTERN, Kind.SQL}
        return self.parameter.shape.type == "string" and free and not self.options

    @property
    def is_number(self) -> bool:
        return self.parameter.shape.type in ("integer", "number") and not self.parameter.many


def slots_of(card: ToolCard) -> tuple[Slot, ...]:
    """The tool's parameters, each with what it would take."""
    known = parameters(card)
    listed = " ".join(option for parameter in known for option in parameter.shape.options)
    spoken = (*words(card.name), *words(card.description[:400]), *words(listed))
    about = frozenset(singular(word) for word in spoken)
    return tuple(_slot(parameter, card, about) for parameter in known)


def is_search(card: ToolCard, slot: Slot) -> bool:
    """Whether the tool looks something up by words in ordinary language, given in this parameter."""
    named = {"query", "q", "search", "keyword", "topic", "term", "phrase", "searchterm", "text"}
    verbs = {"search", "find", "lookup", "query", "look", "seek"}
    return (
        card.effect.value is Effect.READ
        and slot.is_text
        and Kind.SQL not in slot.kinds
        and not slot.parameter.many
        and slot.words[-1:] != ()
        and slot.words[-1] in named
        and bool(verbs & {*words(card.name), *slot.words})
        and _CODE.search(slot.parameter.description) is None
    )


def _slot(parameter: Parameter, card: ToolCard, tool: frozenset[str]) -> Slot:
    name = tuple(singular(word) for word in words(parameter.name[:80]))
    options = parameter.shape.options or _listed(parameter)
    return Slot(
        parameter=parameter,
        words=name,
        kinds=_kinds(parameter, name, card),
        role=_role(name),
        options=options,
        secret=_is_secret(parameter, name),
        about=frozenset(singular(word) for word in words(parameter.description)),
        tool=tool,
    )


def _kinds(parameter: Parameter, name: tuple[str, ...], card: ToolCard) -> frozenset[Kind]:
    if parameter.shape.options:
        return frozenset({Kind.LANGUAGE}) if name[-1:] in (("language",), ("lang",)) else frozenset()
    if parameter.shape.type in ("integer", "number"):
        return frozenset({Kind.NUMBER})
    if parameter.shape.type != "string":
        return frozenset()
    if parameter.shape.form:
        kind = _FORMATS.get(parameter.shape.form)
        return frozenset() if kind is None else frozenset({kind})
    if _SQL.search(parameter.description):
        return frozenset({Kind.SQL})
    kind = _by_name(name) or _by_rest(parameter, name, card)
    return frozenset() if kind is None else frozenset({kind})


def _by_name(name: tuple[str, ...]) -> Kind | None:
    if name[-2:] == ("time", "zone"):
        return Kind.ZONE
    if name[-2:] in (("file", "name"), ("folder", "name"), ("directory", "name")):
        return Kind.PATH
    if name[-2:] in (("language", "code"), ("currency", "code")):
        return Kind.LANGUAGE if name[-2] == "language" else Kind.CURRENCY
    if name[:1] == ("date",) and name[-1:] in (("from",), ("to",), ("start",), ("end",)):
        return Kind.DATE
    if name in (("check", "in"), ("check", "out"), ("checkin",), ("checkout",)):
        return Kind.DATE
    if len(name) > 1 and name[-1] == "key" and name[-2] not in _KEYS:
        return Kind.ID
    head = name[-1:] or ("",)
    return next((kind for kind, heads in _HEADS.items() if head[0] in heads), None)


def _by_rest(parameter: Parameter, name: tuple[str, ...], card: ToolCard) -> Kind | None:
    """For a name like `source`: what its description or, without one, the tool's name is about."""
    if not name or name[-1] not in _NEUTRAL:
        return None
    text = parameter.description[:200] or card.name.replace("_", " ").replace("-", " ")
    if not parameter.description and parameter.name == "target":
        text = f"{card.name} {card.description[:200]}"
    return next((kind for kind, pattern in _BY_DESCRIPTION if pattern.search(text)), None)


def _role(name: tuple[str, ...]) -> Role | None:
    if name in (("check", "in"), ("check", "out")):
        return Role.FROM if name[1] == "in" else Role.TO
    known = set(name)
    is_from, is_to = bool(known & _FROM), bool(known & _TO)
    if is_from == is_to:
        return None
    return Role.FROM if is_from else Role.TO


def _is_secret(parameter: Parameter, name: tuple[str, ...]) -> bool:
    if parameter.shape.type not in ("string", ""):
        return False
    known = set(name)
    if known & _SECRETS or ("key" in known and known & _KEYS) or names_secret(parameter.name[:80]):
        return True
    return name == ("key",) and bool(set(words(parameter.description)) & (_KEYS | _SECRETS))


def _listed(parameter: Parameter) -> tuple[str, ...]:
    """Values a description lists in quotes ("'local', 'remote' or 'all'"), unless they are examples."""
    if parameter.shape.type != "string" or parameter.shape.form or parameter.many:
        return ()
    text = parameter.description[:300]
    found = tuple(dict.fromkeys(_LISTED.findall(text)))
    return found if len(found) > 1 and _EXAMPLES.search(text) is None else ()
