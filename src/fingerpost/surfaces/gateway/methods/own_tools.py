"""Our own tools: finding, describing and calling those of servers, and reading long results."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, Protocol, cast

from fingerpost.call import reread
from fingerpost.call.arguments.scalars import read_scalar
from fingerpost.call.names import ToolNotFound, resolve_tool
from fingerpost.catalog.absence import build_server_unavailable
from fingerpost.records import Json, JsonObject, Outcome, ServerState, ServerStatus, ToolCall
from fingerpost.router import Router
from fingerpost.surfaces.gateway.exchange import ClientExchange, ClientRequest
from fingerpost.surfaces.gateway.methods.context import ToolNotFoundError, build_call_context
from fingerpost.surfaces.gateway.methods.passage import MAX_INTENT_LENGTH
from fingerpost.surfaces.gateway.methods.rendering import render_result
from fingerpost.surfaces.gateway.offers import EndpointTools, own
from fingerpost.surfaces.gateway.offers.away import find_unavailable_servers
from fingerpost.surfaces.gateway.offers.describing import render_description
from fingerpost.surfaces.gateway.offers.finding import (
    build_empty_result,
    build_search_result,
    explain_no_tools,
    explain_unavailable,
    format_one_line,
)

DEFAULT_LIMIT: Final = 8
MAX_QUERY_LENGTH: Final = 8000
MAX_ARGUMENTS_LENGTH: Final = 1024 * 1024
_MAX_SERVERS_NAMED: Final = 20
_MAX_REASON_LENGTH: Final = 200
_OWN_TOOL_NAMES: Final = frozenset((own.FIND_TOOLS_NAME, own.DESCRIBE_TOOL_NAME, own.READ_RESULT_NAME))


class ToolRunner(Protocol):
    """Runs a tool of a server."""

    async def run_tool(
        self, request: ClientRequest, exchange: ClientExchange, tool_call: ToolCall, *, intent: str
    ) -> JsonObject: ...


class OwnTools:
    """Answers calls of the gateway's own tools. What goes wrong is a result the model can act on."""

    def __init__(self, router: Router, runner: ToolRunner) -> None:
        self._router = router
        self._running = runner
        self._settings = router.settings

    async def answer(
        self,
        request: ClientRequest,
        exchange: ClientExchange,
        endpoint_tools: EndpointTools,
        tool_call: ToolCall,
    ) -> JsonObject:
        if tool_call.name == own.FIND_TOOLS_NAME:
            return await self._find_tools(request, endpoint_tools, tool_call.arguments)
        if tool_call.name == own.DESCRIBE_TOOL_NAME:
            return self._describe_tool(request, endpoint_tools, tool_call.arguments)
        if tool_call.name == own.READ_RESULT_NAME:
            return await self._read_result(request, endpoint_tools, tool_call)
        return await self._call_tool(request, exchange, endpoint_tools, tool_call.arguments)

    # -- find_tools ---------------------------------------------------------------------------------

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
            return build_empty_result(_explain_unavailable(away[server]), budget=budget)
        waiting = [name for name, status in away.items() if status.state is not ServerState.DISABLED]
        if not servers:
            return build_empty_result(
                explain_no_tools(explain_unavailable(waiting, budget=budget)), budget=budget
            )
        if server is not None and server not in servers:
            return build_empty_result(
                _explain_unknown_server(server, servers, explain_unavailable(waiting, budget=budget)),
                budget=budget,
            )
        limit = _parse_limit(arguments.get("limit"))
        # A session of a client is no conversation of a person: each request is looked at by itself.
        narrowing = await self._router.narrow(
            text[:MAX_QUERY_LENGTH],
            asked_for_tools=True,
            caller=request.principal.name,
            profile=endpoint_tools.config.profile,
            scopes=endpoint_tools.scopes,
            server=cast("str | None", server),
            max_tools=limit,
        )
        meant = waiting if server is None else [name for name in waiting if name == server]
        return build_search_result(
            narrowing, endpoint_tools.view.visible, limit=limit, budget=budget, unavailable=meant
        )

    # -- describe_tool ------------------------------------------------------------------------------

    def _describe_tool(
        self, request: ClientRequest, endpoint_tools: EndpointTools, arguments: JsonObject
    ) -> JsonObject:
        name = arguments.get("name")
        if not isinstance(name, str) or not name:
            return _build_error_result("describe_tool needs `name`: one that find_tools answered with.")
        wish = ToolCall(name=name, arguments={})
        seen = resolve_tool(wish, endpoint_tools.view.visible)
        if isinstance(seen, ToolNotFound):
            if not seen.ambiguous and (
                away := self._router.calls.find_absence(wish, build_call_context(request, endpoint_tools))
            ):
                return _build_error_result(f"{away.message}. {away.fix}")
            unknown = ToolNotFoundError(name, seen, endpoint_tools.view.visible)
            return _build_error_result(f"{unknown.message}. find_tools finds the right name.")
        budget = max(self._settings.gateway.find_tokens, self._settings.digest.max_tokens)
        return _build_text_result(render_description(seen.card, budget=budget))

    # -- call_tool ----------------------------------------------------------------------------------

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
        wish = ToolCall(name=name, arguments=inner)
        if name in _OWN_TOOL_NAMES:
            return await self.answer(request, exchange, endpoint_tools, wish)
        try:
            return await self._running.run_tool(
                request, exchange, wish, intent=intent[:MAX_INTENT_LENGTH] if isinstance(intent, str) else ""
            )
        except ToolNotFoundError as unknown:
            return _build_error_result(f"{unknown.message}. find_tools finds the right name.")

    # -- read_result --------------------------------------------------------------------------------

    async def _read_result(
        self, request: ClientRequest, endpoint_tools: EndpointTools, tool_call: ToolCall
    ) -> JsonObject:
        context = build_call_context(request, endpoint_tools)
        if self._router.tools.find(own.READ_RESULT_NAME) is None:
            outcome = await self._router.calls.call(tool_call, context)
        else:  # some server has a tool of this name, and means something else
            outcome = await reread.run_read_result(self._router.calls.results, tool_call, context)
        result = await render_result(outcome, None, modern=request.modern)
        return {**result, "content": [*_get_content(result), *_build_read_hints(outcome, tool_call)]}


