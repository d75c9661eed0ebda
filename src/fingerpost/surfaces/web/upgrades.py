"""Requests that offer to go on in another protocol: nobody here speaks one, so they are requests like others.

The parser takes everything behind such a head for the other protocol's. What it left would be read as the
next request: one that whoever checks requests in front of us has never seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import httptools

from fingerpost.surfaces.web.asgi import Header

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


def build_parser_without_upgrade(
    protocol: HttpToolsProtocol, version: str, headers: Iterable[Header]
) -> tuple[httptools.HttpRequestParser, bytes]:
    """A parser for the rest of the connection, and what to feed it first: how the body at hand is framed."""
    parser = httptools.HttpRequestParser(_HeadlessEvents(protocol))
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    framing = [b"%s: %s\r\n" % header for header in headers if header[0] in _FRAMING_HEADERS]
    return parser, b"".join([b"POST / HTTP/", version.encode(), b"\r\n", *framing, b"\r\n"])


class _HeadlessEvents:
    """Hears for a connection what the parser finds, but for the first head."""

    def __init__(self, protocol: HttpToolsProtocol) -> None:
        self._protocol = protocol
        self._in_first_head = True
        self.on_body = protocol.on_body
        self.on_message_complete = protocol.on_message_complete

    def on_message_begin(self) -> None:
        if not self._in_first_head:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._in_first_head:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_first_head:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._in_first_head:
            self._in_first_head = False
        else:
            self._protocol.on_headers_complete()
