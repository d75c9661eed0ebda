"""One open connection to one server, by the MCP library's session. Results are plain dicts."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import anyio
from mcp import Client
from mcp.client.session import ClientSession
from mcp.client.subscriptions import Subscription, SubscriptionLost
from mcp.shared.direct_dispatcher import DirectDispatcher
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import x_mcp_header_map
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    LOG_LEVEL_META_KEY,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    ClientCapabilities,
    Implementation,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from fingerpost.errors import ServerReplyInvalid, ToolFailed
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Listing, ServerSpec, get_random_bits
from fingerpost.records.json import MAX_DEPTH, encode_if_valid
from fingerpost.servers.connection_state import ConnectionState, RetryPace
from fingerpost.servers.definitions import may_name_headers, read_listing
from fingerpost.servers.errors import SubscriptionEnded
from fingerpost.servers.failures import from_reply
from fingerpost.servers.in_flight import (
    PROGRESS_METHOD,
    InFlightRequest,
    MessageQuota,
    RequestRegistry,
    forward_question,
)
from fingerpost.servers.requests import CALL_ID_META_KEY, ProgressCallback, RequestClock, RequestContext
from fingerpost.servers.spec import ServerSecrets
from fingerpost.settings.model import LimitSettings
from fingerpost.tasks import create_cancel_scope

MAX_ROUNDS = 10
FIRST_PAUSE = 0.05  # used when a server asks for the same request again without questions
MAX_PAUSE = 0.25


@frozen
class _Exchange:
    """A request of a caller, in all its rounds."""

    method: str
    params: Mapping[str, Any]
    clock: RequestClock
    quota: MessageQuota
    on_progress: ProgressCallback | None = None
    internal: bool = False  # it belongs to no caller


def is_input_required(result: Mapping[str, Any]) -> bool:
    return result.get("resultType") == "input_required"


async def _collect_answers(
    server: str, questions: object, context: RequestContext, exchange: _Exchange
) -> JsonObject:
    """Ask the caller the questions one at a time, because a person reads one question at a time."""
    if not isinstance(questions, Mapping):
        raise _build_invalid_reply(server, "its inputRequests are not an object")
    asked = cast("Mapping[str, object]", questions)
    exchange.quota.count_questions(len(asked))
    answers: dict[str, Json] = {}
    for name, question in asked.items():
        if not isinstance(question, Mapping):
            raise _build_invalid_reply(server, f"its question {name!r:.60} is not an object")
        entry = cast("Mapping[str, Any]", question)
        method: object = entry.get("method")
        params: object = entry.get("params") or {}
        if not isinstance(method, str) or not isinstance(params, Mapping):
            raise _build_invalid_reply(server, f"its question {name!r:.60} names no method")
        answers[name] = await forward_question(
            server, context.caller, method, cast("JsonObject", params), exchange.clock
        )
    return answers


def _build_invalid_reply(server: str, why: str) -> ServerReplyInvalid:
    message = f"{server} asked for input in a way that cannot be answered: {why}"
    return ServerReplyInvalid(message, server=server, hint="report this to the server's author")


PROBE_SECONDS = 10.0

# A modern server receives the caller's capabilities with every request.
NO_CAPABILITIES = ClientCapabilities()


def build_client_capabilities(capabilities: JsonObject) -> ClientCapabilities:
    """Return the part of a caller's capabilities that we can forward to a server."""
    carried: dict[str, Any] = {
        key: capabilities[key] for key in _FORWARDED_CAPABILITIES if key in capabilities
    }
    if "roots" in carried:
        carried["roots"] = {}  # changes of roots are not forwarded
    try:
        return ClientCapabilities.model_validate(carried)
    except ValidationError:
        return NO_CAPABILITIES


_FORWARDED_CAPABILITIES = ("sampling", "elicitation", "roots")


