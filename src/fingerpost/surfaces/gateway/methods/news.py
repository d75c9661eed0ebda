"""What changed, told once to those whose list it changed.

Servers tell of many changes at once, when they start for one: news waits a moment
and then says what came of all of them.
"""

from __future__ import annotations

from typing import Final

import anyio

from fingerpost.events import CatalogChanged, Event, ProfilesChanged
from fingerpost.records import JsonObject
from fingerpost.router import Router
from fingerpost.surfaces.gateway.exchange import Audience, ClientRequest, Refusal
from fingerpost.surfaces.gateway.methods.levels import Levels
from fingerpost.surfaces.gateway.methods.subscriptions import UPDATED, Subscriptions
from fingerpost.surfaces.gateway.offers import ToolOffers
from fingerpost.surfaces.gateway.offers.materials import KINDS, Kind, MaterialOffers, Shelf, Viewer

MOMENT_S: Final = 0.1
MESSAGE: Final = "notifications/message"
TOOLS: Final = "notifications/tools/list_changed"
RESOURCES: Final = "notifications/resources/list_changed"
PROMPTS: Final = "notifications/prompts/list_changed"
_ABOUT: Final[tuple[tuple[Kind, str], ...]] = (
    ("resources", RESOURCES),
    ("resourceTemplates", RESOURCES),
    ("prompts", PROMPTS),
)


class News:
    """Hears of every change and publishes what matters to whom."""

    def __init__(
        self,
        router: Router,
        *,
        audience: Audience,
        tools: ToolOffers,
        materials: MaterialOffers,
        subscriptions: Subscriptions,
        levels: Levels,
    ) -> None:
        self._router = router
        self._audience = audience
        self._tools = tools
        self._materials = materials
        self._subscriptions = subscriptions
        self._levels = levels
        self._something = anyio.Event()
        self._over = False
        self._known: dict[Viewer, dict[Kind, bytes]] = {}

    async def run(self) -> None:
        """Go on telling until cancelled."""
        stop = (self._router.servers.hear(self.heard), self._router.servers.watch(lambda _: self._wake()))
        self._router.events.add(self)
        try:
            while True:
                await self._something.wait()
                await anyio.sleep(MOMENT_S)
                self._something = anyio.Event()
                await self._tell_tools()
                self._tell_materials()
        finally:
            self._over = True
            for each in stop:
                each()

    # -- hearing ------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """As a sink of events: the catalog changes for other reasons than a server's list, too."""
        if type(event) in (CatalogChanged, ProfilesChanged) and not self._over:
            self._wake()

    def _wake(self) -> None:
        self._something.set()

    def heard(self, server: str, method: str, params: JsonObject, caller: str | None) -> None:
        """A server said something outside of any request; to this caller alone where one is named."""
        if method == UPDATED:
            self._subscriptions.updated(server, params)
        elif method == MESSAGE:
            self._pass_on(server, params, caller)
        elif method.endswith("/list_changed"):
            self._wake()

    def _pass_on(self, server: str, params: JsonObject, caller: str | None) -> None:
        """A log message that belongs to no request: for sessions that may use the server and want to hear."""

        def for_them(request: ClientRequest) -> bool:
            if caller not in (None, request.caller_key):
                return False
            viewer = self._viewer(request)
            if viewer is None or not self._levels.wants(request.session, params.get("level")):
                return False
            return self._materials.permits(viewer, server)

        self._audience.publish(MESSAGE, params, to=for_them)

    # -- telling ------------------------------------------------------------------------------------

    async def _tell_tools(self) -> None:
        changed = await self._tools.changed()
        if changed:
            self._audience.publish(
                TOOLS,
                {},
                to=lambda them: self._tools.is_one_of(them.endpoint, them.principal, changed),
            )

    def listed(self, viewer: Viewer, kind: Kind, fingerprint: bytes) -> None:
        """This list was given to somebody, who will want to know when it changes."""
        self._known.setdefault(viewer, {})[kind] = fingerprint
        if len(self._known) > 1000:
            self._known.pop(next(iter(self._known)))

    def came(self, shelf: Shelf) -> None:
        """Somebody came who has not listed anything yet: they, too, hear when something changes."""
        known = self._known.get(shelf.viewer, {})
        for kind in KINDS:
            if kind not in known:
                self.listed(shelf.viewer, kind, shelf.pages(kind).fingerprint)

    def _tell_materials(self) -> None:
        changed: dict[str, set[Viewer]] = {}
        for viewer, lists in self._known.items():
            shelf = self._materials.seen_by(viewer)
            for kind, method in _ABOUT:
                before = lists.get(kind)
                if before is not None and before != (now := shelf.pages(kind).fingerprint):
                    lists[kind] = now
                    changed.setdefault(method, set()).add(viewer)
        for method, viewers in changed.items():
            self._audience.publish(
                method,
                {},
                to=lambda them, viewers=viewers: self._viewer(them) in viewers,
            )

    def _viewer(self, them: ClientRequest) -> Viewer | None:
        """None for whoever came under a profile that is gone."""
        try:
            return self._materials.viewer(them.endpoint, them.principal)
        except Refusal:
            return None
