"""From plain values to the model, or to problems a person can act on.

Values are checked strictly, as JSON: `"30"` is text, not a number. Guessing
would hide the mistake until the guess is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from fingerpost.frozen import frozen
from fingerpost.records import check_json
from fingerpost.settings.document import as_list, as_table
from fingerpost.settings.environment import get_variable_name
from fingerpost.settings.fields import describe_expected, get_choices, get_section, iterate_fields, strip_none
from fingerpost.settings.model import ProfileSettings, Section, ServerSettings, Settings
from fingerpost.settings.problems import (
    KeyPath,
    Problem,
    ValueOrigin,
    find_nearest,
    format_path,
    format_value,
)

S = TypeVar("S", bound=Section)

# Whose settings a file of its own, or one entry, holds.
_SECTION_SUFFIXES: Final[Mapping[type[Section], str]] = {
    ServerSettings: " of a server",
    ProfileSettings: " of a profile",
}

_TRANSPORT_HINT: Final = 'a url takes "http" or "sse", a command "stdio"; servers are reached in no other way'


@frozen(kw_only=False)
class ValidationContext:
    """How to say where a path of the validated values is: its origin, and its full name."""

    origin: Callable[[KeyPath], ValueOrigin]
    prefix: KeyPath = ()

    def build_problem(self, path: KeyPath, message: str, fix: str) -> Problem:
        return Problem(
            message=message, fix=fix, path=format_path((*self.prefix, *path)), origin=self.origin(path)
        )


def validate(
    model: type[S], values: Mapping[str, object], context: ValidationContext
) -> tuple[S | None, tuple[Problem, ...]]:
    """`values` as `model`; None with the problems when they are not one."""
    problems = tuple(
        context.build_problem(
            path, f"{reason}, which no setting takes", "write text in quotes, or a plain number"
        )
        for path, reason in _find_unusable(values)
    )
    if problems:
        return None, problems
    try:
        return model.model_validate_json(json.dumps(values), strict=True), ()
    except ValidationError as error:
        details = error.errors(include_url=False)
        return None, tuple(_explain_error(model, values, detail, context) for detail in details)


def _find_unusable(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Values no setting can hold, such as dates, half characters and infinities."""
    todo: list[tuple[object, KeyPath]] = [(value, path)]
    while todo:
        node, here = todo.pop()
        if (entries := as_table(node)) is not None:
            todo += [(entry, (*here, key)) for key, entry in entries.items()]
        elif listed := as_list(node):
            todo += [(item, (*here, index)) for index, item in enumerate(listed)]
        elif (reason := check_json(node)) is not None:
            yield here, reason


def _explain_error(
    model: type[Section], values: Mapping[str, object], detail: ErrorDetails, context: ValidationContext
) -> Problem:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        message, fix = _explain_unknown_name(model, path)
        return context.build_problem(path, message, fix)
    field = get_field(model, path)
    full = (*context.prefix, *path)
    if detail["type"] == "missing" or field is None:
        return context.build_problem(
            path, "is missing", f"add {_format_example(full, field, context.origin(path))}"
        )
    wanted = describe_expected(field) if _is_field(model, path) else "text"
    value = _get_value(values, path)
    message = f"must be {wanted}, not {format_value(value, full)}"
    if (model, path) == (ServerSettings, ("transport",)):
        return context.build_problem(path, message, _TRANSPORT_HINT)
    return context.build_problem(
        path, message, f"write {_format_example(full, field, context.origin(path), given=value)}"
    )


def _explain_unknown_name(model: type[Section], path: KeyPath) -> tuple[str, str]:
    name = str(path[-1])
    inside = path[:-1]
    section = _get_section(model, inside)
    known = section.model_fields if section else {}
    message = (
        f"is not a setting of [{format_path(inside)}]"
        if inside
        else f"is not a setting{_SECTION_SUFFIXES.get(model, '')}"
    )
    for leaf in iterate_fields() if model is Settings else ():
        if leaf.path[-1] == name:
            return message, f"it belongs in [{format_path(leaf.path[:-1])}]"
    if near := find_nearest(name, known):
        return message, f"did you mean {near}?"
    return message, f"remove it; known here: {', '.join(known)}"


def get_field(model: type[Section], path: KeyPath) -> FieldInfo | None:
    """The field of the model that the path leads to, or into."""
    field: FieldInfo | None = None
    section: type[Section] | None = model
    named = False  # the next part is a name the person chose
    for part in path:
        if section is None or isinstance(part, int) or named:
            named = False
            continue
        field = section.model_fields.get(part)
        if field is None:
            return None
        section = get_section(field) or _get_item_section(field)
        named = section is not None and get_origin(strip_none(field.annotation)) is dict
    return field


def _get_section(model: type[Section], path: KeyPath) -> type[Section] | None:
    if not path:
        return model
    field = get_field(model, path)
    return None if field is None else get_section(field) or _get_item_section(field)


def _get_item_section(field: FieldInfo) -> type[Section] | None:
    """`X` of a field that holds `tuple[X, ...]`, or `dict[str, X]`."""
    kind = strip_none(field.annotation)
    place = {tuple: 0, dict: 1}.get(get_origin(kind))
    first: Any = None if place is None else get_args(kind)[place]
    return first if isinstance(first, type) and issubclass(first, Section) else None


def _is_field(model: type[Section], path: KeyPath) -> bool:
    """Whether the path ends at a field, not at an item of one."""
    return path == () or get_field(model, path) is not get_field(model, path[:-1])


def _get_value(values: object, path: KeyPath) -> object:
    for part in path:
        entries = as_table(values)
        if entries is not None:
            values = entries.get(str(part))
        elif isinstance(part, int):
            values = as_list(values)[part]
    return values


def _format_example(
    path: KeyPath, field: FieldInfo | None, origin: ValueOrigin, *, given: object = None
) -> str:
    """The setting as it could be written where it was written; a switch as it was meant."""
    names = tuple(part for part in path if isinstance(part, str))
    value = _format_sample(field)
    if field is not None and strip_none(field.annotation) is bool:
        value = _MEANT_SWITCHES.get(str(given).strip().lower(), value)
    if origin.kind == "environment":
        known = [leaf for leaf in iterate_fields() if leaf.path == names]
        name = get_variable_name(names) if known else origin.name
        return f"{name}={value.strip(chr(34))}"
    name = names[-1] if names else ""
    in_json = origin.file is not None and not origin.file.endswith(".toml")
    return (
        f'"{name}": {value.replace("NAME =", json.dumps("NAME") + ":")}' if in_json else f"{name} = {value}"
    )


def _format_sample(field: FieldInfo | None) -> str:
    if field is None:
        return '"…"'
    default: object = field.default
    if isinstance(default, bool | int | float | str):
        return json.dumps(default)
    kind = strip_none(field.annotation)
    if get_origin(kind) is tuple:
        return '["…"]'
    if get_origin(kind) is dict:
        return '{ NAME = "…" }'
    if choices := get_args(kind) or get_choices(kind):
        return json.dumps(choices[0])
    return _SAMPLES.get(kind, '"…"')


_MEANT_SWITCHES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("true", "yes", "on", "1", "enabled", "y"), "true"),
    **dict.fromkeys(("false", "no", "off", "0", "disabled", "n", "none"), "false"),
}
_SAMPLES: dict[Any, str] = {bool: "true", int: "10", float: "1.5"}
