"""Every tool there is, offered or not, with the one word that says why.

Read once for each request: which tools are listed, held back or switched off, which
servers cannot be used, what past calls teach. Telling lines from it is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal, cast

from fingerpost.call.execution import BreakerState
from fingerpost.catalog import build_tool_key
from fingerpost.frozen import frozen
from fingerpost.records import (
    DroppedTool,
    Effect,
    HiddenTool,
    Principal,
    Quarantined,
    ServerState,
    Source,
    ToolCard,
    UsageProfile,
)
from fingerpost.router import Router
from fingerpost.surfaces.api.resources.bounds import ManagedScope, build_managed_scope

ToolState = Literal["offered", "hidden", "quarantined", "off", "server_down"]


@frozen
class ToolLine:
    """One tool. `state` is how it stands with whoever asks, `reason` why it is not offered."""

    key: str
    name: str  # as its server calls it
    server: str
    exposed_name: str = ""  # as models see it
    title: str = ""
    description: str = ""
    effect: Effect | None = None  # None: switched off in the settings, so nobody looked
    effect_source: Source | None = None
    effect_doubt: str = ""  # why it is not certain that it only reads; it is asked about then
    state: ToolState
    reason: str = ""
    calls: int = 0
    failures: int = 0
    typical_ms: float | None = None  # None: never called
    typical_tokens: int | None = None
    last_used: datetime | None = None


@frozen
class ToolInventory:
    """All tools as one caller may know of them."""

    cards: Mapping[str, ToolCard]  # in the order of the keys
    off: Mapping[str, str]
    quarantined: Mapping[str, Quarantined]
    hidden: Mapping[str, HiddenTool]
    down: Mapping[str, str]  # servers
    dropped: tuple[DroppedTool, ...]  # switched off in the settings
    usage: Mapping[str, UsageProfile]

    def list_lines(self) -> Iterator[ToolLine]:
        """Every tool, by key."""
        lines = [
            *(self.build_line(card) for card in self.cards.values()),
            *(_build_dropped_line(drop) for drop in self.dropped if _get_dropped_key(drop) not in self.cards),
        ]
        yield from sorted(lines, key=lambda line: line.key)

    def build_line(self, card: ToolCard) -> ToolLine:
        state, reason = self._get_state(card)
        used = self.usage.get(card.key)
        return ToolLine(
            key=card.key,
            name=card.name,
            server=card.server,
            exposed_name=card.exposed_name,
            title=_get_card_title(card),
            description=card.description,
            effect=card.effect.value,
            effect_source=card.effect.source,
            effect_doubt=card.doubt,
            state=state,
            reason=reason,
            calls=used.calls if used else 0,
            failures=used.failures if used else 0,
            typical_ms=used.typical_ms if used else None,
            typical_tokens=used.typical_tokens if used else None,
            last_used=used.last_used if used else None,
        )

    def _get_state(self, card: ToolCard) -> tuple[ToolState, str]:
        """What a person did comes before what a rule says, and that before what is broken."""
        if (reason := self.off.get(card.key)) is not None:
            return "off", reason
        if (held := self.quarantined.get(card.key)) is not None:
            what = "it is new on a server seen" if held.new else "its definition changed since it was pinned"
            return "quarantined", f"{what} on {held.pin.pinned_at:%Y-%m-%d}"
        if (hidden := self.hidden.get(card.key)) is not None:
            return "hidden", f"{hidden.reason} ({hidden.rule})" if hidden.reason else hidden.rule
        if (reason := self.down.get(card.server)) is not None:
            return "server_down", f"{card.server}: {reason}"
        return "offered", ""


async def build_inventory(router: Router, principal: Principal, profile: str | None = None) -> ToolInventory:
    """All tools as they are now, for this caller (and as seen through a profile)."""
    bounds = build_managed_scope(principal, router.profiles)
    hidden = await _find_hidden(router, principal, bounds if profile is None else bounds.for_profile(profile))
    usage = await router.store.usage.get_profiles()
    catalog = router.catalog
    quarantined = {entry.card.key: entry for entry in catalog.quarantined}
    shut = catalog.disabled.cards
    every = {
        card.key: card
        for card in (*router.tools.cards, *(entry.card for entry in quarantined.values()), *shut)
        if bounds.covers_tool(card.server, card.key)
    }
    return ToolInventory(
        cards=every,
        off={card.key: catalog.get_disabled_reason(card) or "" for card in shut},
        quarantined=quarantined,
        hidden=hidden,
        down=find_unusable_servers(router),
        dropped=tuple(
            drop
            for drop in catalog.dropped
            if drop.switched_off and bounds.covers_tool(drop.server, _get_dropped_key(drop))
        ),
        usage=usage,
    )


async def _find_hidden(
    router: Router, principal: Principal, bounds: ManagedScope
) -> Mapping[str, HiddenTool]:
    """What they cannot use by any way they have."""
    views = [
        await router.look(caller=principal.name, profile=reach.profile, scopes=reach.scopes)
        for reach in bounds.access_scopes
    ]
    if not views:
        return {}
    first, *others = views
    return {key: tool for key, tool in first.hidden.items() if all(key in view.hidden for view in others)}


def find_unusable_servers(router: Router) -> dict[str, str]:
    """Servers whose tools cannot be called now, each with the reason."""
    reasons = {
        status.name: status.reason or "it is down"
        for status in router.servers.statuses
        if status.state is ServerState.DOWN
    }
    for server, breaker in router.calls.runner.breakers.items():
        if breaker.state is BreakerState.OPEN:
            reasons.setdefault(server, f"it failed too often: {breaker.reason}")
    return reasons


def _get_card_title(card: ToolCard) -> str:
    title = card.definition.get("title")
    if not isinstance(title, str):
        notes = card.definition.get("annotations")
        title = cast("Mapping[str, object]", notes).get("title") if isinstance(notes, Mapping) else None
    return title if isinstance(title, str) else ""


def _get_dropped_key(drop: DroppedTool) -> str:
    return build_tool_key(drop.server, "") + drop.name  # whose unseen characters are written out already


def _build_dropped_line(drop: DroppedTool) -> ToolLine:
    return ToolLine(
        key=_get_dropped_key(drop),
        name=drop.name,
        server=drop.server,
        state="off",
        reason=drop.reason,
    )
