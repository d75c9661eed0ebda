"""Requests over plain HTTP/1.1, by hand: a parser, kept connections, and nothing in between.

What a general client does for each request (an object for the request, one for the response, a
stream, a timer, a look at cookies, proxies and encodings) costs more than our whole way to it. Here
a request is one write, and a reply of JSON wakes whoever waits once, when it is whole. Bounds are
the same: on the head, the body, what is buffered, the time to connect; the time for the answer is
the caller's to set. Whatever is rare (TLS, redirects, reading on) is `anyhttp`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, cast
from urllib.parse import urlsplit

import anyio
import httptools

from fingerpost.records import ServerSpec
from fingerpost.servers.failures import build_too_large
from fingerpost.servers.posting import STREAM_END_SECONDS, ConnectFailed, HttpEndpoint, HttpResponse
from fingerpost.servers.redirects import is_same_server, resolve_addresses, resolve_redirect, strip_secrets
from fingerpost.servers.replies import EVENT_STREAM_TYPE, JSON_TYPE, parse_content_type
from fingerpost.settings.addresses import LINK_LOCAL_MESSAGE, is_link_local

CONNECT_SECONDS: Final = 10.0
# Many servers (uvicorn, Node) close what was idle for five seconds. What is sent at that very moment is
# lost, of all connections at once after a pause, which looked as if the server failed again and again.
KEEP_ALIVE_SECONDS: Final = 4.0
MAX_REDIRECTS: Final = 5
MAX_IDLE: Final = 256  # connections to one address
READ_BUFFER: Final = 256 * 1024  # of a stream whose reader is slow
MAX_HEAD_SIZE: Final = 128 * 1024
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # in a header: it would begin another one
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

Origin = tuple[str, int]


class Http11Response:
    """One answer; see `Answer`. Ready with its head; JSON when it is whole, a stream when it has begun."""

    __slots__ = ("_connection", "_error", "_limit", "_parts", "_server", "_size", "_unpack", "_waiter",
                 "kind", "leads_to", "location", "retry_after", "status", "whole_length")  # fmt: skip

    def __init__(self, connection: _Http11Connection, server: str, limit: int) -> None:
        self._connection: _Http11Connection | None = connection  # None: the answer is complete
        self._server = server
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0  # of what is held
        self._error: Exception | None = None
        self._unpack: Callable[[bytes, int], bytes] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.kind = ""
        self.location: str | None = None  # as the server writes it
        self.leads_to: str | None = None
        self.retry_after: str | None = None
        self.whole_length = 0

    # -- for whoever asked --------------------------------------------------------------------------

    async def wait_until_readable(self) -> None:
        """Return when there is something to read."""
        while not self._is_readable:
            await self._wait_for_data()

    async def read_all(self) -> bytes:
        if self.whole_length > self._limit:
            raise build_too_large(self._server, self._limit)
        pieces: list[bytes] = []
        size = 0
        while True:
            size += self._size
            if size > self._limit:
                raise build_too_large(self._server, self._limit)
            pieces += self._take_parts()
            if self._connection is None:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            await self._wait_for_data()

    async def read_chunk(self) -> bytes:
        while True:
            pieces = self._take_parts()
            if pieces:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._connection is None:
                return b""
            await self._wait_for_data()

    def release(self) -> None:
        if self._connection is not None:
            self._take_parts()
            self._connection.finish_soon()

    def abort(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _take_parts(self) -> list[bytes]:
        if self._error is not None:
            raise self._error
        pieces, self._parts = self._parts, []
        self._size = 0
        if self._connection is not None:
            self._connection.resume()
        return pieces

    async def _wait_for_data(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None:
            raise self._error

    # -- for the connection -------------------------------------------------------------------------

    @property
    def _is_readable(self) -> bool:
        if self._connection is None or self._error is not None:
            return True
        return (
            bool(self._parts)
            if self.kind == EVENT_STREAM_TYPE
            else self.status != 0 and self.kind != JSON_TYPE
        )

    def set_head(self, status: int, kind: str, length: int, location: str | None) -> None:
        self.status, self.kind, self.whole_length, self.location = status, kind, length, location
        if kind not in (JSON_TYPE, EVENT_STREAM_TYPE):
            self._wake()
        elif kind == JSON_TYPE and length > self._limit:
            self.fail(build_too_large(self._server, self._limit))

    def set_compressed(self) -> None:
        """The body comes compressed. Nobody asked for that, and some servers do it nevertheless."""
        self._unpack = zlib.decompressobj(_ANY_HEADER).decompress

    def _decompress(self, piece: bytes) -> bytes:
        """What is in it; nothing where that is more than allowed, or cannot be read."""
        assert self._unpack is not None
        try:
            piece = self._unpack(piece, self._limit + 1)
        except zlib.error:
            self.fail(ConnectionError("the answer cannot be unpacked"))
            return b""
        if len(piece) <= self._limit:
            return piece
        self.fail(build_too_large(self._server, self._limit))
        return b""

    def add_chunk(self, piece: bytes) -> bool:
        """Take a piece of the body. Whether no more should be read for now."""
        if self._unpack is not None and not (piece := self._decompress(piece)):
            return False
        self._parts.append(piece)
        self._size += len(piece)
        if self.kind != JSON_TYPE:
            self._wake()
            return self._size > READ_BUFFER
        if self._size > self._limit:
            self.fail(build_too_large(self._server, self._limit))
        return False

    def complete(self) -> None:
        self._connection = None
        self._wake()

    def fail(self, error: Exception) -> None:
        self._error = self._error or error
        if self._connection is not None:
            self._connection.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Http11Connection(asyncio.Protocol):
    """One connection: one request at a time, kept for the next."""

    def __init__(self, idle: deque[_Http11Connection]) -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: Http11Response | None = None
        self._paused = False
        self._ending: asyncio.TimerHandle | None = None
        self.idle_since = 0.0
        self._reset()

    def _reset(self) -> None:
        self._in_head = True
        self._head_size = 0
        self._kind = b""
        self._location: str | None = None
        self._retry_after: str | None = None
        self._length = -1  # of the body; unknown
        self._framed = False  # whether the answer itself says where it ends
        self._encoding = b""

    def send(self, request: bytes, server: str, limit: int) -> Http11Response:
        assert self._transport is not None
        self._answer = answer = Http11Response(self, server, limit)
        self._transport.write(request)
        return answer

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def resume(self) -> None:
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()

    def finish_soon(self) -> None:
        """Nobody waits for the rest of this answer."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(STREAM_END_SECONDS, self.close)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- what the event loop says -------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # nothing was asked
            return
        if self._in_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ConnectionError("the server wants to speak another protocol than HTTP"))
            return
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"this is not HTTP: {error}"))
            return
        if self._in_head and self._head_size > MAX_HEAD_SIZE:
            self._fail(ConnectionError(f"the head of the answer is larger than {MAX_HEAD_SIZE} bytes"))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None:
            self._answer.fail(error)
        self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._ending is not None:
            self._ending.cancel()
        answer, self._answer = self._answer, None
        if answer is not None and exc is None and not self._in_head and not self._framed:
            answer.complete()  # the older way to say where a body ends
        elif answer is not None:
            answer.fail(ConnectionError(str(exc) if exc else "the server closed the connection"))
        if self in self._idle:
            self._idle.remove(self)

    # -- what the parser says -----------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if name in _NO_CONTENT:
            return
        match name.lower():
            case b"content-type":
                self._kind = value
            case b"content-length":
                self._framed = True
                self._length = int(value) if value.isdigit() and len(value) < 20 else -1
            case b"transfer-encoding":
                self._framed = True
            case b"location":
                self._location = value.decode("latin-1")
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-encoding":
                self._encoding = value.strip().lower()
            case _:
                pass

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200 or self._answer is None:
            return
        self._in_head = False
        if self._encoding in _COMPRESSED_ENCODINGS:
            self._answer.set_compressed()
        elif self._encoding not in (b"", b"identity"):
            self._fail(ConnectionError("the answer is compressed in a way nobody asked for"))
            return
        self._answer.retry_after = self._retry_after
        self._answer.set_head(status, _parse_content_type(self._kind), self._length, self._location)

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        if answer is None or self._ending is not None:
            return
        if answer.add_chunk(body) and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._in_head:  # "100 Continue" and the like: the answer is still to come
            self._reset()
            return
        answer, self._answer = self._answer, None
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        keeps = self._parser.should_keep_alive()
        self._reset()
        if answer is not None:
            answer.complete()
        if keeps and self.is_usable and len(self._idle) < MAX_IDLE:
            self.resume()
            self.idle_since = time.monotonic()
            self._idle.append(self)
        else:
            self.close()


