"""The `jsonschema` library's validators with our bounds: everything counts its steps.

Keywords of the library that show the whole value in a message nobody reads, run a
pattern or go through a value more than once are replaced by plainer ones of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, cast

from jsonschema import Draft4Validator, validators
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from fingerpost.call.arguments.effort import Spent, comparing, weight
from fingerpost.call.arguments.evaluated import accepts, looked_at, own_keys, own_places
from fingerpost.call.arguments.journey import PART, journey
from fingerpost.call.arguments.patterns import Pattern, usable
from fingerpost.call.arguments.values import same
from fingerpost.drafts import keep_to_one_draft
from fingerpost.records import Json

Keyword = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

_LEAVES: Final = frozenset(
    {
        "type", "required", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
        "dependentRequired", "uniqueItems", "pattern", "contains", "not", "unevaluatedItems",
        "unevaluatedProperties",
    }
)  # fmt: skip
_SILENT: Final = frozenset({"if", "$ref"})  # not part of the way to an error
_HOLDERS: Final = (list, dict)
_ERROR: Final = 3  # steps, to make one or to hand it on
_MESSAGE: Final = 64  # characters
_COMPILING: Final = 100  # steps, for a pattern not met before in this call
_MATCHING: Final = 500  # steps of a pattern, for one of ours


@lru_cache(maxsize=16)
def leashed(known: type[Validator]) -> type[Validator]:
    """The library's validator for one draft, with our bounds."""
    base = Draft4Validator if "extends" in known.VALIDATORS else known  # draft 3 has its own way with all
    keywords = cast("dict[str, Keyword]", dict(base.VALIDATORS))
    keywords |= {name: ours for name, ours in _OURS.items() if name in keywords or name.endswith("Ref")}
    keywords |= {name: _tolerant(keywords[name]) for name in _LEAVES if name in keywords}
    kind = cast("Any", validators).extend(base, validators=keywords)
    keep_to_one_draft(kind)
    kind.descend = descend
    return cast("type[Validator]", kind)


def descend(
    validator: Any,
    instance: Any,
    schema: Any,
    path: Any = None,
    schema_path: Any = None,
    resolver: Any = None,
) -> Iterable[ValidationError]:
    """What is wrong with a value by this part of the schema: one visit, and its steps are spent."""
    if schema is False:
        journey.effort.spend(1)
        return (_refusal(instance, path, schema_path),)
    if not isinstance(schema, dict):
        return ()  # true, or it makes no sense
    visit = journey.references.visit(validator, cast("dict[str, Any]", schema), resolver)
    steps = visit.steps
    if isinstance(instance, _HOLDERS):
        steps += len(cast("list[Any]", instance)) // PART
        if visit.shows:
            steps += weight(cast("Json", instance))
    journey.effort.spend(steps)
    return _visited(visit.validator, instance, path, schema_path)


def _visited(validator: Any, instance: Any, path: Any, schema_path: Any) -> Iterator[ValidationError]:
    schema = validator.schema
    for keyword, name, value in validator._validators:
        for error in keyword(validator, value, instance, schema) or ():
            journey.effort.spend(_ERROR)
            error._set(
                validator=name,
                validator_value=value,
                instance=instance,
                schema=schema,
                type_checker=validator.TYPE_CHECKER,
            )
            if name not in _SILENT:
                error.schema_path.appendleft(name)
            yield _placed(error, path, schema_path)


def _refusal(instance: Any, path: Any, schema_path: Any) -> ValidationError:
    error: Any = ValidationError("no value is allowed here")
    error._set(validator=None, validator_value=None, instance=instance, schema=False)
    return _placed(error, path, schema_path)


def _placed(error: Any, path: Any, schema_path: Any) -> ValidationError:
    """An error that knows the last step of the way to it."""
    if path is not None:
        error.path.appendleft(path)
    if schema_path is not None:
        error.schema_path.appendleft(schema_path)
    return error


