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

from fingerpost.call.arguments.effort import StepBudgetExceeded, estimate_comparison_steps, estimate_steps
from fingerpost.call.arguments.evaluated import find_evaluated, get_own_indexes, get_own_keys, is_accepted
from fingerpost.call.arguments.journey import ENTRIES_PER_STEP, validation_state
from fingerpost.call.arguments.patterns import SchemaPattern, compile_pattern
from fingerpost.call.arguments.values import is_equal
from fingerpost.drafts import pin_to_own_draft
from fingerpost.records import Json

KeywordCheck = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]

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
_COMPILE_STEPS: Final = 100  # steps, for a pattern not met before in this call
_MATCH_STEPS: Final = 500  # steps of a pattern, for one of ours


@lru_cache(maxsize=16)
def build_bounded_validator(known: type[Validator]) -> type[Validator]:
    """The library's validator for one draft, with our bounds."""
    base = Draft4Validator if "extends" in known.VALIDATORS else known  # draft 3 has its own way with all
    keywords = cast("dict[str, KeywordCheck]", dict(base.VALIDATORS))
    keywords |= {
        name: ours for name, ours in _KEYWORD_CHECKS.items() if name in keywords or name.endswith("Ref")
    }
    keywords |= {name: _make_tolerant(keywords[name]) for name in _LEAVES if name in keywords}
    kind = cast("Any", validators).extend(base, validators=keywords)
    pin_to_own_draft(kind)
    kind.descend = iterate_errors
    return cast("type[Validator]", kind)


def iterate_errors(
    validator: Any,
    instance: Any,
    schema: Any,
    path: Any = None,
    schema_path: Any = None,
    resolver: Any = None,
) -> Iterable[ValidationError]:
    """What is wrong with a value by this part of the schema: one visit, and its steps are spent."""
    if schema is False:
        validation_state.effort.spend(1)
        return (_build_false_schema_error(instance, path, schema_path),)
    if not isinstance(schema, dict):
        return ()  # true, or it makes no sense
    visit = validation_state.references.get_part(validator, cast("dict[str, Any]", schema), resolver)
    steps = visit.steps
    if isinstance(instance, _HOLDERS):
        steps += len(cast("list[Any]", instance)) // ENTRIES_PER_STEP
        if visit.shows:
            steps += estimate_steps(cast("Json", instance))
    validation_state.effort.spend(steps)
    return _check_part(visit.validator, instance, path, schema_path)


def _check_part(validator: Any, instance: Any, path: Any, schema_path: Any) -> Iterator[ValidationError]:
    schema = validator.schema
    for keyword, name, value in validator._validators:
        for error in keyword(validator, value, instance, schema) or ():
            validation_state.effort.spend(_ERROR)
            error._set(
                validator=name,
                validator_value=value,
                instance=instance,
                schema=schema,
                type_checker=validator.TYPE_CHECKER,
            )
            if name not in _SILENT:
                error.schema_path.appendleft(name)
            yield _with_path(error, path, schema_path)


def _build_false_schema_error(instance: Any, path: Any, schema_path: Any) -> ValidationError:
    error: Any = ValidationError("no value is allowed here")
    error._set(validator=None, validator_value=None, instance=instance, schema=False)
    return _with_path(error, path, schema_path)


def _with_path(error: Any, path: Any, schema_path: Any) -> ValidationError:
    """An error that knows the last step of the way to it."""
    if path is not None:
        error.path.appendleft(path)
    if schema_path is not None:
        error.schema_path.appendleft(schema_path)
    return error


