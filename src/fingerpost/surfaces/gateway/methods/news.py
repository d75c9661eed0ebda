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
from fingerpost.surfaces.gateway.exchange import ClientRequest, JsonRpcError, NotificationAudience
from fingerpost.surfaces.gateway.methods.levels import LogLevels
from fingerpost.surfaces.gateway.methods.subscriptions import RESOURCE_UPDATED, SessionSubscriptions
from fingerpost.surfaces.gateway.offers import ToolListing
from fingerpost.surfaces.gateway.offers.materials import (
    RESOURCE_KINDS,
    ResourceKind,
    ResourceListing,
    ResourceViewer,
    VisibleResources,
)

COLLECT_DELAY_S: Final = 0.1
LOG_MESSAGE_METHOD: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"
RESOURCES_CHANGED: Final = "notifications/resources/list_changed"
PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"
_KINDS_BY_METHOD: Final[tuple[tuple[ResourceKind, str], ...]] = (
    ("resources", RESOURCES_CHANGED),
    ("resourceTemplates", RESOURCES_CHANGED),
    ("prompts", PROMPTS_CHANGED),
)


class ChangeNotifier:
    """Hears of every change and publishes what matters to whom."""

    def __init__(
        self,
        router: Router,
        *,
        audience: NotificationAudience,
        tools: ToolListing,
        resources: ResourceListing,
        subscriptions: SessionSubscriptions,
        levels: LogLevels,
    ) -> None:
        self._router = router
        self._audience = audience
        self._tools = tools
        self._materials = resources
        self._subscriptions = subscriptions
        self._levels = levels
        self._something = anyio.Event()
        self._over = False
        self._known: dict[ResourceViewer, dict[ResourceKind, bytes]] = {}

    async def run(self) -> None:
        """Go on telling until cancelled."""
        stop = (
            self._router.servers.subscribe_to_notifications(self.on_server_notification),
            self._router.servers.subscribe_to_changes(lambda _: self._wake()),
        )
        self._router.events.add(self)
        try:
            while True:
                await self._something.wait()
                await anyio.sleep(COLLECT_DELAY_S)
                self._something = anyio.Event()
                await self._notify_tools_changed()
                self._notify_resources_changed()
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

    def on_server_notification(
        self, server: str, method: str, params: JsonObject, caller: str | None
    ) -> None:
        """A server said something outside of any request; to this caller alone where one is named."""
        if method == RESOURCE_UPDATED:
            self._subscriptions.on_resource_updated(server, params)
        elif method == LOG_MESSAGE_METHOD:
            self._forward_log_message(server, params, caller)
        elif method.endswith("/list_changed"):
            self._wake()

    def _forward_log_message(self, server: str, params: JsonObject, caller: str | None) -> None:
        """A log message that belongs to no request: for sessions that may use the server and want to hear."""

        def for_them(request: ClientRequest) -> bool:
            if caller not in (None, request.caller_key):
                return False
            viewer = self._find_viewer(request)
            if viewer is None or not self._levels.wants(request.session, params.get("level")):
                return False
            return self._materials.is_permitted(viewer, server)

        self._audience.publish(LOG_MESSAGE_METHOD, params, should_receive=for_them)

    # -- telling ------------------------------------------------------------------------------------

    async def _notify_tools_changed(self) -> None:
        changed = await self._tools.find_changed_viewers()
        if changed:
            self._audience.publish(
                TOOLS_CHANGED,
                {},
                should_receive=lambda them: self._tools.is_one_of(them.endpoint, them.principal, changed),
            )

    def remember_list(self, viewer: ResourceViewer, kind: ResourceKind, fingerprint: bytes) -> None:
        """This list was given to somebody, who will want to know when it changes."""
        self._known.setdefault(viewer, {})[kind] = fingerprint
        if len(self._known) > 1000:
            self._known.pop(next(iter(self._known)))

    def remember_client(self, resources: VisibleResources) -> None:
        """Somebody came who has not listed anything yet: they, too, hear when something changes."""
        known = self._known.get(resources.viewer, {})
        for kind in RESOURCE_KINDS:
            if kind not in known:
                self.remember_list(resources.viewer, kind, resources.get_pages(kind).fingerprint)

    def _notify_resources_changed(self) -> None:
        changed: dict[str, set[ResourceViewer]] = {}
        for viewer, lists in self._known.items():
            shelf = self._materials.get_viewed_resources(viewer)
            for kind, method in _KINDS_BY_METHOD:
                before = lists.get(kind)
                if before is not None and before != (now := shelf.get_pages(kind).fingerprint):
                    lists[kind] = now
                    changed.setdefault(method, set()).add(viewer)
        for method, viewers in changed.items():
            self._audience.publish(
                method,
                {},
                should_receive=lambda them, viewers=viewers: self._find_viewer(them) in viewers,
            )

    def _find_viewer(self, request: ClientRequest) -> ResourceViewer | None:
        """None for whoever came under a profile that is gone."""
        try:
            return self._materials.get_viewer(request.endpoint, request.principal)
        except JsonRpcError:
            return None
