"""Tools: search, details, changes of definitions, enabling and disabling; and the assets that tools made."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from difflib import unified_diff
from typing import Annotated, Any, Final, Literal, cast

import anyio.to_thread
from pydantic import Field

from fingerpost.call.digest.results import (
    DEFAULT_MEDIA_TYPE,
    MEDIA_TYPES,
    Asset,
    build_file_stem,
    fetch_asset,
)
from fingerpost.call.execution import BreakerState
from fingerpost.catalog import build_tool_key, find_differences
from fingerpost.catalog.pins import extract_fingerprinted
from fingerpost.catalog.tool_names import escape_invisible_except, escape_invisible_json
from fingerpost.catalog.unavailable import build_suspicious
from fingerpost.frozen import copy_fields, frozen
from fingerpost.records import (
    ChangedInstructions,
    DataLabel,
    DefinitionFinding,
    DroppedTool,
    Effect,
    HiddenTool,
    Instructions,
    Json,
    JsonObject,
    Known,
    Pin,
    Principal,
    Quarantined,
    Right,
    ServerState,
    Source,
    ToolCard,
    UsageProfile,
)
from fingerpost.records.codec import to_plain
from fingerpost.router import Router
from fingerpost.surfaces.api.operation import (
    ApiProblem,
    ApiRequest,
    ApiResponse,
    NameText,
    OperationGroup,
    PageCursor,
    PageLimit,
    ReasonText,
    SearchText,
    declare_operation,
    split_page,
)
from fingerpost.surfaces.api.visibility import ManagedScope, get_visible_caller
from fingerpost.surfaces.http.asgi import Header

_MAX_DIFF_LINES: Final = 2_000  # longer texts take too long to compare


@frozen
class DefinitionChange:
    """The old and the new definition of a tool, reduced to the fields that matter for review, and their
    difference.

    Lines of `diff` begin with `-`, `+`, a space, or `@@`. Invisible characters are written as JSON escapes.
    The difference is complete.
    """

    before: JsonObject
    after: JsonObject
    diff: tuple[str, ...]
    pinned: str  # the trusted fingerprint
    seen: str  # the fingerprint to accept

    @classmethod
    def from_entry(cls, entry: Quarantined) -> DefinitionChange:
        """Build the comparison of two definitions. Slow for long ones: run it in a thread."""
        before, after = entry.pin.definition, entry.card.definition
        return cls(
            before=extract_fingerprinted(before),
            after=extract_fingerprinted(after),
            diff=diff_definitions(before, after),
            pinned=entry.pin.fingerprint,
            seen=entry.card.fingerprint,
        )


@frozen
class InstructionsChange:
    """The old and the new instructions of a server. Lines of `diff` have the same format as for
    definitions.
    """

    before: str
    after: str
    diff: tuple[str, ...]
    seen: str  # the fingerprint to accept

    @classmethod
    def from_entry(cls, changed: ChangedInstructions) -> InstructionsChange:
        diff = diff_texts(changed.before, changed.after)
        return copy_fields(cls, changed, diff=diff, seen=changed.fingerprint)


def diff_definitions(before: JsonObject, after: JsonObject) -> tuple[str, ...]:
    """Return the difference line by line, or by path if the definitions are very long."""
    old, new = _format_lines(before), _format_lines(after)
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return tuple(_diff_by_path(before, after))
    return tuple(unified_diff(old, new, "pinned", "now", n=3, lineterm=""))[2:]


def diff_texts(before: str, after: str) -> tuple[str, ...]:
    """Return the difference of two texts line by line. Very long texts are returned one after the other."""
    old, new = (
        [escape_invisible_except(line, keep="\t") for line in text.split("\n")] for text in (before, after)
    )
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return () if old == new else (*(f"-{line}" for line in old), *(f"+{line}" for line in new))
    return tuple(unified_diff(old, new, "pinned", "now", n=3, lineterm=""))[2:]


def _format_lines(definition: JsonObject) -> list[str]:
    text = json.dumps(
        extract_fingerprinted(definition), ensure_ascii=False, indent=2, sort_keys=True, default=dict
    )
    return [escape_invisible_json(line) for line in text.split("\n")]


def _diff_by_path(before: JsonObject, after: JsonObject) -> Iterator[str]:
    for change in find_differences(before, after):
        yield f"@@ {change.path} @@"
        if change.before is not None:
            yield f"-{change.before}"
        if change.after is not None:
            yield f"+{change.after}"


ToolState = Literal["offered", "hidden", "quarantined", "off", "server_down"]
_USAGE_FIELDS: Final = ("calls", "failures", "typical_ms", "typical_tokens", "last_used")


@frozen
class ToolLine:
    """One tool. `state` is its state for the caller; `reason` is why it is not offered."""

    key: str
    name: str  # the server's name for it
    server: str
    exposed_name: str = ""  # the name that models see
    title: str = ""
    description: str = ""
    effect: Effect | None = None  # None: disabled in the settings, so not classified
    effect_source: Source | None = None
    effect_doubt: str = ""  # why it may not be read-only; calls then need an approval
    state: ToolState
    reason: str = ""
    calls: int = 0
    failures: int = 0
    typical_ms: float | None = None  # None: never called
    typical_tokens: int | None = None
    last_used: datetime | None = None


@frozen
class ToolInventory:
    """All tools that one caller may know."""

    cards: Mapping[str, ToolCard]  # sorted by key
    disabled_reasons: Mapping[str, str]
    quarantined: Mapping[str, Quarantined]
    hidden: Mapping[str, HiddenTool]
    down_reasons: Mapping[str, str]  # reasons by server
    dropped: tuple[DroppedTool, ...]  # disabled in the settings
    usage: Mapping[str, UsageProfile]

    def list_lines(self) -> Iterator[ToolLine]:
        """Yield every tool, sorted by key."""
        lines = [
            *(self.build_line(card) for card in self.cards.values()),
            *(
                copy_fields(ToolLine, drop, key=key, state="off")
                for drop in self.dropped
                if (key := _get_dropped_key(drop)) not in self.cards
            ),
        ]
        yield from sorted(lines, key=lambda line: line.key)

    def build_line(self, card: ToolCard) -> ToolLine:
        state, reason = self._get_state(card)
        used = self.usage.get(card.key)
        return copy_fields(
            ToolLine,
            card,
            title=get_title(card.definition, ""),
            effect=card.effect.value,
            effect_source=card.effect.source,
            effect_doubt=card.doubt,
            state=state,
            reason=reason,
            **{name: getattr(used, name) for name in _USAGE_FIELDS if used is not None},
        )

    def _get_state(self, card: ToolCard) -> tuple[ToolState, str]:
        """Return the state and its reason. Manual changes come before rules, rules before server failures."""
        if (reason := self.disabled_reasons.get(card.key)) is not None:
            return "off", reason
        if (held := self.quarantined.get(card.key)) is not None:
            if held.card.suspicious:
                return "quarantined", build_suspicious(held).reason
            what = "it is new on a server seen" if held.new else "its definition changed since it was pinned"
            return "quarantined", f"{what} on {held.pin.pinned_at:%Y-%m-%d}"
        if (hidden := self.hidden.get(card.key)) is not None:
            return "hidden", f"{hidden.reason} ({hidden.rule})" if hidden.reason else hidden.rule
        if (reason := self.down_reasons.get(card.server)) is not None:
            return "server_down", f"{card.server}: {reason}"
        return "offered", ""


async def build_inventory(router: Router, principal: Principal, profile: str | None = None) -> ToolInventory:
    """Return the current tools for this caller, optionally limited to a profile."""
    bounds = ManagedScope.from_principal(principal, router.profiles)
    hidden = await _find_hidden(router, principal, bounds if profile is None else bounds.for_profile(profile))
    usage = await router.store.usage.get_profiles()
    catalog = router.catalog
    quarantined = {entry.card.key: entry for entry in catalog.quarantined}
    disabled = catalog.disabled.cards
    every = {
        card.key: card
        for card in (*router.tools.cards, *(entry.card for entry in quarantined.values()), *disabled)
        if bounds.covers_tool(card.key, card.server)
    }
    return ToolInventory(
        cards=every,
        disabled_reasons={card.key: catalog.get_disabled_reason(card) or "" for card in disabled},
        quarantined=quarantined,
        hidden=hidden,
        down_reasons=find_unusable_servers(router),
        dropped=tuple(
            drop
            for drop in catalog.dropped
            if drop.switched_off and bounds.covers_tool(_get_dropped_key(drop), drop.server)
        ),
        usage=usage,
    )


async def _find_hidden(
    router: Router, principal: Principal, bounds: ManagedScope
) -> Mapping[str, HiddenTool]:
    """Return the tools that are hidden under every profile of the caller."""
    views = [
        await router.look(caller=principal.name, profile=access_scope.profile, scopes=access_scope.scopes)
        for access_scope in bounds.access_scopes
    ]
    if not views:
        return {}
    first, *others = views
    return {key: tool for key, tool in first.hidden.items() if all(key in view.hidden for view in others)}


def find_unusable_servers(router: Router) -> dict[str, str]:
    """Return servers whose tools cannot be called now, each with the reason."""
    reasons = {
        status.name: status.reason or "it is down"
        for status in router.servers.statuses
        if status.state is ServerState.DOWN
    }
    for server, breaker in router.calls.runner.breakers.items():
        if breaker.state is BreakerState.OPEN:
            reasons.setdefault(server, f"it failed too often: {breaker.reason}")
    return reasons


def get_title(definition: JsonObject, name: str) -> str:
    """Return the tool's title, else its name."""
    annotations = definition.get("annotations")
    inner = annotations.get("title") if isinstance(annotations, dict) else None
    title = definition.get("title") or inner
    return title if isinstance(title, str) and title.strip() else name


