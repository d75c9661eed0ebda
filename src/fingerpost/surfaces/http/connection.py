"""HTTP/1.1 connections on uvicorn: time and size limits, cached request heads, responses in one write."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from fingerpost.frozen import frozen
from fingerpost.surfaces.http.asgi import Header

if TYPE_CHECKING:
    from uvicorn._types import (
        ASGI3Application,
        ASGIReceiveEvent,
        ASGISendEvent,
        HTTPResponseBodyEvent,
        HTTPResponseStartEvent,
        HTTPScope,
    )


_TRANSFER_HEADERS: Final = frozenset(
    {b"connection", b"transfer-encoding"}
)  # control the transfer: left to uvicorn


class BufferedCycle(RequestResponseCycle):
    """uvicorn's cycle, but a response head with a Content-Length is written together with the body."""

    _start: HTTPResponseStartEvent | None = None
    _until_closed = False  # the body ends when the connection is closed
    _length: int | None = None  # of the response body
    whole_body: bytes | None = None  # the request body, if it arrived together with the head

    async def receive(self) -> ASGIReceiveEvent:
        body = self.whole_body
        if body is None or self.disconnected or self.response_complete:
            return await super().receive()
        self.whole_body = None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message  # kept back: an app that fails before the body may start again
            self._length = _get_body_length(message)
            if self._length is not None:
                return
            if self.scope["http_version"] == "1.0" and not _has_content_length(message):
                self._until_closed = True
                self.chunked_encoding = False
        if (start := self._start) is not None:
            self._start = None
            if message["type"] == "http.response.body" and self._write_response(start, message):
                return
            await super().send(start)
            if message is start:
                return
        if self._until_closed and message["type"] == "http.response.body":
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)

    def _write_response(self, start: HTTPResponseStartEvent, message: HTTPResponseBodyEvent) -> bool:
        """Write the whole response at once if possible. Return whether it was written."""
        body = message.get("body", b"")
        if (
            message.get("more_body")
            or len(body) != self._length
            or self.disconnected
            or self.flow.write_paused
            or self.scope["method"] == "HEAD"
        ):
            return False
        headers = [*self.default_headers, *start.get("headers", ())]
        if HEADER_RE.search(b"".join([name for name, _ in headers])) or HEADER_VALUE_RE.search(
            b"".join([value for _, value in headers])
        ):
            return False  # uvicorn reports the invalid header
        parts = [STATUS_LINE[start["status"]]]
        for name, value in headers:
            parts += (name, b": ", value, b"\r\n")
        parts.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        parts.append(body)
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


def _has_content_length(start: HTTPResponseStartEvent) -> bool:
    return any(name == b"content-length" for name, _ in start.get("headers", ()))


def _get_body_length(start: HTTPResponseStartEvent) -> int | None:
    """Return the Content-Length, or None if it is missing or a header controls the transfer."""
    length = None
    for name, value in start.get("headers", ()):
        if name in _TRANSFER_HEADERS:
            return None
        if name == b"content-length":
            length = int(value)
    return length


MAX_CACHED_HEADS: Final = 4  # per connection
MAX_CACHED_HEAD_BYTES: Final = 4096  # bytes
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_HEADER: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
# Headers about a single message, or about what follows it.
_UNCACHED_HEADERS: Final = frozenset({b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade"})


@frozen(kw_only=False, eq=False)
class CachedHead:
    """A request head, split around the digits of its Content-Length, and its parsed scope."""

    before: bytes
    after: bytes  # up to the empty line
    scope: HTTPScope
    length_index: int  # index of Content-Length among the headers

    def build_scope(self, digits: bytes, state: dict[str, Any]) -> HTTPScope:
        """Build the same scope that the parser would build."""
        headers = list(self.scope["headers"])
        headers[self.length_index] = (b"content-length", digits)
        scope = self.scope.copy()
        scope["headers"] = headers
        scope["state"] = state
        return scope


class HeadCache:
    """The cached heads of one connection, the newest last."""

    def __init__(self) -> None:
        self._known: list[CachedHead] = []

    def find(self, data: bytes) -> tuple[CachedHead, bytes, bytes] | None:
        """Return the cached head of a complete request, its Content-Length as sent, and its body."""
        for head in self._known:
            if not data.startswith(head.before):
                continue
            end = data.find(_HEAD_END, len(head.before)) + len(_HEAD_END)
            digits = data[len(head.before) : end - len(head.after)]
            if (
                data.endswith(head.after, 0, end)
                and digits.isdigit()
                and len(digits) < 10
                and int(digits) == len(data) - end
            ):
                return head, digits, data[end:]
        return None

    def store(self, data: bytes, scope: HTTPScope) -> None:
        """Cache the head of a request that arrived complete and keeps the connection open."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        lengths = _LENGTH_HEADER.findall(data, 0, end)
        if end > MAX_CACHED_HEAD_BYTES or len(lengths) != 1 or int(lengths[0]) != len(data) - end:
            return
        names = [name for name, _ in scope["headers"]]
        if not _UNCACHED_HEADERS.isdisjoint(names) or names.count(b"content-length") != 1:
            return
        if any(name == b"connection" and value.lower() != b"keep-alive" for name, value in scope["headers"]):
            return
        found = _LENGTH_HEADER.search(data, 0, end)
        assert found is not None
        before, after = data[: found.start(1)], data[found.end(1) : end]
        kept = scope.copy()
        kept["headers"] = list(scope["headers"])
        self._known.append(CachedHead(before, after, kept, names.index(b"content-length")))
        del self._known[:-MAX_CACHED_HEADS]


_FRAMING_HEADERS: Final = frozenset({b"content-length", b"transfer-encoding"})


def build_parser_without_upgrade(
    protocol: HttpToolsProtocol, version: str, headers: Iterable[Header]
) -> tuple[httptools.HttpRequestParser, bytes]:
    """Return a parser for the rest of the connection, and a head to feed first with the framing of the
    current body.
    """
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
    """Closes connections that send no request, or do not complete one in time.

    A request that arrives in one piece needs no timer. With a cached head it needs no parsing.
    """

    arrival_seconds: float = 30.0
    _arriving = True  # a request is expected or incomplete
    _in_head = True
    _head_size = 0
    _timer: asyncio.TimerHandle | None = None
    _started_count = 0  # requests started by the parser
    _answering: RequestResponseCycle | None = None  # the cycle whose app was started last
    _ignores_data = False  # ignore further data; running requests are still answered

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._heads = HeadCache()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn notifies only the newest request, which may wait for an older response.
        if (running := self._answering) is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        between = not self._arriving and self.cycle.response_complete and not self.pipeline
        if between and self._serve_cached(data):
            return
        started_before = self._started_count
        self._parse(data)
        if not self._arriving or self.transport.is_closing():
            if between and self._started_count == started_before + 1 and self.cycle.keep_alive:
                self._heads.store(data, self.cycle.scope)
            return
        if self._in_head:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD_BYTES:
                self._close_with_status(431)
                return
        if self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._started_count += 1
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
        cycle.__class__ = BufferedCycle  # uvicorn has no way to choose the class
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _serve_cached(self, data: bytes) -> bool:
        """Start a complete request with a cached head. Return whether this was one."""
        found = self._heads.find(data)
        if found is None or self.limit_concurrency is not None:
            return False
        head, digits, body = found
        self._unset_keepalive_if_required()
        self.scope = head.build_scope(digits, self.app_state.copy())
        self.cycle = cycle = BufferedCycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        cycle.more_body = False
        cycle.whole_body = body
        self._start_asgi_task(cycle, cast("Any", self).app)  # uvicorn's type is incomplete
        return True

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
