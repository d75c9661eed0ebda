"""`tools/list` and `tools/call`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from fingerpost.call.digest import budget_for
from fingerpost.call.names import NotFound, Resolved, resolve
from fingerpost.catalog.names import RESERVED
from fingerpost.records import CallContext, ErrorKind, Json, JsonObject, Outcome, ToolCall, ToolCard
from fingerpost.router import Router
from fingerpost.surfaces.gateway.asking import AskedCalls
from fingerpost.surfaces.gateway.exchange import ClientRequest, Encoded, Exchange, Refusal
from fingerpost.surfaces.gateway.methods.context import INVALID_PARAMS, UnknownTool, context_of
from fingerpost.surfaces.gateway.methods.levels import Levels
from fingerpost.surfaces.gateway.methods.links import has_links, linked_result
from fingerpost.surfaces.gateway.methods.mirrored import check_headers
from fingerpost.surfaces.gateway.methods.own_tools import OwnTools
from fingerpost.surfaces.gateway.methods.passage import (
    FALLBACK,
    idempotency_key_of,
    intent_of,
    meta_of,
    passage_of,
)
from fingerpost.surfaces.gateway.methods.readiness import Readiness
from fingerpost.surfaces.gateway.methods.rendering import rendered
from fingerpost.surfaces.gateway.offers import Offer, ToolOffers
from fingerpost.surfaces.gateway.offers.materials import MaterialOffers

LONGEST_NAME: Final = 512
LOOK_SECONDS: Final = 2.0  # for servers to say whether they have a tool by now
_NO_ARGUMENTS: Final[JsonObject] = {}


class ToolMethods:
    """Tools, as clients list and call them."""

    def __init__(
        self,
        router: Router,
        *,
        offers: ToolOffers,
        shelves: MaterialOffers,
        calls: AskedCalls,
        readiness: Readiness,
        levels: Levels,
    ) -> None:
        self._router = router
        self._offers = offers
        self._shelves = shelves
        self._calls = calls
        self._readiness = readiness
        self._levels = levels
        self._own = OwnTools(router, self)

    async def list(self, request: ClientRequest, exchange: Exchange) -> Encoded:
        """One page of the tools of this endpoint."""
        offer = await self._settled_offer(request)
        await self._offers.encode(offer, modern=request.modern)
        return self._offers.page(
            request.endpoint,
            request.principal,
            cursor=request.params.get("cursor"),
            modern=request.modern,
        )

    async def call(self, request: ClientRequest, exchange: Exchange) -> JsonObject:
        """Run a tool of a server, or one of our own."""
        name, arguments = _asked(request.params)
        wish = ToolCall(name=name, arguments=arguments)
        if name in RESERVED:
            offer = await self._settled_offer(request)
            if any(tool["name"] == name for tool in offer.own_tools):
                return await self._own.answer(request, exchange, offer, wish)
        headers = request.headers if request.modern else None
        return await self.run(request, exchange, wish, intent=intent_of(request), headers=headers)

    async def _settled_offer(self, request: ClientRequest) -> Offer:
        await self._readiness.wait()
        self._router.servers.look_again()
        return await self._offers.prepared(request.endpoint, request.principal)

    async def run(
        self,
        request: ClientRequest,
        exchange: Exchange,
        wish: ToolCall,
        *,
        intent: str,
        headers: Mapping[str, str] | None = None,
    ) -> JsonObject:
        """Run a tool of a server. One that this caller may not see does not exist for them.

        `headers` must repeat the arguments that the tool wants repeated. There are none to compare
        without HTTP, nor of `call_tool`, whose own arguments they would be.
        """
        offer = await self._offers.prepared(request.endpoint, request.principal)
        context = replace(
            context_of(request, offer, intent),
            fallback=meta_of(request).get(FALLBACK) is not False,
            idempotency_key=idempotency_key_of(request),
        )
        card = offer.view.visible.by_exposed_name(wish.name)
        if card is None:
            offer = await self._settled_offer(request)
            found = resolve(wish, offer.view.visible)
            if isinstance(found, NotFound) and not found.ambiguous:
                await self._router.servers.look_now(timeout=LOOK_SECONDS)
                offer = await self._settled_offer(request)
                found = resolve(wish, offer.view.visible)
            if isinstance(found, NotFound):
                missed = await self._note_unknown(wish, context)
                if missed.error is ErrorKind.UNAVAILABLE:  # known and away: the model hears why
                    return await rendered(missed, None, modern=request.modern)
                raise UnknownTool(wish.name, found, offer.view.visible)
            card, wish = found.card, _resolved(found)
        else:
            wish = ToolCall(name=card.key, arguments=wish.arguments)
        if headers and (schema := self._offers.mirrored(card)) is not None:
            repair = self._router.settings.flags.argument_repair
            check_headers(card, schema, wish.arguments, headers, repair=repair)
        passage = passage_of(request, log_level=self._levels.of(request.session))
        outcome = await self._calls.call(request, exchange, wish, context, passage, server=card.server)
        if intent:
            self._router.learn(intent, outcome, context.conversation)
        card = self._card_of(outcome, card)
        budget = budget_for(card, context, self._router.settings.digest)
        result = await rendered(outcome, card, modern=request.modern, budget=budget)
        return await self._linked(request, card, result) if has_links(result.get("content")) else result

    async def _linked(self, request: ClientRequest, card: ToolCard, result: JsonObject) -> JsonObject:
        await self._readiness.wait_for_materials()
        try:
            shelf = self._shelves.of(request.endpoint, request.principal)
        except Refusal:  # their profile is gone meanwhile: they can follow no link, but what ran has a result
            return result
        return await linked_result(result, shelf.collection, card.server)

    def _card_of(self, outcome: Outcome, asked: ToolCard) -> ToolCard:
        """The tool that answered: the asked one, or a fallback."""
        return asked if outcome.tool == asked.key else self._router.tools.get(outcome.tool) or asked

    async def _note_unknown(self, wish: ToolCall, context: CallContext) -> Outcome:
        """Record that somebody tried to call what does not exist for them. Nothing can run by it."""
        probe = CallContext(
            call_id=context.call_id,
            conversation=context.conversation,
            caller=context.caller,
            profile=context.profile,
            scopes=context.scopes,
            dry_run=True,
        )
        return await self._router.calls.call(wish, probe)


def _asked(params: JsonObject) -> tuple[str, JsonObject]:
    name, arguments = params.get("name"), params.get("arguments")
    if not isinstance(name, str) or not name or len(name) > LONGEST_NAME:
        raise Refusal(INVALID_PARAMS, "tools/call needs the `name` of a tool; tools/list has them")
    if arguments is None:
        return name, _NO_ARGUMENTS
    if isinstance(arguments, dict):
        return name, arguments
    if not isinstance(arguments, Mapping):
        raise Refusal(INVALID_PARAMS, f"the `arguments` of {name[:80]!r} must be an object, by name")
    return name, cast("Mapping[str, Json]", arguments)


def _resolved(found: Resolved) -> ToolCall:
    return ToolCall(name=found.card.key, arguments=found.arguments)
