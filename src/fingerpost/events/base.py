"""An event is one fact that happened. Facts do not change, so events are frozen.

The kind of an event is its class name in small letters (`ToolSelected` is
`tool_selected`); its fields are its contents; `version` grows when the meaning
of a field changes. Secrets are masked while the event is being made: there is
no moment at which an event holds one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from operator import is_
from types import NoneType
from typing import (
    Any,
    ClassVar,
    Final,
    Protocol,
    TypeAlias,
    cast,
    get_args,
    get_type_hints,
    runtime_checkable,
)

from fingerpost.frozen import TWIN, frozen
from fingerpost.records import new_id, utc_now
from fingerpost.redaction import names_secret, scrub, scrub_json

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


@frozen
class Event:
    """The base of all events: when it happened, and to which packet if to one."""

    kind: ClassVar[str] = "event"
    version: ClassVar[int] = 1
    audited: ClassVar[bool] = False  # also kept in the hash-chained audit trail
    kinds: ClassVar[dict[str, type[Event]]] = {}

    event_id: str = field(default_factory=lambda: new_id("evt"))
    at: datetime = field(default_factory=utc_now)
    packet_id: str | None = None

    def __init_subclass__(cls) -> None:
        if TWIN in cls.__dict__:
            return
        cls.kind = _WORD_START.sub("_", cls.__name__).lower()
        Event.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        kind = type(self)
        for name in _names.get(kind) or _names_of(kind):
            value = getattr(self, name)
            if not value:
                continue  # nothing, so no secret
            masked = scrub(value) if type(value) is str else _masked(value)
            if masked is not value:
                object.__setattr__(self, name, masked)

    def summary(self) -> str:
        """The event in one short line for a person."""
        return ""


# Events are made many times a call. What to do with a value is worked out once for each type.

_Masker: TypeAlias = Callable[[Any], Any]
_names: dict[type[Any], tuple[str, ...]] = {}
_maskers: dict[type[Any], _Masker | None] = {}


def _names_of(record: type[Any]) -> tuple[str, ...]:
    """The fields of a record that could hold a secret."""
    found = _names.get(record)
    if found is None:
        hints = get_type_hints(record)
        found = tuple(item.name for item in fields(record) if not _is_harmless(hints[item.name]))
        found = _names[record] = tuple(name for name in found if name not in _IDS)
    return found


def _is_harmless(hint: Any) -> bool:
    """Whether nothing of this type can hold a secret: numbers, moments, choices."""
    kinds = get_args(hint) or (hint,)
    return all(isinstance(kind, type) and issubclass(kind, _HARMLESS) for kind in kinds)


# Of our own making: see `new_id` and `call_fingerprint`.
_IDS: Final = frozenset({"event_id", "packet_id", "call_id", "fingerprint", "call_fingerprint"})
_HARMLESS: Final = (NoneType, bool, int, float, datetime, Enum)


def _masked(value: Any) -> Any:
    """`value` without secrets; the very same object when it holds none."""
    kind = cast("type[Any]", type(value))
    try:
        masker = _maskers[kind]
    except KeyError:
        masker = _maskers[kind] = _masker_for(kind)
    return value if masker is None else masker(value)


def _masker_for(kind: type[Any]) -> _Masker | None:
    if issubclass(kind, _HARMLESS):
        return None
    if issubclass(kind, str):
        return scrub
    if is_dataclass(kind):
        return _masked_record
    if issubclass(kind, tuple):
        return _masked_tuple
    return _masked_json if issubclass(kind, Mapping | list) else None


def _masked_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    masked = tuple([_masked(item) for item in value])
    return value if all(map(is_, masked, value)) else masked


def _masked_json(value: object) -> object:
    if _is_plainly_clean(value):
        return value
    masked = scrub_json(value)
    return value if masked is value or masked == value else masked


def _is_plainly_clean(value: object) -> bool:
    """Whether this is a flat object without secrets, as most arguments are; no: it takes a closer look."""
    if type(value) is not dict:
        return False
    for key, entry in cast("dict[object, object]", value).items():
        if type(entry) is str:
            if type(key) is not str or names_secret(key) or scrub(entry) is not entry:
                return False
        elif type(entry) not in _PLAIN:
            return False
    return True


_PLAIN: Final = frozenset({bool, int, float, NoneType})


def _masked_record(record: Any) -> Any:
    changed: dict[str, object] = {}
    for name in _names_of(cast("type[Any]", type(record))):
        value: object = getattr(record, name)
        masked = _masked(value)
        if masked is not value:
            changed[name] = masked
    return replace(record, **changed) if changed else record


class EventSink(Protocol):
    """Whatever wants to know. `emit` returns at once and never raises for what the sink alone suffers."""

    def emit(self, event: Event) -> None: ...


@runtime_checkable
class Gathering(EventSink, Protocol):
    """A sink that takes several events at once for less than each of them."""

    def emit_all(self, events: Sequence[Event]) -> None:
        """In order. What of them cannot be taken is refused when the others were."""
        ...
