"""Tool parameters parsed from the JSON Schema, and the values that fit them."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final

from fingerpost.catalog.words import parse_word_set, split_words, to_singular
from fingerpost.choose.keyless.tables import ENGLISH_LANGUAGE_NAMES, get_lines, get_words
from fingerpost.choose.keyless.values import RequestValue, ValueKind, ValueRole
from fingerpost.frozen import frozen
from fingerpost.records import Effect, Json, JsonObject, ToolCard
from fingerpost.redaction import is_secret_name
from fingerpost.regex import prepare_re
from fingerpost.schemas import (
    get_branches,
    get_properties,
    get_required,
    get_types,
    is_object,
    resolve_reference,
)

MAX_PARAMETERS: Final = 60
MAX_ENUM_VALUES: Final = 60
_MAX_RESOLVE_STEPS: Final = 8  # references and alternatives
_EMPTY_SCHEMA: Final[JsonObject] = {}
_LENGTH_BOUNDS: Final = {"minLength": operator.ge, "maxLength": operator.le}
_VALUE_BOUNDS: Final = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}


@frozen
class ValueSchema:
    """The type and bounds of one value."""

    type: str  # string, integer, number, boolean, or "" if it cannot be filled
    form: str = ""  # the schema's `format`
    options: tuple[str, ...] = ()
    rules: JsonObject = field(default_factory=dict[str, Json])

    def accepts(self, value: Json) -> bool:
        """Return whether the value has the type and bounds. Patterns are checked later, in the call path."""
        if self.options and value not in self.options:
            return False
        match self.type:
            case "string":
                return isinstance(value, str) and self._is_within(_LENGTH_BOUNDS, len(value))
            case "boolean":
                return isinstance(value, bool)
            case "integer" | "number":
                numbers = int if self.type == "integer" else (int, float)
                return isinstance(value, numbers) and not isinstance(value, bool) and self._is_in_range(value)
            case _:
                return False

    def _is_in_range(self, value: float) -> bool:
        step = _get_bound(self.rules, "multipleOf")
        within = math.isfinite(value) and self._is_within(_VALUE_BOUNDS, value)
        return within and (not step or value % step == 0)

    def _is_within(self, bounds: Mapping[str, Callable[[float, float], bool]], value: float) -> bool:
        given = ((compare, _get_bound(self.rules, name)) for name, compare in bounds.items())
        return all(bound is None or compare(value, bound) for compare, bound in given)


@frozen
class Parameter:
    """One parameter: its name, its value schema, and whether it takes a list."""

    name: str
    shape: ValueSchema
    required: bool
    description: str = ""
    is_list: bool = False
    min_items: int = 0  # for a list
    max_items: int | None = None

    def accepts(self, value: Json) -> bool:
        if not self.is_list:
            return self.shape.accepts(value)
        if not isinstance(value, list):
            return False
        enough = len(value) >= self.min_items and (self.max_items is None or len(value) <= self.max_items)
        return enough and all(self.shape.accepts(item) for item in value)


def _parse_parameter(name: str, prop: JsonObject, root: JsonObject, required: bool) -> Parameter:
    described = prop.get("description")
    resolved = _resolve(prop, root)
    if not isinstance(described, str):
        described = resolved.get("description")
    many = _get_type(resolved) == "array"
    fewest, most = _get_bound(resolved, "minItems"), _get_bound(resolved, "maxItems")
    item = _resolve(_as_object(resolved.get("items")), root) if many else resolved
    return Parameter(
        name=name,
        shape=_parse_value_schema(item),
        required=required,
        description=described[:600] if isinstance(described, str) else "",
        is_list=many,
        min_items=int(fewest or 0),
        max_items=None if most is None else int(most),
    )


def _parse_value_schema(schema: JsonObject) -> ValueSchema:
    kind = _get_type(schema)
    form = schema.get("format")
    listed = schema.get("enum")
    options: tuple[str, ...] = ()
    if isinstance(listed, list | tuple):
        options = tuple(option for option in listed if isinstance(option, str))[:MAX_ENUM_VALUES]
        if not options:
            kind = ""  # an enum without text values
        elif not kind:
            kind = "string"
    if "const" in schema:
        kind = ""
    return ValueSchema(
        type=kind if kind in ("string", "integer", "number", "boolean") else "",
        form=form if isinstance(form, str) else "",
        options=options,
        rules=schema,
    )


def _resolve(schema: JsonObject, root: JsonObject) -> JsonObject:
    """Resolve references and "or null". Return an empty schema when several alternatives remain."""
    for _ in range(_MAX_RESOLVE_STEPS):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            schema = _as_object(resolve_reference(root, reference))
            continue
        choices = get_branches(schema)
        if not choices:
            return schema
        real = [entry for choice in choices if (entry := _as_object(choice)).get("type") != "null"]
        if len(real) != 1:
            return _EMPTY_SCHEMA
        schema = real[0]
    return _EMPTY_SCHEMA


def _get_type(schema: JsonObject) -> str:
    named = get_types(schema)
    real = named - {"null"} if len(named) > 1 else named
    return next(iter(real)) if len(real) == 1 else ""


def _as_object(value: Json) -> JsonObject:
    return value if is_object(value) else _EMPTY_SCHEMA


def _get_bound(schema: JsonObject, name: str) -> float | None:
    value = schema.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


_KIND_BY_FORMAT: Final = {
    form: ValueKind[kind.upper()] for kind, forms in get_lines("formats_by_kind").items() for form in forms
}
_KIND_BY_NAME: Final = {
    name: ValueKind[kind.upper()] for kind, names in get_lines("names_by_kind").items() for name in names
}
# Names that give a role but no type. The type comes from the rest of the tool.
_NEUTRAL_NAMES: Final = get_words("neutral_names")
_DESCRIPTION_PATTERNS: Final = (
    (ValueKind.ZONE, prepare_re(r"\btime ?zone\b", re.IGNORECASE)),
    (ValueKind.EMAIL, prepare_re(r"\be-?mail\b|\brecipient\b", re.IGNORECASE)),
    (ValueKind.URL, prepare_re(r"\bUR[LI]\b")),
    (ValueKind.CURRENCY, prepare_re(r"\bcurrency\b", re.IGNORECASE)),
    (ValueKind.LANGUAGE, prepare_re(r"\blanguage\b", re.IGNORECASE)),
    (ValueKind.REVISION, prepare_re(r"\b(?:commits?|sha|revisions?)\b", re.IGNORECASE)),
    (ValueKind.PATH, prepare_re(r"\b(?:path|file|folder|directory)\b", re.IGNORECASE)),
    (ValueKind.CITY, prepare_re(r"\bcity\b", re.IGNORECASE)),
)
_SQL_MENTION = prepare_re(r"\bSQL\b")
_CODE_MENTION = prepare_re(
    r"\b(?:SQL|GraphQL|JQL|Cypher|XPath|JSONPath|regex|regular expression|CSS selector|jq)\b", re.IGNORECASE
)
_FROM_NAMES: Final = parse_word_set("from source src origin since start begin after checkin sender old")
_TO_NAMES: Final = parse_word_set("to target destination dst dest until end before checkout recipient new")
_SECRET_NAMES: Final = get_words("secret_names")
_KEY_QUALIFIERS: Final = parse_word_set("api access private secret ssh auth encryption signing license")
_QUOTED_VALUE = prepare_re(r"['‘“\"`]([A-Za-z][\w-]{1,30})['’”\"`]")
_EXAMPLE_MARK = prepare_re(r"\be\.?g\b|\bfor example\b|\bsuch as\b|\blike\b|\bi\.e\b", re.IGNORECASE)


@frozen
class ParameterSlot:
    """One parameter and the kinds of values it accepts."""

    parameter: Parameter
    words: tuple[str, ...]  # of the name, in the singular
    kinds: frozenset[ValueKind] = frozenset()
    role: ValueRole | None = None
    options: tuple[str, ...] = ()  # the only allowed values, from the schema or its description
    is_secret: bool = False
    description_words: frozenset[str] = frozenset()
    tool_words: frozenset[str] = frozenset()  # of the tool's name, description and listed values

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def required(self) -> bool:
        return self.parameter.required

    @property
    def is_text(self) -> bool:
        """Whether it accepts any quoted text."""
        free = not self.kinds - {ValueKind.PATTERN, ValueKind.SQL}
        return self.parameter.shape.type == "string" and free and not self.options

    @property
    def is_number(self) -> bool:
        return self.parameter.shape.type in ("integer", "number") and not self.parameter.is_list


def build_slots(card: ToolCard) -> tuple[ParameterSlot, ...]:
    """Return a slot for each of the tool's parameters."""
    schema = _as_object(card.definition.get("inputSchema"))
    properties, required = get_properties(schema), get_required(schema)
    # Required ones come first, so that the limit never cuts them off.
    names = sorted(properties, key=lambda name: name not in required)[:MAX_PARAMETERS]
    known = tuple(
        _parse_parameter(name, _as_object(properties[name]), schema, name in required) for name in names
    )
    listed = " ".join(option for parameter in known for option in parameter.shape.options)
    words = (*split_words(card.name), *split_words(card.description[:400]), *split_words(listed))
    tool_words = frozenset(to_singular(word) for word in words)
    return tuple(_build_slot(parameter, card, tool_words) for parameter in known)


