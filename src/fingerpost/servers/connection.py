"""One live connection to one server: asked in plain dicts, answered in plain dicts.

The MCP library negotiates the era and keeps the session. Results are taken raw:
its own models refuse a whole list for one bad entry, and drop fields they do
not know, which a router must pass on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, cast

import anyio
from mcp import Client
from mcp.client.subscriptions import Subscription
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, HEADER_MISMATCH, METHOD_NOT_FOUND, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from fingerpost.errors import ToolFailed
from fingerpost.records import JsonObject, Listing, ServerSpec, get_random_bits
from fingerpost.servers.caller import CALL_ID, RequestContext
from fingerpost.servers.clock import RequestClock
from fingerpost.servers.failures import from_reply
from fingerpost.servers.lifeline import ConnectionState, RetryPace
from fingerpost.servers.listing import read_listing
from fingerpost.servers.rounds import is_input_required, run_rounds
from fingerpost.servers.session import RawSession
from fingerpost.servers.spec import ServerSecrets
from fingerpost.servers.talk import InFlightRequest, MessageQuota, ProgressCallback, RequestRegistry
from fingerpost.settings.model import LimitSettings

# Without a handler of its own, what the library logs would land on the terminal of whoever uses us.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

DRAIN_SECONDS = 0.5


class DirectTransport(Protocol):
    """A way to a server without the library in between."""

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]: ...


class ServerConnection:
    """A server that has shaken hands."""

    def __init__(
        self,
        spec: ServerSpec,
        client: Client,
        limits: LimitSettings,
        state: ConnectionState,
        *,
        registry: RequestRegistry,
        direct: DirectTransport | None = None,
    ) -> None:
        self._spec = spec
        self._client = client
        self._session = cast("RawSession", client.session)
        self._limits = limits
        self._talks = registry
        self._thin = direct
        self._secrets = ServerSecrets(spec)
        self.lifeline = state
        self.latency_ms: float | None = None  # of the last sign of life
        self.protocol = client.protocol_version
        self.modern = self.protocol in MODERN_PROTOCOL_VERSIONS
        self.product = _get_product_name(client.server_info)
        self._instructions = client.instructions  # the client does not tell once it is closed
        self.capabilities: JsonObject = client.server_capabilities.model_dump(
            by_alias=True, mode="json", exclude_none=True
        )

    @property
    def is_direct(self) -> bool:
        """Whether calls go without the library in between."""
        return self._thin is not None

    @property
    def in_flight_count(self) -> int:
        """How many requests are under way."""
        return len(self._talks)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        context: RequestContext | None = None,
        on_progress: ProgressCallback | None = None,
        clock: RequestClock | None = None,
    ) -> dict[str, Any]:
        """The raw result. Raises our errors; a bound on the time is the caller's to set, by `clock`."""
        clock = clock or RequestClock()
        quota = MessageQuota(self._spec.name, self._limits)
        result = await self._send(method, params, context, on_progress, clock, quota)
        if not self.modern or not is_input_required(result):
            return result
        context = context or RequestContext()
        if context.caller is not None and context.caller.accepts_input_required:
            asked: object = result.get("inputRequests")
            quota.count_questions(len(cast("JsonObject", asked)) if isinstance(asked, Mapping) else 0)
            return result
        if context.caller is None and CALL_ID in (params.get("_meta") or ()):
            return result  # the request the call belongs to is asked, though nobody listens to the call

        async def send(passage: RequestContext | None) -> dict[str, Any]:
            return await self._send(method, params, passage, on_progress, clock, quota)

        return await run_rounds(self._spec.name, result, context, clock, quota, send)

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        context: RequestContext | None,
        on_progress: ProgressCallback | None,
        clock: RequestClock,
        quota: MessageQuota,
        *,
        ours: bool = False,
    ) -> dict[str, Any]:
        # Not counted up from 1: a server that answers with the wrong id must not hit another caller's.
        request = get_random_bits(52)
        talk = InFlightRequest(
            self._spec.name,
            request,
            context=context,
            on_progress=on_progress,
            clock=clock,
            quota=quota,
            secrets=self._secrets,
        )
        token = request if talk.wants_progress else None
        stamped, headers = self._session.build_params(method, params, context, token=token)
        if context is not None and self._spec.forward_authorization:
            own = context.authorization if context.caller is None else context.caller.authorization
            if own is not None:
                headers["Authorization"] = own
        self._talks.open(talk, internal=ours)
        try:
            result = await self._ask_cancellable(
                self._thin or self._session, method, stamped, talk, headers, clock
            )
            talk.answered = True
            return await self._secrets.mask_async(result)
        except ToolFailed as error:
            talk.answered = True
            if self._secrets:
                error.data = await self._secrets.mask_async(error.data)
            raise
        except MCPError as error:
            talk.answered = True
            made = from_reply(self._spec.name, error, failure=self.lifeline.failure)
            if isinstance(made, ToolFailed) and self._secrets:
                made.data = await self._secrets.mask_async(made.data)
            raise made from error
        finally:
            self._talks.close(talk)

    async def _ask_cancellable(
        self,
        transport: DirectTransport,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        headers: Mapping[str, str],
        clock: RequestClock,
    ) -> dict[str, Any]:
        """A request on a connection that is closed never gets its answer: its scope is cancelled.

        So is the scope of a request whose server went beyond its quota.
        """
        if clock.scope is None:
            with anyio.CancelScope() as in_flight.scope:
                return await transport.ask(method, params, in_flight, headers=headers)
            raise in_flight.failure or _build_closed_error()
        in_flight.scope = clock.scope
        try:
            return await transport.ask(method, params, in_flight, headers=headers)
        except anyio.get_cancelled_exc_class():
            if in_flight.lost:
                clock.loss = from_reply(self._spec.name, _build_closed_error(), failure=self.lifeline.failure)
            raise

    async def call(
        self,
        params: Mapping[str, Any],
        *,
        context: RequestContext | None = None,
        on_progress: ProgressCallback | None = None,
        clock: RequestClock | None = None,
    ) -> dict[str, Any]:
        """One tools/call. Sent a second time only when the server refused to even look at the first.

        A modern server does so when arguments were not repeated as headers the
        way its schema now says: then the schema we know is old.
        """
        try:
            return await self.ask("tools/call", params, context=context, on_progress=on_progress, clock=clock)
        except ToolFailed as error:
            if error.code != HEADER_MISMATCH or not self.modern:
                raise
        await self.list_tools()
        return await self.ask("tools/call", params, context=context, on_progress=on_progress, clock=clock)

    async def list_tools(self) -> Listing:
        """All tools, page by page. A server that knows no tools/list simply has none."""
        listing = await self._read_tools(None)
        self.learn_mirrored_headers(listing)
        return listing

    async def list_tools_with(self, authorization: str) -> Listing:
        """The tools the server lists to a caller with this key."""
        return await self._read_tools(RequestContext(authorization=authorization))

    async def _read_tools(self, context: RequestContext | None) -> Listing:

        async def ask_page(cursor: str | None) -> dict[str, Any]:
            try:
                params = {} if cursor is None else {"cursor": cursor}
                quota = MessageQuota(self._spec.name, self._limits)
                return await self._send("tools/list", params, context, None, RequestClock(), quota, ours=True)
            except ToolFailed as error:
                if error.code == METHOD_NOT_FOUND and cursor is None:
                    return {"tools": []}
                raise

        return await read_listing(
            self._spec,
            ask_page,
            self._limits,
            modern=self.modern,
            instructions=self._instructions,
        )

    def learn_mirrored_headers(self, listing: Listing) -> None:
        """Learn from a listing which arguments are repeated as headers."""
        if self.modern:
            self._session.learn_mirrored_headers(listing.definitions)

    async def fetch(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask on our own behalf. Raises our errors."""
        quota = MessageQuota(self._spec.name, self._limits)
        return await self._send(method, params, None, None, RequestClock(), quota, ours=True)

    async def probe(self) -> None:
        """Ask for a sign of life; an error the server itself sends is one."""
        began = anyio.current_time()
        if not self.modern:
            await self.fetch("ping", {})
        else:
            try:
                await self._session.send_discover(self.protocol)
            except MCPError as error:
                raise from_reply(self._spec.name, error, failure=self.lifeline.failure) from error
        self.latency_ms = (anyio.current_time() - began) * 1000

    async def drain(self) -> None:
        """Wait a moment for what is under way, where the server is there and forgot our session.

        It answers each request by itself: that it was turned away, or how it went. Cut off now, nobody
        would know whether it ran.
        """
        setback = self.lifeline.failure
        if setback is not None and setback.pace is RetryPace.NOW:
            with anyio.move_on_after(DRAIN_SECONDS):
                await self._talks.wait_until_idle()

    def announces_changes(self, kind: str) -> bool:
        """Whether it says when its `tools`, `prompts` or `resources` changed."""
        entry = self.capabilities.get(kind)
        return isinstance(entry, Mapping) and bool(cast("JsonObject", entry).get("listChanged"))

    def subscribe(self, *, uris: Sequence[str] = ()) -> AbstractAsyncContextManager[Subscription]:
        """Hear of changed lists, or of changes to these resources instead (modern era)."""
        if uris:
            return self._client.listen(resource_subscriptions=uris)
        return self._client.listen(
            tools_list_changed=self.announces_changes("tools"),
            prompts_list_changed=self.announces_changes("prompts"),
            resources_list_changed=self.announces_changes("resources"),
        )


def _get_product_name(info: Implementation | None) -> str | None:
    if info is None:
        return None
    return f"{info.name} {info.version}".strip()


def _build_closed_error() -> MCPError:
    return MCPError(CONNECTION_CLOSED, "Connection closed")
