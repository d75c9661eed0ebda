"""Web pages that call us: what browsers want to hear first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.surfaces.completions.manner import HEADER, KNOWN
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.gate import Gate
from fingerpost.surfaces.web.pages import page_headers
from fingerpost.surfaces.web.reach import VERSION_HEADER

_EXPOSED: Final = b"X-Request-Id, X-Fingerpost-Packet, X-Fingerpost-Tools-Used, X-Fingerpost-Saved-Tokens"
_OWN: Final = tuple(f"{HEADER}{name.replace('_', '-')}" for name in KNOWN)
_TAKEN: Final = ("authorization", "x-api-key", "content-type", "accept", VERSION_HEADER, *_OWN)
_MOST_ASKED: Final = 50


def headers_for(gate: Gate, headers: Mapping[str, str]) -> tuple[Header, ...]:
    """What goes with every answer to a page that may read it."""
    return page_headers(gate, headers, _EXPOSED)


def preflight(gate: Gate, headers: Mapping[str, str]) -> tuple[int, tuple[Header, ...]]:
    """Browsers ask without a key, so this says only what every page may know."""
    allowed = headers_for(gate, headers)
    if not allowed:
        return 403, ()
    # The openai client tells about itself in headers of its own; they are read by nobody.
    asked = (name.strip().lower() for name in headers.get("access-control-request-headers", "").split(","))
    harmless = [name for name in asked if name.startswith("x-stainless-") and name.isascii()][:_MOST_ASKED]
    taken = ", ".join((*_TAKEN, *harmless)).encode("latin-1")
    return 204, (
        *allowed,
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", taken),
        (b"access-control-max-age", b"600"),
    )
