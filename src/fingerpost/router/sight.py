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

from fingerpost.call.hiding import hidden_tools
from fingerpost.call.scopes import bounded_by
from fingerpost.catalog import Snapshot
from fingerpost.frozen import frozen
from fingerpost.records import HiddenTool, Scope
from fingerpost.settings import RuleSettings

KEPT: Final = 100  # callers

Who = tuple[str | None, str | None, tuple[Scope, ...]]


@frozen
class View:
    """The catalog as one caller may see it, and what is hidden from them."""

    hidden: Mapping[str, HiddenTool]
    visible: Snapshot
    servers: int  # of which something is visible


class Sight:
    """Views by caller and profile. Safe to use from several threads."""

    def __init__(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope] | None = None) -> None:
        self._lock = Lock()
        self._snapshot: Snapshot | None = None
        self._views: OrderedDict[Who, View] = OrderedDict()
        self.use(rules, bounds or {})

    def use(self, rules: Sequence[RuleSettings], bounds: Mapping[str, Scope]) -> None:
        """See by these from now on; `bounds` are of profiles."""
        with self._lock:
            self._rules = rules
            self._bounds = bounds
            self._by_caller = any(rule.caller is not None for rule in rules)
            self._by_profile = any(rule.profile is not None for rule in rules)
            self._views.clear()

    def known(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> View | None:
        """What this caller sees, where that was worked out before; this takes no time."""
        with self._lock:
            return self._views.get(self._key(caller, profile, scopes)) if snapshot is self._snapshot else None

    def _key(self, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]) -> Who:
        """Whoever no rule tells apart sees the same."""
        scopes = bounded_by(scopes, profile, self._bounds)
        bounds = tuple(scope for scope in scopes if scope.bounded)
        return (caller if self._by_caller else None, profile if self._by_profile else None, bounds)

    def of(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> View:
        """What this caller sees. The first time after a change takes a moment: not for an event loop."""
        with self._lock:
            key = self._key(caller, profile, scopes)
            if snapshot is not self._snapshot:
                self._snapshot = snapshot
                self._views.clear()
            view = self._views.get(key)
            if view is None:
                view = self._views[key] = self._look(snapshot, *key)
            self._views.move_to_end(key)
            while len(self._views) > KEPT:
                self._views.popitem(last=False)
            return view

    async def look(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...] = ()
    ) -> View:
        """The same, worked out in a thread where it was not before."""
        known = self.known(snapshot, caller, profile, scopes)
        return known or await anyio.to_thread.run_sync(self.of, snapshot, caller, profile, scopes)

    def _look(
        self, snapshot: Snapshot, caller: str | None, profile: str | None, scopes: tuple[Scope, ...]
    ) -> View:
        hidden = hidden_tools(self._rules, snapshot.cards, caller=caller, profile=profile, scopes=scopes)
        visible = snapshot
        if hidden:
            cards = tuple(card for card in snapshot.cards if card.key not in hidden)
            visible = Snapshot(version=snapshot.version, cards=cards)
        return View(hidden=hidden, visible=visible, servers=len({card.server for card in visible.cards}))
