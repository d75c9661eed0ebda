"""The rule engine: rules and their conditions, matched against what is known of a call, and the verdict.

One matcher for each condition answers three questions: whether a call may run (all is known), whether a tool
is shown (its arguments are not known), and whether a server is named (its tools are not known either).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Final, Literal, Protocol, cast

import anyio
import anyio.to_thread

from fingerpost.catalog import build_tool_key
from fingerpost.frozen import frozen
from fingerpost.policy.addresses import OwnAddresses
from fingerpost.policy.flow import PERSON_RULE, CallData, Preset, apply_flow
from fingerpost.policy.paths import (
    PathPlacement,
    PatternFit,
    UnknownText,
    is_covered,
    is_literal,
    locate_paths,
    match_argument,
    match_exactly,
    match_loosely,
)
from fingerpost.records import Call, CallContext, Effect, JsonObject, Permit, Ruling, Scope, Verdict
from fingerpost.redaction import scrub
from fingerpost.settings import FileRule, OwnRule, ProfileRule, ProgramRule, RuleSettings

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
        verdict=Verdict.ASK,
        reason="writes need approval unless a policy rule allows them",
        rule="default for write",
    ),
    Effect.DESTROY: Ruling(
        verdict=Verdict.ASK, reason="no rule allows overwriting or deleting", rule="default for destroy"
    ),
}


_UNCERTAIN_READ_RULE: Final = "default for a read that is not certain"
_DEFAULT_RULE_NAMES: Final = frozenset(
    (_UNCERTAIN_READ_RULE, PERSON_RULE, *(ruling.rule for ruling in _DEFAULT_RULINGS.values()))
)
SCOPE_RULE: Final = "scope of the caller"
OWN_ADDRESS_RULE: Final = "our own address"
LOCAL_ADDRESS_RULE: Final = "local addresses"

_OUT_OF_SCOPE_RULING: Final = Ruling(
    verdict=Verdict.DENY, reason="this caller may not use it", rule=SCOPE_RULE
)


class Unknown(Enum):
    """Stands for a part of a subject that is not known."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
OPERATION: Final = "operation"  # the argument that names the operation of a tool


@frozen
class Subject:
    """What is known of a call: all of it, or what the calls of one tool or of one server have in common.

    There are few effects, so each possible one is a subject of its own.
    """

    server: str
    effect: Effect
    caller: str | None = None  # None: without a name
    profile: str | None = None
    tool: str | Unknown = UNKNOWN  # the key
    name: str = ""  # the name on the server, if `tool` is known
    operation: str | Unknown | None = UNKNOWN  # its key, `tool.operation`; None: without an operation
    other_than: frozenset[str] = frozenset()  # names that an unknown operation does not have
    arguments: JsonObject | Unknown = UNKNOWN
    placement: PathPlacement | Unknown = UNKNOWN
    folder: str | None = None  # the working directory
    required: frozenset[str] = frozenset()  # arguments that every such call has
    assumed: tuple[RuleSettings, ...] = ()  # rules that match every such call, for what is not known

    def list_tool_names(self) -> tuple[str | UnknownText, ...]:
        """Return the key and the name of the tool. A name of which nothing is known has no `/`."""
        if self.tool is UNKNOWN:
            return (UnknownText(start=build_tool_key(self.server, "")), UnknownText(excluded="/"))
        return (self.tool, self.name)

    def list_operation_names(self) -> tuple[str | UnknownText, ...]:
        """Return the names of the operation: `files/manage.delete` is also `delete` and `manage.delete`."""
        if self.operation is None:
            return ()
        if self.tool is UNKNOWN:
            return (UnknownText(start=build_tool_key(self.server, "")), UnknownText())
        if self.operation is UNKNOWN:
            return (UnknownText(start=f"{self.tool}."), UnknownText(), UnknownText(start=f"{self.name}."))
        bare = self.operation.removeprefix(f"{self.tool}.")
        return (self.operation, bare, f"{self.name}.{bare}")


def describe_call(call: Call, context: CallContext, placement: PathPlacement | Unknown) -> Subject:
    """Return the subject of one call, of which everything is known but perhaps where its paths are."""
    return Subject(
        server=call.server,
        effect=call.effect,
        caller=context.caller,
        profile=context.profile,
        tool=call.tool,
        name=call.name,
        operation=None if call.operation == call.tool else call.operation,
        arguments=call.arguments,
        placement=placement,
        folder=context.working_directory,
    )