def is_search(card: ToolCard, slot: ParameterSlot) -> bool:
    """Return whether the tool searches with a natural-language query in this parameter."""
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


_DIRECTORY_NAMES: Final = parse_word_set("directory dir folder cwd root")
_REPOSITORY_NAMES: Final = parse_word_set("repo repository")
_DIRECTORY_TOOLS: Final = parse_word_set("directory dir folder tree list search find glob grep")
_DIRECTORY_MENTION = prepare_re(r"\b(?:directory|directories|folders?)\b", re.IGNORECASE)
_FILE_MENTION = prepare_re(r"\bfiles?\b", re.IGNORECASE)
_PATH_MENTION = prepare_re(r"\bpath\b|\bdirectory\b", re.IGNORECASE)


def takes_repository(slot: ParameterSlot) -> bool:
    """Return whether the parameter takes the path of a repository, not its name on a website."""
    is_path = "path" in slot.words or _PATH_MENTION.search(slot.parameter.description) is not None
    return bool(_REPOSITORY_NAMES & set(slot.words)) and (is_path or ValueKind.PATH in slot.kinds)


def takes_directory(card: ToolCard, slot: ParameterSlot) -> bool:
    """Return whether the parameter takes a directory that exists."""
    if ValueKind.PATH not in slot.kinds or slot.parameter.is_list:
        return False
    about = slot.parameter.description
    if about and _FILE_MENTION.search(about) and not _DIRECTORY_MENTION.search(about):
        return False
    named = bool(_DIRECTORY_NAMES & set(slot.words)) or _DIRECTORY_MENTION.search(about) is not None
    return named or (slot.words == ("path",) and bool(_DIRECTORY_TOOLS & set(split_words(card.name))))


