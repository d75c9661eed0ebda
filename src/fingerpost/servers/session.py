"""The MCP library's session, asked and answered in plain dicts.

Its own models refuse a whole list for one bad entry and drop fields they do
not know, in results as in notifications and questions of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import anyio
from mcp import Client
from mcp.client.session import ClientSession
from mcp.shared.direct_dispatcher import DirectDispatcher
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    LOG_LEVEL_META_KEY,
    REQUEST_TIMEOUT,
    ClientCapabilities,
    ElicitationCapability,
    FormElicitationCapability,
    Implementation,
    RootsCapability,
    SamplingCapability,
    SamplingContextCapability,
    SamplingToolsCapability,
    UrlElicitationCapability,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from fingerpost.records import JsonObject
from fingerpost.records.json import MAX_DEPTH
from fingerpost.servers.caller import RequestContext
from fingerpost.servers.definitions import may_name_headers
from fingerpost.servers.soundness import encode_if_valid
from fingerpost.servers.talk import PROGRESS_METHOD, InFlightRequest, RequestRegistry

PROBE_SECONDS = 10.0

# A handshake is made once for all callers, so it declares what any of them may be able to do; what
# the caller at hand cannot do is refused when it is asked for. Where calls have no caller to ask
# (a command, a program), nothing is declared: a server then offers no tools that need somebody.
ALL_CAPABILITIES = ClientCapabilities(
    sampling=SamplingCapability(context=SamplingContextCapability(), tools=SamplingToolsCapability()),
    elicitation=ElicitationCapability(form=FormElicitationCapability(), url=UrlElicitationCapability()),
    roots=RootsCapability(),
)
NO_CAPABILITIES = ClientCapabilities()  # a modern server hears from every request what its own caller can do


def build_client_capabilities(capabilities: JsonObject) -> ClientCapabilities:
    """What one caller says they can do, as far as we carry it between them and a server."""
    carried: dict[str, Any] = {
        key: capabilities[key] for key in _FORWARDED_CAPABILITIES if key in capabilities
    }
    if "roots" in carried:
        carried["roots"] = {}  # changes of theirs are not passed on
    try:
        return ClientCapabilities.model_validate(carried)
    except ValidationError:
        return NO_CAPABILITIES


_FORWARDED_CAPABILITIES = ("sampling", "elicitation", "roots")


class RawSession(ClientSession):
    """The library's session, with a way to ask and get the untouched answer."""

    probe_seconds: float = PROBE_SECONDS
    declared_capabilities: ClientCapabilities = NO_CAPABILITIES
    registry: RequestRegistry

    def build_params(
        self, method: str, params: Mapping[str, Any], context: RequestContext | None, *, token: int | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """The params as this server wants them, and the HTTP headers that go with them."""
        full = dict(params)
        meta: dict[str, Any] = dict(full.get("_meta") or {})
        if context is not None:
            meta = {**context.meta, **meta}
            if context.input_responses is not None:
                full["inputResponses"] = context.input_responses
            if context.request_state is not None:
                full["requestState"] = context.request_state
        if token is not None:
            meta["progressToken"] = token
        full["_meta"] = meta
        options: CallOptions = {}
        self._stamp({"method": method, "params": full}, options)
        if context is not None and self._negotiated_version in MODERN_PROTOCOL_VERSIONS:
            if context.caller is not None:
                meta[CLIENT_CAPABILITIES_META_KEY] = context.caller.capabilities
            if context.log_level is not None:
                meta[LOG_LEVEL_META_KEY] = context.log_level
        if not meta:
            del full["_meta"]
        return full, options.get("headers", {})

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """Send what was stamped before and wait for the raw result. Raises `MCPError`."""
        options: CallOptions = {"request_id": in_flight.request, "headers": dict(headers)}
        if in_flight.wants_progress and isinstance(self._dispatcher, DirectDispatcher):
            # No notification carries it there: it is told by calling us.
            options["on_progress"] = _to_request_id(in_flight)
        result = await self._dispatcher.send_raw_request(method, params, options)
        await in_flight.flush()
        return result

    async def send_discover(self, version: str) -> dict[str, Any]:
        with anyio.move_on_after(self.probe_seconds):
            return await super().send_discover(version)
        raise MCPError(REQUEST_TIMEOUT, "no answer to server/discover")

    def learn_mirrored_headers(self, definitions: tuple[JsonObject, ...]) -> None:
        """Remember which arguments the modern era wants repeated as HTTP headers."""
        self._x_mcp_header_maps = {
            cast("str", definition["name"]): x_mcp_header_map(
                cast("dict[str, Any]", definition["inputSchema"])
            )
            for definition in definitions
            if may_name_headers(encode_if_valid(definition, MAX_DEPTH))  # hardly any does
        }

    # -- what comes from the server -----------------------------------------------------------------

    def _build_capabilities(self, version: str) -> ClientCapabilities:
        return NO_CAPABILITIES if version in MODERN_PROTOCOL_VERSIONS else self.declared_capabilities

    def _intercept_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Called in the order of the wire, before the reply that follows is looked at."""
        if super()._intercept_notification(method, params):
            return True
        self.registry.dispatch_notification(method, params, self._spawn, request=None)
        return True

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._task_group is not None:
            self._task_group.start_soon(work)

    async def _on_request(
        self, dctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        metadata = dctx.message_metadata
        request = metadata.related_request_id if isinstance(metadata, ServerMessageMetadata) else None
        return await self.registry.answer_server_request(method, params, request=request)


def _to_request_id(talk: InFlightRequest) -> Any:
    async def progress(progress: float, total: float | None, message: str | None) -> None:
        params: dict[str, Any] = {"progress": progress, "total": total, "message": message}
        await talk.forward_notification(
            PROGRESS_METHOD, {key: value for key, value in params.items() if value is not None}
        )

    return progress


@dataclass
class RawClient(Client):
    """The library's client, building our session."""

    registry: RequestRegistry = field(kw_only=True)
    probe_seconds: float = field(default=PROBE_SECONDS, kw_only=True)
    declared_capabilities: ClientCapabilities = field(default_factory=ClientCapabilities, kw_only=True)

    async def _build_session(self, exit_stack: AsyncExitStack) -> ClientSession:
        dispatcher = await self._connect(exit_stack, self.mode, self.raise_exceptions)
        session = RawSession(dispatcher=dispatcher, client_info=self.client_info)
        session.probe_seconds = self.probe_seconds
        session.registry = self.registry
        session.declared_capabilities = self.declared_capabilities
        return session


def build_client_info(version: str) -> Implementation:
    return Implementation(name="fingerpost", version=version)
