"""Servers whose tools cannot be found now, for a caller who could use some of them if they were up.

Nobody can say yet which tools such a server has. It is named where the caller's scopes and the rules
leave them any tool it might have; all others stay unnamed, as if they were not configured.
"""

from __future__ import annotations

from fingerpost.call.hiding import hidden_tools
from fingerpost.call.unseen import may_have_any
from fingerpost.catalog.absence import server_away
from fingerpost.records import ServerStatus, ToolCard
from fingerpost.router import Router
from fingerpost.surfaces.gateway.offers.tools import Offer


def servers_away(router: Router, offer: Offer, caller: str) -> dict[str, ServerStatus]:
    """By name: what is configured and not up, as far as this caller may know of it."""
    away = {status.name: status for status in router.servers.statuses if server_away("", status)}
    if not away:
        return {}
    known: dict[str, list[ToolCard]] = {}
    for card in (*router.catalog.whole.cards, *router.catalog.away.cards):
        if card.server in away:
            known.setdefault(card.server, []).append(card)
    rules, profile, scopes = router.settings.policy, offer.place.profile, offer.scopes

    def is_theirs(server: str) -> bool:
        if cards := known.get(server):
            hidden = hidden_tools(rules, cards, caller=caller, profile=profile, scopes=scopes)
            return any(card.key not in hidden for card in cards)
        return may_have_any(rules, server, caller=caller, profile=profile, scopes=scopes)

    return {name: away[name] for name in sorted(away) if is_theirs(name)}
