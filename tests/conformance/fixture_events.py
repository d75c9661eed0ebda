"""Keeps what the fixture sent, so that a client whose stream broke can get the rest."""

from __future__ import annotations

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage


class KeptEvents(EventStore):
    """Every event of every stream, in order; the position is the event's id."""

    def __init__(self) -> None:
        self._events: list[tuple[str, JSONRPCMessage | None]] = []

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        last = int(last_event_id)
        stream = self._events[last][0]
        for position, (owner, message) in enumerate(self._events[last + 1 :], start=last + 1):
            if owner == stream and message is not None:
                await send_callback(EventMessage(message, str(position)))
        return stream