_NO_CONTENT: Final = frozenset(
    {b"date", b"server", b"cache-control", b"connection", b"x-accel-buffering", b"mcp-session-id"}
)
_COMPRESSED_ENCODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS  # zlib finds out itself which of the two it is
_KINDS: Final[dict[bytes, str]] = {b"application/json": JSON_TYPE, b"text/event-stream": EVENT_STREAM_TYPE}


def _parse_content_type(value: bytes) -> str:
    return _KINDS.get(value) or parse_content_type(value.decode("latin-1"))


class Http11Pool:
    """The kept connections to all addresses. What one server says never reaches another."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[_Http11Connection]] = {}

    def take_idle(self, origin: Origin) -> _Http11Connection | None:
        """A connection that is open already: the one used last."""
        idle = self._idle.get(origin)
        if not idle:
            return None
        oldest = time.monotonic() - KEEP_ALIVE_SECONDS
        while idle and idle[0].idle_since < oldest:
            idle.popleft().close()
        while idle:
            if (connection := idle.pop()).is_usable:
                return connection
        return None

    async def connect(self, origin: Origin, addresses: Sequence[str] = ()) -> _Http11Connection:
        """A new one, to the first of the addresses that answers. Raises `ConnectFailed`."""
        idle = self._idle.setdefault(origin, deque())
        loop = asyncio.get_running_loop()
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                for place, host in enumerate(addresses or origin[:1], 1):
                    with contextlib.suppress(OSError) if place < len(addresses) else contextlib.nullcontext():
                        _, connection = await loop.create_connection(
                            lambda: _Http11Connection(idle), host, origin[1]
                        )
                        return connection
        except TimeoutError as error:
            message = f"{origin[0]}:{origin[1]} did not answer within {CONNECT_SECONDS:g} s"
            raise ConnectFailed(message) from error
        except OSError as error:
            raise ConnectFailed(str(error)) from error
        raise ConnectFailed(origin[0])

    def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


class Http11Endpoint:
    """The way to one server's address; see `HttpEndpoint`. `otherwise` is the way for what is rare."""

    def __init__(
        self,
        spec: ServerSpec,
        http: Http11Pool,
        headers: Mapping[str, str],
        *,
        limit: int,
        fallback: Callable[[str], Awaitable[HttpEndpoint]],
    ) -> None:
        assert spec.url is not None
        self._server = spec.name
        self._own_headers = spec.headers
        self._http = http
        self._headers = headers
        self._limit = limit
        self._otherwise = fallback
        self._moved: HttpEndpoint | None = None
        self._allow_link_local = spec.allow_link_local
        self._set_url(spec.url)

    def _set_url(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = url
        self._origin: Origin = (parts.hostname or "", parts.port or 80)
        host = f"[{parts.hostname}]" if ":" in self._origin[0] else parts.hostname
        port = f":{parts.port}" if parts.port else ""
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._first = f"POST {target} HTTP/1.1\r\n".encode("ascii")
        standing = {"host": f"{host}{port}", "accept-encoding": "identity", **self._headers}
        self._lines = {name: _format_header(name, value) for name, value in standing.items()}
        self._head = self._first + b"".join(self._lines.values())

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        for follows in reversed(range(MAX_REDIRECTS + 1)):
            if self._moved is not None:
                break
            answer = await self._send(body, headers)
            if answer.location is None or not await self._follow_redirect(answer) or not follows:
                return answer
        assert self._moved is not None
        return await self._moved.post(body, headers)

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> Http11Response:
        request = b"%bcontent-length: %d\r\n\r\n%b" % (self._build_head(headers), len(body), body)
        connection = self._http.take_idle(self._origin) or await self._connect()
        answer = connection.send(request, self._server, self._limit)
        try:
            await answer.wait_until_readable()
        except BaseException:
            answer.abort()  # and not the connection: a whole answer has given it back already
            raise
        return answer

    async def _connect(self) -> _Http11Connection:
        addresses = await resolve_addresses(self._origin)
        if not self._allow_link_local and any(map(is_link_local, (self._origin[0], *addresses))):
            message = f"{self._origin[0]} {LINK_LOCAL_MESSAGE}"
            raise ConnectFailed(message)
        return await self._http.connect(self._origin, addresses)

    async def _follow_redirect(self, answer: Http11Response) -> bool:
        """Whether the same request is to be sent where the answer leads; it is known from now on."""
        target = resolve_redirect(self._url, answer.status, answer.location)
        if target is None:
            return False
        answer.leads_to = strip_secrets(target)
        if not is_same_server(self._url, answer.status, target):
            return False
        answer.abort()
        if supports(target, self._own_headers):
            self._set_url(target)
        else:
            self._moved = await self._otherwise(target)
        return True

    async def resume_stream(self, last_id: str, headers: Mapping[str, str]) -> HttpResponse:
        way = self._moved or await self._otherwise(self._url)
        return await way.resume_stream(last_id, headers)

    def _build_head(self, headers: Mapping[str, str]) -> bytes:
        lines = [
            (_routing_header if name.lower() in _ROUTING else _format_header)(name, value)
            for name, value in headers.items()
        ]
        for name in headers:
            if name.lower() in self._lines:
                return self._build_head_without(headers, lines)
        return self._head + b"".join(lines)

    def _build_head_without(self, headers: Mapping[str, str], lines: list[bytes]) -> bytes:
        own = {name.lower() for name in headers}
        kept = [line for name, line in self._lines.items() if name not in own]
        return self._first + b"".join([*kept, *lines])


def supports(url: str, headers: Mapping[str, str]) -> bool:
    """Whether `Http11Endpoint` is enough for this address: no TLS, nothing in it that needs rewriting."""
    parts = urlsplit(url)
    plain = url.isascii() and url.isprintable() and " " not in url and not parts.username
    special = {"accept-encoding", "host", "content-length", "transfer-encoding", "connection", "expect"}
    return parts.scheme == "http" and plain and not special & {name.lower() for name in headers}


def _format_header(name: str, value: str) -> bytes:
    if _TOKEN.fullmatch(name) is None or _FORBIDDEN.search(value) is not None:
        message = f"the header {name!r:.60} cannot be sent"
        raise ValueError(message)
    return f"{name}: {value}\r\n".encode()


# The same few values, and the names of tools. Never the others: a caller's token must not outlive their call.
_ROUTING: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_routing_header: Final = lru_cache(maxsize=1024)(_format_header)