def _build_slot(parameter: Parameter, card: ToolCard, tool_words: frozenset[str]) -> ParameterSlot:
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
        tool_words=tool_words,
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
    if name[:1] == ("date",) and name[-1:] in (("from",), ("to",), ("start",), ("end",)):
        return ValueKind.DATE
    if name in (("check", "in"), ("check", "out"), ("checkin",), ("checkout",)):
        return ValueKind.DATE
    if len(name) > 1 and name[-1] == "key" and name[-2] not in _KEY_QUALIFIERS:
        return ValueKind.ID
    return _KIND_BY_NAME.get("/".join(name[-2:])) or _KIND_BY_NAME.get("".join(name[-1:]))


def _infer_kind_from_context(parameter: Parameter, name: tuple[str, ...], card: ToolCard) -> ValueKind | None:
    """Infer the kind for a name like `source` from its description or, without one, from the tool's name."""
    if not name or name[-1] not in _NEUTRAL_NAMES:
        return None
    text = parameter.description[:200] or card.name.replace("_", " ").replace("-", " ")
    if not parameter.description and parameter.name == "target":
        text = f"{card.name} {card.description[:200]}"
    return next((kind for kind, pattern in _DESCRIPTION_PATTERNS if pattern.search(text)), None)


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
    if known & _SECRET_NAMES or is_secret_name(parameter.name[:80]):
        return True
    if name == ("key",):
        return bool(set(split_words(parameter.description)) & (_KEY_QUALIFIERS | _SECRET_NAMES))
    return "key" in known and bool(known & _KEY_QUALIFIERS)