def _get_dropped_key(drop: DroppedTool) -> str:
    return build_tool_key(drop.server, "") + drop.name  # the name is already escaped


_ONE_PATH: Final = "/api/tools/{server}/{tool}"


@frozen
class ToolQuery:
    """Filter and page of tools. Empty fields do not filter."""

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
    """One page of tools, sorted by key."""

    items: tuple[ToolLine, ...]
    next: str | None = None


@frozen
class KnownField:
    """One property of a tool, such as `latency.typical`, with its value and source."""

    field: str
    value: Json
    source: Source
    reason: str = ""


@frozen
class ToolFacts:
    """Identity, description and definition of a tool."""

    key: str
    server: str
    name: str
    exposed_name: str
    description: str
    fingerprint: str
    definition: JsonObject  # unchanged from the server
    instructions: Instructions
    findings: tuple[DefinitionFinding, ...]  # what the scan found in the definition


@frozen
class ToolDetail(ToolLine):
    """A tool with all its properties."""

    card: ToolFacts
    intelligence: tuple[KnownField, ...]
    schema: JsonObject  # of the arguments
    usage: UsageProfile | None  # None: never called
    pin: Pin | None  # the trusted definition
    change: DefinitionChange | None  # None: the definition is the pinned one


@frozen
class SwitchBody:
    """Enable or disable a tool or server, with a reason."""

    on: bool
    reason: ReasonText = ""


