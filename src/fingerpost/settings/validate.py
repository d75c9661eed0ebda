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
from fingerpost.settings.document import items, table
from fingerpost.settings.environment import variable_of
from fingerpost.settings.fields import choices_of, expected, leaves, section_of, without_none
from fingerpost.settings.model import ProfileSettings, Section, ServerSettings, Settings
from fingerpost.settings.problems import KeyPath, Origin, Problem, dotted, nearest, shown

S = TypeVar("S", bound=Section)

# Whose settings a file of its own, or one entry, holds.
_OF: Final[Mapping[type[Section], str]] = {ServerSettings: " of a server", ProfileSettings: " of a profile"}

_TRANSPORTS: Final = 'a url takes "http" or "sse", a command "stdio"; servers are reached in no other way'


@frozen(kw_only=False)
class Whereabouts:
    """How to say where a path of the validated values is: its origin, and its full name."""

    origin: Callable[[KeyPath], Origin]
    prefix: KeyPath = ()

    def problem(self, path: KeyPath, message: str, fix: str) -> Problem:
        return Problem(message=message, fix=fix, path=dotted((*self.prefix, *path)), origin=self.origin(path))


def validate(
    model: type[S], values: Mapping[str, object], where: Whereabouts
) -> tuple[S | None, tuple[Problem, ...]]:
    """`values` as `model`; None with the problems when they are not one."""
    problems = tuple(
        where.problem(path, f"{reason}, which no setting takes", "write text in quotes, or a plain number")
        for path, reason in _strange(values)
    )
    if problems:
        return None, problems
    try:
        return model.model_validate_json(json.dumps(values), strict=True), ()
    except ValidationError as error:
        details = error.errors(include_url=False)
        return None, tuple(_explain(model, values, detail, where) for detail in details)


def _strange(value: object, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Values no setting can hold, such as dates, half characters and infinities."""
    todo: list[tuple[object, KeyPath]] = [(value, path)]
    while todo:
        node, here = todo.pop()
        if (entries := table(node)) is not None:
            todo += [(entry, (*here, key)) for key, entry in entries.items()]
        elif listed := items(node):
            todo += [(item, (*here, index)) for index, item in enumerate(listed)]
        elif (reason := check_json(node)) is not None:
            yield here, reason


def _explain(
    model: type[Section], values: Mapping[str, object], detail: ErrorDetails, where: Whereabouts
) -> Problem:
    path = tuple(part for part in detail["loc"] if part != "[key]")
    if detail["type"] == "extra_forbidden":
        message, fix = _unknown_name(model, path)
        return where.problem(path, message, fix)
    field = field_at(model, path)
    full = (*where.prefix, *path)
    if detail["type"] == "missing" or field is None:
        return where.problem(path, "is missing", f"add {_example(full, field, where.origin(path))}")
    wanted = expected(field) if _is_field(model, path) else "text"
    value = _at(values, path)
    message = f"must be {wanted}, not {shown(value, full)}"
    if (model, path) == (ServerSettings, ("transport",)):
        return where.problem(path, message, _TRANSPORTS)
    return where.problem(path, message, f"write {_example(full, field, where.origin(path), given=value)}")


def _unknown_name(model: type[Section], path: KeyPath) -> tuple[str, str]:
    name = str(path[-1])
    inside = path[:-1]
    section = _section_at(model, inside)
    known = section.model_fields if section else {}
    message = f"is not a setting of [{dotted(inside)}]" if inside else f"is not a setting{_OF.get(model, '')}"
    for leaf in leaves() if model is Settings else ():
        if leaf.path[-1] == name:
            return message, f"it belongs in [{dotted(leaf.path[:-1])}]"
    if near := nearest(name, known):
        return message, f"did you mean {near}?"
    return message, f"remove it; known here: {', '.join(known)}"


def field_at(model: type[Section], path: KeyPath) -> FieldInfo | None:
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
        section = section_of(field) or _item_section(field)
        named = section is not None and get_origin(without_none(field.annotation)) is dict
    return field


def _section_at(model: type[Section], path: KeyPath) -> type[Section] | None:
    if not path:
        return model
    field = field_at(model, path)
    return None if field is None else section_of(field) or _item_section(field)


def _item_section(field: FieldInfo) -> type[Section] | None:
    """`X` of a field that holds `tuple[X, ...]`, or `dict[str, X]`."""
    kind = without_none(field.annotation)
    place = {tuple: 0, dict: 1}.get(get_origin(kind))
    first: Any = None if place is None else get_args(kind)[place]
    return first if isinstance(first, type) and issubclass(first, Section) else None


def _is_field(model: type[Section], path: KeyPath) -> bool:
    """Whether the path ends at a field, not at an item of one."""
    return path == () or field_at(model, path) is not field_at(model, path[:-1])


def _at(values: object, path: KeyPath) -> object:
    for part in path:
        entries = table(values)
        if entries is not None:
            values = entries.get(str(part))
        elif isinstance(part, int):
            values = items(values)[part]
    return values


def _example(path: KeyPath, field: FieldInfo | None, origin: Origin, *, given: object = None) -> str:
    """The setting as it could be written where it was written; a switch as it was meant."""
    names = tuple(part for part in path if isinstance(part, str))
    value = _sample(field)
    if field is not None and without_none(field.annotation) is bool:
        value = _MEANT.get(str(given).strip().lower(), value)
    if origin.kind == "environment":
        known = [leaf for leaf in leaves() if leaf.path == names]
        name = variable_of(names) if known else origin.name
        return f"{name}={value.strip(chr(34))}"
    name = names[-1] if names else ""
    in_json = origin.file is not None and not origin.file.endswith(".toml")
    return (
        f'"{name}": {value.replace("NAME =", json.dumps("NAME") + ":")}' if in_json else f"{name} = {value}"
    )


def _sample(field: FieldInfo | None) -> str:
    if field is None:
        return '"…"'
    default: object = field.default
    if isinstance(default, bool | int | float | str):
        return json.dumps(default)
    kind = without_none(field.annotation)
    if get_origin(kind) is tuple:
        return '["…"]'
    if get_origin(kind) is dict:
        return '{ NAME = "…" }'
    if choices := get_args(kind) or choices_of(kind):
        return json.dumps(choices[0])
    return _SAMPLES.get(kind, '"…"')


_MEANT: Final[Mapping[str, str]] = {
    **dict.fromkeys(("true", "yes", "on", "1", "enabled", "y"), "true"),
    **dict.fromkeys(("false", "no", "off", "0", "disabled", "n", "none"), "false"),
}
_SAMPLES: dict[Any, str] = {bool: "true", int: "10", float: "1.5"}
