"""HTTP for all servers of a pool: the shared client, and a small HTTP/1.1 client for single requests."""

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
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, cast
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
    SessionRejected,
    build_connection_failure,
    build_sign_in_required,
    build_too_large,
    clean_text,
)
from fingerpost.servers.failures import (
    RouteBlocked,
    build_http_refusal,
    build_proxy_error,
    find_proxy,
    find_tls_fault,
    find_unusable_proxy,
)
from fingerpost.settings.validation import LINK_LOCAL_FIX, LINK_LOCAL_MESSAGE, is_link_local

REDIRECT_STATUSES = (301, 302, 303, 307, 308)
SAME_METHOD_STATUSES = (307, 308)  # only these keep the method and the body
_DEFAULT_PORTS = {"http": 80, "https": 443}


async def resolve_addresses(origin: tuple[str, int]) -> list[str]:
    """Return the current addresses of a host, or an empty list when it cannot be resolved."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(*origin, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def check_address(spec: ServerSpec) -> None:
    """Raise `ServerUnavailable` if the server's host is, or resolves to, a link-local or metadata address."""
    parts = urlsplit(spec.url or "")
    host = parts.hostname or ""
    if spec.allow_link_local:
        return
    addresses = await resolve_addresses((host, parts.port or _DEFAULT_PORTS.get(parts.scheme, 80)))
    if any(map(is_link_local, (host, *addresses))):
        message = f"the address of {spec.name} {LINK_LOCAL_MESSAGE}"
        raise ServerUnavailable(message, server=spec.name, hint=LINK_LOCAL_FIX)


def resolve_redirect(url: str, status: int, location: str | None) -> str | None:
    """Return the target URL of a redirect, or None."""
    if status not in REDIRECT_STATUSES or not location:
        return None
    with suppress(ValueError, httpx2.InvalidURL):
        target = urljoin(url, location)
        _get_origin(urlsplit(target))
        httpx2.URL(target)
        return target
    return None


def may_follow_redirect(url: str, status: int, target: str) -> bool:
    """Return whether a redirect with this status may be followed: it keeps the method, and `target` is the
    same server or its TLS port.
    """
    if status not in SAME_METHOD_STATUSES:
        return False
    before, after = urlsplit(url), urlsplit(target)
    if after.username is not None or after.password is not None:
        return False
    upgraded = (_get_origin(before), _get_origin(after)) == (
        ("http", before.hostname, 80),
        ("https", before.hostname, 443),
    )
    return upgraded or _get_origin(before) == _get_origin(after)


