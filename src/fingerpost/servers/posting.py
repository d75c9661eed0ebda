"""How a request goes to an address and its answer is taken: headers, redirects, bounds, kept connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import aiohttp
import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID
from multidict import CIMultiDict
from yarl import URL

from fingerpost.records import ServerSpec
from fingerpost.servers.failures import too_large
from fingerpost.servers.replies import EVENTS, JSON

MOST_REDIRECTS = 5
END_SECONDS = 0.25


def standing_headers(spec: ServerSpec, cookies: httpx2.Cookies, *, session: str | None) -> CIMultiDict[str]:
    """What every request carries: built once."""
    headers = CIMultiDict(spec.headers)
    headers["Accept"] = f"{JSON}, {EVENTS}"
    headers["Content-Type"] = JSON
    if session is not None:
        headers[MCP_SESSION_ID] = session
    if len(cookies):
        # Set by this server while we shook hands: how a balancer finds the machine with our session.
        request = httpx2.Request("POST", spec.url or "")
        cookies.set_cookie_header(request)
        if (line := request.headers.get("cookie")) is not None:
            headers["Cookie"] = line
    return headers


class Posting:
    """The way to one server's address."""

    def __init__(
        self, spec: ServerSpec, http: aiohttp.ClientSession, headers: CIMultiDict[str], *, limit: int
    ) -> None:
        assert spec.url is not None
        self._server = spec.name
        self._url = URL(spec.url)
        self._http = http
        self._headers = headers
        self._limit = limit

    @asynccontextmanager
    async def post(self, body: bytes, headers: Mapping[str, str]) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send, and afterwards keep the connection where its answer was read to the end."""
        response = await self._send(body, headers)
        try:
            yield response
        except BaseException:
            response.close()
            raise
        if not response.content.at_eof():
            # The end of a stream mostly follows its reply at once, and frees the connection by itself.
            asyncio.get_running_loop().call_later(END_SECONDS, response.close)

    async def _send(self, body: bytes, headers: Mapping[str, str]) -> aiohttp.ClientResponse:
        """Follows redirects only where they stay with this server."""
        full = self._headers.copy()
        full.update(headers)
        response = await self._http.post(self._url, data=body, headers=full, allow_redirects=False)
        for _ in range(MOST_REDIRECTS):
            target = _within_origin(response)
            if target is None:
                break
            response.close()
            self._url = target
            response = await self._http.post(self._url, data=body, headers=full, allow_redirects=False)
        return response

    def read_on(
        self, last_id: str, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Ask for the rest of a stream, behind the event with this id."""
        full = self._headers.copy()
        full.update(headers)
        full.update({"Accept": EVENTS, "Last-Event-ID": last_id})
        del full["Content-Type"]
        return self._http.get(self._url, headers=full, allow_redirects=False)

    async def whole(self, response: aiohttp.ClientResponse) -> bytes:
        """The whole body. What is larger than allowed is not read."""
        if (response.content_length or 0) > self._limit:
            raise too_large(self._server, self._limit)
        content = response.content
        first = await content.readany()
        if content.at_eof() and len(first) <= self._limit:
            return first
        pieces, size = [first], len(first)
        while piece := await content.readany():
            size += len(piece)
            if size > self._limit:
                raise too_large(self._server, self._limit)
            pieces.append(piece)
        return b"".join(pieces)


def location_of(response: aiohttp.ClientResponse) -> URL | None:
    """Where a redirect leads."""
    if response.status not in (301, 302, 303, 307, 308) or "Location" not in response.headers:
        return None
    with suppress(ValueError):
        return response.url.join(URL(response.headers["Location"]))
    return None


def _within_origin(response: aiohttp.ClientResponse) -> URL | None:
    """Where to send the same request again, if the server says so and it stays with that server."""
    if response.status not in (307, 308) or (target := location_of(response)) is None:
        return None
    here = response.url
    upgraded = (here.scheme, target.scheme) == ("http", "https") and here.is_default_port()
    same = here.origin() == target.origin() or (
        upgraded and here.host == target.host and target.is_default_port()
    )
    return target if same and target.user is None else None
