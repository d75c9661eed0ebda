"""Tools: find them, see all that is known of one and where from, switch one off and on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, Final, cast

import anyio.to_thread
from pydantic import Field

from fingerpost.catalog import build_tool_key
from fingerpost.frozen import frozen
from fingerpost.records import (
    Effect,
    Instructions,
    Json,
    JsonObject,
    Known,
    Pin,
    Principal,
    Right,
    Source,
    ToolCard,
    UsageProfile,
)
from fingerpost.records.codec import to_plain
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import ApiOperation, ApiProblem, ApiRequest
from fingerpost.surfaces.api.resources.bounds import build_managed_scope
from fingerpost.surfaces.api.resources.changes import DefinitionChange, build_change
from fingerpost.surfaces.api.resources.inventory import ToolInventory, ToolLine, ToolState, build_inventory
from fingerpost.surfaces.api.resources.words import (
    NameText,
    PageCursor,
    PageLimit,
    ReasonText,
    SearchText,
    contains_all,
    split_page,
)

TOOLS_TAG: Final = "tools"


@frozen
class ToolQuery:
    """Which tools are wanted. Empty parts set no bound."""

    text: SearchText = ""
    server: NameText | None = None
    effect: Effect | None = None
    state: ToolState | None = None
    profile: Annotated[
        str | None, Field(max_length=200, description="As seen through this profile's rules")
    ] = None
    limit: PageLimit = 100
    before: PageCursor | None = None


@frozen
class ToolPage:
    """By key."""

    items: tuple[ToolLine, ...]
    next: str | None = None


@frozen
class KnownField:
    """One piece of knowledge: `latency.typical`, what it is, and who says so."""

    field: str
    value: Json
    source: Source
    reason: str = ""


@frozen
class ToolFacts:
    """Who a tool is."""

    key: str
    server: str
    name: str
    exposed_name: str
    description: str
    fingerprint: str
    definition: JsonObject  # exactly as the server sent it
    instructions: Instructions


@frozen
class ToolDetail(ToolLine):
    """A tool with everything known of it."""

    card: ToolFacts
    intelligence: tuple[KnownField, ...]
    schema: JsonObject  # of its arguments
    usage: UsageProfile | None  # None: never called
    pin: Pin | None  # the definition that is trusted
    change: DefinitionChange | None  # None: its definition is the pinned one


@frozen
class Switch:
    """Off or on, and why."""

    on: bool
    reason: ReasonText = ""


@frozen
class ReadingWord:
    """A person's word on one definition of a tool."""

    fingerprint: str  # of the definition that was shown
    only_reads: bool = True  # false: it is judged by its own words again


def build_tool_operations(router: Router) -> tuple[ApiOperation, ...]:
    tools = ToolOperations(router)
    return (
        ApiOperation(
            method="GET",
            path="/api/tools",
            name="list_tools",
            summary="Tools, offered or not, with the reason",
            right=Right.WATCH,
            answer=tools.list_tools,
            query=ToolQuery,
            returns=ToolPage,
            problems=(404,),
            tag=TOOLS_TAG,
        ),
        ApiOperation(
            method="GET",
            path="/api/tools/{server}/{tool}",
            name="get_tool",
            summary="Everything known of one tool, and where each value comes from",
            right=Right.WATCH,
            answer=tools.get_tool,
            returns=ToolDetail,
            problems=(404,),
            tag=TOOLS_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/tools/{server}/{tool}/switch",
            name="switch_tool",
            summary="Switch a tool off or on, on every surface",
            right=Right.MANAGE,
            answer=tools.set_enabled,
            body=Switch,
            returns=ToolLine,
            problems=(404, 409),
            tag=TOOLS_TAG,
        ),
        ApiOperation(
            method="POST",
            path="/api/tools/{server}/{tool}/reads",
            name="say_tool_reads",
            summary="Say that this definition of a tool only reads, or take it back",
            right=Right.MANAGE,
            answer=tools.set_read_only,
            body=ReadingWord,
            returns=ToolLine,
            problems=(404, 409),
            tag=TOOLS_TAG,
        ),
    )


