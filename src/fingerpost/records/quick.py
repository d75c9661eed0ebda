"""Frozen records that are made as fast as others.

`frozen=True` makes `__init__` set every field by a call of `object.__setattr__`, which takes three
times as long as `self.field = value`. A call of a tool makes some fifty records, so that this was
an eighth of its time. `quick` gives a record another `__init__`: while it is being made it is of a
twin class, alike but not frozen; whoever gets to see it sees it frozen.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, cast

T = TypeVar("T")

TWIN = "__is_a_twin__"
_turn_into = object.__dict__["__class__"].__set__


def quick(record: type[T]) -> type[T]:
    """Stands above `@dataclass(frozen=True, slots=True, …)`."""
    named: dict[str, Any] = {"_turn_into": _turn_into, "_twin": _twin_of(record), "_record": record}
    named |= {"_set_slowly": _set_slowly, "_unset": _UNSET}
    everything = fields(cast("Any", record))
    given = [item for item in everything if item.init]
    by_name = [item for item in given if item.kw_only]
    head = ["self", *(item.name + _default(item, named) for item in given if not item.kw_only)]
    if by_name:
        head += ["*", *(item.name + _default(item, named) for item in by_name)]
    values = {item.name: _value(item, named) for item in everything if item.init or _has_default(item)}
    lines = [
        f"def __init__({', '.join(head)}):",
        "    made = self.__class__",
        "    if made is not _record:",  # a class below this one
        f"        _set_slowly(self, {', '.join(f'{name}={value}' for name, value in values.items())})",
        "    else:",
        "        _turn_into(self, _twin)",
        *(f"        self.{name} = {value}" for name, value in values.items()),
        "        self.__class__ = made",
        *(["    self.__post_init__()"] if hasattr(record, "__post_init__") else []),
    ]
    exec("\n".join(lines), named)  # noqa: S102 - as dataclasses do; all of it is our own text
    made = named["__init__"]
    made.__qualname__ = f"{record.__qualname__}.__init__"
    made.__annotations__ = record.__dict__["__init__"].__annotations__
    cast("Any", record).__init__ = made
    return record


_UNSET: Any = object()


def _set_slowly(made: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(made, name, value)


def _has_default(item: Field[Any]) -> bool:
    return item.default is not MISSING or item.default_factory is not MISSING


def _default(item: Field[Any], named: dict[str, Any]) -> str:
    """What stands behind the name of an argument."""
    if item.default is not MISSING:
        named[f"_default_{item.name}"] = item.default
        return f"=_default_{item.name}"
    return "=_unset" if item.default_factory is not MISSING else ""


def _value(item: Field[Any], named: dict[str, Any]) -> str:
    """What a field is set to."""
    if item.default_factory is not MISSING:
        named[f"_make_{item.name}"] = item.default_factory
        made = f"_make_{item.name}()"
        return f"{made} if {item.name} is _unset else {item.name}" if item.init else made
    return item.name if item.init else _default(item, named).removeprefix("=")


def _twin_of(record: type[Any]) -> type[Any]:
    """The same fields in the same places, and not frozen."""
    own: dict[str, Any] = {
        "__slots__": record.__dict__["__slots__"],
        "__setattr__": object.__setattr__,  # both, or a frozen base would still be asked
        "__delattr__": object.__delattr__,
        TWIN: True,
    }
    return type(record.__name__, record.__bases__, own)
