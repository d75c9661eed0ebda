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

from fingerpost.frozen import TWIN_MARK, frozen
from fingerpost.records import create_id, utc_now
from fingerpost.redaction import is_secret_name, scrub, scrub_json

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


@frozen
class Event:
    """The base of all events: when it happened, and to which packet if to one."""

    kind: ClassVar[str] = "event"
    version: ClassVar[int] = 1
    audited: ClassVar[bool] = False  # also kept in the hash-chained audit trail
    kinds: ClassVar[dict[str, type[Event]]] = {}

    event_id: str = field(default_factory=lambda: create_id("evt"))
    at: datetime = field(default_factory=utc_now)
    packet_id: str | None = None

    def __init_subclass__(cls) -> None:
        if TWIN_MARK in cls.__dict__:
            return
        cls.kind = _WORD_START.sub("_", cls.__name__).lower()
        Event.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        kind = type(self)
        for name in _secret_fields.get(kind) or _get_secret_fields(kind):
            value = getattr(self, name)
            if not value:
                continue  # nothing, so no secret
            masked = scrub(value) if type(value) is str else _mask(value)
            if masked is not value:
                object.__setattr__(self, name, masked)

    def summary(self) -> str:
        """The event in one short line for a person."""
        return ""


# Events are made many times a call. What to do with a value is worked out once for each type.

_Masker: TypeAlias = Callable[[Any], Any]
_secret_fields: dict[type[Any], tuple[str, ...]] = {}
_maskers: dict[type[Any], _Masker | None] = {}


def _get_secret_fields(record: type[Any]) -> tuple[str, ...]:
    """The fields of a record that could hold a secret."""
    found = _secret_fields.get(record)
    if found is None:
        hints = get_type_hints(record)
        found = tuple(item.name for item in fields(record) if not _is_harmless_type(hints[item.name]))
        found = _secret_fields[record] = tuple(name for name in found if name not in _ID_FIELDS)
    return found


def _is_harmless_type(hint: Any) -> bool:
    """Whether nothing of this type can hold a secret: numbers, moments, choices."""
    kinds = get_args(hint) or (hint,)
    return all(isinstance(kind, type) and issubclass(kind, _HARMLESS_TYPES) for kind in kinds)


# Of our own making: see `new_id` and `call_fingerprint`.
_ID_FIELDS: Final = frozenset({"event_id", "packet_id", "call_id", "fingerprint", "call_fingerprint"})
_HARMLESS_TYPES: Final = (NoneType, bool, int, float, datetime, Enum)


def _mask(value: Any) -> Any:
    """`value` without secrets; the very same object when it holds none."""
    kind = cast("type[Any]", type(value))
    try:
        masker = _maskers[kind]
    except KeyError:
        masker = _maskers[kind] = _get_masker(kind)
    return value if masker is None else masker(value)


def _get_masker(kind: type[Any]) -> _Masker | None:
    if issubclass(kind, _HARMLESS_TYPES):
        return None
    if issubclass(kind, str):
        return scrub
    if is_dataclass(kind):
        return _mask_record
    if issubclass(kind, tuple):
        return _mask_tuple
    return _mask_json if issubclass(kind, Mapping | list) else None


def _mask_tuple(value: tuple[Any, ...]) -> tuple[Any, ...]:
    masked = tuple([_mask(item) for item in value])
    return value if all(map(is_, masked, value)) else masked


def _mask_json(value: object) -> object:
    if _is_flat_and_clean(value):
        return value
    masked = scrub_json(value)
    return value if masked is value or masked == value else masked


def _is_flat_and_clean(value: object) -> bool:
    """Whether this is a flat object without secrets, as most arguments are; no: it takes a closer look."""
    if type(value) is not dict:
        return False
    for key, entry in cast("dict[object, object]", value).items():
        if type(entry) is str:
            if type(key) is not str or is_secret_name(key) or scrub(entry) is not entry:
                return False
        elif type(entry) not in _PLAIN_TYPES:
            return False
    return True


_PLAIN_TYPES: Final = frozenset({bool, int, float, NoneType})


def _mask_record(record: Any) -> Any:
    changed: dict[str, object] = {}
    for name in _get_secret_fields(cast("type[Any]", type(record))):
        value: object = getattr(record, name)
        masked = _mask(value)
        if masked is not value:
            changed[name] = masked
    return replace(record, **changed) if changed else record


class EventSink(Protocol):
    """Whatever wants to know. `emit` returns at once and never raises for what the sink alone suffers."""

    def emit(self, event: Event) -> None: ...


@runtime_checkable
class BatchSink(EventSink, Protocol):
    """A sink that takes several events at once for less than each of them."""

    def emit_all(self, events: Sequence[Event]) -> None:
        """In order. What of them cannot be taken is refused when the others were."""
        ...