class ToolOperations:
    """The catalog, for people."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_tools(self, request: ApiRequest) -> ToolPage:
        query: ToolQuery = request.query
        if query.profile is not None and not self._may_view_profile(query.profile, request.principal):
            raise ApiProblem(
                404, "There is no such profile", f"The settings have no profile {query.profile!r}."
            )
        inventory = await build_inventory(self._router, request.principal, query.profile)

        def find() -> ToolPage:
            found = [line for line in inventory.list_lines() if _matches_query(query, line)]
            page, last = split_page(found, query.limit)
            return ToolPage(items=page, next=None if last is None else last.key)

        return await anyio.to_thread.run_sync(find)

    async def get_tool(self, request: ApiRequest) -> ToolDetail:
        inventory = await build_inventory(self._router, request.principal)
        card = self._find_card(inventory, request)
        pins = await self._router.store.pins.list_all()
        held = inventory.quarantined.get(card.key)
        pin = pins.get(card.key) or (None if held is None else held.pin)
        return await anyio.to_thread.run_sync(_build_detail, inventory, card, pin)

    async def set_enabled(self, request: ApiRequest) -> ToolLine:
        wanted: Switch = request.body
        card = self._find_card(await build_inventory(self._router, request.principal), request)
        await self._router.shutters.set_tool_enabled(
            card.key, enabled=wanted.on, by=request.principal.name, reason=wanted.reason
        )
        return await self._get_line(request.principal, card)

    async def set_read_only(self, request: ApiRequest) -> ToolLine:
        word: ReadingWord = request.body
        card = self._find_card(await build_inventory(self._router, request.principal), request)
        if word.fingerprint != card.fingerprint:
            detail = f"{card.key} is not what it was when it was shown. Look at it as it is now."
            raise ApiProblem(409, "The definition changed", detail, fingerprint=card.fingerprint)
        await self._router.say_only_reads(
            card.key, by=request.principal.name, fingerprint=card.fingerprint, only_reads=word.only_reads
        )
        return await self._get_line(request.principal, card)

    def _may_view_profile(self, profile: str, principal: Principal) -> bool:
        """A key for certain profiles looks through these alone."""
        profiles = self._router.profiles
        return profile in profiles and bool(
            build_managed_scope(principal, profiles).for_profile(profile).access_scopes
        )

    async def _get_line(self, principal: Principal, card: ToolCard) -> ToolLine:
        inventory = await build_inventory(self._router, principal)
        return inventory.build_line(inventory.cards.get(card.key, card))

    def _find_card(self, inventory: ToolInventory, request: ApiRequest) -> ToolCard:
        server, tool = request.path["server"], request.path["tool"]
        for key in (f"{server}/{tool}", build_tool_key(server, tool)):
            if (card := inventory.cards.get(key)) is not None:
                return card
        key = build_tool_key(server, tool)
        if any(line.key == key for line in inventory.list_lines()):
            title = "The tool is switched off in the settings"
            status = (
                409 if request.body is not None else 404
            )  # it cannot be switched; there is nothing to see
            raise ApiProblem(status, title, "Nothing is known of it until the settings switch it on again.")
        near = [near for near in self._router.tools.near(key) if near in inventory.cards]
        raise ApiProblem(404, "There is no such tool", f"No server offers {key}.", near=near)


def _matches_query(query: ToolQuery, line: ToolLine) -> bool:
    words = query.text.casefold().split()
    return (
        (query.before is None or line.key > query.before)
        and query.server in (None, line.server)
        and query.effect in (None, line.effect)
        and query.state in (None, line.state)
        and (not words or contains_all(words, f"{line.key} {line.title} {line.description}"))
    )


def _build_detail(inventory: ToolInventory, card: ToolCard, pin: Pin | None) -> ToolDetail:
    line = inventory.build_line(card)
    held = inventory.quarantined.get(card.key)
    schema = card.definition.get("inputSchema")
    return ToolDetail(
        **{field.name: getattr(line, field.name) for field in fields(line)},
        card=ToolFacts(
            key=card.key,
            server=card.server,
            name=card.name,
            exposed_name=card.exposed_name,
            description=card.description,
            fingerprint=card.fingerprint,
            definition=card.definition,
            instructions=card.instructions,
        ),
        intelligence=tuple(_iterate_known_fields(card)),
        schema=schema if isinstance(schema, dict) else {},
        usage=inventory.usage.get(card.key),
        pin=pin,
        change=None if held is None else build_change(held),
    )


def _iterate_known_fields(card: ToolCard) -> Iterator[KnownField]:
    """Every value with a source, by where it stands in the record."""
    yield _build_field("effect", card.effect)
    yield _build_field("effect_certain", Known(card.certain, card.effect.source, card.doubt))
    yield from _iterate_fields("", card.intelligence)
    yield from _iterate_fields("retry.", card.retry)
    yield _build_field("cache_seconds", card.cache_seconds)


def _iterate_fields(path: str, record: Any) -> Iterator[KnownField]:
    for part in fields(record):
        value: Any = getattr(record, part.name)
        if isinstance(value, Known):
            yield _build_field(path + part.name, cast("Known[Any]", value))
        elif is_dataclass(value):
            yield from _iterate_fields(f"{path}{part.name}.", value)
        else:
            why = "read off its schema"
            yield KnownField(
                field=path + part.name, value=to_plain(value), source=Source.INFERRED, reason=why
            )


def _build_field(name: str, known: Known[Any]) -> KnownField:
    value: Json = to_plain(known.value)
    return KnownField(field=name, value=value, source=known.source, reason=known.reason)