def _get_content(result: JsonObject) -> list[Json]:
    content = result.get("content")
    return [*content] if isinstance(content, list | tuple) else []


def _build_read_hints(outcome: Outcome, tool_call: ToolCall) -> list[JsonObject]:
    """How to read on, where there is more."""
    page, pages = outcome.metadata.get("page"), outcome.metadata.get("pages")
    if not isinstance(page, int) or not isinstance(pages, int) or page >= pages:
        return []
    handle = json.dumps(str(tool_call.arguments.get("handle")))
    return [
        _build_text_block(
            f"[Page {page} of {pages}. Next: {own.READ_RESULT_NAME}(handle={handle}, page={page + 1})]"
        )
    ]


def _parse_limit(given: Json) -> int:
    if (reading := read_scalar("integer", given)) is not None:  # many models write it as text
        given = reading.value
    if not isinstance(given, int) or isinstance(given, bool):
        return DEFAULT_LIMIT
    return min(max(given, 1), own.MAX_FOUND)


def _explain_unavailable(status: ServerStatus) -> str:
    """Why nothing can be found on this server, in the words a call of one of its tools would get."""
    away = build_server_unavailable("", status)
    assert away is not None
    return f"The {format_one_line(away.reason.removeprefix('its '), _MAX_REASON_LENGTH)}. {away.fix}"


def _explain_unknown_server(server: Json, servers: list[str], unavailable_note: str) -> str:
    more = f" and {len(servers) - _MAX_SERVERS_NAMED} more" if len(servers) > _MAX_SERVERS_NAMED else ""
    named = ", ".join(format_one_line(name, 40) for name in servers[:_MAX_SERVERS_NAMED])
    return (
        f"There is no server {format_one_line(str(server), 40)!r} here. "
        f"{unavailable_note}{' ' if unavailable_note else ''}"
        f"There are: {named}{more}. Leave `server` out to look at all of them."
    )


def _parse_inner_arguments(arguments: Json) -> JsonObject | None:
    """The arguments for the tool; many models write them as a text."""
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


def _build_text_result(text: str) -> JsonObject:
    return {"content": [_build_text_block(text)]}


def _build_error_result(text: str) -> JsonObject:
    return {"content": [_build_text_block(text)], "isError": True}
