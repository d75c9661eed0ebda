"""Prepared arguments, and validation errors with texts that help to correct the next attempt."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from fingerpost.call.arguments.coercion import format_value, shorten
from fingerpost.call.arguments.matches import normalize_name
from fingerpost.call.arguments.tool_schema import ToolSchema, describe_expected
from fingerpost.frozen import frozen
from fingerpost.records import Json, ParameterError, ParameterFault, Repair
from fingerpost.schemas import SchemaNode, get_json_type

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError


@frozen
class PreparedArguments:
    """Arguments that fit the tool's schema, or the errors.

    `repairs` lists the changes that were made, also if errors remain. `notes` lists what could not be checked
    (remote references, unsupported patterns, everything after the step limit); the server checks that itself.
    """

    arguments: dict[str, Json]
    repairs: tuple[Repair, ...] = ()
    errors: tuple[ParameterError, ...] = ()
    signature: str = ""  # empty if there are no errors
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors


MAX_ERRORS: Final = 20
MAX_MESSAGE_LENGTH: Final = 320
_MAX_SUGGESTIONS: Final = 3
_FAULT_ORDER: Final = (ParameterFault.MISSING, ParameterFault.WRONG_TYPE, ParameterFault.BAD_VALUE)

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


def explain_errors(tool_schema: ToolSchema, errors: list[ValidationError]) -> tuple[ParameterError, ...]:
    """Convert the library's errors: one for each parameter, the most helpful first."""
    found: dict[str, ParameterError] = {}
    for error in errors:
        for fault in _explain_error(tool_schema, error):
            known = found.get(fault.parameter)
            if known is None or _FAULT_ORDER.index(fault.fault) < _FAULT_ORDER.index(known.fault):
                found[fault.parameter] = fault
    return tuple(found.values())[:MAX_ERRORS]


def _explain_error(tool_schema: ToolSchema, error: ValidationError) -> Iterator[ParameterError]:
    path = format_path(error.absolute_path)
    keyword = cast("str | None", error.validator)
    value = cast("Json", error.instance)
    if keyword in ("required", "dependentRequired"):
        yield from _explain_missing(tool_schema, error, path)
    elif keyword in ("additionalProperties", "unevaluatedProperties"):
        yield from _explain_unexpected(tool_schema, error, path)
    elif keyword in ("anyOf", "oneOf") and error.context:
        yield _explain_alternatives(tool_schema, error, path)
    elif keyword == "type":
        yield build_type_error(tool_schema, path, _find_node(tool_schema, error), value)
    else:
        expected = _describe_bound(tool_schema, error, keyword)
        yield build_value_error(path, expected, value)


def _find_node(tool_schema: ToolSchema, error: ValidationError) -> SchemaNode:
    return tool_schema.nodes.get_node(cast("Json", error.schema))


def _explain_missing(tool_schema: ToolSchema, error: ValidationError, path: str) -> Iterator[ParameterError]:
    shape = _find_node(tool_schema, error)
    given = cast("dict[str, Json]", error.instance)
    wanted = cast("list[str] | dict[str, list[str]]", error.validator_value)
    groups = [wanted] if isinstance(wanted, list) else [wanted[key] for key in wanted if key in given]
    for name in (name for group in groups for name in group if name not in given):
        yield build_missing_error(
            tool_schema, join_path(path, name), tool_schema.nodes.get_node(shape.properties.get(name))
        )


def _explain_unexpected(
    tool_schema: ToolSchema, error: ValidationError, path: str
) -> Iterator[ParameterError]:
    shape = _find_node(tool_schema, error)
    given = cast("dict[str, Json]", error.instance)
    unknown = (key for key in given if key not in shape.properties)
    for key in islice(unknown, MAX_ERRORS):
        yield build_unknown_key_error(shape, path, key)


