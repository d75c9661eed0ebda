"""Policy rules: which calls run, need approval, or are denied."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal, Protocol

import anyio
import anyio.to_thread

from fingerpost.frozen import frozen
from fingerpost.policy.addresses import OwnAddresses
from fingerpost.policy.paths import (
    PathPlacement,
    PatternFit,
    locate_paths,
    match_argument,
    match_exactly,
    match_loosely,
)
from fingerpost.policy.visibility import SCOPE_RULE, add_profile_scope, build_rule_names, is_within_scopes
from fingerpost.records import Call, CallContext, Effect, Permit, Ruling, Scope, Verdict
from fingerpost.redaction import scrub
from fingerpost.settings import RuleSettings

log = logging.getLogger("fingerpost.policy")

# If a disk (a dead network drive) does not answer in this time, the location is unclear.
PATH_LOOKUP_TIMEOUT_S: Final = 5.0
MAX_CACHED_RULINGS: Final = 4096
MAX_CACHED_NAME_LENGTH: Final = 200  # operation names are arbitrary values: longer ones are not cached

_STRICTNESS: Final = {Verdict.ALLOW: 0, Verdict.ASK: 1, Verdict.DENY: 2}
_VERDICT_WORDS: Final = {Verdict.ALLOW: "allows", Verdict.ASK: "asks a person about", Verdict.DENY: "forbids"}
_DEFAULT_RULINGS: Final = {
    Effect.READ: Ruling(verdict=Verdict.ALLOW, reason="it only reads", rule="default for read"),
    Effect.WRITE: Ruling(
        verdict=Verdict.ASK, reason="it changes something, and no rule allows it", rule="default for write"
    ),
    Effect.DESTROY: Ruling(
        verdict=Verdict.ASK,
        reason="it may destroy something, and no rule allows it",
        rule="default for destroy",
    ),
}


_UNCERTAIN_READ_RULE: Final = "default for a read that is not certain"
_DEFAULT_RULE_NAMES: Final = frozenset(
    (_UNCERTAIN_READ_RULE, *(ruling.rule for ruling in _DEFAULT_RULINGS.values()))
)
OWN_ADDRESS_RULE: Final = "our own address"
LOCAL_ADDRESS_RULE: Final = "local addresses"

_OUT_OF_SCOPE_RULING: Final = Ruling(
    verdict=Verdict.DENY, reason="it is outside of what this caller may use", rule=SCOPE_RULE
)


class PolicyRule(Protocol):
    """A rule written in code, beside the configured ones.

    Of all rulings on a call the strictest applies: deny, then ask, then allow. A rule in code that allows
    replaces only the default for calls that write; it never overrules a configured rule, and calls that may
    destroy something still ask. It is judged for every call within the caller's scopes that no configured
    rule denies, in the event loop, so it must not block. If it raises, the call is denied.
    """

    @property
    def label(self) -> str:
        """The name of the rule in rulings."""
        ...

    def judge(self, call: Call, context: CallContext) -> Ruling | None:
        """Return the ruling on this call, or None for no opinion. `Ruling.rule` is set to the label."""
        ...


class PolicyEngine:
    """An ordered list of rules, within the scopes of profiles (`bounds`), and rules in code."""

    def __init__(
        self,
        rules: Sequence[RuleSettings],
        *,
        bounds: Mapping[str, Scope] | None = None,
        source: str = "fingerpost.toml",
        addresses: OwnAddresses | None = None,
        local_addresses: Literal["ask", "allow", "deny"] = "ask",
        extra_rules: Sequence[PolicyRule] = (),
    ) -> None:
        """`addresses` are where Fingerpost listens. `local_addresses` is the verdict for other local
        addresses.
        """
        self._bounds = bounds or {}
        self._addresses = addresses or OwnAddresses(port=0, public_url=None)
        self._local_addresses = Verdict(local_addresses)
        self._extra_rules = tuple(extra_rules)
        self._rules = tuple(
            _PolicyRule(settings=rule, verdict=Verdict(rule.verdict), name=name)
            for rule, name in zip(rules, build_rule_names(rules, source), strict=True)
        )
        # Rules about arguments must be evaluated for every call.
        self._by_names = all(not rule.arguments and rule.paths is None for rule in rules)
        self._cached_rulings: dict[tuple[str | None, ...], Ruling] = {}

    async def judge(self, call: Call, context: CallContext) -> Ruling:
        """Return the ruling for the call. Its paths are located if that matters."""
        scopes = add_profile_scope(context.scopes, context.profile, self._bounds)
        if scopes and not is_within_scopes(scopes, call.server, call.tool, call.effect):
            return _OUT_OF_SCOPE_RULING
        ruling = self._restrict_destination(call, await self._judge_rules(call, context))
        return self._apply_extra_rules(call, context, ruling)

    def _apply_extra_rules(self, call: Call, context: CallContext, ruling: Ruling) -> Ruling:
        """Return the ruling of the configured rules, or that of a rule in code if it applies instead."""
        if not self._extra_rules or ruling.verdict is Verdict.DENY:
            return ruling
        extra: Ruling | None = None
        for rule in self._extra_rules:
            given = _judge_by_extra_rule(rule, call, context)
            extra = extra if given is None else _choose_stricter(extra, given)
        if extra is None:
            return ruling
        is_default = ruling.rule in _DEFAULT_RULE_NAMES
        if extra.verdict is Verdict.ALLOW and is_default and call.effect is not Effect.DESTROY:
            return extra
        if extra.verdict is ruling.verdict:
            return extra if is_default else ruling
        return _choose_stricter(ruling, extra)

    def _restrict_destination(self, call: Call, ruling: Ruling) -> Ruling:
        """Return the ruling, or a stricter one if the arguments contain an address of Fingerpost, or another
        local address that no rule allows.
        """
        found = self._addresses.find(call.arguments)
        if found is None or ruling.verdict is Verdict.DENY:
            return ruling
        written = scrub(found.written)
        if found.own:
            reason = f"{written} leads to Fingerpost itself, which tools do not call"
            return Ruling(verdict=Verdict.DENY, reason=reason, rule=OWN_ADDRESS_RULE)
        by_rule = ruling.verdict is Verdict.ALLOW and ruling.rule not in _DEFAULT_RULE_NAMES
        if by_rule or self._local_addresses is Verdict.ALLOW:
            return ruling
        reason = f"{written} is a local or link-local address"
        if ruling.verdict is Verdict.ASK:
            reason = f"{reason}, and {ruling.reason}"
        # A grant for the conversation does not cover such an address.
        return Ruling(verdict=self._local_addresses, reason=reason, rule=LOCAL_ADDRESS_RULE, exact=True)

    async def _judge_rules(self, call: Call, context: CallContext) -> Ruling:
        if self._by_names:
            return self._get_cached_ruling(call, context)
        if not self._needs_placement(call, context):
            return self.decide_by_rules(call, context, PathPlacement.NONE)
        placement = PathPlacement.UNCLEAR
        with anyio.move_on_after(PATH_LOOKUP_TIMEOUT_S):
            placement = await anyio.to_thread.run_sync(
                locate_paths, call.arguments, context.working_directory, abandon_on_cancel=True
            )
        return self.decide_by_rules(call, context, placement)

    def decide_by_rules(self, call: Call, context: CallContext, placement: PathPlacement) -> Ruling:
        """Return the ruling for the call, given where its paths are."""
        doubtful: Ruling | None = None
        for rule in self._rules:
            fit = rule.match(call, context, placement)
            if fit is PatternFit.YES:
                return _choose_stricter(doubtful, rule.build_ruling())
            if fit is PatternFit.MAYBE:
                doubtful = _choose_stricter(doubtful, rule.build_ruling(doubtful=True))
        return _choose_stricter(
            doubtful, _build_uncertain_ruling(call) if call.doubt else _DEFAULT_RULINGS[call.effect]
        )

    def _get_cached_ruling(self, call: Call, context: CallContext) -> Ruling:
        """Return the result of `decide_by_rules`, cached by tool and caller."""
        who = (context.caller, context.profile)
        names = (call.effect, call.doubt, call.server, call.tool, call.name, call.operation, *who)
        ruling = self._cached_rulings.get(names)
        if ruling is None:
            ruling = self.decide_by_rules(call, context, PathPlacement.NONE)
            if len(call.operation) > MAX_CACHED_NAME_LENGTH:
                return ruling
            if len(self._cached_rulings) >= MAX_CACHED_RULINGS:
                self._cached_rulings.clear()
            self._cached_rulings[names] = ruling
        return ruling

    def _needs_placement(self, call: Call, context: CallContext) -> bool:
        return any(
            rule.settings.paths is not None and rule.match_without_paths(call, context) is not PatternFit.NO
            for rule in self._rules
        )


def apply_doubt(ruling: Ruling, context: CallContext) -> Ruling:
    """Return the ruling, or one that asks a person if there is doubt about the call."""
    if not context.doubt or ruling.verdict is not Verdict.ALLOW:
        return ruling
    return Ruling(verdict=Verdict.ASK, reason=context.doubt, rule="confidence")


def build_permit(call: Call, ruling: Ruling) -> Permit | None:
    """Return a permit if the policy allows the call without approval, else None."""
    if ruling.verdict is not Verdict.ALLOW:
        return None
    return Permit(call_fingerprint=call.fingerprint, given_by=f"policy: {ruling.rule}")


def _judge_by_extra_rule(rule: PolicyRule, call: Call, context: CallContext) -> Ruling | None:
    label = type(rule).__name__
    try:
        label = rule.label
        ruling = rule.judge(call, context)
        if ruling is None:
            return None
        return replace(ruling, verdict=Verdict(ruling.verdict), reason=str(ruling.reason), rule=label)
    except Exception as error:
        log.exception("the rule %s failed, so the call of %s is denied", label, call.tool)
        reason = f"the rule {label} failed with {type(error).__name__}, so nothing tells whether it denies"
        return Ruling(verdict=Verdict.DENY, reason=reason, rule=label)


def _build_uncertain_ruling(call: Call) -> Ruling:
    reason = f"it seems to read only, but that is not certain: {call.doubt}"
    return Ruling(verdict=Verdict.ASK, reason=reason, rule=_UNCERTAIN_READ_RULE)


def _choose_stricter(first: Ruling | None, second: Ruling) -> Ruling:
    if first is None or _STRICTNESS[second.verdict] > _STRICTNESS[first.verdict]:
        return second
    return first


def _match_name(pattern: str, name: str, *, exactly: bool) -> PatternFit:
    if len(name) > MAX_CACHED_NAME_LENGTH:
        return match_exactly(pattern, name) if exactly else match_loosely(pattern, name)
    return _match_name_cached(pattern, name, exactly)


@lru_cache(maxsize=4096)  # the same few names recur
def _match_name_cached(pattern: str, name: str, exactly: bool) -> PatternFit:
    return match_exactly(pattern, name) if exactly else match_loosely(pattern, name)


@frozen
class _PolicyRule:
    settings: RuleSettings
    verdict: Verdict
    name: str

    @property
    def allows(self) -> bool:
        return self.verdict is Verdict.ALLOW

    def build_ruling(self, *, doubtful: bool = False) -> Ruling:
        reason = self.settings.reason or f"a rule {_VERDICT_WORDS[self.verdict]} such calls"
        if doubtful:
            reason += " (it is unclear whether the rule matches, so it applies)"
        return Ruling(verdict=self.verdict, reason=reason, rule=self.name)

    def match(self, call: Call, context: CallContext, placement: PathPlacement) -> PatternFit:
        others = self.match_without_paths(call, context)
        return others if others is PatternFit.NO else min(others, self._match_paths(placement))

    def match_without_paths(self, call: Call, context: CallContext) -> PatternFit:
        rule = self.settings
        if rule.effect is not None and rule.effect is not call.effect:
            return PatternFit.NO
        return min(
            self._match_any(rule.server, (call.server,)),
            self._match_any(rule.tool, (call.tool, call.name)),
            self._match_any(rule.operation, self._list_operations(call)),
            self._match_any(rule.caller, self._list_callers(context.caller)),
            self._match_any(rule.profile, self._list_callers(context.profile)),
            *(self._match_argument(call, context, name, pattern) for name, pattern in rule.arguments.items()),
        )

    def _match_any(self, pattern: str | None, names: Sequence[str]) -> PatternFit:
        if pattern is None:
            return PatternFit.YES
        return max([_match_name(pattern, name, exactly=self.allows) for name in names], default=PatternFit.NO)

    def _list_operations(self, call: Call) -> tuple[str, ...]:
        """Return the names of the operation: `files/manage.delete` matches `delete` and `manage.delete`.

        A tool without operations has none that could be allowed. Rules that ask or deny match the tool
        itself.
        """
        bare = call.operation.removeprefix(f"{call.tool}.")
        if call.operation == call.tool:
            return () if self.allows else (call.tool, call.name)
        return (call.operation, bare, f"{call.name}.{bare}")

    def _list_callers(self, name: str | None) -> tuple[str, ...]:
        """Return the names of the caller. No rule allows an anonymous caller, but `*` matches it in rules
        that ask or deny.
        """
        if name is None:
            return () if self.allows else ("",)
        return (name,)

    def _match_argument(self, call: Call, context: CallContext, name: str, pattern: str) -> PatternFit:
        return match_argument(
            call.arguments, name, pattern, allowing=self.allows, folder=context.working_directory
        )

    def _match_paths(self, placement: PathPlacement) -> PatternFit:
        wanted = self.settings.paths
        if wanted is None or placement.value == wanted:
            return PatternFit.YES
        if self.allows:
            return PatternFit.NO
        doubtful = (
            {PathPlacement.UNCLEAR} if wanted == "inside" else {PathPlacement.UNCLEAR, PathPlacement.NOWHERE}
        )
        return PatternFit.MAYBE if placement in doubtful else PatternFit.NO
