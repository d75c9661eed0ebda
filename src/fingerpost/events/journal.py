"""What a list of events adds up to: the packet they made, and the attempts that never ended."""

from __future__ import annotations

from collections.abc import Iterable

from fingerpost.events.base import Event
from fingerpost.events.call import AttemptFinished, AttemptStarted
from fingerpost.events.packet import PacketEvent, PacketReceived
from fingerpost.records import Packet


def rebuild_packet(events: Iterable[Event]) -> Packet | None:
    """The packet after all these events, or None when none of them began one."""
    packet: Packet | None = None
    for event in events:
        if isinstance(event, PacketReceived):
            packet = event.packet
        elif isinstance(event, PacketEvent) and packet is not None and event.packet_id == packet.packet_id:
            packet = event.apply(packet)
    return packet


def find_unfinished_attempts(events: Iterable[Event]) -> list[AttemptStarted]:
    """Attempts that began and of which no end is told: nobody knows whether they took effect.

    Read in order: a call that is resumed numbers its attempts anew under the same id.
    """
    begun: dict[tuple[str, str, int], AttemptStarted] = {}
    for event in events:
        if isinstance(event, AttemptStarted):
            begun[event.call_id, event.tool, event.number] = event
        elif isinstance(event, AttemptFinished):
            begun.pop((event.call_id, event.attempt.tool, event.attempt.number), None)
    return list(begun.values())