@frozen
class Rule:
    """A rule with its verdict, its name and the conditions that it has."""

    settings: RuleSettings
    verdict: Verdict
    name: str
    conditions: tuple[Condition, ...]

    @property
    def allows(self) -> bool:
        return self.verdict is Verdict.ALLOW

    def match(self, subject: Subject) -> PatternFit:
        """Return YES if the rule matches every call of the subject, NO if none, else MAYBE.

        MAYBE for a single call: whether the rule matches is unclear, so it counts against the call.
        """
        fit = PatternFit.YES
        for condition in self.conditions:
            fit = min(fit, condition.match(self, subject))
            if fit is PatternFit.NO:
                break
        return fit

    def build_ruling(self, *, doubtful: bool = False) -> Ruling:
        reason = self.settings.reason or f"a rule {_VERDICT_WORDS[self.verdict]} such calls"
        if doubtful:
            reason += " (it is unclear whether the rule matches, so it applies)"
        return Ruling(verdict=self.verdict, reason=reason, rule=self.name)


@frozen
class Condition:
    """One condition of a rule: a field of `RuleSettings` and its matcher.

    A matcher returns MAYBE where the answer depends on what is not known of the subject.
    """

    field: str
    match: Callable[[Rule, Subject], PatternFit]
    by_names: bool = True  # it looks at names and the effect alone, so that rulings can be cached


def _match_effect(rule: Rule, subject: Subject) -> PatternFit:
    return PatternFit.YES if rule.settings.effect is subject.effect else PatternFit.NO


def _match_server(rule: Rule, subject: Subject) -> PatternFit:
    return _match_names(rule, rule.settings.server, (subject.server,))


def _match_tool(rule: Rule, subject: Subject) -> PatternFit:
    fit = _match_names(rule, rule.settings.tool, subject.list_tool_names())
    return _assume(rule, fit, rule.settings.tool, _list_assumed_tools(subject))


def _match_operation(rule: Rule, subject: Subject) -> PatternFit:
    """Match the operation. Rules that ask or deny match a tool without operations by its own name."""
    if rule.allows and _allows_only(rule.settings.operation, subject):
        return PatternFit.NO
    names = subject.list_operation_names()
    if not names and not rule.allows:
        names = subject.list_tool_names()
    fit = _match_names(rule, rule.settings.operation, names)
    return _assume(rule, fit, rule.settings.operation, _list_assumed_operations(subject))


def _allows_only(pattern: str | None, subject: Subject) -> bool:
    """Return whether the pattern allows only operations that the unknown one is not."""
    if pattern is None or subject.operation is not UNKNOWN or not is_literal(pattern):
        return False
    bare = {pattern.removeprefix(f"{start}.") for start in ("", subject.name, str(subject.tool))}
    return bare <= subject.other_than


def _match_caller(rule: Rule, subject: Subject) -> PatternFit:
    return _match_names(rule, rule.settings.caller, _list_caller_names(rule, subject.caller))


def _match_profile(rule: Rule, subject: Subject) -> PatternFit:
    return _match_names(rule, rule.settings.profile, _list_caller_names(rule, subject.profile))


def _match_arguments(rule: Rule, subject: Subject) -> PatternFit:
    wanted = rule.settings.arguments.items()
    return min(_match_argument(rule, subject, name, pattern) for name, pattern in wanted)


def _match_paths(rule: Rule, subject: Subject) -> PatternFit:
    wanted, placement = rule.settings.paths, subject.placement
    if placement is UNKNOWN:
        assumed = any(other.paths == wanted for other in subject.assumed)
        return PatternFit.YES if assumed and not rule.allows else PatternFit.MAYBE
    if placement.value == wanted:
        return PatternFit.YES
    if rule.allows:
        return PatternFit.NO
    nowhere = wanted != "inside" and placement is PathPlacement.NOWHERE
    return PatternFit.MAYBE if nowhere or placement is PathPlacement.UNCLEAR else PatternFit.NO


