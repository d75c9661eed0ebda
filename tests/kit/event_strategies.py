"""Hypothesis strategies for the events of one packet."""

from __future__ import annotations

from hypothesis import strategies as st

from fingerpost.events import (
    ExecutionStatusChanged,
    IntentDetected,
    PacketEvent,
    PacketReceived,
    PacketReinjected,
    SelectionReviewed,
    TaskScheduled,
    ToolResultInjected,
    ToolSelected,
    ToolsOffered,
)
from fingerpost.records import ExecutionStatus, Intent, Packet, PacketState, SystemTask
from tests.kit.record_strategies import floats, moments, packets, results, reviews, selections, texts, tuples

ids = st.just("pkt_1")

packet_events: st.SearchStrategy[PacketEvent] = st.one_of(
    st.builds(PacketReceived, packet_id=ids, at=moments, packet=packets),
    st.builds(
        IntentDetected,
        packet_id=ids,
        at=moments,
        intent=st.builds(
            Intent, name=st.none() | texts, confidence=st.none() | floats, reasons=tuples(texts)
        ),
        needs_tool=st.none() | st.booleans(),
    ),
    st.builds(ToolsOffered, packet_id=ids, at=moments, tools=tuples(texts)),
    st.builds(
        ToolSelected,
        packet_id=ids,
        at=moments,
        selection=st.none() | selections,
        alternatives=tuples(selections),
    ),
    st.builds(SelectionReviewed, packet_id=ids, at=moments, review=reviews),
    st.builds(
        ExecutionStatusChanged,
        packet_id=ids,
        at=moments,
        status=st.sampled_from(ExecutionStatus),
        reason=texts,
    ),
    st.builds(ToolResultInjected, packet_id=ids, at=moments, result=results),
    st.builds(PacketReinjected, packet_id=ids, at=moments),
    st.builds(
        TaskScheduled,
        packet_id=ids,
        at=moments,
        state=st.sampled_from(PacketState),
        next_task=st.none() | st.sampled_from(SystemTask),
    ),
)


def is_allowed(packet: Packet, event: PacketEvent) -> bool:
    """Whether the packet can take this event next."""
    try:
        event.apply(packet)
    except ValueError:
        return False
    return True
