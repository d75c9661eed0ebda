"""HTTP requests with aiohttp: TLS, redirects and compressed responses. Imported only when needed."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Generator, Mapping
from contextlib import contextmanager

import aiohttp
from aiohttp.http_exceptions import ContentEncodingError, LineTooLong
from yarl import URL

from fingerpost.records import ServerSpec
from fingerpost.servers.errors import build_too_large
from fingerpost.servers.http_client import (
    EVENT_STREAM_TYPE,
    STREAM_END_SECONDS,
    ConnectFailed,
    may_follow_redirect,
    merge_headers,
    parse_content_type,
    resolve_redirect,
    strip_secrets,
)

MAX_REDIRECTS = 5
CONNECT_SECONDS = 10.0
KEEPALIVE_SECONDS = 600.0
READ_BUFFER = 256 * 1024
MAX_HEADER_LENGTH = 64 * 1024


def open_session(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    """Open a session shared by all servers. It keeps no state of any server."""
    connector = aiohttp.TCPConnector(ssl=tls, limit=0, limit_per_host=0, keepalive_timeout=KEEPALIVE_SECONDS)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),  # cookies of one server must not reach another
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        skip_auto_headers=("User-Agent",),
        read_bufsize=READ_BUFFER,
        max_field_size=MAX_HEADER_LENGTH,
        trust_env=False,
    )


@contextmanager
def _translate_errors() -> Generator[None]:
    """Replace the library's error messages. They contain the full URL and parts of the response."""
    try:
        yield
    except aiohttp.ConnectionTimeoutError as error:
        message = f"it did not answer within {CONNECT_SECONDS:g} s"
        raise ConnectFailed(message) from error
    except aiohttp.ClientConnectorError as error:
        why = error.os_error.strerror or "it cannot be connected to"
        raise ConnectFailed(f"{error.host}:{error.port}: {why}") from error
    except aiohttp.ClientError as error:
        raise ConnectionError(_describe_error(error)) from error


def _describe_error(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "the server closed the connection"
    if isinstance(error, aiohttp.ClientPayloadError):
        packed = _is_caused_by(error, ContentEncodingError)
        return "the answer cannot be unpacked" if packed else "the answer broke off before its end"
    if isinstance(error, aiohttp.ClientResponseError):
        if _is_caused_by(error, LineTooLong):
            return f"the head of the answer has a line of more than {MAX_HEADER_LENGTH} bytes"
        return "the answer is not valid HTTP"
    if isinstance(error, aiohttp.ClientOSError) and error.errno is not None:
        return os.strerror(error.errno)
    return f"the request failed ({type(error).__name__})"


def _is_caused_by(error: BaseException | None, kind: type[Exception]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__
    return error is not None


class AiohttpResponse:
    """An `HttpResponse` of aiohttp."""

    def __init__(self, server: str, response: aiohttp.ClientResponse, limit: int) -> None:
        self._server = server
        self._response = response
        self._limit = limit
        self.status = response.status
        self.kind = parse_content_type(response.headers.get("Content-Type", ""))
        self.retry_after = response.headers.get("Retry-After")

    @property
    def leads_to(self) -> str | None:
        target = _get_redirect_target(self._response)
        return None if target is None else strip_secrets(target)

    async def read_all(self) -> bytes:
        if (self._response.content_length or 0) > self._limit:
            raise build_too_large(self._server, self._limit)
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read_chunk():
            size += len(piece)
            if size > self._limit:
                raise build_too_large(self._server, self._limit)
            pieces.append(piece)
        return b"".join(pieces)

    async def read_chunk(self) -> bytes:
        with _translate_errors():
            return await self._response.content.readany()

    def release(self) -> None:
        if not self._response.content.at_eof():
            asyncio.get_running_loop().call_later(STREAM_END_SECONDS, self._response.close)

    def abort(self) -> None:
        self._response.close()


class AiohttpEndpoint:
    """An `HttpEndpoint` that uses aiohttp."""

    def __init__(
        self,
        spec: ServerSpec,
        url: str,
        http: aiohttp.ClientSession,
        headers: Mapping[str, str],
        *,
        limit: int,
    ) -> None:
        self._server = spec.name
        self._url = URL(url)
        self._http = http
        self._headers = headers
        self._limit = limit

    async def post(self, body: bytes, headers: Mapping[str, str]) -> AiohttpResponse:
        full = merge_headers(self._headers, headers)
        with _translate_errors():
            response = await self._http.post(self._url, data=body, headers=full, allow_redirects=False)
            for _ in range(MAX_REDIRECTS):
                target = _get_redirect_target(response)
                if target is None or not may_follow_redirect(str(response.url), response.status, target):
                    break
                response.close()
                self._url = URL(target)
                response = await self._http.post(self._url, data=body, headers=full, allow_redirects=False)
        return AiohttpResponse(self._server, response, self._limit)

    async def resume_stream(self, last_id: str, headers: Mapping[str, str]) -> AiohttpResponse:
        full = merge_headers(self._headers, headers) | {"accept": EVENT_STREAM_TYPE, "last-event-id": last_id}
        del full["content-type"]
        with _translate_errors():
            response = await self._http.get(self._url, headers=full, allow_redirects=False)
        return AiohttpResponse(self._server, response, self._limit)


def _get_redirect_target(response: aiohttp.ClientResponse) -> str | None:
    return resolve_redirect(str(response.url), response.status, response.headers.get("Location"))
