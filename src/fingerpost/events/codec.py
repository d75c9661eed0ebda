"""Encodes events as JSON and decodes them. The envelope contains the kind and the version.

    {"kind": "tool_selected", "v": 1, "event": {"event_id": …, "at": …, "packet_id": …, …}}

The steps of one request or call are stored as one line, with the envelopes of all of them. What they have in
common is written once.

    {"kind": "steps", "v": 1, "common": {"packet_id": …}, "events": [{"kind": …, "v": …, "event": …}, …]}

An event of a newer version or an unknown kind is decoded as `UnknownEvent`, with its content kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Final, Protocol, cast

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, SchemaSerializer
from pydantic_core import from_json as parse_json
from pydantic_core import to_json as write_json

from fingerpost.events.base import Event
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject
from fingerpost.records.codec import from_plain
from fingerpost.records.json import MAX_DEPTH, to_valid_json

_MAX_EVENT_DEPTH = MAX_DEPTH + 20  # the content of an event is nested a few levels below it


@frozen
class UnknownEvent(Event):
    """An event of a newer Fingerpost, kept as written."""

    unknown_kind: str
    unknown_version: int
    contents: JsonObject

    def summary(self) -> str:
        return f"{self.unknown_kind} (version {self.unknown_version}, not known to this Fingerpost)"


def encode(event: Event) -> bytes:
    """Return the event as one line of JSON."""
    if isinstance(event, UnknownEvent):
        return _build_envelope(event.unknown_kind, event.unknown_version, write_json(event.contents))
    return _get_writer(event)(event)


STEPS: Final = "steps"


class StepLines:
    """The steps of one request or call as lines that `join` puts together."""

    def __init__(self, events: Sequence[Event]) -> None:
        packet_id = events[0].packet_id
        # A call that belongs to no request has the same id as its packet.
        is_call = all(getattr(event, "call_id", None) == packet_id for event in events)
        self._common = {"packet_id": packet_id, **({"call_id": packet_id} if is_call else {})}
        names = self._common.keys()
        self._events = events
        self._lines = [_get_writer(event)(event, names) for event in events] if len(events) > 1 else []

    def join(self, wanted: Callable[[Event], bool] = lambda _: True) -> bytes:
        """Return the line of the wanted steps, of which there is at least one."""
        chosen = [index for index, event in enumerate(self._events) if wanted(event)]
        if len(chosen) == 1:
            return encode(self._events[chosen[0]])
        lines = b",".join([self._lines[index] for index in chosen])
        return b'{"kind":"steps","v":1,"common":%b,"events":[%b]}' % (write_json(self._common), lines)


# Every call makes about seven events, so the parts common to a kind are computed once.
class _LineWriter(Protocol):
    def __call__(self, event: Event, without: Collection[str] | None = None) -> bytes: ...


_writers: dict[type[Event], _LineWriter] = {}


def _get_writer(event: Event) -> _LineWriter:
    return _writers.get(type(event)) or _build_writer(type(event))


def _build_writer(kind: type[Event]) -> _LineWriter:
    before = b'{"kind":%b,"v":%d,"event":' % (write_json(kind.kind), kind.version)

    # Not with the serializer of the kind: it takes a thousand times as long to build as it saves here.
    def write(event: Event, without: Collection[str] | None = None) -> bytes:
        leave_out = None if without is None else set(without)
        try:
            return before + write_json(event, exclude=leave_out) + b"}"
        # A lone surrogate from a caller or a model; the event must still be stored.
        except PydanticSerializationError:
            plain = _get_serializer(kind).to_python(event, mode="json", exclude=leave_out)
            return before + write_json(to_valid_json(plain, max_depth=_MAX_EVENT_DEPTH)) + b"}"

    _writers[kind] = write
    return write


@cache
def _get_serializer(kind: type[Event]) -> SchemaSerializer:
    return TypeAdapter(kind).serializer


def _build_envelope(kind: str, version: int, body: bytes) -> bytes:
    return b'{"kind":%b,"v":%d,"event":%b}' % (write_json(kind), version, body)


def decode(line: bytes | str) -> Event:
    """Return the event of this line. Raises `ValueError` if `encode` did not produce it."""
    return _build_event(*_open_envelope(parse_json(line)))


def decode_steps(line: bytes | str, kinds: Collection[str] | None = None) -> list[Event | None]:
    """Return the events of a line of `encode` or `StepLines`, with None for those of other kinds. Raises
    `ValueError` for another line.
    """
    found: Any = parse_json(line)
    match found:
        case {"kind": "steps", "common": {**common}, "events": [*envelopes]}:
            opened = map(_open_envelope, envelopes)
        case _:
            common, opened = {}, (_open_envelope(found),)
    return [
        _build_event(kind, version, {**common, **contents}) if kinds is None or kind in kinds else None
        for kind, version, contents in opened
    ]


def _open_envelope(envelope: Any) -> tuple[str, int, dict[str, Any]]:
    match envelope:
        case {"kind": str(kind), "v": int(version), "event": dict()}:
            return kind, version, cast("dict[str, Any]", envelope["event"])
        case _:
            message = "an event is a JSON object with a kind, a version and contents"
            raise ValueError(message)


def _build_event(kind: str, version: int, contents: dict[str, Any]) -> Event:
    event_type = Event.kinds.get(kind)
    if event_type is not None and version <= event_type.version:
        return from_plain(event_type, contents)
    known = from_plain(Event, {key: contents.get(key) for key in ("event_id", "at", "packet_id")})
    return UnknownEvent(
        event_id=known.event_id,
        at=known.at,
        packet_id=known.packet_id,
        unknown_kind=kind,
        unknown_version=version,
        contents=contents,
    )
