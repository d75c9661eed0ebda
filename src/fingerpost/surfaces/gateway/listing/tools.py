"""The tools that an endpoint lists for a caller, cached until something changes."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

import anyio.lowlevel
from mcp_types.jsonrpc import INVALID_REQUEST

from fingerpost.call.digest import clip_to_tokens
from fingerpost.call.outcomes import READ_RESULT_TOOL, READ_RESULT_TOOL_NAME
from fingerpost.catalog import Snapshot, get_list_place
from fingerpost.catalog.unavailable import build_server_unavailable, describe_quarantine
from fingerpost.data_files import read_data_text
from fingerpost.errors import FingerpostError
from fingerpost.frozen import frozen
from fingerpost.policy.paths import PatternFit, match_exactly
from fingerpost.policy.visibility import VisibleCatalog, find_hidden_tools, may_call_any
from fingerpost.records import JsonObject, Principal, Quarantined, Scope, ServerStatus, ToolCard
from fingerpost.router import Router
from fingerpost.router.profiles import build_scope
from fingerpost.settings import SmartRoutingSettings
from fingerpost.surfaces.gateway.listing.pages import CacheHints, DefinitionCache, ListPages, encode_json
from fingerpost.surfaces.gateway.listing.search import format_one_line
from fingerpost.surfaces.gateway.protocol import EncodedResult, JsonRpcError
from fingerpost.surfaces.http.access import Endpoint

FIND_TOOLS_NAME: Final = "find_tools"
DESCRIBE_TOOL_NAME: Final = "describe_tool"
CALL_TOOL_NAME: Final = "call_tool"
READ_RESULT_NAME: Final = READ_RESULT_TOOL_NAME

_READ_ONLY_HINTS: Final[JsonObject] = {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False}
MAX_FOUND: Final = 20

_DEFINITIONS: Final[dict[str, JsonObject]] = json.loads(
    read_data_text("fingerpost.surfaces.gateway.listing", "own_tools.json")
)
READ_RESULT_DEFINITION: Final[JsonObject] = {
    **READ_RESULT_TOOL,
    "title": "Read a long result",
    "annotations": {"title": "Read a long result", **_READ_ONLY_HINTS},
}

ROUTING_TOOLS: Final = (*_DEFINITIONS.values(), READ_RESULT_DEFINITION)
ALWAYS_LISTED_TOOLS: Final = (READ_RESULT_DEFINITION,)
# Without any tools, `find_tools` is listed to tell the model why.
EMPTY_CATALOG_TOOLS: Final = (_DEFINITIONS[FIND_TOOLS_NAME], READ_RESULT_DEFINITION)


_NO_TOOLS: Final = "No tools are available here now."
_MAX_EXPLAINED_SERVERS: Final = 5
_MAX_REASON_LENGTH: Final = 200

ROUTE_MODE: Final = "route"
ALL_MODE: Final = "all"


def resolve_mode(mode: str, view: VisibleCatalog, settings: SmartRoutingSettings) -> str:
    """Resolve `auto`: use route if there are more tools than a model can read."""
    if mode != "auto":
        return mode
    if settings.mode != "auto":
        return ROUTE_MODE if settings.mode == "on" else ALL_MODE
    many = len(view.visible.cards) > settings.max_tools and view.server_count > settings.max_servers
    return ROUTE_MODE if many else ALL_MODE


_MAX_CACHED_CONFIGS: Final = 1000  # callers


class UnknownProfile(JsonRpcError):
    """The path names a profile that does not exist for this caller. Treated like an unknown path."""

    def __init__(self, name: str) -> None:
        super().__init__(
            INVALID_REQUEST,
            f"there is no profile {name[:80]!r} here; ask the operator of this gateway for the right address",
        )


@frozen
class EndpointConfig:
    """One endpoint, as configured."""

    mode: str  # auto, route, all
    profile: str | None = None
    scope: Scope | None = None
    pinned: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()  # from the settings

    def get_scopes(self, principal: Principal) -> tuple[Scope, ...]:
        """Return the scopes of this caller at this endpoint. Usually empty."""
        own = get_principal_scopes(principal)
        return own if self.scope is None else (*own, self.scope)


def get_principal_scopes(principal: Principal) -> tuple[Scope, ...]:
    """Return the scopes of this caller at every endpoint."""
    return (principal.scope,) if principal.scope.bounded else ()


class EndpointConfigs:
    """The configured endpoints, with the current profiles."""

    def __init__(self, router: Router) -> None:
        self._settings = router.settings
        self._profiles = router.profiles
        self._version = self._profiles.version
        self._known: dict[tuple[str, str | None, str | None], EndpointConfig] = {}
        self._names: dict[tuple[str | None, str, tuple[str, ...]], str | None] = {}  # by path and caller

    def get_config(self, endpoint: Endpoint, principal: Principal) -> EndpointConfig:
        """Return the configuration of this endpoint for this caller. Raises `UnknownProfile`."""
        if self._version != self._profiles.version:
            self._version = self._profiles.version
            self._known.clear()
            self._names.clear()
        name = self._resolve_profile(endpoint, principal)
        key = (endpoint.mode, endpoint.profile, name)
        config = self._known.get(key)
        if config is None:
            config = self._known[key] = self._build_config(endpoint, name)
        return config

    def _resolve_profile(self, endpoint: Endpoint, principal: Principal) -> str | None:
        """Return the profile of the path, or this caller's default profile."""
        if not self._profiles and endpoint.profile is None:
            return None
        key = (endpoint.profile, principal.name, principal.profiles)
        if key not in self._names:
            if len(self._names) >= _MAX_CACHED_CONFIGS:
                self._names.clear()
            try:
                self._names[key] = self._profiles.resolve_profile(
                    endpoint.profile, caller=principal.name, among=principal.profiles
                )
            except FingerpostError:
                raise UnknownProfile(endpoint.profile or "") from None
        return self._names[key]

    def _build_config(self, endpoint: Endpoint, name: str | None) -> EndpointConfig:
        gateway = self._settings.gateway
        common = (gateway.instructions,) if gateway.instructions else ()
        mode = gateway.mode if endpoint.mode == "auto" else endpoint.mode
        if name is None:
            return EndpointConfig(mode=mode, pinned=gateway.pinned, instructions=common)
        profile = self._profiles[name]
        return EndpointConfig(
            mode=mode if endpoint.profile is None else profile.mode,
            profile=name,
            scope=build_scope(name, profile),
            pinned=profile.pinned or (gateway.pinned if endpoint.profile is None else ()),
            instructions=(
                *common,
                *tuple(words for words in (profile.description, profile.instructions) if words),
            ),
        )


