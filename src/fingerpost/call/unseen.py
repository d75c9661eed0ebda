"""Servers whose tools nobody has seen: whether a caller may know of them at all.

Where the caller's scopes and the rules leave them any tool that such a server might have, they may.
"""

from __future__ import annotations

from collections.abc import Sequence

from fingerpost.call.patterns import PatternFit, match_exactly, match_loosely
from fingerpost.records import Scope
from fingerpost.settings import RuleSettings


def may_call_any(
    rules: Sequence[RuleSettings],
    server: str,
    *,
    caller: str | None = None,
    profile: str | None = None,
    scopes: Sequence[Scope] = (),
) -> bool:
    """Whether this caller could call something of the server, if it had the right tool."""
    return _is_server_in_scopes(scopes, server) and not _is_all_denied(rules, server, caller, profile)


def _is_server_in_scopes(scopes: Sequence[Scope], server: str) -> bool:
    """Whether each of them holds the server and leaves something of it."""
    return all(
        (
            not scope.servers
            or any(match_exactly(pattern, server) is PatternFit.YES for pattern in scope.servers)
        )
        and (not scope.tools or any(_can_match_server(pattern, server) for pattern in scope.tools))
        for scope in scopes
    )


def _can_match_server(pattern: str, server: str) -> bool:
    """Whether some key of this server fits: the pattern's beginning does, and something fits the rest."""
    return any(
        match_exactly(pattern[:end], f"{server}/") is PatternFit.YES for end in range(1, len(pattern) + 1)
    )


def _is_all_denied(
    rules: Sequence[RuleSettings], server: str, caller: str | None, profile: str | None
) -> bool:
    """Whether a rule denies whatever this server has, before any that might let something through."""
    for rule in rules:
        if not _concerns_server(rule, server, caller, profile):
            continue
        if rule.verdict != "deny":
            if rule.tool is None or "/" not in rule.tool or _can_match_server(rule.tool, server):
                return False
        elif _holds_for_server(rule, server):
            return True
    return False


def _concerns_server(rule: RuleSettings, server: str, caller: str | None, profile: str | None) -> bool:
    denying = rule.verdict != "allow"
    fits = match_loosely if denying else match_exactly

    def one(pattern: str | None, name: str | None) -> bool:
        if pattern is None:
            return True
        return (name is not None or denying) and fits(pattern, name or "") is PatternFit.YES

    return one(rule.server, server) and one(rule.caller, caller) and one(rule.profile, profile)


def _holds_for_server(rule: RuleSettings, server: str) -> bool:
    """Whether it holds whichever tool of the server is called, and with whatever arguments."""
    conditional = (
        rule.effect is not None or rule.arguments or rule.paths is not None or rule.operation is not None
    )
    every = rule.tool is None or (
        rule.tool.endswith("*") and match_loosely(rule.tool, f"{server}/") is PatternFit.YES
    )
    return every and not conditional
