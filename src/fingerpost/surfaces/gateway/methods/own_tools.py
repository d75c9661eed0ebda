"""Our own tools: finding, describing and calling those of servers, and reading long results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol, cast

from fingerpost.call import reread
from fingerpost.call.arguments.scalars import read_as
from fingerpost.call.names import NotFound, resolve
from fingerpost.catalog.absence import server_away
from fingerpost.records import Json, JsonObject, Outcome, ServerState, ServerStatus, ToolCall
from fingerpost.router import Router
from fingerpost.surfaces.gateway.exchange import ClientRequest, Exchange
from fingerpost.surfaces.gateway.methods.context import UnknownTool, context_of
from fingerpost.surfaces.gateway.methods.passage import LONGEST_INTENT
from fingerpost.surfaces.gateway.methods.rendering import rendered
from fingerpost.surfaces.gateway.offers import Offer, own
from fingerpost.surfaces.gateway.offers.away import servers_away
from fingerpost.surfaces.gateway.offers.describing import described
from fingerpost.surfaces.gateway.offers.finding import found, later, no_tools, nothing, one_line

USUAL_LIMIT: Final = 8
LONGEST_REQUEST: Final = 8000
LONGEST_ARGUMENTS: Final = 1024 * 1024
_NAMED: Final = 20
_LONGEST_REASON: Final = 200
_OWN: Final = frozenset((own.FIND, own.DESCRIBE, own.READ))


class Running(Protocol):
    """Runs a tool of a server."""

    async def run(
        self, request: ClientRequest, exchange: Exchange, wish: ToolCall, *, intent: str
    ) -> JsonObject: ...


class OwnTools:
    """Answers calls of the gateway's own tools. What goes wrong is a result the model can act on."""

    def __init__(self, router: Router, running: Running) -> None:
        self._router = router
        self._running = running
        self._settings = router.settings

    async def answer(
        self, request: ClientRequest, exchange: Exchange, offer: Offer, wish: ToolCall
    ) -> JsonObject:
        if wish.name == own.FIND:
            return await self._find(request, offer, wish.arguments)
        if wish.name == own.DESCRIBE:
            return self._describe(request, offer, wish.arguments)
        if wish.name == own.READ:
            return await self._read(request, offer, wish)
        return await self._call(request, exchange, offer, wish.arguments)

    # -- find_tools ---------------------------------------------------------------------------------

    async def _find(self, request: ClientRequest, offer: Offer, arguments: JsonObject) -> JsonObject:
        text, server = arguments.get("request"), arguments.get("server")
        if not isinstance(text, str) or not text.strip():
            return _wrong("find_tools needs `request`: what is to be done, in plain words.")
        budget = self._settings.gateway.find_tokens
        servers = sorted({card.server for card in offer.view.visible.cards})
        away = servers_away(self._router, offer, request.principal.name)
        if isinstance(server, str) and server in away and server not in servers:
            return nothing(_not_up(away[server]), budget=budget)
        waiting = [name for name, status in away.items() if status.state is not ServerState.DISABLED]
        if not servers:
            return nothing(no_tools(later(waiting, budget=budget)), budget=budget)
        if server is not None and server not in servers:
            return nothing(_no_server(server, servers, later(waiting, budget=budget)), budget=budget)
        limit = _limit(arguments.get("limit"))
        # A session of a client is no conversation of a person: each request is looked at by itself.
        narrowing = await self._router.narrow(
            text[:LONGEST_REQUEST],
            asked_for_tools=True,
            caller=request.principal.name,
            profile=offer.place.profile,
            scopes=offer.scopes,
            server=cast("str | None", server),
            max_tools=limit,
        )
        meant = waiting if server is None else [name for name in waiting if name == server]
        return found(narrowing, offer.view.visible, limit=limit, budget=budget, away=meant)

    # -- describe_tool ------------------------------------------------------------------------------

    def _describe(self, request: ClientRequest, offer: Offer, arguments: JsonObject) -> JsonObject:
        name = arguments.get("name")
        if not isinstance(name, str) or not name:
            return _wrong("describe_tool needs `name`: one that find_tools answered with.")
        wish = ToolCall(name=name, arguments={})
        seen = resolve(wish, offer.view.visible)
        if isinstance(seen, NotFound):
            if not seen.ambiguous and (away := self._router.calls.away(wish, context_of(request, offer))):
                return _wrong(f"{away.told}. {away.fix}")
            unknown = UnknownTool(name, seen, offer.view.visible)
            return _wrong(f"{unknown.message}. find_tools finds the right name.")
        budget = max(self._settings.gateway.find_tokens, self._settings.digest.max_tokens)
        return _said(described(seen.card, budget=budget))

    # -- call_tool ----------------------------------------------------------------------------------

    async def _call(
        self, request: ClientRequest, exchange: Exchange, offer: Offer, arguments: JsonObject
    ) -> JsonObject:
        name, intent = arguments.get("name"), arguments.get("intent")
        if not isinstance(name, str) or not name:
            return _wrong("call_tool needs `name`: one that find_tools answered with.")
        inner = _inner(arguments.get("arguments"))
        if inner is None:
            return _wrong(f"the `arguments` of {name[:80]} must be an object, by parameter name.")
        wish = ToolCall(name=name, arguments=inner)
        if name in _OWN:
            return await self.answer(request, exchange, offer, wish)
        try:
            return await self._running.run(
                request, exchange, wish, intent=intent[:LONGEST_INTENT] if isinstance(intent, str) else ""
            )
        except UnknownTool as unknown:
            return _wrong(f"{unknown.message}. find_tools finds the right name.")

    # -- read_result --------------------------------------------------------------------------------

    async def _read(self, request: ClientRequest, offer: Offer, wish: ToolCall) -> JsonObject:
        context = context_of(request, offer)
        if self._router.tools.find(own.READ) is None:
            outcome = await self._router.calls.call(wish, context)
        else:  # some server has a tool of this name, and means something else
            outcome = await reread.read_result(self._router.calls.results, wish, context)
        result = await rendered(outcome, None, modern=request.modern)
        return {**result, "content": [*_content(result), *_onward(outcome, wish)]}


