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
from fingerpost.records import JsonObject, Listing, ServerSpec, random_bits
from fingerpost.servers.caller import CALL_ID, Passage
from fingerpost.servers.clock import Clock
from fingerpost.servers.failures import from_reply
from fingerpost.servers.lifeline import Lifeline, Pace
from fingerpost.servers.listing import read_listing
from fingerpost.servers.rounds import through_rounds, wants_input
from fingerpost.servers.session import RawSession
from fingerpost.servers.spec import OwnSecrets
from fingerpost.servers.talk import Progress, Quota, Talk, Talks
from fingerpost.settings.model import LimitSettings

# Without a handler of its own, what the library logs would land on the terminal of whoever uses us.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

LAST_ANSWERS_SECONDS = 0.5


class Thin(Protocol):
    """A way to a server without the library in between."""

    async def ask(
        self, method: str, params: Mapping[str, Any], talk: Talk, *, headers: Mapping[str, str]
    ) -> dict[str, Any]: ...


class Connection:
    """A server that has shaken hands."""

    def __init__(
        self,
        spec: ServerSpec,
        client: Client,
        limits: LimitSettings,
        lifeline: Lifeline,
        *,
        talks: Talks,
        thin: Thin | None = None,
    ) -> None:
        self._spec = spec
        self._client = client
        self._session = cast("RawSession", client.session)
        self._limits = limits
        self._talks = talks
        self._thin = thin
        self._secrets = OwnSecrets(spec)
        self.lifeline = lifeline
        self.latency_ms: float | None = None  # of the last sign of life
        self.protocol = client.protocol_version
        self.modern = self.protocol in MODERN_PROTOCOL_VERSIONS
        self.product = _product(client.server_info)
        self._instructions = client.instructions  # the client does not tell once it is closed
        self.capabilities: JsonObject = client.server_capabilities.model_dump(
            by_alias=True, mode="json", exclude_none=True
        )

    @property
    def is_thin(self) -> bool:
        """Whether calls go without the library in between."""
        return self._thin is not None

    @property
    def busy(self) -> int:
        """How many requests are under way."""
        return len(self._talks)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        passage: Passage | None = None,
        on_progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> dict[str, Any]:
        """The raw result. Raises our errors; a bound on the time is the caller's to set, by `clock`."""
        clock = clock or Clock()
        quota = Quota(self._spec.name, self._limits)
        result = await self._send(method, params, passage, on_progress, clock, quota)
        if not self.modern or not wants_input(result):
            return result
        passage = passage or Passage()
        if passage.caller is not None and passage.caller.takes_rounds:
            asked: object = result.get("inputRequests")
            quota.count_questions(len(cast("JsonObject", asked)) if isinstance(asked, Mapping) else 0)
            return result
        if passage.caller is None and CALL_ID in (params.get("_meta") or ()):
            return result  # the request the call belongs to is asked, though nobody listens to the call

        async def send(passage: Passage | None) -> dict[str, Any]:
            return await self._send(method, params, passage, on_progress, clock, quota)

        return await through_rounds(self._spec.name, result, passage, clock, quota, send)

    async def _send(
        self,
        method: str,
        params: Mapping[str, Any],
        passage: Passage | None,
        on_progress: Progress | None,
        clock: Clock,
        quota: Quota,
        *,
        ours: bool = False,
    ) -> dict[str, Any]:
        # Not counted up from 1: a server that answers with the wrong id must not hit another caller's.
        request = random_bits(52)
        talk = Talk(
            self._spec.name,
            request,
            passage=passage,
            on_progress=on_progress,
            clock=clock,
            quota=quota,
            secrets=self._secrets,
        )
        token = request if talk.wants_progress else None
        stamped, headers = self._session.stamped(method, params, passage, token=token)
        if passage is not None and self._spec.forward_authorization:
            own = passage.authorization if passage.caller is None else passage.caller.authorization
            if own is not None:
                headers["Authorization"] = own
        self._talks.open(talk, ours=ours)
        try:
            result = await self._ask(self._thin or self._session, method, stamped, talk, headers, clock)
            talk.answered = True
            return await self._secrets.masked(result)
        except ToolFailed as error:
            talk.answered = True
            if self._secrets:
                error.data = await self._secrets.masked(error.data)
            raise
        except MCPError as error:
            talk.answered = True
            made = from_reply(self._spec.name, error, loss=self.lifeline.setback)
            if isinstance(made, ToolFailed) and self._secrets:
                made.data = await self._secrets.masked(made.data)
            raise made from error
        finally:
            self._talks.close(talk)

    async def _ask(
        self,
        way: Thin,
        method: str,
        params: Mapping[str, Any],
        talk: Talk,
        headers: Mapping[str, str],
        clock: Clock,
    ) -> dict[str, Any]:
        """A request on a connection that is closed never gets its answer: its scope is cancelled.

        So is the scope of a request whose server went beyond its quota.
        """
        if clock.scope is None:
            with anyio.CancelScope() as talk.scope:
                return await way.ask(method, params, talk, headers=headers)
            raise talk.failure or _gone()
        talk.scope = clock.scope
        try:
            return await way.ask(method, params, talk, headers=headers)
        except anyio.get_cancelled_exc_class():
            if talk.lost:
                clock.loss = from_reply(self._spec.name, _gone(), loss=self.lifeline.setback)
            raise

    async def call(
        self,
        params: Mapping[str, Any],
        *,
        passage: Passage | None = None,
        on_progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> dict[str, Any]:
        """One tools/call. Sent a second time only when the server refused to even look at the first.

        A modern server does so when arguments were not repeated as headers the
        way its schema now says: then the schema we know is old.
        """
        try:
            return await self.ask("tools/call", params, passage=passage, on_progress=on_progress, clock=clock)
        except ToolFailed as error:
            if error.code != HEADER_MISMATCH or not self.modern:
                raise
        await self.list_tools()
        return await self.ask("tools/call", params, passage=passage, on_progress=on_progress, clock=clock)

    async def list_tools(self) -> Listing:
        """All tools, page by page. A server that knows no tools/list simply has none."""
        listing = await self._read_tools(None)
        self.mirror(listing)
        return listing

    async def list_tools_with(self, authorization: str) -> Listing:
        """The tools the server lists to a caller with this key."""
        return await self._read_tools(Passage(authorization=authorization))

    async def _read_tools(self, passage: Passage | None) -> Listing:

        async def ask_page(cursor: str | None) -> dict[str, Any]:
            try:
                params = {} if cursor is None else {"cursor": cursor}
                quota = Quota(self._spec.name, self._limits)
                return await self._send("tools/list", params, passage, None, Clock(), quota, ours=True)
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

    def mirror(self, listing: Listing) -> None:
        """Learn from a listing which arguments are repeated as headers."""
        if self.modern:
            self._session.mirror_headers(listing.definitions)

    async def fetch(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Ask on our own behalf. Raises our errors."""
        quota = Quota(self._spec.name, self._limits)
        return await self._send(method, params, None, None, Clock(), quota, ours=True)

    async def probe(self) -> None:
        """Ask for a sign of life; an error the server itself sends is one."""
        began = anyio.current_time()
        if not self.modern:
            await self.fetch("ping", {})
        else:
            try:
                await self._session.send_discover(self.protocol)
            except MCPError as error:
                raise from_reply(self._spec.name, error, loss=self.lifeline.setback) from error
        self.latency_ms = (anyio.current_time() - began) * 1000

    async def last_answers(self) -> None:
        """Wait a moment for what is under way, where the server is there and forgot our session.

        It answers each request by itself: that it was turned away, or how it went. Cut off now, nobody
        would know whether it ran.
        """
        setback = self.lifeline.setback
        if setback is not None and setback.pace is Pace.NOW:
            with anyio.move_on_after(LAST_ANSWERS_SECONDS):
                await self._talks.over()

    def announces(self, kind: str) -> bool:
        """Whether it says when its `tools`, `prompts` or `resources` changed."""
        entry = self.capabilities.get(kind)
        return isinstance(entry, Mapping) and bool(cast("JsonObject", entry).get("listChanged"))

    def listen(self, *, uris: Sequence[str] = ()) -> AbstractAsyncContextManager[Subscription]:
        """Hear of changed lists, or of changes to these resources instead (modern era)."""
        if uris:
            return self._client.listen(resource_subscriptions=uris)
        return self._client.listen(
            tools_list_changed=self.announces("tools"),
            prompts_list_changed=self.announces("prompts"),
            resources_list_changed=self.announces("resources"),
        )


def _product(info: Implementation | None) -> str | None:
    if info is None:
        return None
    return f"{info.name} {info.version}".strip()


def _gone() -> MCPError:
    return MCPError(CONNECTION_CLOSED, "Connection closed")
