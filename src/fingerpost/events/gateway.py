"""Events of gateway clients and API keys."""

from __future__ import annotations

from typing import ClassVar, Literal

from fingerpost.events.base import Event
from fingerpost.frozen import frozen


@frozen
class ClientConnected(Event):
    """An MCP client opened a session (2025-11-25 and earlier; later versions have no sessions)."""

    client: str  # name and version given by the client
    protocol: str
    endpoint: str
    principal: str

    def summary(self) -> str:
        return f"{self.client} ({self.protocol}) at {self.endpoint} as {self.principal}"


@frozen
class ClientLeft(Event):
    """A session ended, by the client or after a long idle time."""

    client: str
    endpoint: str
    principal: str
    reason: str

    def summary(self) -> str:
        return f"{self.client} left {self.endpoint}: {self.reason}"


@frozen
class MaterialRead(Event):
    """A client requested a resource, a prompt or a completion, with the outcome."""

    audited: ClassVar[bool] = True

    server: str  # empty if it does not exist, or not for this caller
    method: str
    name: str  # the URI or the name, as the client wrote it
    caller: str
    success: bool
    detail: str = ""
    milliseconds: float = 0.0

    def summary(self) -> str:
        what = f"{self.method} {self.name} of {self.server or 'no server'} for {self.caller}: "
        return what + (self.detail or "succeeded" if self.success else f"failed {self.detail}".rstrip())


@frozen
class AccessRefused(Event):
    """A request was refused before it was processed."""

    audited: ClassVar[bool] = True

    endpoint: str
    reason: str
    principal: str | None = None

    def summary(self) -> str:
        return f"{self.endpoint}: {self.principal or 'an unknown caller'} was refused ({self.reason})"


@frozen
class KeyChanged(Event):
    """An API key was created or revoked. The event does not contain the key."""

    audited: ClassVar[bool] = True

    key_id: str
    name: str
    change: Literal["made", "revoked"]

    def summary(self) -> str:
        return f"the key {self.name} ({self.key_id}) was {self.change}"
