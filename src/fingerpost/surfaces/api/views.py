"""Records of the house as the API gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from fingerpost.events import Event, UnknownEvent
from fingerpost.frozen import frozen
from fingerpost.insight import PacketDetail, PacketLine
from fingerpost.records import JsonObject, Packet
from fingerpost.records.codec import to_plain

_ENVELOPE_FIELDS = frozenset({"event_id", "at", "packet_id"})


@frozen
class EventView:
    """One event. `data` are its own fields; `seq` is its number in the journal, where it has one yet."""

    seq: int | None
    event_id: str
    kind: str
    at: datetime
    packet_id: str | None
    summary: str
    data: JsonObject


@frozen
class PacketView:
    """Everything that happened to one request, or to one bare call (which has no packet)."""

    line: PacketLine
    events: Sequence[EventView]
    packet: Packet | None


def build_event_view(event: Event, seq: int | None = None) -> EventView:
    """The event as it is shown. Its secrets were masked when it was made."""
    kind, data = event.kind, to_plain(event)
    if isinstance(event, UnknownEvent):
        kind, data = event.unknown_kind, dict(event.contents)
    return EventView(
        seq=seq,
        event_id=event.event_id,
        kind=kind,
        at=event.at,
        packet_id=event.packet_id,
        summary=event.summary(),
        data=_get_event_data(data),
    )


def _get_event_data(data: dict[str, Any]) -> JsonObject:
    return {name: value for name, value in data.items() if name not in _ENVELOPE_FIELDS}


def build_packet_view(detail: PacketDetail) -> PacketView:
    """Takes a moment for long journeys: not for an event loop."""
    events = tuple(build_event_view(entry.event, entry.seq) for entry in detail.events)
    return PacketView(line=detail.line, events=events, packet=detail.packet)
