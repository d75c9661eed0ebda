"""Records that do not change: quick to define and quick to make.

`@frozen` is `@dataclass(frozen=True, slots=True)` with two differences one can measure. dataclasses write
and compile five functions for every class, which for our hundreds was a tenth of a start; here each is
compiled when it is first needed, if ever. And their frozen `__init__` sets every field by a call of
`object.__setattr__`, which takes three times as long as `self.field = value`; here a record is of a twin
class while it is being made, alike but not frozen, and whoever gets to see it sees it frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from reprlib import recursive_repr
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

T = TypeVar("T")

TWIN = "__is_a_twin__"
_turn_into = object.__dict__["__class__"].__set__


@overload
def frozen(record: type[T], /) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = True, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(record: type[Any] | None = None, /, *, kw_only: bool = True, eq: bool = True) -> Any:
    """Make a class a frozen record. `eq=False`: one is only ever equal to itself."""
    if record is None:
        return partial(_record, kw_only=kw_only, eq=eq)
    return _record(record, kw_only=kw_only, eq=eq)


def _record(given: type[Any], *, kw_only: bool, eq: bool) -> type[Any]:
    own = set(given.__dict__)
    if given.__dict__.get("__hash__") is None:
        own.discard("__hash__")  # not written there: Python's own, beside an `__eq__`
    if given.__doc__ is None:
        given.__doc__ = given.__name__  # or dataclasses would work one out
    record = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(given)
    shared: dict[str, Any] = {
        "__setattr__": _no_setting,
        "__delattr__": _no_deleting,
        "__repr__": _shown,
        "__getstate__": _state,
        "__setstate__": _with_state,
        "__init__": _when_needed(record, "__init__", _init_of),
    }
    if eq:
        shared["__eq__"] = _when_needed(record, "__eq__", _eq_of)
        shared["__hash__"] = _when_needed(record, "__hash__", _hash_of)
    for name, function in shared.items():
        if name not in own:
            setattr(record, name, function)
    return record


def _when_needed(record: type[Any], name: str, made_for: Callable[[type[Any]], Any]) -> Any:
    def first(*given: Any, **named: Any) -> Any:
        function = made_for(record)
        function.__qualname__ = f"{record.__qualname__}.{name}"
        setattr(record, name, function)
        return function(*given, **named)

    return first


# What all records share.


def _no_setting(record: object, name: str, value: object) -> NoReturn:
    message = f"cannot assign to field {name!r}"
    raise FrozenInstanceError(message)


def _no_deleting(record: object, name: str) -> NoReturn:
    message = f"cannot delete field {name!r}"
    raise FrozenInstanceError(message)


@recursive_repr()
def _shown(record: Any) -> str:
    shown = ", ".join(f"{item.name}={getattr(record, item.name)!r}" for item in fields(record) if item.repr)
    return f"{type(record).__qualname__}({shown})"


def _state(record: Any) -> list[Any]:
    return [getattr(record, item.name) for item in fields(record)]


def _with_state(record: Any, state: list[Any]) -> None:
    for item, value in zip(fields(record), state, strict=True):
        object.__setattr__(record, item.name, value)


# What is written for each of them.


def _eq_of(record: type[Any]) -> Any:
    names = [item.name for item in fields(record) if item.compare]
    lines = [
        "def made(self, other):",
        "    if other.__class__ is self.__class__:",
        f"        return {_tuple_of('self', names)} == {_tuple_of('other', names)}",
        "    return NotImplemented",
    ]
    return _compiled(lines, {})


def _hash_of(record: type[Any]) -> Any:
    names = [item.name for item in fields(record) if (item.compare if item.hash is None else item.hash)]
    return _compiled(["def made(self):", f"    return hash({_tuple_of('self', names)})"], {})


def _init_of(record: type[Any]) -> Any:
    named: dict[str, Any] = {"_turn_into": _turn_into, "_twin": _twin_of(record), "_record": record}
    named |= {"_set_slowly": _set_slowly, "_unset": _UNSET}
    everything = fields(record)
    given = [item for item in everything if item.init]
    by_name = [item for item in given if item.kw_only]
    head = ["self", *(item.name + _default(item, named) for item in given if not item.kw_only)]
    if by_name:
        head += ["*", *(item.name + _default(item, named) for item in by_name)]
    values = {item.name: _value(item, named) for item in everything if item.init or _has_default(item)}
    lines = [
        f"def made({', '.join(head)}):",
        "    _class = self.__class__",
        "    if _class is not _record:",  # a class below this one
        f"        _set_slowly(self, {', '.join(f'{name}={value}' for name, value in values.items())})",
        "    else:",
        "        _turn_into(self, _twin)",
        *(f"        self.{name} = {value}" for name, value in values.items()),
        "        self.__class__ = _class",
        *(["    self.__post_init__()"] if hasattr(record, "__post_init__") else []),
    ]
    return _compiled(lines, named)


def _compiled(lines: list[str], named: dict[str, Any]) -> Any:
    exec("\n".join(lines), named)  # noqa: S102 - as dataclasses do; all of it is our own text
    return named["made"]


def _tuple_of(whose: str, names: list[str]) -> str:
    return "(" + "".join(f"{whose}.{name}, " for name in names) + ")"


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
    if "__orig_bases__" in record.__dict__:  # a generic class insists on them
        own["__orig_bases__"] = record.__dict__["__orig_bases__"]
    return type(record.__name__, record.__bases__, own)
