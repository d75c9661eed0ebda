"""The settings model seen as a list of fields: what can be set by a single value, and of which kind."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from fingerpost.frozen import frozen
from fingerpost.settings.model import Section, Settings

# Tables whose names the person chooses; they are written in files, not in single variables.
LISTS_OF_TABLES = ("policy", "tools", "rollout")
OPEN_TABLES = frozenset({"plans", "profiles", "servers", *LISTS_OF_TABLES})


@frozen(kw_only=False)
class SettingField:
    """One setting that holds a single value."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def kind(self) -> Any:
        """The type without `| None`."""
        return strip_none(self.field.annotation)


def iterate_fields(section: type[Section] = Settings, prefix: tuple[str, ...] = ()) -> Iterator[SettingField]:
    """Every setting that holds a single value, in the order of the model."""
    for name, field in section.model_fields.items():
        path = (*prefix, name)
        inner = get_section(field)
        if inner is not None:
            yield from iterate_fields(inner, path)
        elif path[0] not in OPEN_TABLES:
            yield SettingField(path, field)


def get_section(field: FieldInfo) -> type[Section] | None:
    """The section a field holds, if it holds one."""
    kind = strip_none(field.annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def strip_none(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else annotation
    return annotation


def describe_expected(field: FieldInfo) -> str:
    """What a field takes, in words: `a number from 0 to 2`."""
    kind = strip_none(field.annotation)
    if get_origin(kind) is Literal:
        return _format_choices(get_args(kind))
    if choices := get_choices(kind):
        return _format_choices(choices)
    if isinstance(kind, type) and issubclass(kind, Section):
        return "a table"
    if get_origin(kind) is tuple:
        return "a list"
    if get_origin(kind) is dict:
        return "a table"
    return _TYPE_WORDS.get(kind, "another kind of value") + _format_bounds(field)


def get_choices(kind: Any) -> tuple[object, ...]:
    """The values of an enumeration; none for any other type."""
    return tuple(member.value for member in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()


def _format_choices(values: Iterable[object]) -> str:
    return "one of " + ", ".join(f'"{value}"' for value in values)


def _format_bounds(field: FieldInfo) -> str:
    """` from 0 to 2`, out of the limits the model sets."""
    limits: dict[str, Any] = {
        name: getattr(limit, name)
        for limit in field.metadata
        for name in ("ge", "gt", "le", "min_length")
        if hasattr(limit, name)
    }
    if "min_length" in limits:
        return " that is not empty"
    least = f"{limits['ge']:,}" if "ge" in limits else None
    most = f"{limits['le']:,}" if "le" in limits else None
    if "gt" in limits:
        return f" above {limits['gt']:,}" + (f" and at most {most}" if most else "")
    if least and most:
        return f" from {least} to {most}"
    return f" of at least {least}" if least else ""


_TYPE_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}
