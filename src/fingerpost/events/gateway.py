"""Who came to the gateway, and who was turned away."""

from __future__ import annotations

from typing import ClassVar, Literal

from fingerpost.events.base import Event
from fingerpost.frozen import frozen


@frozen
class ClientConnected(Event):
    """An MCP client opened a session (2025-11-25 and before; later ones have none)."""

    client: str  # what it calls itself, with its version
    protocol: str
    endpoint: str
    principal: str

    def summary(self) -> str:
        return f"{self.client} ({self.protocol}) at {self.endpoint} as {self.principal}"


@frozen
class ClientLeft(Event):
    """A session ended: by the client, or after it was silent for long."""

    client: str
    endpoint: str
    principal: str
    reason: str

    def summary(self) -> str:
        return f"{self.client} left {self.endpoint}: {self.reason}"


@frozen
class MaterialRead(Event):
    """A client asked for a resource, a prompt or a completion: what came of it."""

    audited: ClassVar[bool] = True

    server: str  # empty: it exists for nobody, or not for this caller
    method: str
    name: str  # the address or the name, as the client wrote it
    caller: str
    success: bool
    detail: str = ""
    milliseconds: float = 0.0

    def summary(self) -> str:
        what = f"{self.method} {self.name} of {self.server or 'no server'} for {self.caller}: "
        return what + (self.detail or "succeeded" if self.success else f"failed {self.detail}".rstrip())


@frozen
class AccessRefused(Event):
    """Somebody was turned away before anything was done for them."""

    audited: ClassVar[bool] = True

    endpoint: str
    reason: str
    principal: str | None = None

    def summary(self) -> str:
        return f"{self.endpoint}: {self.principal or 'somebody'} was refused ({self.reason})"


@frozen
class KeyChanged(Event):
    """An API key was made or revoked. The key itself is known to whoever made it, and to nobody else."""

    audited: ClassVar[bool] = True

    key_id: str
    name: str
    change: Literal["made", "revoked"]

    def summary(self) -> str:
        return f"the key {self.name} ({self.key_id}) was {self.change}"
