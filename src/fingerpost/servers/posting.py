"""How a request goes to a server's address and its answer is taken: what both HTTP clients of ours offer.

`plain` is quick and does what is asked often: kept connections, no TLS. `anyhttp` can do everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID

from fingerpost.records import ServerSpec
from fingerpost.servers.replies import EVENT_STREAM_TYPE, JSON_TYPE

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