@frozen
class ReadOnlyBody:
    """A person's statement that one definition of a tool is read-only."""

    fingerprint: str  # of the reviewed definition
    only_reads: bool = True  # False: classify it by its definition again


class ToolOperations(OperationGroup):
    """The operations about the catalog."""

    tag = "tools"

    @declare_operation("GET", "/api/tools", right=Right.WATCH, problems=(404,))
    async def list_tools(self, request: ApiRequest, query: ToolQuery) -> ToolPage:
        """Tools, offered or not, with the reason."""
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

    @declare_operation("GET", _ONE_PATH, right=Right.WATCH, problems=(404,))
    async def get_tool(self, request: ApiRequest, server: str, tool: str) -> ToolDetail:
        """Everything known about one tool, with the source of each value."""
        inventory = await build_inventory(self._router, request.principal)
        card = self._find_card(inventory, server, tool)
        pins = await self._router.store.pins.list_all()
        held = inventory.quarantined.get(card.key)
        pin = pins.get(card.key) or (None if held is None else held.pin)
        return await anyio.to_thread.run_sync(_build_detail, inventory, card, pin)

    @declare_operation("POST", f"{_ONE_PATH}/switch", right=Right.MANAGE, problems=(404, 409))
    async def switch_tool(self, request: ApiRequest, server: str, tool: str, body: SwitchBody) -> ToolLine:
        """Switch a tool off or on, on every surface."""
        inventory = await build_inventory(self._router, request.principal)
        card = self._find_card(inventory, server, tool, to_change=True)
        await self._router.disabled_tools.set_tool_enabled(
            card.key, enabled=body.on, by=request.principal.name, reason=body.reason
        )
        return await self._get_line(request.principal, card)

    @declare_operation("POST", f"{_ONE_PATH}/reads", right=Right.MANAGE, problems=(404, 409))
    async def say_tool_reads(
        self, request: ApiRequest, server: str, tool: str, body: ReadOnlyBody
    ) -> ToolLine:
        """Mark this definition of a tool as read-only, or undo it."""
        inventory = await build_inventory(self._router, request.principal)
        card = self._find_card(inventory, server, tool, to_change=True)
        if body.fingerprint != card.fingerprint:
            detail = f"{card.key} has changed since it was shown. Review it again."
            raise ApiProblem(409, "The definition changed", detail, fingerprint=card.fingerprint)
        await self._router.say_only_reads(
            card.key, by=request.principal.name, fingerprint=card.fingerprint, only_reads=body.only_reads
        )
        return await self._get_line(request.principal, card)

    def _may_view_profile(self, profile: str, principal: Principal) -> bool:
        """Return whether the caller may view this profile. A key for certain profiles may view only those."""
        profiles = self._router.profiles
        return profile in profiles and bool(
            ManagedScope.from_principal(principal, profiles).for_profile(profile).access_scopes
        )

    async def _get_line(self, principal: Principal, card: ToolCard) -> ToolLine:
        inventory = await build_inventory(self._router, principal)
        return inventory.build_line(inventory.cards.get(card.key, card))

    def _find_card(
        self, inventory: ToolInventory, server: str, tool: str, *, to_change: bool = False
    ) -> ToolCard:
        for key in (f"{server}/{tool}", build_tool_key(server, tool)):
            if (card := inventory.cards.get(key)) is not None:
                return card
        key = build_tool_key(server, tool)
        if any(line.key == key for line in inventory.list_lines()):
            title = "The tool is switched off in the settings"
            raise ApiProblem(409 if to_change else 404, title, "Switch it on in the settings to see it.")
        near = [near for near in self._router.tools.near(key) if near in inventory.cards]
        raise ApiProblem(404, "There is no such tool", f"No server offers {key}.", near=near)