FRESH_MS: Final = 30_000  # cache time for clients; changes are also announced
_MAX_CACHED_TOOLS: Final = 64  # lists
_MAX_REMEMBERED: Final = 300  # viewers whose list is compared with the last one they got

LARGE_CATALOG: Final = 500  # tools; above this, visibility is computed in a thread
ENCODE_CHUNK: Final = 100  # definitions encoded before other tasks run

ViewerValue = TypeVar("ViewerValue")
_ToolsKey = tuple[str, str | None, str | None, tuple[Scope, ...]]
# The endpoint's mode and profile; the caller's scopes and profiles; its name if rules depend on it.
ToolViewer = tuple[str, str | None, tuple[Scope, ...], tuple[str, ...], str | None]


@frozen
class EndpointTools:
    """The tools of one caller at one endpoint at this moment."""

    config: EndpointConfig
    view: VisibleCatalog
    mode: str  # route or all
    scopes: tuple[Scope, ...]
    viewer: ToolViewer  # callers with the same list have the same viewer

    @property
    def own_tools(self) -> tuple[JsonObject, ...]:
        if self.mode == ROUTE_MODE:
            return ROUTING_TOOLS
        return ALWAYS_LISTED_TOOLS if self.view.visible.cards else EMPTY_CATALOG_TOOLS


@frozen(kw_only=False)
class _DeliveredList:
    """The list a viewer got last. `bodies` is None if the viewer has not listed tools yet."""

    snapshot: Snapshot | None
    bodies: Sequence[bytes] | None = None
    modern: bool = False