def _parse_listed_values(parameter: Parameter) -> tuple[str, ...]:
    """Return the values that a description lists in quotes ("'local' or 'all'") if they are no examples."""
    if parameter.shape.type != "string" or parameter.shape.form or parameter.is_list:
        return ()
    text = parameter.description[:300]
    found = tuple(dict.fromkeys(_QUOTED_VALUE.findall(text)))
    return found if len(found) > 1 and _EXAMPLE_MARK.search(text) is None else ()


_UNIT_SECONDS: Final = {
    unit: float(seconds) for seconds, units in get_lines("unit_seconds").items() for unit in units
}
# Only the plural: "the second number" is not a duration.
_DURATION_UNITS: Final = {
    f"{unit}s": seconds for unit, seconds in _UNIT_SECONDS.items() if unit.isascii() and len(unit) > 2
}
_MONEY_PARAMETERS: Final = parse_word_set("amount price sum budget cost total")
_DURATION_WORDS: Final = parse_word_set("duration length second minute hour")
_MONEY_UNITS: Final = get_words("money_units")
_COUNT_PARAMETERS: Final = get_words("count_parameters")
_COUNTED_NOUNS: Final = parse_word_set("result item entry record row match hit")
# Words before a number that do not label it.
_NEUTRAL_WORDS: Final = get_words("neutral_words")
_CONNECTIVES: Final = get_words("connectives")
_OPPOSITES: Final = {"first": "last", "top": "last", "last": "first"}
_PLAIN_NUMBER = prepare_re(r"-?\d{1,15}(?:\.\d{1,15})?")
_HASH_NUMBER = prepare_re(r"#(\d{1,15})")


def convert_number(slot: ParameterSlot, value: RequestValue) -> Json:
    """Convert the number for this parameter. Return None when it counts something else."""
    if value.kind is ValueKind.ID:
        found = _HASH_NUMBER.fullmatch(value.text)
        numbered = slot.words[-1:] in (("id",), ("number",), ("issue",), ("ticket",), ("pr",))
        own = {*slot.words, *slot.description_words} - _NEUTRAL_WORDS
        if found is None or not (value.label in own or (numbered and value.label in {"", *_NEUTRAL_WORDS})):
            return None
        return int(found[1])
    if not isinstance(value.reading, float) or not has_matching_label(slot, value, _NEUTRAL_WORDS):
        return None
    factor = _get_unit_factor(slot, value)
    if factor is None:
        return None
    amount = value.reading * factor
    whole = amount.is_integer() and abs(amount) < 2**53
    if slot.parameter.shape.type == "integer":
        return int(amount) if whole else None
    return int(amount) if whole else round(amount, 12)


def is_number_for_slot(slot: ParameterSlot, value: RequestValue) -> bool:
    """Return whether the words around a number refer to this parameter. Optional parameters require this."""
    known, unit = slot.tool_words | slot.description_words, to_singular(value.unit)
    if _OPPOSITES.get(value.cue, "") in known and value.cue not in known:
        return False
    near = {word for word in (value.noun, unit) if word} - _CONNECTIVES
    if slot.words and slot.words in (value.behind[: len(slot.words)], (unit,)):
        return True
    if value.cue and value.cue in slot.description_words and near & slot.description_words:
        return True
    if unit in _UNIT_SECONDS and set(slot.words) & _DURATION_WORDS:
        return True
    if not takes_count(slot):
        return False
    return bool(near & (known | _COUNTED_NOUNS)) or (bool(value.cue) and not near)


def takes_count(slot: ParameterSlot) -> bool:
    """Return whether the parameter limits how many results there are."""
    return set(slot.words) <= _COUNT_PARAMETERS or slot.words[-1:] == ("count",)