def _tolerant(keyword: Keyword) -> Keyword:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
        try:
            found = list(keyword(validator, value, instance, schema) or ())
        except Spent:
            raise
        except Exception:  # noqa: BLE001 - `"minLength": "three"`: the keyword says nothing we can check
            return ()
        if found:
            journey.effort.spend(sum(len(error.message) for error in found) // _MESSAGE)
        return found

    return check


def _reference(validator: Any, reference: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Follow a reference within the schema; anything else is "anything"."""
    resolved = journey.follow(validator, reference)
    if resolved is None:
        return
    here = (id(resolved.contents), id(instance))
    if here in journey.active:
        return
    journey.active.add(here)
    try:
        yield from validator.descend(instance, resolved.contents, resolver=resolved.resolver)
    finally:
        journey.active.discard(here)


# Patterns


def _ready(source: Any) -> Pattern | None:
    """The pattern, if it can be run."""
    if not isinstance(source, str):
        return None
    effort = journey.effort
    if source not in effort.patterns:
        effort.spend(_COMPILING)
        effort.patterns[source] = usable(source)
    return effort.patterns[source]


def _refuses(pattern: Pattern, text: str) -> bool:
    journey.effort.spend(1 + pattern.cost(text) // _MATCHING)
    return pattern.refuses(text)


def _pattern(_: Any, source: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    pattern = _ready(source)
    if pattern is not None and _refuses(pattern, instance):
        yield ValidationError("does not match the pattern")


def _pattern_properties(validator: Any, parts: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping) or not isinstance(parts, Mapping):
        return
    for source, part in cast("Mapping[str, Any]", parts).items():
        pattern = _ready(source)
        if pattern is None:
            continue
        for key, value in cast("Mapping[str, Any]", instance).items():
            journey.effort.spend(1 + pattern.cost(key) // _MATCHING)
            if pattern.matches(key):
                yield from validator.descend(value, part, path=key, schema_path=source)


def _additional_properties(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    given = cast("Mapping[str, Any]", instance)
    listed = schema.get("properties", {})
    patterns = [_ready(source) for source in schema.get("patternProperties", ())]
    if None in patterns:
        return  # what such a pattern would take is nobody's extra
    extras = [
        key
        for key in given
        if key not in listed and all(_refuses(cast("Pattern", each), key) for each in patterns)
    ]
    if isinstance(wanted, dict):
        for key in extras:
            yield from validator.descend(given[key], wanted, path=key)
    elif not wanted and extras:
        yield ValidationError("has more entries than the schema lists")


# Alternatives


def _any_of(validator: Any, branches: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    found: list[ValidationError] = []
    for place, branch in enumerate(branches):
        errors = list(validator.descend(instance, branch, schema_path=place))
        if not errors:
            return
        found.extend(errors)
    yield ValidationError("fits none of the alternatives", context=found)


def _one_of(validator: Any, branches: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    found: list[ValidationError] = []
    fitting = 0
    for place, branch in enumerate(branches):
        if fitting:
            fitting += accepts(validator, instance, branch)
            continue
        errors = list(validator.descend(instance, branch, schema_path=place))
        fitting += not errors
        found.extend(errors)
    if not fitting:
        yield ValidationError("fits none of the alternatives", context=found)
    elif fitting > 1:
        yield ValidationError("fits more than one of the alternatives")


def _not(validator: Any, unwanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if accepts(validator, instance, unwanted):
        yield ValidationError("fits what it should not")


def _if(validator: Any, condition: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    way = "then" if accepts(validator, instance, condition) else "else"
    if way in schema:
        yield from validator.descend(instance, schema[way], schema_path=way)


def _contains(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    fitting = sum(accepts(validator, item, wanted) for item in cast("list[Any]", instance))
    if not schema.get("minContains", 1) <= fitting <= schema.get("maxContains", fitting):
        yield ValidationError("holds too few or too many of these")


# Values


def _enum(_: Any, choices: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(choices, list):
        return
    listed = cast("list[Json]", choices)
    journey.effort.spend(comparing(instance, len(listed)))
    if not any(same(instance, choice) for choice in listed):
        yield ValidationError("is none of the permitted values")


def _const(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    journey.effort.spend(comparing(instance, 1))
    if not same(instance, wanted):
        yield ValidationError("is not the one permitted value")


def _unique_items(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if wanted is not True or not isinstance(instance, list):
        return
    items = cast("list[Json]", instance)
    journey.effort.spend(4 * weight(items))
    if len({_identity(item) for item in items}) < len(items):
        yield ValidationError("has equal items")


def _identity(value: Any) -> object:
    """Something to look up that is equal for equal JSON only: `true` is not 1, though 1.0 is."""
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, dict):
        return frozenset((key, _identity(entry)) for key, entry in cast("dict[str, Any]", value).items())
    if isinstance(value, list):
        return ("list", *map(_identity, cast("list[Any]", value)))
    return value


def _unevaluated_properties(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    given = cast("dict[str, Any]", instance)
    outer = {key: part for key, part in schema.items() if key != "unevaluatedProperties"}
    seen = looked_at(validator, given, outer, own_keys)
    if not all(key in seen or accepts(validator, entry, wanted) for key, entry in given.items()):
        yield ValidationError("has entries that nothing describes")


def _unevaluated_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    given = cast("list[Any]", instance)
    outer = {key: part for key, part in schema.items() if key != "unevaluatedItems"}
    seen = looked_at(validator, given, outer, own_places)
    if not all(place in seen or accepts(validator, item, wanted) for place, item in enumerate(given)):
        yield ValidationError("has items that nothing describes")


_OURS: Final[dict[str, Keyword]] = {
    "$ref": _reference,
    "$dynamicRef": _reference,
    "$recursiveRef": _reference,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
    "contains": _contains,
    "enum": _enum,
    "const": _const,
    "uniqueItems": _unique_items,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
}
