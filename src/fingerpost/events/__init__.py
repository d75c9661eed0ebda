"""Typed facts, where they go, and how a packet is rebuilt from them."""

from fingerpost.events.base import Event, EventSink
from fingerpost.events.codec import UnknownEvent, decode, encode
from fingerpost.events.house import (
    CatalogChanged,
    EventsDropped,
    PinAccepted,
    ServerStateChanged,
    ToolDropped,
    ToolQuarantined,
)
from fingerpost.events.journal import rebuild
from fingerpost.events.packet import (
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
from fingerpost.events.sinks import Fanout, LiveFeed, LogSink, MemorySink

__all__ = [
    "CatalogChanged",
    "Event",
    "EventSink",
    "EventsDropped",
    "ExecutionStatusChanged",
    "Fanout",
    "IntentDetected",
    "LiveFeed",
    "LogSink",
    "MemorySink",
    "PacketEvent",
    "PacketReceived",
    "PacketReinjected",
    "PinAccepted",
    "SelectionReviewed",
    "ServerStateChanged",
    "TaskScheduled",
    "ToolDropped",
    "ToolQuarantined",
    "ToolResultInjected",
    "ToolSelected",
    "ToolsOffered",
    "UnknownEvent",
    "decode",
    "encode",
    "rebuild",
]