CONDITIONS: Final = (
    Condition(field="effect", match=_match_effect),
    Condition(field="server", match=_match_server),
    Condition(field="tool", match=_match_tool),
    Condition(field="operation", match=_match_operation),
    Condition(field="caller", match=_match_caller),
    Condition(field="profile", match=_match_profile),
    Condition(field="arguments", match=_match_arguments, by_names=False),
    Condition(field="paths", match=_match_paths, by_names=False),
)


def _list_caller_names(rule: Rule, name: str | None) -> tuple[str, ...]:
    """Return the names of the caller. Only rules that ask or deny match an anonymous one, by `*`."""
    if name is None:
        return () if rule.allows else ("",)
    return (name,)


def _match_names(rule: Rule, pattern: str | None, names: Iterable[str | UnknownText]) -> PatternFit:
    """Return the best match of one of the names."""
    if pattern is None:
        return PatternFit.YES
    return max((_match_name(pattern, name, rule.allows) for name in names), default=PatternFit.NO)


def _match_name(pattern: str, name: str | UnknownText, exactly: bool) -> PatternFit:
    if isinstance(name, UnknownText) or len(name) <= MAX_CACHED_NAME_LENGTH:
        return _match_name_cached(pattern, name, exactly)
    return match_exactly(pattern, name) if exactly else match_loosely(pattern, name)


@lru_cache(maxsize=4096)  # the same few names recur
def _match_name_cached(pattern: str, name: str | UnknownText, exactly: bool) -> PatternFit:
    if isinstance(name, UnknownText):
        return name.match(pattern, exactly=exactly)
    return match_exactly(pattern, name) if exactly else match_loosely(pattern, name)


def _assume(rule: Rule, fit: PatternFit, pattern: str | None, assumed: Iterable[str]) -> PatternFit:
    """Return the match, or YES if it is open but all that matches an assumed pattern matches this one too."""
    if fit is not PatternFit.MAYBE or pattern is None or rule.allows:
        return fit
    return PatternFit.YES if any(is_covered(other, pattern) for other in assumed) else fit


def _list_assumed_tools(subject: Subject) -> Iterator[str]:
    """Yield patterns that the key or the name of the tool matches."""
    for pattern in (rule.tool for rule in subject.assumed):
        if pattern is None:
            continue
        yield pattern
        server, separator, name = pattern.partition("/")
        if separator and is_literal(server):
            yield name
        elif not separator and is_literal(pattern):
            yield build_tool_key(subject.server, pattern)


def _list_assumed_operations(subject: Subject) -> Iterator[str]:
    """Yield patterns that the operation matches."""
    for rule in subject.assumed:
        if rule.operation is not None:
            yield rule.operation
        if subject.operation is UNKNOWN and rule.verdict == "allow" and OPERATION in rule.arguments:
            yield rule.arguments[OPERATION]


def _list_assumed_arguments(subject: Subject, name: str) -> Iterator[str]:
    """Yield patterns that the argument matches. The argument that names an operation matches its pattern."""
    for rule in subject.assumed:
        if name in rule.arguments:
            yield rule.arguments[name]
        # A pattern with more to it may match `tool.operation`, which ends with the tool if it is empty.
        operation = rule.operation if name == OPERATION and subject.operation is UNKNOWN else None
        if operation and operation.isidentifier() and operation.casefold() != subject.name.casefold():
            yield operation


def _match_argument(rule: Rule, subject: Subject, name: str, pattern: str) -> PatternFit:
    if subject.arguments is not UNKNOWN:
        return match_argument(subject.arguments, name, pattern, allowing=rule.allows, folder=subject.folder)
    is_operation = name == OPERATION and subject.operation is not None
    if is_operation and rule.allows and _allows_only(pattern, subject):
        return PatternFit.NO
    if is_operation and isinstance(subject.operation, str):
        given = subject.operation.removeprefix(f"{subject.tool}.")
        fit = match_argument({name: given}, name, pattern, allowing=rule.allows, folder=subject.folder)
        # A rule that asks or denies may also match another argument whose name looks like this one.
        if rule.allows or fit is PatternFit.YES:
            return fit
    if not rule.allows and pattern and not pattern.strip("*") and (is_operation or name in subject.required):
        return PatternFit.YES
    return _assume(rule, PatternFit.MAYBE, pattern, _list_assumed_arguments(subject, name))