def _matches_query(query: ToolQuery, line: ToolLine) -> bool:
    words = query.text.casefold().split()
    text = f"{line.key} {line.title} {line.description}".casefold() if words else ""
    return (
        (query.before is None or line.key > query.before)
        and query.server in (None, line.server)
        and query.effect in (None, line.effect)
        and query.state in (None, line.state)
        and all(word in text for word in words)
    )


def _build_detail(inventory: ToolInventory, card: ToolCard, pin: Pin | None) -> ToolDetail:
    line = inventory.build_line(card)
    held = inventory.quarantined.get(card.key)
    schema = card.definition.get("inputSchema")
    return copy_fields(
        ToolDetail,
        line,
        card=copy_fields(ToolFacts, card),
        intelligence=tuple(_iterate_known_fields(card)),
        schema=schema if isinstance(schema, dict) else {},
        usage=inventory.usage.get(card.key),
        pin=pin,
        change=None if held is None else DefinitionChange.from_entry(held),
    )


def _iterate_known_fields(card: ToolCard) -> Iterator[KnownField]:
    """Yield every value that has a source, by its path in the record."""
    yield _build_field("effect", card.effect)
    certainty = Known(card.certain, card.effect.source, card.doubt or card.effect.reason)
    yield _build_field("effect_certain", certainty)
    for label in DataLabel:
        yield _build_field(f"labels.{label}", card.get_label(label))
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
            why = "from its schema"
            yield KnownField(
                field=path + part.name, value=to_plain(value), source=Source.INFERRED, reason=why
            )


def _build_field(name: str, known: Known[Any]) -> KnownField:
    value: Json = to_plain(known.value)
    return KnownField(field=name, value=value, source=known.source, reason=known.reason)


_KNOWN_MEDIA_TYPES: Final = tuple(dict.fromkeys(MEDIA_TYPES.values()))
# In addition to the common headers: an SVG that is opened directly gets no permissions.
_SANDBOX_HEADER: Final[Header] = (
    b"content-security-policy",
    b"sandbox; default-src 'none'; style-src 'unsafe-inline'",
)


class AssetOperations(OperationGroup):
    """The operations about stored assets."""

    tag = "assets"

    def __init__(self, router: Router) -> None:
        self._results = router.calls.results

    @declare_operation(
        "GET",
        "/api/assets/{handle}",
        returns=bytes,
        media=DEFAULT_MEDIA_TYPE,
        other_media=_KNOWN_MEDIA_TYPES,
        problems=(404,),
        right=None,
    )
    async def get_asset(self, request: ApiRequest, handle: str) -> ApiResponse:
        """A generated file: your own, and with the right to watch also others'."""
        found = await fetch_asset(self._results, handle, caller=get_visible_caller(request.principal))
        if found is None:
            detail = "You have no file with this handle. Files are kept for a limited time: create it again."
            raise ApiProblem(404, "No such asset", detail)
        media = found.media_type if found.media_type in _KNOWN_MEDIA_TYPES else DEFAULT_MEDIA_TYPE
        return ApiResponse(body=found.data, headers=_build_asset_headers(found), media=media)


def _build_asset_headers(found: Asset) -> tuple[Header, ...]:
    stem, dot, ending = found.name.rpartition(".")
    name = (
        f"{build_file_stem(stem, 80)}.{build_file_stem(ending, 8)}"
        if dot
        else build_file_stem(found.name, 80)
    )
    return ((b"content-disposition", f'attachment; filename="{name}"'.encode()), _SANDBOX_HEADER)
