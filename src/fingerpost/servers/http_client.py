"""HTTP for all servers of a pool: the shared client, and HTTP/1.1 requests without a library in between."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import socket
import ssl
import time
import zlib
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol, cast
from urllib.parse import SplitResult, urljoin, urlsplit

import anyio
import anyio.to_thread
import httptools
import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID
from mcp_types import INVALID_PARAMS, METHOD_NOT_FOUND

from fingerpost.errors import FingerpostError, ServerReplyInvalid, ServerUnavailable
from fingerpost.records import ServerSpec
from fingerpost.servers.connection_state import ConnectionState
from fingerpost.servers.errors import (
    UNKNOWN_OUTCOME,
    RouteBlocked,
    SessionRejected,
    build_connection_failure,
    build_http_refusal,
    build_proxy_error,
    build_sign_in_required,
    build_too_large,
    clean_text,
    find_proxy,
    find_tls_fault,
    find_unusable_proxy,
)
from fingerpost.settings.validation import LINK_LOCAL_FIX, LINK_LOCAL_MESSAGE, is_link_local

if TYPE_CHECKING:
    import aiohttp
REDIRECT_STATUSES = (301, 302, 303, 307, 308)
SAME_METHOD_STATUSES = (307, 308)  # only these mean: the same request, body and all
_DEFAULT_PORTS = {"http": 80, "https": 443}


async def resolve_addresses(origin: tuple[str, int]) -> list[str]:
    """The addresses a name stands for now; none where it cannot be found out."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(*origin, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def check_address(spec: ServerSpec) -> None:
    """Raises where a server's address is link-local or a metadata service, also by way of its name."""
    parts = urlsplit(spec.url or "")
    host = parts.hostname or ""
    if spec.allow_link_local:
        return
    addresses = await resolve_addresses((host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)))
    if any(map(is_link_local, (host, *addresses))):
        message = f"the address of {spec.name} {LINK_LOCAL_MESSAGE}"
        raise ServerUnavailable(message, server=spec.name, hint=LINK_LOCAL_FIX)


def resolve_redirect(here: str, status: int, location: str | None) -> str | None:
    """The address a redirect leads to."""
    if status not in REDIRECT_STATUSES or not location:
        return None
    with suppress(ValueError):
        target = urljoin(here, location)
        _get_origin(urlsplit(target))
        return target
    return None


def is_same_server(here: str, status: int, target: str) -> bool:
    """Whether the same request may be sent there: to the same server, or to its TLS port."""
    if status not in SAME_METHOD_STATUSES:
        return False
    before, after = urlsplit(here), urlsplit(target)
    if after.username is not None or after.password is not None:
        return False
    upgraded = (_get_origin(before), _get_origin(after)) == (
        ("http", before.hostname, 80),
        ("https", before.hostname, 443),
    )
    return upgraded or _get_origin(before) == _get_origin(after)