def build_rules(rules: Sequence[RuleSettings]) -> tuple[Rule, ...]:
    """Return the rules with their names and conditions, in order."""
    built: list[Rule] = []
    for settings, name in zip(rules, build_rule_names(rules), strict=True):
        given = tuple(one for one in CONDITIONS if getattr(settings, one.field) not in (None, {}))
        verdict = Verdict(settings.verdict)
        built.append(Rule(settings=settings, verdict=verdict, name=name, conditions=given))
    return tuple(built)


def build_rule_names(rules: Sequence[RuleSettings]) -> tuple[str, ...]:
    """Return one name per rule, in order. Rules are numbered for each place they were written in."""
    counts: Counter[str] = Counter()
    names: list[str] = []
    for rule in rules:
        if isinstance(rule, OwnRule):
            names.append(f"default of {rule.server}")
            continue
        place = _describe_place(rule)
        counts[place] += 1
        names.append(f"rule {counts[place]} {place}")
    return tuple(names)


def _describe_place(rule: RuleSettings) -> str:
    if isinstance(rule, ProfileRule):
        return f"of the profile {rule.profile}"
    if isinstance(rule, ProgramRule):
        return "of the program's policy"
    return f"in {rule.source}" if isinstance(rule, FileRule) else "of the settings"


def _names_tool(settings: RuleSettings) -> bool:
    return isinstance(settings, OwnRule) or any(
        pattern is not None and is_literal(pattern) for pattern in (settings.tool, settings.operation)
    )


def _names_server(settings: RuleSettings) -> bool:
    return settings.server is not None and is_literal(settings.server)


def find_denial(rules: Sequence[Rule], subject: Subject) -> int | None:
    """Return the index of the rule by which every call of the subject is denied, or None if one may pass."""
    denials: list[Rule] = []  # those that deny some such calls
    for index, rule in enumerate(rules):
        fit = rule.match(subject)
        if fit is PatternFit.NO:
            continue
        if rule.verdict is Verdict.DENY:
            if fit is PatternFit.YES:
                return index
            denials.append(rule)
        elif not denials or not _is_denied(denials, subject, rule.settings):
            return None
    return None


