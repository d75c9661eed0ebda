"""One live connection to one server: asked in plain dicts, answered in plain dicts.

The MCP library negotiates the era and keeps the session. Results are taken raw:
its own models refuse a whole list for one bad entry, and drop fields they do
not know, which a router must pass on.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, cast

import anyio
import httpx2
from mcp import Client
from mcp.client.session import ClientSession, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.subscriptions import Subscription
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp_types import (
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    Implementation,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost.errors import ServerUnavailable, ToolFailed
from fingerpost.records import JsonObject, Listing, ServerSpec
from fingerpost.servers.failures import from_reply
from fingerpost.servers.http import HttpStack
from fingerpost.servers.lifeline import Lifeline
from fingerpost.servers.listing import read_listing
from fingerpost.servers.oauth import TokenBook, stored_sign_in
from fingerpost.servers.stdio import stdio_transport
from fingerpost.servers.streamable import http_transport
from fingerpost.servers.watched import Watched
from fingerpost.settings.model import LimitSettings

# Without a handler of its own, what the library logs would land on the terminal of whoever uses us.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

_VERSION = version("fingerpost")
PROBE_SHARE = 0.3  # of the connect timeout: what a server that ignores the modern greeting may cost
PROBE_SECONDS = 10.0


class RawSession(ClientSession):
    """The library's session, with a way to ask and get the untouched answer."""

    probe_seconds: float = PROBE_SECONDS

    async def ask(
        self, method: str, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        data: dict[str, Any] = {"method": method, "params": dict(params)}
        # Not counted up from 1: a server that answers with the wrong id must not hit another caller's.
        options: CallOptions = {"request_id": secrets.randbits(52)}
        if on_progress is not None:
            options["on_progress"] = on_progress
        self._stamp(data, options)
        return await self._dispatcher.send_raw_request(method, data["params"], options)

    async def send_discover(self, version: str) -> dict[str, Any]:
        with anyio.move_on_after(self.probe_seconds):
            return await super().send_discover(version)
        raise MCPError(REQUEST_TIMEOUT, "no answer to server/discover")

    def mirror_headers(self, definitions: tuple[JsonObject, ...]) -> None:
        """Remember which arguments the modern era wants repeated as HTTP headers."""
        self._x_mcp_header_maps = {
            cast("str", definition["name"]): x_mcp_header_map(
                cast("dict[str, Any]", definition["inputSchema"])
            )
            for definition in definitions
        }


@dataclass
class _RawClient(Client):
    """The library's client, building our session."""

    probe_seconds: float = field(default=PROBE_SECONDS, kw_only=True)

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        dispatcher = await self._connect(exit_stack, self.mode, self.raise_exceptions)
        session = RawSession(
            dispatcher=dispatcher, message_handler=self.message_handler, client_info=self.client_info
        )
        session.probe_seconds = self.probe_seconds
        return session


class Connection:
    """A server that has shaken hands."""

    def __init__(self, spec: ServerSpec, client: Client, limits: LimitSettings, lifeline: Lifeline) -> None:
        self._spec = spec
        self._client = client
        self._limits = limits
        self.lifeline = lifeline
        self.protocol = client.protocol_version
        self.modern = self.protocol in MODERN_PROTOCOL_VERSIONS
        self.product = _product(client.server_info)
        self.busy = 0

    @property
    def announces_changes(self) -> bool:
        tools = self._client.server_capabilities.tools
        return tools is not None and bool(tools.list_changed)

    async def ask(
        self, method: str, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """The raw result. Raises our errors; a bound on the time is the caller's to set."""
        session = cast("RawSession", self._client.session)
        self.busy += 1
        try:
            return await session.ask(method, params, on_progress=on_progress)
        except MCPError as error:
            raise from_reply(self._spec.name, error, loss=self.lifeline.setback) from error
        finally:
            self.busy -= 1

    async def call(
        self, params: Mapping[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """One tools/call. Sent a second time only when the server refused to even look at the first.

        A modern server does so when arguments were not repeated as headers the
        way its schema now says: then the schema we know is old.
        """
        try:
            return await self.ask("tools/call", params, on_progress=on_progress)
        except ToolFailed as error:
            if error.code != HEADER_MISMATCH or not self.modern:
                raise
        await self.list_tools()
        return await self.ask("tools/call", params, on_progress=on_progress)

    async def list_tools(self) -> Listing:
        """All tools, page by page. A server that knows no tools/list simply has none."""

        async def ask_page(cursor: str | None) -> dict[str, Any]:
            session = cast("RawSession", self._client.session)
            try:
                return await session.ask("tools/list", {} if cursor is None else {"cursor": cursor})
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND and cursor is None:
                    return {"tools": []}
                raise from_reply(self._spec.name, error, loss=self.lifeline.setback) from error

        listing = await read_listing(
            self._spec.name,
            ask_page,
            self._limits,
            modern=self.modern,
            instructions=self._client.instructions,
        )
        if self.modern:
            cast("RawSession", self._client.session).mirror_headers(listing.definitions)
        return listing

    async def probe(self) -> None:
        """Ask for a sign of life; an error the server itself sends is one."""
        try:
            if self.modern:
                await self._client.session.send_discover(self.protocol)
            else:
                await cast("RawSession", self._client.session).ask("ping", {})
        except MCPError as error:
            raise from_reply(self._spec.name, error, loss=self.lifeline.setback) from error

    def listen(self) -> AbstractAsyncContextManager[Subscription]:
        """Hear of changed tool lists (modern era)."""
        return self._client.listen(tools_list_changed=True)


@asynccontextmanager
async def open_connection(
    spec: ServerSpec,
    *,
    limits: LimitSettings,
    http: HttpStack,
    tokens: TokenBook | None,
    lifeline: Lifeline,
    on_list_changed: Callable[[], None],
) -> AsyncGenerator[Connection]:
    """Connect, shake hands, and stay connected until the block ends."""

    async def hear(message: IncomingMessage) -> None:
        if isinstance(message, ToolListChangedNotification):
            on_list_changed()

    async with AsyncExitStack() as stack:
        target: Any = await _target(
            spec, limits=limits, http=http, tokens=tokens, lifeline=lifeline, stack=stack
        )
        client = _RawClient(
            target,
            message_handler=hear,
            client_info=Implementation(name="fingerpost", version=_VERSION),
            mode="legacy" if spec.era == "2025-11-25" else "auto",
            cache=None,
            probe_seconds=min(PROBE_SECONDS, spec.connect_timeout * PROBE_SHARE),
        )
        await stack.enter_async_context(client)
        if spec.era not in ("auto", client.protocol_version) and spec.era in MODERN_PROTOCOL_VERSIONS:
            message = f"{spec.name} speaks {client.protocol_version}, and {spec.era} was asked for"
            raise ServerUnavailable(message, server=spec.name, hint='set its era to "auto"')
        lifeline.handshaken = True
        yield Connection(spec, client, limits, lifeline)


async def _target(
    spec: ServerSpec,
    *,
    limits: LimitSettings,
    http: HttpStack,
    tokens: TokenBook | None,
    lifeline: Lifeline,
    stack: AsyncExitStack,
) -> object:
    """What the library's client connects to: a server object, or a transport of ours."""
    if spec.transport == "in_process":
        return spec.in_process
    if spec.transport == "stdio":
        return stdio_transport(spec, limits, lifeline)
    if not spec.url:
        message = f"{spec.name} has no address"
        raise ServerUnavailable(message, server=spec.name, hint="give it a url")
    auth = await stored_sign_in(spec, tokens)
    client = await http.client(headers=spec.headers, auth=auth)
    if spec.transport == "http":
        return http_transport(spec, await stack.enter_async_context(client), limits, lifeline)

    def ours(*_: object, **__: object) -> httpx2.AsyncClient:
        return client

    return Watched(sse_client(spec.url, httpx_client_factory=ours), lifeline)


def _product(info: Implementation | None) -> str | None:
    if info is None:
        return None
    return f"{info.name} {info.version}".strip()