class ToolListing:
    """Tool lists by endpoint and caller."""

    def __init__(self, router: Router) -> None:
        self.endpoint_configs = EndpointConfigs(router)
        self._router = router
        self._settings = router.settings
        self._profiles_version = 0
        self._by_caller = False
        self._definitions = DefinitionCache()
        self._snapshot: Snapshot | None = None
        self._cached_tools: dict[_ToolsKey, EndpointTools] = {}
        self._latest: tuple[Endpoint, Principal, EndpointTools] | None = None
        self._pages: OrderedDict[tuple[ToolViewer, bool], ListPages] = OrderedDict()
        self._routing: OrderedDict[ToolViewer, None] = OrderedDict()  # viewers whose auto mode became route
        self._delivered: OrderedDict[ToolViewer, _DeliveredList] = OrderedDict()

    def get_tools(self, endpoint: Endpoint, principal: Principal) -> EndpointTools:
        """Return this caller's tools at this endpoint. Every call uses it, mostly as one dict lookup."""
        endpoint_tools, config, scopes, key = self._find_cached(endpoint, principal)
        if endpoint_tools is None:
            endpoint_tools = self._build_tools(endpoint, config, principal, scopes)
            if len(self._cached_tools) >= _MAX_REMEMBERED:
                self._cached_tools.clear()
            self._cached_tools[key] = endpoint_tools
        return endpoint_tools

    async def prepare_tools(self, endpoint: Endpoint, principal: Principal) -> EndpointTools:
        """Return the same as `get_tools`, but compute a large list in a thread."""
        self._refresh()
        latest = self._latest
        if latest is not None and latest[0] is endpoint and latest[1] is principal:
            return latest[2]
        endpoint_tools, config, scopes, _ = self._find_cached(endpoint, principal)
        if endpoint_tools is not None:
            self._latest = (endpoint, principal, endpoint_tools)
            return endpoint_tools
        if len(self._router.catalog.full_snapshot.cards) > LARGE_CATALOG:
            await self._router.look(caller=principal.name, profile=config.profile, scopes=scopes)
        return self.get_tools(endpoint, principal)

    def _find_cached(
        self, endpoint: Endpoint, principal: Principal
    ) -> tuple[EndpointTools | None, EndpointConfig, tuple[Scope, ...], _ToolsKey]:
        self._refresh()
        config = self.endpoint_configs.get_config(endpoint, principal)
        scopes = config.get_scopes(principal)
        name = principal.name if self._by_caller else None
        key = (endpoint.mode, endpoint.profile or config.profile, name, scopes)
        return self._cached_tools.get(key), config, scopes, key

    def get_header_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """Return `get_mirrored_schema` of the listed tool of this name, if this caller may see it."""
        card = self._router.catalog.full_snapshot.by_exposed_name(name)
        if card is None or (schema := self.get_mirrored_schema(card)) is None:
            return None
        return schema if self.get_tools(endpoint, principal).view.visible.get(card.key) is not None else None

    def get_mirrored_schema(self, card: ToolCard) -> JsonObject | None:
        """Return the input schema of a tool that has arguments repeated in headers, else None."""
        if not self._definitions.uses_headers(card):
            return None
        schema = card.definition.get("inputSchema")
        return schema if isinstance(schema, Mapping) else None

    def _refresh(self) -> None:
        snapshot = self._router.catalog.full_snapshot
        if snapshot is not self._snapshot or self._router.profiles.version != self._profiles_version:
            self._update_snapshot(snapshot)

    def _update_snapshot(self, snapshot: Snapshot) -> None:
        profiles = self._router.profiles
        rules = self._router.settings.policy
        self._by_caller = profiles.depends_on_caller or any(rule.caller is not None for rule in rules)
        self._profiles_version = profiles.version
        self._snapshot = snapshot
        self._cached_tools.clear()
        self._latest = None
        self._pages.clear()
        self._definitions.keep_only(frozenset(card.key for card in snapshot.cards))

    def _build_tools(
        self, endpoint: Endpoint, config: EndpointConfig, principal: Principal, scopes: tuple[Scope, ...]
    ) -> EndpointTools:
        view = self._router.view(caller=principal.name, profile=config.profile, scopes=scopes)
        name = principal.name if self._by_caller else None
        who: ToolViewer = (
            endpoint.mode,
            endpoint.profile,
            get_principal_scopes(principal),
            principal.profiles,
            name,
        )
        mode = resolve_mode(config.mode, view, self._router.switches.now.smart_routing)
        if config.mode == "auto":
            mode = self._keep_route_mode(who, mode)
        return EndpointTools(config=config, view=view, mode=mode, scopes=scopes, viewer=who)

    def _keep_route_mode(self, viewer: ToolViewer, mode: str) -> str:
        """Keep route mode once it was used. An endpoint that changes back and forth would confuse clients."""
        if mode == ROUTE_MODE:
            _remember_viewer(self._routing, viewer, None)
        return ROUTE_MODE if viewer in self._routing else mode

    def get_page(
        self, endpoint: Endpoint, principal: Principal, *, cursor: object = None, modern: bool
    ) -> EncodedResult:
        """Return a page of `tools/list`. Raises `JsonRpcError` for an unknown cursor."""
        endpoint_tools = self.get_tools(endpoint, principal)
        pages = self._get_pages(endpoint_tools, modern=modern)
        if cursor is None:
            _remember_viewer(
                self._delivered, endpoint_tools.viewer, _DeliveredList(self._snapshot, pages.bodies, modern)
            )
        return pages.get_page(cursor, self._build_hints(endpoint_tools, principal, pages) if modern else None)

    async def encode_definitions(self, endpoint_tools: EndpointTools, *, modern: bool) -> None:
        """Encode definitions before a page is requested, in steps: encoding many takes long."""
        if (endpoint_tools.viewer, modern) not in self._pages:
            for number, card in enumerate(self._get_shown_cards(endpoint_tools), 1):
                self._definitions.get_encoded(card, modern=modern)
                if number % ENCODE_CHUNK == 0:
                    await anyio.lowlevel.checkpoint()

    def remember_client(self, endpoint_tools: EndpointTools) -> None:
        """Remember a client that has not listed tools yet, so that it is notified of changes."""
        if endpoint_tools.viewer not in self._delivered:
            _remember_viewer(self._delivered, endpoint_tools.viewer, _DeliveredList(self._snapshot))

    def is_one_of(self, endpoint: Endpoint, principal: Principal, viewers: frozenset[ToolViewer]) -> bool:
        """Return whether the caller is one of these viewers. Callers of a deleted profile never match."""
        try:
            who = self.get_tools(endpoint, principal).viewer
            return who in viewers or (*who[:-1], None) in viewers
        except JsonRpcError:
            return False

    async def find_changed_viewers(self) -> frozenset[ToolViewer]:
        """Return the viewers whose list changed since they got it. Each change is reported once."""
        self._refresh()
        changed: list[ToolViewer] = []
        for who, before in tuple(self._delivered.items()):
            if self._by_caller and who[-1] is None:  # rules now depend on the caller's name
                self._delivered.pop(who, None)
                changed.append(who)
                continue
            try:
                now = await self._get_current_list(who, modern=before.modern)
            except JsonRpcError:  # the profile was deleted; the next request reports it
                self._delivered.pop(who, None)
                continue
            if before.bodies is None:
                is_changed = before.snapshot is not now.snapshot
            else:
                is_changed = before.bodies != now.bodies  # unchanged definitions are the same objects
            if is_changed and who in self._delivered:
                self._delivered[who] = now
                changed.append(who)
            await anyio.lowlevel.checkpoint()  # long lists must not block other tasks
        return frozenset(changed)

    async def _get_current_list(self, viewer: ToolViewer, *, modern: bool) -> _DeliveredList:
        mode, profile, scopes, profiles, caller = viewer
        endpoint = Endpoint(path="", mode=mode, profile=profile)
        scope = scopes[0] if scopes else Scope()
        principal = Principal(name=caller or "", scope=scope, profiles=profiles)
        await self.encode_definitions(await self.prepare_tools(endpoint, principal), modern=modern)
        # Tools may have changed during the await.
        pages = self._get_pages(self.get_tools(endpoint, principal), modern=modern)
        return _DeliveredList(self._snapshot, pages.bodies, modern)

    def _get_pages(self, endpoint_tools: EndpointTools, *, modern: bool) -> ListPages:
        key = (endpoint_tools.viewer, modern)
        pages = self._pages.get(key)
        if pages is None:
            pages = self._pages[key] = self._build_pages(endpoint_tools, modern=modern)
            while len(self._pages) > _MAX_CACHED_TOOLS:
                self._pages.popitem(last=False)
        return pages

    def _build_pages(self, endpoint_tools: EndpointTools, *, modern: bool) -> ListPages:
        cards = sorted(self._get_shown_cards(endpoint_tools), key=lambda card: get_list_place(card.key))
        ours = [(f"0/{tool['name']}", encode_json(tool)) for tool in endpoint_tools.own_tools]
        theirs = [(card.key, self._definitions.get_encoded(card, modern=modern)) for card in cards]
        entries = [*ours, *theirs] if endpoint_tools.mode == ROUTE_MODE else [*theirs, *ours]
        return ListPages(
            "tools",
            [name for name, _ in entries],
            [body for _, body in entries],
            self._settings.gateway.page_size,
        )

    def _get_shown_cards(self, endpoint_tools: EndpointTools) -> Sequence[ToolCard]:
        if endpoint_tools.mode != ROUTE_MODE:
            return endpoint_tools.view.visible.cards
        pinned = endpoint_tools.config.pinned
        if not pinned:
            return ()
        return [card for card in endpoint_tools.view.visible.cards if _is_pinned(card, pinned)]

    def _build_hints(
        self, endpoint_tools: EndpointTools, principal: Principal, pages: ListPages
    ) -> CacheHints:
        """Build cache hints. A list is private if another caller might get a different one."""
        has_only_own_tools = len(pages.names) == len(endpoint_tools.own_tools)
        is_shared = principal.kind == "local" and not principal.scope.bounded and not self._by_caller
        return CacheHints(milliseconds=FRESH_MS, private=not (has_only_own_tools or is_shared))