def strip_secrets(target: str) -> str:
    """An address without what may be secret in it."""
    parts = urlsplit(target)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _get_origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Raises `ValueError` for a port that is none."""
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream"
EMPTY_STATUSES = (202, 204)  # good, and without content: right for a notification, not for a request


class ReplyErrors:
    """Judges the answers of one server."""

    def __init__(self, server: str, state: ConnectionState) -> None:
        self._server = server
        self._lifeline = state

    def build_not_mcp(self, kind: str) -> FingerpostError:
        """A good status, and content that is no message."""
        if kind == "text/html":
            return build_sign_in_required(
                self._server, "it answered with a web page, which is usually a login page"
            )
        of_type = f"content of type {kind!r:.80}" if kind else "content that has no type"
        message = f"{self._server} answered with {of_type}, which is not MCP"
        return ServerReplyInvalid(message, server=self._server)

    def build_refused(self, status: int, retry_after: str | None) -> FingerpostError:
        """A status that is not a reply, and no readable error with it."""
        if status in EMPTY_STATUSES:
            return self.build_unreadable(f"is missing (HTTP {status})")
        if status >= 500:
            self._lifeline.request_probe()
        return build_http_refusal(self._server, status, retry_after)

    def build_redirected(self, here: str, status: int, location: str) -> FingerpostError:
        if is_same_server(here, status, location):
            message = f"{self._server} redirects to {location}, again and again: it leads nowhere"
            return ServerUnavailable(message, server=self._server, hint="correct its url, or its redirects")
        message = f"{self._server} redirects to {location}, another address; that is not followed"
        return ServerUnavailable(message, server=self._server, hint="use that address if it is the right one")

    def build_unreadable(self, why: str) -> ServerReplyInvalid:
        return ServerReplyInvalid(f"the reply of {self._server} {clean_text(why)}", server=self._server)

    def build_wrong_id(self, found: object) -> ServerReplyInvalid:
        return self.build_unreadable(f"carries the id of another request ({found!r:.40})")

    def build_cut_short(self) -> FingerpostError:
        message = f"{self._server} ended its reply before it was complete"
        return ServerUnavailable(message, server=self._server, hint=UNKNOWN_OUTCOME)

    def build_session_lost(self) -> FingerpostError:
        """The server forgot us. Ends the connection, so that the next call finds a new one."""
        message = f"{self._server} no longer knows our session; connecting again"
        error = SessionRejected(message, server=self._server, hint="the request did not run; send it again")
        if self._lifeline.is_initialized:
            self._lifeline.end(build_connection_failure(error))
        return error


def is_session_lost(status: int, code: int | None, session: str | None) -> bool:
    """404 is how the protocol says it; many servers say 400 with an error of their own instead."""
    if session is None or status not in (400, 404, 410):
        return False
    return code is None or code not in (INVALID_PARAMS, METHOD_NOT_FOUND)


def parse_content_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


STREAM_END_SECONDS = (
    0.25  # the end of a stream mostly follows its reply at once, and leaves the connection usable
)


class ConnectFailed(ConnectionError):
    """No connection was made: nothing was sent."""


class HttpResponse(Protocol):
    """One HTTP answer, from its head on. Ended by `release` or `abort`. Its reading raises `OSError`."""

    @property
    def status(self) -> int: ...

    @property
    def kind(self) -> str:
        """The type of its content, in small letters and without parameters."""
        ...

    @property
    def leads_to(self) -> str | None:
        """Where a redirect leads, without what may be secret in an address."""
        ...

    @property
    def retry_after(self) -> str | None:
        """When to come again, as the server writes it."""
        ...

    async def read_all(self) -> bytes:
        """The whole body. Raises `LimitReached` for what is larger than allowed, which is not read."""
        ...

    async def read_chunk(self) -> bytes:
        """The next piece of the body; nothing when it has ended."""
        ...

    def release(self) -> None:
        """What mattered was read: the connection may be used again."""
        ...

    def abort(self) -> None:
        """Nobody wants the rest. The server sees it by the closed connection."""
        ...


class HttpEndpoint(Protocol):
    """The way to one server's address. Both raise `OSError`; `ConnectFailed` where nothing was sent."""

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """Send. Redirects are followed only where they stay with this server."""
        ...

    async def resume_stream(self, last_id: str, headers: Mapping[str, str]) -> HttpResponse:
        """Ask for the rest of a stream, behind the event with this id."""
        ...


def build_common_headers(spec: ServerSpec, cookies: httpx2.Cookies, *, session: str | None) -> dict[str, str]:
    """What every request carries, by names in small letters: built once."""
    headers = {name.lower(): value for name, value in spec.headers.items()}
    headers["accept"] = f"{JSON_TYPE}, {EVENT_STREAM_TYPE}"
    headers["content-type"] = JSON_TYPE
    if session is not None:
        headers[MCP_SESSION_ID.lower()] = session
    if len(cookies):
        # Set by this server while we shook hands: how a balancer finds the machine with our session.
        request = httpx2.Request("POST", spec.url or "")
        cookies.set_cookie_header(request)
        if (line := request.headers.get("cookie")) is not None:
            headers["cookie"] = line
    return headers


