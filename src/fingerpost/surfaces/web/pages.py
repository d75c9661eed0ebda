"""Web pages that call us: what their browser wants to hear before it lets them read an answer (CORS)."""

from __future__ import annotations

from collections.abc import Mapping

from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.gate import Authenticator


def build_cors_headers(
    authenticator: Authenticator, headers: Mapping[str, str], exposed: bytes
) -> tuple[Header, ...]:
    """What goes with every answer to a page that may read it. `exposed` are the headers it may read, too."""
    origin = headers.get("origin")
    if origin is None or not authenticator.allows_origin(headers):
        return ()
    return (
        (b"access-control-allow-origin", origin.encode("latin-1")),
        (b"access-control-expose-headers", exposed),
        (b"vary", b"Origin"),
    )