def has_slot_word(slot: ParameterSlot, value: RequestValue) -> bool:
    """Return whether the number has a unit or is next to a word of the parameter, whatever other numbers."""
    own = {*slot.words, *slot.description_words} - _NEUTRAL_WORDS
    return bool(own & {value.label, value.noun, to_singular(value.unit)}) or bool(value.unit)


def allows_bare_number(slot: ParameterSlot) -> bool:
    """Return whether the parameter accepts a number without a label, unlike the id of a record."""
    return slot.words[-1:] not in (("id",), ("number",)) or len(slot.words) < 2


def _get_unit_factor(slot: ParameterSlot, value: RequestValue) -> float | None:
    """Return the factor from the value's unit to the parameter's unit, or None when they do not match."""
    unit = to_singular(value.unit)
    known = {*slot.words, *slot.description_words}
    if not unit:
        if _find_duration_units(slot):
            return None  # a duration without a unit would be a guess
        noun = value.noun
        return 1.0 if not noun or noun in _CONNECTIVES or noun in known | slot.tool_words else None
    if unit in known and unit not in _UNIT_SECONDS:
        return 1.0
    if unit in _MONEY_UNITS:
        return 1.0 if set(slot.words) & _MONEY_PARAMETERS else None
    if unit in _UNIT_SECONDS:
        wanted = _find_duration_units(slot)
        return _UNIT_SECONDS[unit] / wanted.pop() if len(wanted) == 1 else None
    return 1.0 if unit in slot.tool_words else None


def _find_duration_units(slot: ParameterSlot) -> set[float]:
    """Return the time units, in seconds, that the parameter's name and description mention."""
    words = (*split_words(slot.name[:80]), *split_words(slot.parameter.description))
    return {_DURATION_UNITS[word] for word in words if word in _DURATION_UNITS}


def parse_bare_number(word: str) -> Json:
    """Parse a word that is a plain number. Return None for anything else."""
    if _PLAIN_NUMBER.fullmatch(word) is None:
        return None
    return float(word) if "." in word else int(word)