def _is_pinned(card: ToolCard, patterns: Sequence[str]) -> bool:
    return any(match_exactly(pattern, card.key) is PatternFit.YES for pattern in patterns)


def _remember_viewer(
    remembered: OrderedDict[ToolViewer, ViewerValue], viewer: ToolViewer, value: ViewerValue
) -> None:
    remembered[viewer] = value
    remembered.move_to_end(viewer)
    while len(remembered) > _MAX_REMEMBERED:
        remembered.popitem(last=False)


def explain_missing_tools(
    router: Router, endpoint_tools: EndpointTools, principal: Principal, *, budget: int
) -> str:
    """Return why this caller sees no tools and what to do, or an empty text if it sees some."""
    if endpoint_tools.view.visible.cards:
        return ""
    reasons = [*_find_missing_reasons(router, endpoint_tools, principal)]
    return clip_to_tokens(" ".join([_NO_TOOLS, *reasons]), budget)


def _find_missing_reasons(
    router: Router, endpoint_tools: EndpointTools, principal: Principal
) -> Iterator[str]:
    configuration, statuses = router.configuration, router.servers.statuses
    is_local = principal.kind == "local"  # only the local user is told the paths of files
    if not statuses:
        file = f" It is kept in {configuration.entries.file.shown}." if configuration and is_local else ""
        yield f"No MCP servers are configured. Add one with `fingerpost servers add NAME -- COMMAND`.{file}"
        if configuration and configuration.problems:
            yield "Some settings could not be used: `fingerpost config check` says which."
        return
    away = find_unavailable_servers(router, endpoint_tools, principal.name)
    for status in [*away.values()][:_MAX_EXPLAINED_SERVERS]:
        yield explain_unavailable_server(status)
    if len(away) > _MAX_EXPLAINED_SERVERS:
        yield f"{len(away) - _MAX_EXPLAINED_SERVERS} more servers are not connected: `fingerpost servers`."
    held = describe_hidden_tools(router, endpoint_tools, principal.name)
    if held:
        yield held
    hidden = endpoint_tools.view.hidden
    if hidden:
        where = "the endpoint's profile, or " if endpoint_tools.config.profile else ""
        yield f"Tools are hidden from this client by {where}the policy rules or its key."
    elif not away and not held:
        yield "The connected servers offer no tools."


