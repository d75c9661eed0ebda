"""What each caller may see of the catalog.

Which rule hides which tool depends on the tools, the rules and the caller alone, and
reading many tools against many rules takes long: it is worked out once for each and
kept for as long as the catalog stays as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Final

import anyio.to_thread

from fingerpost.call.hiding import find_hidden_tools
from fingerpost.call.scopes import add_profile_scope
from fingerpost.catalog import Snapshot
from fingerpost.frozen import frozen
from fingerpost.records import HiddenTool, Scope
from fingerpost.settings import RuleSettings

MAX_CACHED_VIEWS: Final = 100  # callers

ViewKey = tuple[str | None, str | None, tuple[Scope, ...]]


@frozen
class VisibleCatalog:
    """The catalog as one caller may see it, and what is hidden from them."""

    hidden: Mapping[str, HiddenTool]
    visible: Snapshot
    servers: int  # of which something is visible


class VisibilityCache:
    """Views by caller and profile. Safe to use from several threads."""

    def __init__(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope] | None = None) -> None:
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._views: OrderedDict[ViewKey, VisibleCatalog] = OrderedDict()
        self.set_rules(rules, bounds or {})

    def set_rules(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope]) -> None:
        """See by these from now on; `bounds` are of profiles."""
        with self._lock:
            self._rules = rules
            self._bounds = bounds
            self._by_caller = any(rule.caller is not None for rule in rules)
            self._by_profile = any(rule.profile is not None for rule in rules)
            self._views.clear()

    def get_cached(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog | None:
        """What this caller sees, where that was worked out before; this takes no time."""
        with self._lock:
            return (
                self._views.get(self._build_key(caller, profile, scopes))
                if snapshot is self._snapshot
                else None
            )

    def _build_key(self, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]) -> ViewKey:
        """Whoever no rule tells apart sees the same."""
        scopes = add_profile_scope(scopes, profile, self._bounds)
        bounds = tuple(scope for scope in scopes if scope.bounded)
        return (caller if self._by_caller else None, profile if self._by_profile else None, bounds)

    def get_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """What this caller sees. The first time after a change takes a moment: not for an event loop."""
        with self._lock:
            key = self._build_key(caller, profile, scopes)
            if snapshot is not self._snapshot:
                self._snapshot = snapshot
                self._views.clear()
            view = self._views.get(key)
            if view is None:
                view = self._views[key] = self._compute_in_thread(snapshot, *key)
            self._views.move_to_end(key)
            while len(self._views) > MAX_CACHED_VIEWS:
                self._views.popitem(last=False)
            return view

    async def compute_view(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> VisibleCatalog:
        """The same, worked out in a thread where it was not before."""
        known = self.get_cached(snapshot, caller, profile, scopes)
        return known or await anyio.to_thread.run_sync(self.get_view, snapshot, caller, profile, scopes)

    def _compute_in_thread(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]
    ) -> VisibleCatalog:
        hidden = find_hidden_tools(self._rules, snapshot.cards, caller=caller, profile=profile, scopes=scopes)
        visible = snapshot
        if hidden:
            cards = tuple(card for card in snapshot.cards if card.key not in hidden)
            visible = Snapshot(version=snapshot.version, cards=cards)
        return VisibleCatalog(
            hidden=hidden, visible=visible, servers=len({card.server for card in visible.cards})
        )
