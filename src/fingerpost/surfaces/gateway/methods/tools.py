"""`tools/list` and `tools/call`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from fingerpost.call.digest import compute_budget
from fingerpost.call.names import ResolvedTool, ToolNotFound, resolve_tool
from fingerpost.catalog.names import RESERVED_NAMES
from fingerpost.records import CallContext, ErrorKind, Json, JsonObject, Outcome, ToolCall, ToolCard
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking import InputRequiredCalls
from fingerpost.surfaces.gateway.exchange import ClientExchange, ClientRequest, EncodedResult, JsonRpcError
from fingerpost.surfaces.gateway.methods.context import INVALID_PARAMS, ToolNotFoundError, build_call_context
from fingerpost.surfaces.gateway.methods.levels import LogLevels
from fingerpost.surfaces.gateway.methods.links import has_links, rewrite_result_links
from fingerpost.surfaces.gateway.methods.mirrored import check_argument_headers
from fingerpost.surfaces.gateway.methods.own_tools import OwnTools
from fingerpost.surfaces.gateway.methods.passage import (
    FALLBACK_KEY,
    build_request_context,
    get_idempotency_key,
    get_intent,
    get_meta,
)
from fingerpost.surfaces.gateway.methods.readiness import Readiness
from fingerpost.surfaces.gateway.methods.rendering import render_result
from fingerpost.surfaces.gateway.offers import EndpointTools, ToolListing
from fingerpost.surfaces.gateway.offers.materials import ResourceListing

MAX_TOOL_NAME_LENGTH: Final = 512
SERVER_WAIT_S: Final = 2.0  # for servers to say whether they have a tool by now
_NO_ARGUMENTS: Final[JsonObject] = {}


class ToolMethods:
    """Tools, as clients list and call them."""

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
        self._offers = listing
        self._shelves = resource_listing
        self._calls = calls
        self._readiness = readiness
        self._levels = levels
        self._own = OwnTools(router, self)

    async def list_page(self, request: ClientRequest, exchange: ClientExchange) -> EncodedResult:
        """One page of the tools of this endpoint."""
        offer = await self._get_ready_tools(request)
        await self._offers.encode_definitions(offer, modern=request.modern)
        return self._offers.get_page(
            request.endpoint,
            request.principal,
            cursor=request.params.get("cursor"),
            modern=request.modern,
        )

    async def call_tool(self, request: ClientRequest, exchange: ClientExchange) -> JsonObject:
        """Run a tool of a server, or one of our own."""
        name, arguments = _parse_call_params(request.params)
        wish = ToolCall(name=name, arguments=arguments)
        if name in RESERVED_NAMES:
            offer = await self._get_ready_tools(request)
            if any(tool["name"] == name for tool in offer.own_tools):
                return await self._own.answer(request, exchange, offer, wish)
        headers = request.headers if request.modern else None
        return await self.run_tool(request, exchange, wish, intent=get_intent(request), headers=headers)

    async def _get_ready_tools(self, request: ClientRequest) -> EndpointTools:
        await self._readiness.wait_for_tools()
        self._router.servers.refresh_in_background()
        return await self._offers.prepare_tools(request.endpoint, request.principal)

    async def run_tool(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        tool_call: ToolCall,
        *,
        intent: str,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Run a tool of a server. One that this caller may not see does not exist for them.

        `headers` must repeat the arguments that the tool wants repeated. There are none to compare
        without HTTP, nor of `call_tool`, whose own arguments they would be.
        """
        offer = await self._offers.prepare_tools(request.endpoint, request.principal)
        context = replace(
            build_call_context(request, offer, intent),
            fallback=get_meta(request).get(FALLBACK_KEY) is not False,
            idempotency_key=get_idempotency_key(request),
        )
        card = offer.view.visible.by_exposed_name(tool_call.name)
        if card is None:
            offer = await self._get_ready_tools(request)
            found = resolve_tool(tool_call, offer.view.visible)
            if isinstance(found, ToolNotFound) and not found.ambiguous:
                await self._router.servers.refresh_stale_listings(timeout=SERVER_WAIT_S)
                offer = await self._get_ready_tools(request)
                found = resolve_tool(tool_call, offer.view.visible)
            if isinstance(found, ToolNotFound):
                missed = await self._record_unknown(tool_call, context)
                if missed.error is ErrorKind.UNAVAILABLE:  # known and away: the model hears why
                    return await render_result(missed, None, modern=request.modern)
                raise ToolNotFoundError(tool_call.name, found, offer.view.visible)
            card, tool_call = found.card, _to_tool_call(found)
        else:
            tool_call = ToolCall(name=card.key, arguments=tool_call.arguments)
        if headers and (schema := self._offers.get_mirrored_schema(card)) is not None:
            repair = self._router.settings.flags.argument_repair
            check_argument_headers(card, schema, tool_call.arguments, headers, repair=repair)
        passage = build_request_context(request, log_level=self._levels.get_level(request.session))
        outcome = await self._calls.call(request, exchange, tool_call, context, passage, server=card.server)
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
            shelf = self._shelves.get_resources(request.endpoint, request.principal)
        except (
            JsonRpcError
        ):  # their profile is gone meanwhile: they can follow no link, but what ran has a result
            return result
        return await rewrite_result_links(result, shelf.collection, card.server)

    def _find_answering_card(self, outcome: Outcome, requested: ToolCard) -> ToolCard:
        """The tool that answered: the asked one, or a fallback."""
        return (
            requested if outcome.tool == requested.key else self._router.tools.get(outcome.tool) or requested
        )

    async def _record_unknown(self, tool_call: ToolCall, context: CallContext) -> Outcome:
        """Record that somebody tried to call what does not exist for them. Nothing can run by it."""
        probe = CallContext(
            call_id=context.call_id,
            conversation=context.conversation,
            caller=context.caller,
            profile=context.profile,
            scopes=context.scopes,
            dry_run=True,
        )
        return await self._router.calls.call(tool_call, probe)


def _parse_call_params(params: JsonObject) -> tuple[str, JsonObject]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not name or len(name) > MAX_TOOL_NAME_LENGTH:
        raise JsonRpcError(INVALID_PARAMS, "tools/call needs the `name` of a tool; tools/list has them")
    if arguments is None:
        return name, _NO_ARGUMENTS
    if isinstance(arguments, dict):
        return name, arguments
    if not isinstance(arguments, Mapping):
        raise JsonRpcError(INVALID_PARAMS, f"the `arguments` of {name[:80]!r} must be an object, by name")
    return name, cast("Mapping[str, Json]", arguments)


def _to_tool_call(found: ResolvedTool) -> ToolCall:
    return ToolCall(name=found.card.key, arguments=found.arguments)
