"""One HTTP stack for all servers of a pool.

Building an HTTP client costs 35 ms of CPU, nearly all of it for the TLS
context, and idle connections are dropped after 5 s by default. So there is one
TLS context and one connection pool, built once, off the event loop, keeping
connections for minutes. What belongs to one server (headers, sign-in, cookies)
lives in a light client of its own that only borrows the pool.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import aiohttp
import anyio
import anyio.to_thread
import httpx2

KEEPALIVE_SECONDS = 600.0
CONNECT_SECONDS = 10.0
WRITE_SECONDS = 30.0
READ_BUFFER = 256 * 1024
LONGEST_HEADER = 64 * 1024


class HttpStack:
    """Builds the shared client on first use and closes it at the end."""

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._shared: httpx2.AsyncClient | None = None
        self._tls: ssl.SSLContext | None = None
        self._thin: aiohttp.ClientSession | None = None

    async def client(
        self, *, headers: Mapping[str, str] | None = None, auth: httpx2.Auth | None = None
    ) -> httpx2.AsyncClient:
        """A client for one server. Closing it leaves the shared connections alone."""
        shared, _ = await self._ready()
        return httpx2.AsyncClient(
            transport=_Borrowed(shared),
            headers=dict(headers or {}),
            auth=auth,
            # Every exchange has a deadline of ours around it; a stream may be silent for as long as it likes.
            timeout=httpx2.Timeout(None, connect=CONNECT_SECONDS, write=WRITE_SECONDS),
            follow_redirects=False,
        )

    async def thin(self, url: str) -> aiohttp.ClientSession | None:
        """The faster client for single requests, which knows nothing of any server.

        None where a proxy named in the environment leads to the address: the other client knows the rules.
        """
        shared, tls = await self._ready()
        way = shared._transport_for_url(httpx2.URL(url))  # pyright: ignore[reportPrivateUsage] - see _Borrowed
        if way is not shared._transport:  # pyright: ignore[reportPrivateUsage]
            return None
        if self._thin is None:
            self._thin = _build_thin(tls)
        return self._thin

    async def _ready(self) -> tuple[httpx2.AsyncClient, ssl.SSLContext]:
        async with self._lock:
            if self._shared is None or self._tls is None:
                self._shared, self._tls = await anyio.to_thread.run_sync(_build)
        return self._shared, self._tls

    async def aclose(self) -> None:
        if self._thin is not None:
            await self._thin.close()
            self._thin = None
        if self._shared is not None:
            await self._shared.aclose()
            self._shared = None


class _Borrowed(httpx2.AsyncBaseTransport):
    """The shared connections in the hands of one client: usable, not closable.

    Which of them leads to an address (direct, or a proxy named in the
    environment) is the shared client's knowledge; it has no public name for it.
    """

    def __init__(self, shared: httpx2.AsyncClient) -> None:
        self._shared = shared

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        way = self._shared._transport_for_url(request.url)  # pyright: ignore[reportPrivateUsage] - see above
        return await way.handle_async_request(request)

    async def aclose(self) -> None:
        return None


def _build() -> tuple[httpx2.AsyncClient, ssl.SSLContext]:
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=None, keepalive_expiry=KEEPALIVE_SECONDS
    )
    tls = httpx2.create_ssl_context()
    return httpx2.AsyncClient(verify=tls, limits=limits), tls


def _build_thin(tls: ssl.SSLContext) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(ssl=tls, limit=0, limit_per_host=0, keepalive_timeout=KEEPALIVE_SECONDS)
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),  # it is shared: what one server sets must not reach another
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        skip_auto_headers=("User-Agent",),
        read_bufsize=READ_BUFFER,
        max_field_size=LONGEST_HEADER,
        trust_env=False,
    )