def merge_headers(common: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """All of them; one request's own go before those that every request carries."""
    return {**common, **{name.lower(): value for name, value in own.items()}}


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


logger = logging.getLogger("fingerpost.servers")

KEEPALIVE_SECONDS = 600.0
SHARED_CONNECT_SECONDS = 10.0
WRITE_SECONDS = 30.0


class HttpClients:
    """Builds the shared client on first use and closes it at the end."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._shared: httpx2.AsyncClient | None = None
        self._tls: ssl.SSLContext | None = None
        self._no_trust: RouteBlocked | None = None  # why no certificate can be checked
        self._plain = Http11Pool()
        self._full: aiohttp.ClientSession | None = None

    async def build_client(
        self, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        """A client for one server. Closing it leaves the shared connections alone."""
        shared, _ = await self._ensure_open()
        return httpx2.AsyncClient(
            transport=_SharedTransport(shared, self._no_trust),
            headers=dict(headers or {}),
            auth=auth,
            # Every exchange has a deadline of ours around it; a stream may be silent for as long as it likes.
            timeout=httpx2.Timeout(None, connect=SHARED_CONNECT_SECONDS, write=WRITE_SECONDS),
            follow_redirects=False,
        )

    async def build_endpoint(
        self, spec: ServerSpec, headers: Mapping[str, str], *, limit: int
    ) -> HttpEndpoint | None:
        """The faster way for single requests to one server, which all carry these headers.

        None where a proxy named in the environment leads to the address: the other client knows the rules.
        """
        url = spec.url or ""
        shared, tls = await self._ensure_open()
        way = shared._transport_for_url(httpx2.URL(url))  # pyright: ignore[reportPrivateUsage] - see _Borrowed
        if way is not shared._transport:  # pyright: ignore[reportPrivateUsage]
            return None

        async def full(url: str) -> HttpEndpoint:
            anyhttp = await anyio.to_thread.run_sync(import_module, "fingerpost.servers.http_aiohttp")
            if self._full is None:
                self._full = anyhttp.open_session(tls)
            return anyhttp.AnyPosting(spec, url, self._full, headers, limit=limit)

        if supports(url, spec.headers):
            return Http11Endpoint(spec, self._plain, headers, limit=limit, fallback=full)
        return await full(url)

    async def _ensure_open(self) -> tuple[httpx2.AsyncClient, ssl.SSLContext]:
        async with self._lock:
            if self._shared is None or self._tls is None:
                self._tls, self._no_trust = await anyio.to_thread.run_sync(_load_trust)
                self._shared = await anyio.to_thread.run_sync(_build_client, self._tls)
        return self._shared, self._tls

    async def aclose(self) -> None:
        self._plain.close()
        if self._full is not None:
            await self._full.close()
            self._full = None
        if self._shared is not None:
            await self._shared.aclose()
            self._shared = None


class _SharedTransport(httpx2.AsyncBaseTransport):
    """The shared connections in the hands of one client: usable, not closable.

    Which of them leads to an address (direct, or a proxy named in the
    environment) is the shared client's knowledge; it has no public name for it.
    """

    def __init__(self, shared: httpx2.AsyncClient, no_trust: RouteBlocked | None) -> None:
        self._shared = shared
        self._no_trust = no_trust

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._no_trust is not None and request.url.scheme == "https":
            raise RouteBlocked(str(self._no_trust), hint=self._no_trust.hint)
        way = self._shared._transport_for_url(request.url)  # pyright: ignore[reportPrivateUsage] - see above
        direct = way is self._shared._transport  # pyright: ignore[reportPrivateUsage]
        try:
            return await way.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            proxy = None if direct else find_proxy(request.url)
            if proxy is None or find_tls_fault(error) is not None:
                raise
            raise build_proxy_error(error, proxy) from error

    async def aclose(self) -> None:
        return None


def _load_trust() -> tuple[ssl.SSLContext, RouteBlocked | None]:
    """Whom to trust. Where that cannot be read nobody is trusted: only servers without TLS do without."""
    try:
        return httpx2.create_ssl_context(), None
    except OSError as error:
        variable = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
        hint = "let it name a file with the certificates to trust, in PEM, or take it out of the environment"
        message = f"what the environment variable {variable} names holds no certificates that can be read"
        if variable is None:
            hint = "set SSL_CERT_FILE to a file with the certificates to trust, in PEM"
            message = "the certificates that this machine trusts cannot be read"
        logger.warning("%s (%s): %s", message, type(error).__name__, hint)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), RouteBlocked(message, hint=hint)


def _build_client(tls: ssl.SSLContext) -> httpx2.AsyncClient:
    """Raises `RouteBlocked` for proxies that cannot be used: to go without them is not ours to decide."""
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_SECONDS
    )
    try:
        return httpx2.AsyncClient(verify=tls, limits=limits)
    except (httpx2.InvalidURL, ValueError) as error:
        if (blocked := find_unusable_proxy()) is None:
            raise
        raise blocked from error
