"""An event is one fact that happened. Facts do not change, so events are frozen.

The kind of an event is its class name in small letters (`ToolSelected` is
`tool_selected`); its fields are its contents; `version` grows when the meaning
of a field changes. Secrets are masked while the event is being made: there is
no moment at which an event holds one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Protocol, cast

from fingerpost.records import new_id, utc_now
from fingerpost.redaction import scrub, scrub_json

_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True, kw_only=True)
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
        cls.kind = _WORD_START.sub("_", cls.__name__).lower()
        Event.kinds[cls.kind] = cls

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            masked = _masked(value)
            if masked is not value:
                object.__setattr__(self, item.name, masked)

    def summary(self) -> str:
        """The event in one short line for a person."""
        return ""


def _masked(value: object) -> object:
    """`value` without secrets; the very same object when it holds none."""
    if isinstance(value, Enum | datetime):
        return value
    masked = value
    if isinstance(value, str):
        masked = scrub(value)
    elif is_dataclass(value):
        return _masked_record(value)
    elif isinstance(value, tuple):
        masked = tuple(_masked(item) for item in cast("tuple[object, ...]", value))
    elif isinstance(value, Mapping | list):
        masked = scrub_json(cast("object", value))
    return cast("object", value) if masked == value else masked


def _masked_record(record: Any) -> Any:
    changed: dict[str, object] = {}
    for item in fields(record):
        value: object = getattr(record, item.name)
        masked = _masked(value)
        if masked is not value:
            changed[item.name] = masked
    return replace(record, **changed) if changed else record


class EventSink(Protocol):
    """Whatever wants to know. `emit` returns at once and never raises for what the sink alone suffers."""

    def emit(self, event: Event) -> None: ...
