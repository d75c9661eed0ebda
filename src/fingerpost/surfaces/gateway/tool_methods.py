"""`tools/list` and `tools/call`, and the gateway's own tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol, cast

from mcp.shared.inbound import (
    InboundLadderRejection,
    mcp_param_headers,
    validate_mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.jsonrpc import INVALID_PARAMS

from fingerpost.call.arguments import PreparedArguments, prepare_arguments
from fingerpost.call.arguments.coercion import read_scalar
from fingerpost.call.build import ToolNotFound, resolve_tool
from fingerpost.call.digest import compute_budget
from fingerpost.catalog import Snapshot
from fingerpost.catalog.name_resolver import MAX_WRITTEN_LENGTH
from fingerpost.catalog.tool_names import RESERVED_NAMES
from fingerpost.records import (
    CallContext,
    ErrorKind,
    Json,
    JsonObject,
    Outcome,
    RepairKind,
    ServerState,
    ToolCall,
    ToolCard,
    create_id,
)
from fingerpost.router import Router
from fingerpost.schemas.validator import load_validator
from fingerpost.surfaces.gateway.elicitation.calls import InputRequiredCalls
from fingerpost.surfaces.gateway.elicitation.client import CallRound, can_be_asked
from fingerpost.surfaces.gateway.listing.resources import ResourceListing
from fingerpost.surfaces.gateway.listing.search import (
    build_empty_result,
    build_search_result,
    explain_unavailable,
    format_one_line,
    render_description,
)
from fingerpost.surfaces.gateway.listing.tools import (
    DESCRIBE_TOOL_NAME,
    FIND_TOOLS_NAME,
    MAX_FOUND,
    READ_RESULT_NAME,
    EndpointTools,
    ToolListing,
    describe_hidden_tools,
    explain_missing_tools,
    explain_unavailable_server,
    find_unavailable_servers,
)
from fingerpost.surfaces.gateway.protocol import ClientExchange, ClientRequest, EncodedResult, JsonRpcError
from fingerpost.surfaces.gateway.request_context import (
    FALLBACK_KEY,
    MAX_INTENT_LENGTH,
    LogLevels,
    Readiness,
    build_request_context,
    get_idempotency_key,
    get_intent,
    get_meta,
)
from fingerpost.surfaces.gateway.tool_results import has_links, render_result, rewrite_result_links


class ToolNotFoundError(JsonRpcError):
    """This caller has no tool of this name. Hidden and nonexistent tools get the same message."""

    def __init__(self, name: str, found: ToolNotFound, seen: Snapshot) -> None:
        shown = name[:80]
        cards = (seen.get(key) for key in found.near)
        near = ", ".join(card.exposed_name for card in cards if card is not None)
        if found.ambiguous:
            message = f"Unknown tool: {shown!r} could mean {near}; name one of them"
        else:
            message = f"Unknown tool: {shown!r}" + (f"; similar: {near}" if near else "")
        super().__init__(INVALID_PARAMS, message)


def build_call_context(
    request: ClientRequest,
    endpoint_tools: EndpointTools,
    intent: str = "",
    *,
    fallback: bool = True,
    idempotency_key: str | None = None,
) -> CallContext:
    """Build the call context: the caller, the endpoint and the intent.

    A session is the conversation for which a person may approve a kind of call. Without a session there is
    none, because all programs of a principal look alike. The approval of a single call belongs to the
    principal, because many clients open a session for each call.
    """
    return CallContext(
        call_id=create_id("cal"),
        conversation=request.session,
        caller=request.principal.name,
        asker=request.principal_key,
        profile=endpoint_tools.config.profile,
        scopes=endpoint_tools.scopes,
        request=intent,
        fallback=fallback,
        idempotency_key=idempotency_key,
    )


_EXACT_HINT: Final = (
    ", after the arguments were corrected: write arguments that headers repeat exactly as the schema does"
)


def check_argument_headers(
    card: ToolCard, schema: JsonObject, arguments: JsonObject, headers: Mapping[str, str], *, repair: bool
) -> None:
    """Raise `JsonRpcError` if the headers differ from the arguments that would run."""
    if (wrong := validate_mcp_param_headers(schema, arguments, headers)) is not None:
        raise _build_header_error(wrong)
    prepared = prepare_arguments(card, arguments, repair=repair)
    if prepared.errors or not prepared.repairs:  # it will not run, or runs exactly as compared
        return
    seen = {**headers, **_build_default_headers(schema, prepared)}
    if (wrong := validate_mcp_param_headers(schema, prepared.arguments, seen)) is not None:
        raise _build_header_error(wrong, _EXACT_HINT)


def _build_default_headers(schema: JsonObject, prepared: PreparedArguments) -> Mapping[str, str]:
    """Return headers for omitted arguments that have a default in the schema."""
    filled = [f"{repair.path}." for repair in prepared.repairs if repair.kind is RepairKind.DEFAULT]
    ours = {
        path: token
        for path, token in x_mcp_header_map(schema).items()
        if any(f"{'.'.join(path)}.".startswith(prefix) for prefix in filled)
    }
    return mcp_param_headers(ours, prepared.arguments)


def _build_header_error(rejection: InboundLadderRejection, more: str = "") -> JsonRpcError:
    return JsonRpcError(rejection.code, rejection.message + more, rejection.data)


DEFAULT_LIMIT: Final = 8
MAX_QUERY_LENGTH: Final = 8000
MAX_ARGUMENTS_LENGTH: Final = 1024 * 1024
_MAX_SERVERS_NAMED: Final = 20
_OWN_TOOL_NAMES: Final = frozenset((FIND_TOOLS_NAME, DESCRIBE_TOOL_NAME, READ_RESULT_NAME))


class ToolRunner(Protocol):
    """Runs a tool of a server."""

    async def run_tool(
        self, request: ClientRequest, exchange: ClientExchange, tool_call: ToolCall, *, intent: str
    ) -> JsonObject: ...


class OwnTools:
    """Answers calls of the gateway's own tools. Errors are results that a model can act on."""

    def __init__(self, router: Router, runner: ToolRunner) -> None:
        self._router = router
        self._runner = runner
        self._settings = router.settings

    async def answer(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        endpoint_tools: EndpointTools,
        tool_call: ToolCall,
    ) -> JsonObject:
        if tool_call.name == FIND_TOOLS_NAME:
            return await self._find_tools(request, endpoint_tools, tool_call.arguments)
        if tool_call.name == DESCRIBE_TOOL_NAME:
            return self._describe_tool(request, endpoint_tools, tool_call.arguments)
        if tool_call.name == READ_RESULT_NAME:
            return await self._read_result(request, endpoint_tools, tool_call)
        return await self._call_tool(request, exchange, endpoint_tools, tool_call.arguments)

    async def _find_tools(
        self, request: ClientRequest, endpoint_tools: EndpointTools, arguments: JsonObject
    ) -> JsonObject:
        text, server = arguments.get("request"), arguments.get("server")
        if not isinstance(text, str) or not text.strip():
            return _build_error_result("find_tools needs `request`: what is to be done, in plain words.")
        budget = self._settings.gateway.find_tokens
        servers = sorted({card.server for card in endpoint_tools.view.visible.cards})
        away = find_unavailable_servers(self._router, endpoint_tools, request.principal.name)
        if isinstance(server, str) and server in away and server not in servers:
            return build_empty_result(explain_unavailable_server(away[server]), budget=budget)
        waiting = [name for name, status in away.items() if status.state is not ServerState.DISABLED]
        if not servers:
            note = explain_missing_tools(self._router, endpoint_tools, request.principal, budget=budget // 3)
            return build_empty_result(note, budget=budget)
        if server is not None and server not in servers:
            reviewed = describe_hidden_tools(self._router, endpoint_tools, request.principal.name)
            missing = f"{explain_unavailable(waiting, budget=budget)} {reviewed}".strip()
            return build_empty_result(_explain_unknown_server(server, servers, missing), budget=budget)
        limit = _parse_limit(arguments.get("limit"))
        # A client's session is not a user's conversation: each request is ranked on its own.
        narrowing = await self._router.narrow(
            text[:MAX_QUERY_LENGTH],
            asked_for_tools=True,
            caller=request.principal.name,
            profile=endpoint_tools.config.profile,
            scopes=endpoint_tools.scopes,
            server=cast("str | None", server),
            max_tools=limit,
        )
        unavailable = waiting if server is None else [name for name in waiting if name == server]
        return build_search_result(
            narrowing, endpoint_tools.view.visible, limit=limit, budget=budget, unavailable=unavailable
        )

    def _describe_tool(
        self, request: ClientRequest, endpoint_tools: EndpointTools, arguments: JsonObject
    ) -> JsonObject:
        name = arguments.get("name")
        if not isinstance(name, str) or not name:
            return _build_error_result("describe_tool needs `name`: one that find_tools answered with.")
        tool_call = ToolCall(name=name, arguments={})
        seen = resolve_tool(tool_call, endpoint_tools.view.visible)
        if isinstance(seen, ToolNotFound):
            if not seen.ambiguous and (
                away := self._router.calls.find_absence(
                    tool_call, build_call_context(request, endpoint_tools)
                )
            ):
                return _build_error_result(f"{away.message}. {away.fix}")
            unknown = ToolNotFoundError(name, seen, endpoint_tools.view.visible)
            return _build_error_result(f"{unknown.message}. find_tools finds the right name.")
        budget = max(self._settings.gateway.find_tokens, self._settings.digest.max_tokens)
        return {"content": [_build_text_block(render_description(seen.card, budget=budget))]}

    async def _call_tool(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        endpoint_tools: EndpointTools,
        arguments: JsonObject,
    ) -> JsonObject:
        name, intent = arguments.get("name"), arguments.get("intent")
        if not isinstance(name, str) or not name:
            return _build_error_result("call_tool needs `name`: one that find_tools answered with.")
        inner = _parse_inner_arguments(arguments.get("arguments"))
        if inner is None:
            return _build_error_result(
                f"the `arguments` of {name[:80]} must be an object, by parameter name."
            )
        tool_call = ToolCall(name=name, arguments=inner)
        if name in _OWN_TOOL_NAMES:
            return await self.answer(request, exchange, endpoint_tools, tool_call)
        try:
            return await self._runner.run_tool(
                request,
                exchange,
                tool_call,
                intent=intent[:MAX_INTENT_LENGTH] if isinstance(intent, str) else "",
            )
        except ToolNotFoundError as unknown:
            return _build_error_result(f"{unknown.message}. find_tools finds the right name.")

    async def _read_result(
        self, request: ClientRequest, endpoint_tools: EndpointTools, tool_call: ToolCall
    ) -> JsonObject:
        context = build_call_context(request, endpoint_tools)
        if self._router.tools.find(READ_RESULT_NAME) is None:
            outcome = await self._router.calls.call(tool_call, context)
        else:  # a server has an unrelated tool of this name
            outcome = await self._router.calls.read_result(tool_call, context)
        result = await render_result(outcome, None, modern=request.modern)
        return {**result, "content": [*_get_content(result), *_build_read_hints(outcome, tool_call)]}


def _get_content(result: JsonObject) -> list[Json]:
    content = result.get("content")
    return [*content] if isinstance(content, list | tuple) else []


def _build_read_hints(outcome: Outcome, tool_call: ToolCall) -> list[JsonObject]:
    """Return how to read the next part, if there is more."""
    page, pages = outcome.metadata.get("page"), outcome.metadata.get("pages")
    if not isinstance(page, int) or not isinstance(pages, int) or page >= pages:
        return []
    handle = json.dumps(str(tool_call.arguments.get("handle")))
    return [
        _build_text_block(
            f"[Page {page} of {pages}. Next: {READ_RESULT_NAME}(handle={handle}, page={page + 1})]"
        )
    ]


def _parse_limit(given: Json) -> int:
    if (reading := read_scalar("integer", given)) is not None:  # many models send it as text
        given = reading.value
    if not isinstance(given, int) or isinstance(given, bool):
        return DEFAULT_LIMIT
    return min(max(given, 1), MAX_FOUND)


def _explain_unknown_server(server: Json, servers: list[str], unavailable_note: str) -> str:
    more = f" and {len(servers) - _MAX_SERVERS_NAMED} more" if len(servers) > _MAX_SERVERS_NAMED else ""
    named = ", ".join(format_one_line(name, 40) for name in servers[:_MAX_SERVERS_NAMED])
    return (
        f"There is no server {format_one_line(str(server), 40)!r} here. "
        f"{unavailable_note}{' ' if unavailable_note else ''}"
        f"There are: {named}{more}. Leave `server` out to look at all of them."
    )


def _parse_inner_arguments(arguments: Json) -> JsonObject | None:
    """Return the arguments for the tool, or None if invalid. Many models send them as JSON text."""
    if arguments is None:
        return {}
    if isinstance(arguments, str) and len(arguments) <= MAX_ARGUMENTS_LENGTH:
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return cast("JsonObject", arguments) if isinstance(arguments, Mapping) else None


def _build_text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _build_error_result(text: str) -> JsonObject:
    return {"content": [_build_text_block(text)], "isError": True}


SERVER_WAIT_S: Final = 2.0  # for servers that may still list the tool
_NO_ARGUMENTS: Final[JsonObject] = {}


class ToolMethods:
    """Lists and calls tools for clients."""

    def __init__(
        self,
        router: Router,
        *,
        listing: ToolListing,
        resource_listing: ResourceListing,
        calls: InputRequiredCalls,
        readiness: Readiness,
        levels: LogLevels,
    ) -> None:
        self._router = router
        self._tool_listing = listing
        self._resource_listing = resource_listing
        self._calls = calls
        self._readiness = readiness
        self._levels = levels
        self._own_tools = OwnTools(router, self)

    async def list_page(self, request: ClientRequest, exchange: ClientExchange) -> EncodedResult:
        """Return one page of the tools of this endpoint."""
        endpoint_tools = await self._get_ready_tools(request)
        await self._tool_listing.encode_definitions(endpoint_tools, modern=request.modern)
        return self._tool_listing.get_page(
            request.endpoint, request.principal, cursor=request.params.get("cursor"), modern=request.modern
        )

    async def call_tool(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Run a server's tool, or one of the gateway's own."""
        name, arguments = _parse_call_params(request.params)
        tool_call = ToolCall(name=name, arguments=arguments)
        if name in RESERVED_NAMES:
            endpoint_tools = await self._get_ready_tools(request)
            if any(tool["name"] == name for tool in endpoint_tools.own_tools):
                return await self._own_tools.answer(request, exchange, endpoint_tools, tool_call)
        headers = request.headers if request.modern else None
        return await self.run_tool(request, exchange, tool_call, intent=get_intent(request), headers=headers)

    async def _get_ready_tools(self, request: ClientRequest) -> EndpointTools:
        await self._readiness.wait_for_tools()
        self._router.servers.refresh_in_background()
        return await self._tool_listing.prepare_tools(request.endpoint, request.principal)

    async def run_tool(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        tool_call: ToolCall,
        *,
        intent: str,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Run a tool of a server. A tool that this caller may not see does not exist for it.

        `headers` must repeat the arguments that the tool wants repeated. It is None without HTTP and for
        `call_tool`, whose headers concern its own arguments.
        """
        endpoint_tools = await self._tool_listing.prepare_tools(request.endpoint, request.principal)
        context = build_call_context(
            request,
            endpoint_tools,
            intent,
            fallback=get_meta(request).get(FALLBACK_KEY) is not False,
            idempotency_key=get_idempotency_key(request),
        )
        card = endpoint_tools.view.visible.by_exposed_name(tool_call.name)
        if card is None:
            endpoint_tools = await self._get_ready_tools(request)
            found = resolve_tool(tool_call, endpoint_tools.view.visible)
            if isinstance(found, ToolNotFound) and not found.ambiguous:
                await self._router.servers.refresh_stale_listings(timeout=SERVER_WAIT_S)
                endpoint_tools = await self._get_ready_tools(request)
                found = resolve_tool(tool_call, endpoint_tools.view.visible)
            if isinstance(found, ToolNotFound):
                missed = self._router.calls.record_unknown(tool_call, found, context)
                if missed.error is ErrorKind.UNAVAILABLE:  # known but unavailable: explain it to the model
                    return await render_result(missed, None, modern=request.modern)
                raise ToolNotFoundError(tool_call.name, found, endpoint_tools.view.visible)
            card, tool_call = found.card, ToolCall(name=found.card.key, arguments=found.arguments)
        else:
            tool_call = ToolCall(name=card.key, arguments=tool_call.arguments)
        if headers and (schema := self._tool_listing.get_mirrored_schema(card)) is not None:
            repair = self._router.settings.flags.argument_repair
            await load_validator()
            check_argument_headers(card, schema, tool_call.arguments, headers, repair=repair)
        request_context = build_request_context(request, log_level=self._levels.get_level(request.session))
        if can_be_asked(request.capabilities) or request_context.is_continuation:
            current = CallRound(request, exchange, tool_call, context, request_context, card.server)
            outcome = await self._calls.call(current)
        else:
            caller = self._calls.build_caller(request, exchange, card.server, request_context)
            outcome = await self._router.calls.call(
                tool_call, context, request_context.replace_caller(caller)
            )
            outcome = self._calls.finish_unasked(request, card.server, outcome)
        if intent:
            self._router.learn(intent, outcome, context.conversation)
        card = self._find_answering_card(outcome, card)
        budget = compute_budget(card, context, self._router.settings.digest)
        result = await render_result(outcome, card, modern=request.modern, budget=budget)
        return (
            await self._rewrite_links(request, card, result) if has_links(result.get("content")) else result
        )

    async def _rewrite_links(self, request: ClientRequest, card: ToolCard, result: JsonObject) -> JsonObject:
        await self._readiness.wait_for_resources()
        try:
            resources = self._resource_listing.get_resources(request.endpoint, request.principal)
        except JsonRpcError:
            # The profile was deleted meanwhile: links cannot be read, but the result is returned.
            return result
        return await rewrite_result_links(result, resources.collection, card.server)

    def _find_answering_card(self, outcome: Outcome, requested: ToolCard) -> ToolCard:
        """Return the tool that answered: the requested one or a fallback."""
        return (
            requested if outcome.tool == requested.key else self._router.tools.get(outcome.tool) or requested
        )


def _parse_call_params(params: JsonObject) -> tuple[str, JsonObject]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not name or len(name) > MAX_WRITTEN_LENGTH:
        raise JsonRpcError(INVALID_PARAMS, "tools/call needs the `name` of a tool; tools/list has them")
    if arguments is None:
        return name, _NO_ARGUMENTS
    if isinstance(arguments, dict):
        return name, arguments
    if not isinstance(arguments, Mapping):
        raise JsonRpcError(INVALID_PARAMS, f"the `arguments` of {name[:80]!r} must be an object, by name")
    return name, cast("Mapping[str, Json]", arguments)
