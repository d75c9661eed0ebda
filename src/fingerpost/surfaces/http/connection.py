"""HTTP/1.1 connections on uvicorn: time and size limits, no upgrades, errors of apps, HTTP/1.0."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from fingerpost.surfaces.http.asgi import Header

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGISendEvent, HTTPResponseStartEvent


class HeldHeadCycle(RequestResponseCycle):
    """uvicorn's cycle, but a head with a Content-Length is held back until the body: an app that fails before
    can still answer with an error. Clients of HTTP/1.0 get no chunks.
    """

    _start: HTTPResponseStartEvent | None = None
    _until_closed = False  # the body ends when the connection is closed

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message
            if any(name == b"content-length" for name, _ in message.get("headers", ())):
                return
            if self.scope["http_version"] == "1.0":
                self._until_closed = True
                self.chunked_encoding = False
        if (start := self._start) is not None:
            self._start = None
            await super().send(start)
            if message is start:
                return
        if self._until_closed and message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)


_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


def build_parser_without_upgrade(
    protocol: HttpToolsProtocol, version: str, headers: Iterable[Header]
) -> tuple[httptools.HttpRequestParser, bytes]:
    """Return a parser for the rest of the connection, and a head that frames the current body."""
    parser = httptools.HttpRequestParser(_HeadlessEvents(protocol))
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    framing = [b"%s: %s\r\n" % header for header in headers if header[0] in _FRAMING_HEADERS]
    return parser, b"".join([b"POST / HTTP/", version.encode(), b"\r\n", *framing, b"\r\n"])


class _HeadlessEvents:
    """Forwards parser events to a connection, except those of the first head."""

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


MAX_HEAD_BYTES: Final = 64 * 1024
MAX_READ_AHEAD: Final = 8  # pipelined requests before reading pauses


class GuardedProtocol(HttpToolsProtocol):
    """Closes connections that send no request, or do not complete one in time. A request that arrives in one
    piece needs no timer.
    """

    arrival_seconds: float = 30.0
    _arriving = True  # a request is expected or incomplete
    _in_head = True
    _head_size = 0
    _timer: asyncio.TimerHandle | None = None
    _answering: RequestResponseCycle | None = None  # the cycle whose app was started last
    _ignores_data = False  # ignore further data; running requests are still answered

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn notifies only the newest request, which may wait for an older response.
        if (running := self._answering) is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._parse(data)
        if not self._arriving or self.transport.is_closing():
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                self._close_with_status(431)
                return
        if self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._arriving = self._in_head = True
        self._head_size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False
        if 0 < len(self.pipeline) <= MAX_READ_AHEAD:
            self.flow.resume_reading()  # else a disconnect would not be noticed

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the body follows
        self._arriving = False
        self._stop_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._is_another_answered():
            self._stop_reading()
        elif self._in_head or not self.cycle.response_started:
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _parse(self, data: bytes) -> None:
        """Parse as uvicorn does, but ignore protocol upgrades, which are not supported."""
        if self._ignores_data:
            return
        self._unset_keepalive_if_required()
        while data:
            rest = b""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                version = self.parser.get_http_version()
                self.parser, head = build_parser_without_upgrade(self, version, self.headers)
                rest = head + data[upgrade.args[0] :]
            except httptools.HttpParserError:
                self.send_400_response("Invalid HTTP request received.")
            data = rest

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = HeldHeadCycle  # uvicorn has no way to choose the class
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.arrival_seconds, self._close_with_status, 408)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_with_status(self, status: int) -> None:
        self._stop_timer()
        if self.transport.is_closing():
            return
        if self._is_another_answered():
            if status == 408:
                self._start_timer()  # reading may be paused on our side
            else:
                self._stop_reading()
            return
        if self._in_head or not self.cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def _is_another_answered(self) -> bool:
        """Return whether a write now would become part of the response to an earlier request."""
        running = self._answering
        if running is None or running.response_complete:
            return False
        return self._in_head or running is not self.cycle

    def _stop_reading(self) -> None:
        """Close the connection after the complete requests are answered."""
        self._ignores_data = self._arriving = True
        self.cycle.keep_alive = False


def build_protocol(arrival_seconds: float) -> type[GuardedProtocol]:
    """Return a protocol class with this timeout for incoming requests."""
    return type("PatientProtocol", (GuardedProtocol,), {"arrival_seconds": arrival_seconds})