class RawSession(ClientSession):
    """The library's session with a method that returns unparsed results."""

    probe_seconds: float = PROBE_SECONDS
    declared_capabilities: ClientCapabilities = NO_CAPABILITIES
    registry: RequestRegistry

    def build_params(
        self, method: str, params: Mapping[str, Any], context: RequestContext | None, *, token: int | None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the params as this protocol version requires, and the HTTP headers that go with them."""
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

    @property
    def is_in_process(self) -> bool:
        """Whether the server runs in this process and is called without messages."""
        return isinstance(self._dispatcher, DirectDispatcher)

    async def send_raw(self, method: str, params: Mapping[str, Any], options: CallOptions) -> dict[str, Any]:
        """Send params made by `build_params` and return the raw result. Raises `MCPError`."""
        return await self._dispatcher.send_raw_request(method, params, options)

    async def send_discover(self, version: str) -> dict[str, Any]:
        with anyio.move_on_after(self.probe_seconds):
            return await super().send_discover(version)
        raise MCPError(REQUEST_TIMEOUT, "no answer to server/discover")

    def learn_mirrored_headers(self, definitions: tuple[JsonObject, ...]) -> None:
        """Remember which arguments the modern protocol wants repeated as HTTP headers."""
        # Few definitions do, and this check is cheap.
        self._x_mcp_header_maps = {
            cast("str", definition["name"]): x_mcp_header_map(
                cast("dict[str, Any]", definition["inputSchema"])
            )
            for definition in definitions
            if may_name_headers(encode_if_valid(definition, MAX_DEPTH))
        }

    def _build_capabilities(self, version: str) -> ClientCapabilities:
        return NO_CAPABILITIES if version in MODERN_PROTOCOL_VERSIONS else self.declared_capabilities

    def _intercept_notification(self, method: str, params: Mapping[str, Any] | None) -> bool:
        """Handle a notification. Called in wire order, before the next reply is processed."""
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


def _build_progress_callback(in_flight: InFlightRequest) -> Any:
    async def progress(progress: float, total: float | None, message: str | None) -> None:
        params: dict[str, Any] = {"progress": progress, "total": total, "message": message}
        await in_flight.forward_notification(
            PROGRESS_METHOD, {key: value for key, value in params.items() if value is not None}
        )

    return progress


@dataclass
class RawClient(Client):
    """The library's client, with `RawSession` as its session class."""

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


# Without a handler, the library's log messages would appear on the user's terminal.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())

DRAIN_SECONDS = 0.5


class RequestTransport(Protocol):
    """The way of requests to one server, chosen when it connects."""

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        """Send a request and return the raw result. Raises `MCPError` or `FingerpostError`."""
        ...


class SessionTransport:
    """Requests through the MCP library's session. A server in this process calls a function for progress."""

    def __init__(self, session: RawSession) -> None:
        self._session = session

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        in_flight: InFlightRequest,
        *,
        headers: Mapping[str, str],
    ) -> dict[str, Any]:
        options: CallOptions = {"request_id": in_flight.request, "headers": dict(headers)}
        if in_flight.wants_progress and self._session.is_in_process:
            options["on_progress"] = _build_progress_callback(in_flight)
        result = await self._session.send_raw(method, params, options)
        await in_flight.flush()
        return result