def _explain_alternatives(tool_schema: ToolSchema, error: ValidationError, path: str) -> ParameterError:
    """Explain that no alternative fits: list them, or say what the closest one lacks."""
    context = list(error.context or ())
    shape = _find_node(tool_schema, error)
    value = cast("Json", error.instance)
    if all(each.validator == "type" and not each.relative_path for each in context):
        return build_type_error(tool_schema, path, shape, value)
    closest = _find_closest_alternative(context)
    if len(closest) == 1 and closest[0].validator not in ("anyOf", "oneOf"):
        return next(
            _explain_error(tool_schema, closest[0]),
            build_value_error(path, describe_expected(tool_schema, shape), value),
        )
    return build_value_error(path, describe_expected(tool_schema, shape), value)


def _find_closest_alternative(context: list[ValidationError]) -> list[ValidationError]:
    """Return the errors of the alternative with the fewest errors among those of the right type."""
    branches: dict[object, list[ValidationError]] = {}
    for each in context:
        branches.setdefault(each.relative_schema_path[0], []).append(each)
    typed = [
        found
        for found in branches.values()
        if not any(each.validator == "type" and not each.relative_path for each in found)
    ]
    return min(typed or list(branches.values()), key=len)


def _describe_bound(tool_schema: ToolSchema, error: ValidationError, keyword: str | None) -> str:
    wanted = shorten(str(cast("object", error.validator_value)), 80)
    if keyword in _BOUNDS:
        return _BOUNDS[keyword].format(wanted)
    if keyword == "uniqueItems":
        return "items that all differ"
    if keyword in ("enum", "const"):
        shape = _find_node(tool_schema, error)
        return f"{'one of ' if len(shape.choices) > 1 else ''}{describe_expected(tool_schema, shape)}"
    if keyword == "oneOf":
        return "a value that fits exactly one of the alternatives"
    return f"a value allowed by `{keyword}`" if keyword else "nothing here: the schema allows no value"


def build_missing_error(tool_schema: ToolSchema, parameter: str, node: SchemaNode) -> ParameterError:
    about = shorten(" ".join(node.description.split()), 100)
    suffix = f" ({about})" if about else ""
    return _build_error(
        ParameterFault.MISSING,
        parameter,
        f"{parameter} is missing: expected {describe_expected(tool_schema, node)}{suffix}",
    )


def build_type_error(
    tool_schema: ToolSchema, parameter: str, node: SchemaNode, value: Json
) -> ParameterError:
    given = (
        f"{get_json_type(value)} {format_value(parameter, value)}"
        if not isinstance(value, dict | list)
        else format_value(parameter, value)
    )
    expected = describe_expected(tool_schema, node)
    return _build_error(
        ParameterFault.WRONG_TYPE,
        parameter,
        f"{parameter or 'the arguments'}: expected {expected}, given {given}",
    )


def build_value_error(parameter: str, expected: str, value: Json) -> ParameterError:
    message = f"{parameter or 'the arguments'}: expected {expected}, given {format_value(parameter, value)}"
    return _build_error(ParameterFault.BAD_VALUE, parameter, message)


def build_unknown_key_error(node: SchemaNode, parent: str, key: str) -> ParameterError:
    near = find_near_names(node, key)
    advice = f"did you mean {', '.join(near)}?" if near else "there is no such parameter"
    path = join_path(parent, shorten(key, 80))
    return _build_error(ParameterFault.BAD_VALUE, path, f"{path} is not a parameter of this tool: {advice}")


def find_near_names(node: SchemaNode, key: str) -> list[str]:
    names = {normalize_name(name): name for name in list(node.properties)[:200]}
    close = difflib.get_close_matches(normalize_name(key[:80]), list(names), n=_MAX_SUGGESTIONS, cutoff=0.5)
    return [names[name] for name in close] or list(node.properties)[:8]


def _build_error(fault: ParameterFault, parameter: str, message: str) -> ParameterError:
    return ParameterError(fault=fault, parameter=parameter, message=shorten(message, MAX_MESSAGE_LENGTH))


def format_path(path: Any) -> str:
    """Format a path such as `filters.tags[2]`."""
    text = ""
    for part in path:
        text = f"{text}[{part}]" if isinstance(part, int) else join_path(text, str(part))
    return text


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
