"""Servers whose tools cannot be found now, for a caller who could use some of them if they were up.

Nobody can say yet which tools such a server has. It is named where the caller's scopes and the rules
leave them any tool it might have; all others stay unnamed, as if they were not configured.
"""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.call.hiding import hidden_tools
from fingerpost.call.patterns import Fit, fits_exactly, fits_somehow
from fingerpost.catalog.absence import server_away
from fingerpost.records import Scope, ServerStatus, ToolCard
from fingerpost.router import Router
from fingerpost.settings import RuleSettings
from fingerpost.surfaces.gateway.offers.tools import Offer


def servers_away(router: Router, offer: Offer, caller: str) -> dict[str, ServerStatus]:
    """By name: what is configured and not up, as far as this caller may know of it."""
    away = {status.name: status for status in router.servers.statuses if server_away("", status)}
    if not away:
        return {}
    known: dict[str, list[ToolCard]] = {}
    for card in (*router.tools.cards, *router.catalog.away.cards):
        if card.server in away:
            known.setdefault(card.server, []).append(card)
    rules, profile, scopes = router.settings.policy, offer.place.profile, offer.scopes

    def is_theirs(server: str) -> bool:
        if cards := known.get(server):
            hidden = hidden_tools(rules, cards, caller=caller, profile=profile, scopes=scopes)
            return any(card.key not in hidden for card in cards)
        return _in_scope(scopes, server) and not _all_denied(rules, server, caller, profile)

    return {name: away[name] for name in sorted(away) if is_theirs(name)}


def _in_scope(scopes: Sequence[Scope], server: str) -> bool:
    """Whether each of them holds the server and leaves something of it."""
    return all(
        (not scope.servers or any(fits_exactly(pattern, server) is Fit.YES for pattern in scope.servers))
        and (not scope.tools or any(_reaches(pattern, server) for pattern in scope.tools))
        for scope in scopes
    )


def _reaches(pattern: str, server: str) -> bool:
    """Whether some key of this server fits: the pattern's beginning does, and something fits the rest."""
    return any(fits_exactly(pattern[:end], f"{server}/") is Fit.YES for end in range(1, len(pattern) + 1))


def _all_denied(rules: Sequence[RuleSettings], server: str, caller: str, profile: str | None) -> bool:
    """Whether a rule denies whatever this server has, before any that might let something through."""
    for rule in rules:
        if not _concerns(rule, server, caller, profile):
            continue
        if rule.verdict != "deny":
            if rule.tool is None or "/" not in rule.tool or _reaches(rule.tool, server):
                return False
        elif _holds_for_all(rule, server):
            return True
    return False


def _concerns(rule: RuleSettings, server: str, caller: str, profile: str | None) -> bool:
    denying = rule.verdict != "allow"
    fits = fits_somehow if denying else fits_exactly

    def one(pattern: str | None, name: str | None) -> bool:
        if pattern is None:
            return True
        return (name is not None or denying) and fits(pattern, name or "") is Fit.YES

    return one(rule.server, server) and one(rule.caller, caller) and one(rule.profile, profile)


def _holds_for_all(rule: RuleSettings, server: str) -> bool:
    """Whether it holds whichever tool of the server is called, and with whatever arguments."""
    conditional = (
        rule.effect is not None or rule.arguments or rule.paths is not None or rule.operation is not None
    )
    every = rule.tool is None or (
        rule.tool.endswith("*") and fits_somehow(rule.tool, f"{server}/") is Fit.YES
    )
    return every and not conditional
