"""Web pages that call us: what browsers want to hear first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.surfaces.completions.manner import HEADER_PREFIX, OPTION_NAMES
from fingerpost.surfaces.web.asgi import Header
from fingerpost.surfaces.web.gate import Authenticator
from fingerpost.surfaces.web.pages import build_cors_headers
from fingerpost.surfaces.web.reach import VERSION_HEADER

_EXPOSED_HEADERS: Final = (
    b"X-Request-Id, X-Fingerpost-Packet, X-Fingerpost-Tools-Used, X-Fingerpost-Saved-Tokens"
)
_OWN_HEADERS: Final = tuple(f"{HEADER_PREFIX}{name.replace('_', '-')}" for name in OPTION_NAMES)
_ALLOWED_HEADERS: Final = (
    "authorization",
    "x-api-key",
    "content-type",
    "accept",
    VERSION_HEADER,
    *_OWN_HEADERS,
)
_MAX_REQUESTED_HEADERS: Final = 50


def build_page_headers(authenticator: Authenticator, headers: Mapping[str, str]) -> tuple[Header, ...]:
    """What goes with every answer to a page that may read it."""
    return build_cors_headers(authenticator, headers, _EXPOSED_HEADERS)


def build_preflight(
    authenticator: Authenticator, headers: Mapping[str, str]
) -> tuple[int, tuple[Header, ...]]:
    """Browsers ask without a key, so this says only what every page may know."""
    allowed = build_page_headers(authenticator, headers)
    if not allowed:
        return 403, ()
    # The openai client tells about itself in headers of its own; they are read by nobody.
    asked = (name.strip().lower() for name in headers.get("access-control-request-headers", "").split(","))
    harmless = [name for name in asked if name.startswith("x-stainless-") and name.isascii()][
        :_MAX_REQUESTED_HEADERS
    ]
    taken = ", ".join((*_ALLOWED_HEADERS, *harmless)).encode("latin-1")
    return 204, (
        *allowed,
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", taken),
        (b"access-control-max-age", b"600"),
    )
