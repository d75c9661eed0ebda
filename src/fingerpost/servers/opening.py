"""From a server's entry to a connection that has shaken hands."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from typing import Any, cast

import httpx2
from mcp.client.sse import sse_client
from mcp_types import ClientCapabilities
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost.errors import ServerUnavailable
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ServerSpec
from fingerpost.servers.connection import Connection, Thin
from fingerpost.servers.http import HttpStack
from fingerpost.servers.lifeline import Lifeline
from fingerpost.servers.oauth import TokenBook, stored_sign_in
from fingerpost.servers.pipe import ThinPipe
from fingerpost.servers.posting import standing_headers
from fingerpost.servers.redirects import check_address
from fingerpost.servers.replies import EVENTS, kind_of
from fingerpost.servers.session import NOTHING, PROBE_SECONDS, RawClient, our_name
from fingerpost.servers.spec import OwnSecrets
from fingerpost.servers.stdio import Child, stdio_transport
from fingerpost.servers.streamable import Transport, http_transport
from fingerpost.servers.talk import Outside, Talks
from fingerpost.servers.thin import ThinHttp
from fingerpost.servers.watched import Watched
from fingerpost.settings.model import LimitSettings

_VERSION = version("fingerpost")
PROBE_SHARE = 0.3  # of the connect timeout: what a server that ignores the modern greeting may cost


@frozen
class Standard:
    """What a connection has to match to be taken instead of another one of the same server."""

    capabilities: JsonObject  # those of the other one
    tools: int  # how many it has
    questions: bool  # whether the caller can be asked something during a call


@frozen
class Surroundings:
    """What a connection needs besides its server's entry."""

    limits: LimitSettings
    http: HttpStack
    tokens: TokenBook | None
    abilities: Callable[[], ClientCapabilities] = lambda: NOTHING  # of those who can be asked something
    standard: Standard | None = None


@asynccontextmanager
async def open_connection(
    spec: ServerSpec, around: Surroundings, *, lifeline: Lifeline, outside: Outside
) -> AsyncGenerator[Connection]:
    """Connect, shake hands, and stay connected until the block ends.

    `outside` is told of every notification that belongs to no request. Raises our errors, also where the
    server gives less than the standard.
    """
    talks = Talks(spec.name, outside, secrets=OwnSecrets(spec))
    async with AsyncExitStack() as stack:
        way = _Way(spec, around, lifeline=lifeline, talks=talks)
        client = RawClient(
            cast("Any", await way.target(stack)),
            client_info=our_name(_VERSION),
            mode="legacy" if spec.era == "2025-11-25" else "auto",
            cache=None,
            talks=talks,
            abilities=around.abilities(),
            probe_seconds=min(PROBE_SECONDS, spec.connect_timeout * PROBE_SHARE),
        )
        await stack.enter_async_context(client)
        if spec.era not in ("auto", client.protocol_version) and spec.era in MODERN_PROTOCOL_VERSIONS:
            message = f"{spec.name} speaks {client.protocol_version}, and {spec.era} was asked for"
            raise ServerUnavailable(message, server=spec.name, hint='set its era to "auto"')
        lifeline.handshaken = True
        modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not modern:
            await way.greeted()
        stack.callback(talks.abandon)
        connection = Connection(
            spec, client, around.limits, lifeline, talks=talks, thin=await way.thin(modern=modern)
        )
        if around.standard is not None and (lacking := await way.lacks(around.standard, connection)):
            message = f"{spec.name} serves {connection.protocol} without {lacking}"
            raise ServerUnavailable(message, server=spec.name)
        yield connection


class _Way:
    """How one server is reached."""

    def __init__(self, spec: ServerSpec, around: Surroundings, *, lifeline: Lifeline, talks: Talks) -> None:
        self._spec = spec
        self._around = around
        self._lifeline = lifeline
        self._talks = talks
        self._client: httpx2.AsyncClient | None = None
        self._transport: Transport | None = None
        self._child: Child | None = None
        self._streams = False  # whether the greeting was answered by a stream

    async def target(self, stack: AsyncExitStack) -> object:
        """What the library's client connects to: a server object, or a transport of ours."""
        spec, limits = self._spec, self._around.limits
        if spec.transport == "in_process":
            return spec.in_process
        if spec.transport == "stdio":
            return stdio_transport(spec, limits, self._lifeline, opened=self._started)
        if not spec.url:
            message = f"{spec.name} has no address"
            raise ServerUnavailable(message, server=spec.name, hint="give it a url")
        await check_address(spec)
        auth = await stored_sign_in(spec, self._around.tokens)
        client = await self._around.http.client(headers=spec.headers, auth=auth)
        if spec.transport == "http":
            self._client = await stack.enter_async_context(client)
            if self._around.standard is not None:
                client.event_hooks["response"].append(self._look_at)
            return http_transport(
                spec, client, limits, self._lifeline, talks=self._talks, opened=self._opened
            )

        def ours(*_: object, **__: object) -> httpx2.AsyncClient:
            return client

        return Watched(sse_client(spec.url, httpx_client_factory=ours), self._lifeline)

    async def _look_at(self, response: httpx2.Response) -> None:
        if response.request.method == "POST" and response.status_code == 200:
            self._streams = kind_of(response.headers.get("content-type", "")) == EVENTS

    async def lacks(self, standard: Standard, connection: Connection) -> str | None:
        """What of the standard a server of the older era does not give; None: nothing.

        Where it keeps no session, or never answers by a stream, it cannot ask anything during a call. Raises
        our errors where it cannot list its tools: some of them have results that this era does not know.
        """
        if self._transport is None or self._transport.session_id is None:
            return "sessions"
        if standard.questions and not self._streams:
            return "streams"
        if missing := _names(standard.capabilities) - _names(connection.capabilities):
            return ", ".join(sorted(missing))
        page = await connection.fetch("tools/list", {})
        complete = not page.get("nextCursor")
        return "some of its tools" if complete and len(page.get("tools") or ()) < standard.tools else None

    async def greeted(self) -> None:
        """Until the server has heard that the handshake is over: a request of ours must not overtake that."""
        if self._transport is not None:
            await self._transport.greeted.wait()

    def _opened(self, transport: Transport) -> None:
        self._transport = transport

    def _started(self, child: Child) -> None:
        self._child = child

    async def thin(self, *, modern: bool) -> Thin | None:
        """The short way, where nothing but plain requests is needed: no sign-in to renew, no proxy."""
        if self._child is not None:
            return ThinPipe(self._spec.name, self._child, self._lifeline)
        if self._client is None or self._transport is None or self._client.auth is not None:
            return None
        limits = self._around.limits
        headers = standing_headers(self._spec, self._client.cookies, session=self._transport.session_id)
        posting = await self._around.http.posting(self._spec, headers, limit=limits.response_bytes)
        if posting is None:
            return None
        return ThinHttp(
            self._spec.name,
            posting,
            self._transport,
            limits=limits,
            lifeline=self._lifeline,
            talks=self._talks,
            modern=modern,
        )


def _names(capabilities: JsonObject) -> frozenset[str]:
    """What a server says it can do. How it tells of changes is said in the same place; eras differ there."""
    further = (capabilities.get(group) for group in ("extensions", "experimental"))
    own = (name for group in further if isinstance(group, Mapping) for name in group)
    return frozenset((*capabilities, *own))