def _is_denied(denials: Sequence[Rule], subject: Subject, assumed: RuleSettings) -> bool:
    """Return whether a rule denies every call of the subject that the assumed rule matches."""
    narrowed = replace(subject, assumed=(*subject.assumed, assumed))
    return any(denial.match(narrowed) is PatternFit.YES for denial in denials)


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
        addresses: OwnAddresses | None = None,
        local_addresses: Literal["ask", "allow", "deny"] = "ask",
        extra_rules: Sequence[PolicyRule] = (),
        data_flow: Preset = "default",
    ) -> None:
        """`addresses` are where Fingerpost listens, `local_addresses` the verdict for other local ones."""
        self._data_flow: Preset = data_flow
        self._bounds = bounds or {}
        self._addresses = addresses or OwnAddresses(port=0, public_url=None)
        self._local_addresses = Verdict(local_addresses)
        self._extra_rules = tuple(extra_rules)
        self._rules = build_rules(rules)
        # Rules about more than names must be evaluated for every call.
        self._by_names = all(condition.by_names for rule in self._rules for condition in rule.conditions)
        self._path_rules = tuple(rule for rule in self._rules if rule.settings.paths is not None)
        # Rules that were written for one tool or one server, by name.
        self._tool_rules = frozenset(rule.name for rule in self._rules if _names_tool(rule.settings))
        self._server_rules = frozenset(rule.name for rule in self._rules if _names_server(rule.settings))
        self._cached_rulings: dict[tuple[str | None, ...], Ruling] = {}

    async def judge(self, call: Call, context: CallContext, data: CallData | None = None) -> Ruling:
        """Return the ruling for the call. Its paths are located if that matters.

        `data`: where the data of the call came from, if known. `explain_data` tells the person of it.
        """
        data = data or CallData()
        scopes = add_profile_scope(context.scopes, context.profile, self._bounds)
        if scopes and not is_within_scopes(scopes, call.server, call.tool, call.effect):
            return _OUT_OF_SCOPE_RULING
        ruling = self._apply_flow(call, data, await self._judge_rules(call, context))
        ruling = self._restrict_destination(call, ruling)
        return self._apply_extra_rules(call, context, ruling, data)

    def _apply_flow(self, call: Call, data: CallData, ruling: Ruling) -> Ruling:
        """Return the ruling that follows from where the data came from.

        A rule that names the tool is respected; a rule that names only the server, if the tool does not send
        data out.
        """
        named = ruling.rule in self._tool_rules or (not data.outbound and ruling.rule in self._server_rules)
        by_default = ruling.rule in _DEFAULT_RULE_NAMES
        return apply_flow(ruling, call, data, self._data_flow, by_default=by_default, named=named)

    def _apply_extra_rules(self, call: Call, context: CallContext, ruling: Ruling, data: CallData) -> Ruling:
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
            asks_always = self._data_flow == "strict" and bool(data.sources)
            return ruling if asks_always else extra
        if extra.verdict is ruling.verdict:
            return replace(extra, exact=extra.exact or ruling.exact) if is_default else ruling
        return _choose_stricter(ruling, extra)

    def _restrict_destination(self, call: Call, ruling: Ruling) -> Ruling:
        """Return the ruling, or a stricter one for an own or another local address in the arguments."""
        found = self._addresses.find(call.arguments)
        if found is None or ruling.verdict is Verdict.DENY:
            return ruling
        written = scrub(found.written)
        if found.own:
            reason = f"{written} is Fingerpost itself, which tools may not call"
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
        subject = describe_call(call, context, UNKNOWN)
        if all(rule.match(subject) is PatternFit.NO for rule in self._path_rules):
            return self.decide_by_rules(call, context, PathPlacement.NONE)
        placement = PathPlacement.UNCLEAR
        with anyio.move_on_after(PATH_LOOKUP_TIMEOUT_S):
            placement = await anyio.to_thread.run_sync(
                locate_paths, call.arguments, context.working_directory, abandon_on_cancel=True
            )
        return self.decide_by_rules(call, context, placement)

    def decide_by_rules(self, call: Call, context: CallContext, placement: PathPlacement) -> Ruling:
        """Return the ruling for the call, given where its paths are."""
        subject = describe_call(call, context, placement)
        doubtful: Ruling | None = None
        for rule in self._rules:
            fit = rule.match(subject)
            if fit is PatternFit.YES:
                return _choose_stricter(doubtful, rule.build_ruling())
            if fit is PatternFit.MAYBE:
                doubtful = _choose_stricter(doubtful, rule.build_ruling(doubtful=True))
        default = _build_uncertain_ruling(call) if call.doubt else _DEFAULT_RULINGS[call.effect]
        return _choose_stricter(doubtful, default)

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


def apply_doubt(ruling: Ruling, context: CallContext) -> Ruling:
    """Return the ruling, or one that asks a person if there is doubt about the call."""
    if not context.doubt or ruling.verdict is not Verdict.ALLOW:
        return ruling
    return Ruling(verdict=Verdict.ASK, reason=context.doubt, rule=context.doubt_rule)


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
        if not isinstance(cast("object", ruling), Ruling):
            reason = f"judge of the rule {label} must return a Ruling or None, and must not be async"
            return Ruling(verdict=Verdict.DENY, reason=reason, rule=label)
        return replace(ruling, verdict=Verdict(ruling.verdict), reason=str(ruling.reason), rule=label)
    except Exception as error:
        log.exception("the rule %s failed, so the call of %s is denied", label, call.tool)
        reason = f"the rule failed with {type(error).__name__}, so the call was denied"
        return Ruling(verdict=Verdict.DENY, reason=reason, rule=label)


def describe_uncertain_read(doubt: str) -> str:
    """Return the reason to ask about a read that is not certain."""
    return f"it seems to be read-only, but that is not certain: {doubt}"


def _build_uncertain_ruling(call: Call) -> Ruling:
    reason = describe_uncertain_read(call.doubt)
    return Ruling(verdict=Verdict.ASK, reason=reason, rule=_UNCERTAIN_READ_RULE)


def _choose_stricter(first: Ruling | None, second: Ruling) -> Ruling:
    if first is None or _STRICTNESS[second.verdict] > _STRICTNESS[first.verdict]:
        return second
    return first
