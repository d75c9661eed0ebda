"""One HTTP stack for all servers of a pool.

Building an HTTP client costs 35 ms of CPU, nearly all of it for the TLS
context, and idle connections are dropped after 5 s by default. So there is one
TLS context and one connection pool, built once, off the event loop, keeping
connections for minutes. What belongs to one server (headers, sign-in, cookies)
lives in a light client of its own that only borrows the pool.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import httpx2

from fingerpost.records import ServerSpec
from fingerpost.servers.plain import Http11Endpoint, Http11Pool, supports
from fingerpost.servers.posting import HttpEndpoint
from fingerpost.servers.proxies import RouteBlocked, build_proxy_error, find_proxy, find_unusable_proxy
from fingerpost.servers.tls import find_tls_fault

if TYPE_CHECKING:
    import aiohttp

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
            anyhttp = await anyio.to_thread.run_sync(import_module, "fingerpost.servers.anyhttp")
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
