"""How the parts of one connection tell each other that it is over, and why.

A transport, a failed probe or a lost session each learn on their own that a
connection will not carry another message. The first to know ends the lifeline;
whoever holds the connection waits for that and starts over.
"""

from __future__ import annotations

from enum import StrEnum

import anyio

from fingerpost.frozen import frozen
from fingerpost.servers.ring import Ring

STRAYS_HINT = "its standard output belongs to the protocol: let it log to standard error"


class Pace(StrEnum):
    """How soon another attempt makes sense."""

    NOW = "now"  # the server is there and asked for a new handshake
    SOON = "soon"  # it may be back any moment
    SLOW = "slow"  # a person has to do something first


@frozen
class Setback:
    """Why there is no connection (any more)."""

    reason: str
    pace: Pace = Pace.SOON
    hint: str | None = None
    refused: bool = False  # it wants to know who asks (HTTP 401 or 403)


class Lifeline:
    """The life of one connection, from before its first byte to its end."""

    def __init__(self, server: str, *, stderr: Ring) -> None:
        self.server = server
        self.stderr = stderr
        self.ended = anyio.Event()
        self.setback: Setback | None = None
        self.handshaken = False  # before that, an odd answer is part of finding the era, not a loss
        self.strays = 0  # lines on its standard output that were no messages
        self._last_stray = ""
        self._doubts = anyio.Event()

    def note_stray(self, line: str) -> None:
        """It wrote something to its standard output that is not the protocol. `line` may be shown."""
        self.strays += 1
        self._last_stray = line

    def strays_told(self) -> str:
        """What stray lines there were, to end a sentence with."""
        if not self.strays:
            return ""
        lines = "a line that is" if self.strays == 1 else f"{self.strays} lines that are"
        return f"; it wrote {lines} not MCP to its standard output, such as: {self._last_stray}"

    def end(self, setback: Setback) -> None:
        """It is over. The first reason stands: later ones are its consequences."""
        if self.setback is None:
            self.setback = setback
            self.ended.set()

    def doubt(self) -> None:
        """Something failed that may mean the server is gone: have it checked now rather than later."""
        self._doubts.set()

    async def doubted(self) -> None:
        """Return when somebody doubts."""
        await self._doubts.wait()
        self._doubts = anyio.Event()