_OTHER_DATES = prepare_re(r"MM/DD|DD/MM|DD\.MM|MM-DD-|DD-MM-|epoch|unix|seconds|millis|\bHH\b", re.IGNORECASE)
_TAKES_DAYS = prepare_re(r"YYYY-MM-DD|'\d{4}-\d{2}-\d{2}'", re.IGNORECASE)
_TWELVE_HOURS = prepare_re(r"\bAM\b|\bPM\b|12-hour|ISO|RFC|YYYY", re.IGNORECASE)
_WITH_SECONDS = prepare_re(r"HH:MM:SS", re.IGNORECASE)
_PLAIN_HOUR = prepare_re(r"HH:MM|24-hour|time of day", re.IGNORECASE)
_LANGUAGE_CODE = prepare_re(r"\bcode\b|\bISO\b|639|['\"][a-z]{2}['\"]", re.IGNORECASE)
_LANGUAGE_NAME = prepare_re(
    r"\bname of the language\b|language name|['\"](?:English|French|Spanish|German)['\"]"
)
_ROLE_REQUIRED_WORDS: Final = parse_word_set("from since after sender")
_UUID = prepare_re(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SCHEME = prepare_re(r"[a-zA-Z][a-zA-Z0-9+.-]{1,20}://")
# Words before an id or number that do not label it.
NEUTRAL_LABELS: Final = get_words("neutral_labels")


def convert_value(slot: ParameterSlot, value: RequestValue) -> Json:
    """Convert the value to an argument, or return None when it does not fit. Roles are not checked here."""
    if value.denied or slot.is_secret:
        return None
    made = _convert_by_kind(slot, value)
    if made is None or not slot.parameter.shape.accepts(made):
        return None
    return made


def _convert_by_kind(slot: ParameterSlot, value: RequestValue) -> Json:
    if slot.options:
        if value.kind is ValueKind.LANGUAGE and ValueKind.LANGUAGE in slot.kinds:
            return value.reading if value.reading in slot.options else None
        return value.reading if value.kind is ValueKind.OPTION and value.reading in slot.options else None
    if slot.is_number:
        return convert_number(slot, value) if value.kind in (ValueKind.NUMBER, ValueKind.ID) else None
    if value.kind is ValueKind.TEXT and slot.is_text:
        return value.text
    if value.kind is ValueKind.URL and ValueKind.HOST in slot.kinds:
        return value.text if "/" not in value.text else None
    if value.kind is ValueKind.HOST and ValueKind.URL in slot.kinds:
        return None  # the same domain is also extracted as a URL
    if value.kind is ValueKind.DATE and ValueKind.MOMENT in slot.kinds:
        return value.reading if _TAKES_DAYS.search(slot.parameter.description) else None
    if value.kind not in slot.kinds and not (value.kind is ValueKind.ID and ValueKind.REVISION in slot.kinds):
        return None
    return _CONVERTERS[value.kind](slot, value) if value.kind in _CONVERTERS else value.reading


def _convert_url(slot: ParameterSlot, value: RequestValue) -> Json:
    """Return the URL. Prepend `https://` to a domain without a scheme."""
    return value.text if _SCHEME.match(value.text) else f"https://{value.text}"


def _convert_day(slot: ParameterSlot, value: RequestValue) -> Json:
    about = slot.parameter.description
    if not slot.parameter.shape.form and _OTHER_DATES.search(about) and not _TAKES_DAYS.search(about):
        return None
    return value.reading


def _convert_time(slot: ParameterSlot, value: RequestValue) -> Json:
    about = slot.parameter.description
    plain = _PLAIN_HOUR.search(about) is not None
    if not isinstance(value.reading, str) or (_TWELVE_HOURS.search(about) and not plain):
        return None
    if slot.parameter.shape.form == "time" or _WITH_SECONDS.search(about):
        return f"{value.reading}:00"
    # `start_time` may need a date too, unless the description gives a time format.
    return value.reading if plain or slot.words == ("time",) else None


def _convert_language(slot: ParameterSlot, value: RequestValue) -> Json:
    about = slot.parameter.description
    if slot.words[-1:] == ("code",) or _LANGUAGE_CODE.search(about):
        return value.reading
    if _LANGUAGE_NAME.search(about) and isinstance(value.reading, str):
        return ENGLISH_LANGUAGE_NAMES[value.reading].capitalize()
    return None


def _convert_id(slot: ParameterSlot, value: RequestValue) -> Json:
    """Return the id if the label before it matches: "order ORD-1", "customer CUS-2"."""
    if slot.parameter.shape.form == "uuid" and not _UUID.fullmatch(value.text):
        return None
    if value.text.startswith("#") or not has_matching_label(slot, value, NEUTRAL_LABELS):
        return None
    return value.text


def has_matching_label(slot: ParameterSlot, value: RequestValue, neutral: frozenset[str]) -> bool:
    """Return whether the word before the value is neutral or refers to this parameter."""
    known = {*slot.words, *slot.description_words, *slot.tool_words}
    return not value.label or value.label in neutral or value.label in known


_CONVERTERS: Final = {
    ValueKind.URL: _convert_url,
    ValueKind.DATE: _convert_day,
    ValueKind.TIME: _convert_time,
    ValueKind.LANGUAGE: _convert_language,
    ValueKind.ID: _convert_id,
}


def has_matching_role(
    slot: ParameterSlot, value: RequestValue, values: Sequence[RequestValue], slots: Sequence[ParameterSlot]
) -> bool:
    """Return whether the value has the parameter's role, as in "from Rome to Athens"."""
    if slot.role is None:
        return True
    if value.role is not None:
        return value.role is slot.role
    paired = any(
        other.role not in (None, slot.role)
        and (bool(slot.kinds & other.kinds) or bool(set(slot.options) & set(other.options)))
        for other in slots
        if other is not slot
    )
    if not paired:
        return slot.role is ValueRole.TO or not set(slot.words) & _ROLE_REQUIRED_WORDS
    # In "copy a.txt to b.txt" the value without a preposition is the source.
    others = {
        (other.role, other.reading)
        for other in values
        if (other.kind is value.kind and other.start != value.start and not other.denied)
    }
    return slot.role is ValueRole.FROM and len(others) == 1 and next(iter(others))[0] is ValueRole.TO