def _content(result: JsonObject) -> list[Json]:
    content = result.get("content")
    return [*content] if isinstance(content, list | tuple) else []


def _onward(outcome: Outcome, wish: ToolCall) -> list[JsonObject]:
    """How to read on, where there is more."""
    page, pages = outcome.metadata.get("page"), outcome.metadata.get("pages")
    if not isinstance(page, int) or not isinstance(pages, int) or page >= pages:
        return []
    handle = json.dumps(str(wish.arguments.get("handle")))
    return [_text(f"[Page {page} of {pages}. Next: {own.READ}(handle={handle}, page={page + 1})]")]


def _limit(given: Json) -> int:
    if (reading := read_as("integer", given)) is not None:  # many models write it as text
        given = reading.value
    if not isinstance(given, int) or isinstance(given, bool):
        return USUAL_LIMIT
    return min(max(given, 1), own.MOST_FOUND)


def _not_up(status: ServerStatus) -> str:
    """Why nothing can be found on this server, in the words a call of one of its tools would get."""
    away = server_away("", status)
    assert away is not None
    return f"The {one_line(away.reason.removeprefix('its '), _LONGEST_REASON)}. {away.fix}"


def _no_server(server: Json, servers: list[str], hope: str) -> str:
    more = f" and {len(servers) - _NAMED} more" if len(servers) > _NAMED else ""
    named = ", ".join(one_line(name, 40) for name in servers[:_NAMED])
    return (
        f"There is no server {one_line(str(server), 40)!r} here. {hope}{' ' if hope else ''}"
        f"There are: {named}{more}. Leave `server` out to look at all of them."
    )


def _inner(arguments: Json) -> JsonObject | None:
    """The arguments for the tool; many models write them as a text."""
    if arguments is None:
        return {}
    if isinstance(arguments, str) and len(arguments) <= LONGEST_ARGUMENTS:
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return cast("JsonObject", arguments) if isinstance(arguments, Mapping) else None


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _said(text: str) -> JsonObject:
    return {"content": [_text(text)]}


def _wrong(text: str) -> JsonObject:
    return {"content": [_text(text)], "isError": True}
