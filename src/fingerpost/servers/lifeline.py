"""How the parts of one connection tell each other that it is over, and why.

A transport, a failed probe or a lost session each learn on their own that a
connection will not carry another message. The first to know ends the lifeline;
whoever holds the connection waits for that and starts over.
"""

from __future__ import annotations

from enum import StrEnum

import anyio

from fingerpost.frozen import frozen
from fingerpost.servers.ring import RingBuffer

STRAY_OUTPUT_HINT = "its standard output belongs to the protocol: let it log to standard error"


class RetryPace(StrEnum):
    """How soon another attempt makes sense."""

    NOW = "now"  # the server is there and asked for a new handshake
    SOON = "soon"  # it may be back any moment
    SLOW = "slow"  # a person has to do something first


@frozen
class ConnectionFailure:
    """Why there is no connection (any more)."""

    reason: str
    pace: RetryPace = RetryPace.SOON
    hint: str | None = None
    refused: bool = False  # it wants to know who asks (HTTP 401 or 403)


class ConnectionState:
    """The life of one connection, from before its first byte to its end."""

    def __init__(self, server: str, *, stderr: RingBuffer) -> None:
        self.server = server
        self.stderr = stderr
        self.ended = anyio.Event()
        self.failure: ConnectionFailure | None = None
        self.is_initialized = False  # before that, an odd answer is part of finding the era, not a loss
        self.stray_lines = 0  # lines on its standard output that were no messages
        self._last_stray = ""
        self._doubts = anyio.Event()

    def note_stray_line(self, line: str) -> None:
        """It wrote something to its standard output that is not the protocol. `line` may be shown."""
        self.stray_lines += 1
        self._last_stray = line

    def describe_stray_lines(self) -> str:
        """What stray lines there were, to end a sentence with."""
        if not self.stray_lines:
            return ""
        lines = "a line that is" if self.stray_lines == 1 else f"{self.stray_lines} lines that are"
        return f"; it wrote {lines} not MCP to its standard output, such as: {self._last_stray}"

    def end(self, failure: ConnectionFailure) -> None:
        """It is over. The first reason stands: later ones are its consequences."""
        if self.failure is None:
            self.failure = failure
            self.ended.set()

    def request_probe(self) -> None:
        """Something failed that may mean the server is gone: have it checked now rather than later."""
        self._doubts.set()

    async def wait_for_probe_request(self) -> None:
        """Return when somebody doubts."""
        await self._doubts.wait()
        self._doubts = anyio.Event()