class ServerConnection:
    """A connection whose handshake is complete."""

    def __init__(
        self,
        spec: ServerSpec,
        client: Client,
        limits: LimitSettings,
        state: ConnectionState,
        *,
        registry: RequestRegistry,
        transport: RequestTransport,
    ) -> None:
        self._spec = spec
        self._client = client
        self._session = cast("RawSession", client.session)
        self._limits = limits
        self._registry = registry
        self._transport = transport
        self._secrets = ServerSecrets(spec)
        self.state = state
        self.latency_ms: float | None = None  # of the last probe
        self.protocol = client.protocol_version
        self.modern = self.protocol in MODERN_PROTOCOL_VERSIONS
        self.product = _get_product_name(client.server_info)
        self._instructions = client.instructions  # the client does not return it after it is closed
        self.capabilities: JsonObject = client.server_capabilities.model_dump(
            by_alias=True, mode="json", exclude_none=True
        )

    @property
    def is_direct(self) -> bool:
        """Whether calls bypass the MCP library."""
        return not isinstance(self._transport, SessionTransport)

    @property
    def in_flight_count(self) -> int:
        return len(self._registry)

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        context: RequestContext | None = None,
        on_progress: ProgressCallback | None = None,
        clock: RequestClock | None = None,
    ) -> dict[str, Any]:
        """Send a request and return the raw result. Raises `FingerpostError`. The caller owns the deadline
        `clock`; without it there is none.

        A modern server rejects a call if its arguments are not repeated as headers according to the server's
        current schema. Our copy of the schema is then out of date: the tools are listed, and the call is sent
        again.
        """
        if clock is None:
            with RequestClock(create_cancel_scope()) as unlimited:
                return await self.ask(
                    method, params, context=context, on_progress=on_progress, clock=unlimited
                )
            raise unlimited.build_error(method, server=self._spec.name)
        for may_repeat in (True, False):
            quota = MessageQuota(self._spec.name, self._limits)
            exchange = _Exchange(
                method=method, params=params, clock=clock, quota=quota, on_progress=on_progress
            )
            try:
                result = await self._send(exchange, context)
                if not self.modern or not is_input_required(result):
                    return result
                return await self._answer_questions(result, exchange, context or RequestContext())
            except ToolFailed as error:
                if not may_repeat or not self.modern or not _is_header_mismatch(method, error):
                    raise
            await self.list_tools()
        raise AssertionError

    async def _answer_questions(
        self, result: dict[str, Any], exchange: _Exchange, context: RequestContext
    ) -> dict[str, Any]:
        """Answer `input_required` results and repeat the request until there is a final result. Return the
        questions if the caller takes them.
        """
        server = self._spec.name
        if context.caller is not None and context.caller.accepts_input_required:
            asked: object = result.get("inputRequests")
            exchange.quota.count_questions(
                len(cast("JsonObject", asked)) if isinstance(asked, Mapping) else 0
            )
            return result
        if context.caller is None and CALL_ID_META_KEY in (exchange.params.get("_meta") or ()):
            return result  # the outer request asks the caller; this call has no caller
        pause = FIRST_PAUSE
        for _ in range(MAX_ROUNDS):
            questions: object = result.get("inputRequests")
            state: object = result.get("requestState")
            if state is not None and not isinstance(state, str):
                raise _build_invalid_reply(server, "its requestState is not text")
            answers: JsonObject | None = None
            if questions:
                answers = await _collect_answers(server, questions, context, exchange)
            else:
                await anyio.sleep(pause)
                pause = min(pause * 2, MAX_PAUSE)
            result = await self._send(
                exchange, replace(context, input_responses=answers, request_state=state)
            )
            if not is_input_required(result):
                return result
        raise _build_invalid_reply(server, f"it still wanted input after {MAX_ROUNDS} rounds")

    async def _send(self, exchange: _Exchange, context: RequestContext | None) -> dict[str, Any]:
        """Send one request. It ends when the connection closes or the server exceeds its quota."""
        # Random and not sequential: a reply with a wrong id must not match another caller's request.
        request = get_random_bits(52)
        in_flight = InFlightRequest(
            self._spec.name,
            request,
            context=context,
            on_progress=exchange.on_progress,
            clock=exchange.clock,
            quota=exchange.quota,
            secrets=self._secrets,
        )
        token = request if in_flight.wants_progress else None
        method = exchange.method
        full_params, headers = self._session.build_params(method, exchange.params, context, token=token)
        if context is not None and self._spec.identifies_callers and context.credentials is not None:
            headers["Authorization"] = context.credentials
        in_flight.scope = exchange.clock.scope
        self._registry.open(in_flight, internal=exchange.internal)
        try:
            result = await self._transport.send_request(method, full_params, in_flight, headers=headers)
            in_flight.answered = True
            return await self._secrets.mask_async(result)
        except anyio.get_cancelled_exc_class():
            if in_flight.lost:
                closed = MCPError(CONNECTION_CLOSED, "Connection closed")
                exchange.clock.loss = from_reply(self._spec.name, closed, failure=self.state.failure)
            raise
        except ToolFailed as error:
            in_flight.answered = True
            if self._secrets:
                error.data = await self._secrets.mask_async(error.data)
            raise
        except MCPError as error:
            in_flight.answered = True
            converted = from_reply(self._spec.name, error, failure=self.state.failure)
            if isinstance(converted, ToolFailed) and self._secrets:
                converted.data = await self._secrets.mask_async(converted.data)
            raise converted from error
        finally:
            self._registry.close(in_flight)

    async def list_tools(self) -> Listing:
        """Return all tools, read page by page. A server without tools/list has no tools."""
        listing = await self._read_tools(None)
        self.learn_mirrored_headers(listing)
        return listing

    async def list_tools_with(self, authorization: str) -> Listing:
        """Return the tools that the server lists for this key."""
        return await self._read_tools(RequestContext(authorization=authorization))

    async def _read_tools(self, context: RequestContext | None) -> Listing:

        async def ask_page(cursor: str | None) -> dict[str, Any]:
            try:
                return await self.fetch("tools/list", {} if cursor is None else {"cursor": cursor}, context)
            except ToolFailed as error:
                if error.code == METHOD_NOT_FOUND and cursor is None:
                    return {"tools": []}
                raise

        return await read_listing(
            self._spec, ask_page, self._limits, modern=self.modern, instructions=self._instructions
        )

    def learn_mirrored_headers(self, listing: Listing) -> None:
        """Learn from a listing which arguments are repeated as headers."""
        if self.modern:
            self._session.learn_mirrored_headers(listing.definitions)

    async def fetch(
        self, method: str, params: Mapping[str, Any], context: RequestContext | None = None
    ) -> dict[str, Any]:
        """Send a request that belongs to no caller. Raises `FingerpostError`."""
        quota = MessageQuota(self._spec.name, self._limits)
        with RequestClock(create_cancel_scope()) as clock:
            exchange = _Exchange(method=method, params=params, clock=clock, quota=quota, internal=True)
            return await self._send(exchange, context)
        raise clock.build_error(method, server=self._spec.name)

    async def probe(self) -> None:
        """Check that the server responds and measure the latency. A `ToolFailed` is a response, too."""
        began = anyio.current_time()
        if not self.modern:
            await self.fetch("ping", {})
        else:
            try:
                await self._session.send_discover(self.protocol)
            except MCPError as error:
                raise from_reply(self._spec.name, error, failure=self.state.failure) from error
        self.latency_ms = (anyio.current_time() - began) * 1000

    async def drain(self) -> None:
        """Wait briefly for requests in flight if the server lost our session.

        Such a server still responds to each request, either with a rejection or a result. If the connection
        closed now, the outcome would be unknown.
        """
        failure = self.state.failure
        if failure is not None and failure.pace is RetryPace.NOW:
            with anyio.move_on_after(DRAIN_SECONDS):
                await self._registry.wait_until_idle()

    def announces_changes(self, kind: str) -> bool:
        """Return whether the server sends notifications when its `tools`, `prompts` or `resources` change."""
        entry = self.capabilities.get(kind)
        return isinstance(entry, Mapping) and bool(cast("JsonObject", entry).get("listChanged"))

    @asynccontextmanager
    async def subscribe(self, *, uris: Sequence[str] = ()) -> AsyncGenerator[Subscription]:
        """Subscribe to list changes, or to changes of `uris` instead (modern protocol only).

        Raises `SubscriptionEnded` when the server ends it, and another `FingerpostError` when it refuses.
        """
        server = self._spec.name
        try:
            async with self._listen(uris) as changes:
                yield changes
        except SubscriptionLost as error:
            raise SubscriptionEnded(f"{server} ended a subscription", server=server) from error
        except MCPError as error:
            raise from_reply(server, error, failure=self.state.failure) from error

    def _listen(self, uris: Sequence[str]) -> AbstractAsyncContextManager[Subscription]:
        if uris:
            return self._client.listen(resource_subscriptions=uris)
        return self._client.listen(
            tools_list_changed=self.announces_changes("tools"),
            prompts_list_changed=self.announces_changes("prompts"),
            resources_list_changed=self.announces_changes("resources"),
        )


def _is_header_mismatch(method: str, error: ToolFailed) -> bool:
    return method == "tools/call" and error.code == HEADER_MISMATCH


def _get_product_name(info: Implementation | None) -> str | None:
    if info is None:
        return None
    return f"{info.name} {info.version}".strip()
