"""Who comes in over HTTP: the gate's word, told as HTTP, and what browsers want to hear first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Principal
from fingerpost.surfaces.gateway.wire.codec import INVALID_REQUEST
from fingerpost.surfaces.gateway.wire.http import HttpFault, Inbound
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.gate import Denial, Gate
from fingerpost.surfaces.web.pages import page_headers
from fingerpost.surfaces.web.peers import without_deciding

_EXPOSED: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"
_METHODS: Final = (b"access-control-allow-methods", b"GET, POST, DELETE")
_HEADERS: Final = (
    "Authorization, X-API-Key, Content-Type, Accept, Last-Event-ID, "
    "Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
)
_KEPT: Final = (b"access-control-max-age", b"600")
_CANNOT_TELL: Final = 503


@frozen(kw_only=False)
class Preflight:
    """What a browser is told that asks whether a page may call us."""

    status: int
    headers: tuple[Header, ...]


class Doors:
    """Asks the gate about every request and remembers no one."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def admit(self, inbound: Inbound) -> Principal:
        """Who this is. Raises `HttpFault` for those who may not come in; the gate has told of them."""
        admitted = await self._gate.admit(inbound.headers, inbound.endpoint, remote=inbound.remote)
        if isinstance(admitted, Principal):
            return await without_deciding(admitted, inbound.peer)
        raise HttpFault(
            admitted.status,
            admitted.message,
            code=INVALID_REQUEST,
            headers=tuple((name.encode(), value.encode()) for name, value in admitted.headers),
        )

    def headers_for(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """What goes with every answer to a web page that may read it."""
        return page_headers(self._gate, headers, _EXPOSED)

    async def still_admit(self, inbound: Inbound, principal: Principal) -> bool:
        """Whether a stream may stay open: the key that opened it may have been revoked, or be past its time.

        A gate that cannot tell at the moment ends nothing: a store that is away for a while would end all.
        """
        answer = await self._gate.admit(inbound.headers, inbound.endpoint, remote=inbound.remote)
        if isinstance(answer, Denial):
            return answer.status == _CANNOT_TELL
        return await without_deciding(answer, inbound.peer) == principal

    def preflight(self, headers: Mapping[str, str]) -> Preflight:
        """Browsers ask without a key, so this says only what every page may know."""
        allowed = self.headers_for(headers)
        if not allowed:
            return Preflight(403, ())
        asked = headers.get("access-control-request-headers", "")
        wanted = (name.strip() for name in asked.split(","))
        named = [_HEADERS, *(name for name in wanted if name.lower().startswith("mcp-param-"))]
        taken = (b"access-control-allow-headers", ", ".join(named).encode("latin-1"))
        return Preflight(204, (*allowed, _METHODS, taken, _KEPT))
