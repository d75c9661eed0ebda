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
class Leaf:
    """One setting that holds a single value."""

    path: tuple[str, ...]
    field: FieldInfo

    @property
    def kind(self) -> Any:
        """The type without `| None`."""
        return without_none(self.field.annotation)


def leaves(section: type[Section] = Settings, prefix: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every setting that holds a single value, in the order of the model."""
    for name, field in section.model_fields.items():
        path = (*prefix, name)
        inner = section_of(field)
        if inner is not None:
            yield from leaves(inner, path)
        elif path[0] not in OPEN_TABLES:
            yield Leaf(path, field)


def section_of(field: FieldInfo) -> type[Section] | None:
    """The section a field holds, if it holds one."""
    kind = without_none(field.annotation)
    return kind if isinstance(kind, type) and issubclass(kind, Section) else None


def without_none(annotation: Any) -> Any:
    """`X` of `X | None`."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else annotation
    return annotation


def expected(field: FieldInfo) -> str:
    """What a field takes, in words: `a number from 0 to 2`."""
    kind = without_none(field.annotation)
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind))
    if choices := choices_of(kind):
        return _one_of(choices)
    if isinstance(kind, type) and issubclass(kind, Section):
        return "a table"
    if get_origin(kind) is tuple:
        return "a list"
    if get_origin(kind) is dict:
        return "a table"
    return _WORDS.get(kind, "another kind of value") + _bounds(field)


def choices_of(kind: Any) -> tuple[object, ...]:
    """The values of an enumeration; none for any other type."""
    return tuple(member.value for member in kind) if isinstance(kind, type) and issubclass(kind, Enum) else ()


def _one_of(values: Iterable[object]) -> str:
    return "one of " + ", ".join(f'"{value}"' for value in values)


def _bounds(field: FieldInfo) -> str:
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


_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}