def explain_unavailable_server(status: ServerStatus) -> str:
    """Explain why the server's tools cannot be used, with the same text as a failed call."""
    away = build_server_unavailable("", status)
    assert away is not None
    return f"The {format_one_line(away.reason.removeprefix('its '), _MAX_REASON_LENGTH)}. {away.fix}"


def describe_hidden_tools(router: Router, endpoint_tools: EndpointTools, caller: str) -> str:
    """Return which tools wait for a person's review, as far as this caller may know them."""
    held = router.catalog.quarantined
    if not held:
        return ""
    hidden = find_hidden_tools(
        router.settings.policy,
        [entry.card for entry in held],
        caller=caller,
        profile=endpoint_tools.config.profile,
        scopes=endpoint_tools.scopes,
    )
    by_server: dict[str, list[Quarantined]] = {}
    for entry in held:
        if entry.card.key not in hidden:
            by_server.setdefault(entry.card.server, []).append(entry)
    lines = (
        f"{server}: {describe_quarantine(entries)}. Accept with `fingerpost pins accept {server}`."
        for server, entries in by_server.items()
    )
    return " ".join(lines)


def find_unavailable_servers(
    router: Router, endpoint_tools: EndpointTools, caller: str
) -> dict[str, ServerStatus]:
    """Return the configured servers that are not connected, by name, as far as this caller may know them."""
    away = {status.name: status for status in router.servers.statuses if build_server_unavailable("", status)}
    if not away:
        return {}
    known: dict[str, list[ToolCard]] = {}
    for card in (*router.catalog.full_snapshot.cards, *router.catalog.unavailable.cards):
        if card.server in away:
            known.setdefault(card.server, []).append(card)
    rules, profile, scopes = router.settings.policy, endpoint_tools.config.profile, endpoint_tools.scopes

    def is_visible(server: str) -> bool:
        if cards := known.get(server):
            hidden = find_hidden_tools(rules, cards, caller=caller, profile=profile, scopes=scopes)
            return any(card.key not in hidden for card in cards)
        return may_call_any(rules, server, caller=caller, profile=profile, scopes=scopes)

    return {name: away[name] for name in sorted(away) if is_visible(name)}
