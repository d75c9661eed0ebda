"""Servers whose tools cannot be found now, for a caller who could use some of them if they were up.

Nobody can say yet which tools such a server has. It is named where the caller's scopes and the rules
leave them any tool it might have; all others stay unnamed, as if they were not configured.
"""

from __future__ import annotations

from fingerpost.call.hiding import find_hidden_tools
from fingerpost.call.unseen import may_call_any
from fingerpost.catalog.absence import build_server_unavailable
from fingerpost.records import ServerStatus, ToolCard
from fingerpost.router import Router
from fingerpost.surfaces.gateway.offers.tools import EndpointTools


def find_unavailable_servers(
    router: Router, endpoint_tools: EndpointTools, caller: str
) -> dict[str, ServerStatus]:
    """By name: what is configured and not up, as far as this caller may know of it."""
    away = {status.name: status for status in router.servers.statuses if build_server_unavailable("", status)}
    if not away:
        return {}
    known: dict[str, list[ToolCard]] = {}
    for card in (*router.catalog.full_snapshot.cards, *router.catalog.unavailable.cards):
        if card.server in away:
            known.setdefault(card.server, []).append(card)
    rules, profile, scopes = router.settings.policy, endpoint_tools.config.profile, endpoint_tools.scopes

    def is_theirs(server: str) -> bool:
        if cards := known.get(server):
            hidden = find_hidden_tools(rules, cards, caller=caller, profile=profile, scopes=scopes)
            return any(card.key not in hidden for card in cards)
        return may_call_any(rules, server, caller=caller, profile=profile, scopes=scopes)

    return {name: away[name] for name in sorted(away) if is_theirs(name)}
