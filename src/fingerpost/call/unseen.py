"""Servers whose tools nobody has seen: whether a caller may know of them at all.

Where the caller's scopes and the rules leave them any tool that such a server might have, they may.
"""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.call.patterns import Fit, fits_exactly, fits_somehow
from fingerpost.records import Scope
from fingerpost.settings import RuleSettings


def may_have_any(
    rules: Sequence[RuleSettings],
    server: str,
    *,
    caller: str | None = None,
    profile: str | None = None,
    scopes: Sequence[Scope] = (),
) -> bool:
    """Whether this caller could call something of the server, if it had the right tool."""
    return _in_scope(scopes, server) and not _all_denied(rules, server, caller, profile)


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


def _all_denied(rules: Sequence[RuleSettings], server: str, caller: str | None, profile: str | None) -> bool:
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


def _concerns(rule: RuleSettings, server: str, caller: str | None, profile: str | None) -> bool:
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
