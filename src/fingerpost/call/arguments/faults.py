"""What is wrong with arguments, said so that the next try succeeds.

One error for each parameter, of three kinds: missing, wrong type, bad value.
Each names the parameter, what was expected and what was given.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

from jsonschema.exceptions import ValidationError

from fingerpost.call.arguments.names import normal
from fingerpost.call.arguments.plan import Plan
from fingerpost.call.arguments.shapes import Shape
from fingerpost.call.arguments.signature import expectation
from fingerpost.call.arguments.values import shortened, shown, type_of
from fingerpost.records import Json, ParameterError, ParameterFault

MOST_FAULTS: Final = 20
LONGEST_MESSAGE: Final = 320
_NEAR: Final = 3
_ORDER: Final = (ParameterFault.MISSING, ParameterFault.WRONG_TYPE, ParameterFault.BAD_VALUE)

_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "text matching {}",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
}


def explain(plan: Plan, errors: list[ValidationError]) -> tuple[ParameterError, ...]:
    """The library's errors as ours: one for each parameter, the most telling first."""
    found: dict[str, ParameterError] = {}
    for error in errors:
        for fault in _faults(plan, error):
            known = found.get(fault.parameter)
            if known is None or _ORDER.index(fault.fault) < _ORDER.index(known.fault):
                found[fault.parameter] = fault
    return tuple(found.values())[:MOST_FAULTS]


def _faults(plan: Plan, error: ValidationError) -> Iterator[ParameterError]:
    place = dotted(error.absolute_path)
    keyword = cast("str | None", error.validator)
    value = cast("Json", error.instance)
    if keyword in ("required", "dependentRequired"):
        yield from _missing(plan, error, place)
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        yield from _unexpected(plan, error, place)
    elif keyword in ("anyOf", "oneOf") and error.context:
        yield _no_branch(plan, error, place)
    elif keyword == "type":
        yield wrong_type(plan, place, _shape_of(plan, error), value)
    else:
        expected = _bound(plan, error, keyword)
        yield bad_value(place, expected, value)


def _shape_of(plan: Plan, error: ValidationError) -> Shape:
    return plan.shapes.of(cast("Json", error.schema))


def _missing(plan: Plan, error: ValidationError, place: str) -> Iterator[ParameterError]:
    shape = _shape_of(plan, error)
    given = cast("dict[str, Json]", error.instance)
    wanted = cast("list[str] | dict[str, list[str]]", error.validator_value)
    groups = [wanted] if isinstance(wanted, list) else [wanted[key] for key in wanted if key in given]
    for name in (name for group in groups for name in group if name not in given):
        yield missing(plan, join(place, name), plan.shapes.of(shape.properties.get(name)))


def _unexpected(plan: Plan, error: ValidationError, place: str) -> Iterator[ParameterError]:
    shape = _shape_of(plan, error)
    given = cast("dict[str, Json]", error.instance)
    unknown = (key for key in given if key not in shape.properties)
    for key in islice(unknown, MOST_FAULTS):
        yield unknown_key(shape, place, key)


def _no_branch(plan: Plan, error: ValidationError, place: str) -> ParameterError:
    """None of the alternatives fits: say what they are, or what the nearest of them lacks."""
    context = list(error.context or ())
    shape = _shape_of(plan, error)
    value = cast("Json", error.instance)
    if all(each.validator == "type" and not each.relative_path for each in context):
        return wrong_type(plan, place, shape, value)
    closest = _closest(context)
    if len(closest) == 1 and closest[0].validator not in ("anyOf", "oneOf"):
        return next(_faults(plan, closest[0]), bad_value(place, expectation(plan, shape), value))
    return bad_value(place, expectation(plan, shape), value)


def _closest(context: list[ValidationError]) -> list[ValidationError]:
    """What is wrong under the alternative with the fewest complaints that is of the right type at all."""
    branches: dict[object, list[ValidationError]] = {}
    for each in context:
        branches.setdefault(each.relative_schema_path[0], []).append(each)
    typed = [
        found
        for found in branches.values()
        if not any(each.validator == "type" and not each.relative_path for each in found)
    ]
    return min(typed or list(branches.values()), key=len)


def _bound(plan: Plan, error: ValidationError, keyword: str | None) -> str:
    wanted = shortened(str(cast("object", error.validator_value)), 80)
    if keyword in _BOUNDS:
        return _BOUNDS[keyword].format(wanted)
    if keyword == "uniqueItems":
        return "items that all differ"
    if keyword in ("enum", "const"):
        shape = _shape_of(plan, error)
        return f"{'one of ' if len(shape.choices) > 1 else ''}{expectation(plan, shape)}"
    if keyword == "oneOf":
        return "a value that fits exactly one of the alternatives"
    return f"a value allowed by `{keyword}`" if keyword else "nothing here: the schema allows no value"


def missing(plan: Plan, parameter: str, shape: Shape) -> ParameterError:
    about = shortened(" ".join(shape.description.split()), 100)
    told = f" ({about})" if about else ""
    return _error(
        ParameterFault.MISSING,
        parameter,
        f"{parameter} is missing: expected {expectation(plan, shape)}{told}",
    )


def wrong_type(plan: Plan, parameter: str, shape: Shape, value: Json) -> ParameterError:
    given = (
        f"{type_of(value)} {shown(parameter, value)}"
        if not isinstance(value, dict | list)
        else shown(parameter, value)
    )
    expected = expectation(plan, shape)
    return _error(
        ParameterFault.WRONG_TYPE,
        parameter,
        f"{parameter or 'the arguments'}: expected {expected}, given {given}",
    )


def bad_value(parameter: str, expected: str, value: Json) -> ParameterError:
    message = f"{parameter or 'the arguments'}: expected {expected}, given {shown(parameter, value)}"
    return _error(ParameterFault.BAD_VALUE, parameter, message)


def unknown_key(shape: Shape, place: str, key: str) -> ParameterError:
    near = near_names(shape, key)
    advice = f"did you mean {', '.join(near)}?" if near else "there is no such parameter"
    path = join(place, shortened(key, 80))
    return _error(ParameterFault.BAD_VALUE, path, f"{path} is not a parameter of this tool: {advice}")


def near_names(shape: Shape, key: str) -> list[str]:
    names = {normal(name): name for name in list(shape.properties)[:200]}
    close = difflib.get_close_matches(normal(key[:80]), list(names), n=_NEAR, cutoff=0.5)
    return [names[name] for name in close] or list(shape.properties)[:8]


def _error(fault: ParameterFault, parameter: str, message: str) -> ParameterError:
    return ParameterError(fault=fault, parameter=parameter, message=shortened(message, LONGEST_MESSAGE))


def dotted(path: Any) -> str:
    """`filters.tags[2]`: how a person would write the place."""
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else join(text, str(part))
    return text


def join(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name
