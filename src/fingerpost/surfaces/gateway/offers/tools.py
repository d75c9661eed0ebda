"""The list of tools of each endpoint, for each caller: made once, kept until something changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

import anyio.lowlevel

from fingerpost.call.patterns import Fit, fits_exactly
from fingerpost.catalog import Snapshot, list_place
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Principal, Scope, ToolCard
from fingerpost.router import Router
from fingerpost.router.sight import View
from fingerpost.surfaces.gateway.exchange import Encoded, Refusal
from fingerpost.surfaces.gateway.offers import own
from fingerpost.surfaces.gateway.offers.definitions import Definitions
from fingerpost.surfaces.gateway.offers.encoding import encoded
from fingerpost.surfaces.gateway.offers.modes import ROUTE, decide
from fingerpost.surfaces.gateway.offers.pages import Hints, Pages
from fingerpost.surfaces.gateway.offers.places import Place, Places, own_scopes
from fingerpost.surfaces.web.gate import Endpoint

FRESH_MS: Final = 30_000  # how long a client may keep a list without asking; changes are announced besides
_KEPT: Final = 64  # lists
_REMEMBERED: Final = 300  # endpoints and callers whose list is compared with what they were given before

MANY: Final = 500  # tools: to see which of them are hidden is then work for a thread
A_FEW: Final = 100  # definitions encoded before others have their turn

V = TypeVar("V")
_Key = tuple[str, str | None, str | None, tuple[Scope, ...]]
# The endpoint's mode and profile; the bounds and profiles of their key; their name where it matters.
Who = tuple[str, str | None, tuple[Scope, ...], tuple[str, ...], str | None]


@frozen
class Offer:
    """What one caller gets at one endpoint, now."""

    place: Place
    view: View
    mode: str  # route or all
    scopes: tuple[Scope, ...]
    who: Who  # those for whom it is the same

    @property
    def own_tools(self) -> tuple[JsonObject, ...]:
        return own.ROUTING if self.mode == ROUTE else own.EVERYWHERE


@frozen(kw_only=False)
class _Given:
    """What somebody was given last: the list, or nothing yet since they came."""

    snapshot: Snapshot | None
    bodies: Sequence[bytes] | None = None
    modern: bool = False


class ToolOffers:
    """Offers by endpoint and caller."""

    def __init__(self, router: Router) -> None:
        self.places = Places(router)
        self._router = router
        self._settings = router.settings
        self._profiles_version = 0
        self._by_caller = False
        self._definitions = Definitions()
        self._snapshot: Snapshot | None = None
        self._offers: dict[_Key, Offer] = {}
        self._latest: tuple[Endpoint, Principal, Offer] | None = None
        self._pages: OrderedDict[tuple[Who, bool], Pages] = OrderedDict()
        self._routing: OrderedDict[Who, None] = OrderedDict()  # auto, once it came to route
        self._given: OrderedDict[Who, _Given] = OrderedDict()

    # -- what there is ------------------------------------------------------------------------------

    def of(self, endpoint: Endpoint, principal: Principal) -> Offer:
        """What this caller gets here. On the way of every call: mostly one look into a dict."""
        offer, place, scopes, key = self._known(endpoint, principal)
        if offer is None:
            offer = self._make(endpoint, place, principal, scopes)
            if len(self._offers) >= _REMEMBERED:
                self._offers.clear()
            self._offers[key] = offer
        return offer

    async def prepared(self, endpoint: Endpoint, principal: Principal) -> Offer:
        """The same, where working it out for the first time must not hold up others."""
        self._up_to_date()
        latest = self._latest
        if latest is not None and latest[0] is endpoint and latest[1] is principal:
            return latest[2]
        offer, place, scopes, _ = self._known(endpoint, principal)
        if offer is not None:
            self._latest = (endpoint, principal, offer)
            return offer
        if len(self._router.catalog.whole.cards) > MANY:
            await self._router.look(caller=principal.name, profile=place.profile, scopes=scopes)
        return self.of(endpoint, principal)

    def _known(
        self, endpoint: Endpoint, principal: Principal
    ) -> tuple[Offer | None, Place, tuple[Scope, ...], _Key]:
        self._up_to_date()
        place = self.places.of(endpoint, principal)
        scopes = place.scopes(principal)
        name = principal.name if self._by_caller else None
        key = (endpoint.mode, endpoint.profile or place.profile, name, scopes)
        return self._offers.get(key), place, scopes, key

    def header_schema(self, endpoint: Endpoint, principal: Principal, name: str) -> JsonObject | None:
        """`mirrored` of the tool that is listed under this name, where this caller may see it."""
        card = self._router.catalog.whole.by_exposed_name(name)
        if card is None or (schema := self.mirrored(card)) is None:
            return None
        return schema if self.of(endpoint, principal).view.visible.get(card.key) is not None else None

    def mirrored(self, card: ToolCard) -> JsonObject | None:
        """The schema of a tool's arguments, where some of them must be repeated in headers."""
        if not self._definitions.wants_headers(card):
            return None
        schema = card.definition.get("inputSchema")
        return schema if isinstance(schema, Mapping) else None

    def _up_to_date(self) -> None:
        snapshot = self._router.catalog.whole
        if snapshot is not self._snapshot or self._router.profiles.version != self._profiles_version:
            self._renew(snapshot)

    def _renew(self, snapshot: Snapshot) -> None:
        profiles = self._router.profiles
        rules = self._router.settings.policy
        self._by_caller = profiles.by_caller or any(rule.caller is not None for rule in rules)
        self._profiles_version = profiles.version
        self._snapshot = snapshot
        self._offers.clear()
        self._latest = None
        self._pages.clear()
        self._definitions.forget_others(frozenset(card.key for card in snapshot.cards))

    def _make(
        self, endpoint: Endpoint, place: Place, principal: Principal, scopes: tuple[Scope, ...]
    ) -> Offer:
        view = self._router.view(caller=principal.name, profile=place.profile, scopes=scopes)
        name = principal.name if self._by_caller else None
        who: Who = (endpoint.mode, endpoint.profile, own_scopes(principal), principal.profiles, name)
        mode = decide(place.mode, view, self._router.switches.now.smart_routing)
        if place.mode == "auto":
            mode = self._steady(who, mode)
        return Offer(place=place, view=view, mode=mode, scopes=scopes, who=who)

    def _steady(self, who: Who, mode: str) -> str:
        """Once route, always route: an endpoint that changes back and forth would confuse every client."""
        if mode == ROUTE:
            _remember(self._routing, who, None)
        return ROUTE if who in self._routing else mode

    # -- lists --------------------------------------------------------------------------------------

    def page(
        self, endpoint: Endpoint, principal: Principal, *, cursor: object = None, modern: bool
    ) -> Encoded:
        """A page of `tools/list`. Raises `Refusal` for a cursor that leads nowhere."""
        offer = self.of(endpoint, principal)
        pages = self._list(offer, modern=modern)
        if cursor is None:
            _remember(self._given, offer.who, _Given(self._snapshot, pages.bodies, modern))
        return pages.page(cursor, self._hints(offer, principal, pages) if modern else None)

    async def encode(self, offer: Offer, *, modern: bool) -> None:
        """Before a page of a list is asked for: the first one takes long, and others have their turns."""
        if (offer.who, modern) not in self._pages:
            for place, card in enumerate(self._shown(offer), 1):
                self._definitions.of(card, modern=modern)
                if place % A_FEW == 0:
                    await anyio.lowlevel.checkpoint()

    def came(self, offer: Offer) -> None:
        """Somebody came who has not listed anything yet: they, too, hear when the tools change."""
        if offer.who not in self._given:
            _remember(self._given, offer.who, _Given(self._snapshot))

    def is_one_of(self, endpoint: Endpoint, principal: Principal, those: frozenset[Who]) -> bool:
        """Whether somebody is among those. Whoever came under a profile that is gone is nobody."""
        try:
            who = self.of(endpoint, principal).who
            return who in those or (*who[:-1], None) in those
        except Refusal:
            return False

    async def changed(self) -> frozenset[Who]:
        """Whose list is not the one they were given last. Each change is told once."""
        self._up_to_date()
        changed: list[Who] = []
        for who, before in tuple(self._given.items()):
            if self._by_caller and who[-1] is None:  # it did not matter who they are, and now it does
                self._given.pop(who, None)
                changed.append(who)
                continue
            try:
                now = await self._now(who, modern=before.modern)
            except Refusal:  # their profile is gone: they will hear so when they ask
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

    async def _now(self, who: Who, *, modern: bool) -> _Given:
        mode, profile, scopes, profiles, caller = who
        endpoint = Endpoint(path="", mode=mode, profile=profile)
        scope = scopes[0] if scopes else Scope()
        principal = Principal(name=caller or "", scope=scope, profiles=profiles)
        await self.encode(await self.prepared(endpoint, principal), modern=modern)
        pages = self._list(self.of(endpoint, principal), modern=modern)  # tools may have changed meanwhile
        return _Given(self._snapshot, pages.bodies, modern)

    def _list(self, offer: Offer, *, modern: bool) -> Pages:
        key = (offer.who, modern)
        pages = self._pages.get(key)
        if pages is None:
            pages = self._pages[key] = self._pages_of(offer, modern=modern)
            while len(self._pages) > _KEPT:
                self._pages.popitem(last=False)
        return pages

    def _pages_of(self, offer: Offer, *, modern: bool) -> Pages:
        cards = sorted(self._shown(offer), key=lambda card: list_place(card.key))
        ours = [(f"0/{tool['name']}", encoded(tool)) for tool in offer.own_tools]
        theirs = [(card.key, self._definitions.of(card, modern=modern)) for card in cards]
        entries = [*ours, *theirs] if offer.mode == ROUTE else [*theirs, *ours]
        return Pages(
            "tools",
            [name for name, _ in entries],
            [body for _, body in entries],
            self._settings.gateway.page_size,
        )

    def _shown(self, offer: Offer) -> Sequence[ToolCard]:
        if offer.mode != ROUTE:
            return offer.view.visible.cards
        pinned = offer.place.pinned
        if not pinned:
            return ()
        return [card for card in offer.view.visible.cards if _is_pinned(card, pinned)]

    def _hints(self, offer: Offer, principal: Principal, pages: Pages) -> Hints:
        """A list is private where another caller might get a different one, or none."""
        ours_alone = len(pages.names) == len(offer.own_tools)
        anybody = principal.kind == "local" and not principal.scope.bounded and not self._by_caller
        return Hints(milliseconds=FRESH_MS, private=not (ours_alone or anybody))


def _is_pinned(card: ToolCard, patterns: Sequence[str]) -> bool:
    return any(fits_exactly(pattern, card.key) is Fit.YES for pattern in patterns)


def _remember(kept: OrderedDict[Who, V], who: Who, value: V) -> None:
    kept[who] = value
    kept.move_to_end(who)
    while len(kept) > _REMEMBERED:
        kept.popitem(last=False)
