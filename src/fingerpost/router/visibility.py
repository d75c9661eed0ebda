"""The catalog as each caller may see it, cached, and the tools and servers that an operator has disabled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

import anyio
import anyio.to_thread

from fingerpost.call.visibility import add_profile_scope, find_hidden_tools
from fingerpost.catalog import Catalog, Snapshot
from fingerpost.events import Fanout, ServerSwitched, ToolSwitched
from fingerpost.frozen import frozen
from fingerpost.records import HiddenTool, Scope, utc_now
from fingerpost.servers import ServerPool
from fingerpost.settings import RuleSettings
from fingerpost.store import DisabledEntry, DisabledKind, Store

MAX_CACHED_VIEWS: Final = 100  # views

ViewKey = tuple[str | None, str | None, tuple[Scope, ...]]


@frozen
class VisibleCatalog:
    """The part of the catalog that one caller may see, and the hidden tools."""

    hidden: Mapping[str, HiddenTool]
    visible: Snapshot
    server_count: int  # servers with at least one visible tool


class VisibilityCache:
    """Views by caller and profile. Thread-safe."""

    def __init__(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope] | None = None) -> None:
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._views: OrderedDict[ViewKey, VisibleCatalog] = OrderedDict()
        self.set_rules(rules, bounds or {})

    def set_rules(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope]) -> None:
        """Replace the rules and the profiles' scopes (`bounds`)."""
        with self._lock:
            self._rules = rules
            self._bounds = bounds
            self._by_caller = any(rule.caller is not None for rule in rules)
            self._by_profile = any(rule.profile is not None for rule in rules)
            self._views.clear()

    def get_cached(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog | None:
        """Return the caller's view if it is cached, else None."""
        with self._lock:
            return (
                self._views.get(self._build_key(caller, profile, scopes))
                if snapshot is self._snapshot
                else None
            )

    def _build_key(self, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]) -> ViewKey:
        """Return the cache key. Callers that no rule distinguishes share a key."""
        scopes = add_profile_scope(scopes, profile, self._bounds)
        bounds = tuple(scope for scope in scopes if scope.bounded)
        return (caller if self._by_caller else None, profile if self._by_profile else None, bounds)

    def get_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """Return the caller's view. The first call after a change is slow: do not use it in an event loop."""
        with self._lock:
            key = self._build_key(caller, profile, scopes)
            if snapshot is not self._snapshot:
                self._snapshot = snapshot
                self._views.clear()
            view = self._views.get(key)
            if view is None:
                view = self._views[key] = self._build_view(snapshot, *key)
            self._views.move_to_end(key)
            while len(self._views) > MAX_CACHED_VIEWS:
                self._views.popitem(last=False)
            return view

    async def compute_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """Return the caller's view, computed in a thread if it is not cached."""
        known = self.get_cached(snapshot, caller, profile, scopes)
        return known or await anyio.to_thread.run_sync(self.get_view, snapshot, caller, profile, scopes)

    def _build_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]
    ) -> VisibleCatalog:
        hidden = find_hidden_tools(self._rules, snapshot.cards, caller=caller, profile=profile, scopes=scopes)
        visible = snapshot
        if hidden:
            cards = tuple(card for card in snapshot.cards if card.key not in hidden)
            visible = Snapshot(version=snapshot.version, cards=cards)
        return VisibleCatalog(
            hidden=hidden, visible=visible, server_count=len({card.server for card in visible.cards})
        )


class DisabledTools:
    """Enables and disables tools and servers, and applies changes of other processes."""

    def __init__(self, *, store: Store, catalog: Catalog, servers: ServerPool, events: Fanout) -> None:
        self._store = store
        self._catalog = catalog
        self._servers = servers
        self._events = events
        self._disabled: dict[tuple[DisabledKind, str], DisabledEntry] = {}
        self._changing = anyio.Lock()

    def find_entry(self, kind: DisabledKind, name: str) -> DisabledEntry | None:
        """Return who disabled this, when and why, or None if it is enabled."""
        return self._disabled.get((kind, name))

    async def refresh(self) -> None:
        """Apply the store's current entries."""
        async with self._changing:
            await self._apply()

    async def set_tool_enabled(self, key: str, *, enabled: bool, by: str, reason: str = "") -> bool:
        """Enable or disable a tool by key. Return False if nothing changed."""
        return await self._set_enabled(DisabledKind.TOOL, key, on=enabled, by=by, reason=reason)

    async def set_server_enabled(self, name: str, *, enabled: bool, by: str, reason: str = "") -> bool:
        """Enable or disable a server by name. Return False if nothing changed."""
        return await self._set_enabled(DisabledKind.SERVER, name, on=enabled, by=by, reason=reason)

    async def _set_enabled(self, kind: DisabledKind, name: str, *, on: bool, by: str, reason: str) -> bool:
        async with self._changing:
            if on:
                changed = await self._store.disabled.enable(kind, name)
            else:
                entry = DisabledEntry(what=kind, name=name, by=by, at=utc_now(), reason=reason)
                changed = await self._store.disabled.disable(entry)
            if changed:
                self._emit_switched(kind, name, on=on, by=by, reason=reason)
            await self._apply()
        await self._store.journal.flush()
        return changed

    def _emit_switched(self, kind: DisabledKind, name: str, *, on: bool, by: str, reason: str) -> None:
        if kind is DisabledKind.TOOL:
            self._events.emit(ToolSwitched(tool=name, on=on, by=by, reason=reason))
        else:
            self._events.emit(ServerSwitched(server=name, on=on, by=by, reason=reason))

    async def _apply(self) -> None:
        disabled = {(entry.what, entry.name): entry for entry in await self._store.disabled.list_all()}
        changed = disabled != self._disabled
        self._disabled = disabled
        off = {what: _describe_entries(disabled.values(), what) for what in DisabledKind}
        if changed:
            self._catalog.set_disabled(off[DisabledKind.TOOL], off[DisabledKind.SERVER])
        if changed or off[DisabledKind.SERVER]:
            # Must complete even if the caller is cancelled: the change is stored.
            with anyio.CancelScope(shield=True):
                await self._apply_to_servers(off[DisabledKind.SERVER])

    async def _apply_to_servers(self, off: Mapping[str, str]) -> None:
        for status in self._servers.statuses:
            if (reason := off.get(status.name)) is None:
                self._servers.enable(status.name)
            else:
                await self._servers.disable(status.name, reason)


def _describe_entries(entries: Iterable[DisabledEntry], kind: DisabledKind) -> dict[str, str]:
    return {entry.name: entry.describe() for entry in entries if entry.what is kind}