def strip_secrets(target: str) -> str:
    """Return a URL without credentials, query and fragment."""
    parts = urlsplit(target)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def _get_origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port. Raises `ValueError` for an invalid port."""
    return parts.scheme, parts.hostname, parts.port or _DEFAULT_PORTS.get(parts.scheme)


JSON_TYPE = "application/json"
EVENT_STREAM_TYPE = "text/event-stream"
EMPTY_STATUSES = (202, 204)  # valid for a notification, but not for a request


class ReplyErrors:
    """Builds the errors for invalid responses of one server."""

    def __init__(self, server: str, state: ConnectionState) -> None:
        self._server = server
        self._state = state

    def build_not_mcp(self, kind: str) -> FingerpostError:
        """Build the error for a success status whose content is not an MCP message."""
        if kind == "text/html":
            return build_sign_in_required(
                self._server, "it answered with a web page, which is usually a login page"
            )
        of_type = f"content of type {kind!r:.80}" if kind else "content that has no type"
        message = f"{self._server} answered with {of_type}, which is not MCP"
        return ServerReplyInvalid(message, server=self._server)

    def build_refused(self, status: int, retry_after: str | None) -> FingerpostError:
        """Build the error for a status without a readable error message."""
        if status in EMPTY_STATUSES:
            return self.build_unreadable(f"is missing (HTTP {status})")
        if status >= 500:
            self._state.request_probe()
        return build_http_refusal(self._server, status, retry_after)

    def build_redirected(self, url: str, status: int, location: str) -> FingerpostError:
        if may_follow_redirect(url, status, location):
            message = f"{self._server} redirects to {location}, repeatedly (redirect loop)"
            return ServerUnavailable(message, server=self._server, hint="correct its url, or its redirects")
        message = f"{self._server} redirects to {location}, another address; this is not followed"
        return ServerUnavailable(message, server=self._server, hint="use that address if it is the right one")

    def build_unreadable(self, why: str) -> ServerReplyInvalid:
        return ServerReplyInvalid(f"the reply of {self._server} {clean_text(why)}", server=self._server)

    def build_wrong_id(self, found: object) -> ServerReplyInvalid:
        return self.build_unreadable(f"carries the id of another request ({found!r:.40})")

    def build_cut_short(self) -> FingerpostError:
        message = f"{self._server} ended its reply before it was complete"
        return ServerUnavailable(message, server=self._server, hint=UNKNOWN_OUTCOME)

    def build_session_lost(self) -> FingerpostError:
        """Build the error for an unknown session. Ends the connection: the next call opens a new one."""
        message = f"{self._server} no longer knows our session; connecting again"
        error = SessionRejected(message, server=self._server, hint="the request did not run; send it again")
        if self._state.is_initialized:
            self._state.end(build_connection_failure(error))
        return error


def is_session_lost(status: int, code: int | None, session: str | None) -> bool:
    """Return whether a response means that the server no longer knows our session. The protocol says 404;
    many servers send 400 with their own error.
    """
    if session is None or status not in (400, 404, 410):
        return False
    return code is None or code not in (INVALID_PARAMS, METHOD_NOT_FOUND)


def parse_content_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


# Most streams end right after the reply; waiting for the end keeps the connection usable.
STREAM_END_SECONDS = 0.25


class ConnectFailed(ConnectionError):
    """No connection was made, so nothing was sent."""


def build_common_headers(spec: ServerSpec, cookies: httpx2.Cookies, *, session: str | None) -> dict[str, str]:
    """Return the headers of every request, with lower-case names."""
    headers = {name.lower(): value for name, value in spec.headers.items()}
    headers["accept"] = f"{JSON_TYPE}, {EVENT_STREAM_TYPE}"
    headers["content-type"] = JSON_TYPE
    if session is not None:
        headers[MCP_SESSION_ID.lower()] = session
    if len(cookies):
        # Cookies set by the server during the handshake: a load balancer finds our session with them.
        request = httpx2.Request("POST", spec.url or "")
        cookies.set_cookie_header(request)
        if (line := request.headers.get("cookie")) is not None:
            headers["cookie"] = line
    return headers


CONNECT_SECONDS: Final = 10.0
# Many servers (uvicorn, Node) close a connection after five idle seconds. A request sent at that moment
# is lost. After a pause this affected all connections at once and looked like repeated server failures.
KEEP_ALIVE_SECONDS: Final = 4.0
TLS_KEEP_ALIVE_SECONDS: Final = 45.0  # TLS ends at load balancers, which wait a minute, and is slow to open
MAX_REDIRECTS: Final = 5
MAX_IDLE: Final = 256  # connections to one address
READ_BUFFER: Final = 256 * 1024  # of a stream with a slow reader
MAX_HEAD_SIZE: Final = 128 * 1024
_FORBIDDEN: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # would start another header
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

Origin = tuple[str, int, bool]  # host, port, TLS


class HttpResponse:
    """One response whose head was received. JSON is readable when it is complete, a stream when it has
    started. Reading raises `OSError`; `release` or `abort` ends it.
    """

    __slots__ = ("_connection", "_decompressor", "_error", "_limit", "_parts", "_server", "_size", "_waiter",
                 "kind", "leads_to", "location", "retry_after", "status", "whole_length")  # fmt: skip

    def __init__(self, connection: _HttpConnection, server: str, limit: int) -> None:
        self._connection: _HttpConnection | None = connection  # None when the response is complete
        self._server = server
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0  # of the buffered parts
        self._error: Exception | None = None
        self._decompressor: Callable[[bytes, int], bytes] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.kind = ""  # the content type in lower case, without parameters
        self.location: str | None = None  # as sent by the server
        self.leads_to: str | None = None  # the target of a redirect, without secrets
        self.retry_after: str | None = None
        self.whole_length = 0

    async def read_all(self) -> bytes:
        """Return the whole body. Raises `LimitReached` if it is larger than allowed; the rest is not read."""
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
            await self.wait_for_data()

    async def read_chunk(self) -> bytes:
        """Return the next part of the body, or empty bytes at its end."""
        while True:
            pieces = self._take_parts()
            if pieces:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._connection is None:
                return b""
            await self.wait_for_data()

    def release(self) -> None:
        """Finish the response. The connection may be reused."""
        if self._connection is not None:
            self._take_parts()
            self._connection.finish_soon()

    def abort(self) -> None:
        """Discard the rest of the response. The server sees a closed connection."""
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

    async def wait_for_data(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
        if self._error is not None:
            raise self._error

    @property
    def is_readable(self) -> bool:
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
        """Decompress the body. Some servers compress although no compression was requested."""
        self._decompressor = zlib.decompressobj(_ANY_FORMAT_WBITS).decompress

    def _decompress(self, piece: bytes) -> bytes:
        """Return the decompressed bytes, or empty bytes if they exceed the limit or are invalid."""
        assert self._decompressor is not None
        try:
            piece = self._decompressor(piece, self._limit + 1)
        except zlib.error:
            self.fail(ConnectionError("the answer cannot be unpacked"))
            return b""
        if len(piece) <= self._limit:
            return piece
        self.fail(build_too_large(self._server, self._limit))
        return b""

    def add_chunk(self, piece: bytes) -> bool:
        """Add a part of the body. Return whether reading should pause."""
        if self._decompressor is not None and not (piece := self._decompress(piece)):
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


class _HttpConnection(asyncio.Protocol):
    """One connection. It handles one request at a time and is kept for the next."""

    def __init__(self, idle: deque[_HttpConnection]) -> None:
        self._idle = idle
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answer: HttpResponse | None = None
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
        self._length = -1  # of the body; -1 when unknown
        self._framed = False  # whether the response itself defines its end
        self._encoding = b""

    def send(self, request: bytes, server: str, limit: int) -> HttpResponse:
        assert self._transport is not None
        self._answer = answer = HttpResponse(self, server, limit)
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
        """Close the connection unless the unread response ends soon."""
        if self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(STREAM_END_SECONDS, self.close)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.close()  # data without a request
            return
        if self._in_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._fail(ConnectionError("the server asked for another protocol than HTTP"))
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
            answer.complete()  # HTTP/1.0: the end of the connection ends the body
        elif answer is not None:
            answer.fail(ConnectionError(str(exc) if exc else "the server closed the connection"))
        if self in self._idle:
            self._idle.remove(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name in _IGNORED_HEADERS:
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
            self._fail(ConnectionError("the answer is in a content encoding that was not requested"))
            return
        self._answer.retry_after = self._retry_after
        kind = _KINDS.get(self._kind) or parse_content_type(self._kind.decode("latin-1"))
        self._answer.set_head(status, kind, self._length, self._location)

    def on_body(self, body: bytes) -> None:
        answer = self._answer
        if answer is None or self._ending is not None:
            return
        if answer.add_chunk(body) and self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self._in_head:  # "100 Continue" and similar: the final response follows
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


_IGNORED_HEADERS: Final = frozenset(
    {b"date", b"server", b"cache-control", b"connection", b"x-accel-buffering", b"mcp-session-id"}
)
_COMPRESSED_ENCODINGS: Final = frozenset({b"gzip", b"x-gzip", b"deflate"})
_ANY_FORMAT_WBITS: Final = 32 + zlib.MAX_WBITS  # zlib detects gzip or zlib format
_KINDS: Final[dict[bytes, str]] = {b"application/json": JSON_TYPE, b"text/event-stream": EVENT_STREAM_TYPE}


class HttpConnections:
    """Idle connections to all addresses. No state is shared between servers."""

    def __init__(self) -> None:
        self._idle: dict[Origin, deque[_HttpConnection]] = {}

    def take_idle(self, origin: Origin) -> _HttpConnection | None:
        """Return the most recently used idle connection, or None."""
        idle = self._idle.get(origin)
        if not idle:
            return None
        oldest = time.monotonic() - (TLS_KEEP_ALIVE_SECONDS if origin[2] else KEEP_ALIVE_SECONDS)
        while idle and idle[0].idle_since < oldest:
            idle.popleft().close()
        while idle:
            if (connection := idle.pop()).is_usable:
                return connection
        return None

    async def connect(self, origin: Origin, addresses: Sequence[str], tls: ssl.SSLContext) -> _HttpConnection:
        """Connect to the first address that accepts. Raises `ConnectFailed`."""
        idle = self._idle.setdefault(origin, deque())
        loop = asyncio.get_running_loop()
        name, port, is_tls = origin
        context, server_name = (tls, name) if is_tls else (None, None)
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                for place, host in enumerate(addresses or origin[:1], 1):
                    with contextlib.suppress(OSError) if place < len(addresses) else contextlib.nullcontext():
                        _, connection = await loop.create_connection(
                            lambda: _HttpConnection(idle),
                            host,
                            port,
                            ssl=context,
                            server_hostname=server_name,
                        )
                        return connection
        except TimeoutError as error:
            raise ConnectFailed(f"{name}:{port} did not answer within {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise ConnectFailed(f"{name}:{port}: {error.strerror or error}") from error
        raise ConnectFailed(name)

    def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


class HttpEndpoint:
    """Sends requests to one server over HTTP/1.1, with or without TLS. Methods raise `OSError`, or
    `ConnectFailed` when nothing was sent.
    """

    def __init__(
        self,
        spec: ServerSpec,
        http: HttpConnections,
        headers: Mapping[str, str],
        *,
        limit: int,
        tls: ssl.SSLContext,
    ) -> None:
        assert spec.url is not None
        self._server = spec.name
        self._http = http
        self._headers = headers
        self._limit = limit
        self._tls = tls
        self._allow_link_local = spec.allow_link_local
        self._set_url(spec.url)

    def _set_url(self, url: str) -> None:
        parts = httpx2.URL(url)  # encodes what must be
        is_tls = parts.scheme == "https"
        self._url = url
        self._origin: Origin = (parts.raw_host.decode(), parts.port or (443 if is_tls else 80), is_tls)
        self._target = parts.raw_path
        common = {"host": parts.netloc.decode(), "accept-encoding": "identity"}
        if parts.userinfo:
            credentials = f"{parts.username}:{parts.password}".encode()
            common["authorization"] = f"Basic {b64encode(credentials).decode()}"
        self._lines = {
            name: _format_header(name, value) for name, value in {**common, **self._headers}.items()
        }
        self._head = self._build_request_line("POST") + b"".join(self._lines.values())

    def _build_request_line(self, method: str) -> bytes:
        return b"%b %b HTTP/1.1\r\n" % (method.encode(), self._target)

    async def post(self, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """Send a POST request. Redirects are followed only within this server."""
        for follows in reversed(range(MAX_REDIRECTS + 1)):
            request = b"%bcontent-length: %d\r\n\r\n%b" % (self._build_head(headers), len(body), body)
            answer = await self._send(request)
            if answer.location is None or not self._follow_redirect(answer) or not follows:
                return answer
        raise AssertionError

    async def resume_stream(self, last_id: str, headers: Mapping[str, str]) -> HttpResponse:
        """Request the rest of an event stream after the event `last_id`."""
        own = {**headers, "accept": EVENT_STREAM_TYPE, "last-event-id": last_id}
        replaced = {"content-type", *map(str.lower, own)}
        return await self._send(self._build_head_without(replaced, own, "GET") + b"\r\n")

    async def _send(self, request: bytes) -> HttpResponse:
        connection = self._http.take_idle(self._origin) or await self._connect()
        answer = connection.send(request, self._server, self._limit)
        try:
            while not answer.is_readable:
                await answer.wait_for_data()
        except BaseException:
            answer.abort()  # not the connection: a complete response has already released it
            raise
        return answer

    async def _connect(self) -> _HttpConnection:
        addresses = await resolve_addresses(self._origin[:2])
        if not self._allow_link_local and any(map(is_link_local, (self._origin[0], *addresses))):
            raise ConnectFailed(f"{self._origin[0]} {LINK_LOCAL_MESSAGE}")
        return await self._http.connect(self._origin, addresses, self._tls)

    def _follow_redirect(self, answer: HttpResponse) -> bool:
        """Return whether to send the request again to the redirect's target, which is kept."""
        target = resolve_redirect(self._url, answer.status, answer.location)
        if target is None:
            return False
        answer.leads_to = strip_secrets(target)
        if not may_follow_redirect(self._url, answer.status, target):
            return False
        answer.abort()
        self._set_url(target)
        return True

    def _build_head(self, headers: Mapping[str, str]) -> bytes:
        names = [name.lower() for name in headers]
        if not self._lines.keys().isdisjoint(names):
            return self._build_head_without(names, headers, "POST")
        return self._head + _format_headers(headers)

    def _build_head_without(
        self, replaced: Collection[str], headers: Mapping[str, str], method: str
    ) -> bytes:
        kept = [line for name, line in self._lines.items() if name not in replaced]
        return self._build_request_line(method) + b"".join(kept) + _format_headers(headers)


