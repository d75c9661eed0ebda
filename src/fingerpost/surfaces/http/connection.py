"""HTTP/1.1 connections on uvicorn: time and size limits, cached request heads, responses in one write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, HTTPResponseBodyEvent, HTTPResponseStartEvent
import re
from typing import TYPE_CHECKING, Any

from fingerpost.frozen import frozen

if TYPE_CHECKING:
    from uvicorn._types import HTTPScope
from collections.abc import Iterable

import httptools

from fingerpost.surfaces.http.asgi import Header

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
import asyncio
from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
_STREAMING_HEADERS: Final = frozenset(
    {b"connection", b"transfer-encoding"}
)  # say how the answer is sent: uvicorn's matter


class BufferedCycle(RequestResponseCycle):
    """uvicorn's, except that a head which says how long its body is waits for that body."""

    _start: HTTPResponseStartEvent | None = None
    _until_closed = False  # where the body ends is where the connection does
    _length: int | None = None  # of the body to come
    whole_body: bytes | None = None  # of the request, where it came in one piece with its head

    async def receive(self) -> ASGIReceiveEvent:
        body = self.whole_body
        if body is None or self.disconnected or self.response_complete:
            return await super().receive()
        self.whole_body = None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and not self.response_started:
            self._start = message  # an app that fails before it has a body may begin anew
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
        """Whether all of the answer could be written at once."""
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
            return False  # uvicorn says what is wrong with one of them
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
    """How long the body will be, where the head says so and nothing of how it is sent."""
    length = None
    for name, value in start.get("headers", ()):
        if name in _STREAMING_HEADERS:
            return None
        if name == b"content-length":
            length = int(value)
    return length


MAX_HEADS: Final = 4  # heads of one connection
MAX_HEAD_LENGTH: Final = 4096  # bytes of a head that is kept
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH_HEADER: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,9})(?=\r\n)", re.IGNORECASE)
# What is about this one message, or about what comes after it.
_UNCACHED_HEADERS: Final = frozenset({b"expect", b"te", b"trailer", b"transfer-encoding", b"upgrade"})


@frozen(kw_only=False, eq=False)
class CachedHead:
    """A head around the digits of its length, and what the parser made of it."""

    before: bytes
    after: bytes  # to the empty line
    scope: HTTPScope
    place: int  # of the length among the headers

    def build_scope(self, digits: bytes, state: dict[str, Any]) -> HTTPScope:
        """As the parser would have made it."""
        headers = list(self.scope["headers"])
        headers[self.place] = (b"content-length", digits)
        scope = self.scope.copy()
        scope["headers"] = headers
        scope["state"] = state
        return scope


class HeadCache:
    """Those of one connection, the newest last."""

    def __init__(self) -> None:
        self._known: list[CachedHead] = []

    def find(self, data: bytes) -> tuple[CachedHead, bytes, bytes] | None:
        """The known head of a request that is whole, its length as sent, and its body."""
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
        """Keep the head of a request that came in one piece, was whole, and leaves the connection open."""
        end = data.find(_HEAD_END) + len(_HEAD_END)
        lengths = _LENGTH_HEADER.findall(data, 0, end)
        if end > MAX_HEAD_LENGTH or len(lengths) != 1 or int(lengths[0]) != len(data) - end:
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
        del self._known[:-MAX_HEADS]


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


MAX_HEAD_BYTES: Final = 64 * 1024
MAX_READ_AHEAD: Final = 8  # requests that wait behind a running one before nothing more is read


class GuardedProtocol(HttpToolsProtocol):
    """Cuts off whoever connects and does not ask, or never comes to the end of its request.

    A request that arrives in one piece, as nearly all do, costs no timer, and with a known head no parsing.
    """

    arrival_seconds: float = 30.0
    _arriving = True  # a request is awaited or half there
    _in_head = True
    _head_size = 0
    _timer: asyncio.TimerHandle | None = None
    _begun = 0  # requests the parser has seen the start of
    _answering: RequestResponseCycle | None = None  # the one whose app was started last
    _deaf = False  # what comes is not for us; what is being answered still is

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._heads = HeadCache()
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        # uvicorn tells the newest request alone, which may be waiting for an older one's answer.
        if (running := self._answering) is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        between = not self._arriving and self.cycle.response_complete and not self.pipeline
        if between and self._is_served(data):
            return
        begun = self._begun
        self._parse(data)
        if not self._arriving or self.transport.is_closing():
            if between and self._begun == begun + 1 and self.cycle.keep_alive:
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
        self._begun += 1
        self._arriving = self._in_head = True
        self._head_size = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._in_head = False
        if 0 < len(self.pipeline) <= MAX_READ_AHEAD:
            self.flow.resume_reading()  # or we would not hear that the client of the running one left

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # its body is still to come
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
        """As uvicorn does; but no other protocol is spoken here, so an upgrade changes nothing."""
        if self._deaf:
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
        cycle.__class__ = BufferedCycle  # uvicorn names its own class where it makes one
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _is_served(self, data: bytes) -> bool:
        """Whether this was a whole request with a known head, and is being answered."""
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
        self._start_asgi_task(cycle, cast("Any", self).app)  # uvicorn's own type of it is not complete
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
                self._start_timer()  # it may be we who do not read meanwhile
            else:
                self._stop_reading()
            return
        if self._in_head or not self.cycle.response_started:
            self.transport.write(STATUS_LINE[status] + b"connection: close\r\ncontent-length: 0\r\n\r\n")
        self.transport.close()

    def _is_another_answered(self) -> bool:
        """Whether what we write now would be read as part of the answer to an earlier request."""
        running = self._answering
        if running is None or running.response_complete:
            return False
        return self._in_head or running is not self.cycle

    def _stop_reading(self) -> None:
        """The connection ends when the requests that came whole are answered."""
        self._deaf = self._arriving = True
        self.cycle.keep_alive = False


def build_protocol(arrival_seconds: float) -> type[GuardedProtocol]:
    """The protocol with this patience."""
    return type("PatientProtocol", (GuardedProtocol,), {"arrival_seconds": arrival_seconds})
