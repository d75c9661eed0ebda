"""Who comes in over HTTP: the gate's word, told as HTTP, and what browsers want to hear first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.records import Principal
from fingerpost.surfaces.gateway.wire.codec import INVALID_REQUEST
from fingerpost.surfaces.gateway.wire.http import McpHttpError, McpHttpRequest
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.gate import AccessDenial, Authenticator
from fingerpost.surfaces.web.pages import build_cors_headers
from fingerpost.surfaces.web.peers import drop_decision_rights

_EXPOSED_HEADERS: Final = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate"
_ALLOWED_METHODS: Final = (b"access-control-allow-methods", b"GET, POST, DELETE")
_ALLOWED_HEADERS: Final = (
    "Authorization, X-API-Key, Content-Type, Accept, Last-Event-ID, "
    "Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name"
)
_PREFLIGHT_MAX_AGE: Final = (b"access-control-max-age", b"600")
_UNDECIDED_STATUS: Final = 503


@frozen(kw_only=False)
class PreflightResponse:
    """What a browser is told that asks whether a page may call us."""

    status: int
    headers: tuple[Header, ...]


class GatewayAuth:
    """Asks the gate about every request and remembers no one."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._gate = authenticator

    async def authenticate(self, http_request: McpHttpRequest) -> Principal:
        """Who this is. Raises `McpHttpError` for those who may not come in; the gate has told of them."""
        admitted = await self._gate.authenticate(
            http_request.headers, http_request.endpoint, remote=http_request.remote
        )
        if isinstance(admitted, Principal):
            return await drop_decision_rights(admitted, http_request.peer)
        raise McpHttpError(
            admitted.status,
            admitted.message,
            code=INVALID_REQUEST,
            headers=tuple((name.encode(), value.encode()) for name, value in admitted.headers),
        )

    def build_cors_headers(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """What goes with every answer to a web page that may read it."""
        return build_cors_headers(self._gate, headers, _EXPOSED_HEADERS)

    async def is_still_admitted(self, http_request: McpHttpRequest, principal: Principal) -> bool:
        """Whether a stream may stay open: the key that opened it may have been revoked, or be past its time.

        A gate that cannot tell at the moment ends nothing: a store that is away for a while would end all.
        """
        answer = await self._gate.authenticate(
            http_request.headers, http_request.endpoint, remote=http_request.remote
        )
        if isinstance(answer, AccessDenial):
            return answer.status == _UNDECIDED_STATUS
        return await drop_decision_rights(answer, http_request.peer) == principal

    def build_preflight(self, headers: Mapping[str, str]) -> PreflightResponse:
        """Browsers ask without a key, so this says only what every page may know."""
        allowed = self.build_cors_headers(headers)
        if not allowed:
            return PreflightResponse(403, ())
        asked = headers.get("access-control-request-headers", "")
        wanted = (name.strip() for name in asked.split(","))
        named = [_ALLOWED_HEADERS, *(name for name in wanted if name.lower().startswith("mcp-param-"))]
        taken = (b"access-control-allow-headers", ", ".join(named).encode("latin-1"))
        return PreflightResponse(204, (*allowed, _ALLOWED_METHODS, taken, _PREFLIGHT_MAX_AGE))
