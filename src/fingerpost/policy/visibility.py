"""Which tools and servers a caller can see: scopes of keys and profiles, rules that always deny, and the
catalog as each caller sees it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Final

import anyio.to_thread

from fingerpost.catalog import Snapshot
from fingerpost.frozen import frozen
from fingerpost.policy.paths import PatternFit, match_exactly, match_loosely
from fingerpost.records import Effect, HiddenTool, Scope, ToolCard
from fingerpost.settings import OwnRule, ProfileRule, ProgramRule, RuleSettings


def build_rule_names(rules: Sequence[RuleSettings], source: str) -> tuple[str, ...]:
    """Return one name per rule, in order. Rules from code and from files are numbered separately."""
    names: list[str] = []
    given = written = 0
    for rule in rules:
        if isinstance(rule, ProfileRule):
            names.append(f"a rule of the profile {rule.profile}")
        elif isinstance(rule, OwnRule):
            names.append(f"default of {rule.server}")
        elif isinstance(rule, ProgramRule):
            given += 1
            names.append(f"rule {given} of the program's policy")
        else:
            written += 1
            names.append(f"rule {written} in {source}")
    return tuple(names)


def add_profile_scope(
    scopes: tuple[Scope, ...], profile: str | None, bounds: Mapping[str, Scope]
) -> tuple[Scope, ...]:
    """Return the scopes with the scope of the profile added.

    If the profile defines tools for agents, those replace the profile's scope for an agent. The scope of the
    caller's key still applies.
    """
    bound = None if profile is None else bounds.get(profile)
    if bound is not None and bound not in scopes:
        scopes = (*scopes, bound)
    delegated = {scope.profile for scope in scopes if scope.delegated}
    if not delegated:
        return scopes
    return tuple(
        scope
        for scope in scopes
        if scope.delegated or scope.profile is None or scope.profile not in delegated
    )


def is_within_scopes(scopes: Iterable[Scope], server: str, key: str, effect: Effect) -> bool:
    """Return whether all scopes contain the tool."""
    return all(_is_in_scope(scope, server, key, effect) for scope in scopes)


def _is_in_scope(scope: Scope, server: str, key: str, effect: Effect) -> bool:
    return (
        (not scope.effects or effect in scope.effects)
        and _matches_any(scope.servers, server)
        and _matches_any(scope.tools, key)
    )


def _matches_any(patterns: Sequence[str], name: str) -> bool:
    return not patterns or any(match_exactly(pattern, name) is PatternFit.YES for pattern in patterns)


def may_call_any(
    rules: Sequence[RuleSettings],
    server: str,
    *,
    caller: str | None = None,
    profile: str | None = None,
    scopes: Sequence[Scope] = (),
) -> bool:
    """Return whether this caller could call any tool of the server."""
    return _is_server_in_scopes(scopes, server) and not _is_all_denied(rules, server, caller, profile)


def _is_server_in_scopes(scopes: Sequence[Scope], server: str) -> bool:
    """Return whether all scopes contain the server and at least one possible tool of it."""
    return all(
        (
            not scope.servers
            or any(match_exactly(pattern, server) is PatternFit.YES for pattern in scope.servers)
        )
        and (not scope.tools or any(_can_match_server(pattern, server) for pattern in scope.tools))
        for scope in scopes
    )


def _can_match_server(pattern: str, server: str) -> bool:
    """Return whether the pattern can match some key of this server."""
    return any(
        match_exactly(pattern[:end], f"{server}/") is PatternFit.YES for end in range(1, len(pattern) + 1)
    )


def _is_all_denied(
    rules: Sequence[RuleSettings], server: str, caller: str | None, profile: str | None
) -> bool:
    """Return whether a rule denies all tools of this server, before any rule that might allow one."""
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

    def matches(pattern: str | None, name: str | None) -> bool:
        if pattern is None:
            return True
        return (name is not None or denying) and fits(pattern, name or "") is PatternFit.YES

    return matches(rule.server, server) and matches(rule.caller, caller) and matches(rule.profile, profile)


def _holds_for_server(rule: RuleSettings, server: str) -> bool:
    """Return whether the rule applies to every tool of the server, with any arguments."""
    conditional = (
        rule.effect is not None or rule.arguments or rule.paths is not None or rule.operation is not None
    )
    every = rule.tool is None or (
        rule.tool.endswith("*") and match_loosely(rule.tool, f"{server}/") is PatternFit.YES
    )
    return every and not conditional


SCOPE_RULE: Final = "scope of the caller"
OWN_KEY_RULE: Final = "the caller's own key"


def find_hidden_tools(
    rules: Sequence[RuleSettings],
    cards: Iterable[ToolCard],
    *,
    caller: str | None = None,
    profile: str | None = None,
    scopes: Sequence[Scope] = (),
    source: str = "fingerpost.toml",
) -> dict[str, HiddenTool]:
    """Return the tools that this caller may never call, by key, with the rule that denies them."""
    cards = tuple(cards)
    own = frozenset(key for scope in scopes for key in scope.personal)
    hidden = {
        card.key: HiddenTool(
            tool=card.key, rule=OWN_KEY_RULE, reason="it was not listed to this key", personal=True
        )
        for card in cards
        if card.personal and card.key not in own
    }
    if not scopes and not any(rule.verdict == "deny" for rule in rules):
        return hidden
    names = build_rule_names(rules, source)
    for card in cards:
        if card.key in hidden:
            continue
        if not any(is_within_scopes(scopes, card.server, card.key, effect) for effect in card.effects):
            hidden[card.key] = HiddenTool(
                tool=card.key, rule=SCOPE_RULE, reason="it is outside of what you may use"
            )
            continue
        number = _find_denying_rule(rules, card, caller, profile)
        if number is not None:
            reason = rules[number - 1].reason or "a rule forbids it"
            hidden[card.key] = HiddenTool(tool=card.key, rule=names[number - 1], reason=reason)
    return hidden


def _find_denying_rule(
    rules: Sequence[RuleSettings], card: ToolCard, caller: str | None, profile: str | None
) -> int | None:
    for number, rule in enumerate(rules, start=1):
        if not _concerns_card(rule, card, caller, profile):
            continue
        if _holds_always(rule, card):
            return number if rule.verdict == "deny" else None
        if rule.verdict != "deny":
            return None  # a call may pass with other arguments
    return None


def _holds_always(rule: RuleSettings, card: ToolCard) -> bool:
    """Return whether the rule applies for any arguments."""
    by_effect = rule.effect is not None and len(card.effects) > 1
    return not by_effect and not rule.arguments and rule.paths is None and rule.operation is None


def _concerns_card(rule: RuleSettings, card: ToolCard, caller: str | None, profile: str | None) -> bool:
    if rule.effect is not None and rule.effect not in card.effects:
        return False
    denying = rule.verdict != "allow"
    fits = match_loosely if denying else match_exactly

    def matches_any(pattern: str | None, *names: str) -> bool:
        return pattern is None or any(fits(pattern, name) is PatternFit.YES for name in names)

    def matches_caller(pattern: str | None, name: str | None) -> bool:
        return matches_any(pattern, *((name,) if name is not None else ("",) if denying else ()))

    return (
        matches_any(rule.server, card.server)
        and matches_any(rule.tool, card.key, card.name)
        and matches_caller(rule.caller, caller)
        and matches_caller(rule.profile, profile)
    )


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
