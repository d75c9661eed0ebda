"""Which tools policy keeps from a caller altogether.

A tool is hidden when every call of it would be denied: a rule that denies it
without looking at arguments, before any rule that might let some call through.
A tool that is denied only with certain arguments stays visible; the call is
judged when it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from fingerpost.call.patterns import PatternFit, match_exactly, match_loosely
from fingerpost.call.rule_names import build_rule_names
from fingerpost.call.scopes import is_within_scopes
from fingerpost.records import HiddenTool, Scope, ToolCard
from fingerpost.settings import RuleSettings

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
    """The tools this caller may never call, by key, each with the rule that says so."""
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
            return None  # with the right arguments a call may pass
    return None


def _holds_always(rule: RuleSettings, card: ToolCard) -> bool:
    """Whether it holds whatever the arguments are."""
    by_effect = rule.effect is not None and len(card.effects) > 1
    return not by_effect and not rule.arguments and rule.paths is None and rule.operation is None


def _concerns_card(rule: RuleSettings, card: ToolCard, caller: str | None, profile: str | None) -> bool:
    if rule.effect is not None and rule.effect not in card.effects:
        return False
    denying = rule.verdict != "allow"
    fits = match_loosely if denying else match_exactly

    def one_of(pattern: str | None, *names: str) -> bool:
        return pattern is None or any(fits(pattern, name) is PatternFit.YES for name in names)

    def who(pattern: str | None, name: str | None) -> bool:
        return one_of(pattern, *((name,) if name is not None else ("",) if denying else ()))

    return (
        one_of(rule.server, card.server)
        and one_of(rule.tool, card.key, card.name)
        and who(rule.caller, caller)
        and who(rule.profile, profile)
    )