def _format_headers(headers: Mapping[str, str]) -> bytes:
    return b"".join(
        [
            (_format_routing_header if name.lower() in _ROUTING else _format_header)(name, value)
            for name, value in headers.items()
        ]
    )


def _format_header(name: str, value: str) -> bytes:
    if _TOKEN.fullmatch(name) is None or _FORBIDDEN.search(value) is not None:
        raise ValueError(f"the header {name!r:.60} cannot be sent")
    return f"{name}: {value}\r\n".encode()


# These headers have few values and are cached. Others are not: a caller's token must not outlive the call.
_ROUTING: Final = frozenset({"mcp-protocol-version", "mcp-method", "mcp-name"})
_format_routing_header: Final = lru_cache(maxsize=1024)(_format_header)


logger = logging.getLogger("fingerpost.servers")

SHARED_KEEPALIVE_SECONDS = 600.0
SHARED_CONNECT_SECONDS = 10.0
WRITE_SECONDS = 30.0


class HttpClients:
    """Builds the shared clients on first use and closes them at the end."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._shared: httpx2.AsyncClient | None = None
        self._tls: ssl.SSLContext | None = None
        self._trust_error: RouteBlocked | None = None  # why no certificate can be checked
        self._connections = HttpConnections()

    async def build_client(
        self, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        """Build a client for one server. Closing it does not close the shared connections."""
        shared, _ = await self._ensure_open()
        return httpx2.AsyncClient(
            transport=_SharedTransport(shared, self._trust_error),
            headers=dict(headers or {}),
            auth=auth,
            # Every exchange has its own deadline, and a stream may stay silent without limit.
            timeout=httpx2.Timeout(None, connect=SHARED_CONNECT_SECONDS, write=WRITE_SECONDS),
            follow_redirects=False,
        )

    async def build_endpoint(
        self, spec: ServerSpec, headers: Mapping[str, str], *, limit: int
    ) -> HttpEndpoint | None:
        """Build a fast endpoint for single requests with these headers.

        Returns None if a proxy from the environment applies to the URL; only the shared client supports
        proxies.
        """
        url = spec.url or ""
        shared, tls = await self._ensure_open()
        transport = shared._transport_for_url(httpx2.URL(url))  # pyright: ignore[reportPrivateUsage] - see _SharedTransport
        if transport is not shared._transport:  # pyright: ignore[reportPrivateUsage]
            return None
        return HttpEndpoint(spec, self._connections, headers, limit=limit, tls=tls)

    async def _ensure_open(self) -> tuple[httpx2.AsyncClient, ssl.SSLContext]:
        async with self._lock:
            if self._shared is None or self._tls is None:
                self._tls, self._trust_error = await anyio.to_thread.run_sync(_load_trust)
                self._shared = await anyio.to_thread.run_sync(_build_client, self._tls)
        return self._shared, self._tls

    async def aclose(self) -> None:
        self._connections.close()
        if self._shared is not None:
            await self._shared.aclose()
            self._shared = None


class _SharedTransport(httpx2.AsyncBaseTransport):
    """The shared client's connections, used by one client. Closing it does nothing.

    The shared client selects the connection (direct or proxy) with a private method, which is called here.
    """

    def __init__(self, shared: httpx2.AsyncClient, trust_error: RouteBlocked | None) -> None:
        self._shared = shared
        self._trust_error = trust_error

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._trust_error is not None and request.url.scheme == "https":
            raise RouteBlocked(str(self._trust_error), hint=self._trust_error.hint)
        transport = self._shared._transport_for_url(request.url)  # pyright: ignore[reportPrivateUsage] - see above
        direct = transport is self._shared._transport  # pyright: ignore[reportPrivateUsage]
        try:
            return await transport.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            proxy = None if direct else find_proxy(request.url)
            if proxy is None or find_tls_fault(error) is not None:
                raise
            raise build_proxy_error(error, proxy) from error

    async def aclose(self) -> None:
        return None


def _load_trust() -> tuple[ssl.SSLContext, RouteBlocked | None]:
    """Load the trusted certificates, or a context that trusts none: servers without TLS still work."""
    try:
        return httpx2.create_ssl_context(), None
    except OSError as error:
        variable = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), None)
        hint = "set it to a PEM file with the certificates to trust, or unset it"
        message = f"the file in the environment variable {variable} contains no readable certificates"
        if variable is None:
            hint = "set SSL_CERT_FILE to a file with the certificates to trust, in PEM"
            message = "the certificates that this machine trusts cannot be read"
        logger.warning("%s (%s): %s", message, type(error).__name__, hint)
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), RouteBlocked(message, hint=hint)


def _build_client(tls: ssl.SSLContext) -> httpx2.AsyncClient:
    """Build the shared client. Raises `RouteBlocked` for unusable proxies; they are never bypassed."""
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=SHARED_KEEPALIVE_SECONDS
    )
    try:
        return httpx2.AsyncClient(verify=tls, limits=limits)
    except (httpx2.InvalidURL, ValueError) as error:
        if (blocked := find_unusable_proxy()) is None:
            raise
        raise blocked from error
