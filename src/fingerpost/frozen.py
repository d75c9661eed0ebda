"""Immutable records that are fast to define and to create.

`@frozen` is like `@dataclass(frozen=True, slots=True)` with two optimizations. `dataclass` compiles five
functions for every class, which took a tenth of our startup time; here each is compiled on first use. And its
frozen `__init__` sets every field with `object.__setattr__`, which takes three times as long as `self.field =
value`; here an instance has a mutable twin class during `__init__` and the frozen class afterwards. Only the
first two instances of a class are made without compiling anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from inspect import get_annotations
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, NoReturn, TypeVar, cast, dataclass_transform, overload

T = TypeVar("T")

MAX_SHOWN = 80  # characters of one attribute in a short repr
TWIN_MARK = "__is_a_twin__"
_set_class = object.__dict__["__class__"].__set__


@overload
def frozen(record: type[T], /) -> type[T]: ...


@overload
def frozen(*, kw_only: bool = True, eq: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(record: type[Any] | None = None, /, *, kw_only: bool = True, eq: bool = True) -> Any:
    """Make a class a frozen record. With `eq=False` an instance is equal only to itself."""
    if record is None:
        return partial(_build_record, kw_only=kw_only, eq=eq)
    return _build_record(record, kw_only=kw_only, eq=eq)


def copy_fields(record: type[T], source: object, **more: object) -> T:
    """Build a record from the fields of the same names in `source`; `more` are the others."""
    names = (part.name for part in fields(cast("Any", record)) if part.name not in more)
    return record(**{name: getattr(source, name) for name in names if hasattr(source, name)}, **more)


def _build_record(given: type[Any], *, kw_only: bool, eq: bool) -> type[Any]:
    own = set(given.__dict__)
    if given.__dict__.get("__hash__") is None:
        own.discard("__hash__")  # not defined by the class: Python sets None if there is an `__eq__`
    if given.__doc__ is None:
        given.__doc__ = given.__name__  # otherwise dataclasses would generate one
    record = _build_dataclass(given, kw_only=kw_only)
    shared: dict[str, Any] = {
        "__setattr__": _refuse_setattr,
        "__delattr__": _refuse_delattr,
        "__repr__": _format_repr,
        "__getstate__": _get_state,
        "__setstate__": _set_state,
        "__init__": _set_first_instances(record),
    }
    if eq:
        shared["__eq__"] = _build_on_first_use(record, "__eq__", _build_eq)
        shared["__hash__"] = _build_on_first_use(record, "__hash__", _build_hash)
    for name, function in shared.items():
        if name not in own:
            setattr(record, name, function)
    if "__init__" not in own:
        _records.append(record)
    return record


def _build_dataclass(given: type[Any], *, kw_only: bool) -> type[Any]:
    """Build a dataclass without methods. It looks for `ClassVar` and `InitVar` in annotations that are text,
    half of its work, so it gets others where these words occur nowhere.
    """
    written: dict[str, Any] = get_annotations(given)
    is_plain = not any("Var" in str(text) or "KW_ONLY" in str(text) for text in written.values())
    if is_plain:
        given.__annotations__ = dict.fromkeys(written, object)
    record = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(given)
    if is_plain:
        record.__annotations__ = written
        for item in fields(record):
            item.type = written.get(item.name, item.type)
    return record


def _build_on_first_use(record: type[Any], name: str, build: Callable[[type[Any]], Any]) -> Any:
    def first(*given: Any, **named: Any) -> Any:
        return _build_method(record, name, build)(*given, **named)

    return first


def _build_method(record: type[Any], name: str, build: Callable[[type[Any]], Any]) -> Any:
    function = build(record)
    function.__qualname__ = f"{record.__qualname__}.{name}"
    setattr(record, name, function)
    return function


_records: Final = list[type[Any]]()  # those with an `__init__` of this module


def compile_inits(*modules: str) -> tuple[type[Any], ...]:
    """Compile `__init__` of all records of these modules now: their third instances would. Return them."""
    found = tuple(record for record in tuple(_records) if record.__module__ in modules)
    for record in found:
        if record.__init__.__qualname__ != f"{record.__qualname__}.__init__":
            _build_method(record, "__init__", _build_init)
    return found


MAX_SLOW_INSTANCES: Final = 2


def _set_first_instances(record: type[Any]) -> Any:
    """Return an `__init__` that compiles another for the third instance: a command makes one or two of most
    records.
    """
    compiled = _build_on_first_use(record, "__init__", _build_init)
    slow = 0

    def first(made: Any, /, *given: Any, **named: Any) -> None:
        nonlocal slow
        slow += 1
        parts = fields(made)
        if slow > MAX_SLOW_INSTANCES or given or type(made) is not record or not _takes(parts, named):
            compiled(made, *given, **named)
            return
        for item in parts:
            if item.name in named:
                object.__setattr__(made, item.name, named[item.name])
            elif item.default_factory is not MISSING:
                object.__setattr__(made, item.name, item.default_factory())
            elif item.default is not MISSING:
                object.__setattr__(made, item.name, item.default)
        if hasattr(record, "__post_init__"):
            made.__post_init__()

    return first


def _takes(parts: tuple[Field[Any], ...], named: Mapping[str, object]) -> bool:
    """Return whether these arguments are valid for the fields."""
    taken = {item.name for item in parts if item.init}
    required = {item.name for item in parts if item.init and not _has_default(item)}
    return required <= named.keys() <= taken


# Methods shared by all records.


def _refuse_setattr(record: object, name: str, value: object) -> NoReturn:
    message = f"cannot assign to field {name!r}"
    raise FrozenInstanceError(message)


def _refuse_delattr(record: object, name: str) -> NoReturn:
    message = f"cannot delete field {name!r}"
    raise FrozenInstanceError(message)


@recursive_repr()
def _format_repr(record: Any) -> str:
    shown = ", ".join(f"{item.name}={getattr(record, item.name)!r}" for item in fields(record) if item.repr)
    return f"{type(record).__qualname__}({shown})"


def build_repr(*names: str) -> Any:
    """Return a `__repr__` that shows these attributes only, each in at most 80 characters.

    `effect.value` is shown as `effect`, a collection by its length if the name ends with `#`.
    """

    def format_attributes(record: Any) -> str:
        shown: list[str] = []
        for name in names:
            value = attrgetter(name.rstrip("#"))(record)
            label = name.partition(".")[0] if "#" not in name else name.rstrip("#").rpartition(".")[2]
            value = len(value) if name.endswith("#") else getattr(value, "value", value)
            text = f"{value:.1f}" if isinstance(value, float) else repr(value)
            shown.append(f"{label}={text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + '…'}")
        return f"{type(record).__qualname__}({', '.join(shown)})"

    return format_attributes


def _get_state(record: Any) -> list[Any]:
    return [getattr(record, item.name) for item in fields(record)]


def _set_state(record: Any, state: list[Any]) -> None:
    for item, value in zip(fields(record), state, strict=True):
        object.__setattr__(record, item.name, value)


# Methods generated for each record class.


def _build_eq(record: type[Any]) -> Any:
    names = [item.name for item in fields(record) if item.compare]
    lines = [
        "def made(self, other):",
        "    if other.__class__ is self.__class__:",
        f"        return {_format_tuple('self', names)} == {_format_tuple('other', names)}",
        "    return NotImplemented",
    ]
    return _compile_function(lines, {})


def _build_hash(record: type[Any]) -> Any:
    names = [item.name for item in fields(record) if (item.compare if item.hash is None else item.hash)]
    return _compile_function(["def made(self):", f"    return hash({_format_tuple('self', names)})"], {})


def _build_init(record: type[Any]) -> Any:
    named: dict[str, Any] = {
        "_turn_into": _set_class,
        "_twin": _build_mutable_twin(record),
        "_record": record,
    }
    named |= {"_set_slowly": _set_fields, "_unset": _UNSET}
    everything = fields(record)
    given = [item for item in everything if item.init]
    by_name = [item for item in given if item.kw_only]
    head = ["self", *(item.name + _format_default(item, named) for item in given if not item.kw_only)]
    if by_name:
        head += ["*", *(item.name + _format_default(item, named) for item in by_name)]
    values = {item.name: _format_value(item, named) for item in everything if item.init or _has_default(item)}
    lines = [
        f"def made({', '.join(head)}):",
        "    _class = self.__class__",
        "    if _class is not _record:",  # a subclass
        f"        _set_slowly(self, {', '.join(f'{name}={value}' for name, value in values.items())})",
        "    else:",
        "        _turn_into(self, _twin)",
        *(f"        self.{name} = {value}" for name, value in values.items()),
        "        self.__class__ = _class",
        *(["    self.__post_init__()"] if hasattr(record, "__post_init__") else []),
    ]
    return _compile_function(lines, named)


def _compile_function(lines: list[str], named: dict[str, Any]) -> Any:
    exec("\n".join(lines), named)  # noqa: S102 - as dataclasses do; all of it is our own text
    return named["made"]


def _format_tuple(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


_UNSET: Any = object()


def _set_fields(made: object, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(made, name, value)


def _has_default(item: Field[Any]) -> bool:
    return item.default is not MISSING or item.default_factory is not MISSING


def _format_default(item: Field[Any], named: dict[str, Any]) -> str:
    """Return the default value of a parameter as source text."""
    if item.default is not MISSING:
        named[f"_default_{item.name}"] = item.default
        return f"=_default_{item.name}"
    return "=_unset" if item.default_factory is not MISSING else ""


def _format_value(item: Field[Any], named: dict[str, Any]) -> str:
    """Return the value of a field as source text."""
    if item.default_factory is not MISSING:
        named[f"_make_{item.name}"] = item.default_factory
        made = f"_make_{item.name}()"
        return f"{made} if {item.name} is _unset else {item.name}" if item.init else made
    return item.name if item.init else _format_default(item, named).removeprefix("=")


def _build_mutable_twin(record: type[Any]) -> type[Any]:
    """Return a class with the same slots that is not frozen."""
    own: dict[str, Any] = {
        "__slots__": record.__dict__["__slots__"],
        "__setattr__": object.__setattr__,  # both are needed, or those of a frozen base class would be used
        "__delattr__": object.__delattr__,
        TWIN_MARK: True,
    }
    if "__orig_bases__" in record.__dict__:  # required for generic classes
        own["__orig_bases__"] = record.__dict__["__orig_bases__"]
    return type(record.__name__, record.__bases__, own)