def _make_tolerant(keyword: KeywordCheck) -> KeywordCheck:
    def check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
        try:
            found = list(keyword(validator, value, instance, schema) or ())
        except StepBudgetExceeded:
            raise
        except Exception:  # noqa: BLE001 - `"minLength": "three"`: the keyword says nothing we can check
            return ()
        if found:
            validation_state.effort.spend(sum(len(error.message) for error in found) // _MESSAGE)
        return found

    return check


def _check_reference(validator: Any, reference: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    """Follow a reference within the schema; anything else is "anything"."""
    resolved = validation_state.follow(validator, reference)
    if resolved is None:
        return
    here = (id(resolved.contents), id(instance))
    if here in validation_state.active:
        return
    validation_state.active.add(here)
    try:
        yield from validator.descend(instance, resolved.contents, resolver=resolved.resolver)
    finally:
        validation_state.active.discard(here)


# Patterns


def _compile_pattern(source: Any) -> SchemaPattern | None:
    """The pattern, if it can be run."""
    if not isinstance(source, str):
        return None
    effort = validation_state.effort
    if source not in effort.patterns:
        effort.spend(_COMPILE_STEPS)
        effort.patterns[source] = compile_pattern(source)
    return effort.patterns[source]


def _is_mismatch(pattern: SchemaPattern, text: str) -> bool:
    validation_state.effort.spend(1 + pattern.estimate_cost(text) // _MATCH_STEPS)
    return pattern.is_mismatch(text)


def _check_pattern(_: Any, source: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, str):
        return
    pattern = _compile_pattern(source)
    if pattern is not None and _is_mismatch(pattern, instance):
        yield ValidationError("does not match the pattern")


def _check_pattern_properties(validator: Any, parts: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping) or not isinstance(parts, Mapping):
        return
    for source, part in cast("Mapping[str, Any]", parts).items():
        pattern = _compile_pattern(source)
        if pattern is None:
            continue
        for key, value in cast("Mapping[str, Any]", instance).items():
            validation_state.effort.spend(1 + pattern.estimate_cost(key) // _MATCH_STEPS)
            if pattern.is_match(key):
                yield from validator.descend(value, part, path=key, schema_path=source)


def _check_additional_properties(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, Mapping):
        return
    given = cast("Mapping[str, Any]", instance)
    listed = schema.get("properties", {})
    patterns = [_compile_pattern(source) for source in schema.get("patternProperties", ())]
    if None in patterns:
        return  # what such a pattern would take is nobody's extra
    extras = [
        key
        for key in given
        if key not in listed and all(_is_mismatch(cast("SchemaPattern", each), key) for each in patterns)
    ]
    if isinstance(wanted, dict):
        for key in extras:
            yield from validator.descend(given[key], wanted, path=key)
    elif not wanted and extras:
        yield ValidationError("has more entries than the schema lists")


# Alternatives


def _check_any_of(validator: Any, branches: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    found: list[ValidationError] = []
    for place, branch in enumerate(branches):
        errors = list(validator.descend(instance, branch, schema_path=place))
        if not errors:
            return
        found.extend(errors)
    yield ValidationError("fits none of the alternatives", context=found)


def _check_one_of(validator: Any, branches: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    found: list[ValidationError] = []
    fitting = 0
    for place, branch in enumerate(branches):
        if fitting:
            fitting += is_accepted(validator, instance, branch)
            continue
        errors = list(validator.descend(instance, branch, schema_path=place))
        fitting += not errors
        found.extend(errors)
    if not fitting:
        yield ValidationError("fits none of the alternatives", context=found)
    elif fitting > 1:
        yield ValidationError("fits more than one of the alternatives")


def _check_not(validator: Any, unwanted: Any, instance: Any, _: Any) -> Iterator[ValidationError]:
    if is_accepted(validator, instance, unwanted):
        yield ValidationError("fits what it should not")


def _check_if(validator: Any, condition: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    way = "then" if is_accepted(validator, instance, condition) else "else"
    if way in schema:
        yield from validator.descend(instance, schema[way], schema_path=way)


def _check_contains(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    fitting = sum(is_accepted(validator, item, wanted) for item in cast("list[Any]", instance))
    if not schema.get("minContains", 1) <= fitting <= schema.get("maxContains", fitting):
        yield ValidationError("holds too few or too many of these")


# Values


def _check_enum(_: Any, choices: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if not isinstance(choices, list):
        return
    listed = cast("list[Json]", choices)
    validation_state.effort.spend(estimate_comparison_steps(instance, len(listed)))
    if not any(is_equal(instance, choice) for choice in listed):
        yield ValidationError("is none of the permitted values")


def _check_const(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    validation_state.effort.spend(estimate_comparison_steps(instance, 1))
    if not is_equal(instance, wanted):
        yield ValidationError("is not the one permitted value")


def _check_unique_items(_: Any, wanted: Any, instance: Any, __: Any) -> Iterator[ValidationError]:
    if wanted is not True or not isinstance(instance, list):
        return
    items = cast("list[Json]", instance)
    validation_state.effort.spend(4 * estimate_steps(items))
    if len({_build_identity(item) for item in items}) < len(items):
        yield ValidationError("has equal items")


def _build_identity(value: Any) -> object:
    """Something to look up that is equal for equal JSON only: `true` is not 1, though 1.0 is."""
    if isinstance(value, bool):
        return ("truth", value)
    if isinstance(value, dict):
        return frozenset(
            (key, _build_identity(entry)) for key, entry in cast("dict[str, Any]", value).items()
        )
    if isinstance(value, list):
        return ("list", *map(_build_identity, cast("list[Any]", value)))
    return value


def _check_unevaluated_properties(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    given = cast("dict[str, Any]", instance)
    outer = {key: part for key, part in schema.items() if key != "unevaluatedProperties"}
    seen = find_evaluated(validator, given, outer, get_own_keys)
    if not all(key in seen or is_accepted(validator, entry, wanted) for key, entry in given.items()):
        yield ValidationError("has entries that nothing describes")


def _check_unevaluated_items(
    validator: Any, wanted: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, list):
        return
    given = cast("list[Any]", instance)
    outer = {key: part for key, part in schema.items() if key != "unevaluatedItems"}
    seen = find_evaluated(validator, given, outer, get_own_indexes)
    if not all(place in seen or is_accepted(validator, item, wanted) for place, item in enumerate(given)):
        yield ValidationError("has items that nothing describes")


_KEYWORD_CHECKS: Final[dict[str, KeywordCheck]] = {
    "$ref": _check_reference,
    "$dynamicRef": _check_reference,
    "$recursiveRef": _check_reference,
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "anyOf": _check_any_of,
    "oneOf": _check_one_of,
    "not": _check_not,
    "if": _check_if,
    "contains": _check_contains,
    "enum": _check_enum,
    "const": _check_const,
    "uniqueItems": _check_unique_items,
    "unevaluatedProperties": _check_unevaluated_properties,
    "unevaluatedItems": _check_unevaluated_items,
}
