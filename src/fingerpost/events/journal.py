"""A packet's journal is the list of its events; the packet is what they add up to."""

from __future__ import annotations

from collections.abc import Iterable

from fingerpost.events.base import Event
from fingerpost.events.packet import PacketEvent, PacketReceived
from fingerpost.records import Packet


def rebuild(events: Iterable[Event]) -> Packet | None:
    """The packet after all these events, or None when none of them began one."""
    packet: Packet | None = None
    for event in events:
        if isinstance(event, PacketReceived):
            packet = event.packet
        elif isinstance(event, PacketEvent) and packet is not None and event.packet_id == packet.packet_id:
            packet = event.apply(packet)
    return packet
