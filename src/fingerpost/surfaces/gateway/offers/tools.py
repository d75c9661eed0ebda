"""The list of tools of each endpoint, for each caller: made once, kept until something changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import anyio.lowlevel

from fingerpost.call.patterns import PatternFit, match_exactly
from fingerpost.catalog import Snapshot, get_list_place
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Scope, ToolCard
from fingerpost.router import Router
from fingerpost.router.sight import VisibleCatalog
from fingerpost.surfaces.gateway.exchange import EncodedResult, JsonRpcError
from fingerpost.surfaces.gateway.offers import own
from fingerpost.surfaces.gateway.offers.definitions import DefinitionCache
from fingerpost.surfaces.gateway.offers.encoding import encode_json
from fingerpost.surfaces.gateway.offers.modes import ROUTE_MODE, resolve_mode
from fingerpost.surfaces.gateway.offers.pages import CacheHints, ListPages
from fingerpost.surfaces.gateway.offers.places import EndpointConfig, EndpointConfigs, get_principal_scopes
from fingerpost.surfaces.web.gate import Endpoint

FRESH_MS: Final = 30_000  # how long a client may keep a list without asking; changes are announced besides
_MAX_CACHED_TOOLS: Final = 64  # lists
_MAX_REMEMBERED: Final = 300  # endpoints and callers whose list is compared with what they were given before

LARGE_CATALOG: Final = 500  # tools: to see which of them are hidden is then work for a thread
ENCODE_CHUNK: Final = 100  # definitions encoded before others have their turn

ViewerValue = TypeVar("ViewerValue")
_ToolsKey = tuple[str, str | None, str | None, tuple[Scope, ...]]
# The endpoint's mode and profile; the bounds and profiles of their key; their name where it matters.
ToolViewer = tuple[str, str | None, tuple[Scope, ...], tuple[str, ...], str | None]


@frozen
class EndpointTools:
    """What one caller gets at one endpoint, now."""

    config: EndpointConfig
    view: VisibleCatalog
    mode: str  # route or all
    scopes: tuple[Scope, ...]
    viewer: ToolViewer  # those for whom it is the same

    @property
    def own_tools(self) -> tuple[JsonObject, ...]:
        return own.ROUTING_TOOLS if self.mode == ROUTE_MODE else own.ALWAYS_LISTED_TOOLS


@frozen(kw_only=False)
class _DeliveredList:
    """What somebody was given last: the list, or nothing yet since they came."""

    snapshot: Snapshot | None
    bodies: Sequence[bytes] | None = None
    modern: bool = False


class ToolListing:
    """Offers by endpoint and caller."""

    def __init__(self, router: Router) -> None:
        self.places = EndpointConfigs(router)
        self._router = router
        self._settings = router.settings
        self._profiles_version = 0
        self._by_caller = False
        self._definitions = DefinitionCache()
        self._snapshot: Snapshot | None = None
        self._offers: dict[_ToolsKey, EndpointTools] = {}
        self._latest: tuple[Endpoint, Principal, EndpointTools] | None = None
        self._pages: OrderedDict[tuple[ToolViewer, bool], ListPages] = OrderedDict()
        self._routing: OrderedDict[ToolViewer, None] = OrderedDict()  # auto, once it came to route
        self._given: OrderedDict[ToolViewer, _DeliveredList] = OrderedDict()

    # -- what there is ------------------------------------------------------------------------------

    def get_tools(self, endpoint: Endpoint, principal: Principal) -> EndpointTools:
        """What this caller gets here. On the way of every call: mostly one look into a dict."""
        offer, place, scopes, key = self._find_cached(endpoint, principal)
        if offer is None:
            offer = self._build_tools(endpoint, place, principal, scopes)
            if len(self._offers) >= _MAX_REMEMBERED:
                self._offers.clear()
            self._offers[key] = offer
        return offer

    async def prepare_tools(self, endpoint: Endpoint, principal: Principal) -> EndpointTools:
        """The same, where working it out for the first time must not hold up others."""
        self._refresh()
        latest = self._latest
        if latest is not None and latest[0] is endpoint and latest[1] is principal:
            return latest[2]
        offer, place, scopes, _ = self._find_cached(endpoint, principal)
        if offer is not None:
            self._latest = (endpoint, principal, offer)
            return offer
        if len(self._router.catalog.full_snapshot.cards) > LARGE_CATALOG:
            await self._router.look(caller=principal.name, profile=place.profile, scopes=scopes)
        return self.get_tools(endpoint, principal)

    def _find_cached(
        self, endpoint: Endpoint, principal: Principal
    ) -> tuple[EndpointTools | None, EndpointConfig, tuple[Scope, ...], _ToolsKey]:
        self._refresh()
        place = self.places.get_config(endpoint, principal)
        scopes = place.get_scopes(principal)
        name = principal.name if self._by_caller else None
        key = (endpoint.mode, endpoint.profile or place.profile, name, scopes)
        return self._offers.get(key), place, scopes, key

    def get_header_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """`get_mirrored_schema` of the tool that is listed under this name, where this caller may see it."""
        card = self._router.catalog.full_snapshot.by_exposed_name(name)
        if card is None or (schema := self.get_mirrored_schema(card)) is None:
            return None
        return schema if self.get_tools(endpoint, principal).view.visible.get(card.key) is not None else None

    def get_mirrored_schema(self, card: ToolCard) -> JsonObject | None:
        """The schema of a tool's arguments, where some of them must be repeated in headers."""
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
        self._offers.clear()
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
        """Once route, always route: an endpoint that changes back and forth would confuse every client."""
        if mode == ROUTE_MODE:
            _remember_viewer(self._routing, viewer, None)
        return ROUTE_MODE if viewer in self._routing else mode

    # -- lists --------------------------------------------------------------------------------------

    def get_page(
        self, endpoint: Endpoint, principal: Principal, *, cursor: object = None, modern: bool
    ) -> EncodedResult:
        """A page of `tools/list`. Raises `Refusal` for a cursor that leads nowhere."""
        offer = self.get_tools(endpoint, principal)
        pages = self._get_pages(offer, modern=modern)
        if cursor is None:
            _remember_viewer(self._given, offer.viewer, _DeliveredList(self._snapshot, pages.bodies, modern))
        return pages.get_page(cursor, self._build_hints(offer, principal, pages) if modern else None)

    async def encode_definitions(self, endpoint_tools: EndpointTools, *, modern: bool) -> None:
        """Before a page of a list is asked for: the first one takes long, and others have their turns."""
        if (endpoint_tools.viewer, modern) not in self._pages:
            for place, card in enumerate(self._get_shown_cards(endpoint_tools), 1):
                self._definitions.get_encoded(card, modern=modern)
                if place % ENCODE_CHUNK == 0:
                    await anyio.lowlevel.checkpoint()

    def remember_client(self, endpoint_tools: EndpointTools) -> None:
        """Somebody came who has not listed anything yet: they, too, hear when the tools change."""
        if endpoint_tools.viewer not in self._given:
            _remember_viewer(self._given, endpoint_tools.viewer, _DeliveredList(self._snapshot))

    def is_one_of(self, endpoint: Endpoint, principal: Principal, viewers: frozenset[ToolViewer]) -> bool:
        """Whether somebody is among those. Whoever came under a profile that is gone is nobody."""
        try:
            who = self.get_tools(endpoint, principal).viewer
            return who in viewers or (*who[:-1], None) in viewers
        except JsonRpcError:
            return False

    async def find_changed_viewers(self) -> frozenset[ToolViewer]:
        """Whose list is not the one they were given last. Each change is told once."""
        self._refresh()
        changed: list[ToolViewer] = []
        for who, before in tuple(self._given.items()):
            if self._by_caller and who[-1] is None:  # it did not matter who they are, and now it does
                self._given.pop(who, None)
                changed.append(who)
                continue
            try:
                now = await self._get_current_list(who, modern=before.modern)
            except JsonRpcError:  # their profile is gone: they will hear so when they ask
                self._given.pop(who, None)
                continue
            if before.bodies is None:
                told = before.snapshot is not now.snapshot
            else:
                told = before.bodies != now.bodies  # each the very same bytes where nothing changed
            if told and who in self._given:
                self._given[who] = now
                changed.append(who)
            await anyio.lowlevel.checkpoint()  # a long list for many callers must not hold up others
        return frozenset(changed)

    async def _get_current_list(self, viewer: ToolViewer, *, modern: bool) -> _DeliveredList:
        mode, profile, scopes, profiles, caller = viewer
        endpoint = Endpoint(path="", mode=mode, profile=profile)
        scope = scopes[0] if scopes else Scope()
        principal = Principal(name=caller or "", scope=scope, profiles=profiles)
        await self.encode_definitions(await self.prepare_tools(endpoint, principal), modern=modern)
        pages = self._get_pages(
            self.get_tools(endpoint, principal), modern=modern
        )  # tools may have changed meanwhile
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
        """A list is private where another caller might get a different one, or none."""
        ours_alone = len(pages.names) == len(endpoint_tools.own_tools)
        anybody = principal.kind == "local" and not principal.scope.bounded and not self._by_caller
        return CacheHints(milliseconds=FRESH_MS, private=not (ours_alone or anybody))


def _is_pinned(card: ToolCard, patterns: Sequence[str]) -> bool:
    return any(match_exactly(pattern, card.key) is PatternFit.YES for pattern in patterns)


def _remember_viewer(
    remembered: OrderedDict[ToolViewer, ViewerValue], viewer: ToolViewer, value: ViewerValue
) -> None:
    remembered[viewer] = value
    remembered.move_to_end(viewer)
    while len(remembered) > _MAX_REMEMBERED:
        remembered.popitem(last=False)
