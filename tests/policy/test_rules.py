"""Which calls run, which ask, which never happen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.build import compute_call_fingerprint
from fingerpost.policy.paths import PathPlacement
from fingerpost.policy.rules import LOCAL_ADDRESS_RULE, PolicyEngine, build_permit
from fingerpost.records import Call, CallContext, Effect, Json, Ruling, Verdict
from fingerpost.settings import RuleSettings
from tests.kit.tables import table
from tests.requirements import proves

STRICTNESS = [Verdict.ALLOW, Verdict.ASK, Verdict.DENY]


def make_call(tool: str = "files/write_file", effect: Effect = Effect.WRITE, **changes: Any) -> Call:
    server, _, name = tool.partition("/")
    arguments: dict[str, Json] = changes.pop("arguments", {"path": "a.txt"})
    given: dict[str, Any] = {
        "operation": tool,
        "fingerprint": compute_call_fingerprint("def", tool, arguments),
    }
    return Call(tool=tool, server=server, name=name, arguments=arguments, effect=effect, **(given | changes))


def make_context(**changes: Any) -> CallContext:
    return replace(CallContext(call_id="cal_1"), **changes)


def rule(verdict: str, **conditions: Any) -> RuleSettings:
    return RuleSettings.model_validate({"verdict": verdict, **conditions})


def judge_call(call: Call, *rules: RuleSettings, context: CallContext | None = None) -> Ruling:
    return PolicyEngine(rules).decide_by_rules(call, context or make_context(), PathPlacement.NONE)


@proves("C6")
@pytest.mark.parametrize(
    ("effect", "verdict"),
    [(Effect.READ, Verdict.ALLOW), (Effect.WRITE, Verdict.ASK), (Effect.DESTROY, Verdict.ASK)],
)
def test_without_rules_what_reads_runs_and_everything_else_asks(effect: Effect, verdict: Verdict) -> None:
    ruling = judge_call(make_call(effect=effect))
    assert ruling.verdict is verdict
    assert ruling.rule == f"default for {effect}"
    assert ruling.reason


@proves("A5", "C6")
def test_only_a_call_the_policy_allows_gets_a_permit_from_it() -> None:
    call = make_call()
    leave = build_permit(call, judge_call(call, rule("allow")))
    assert leave is not None
    assert leave.call_fingerprint == call.fingerprint
    assert leave.given_by == "policy: rule 1 of the settings"
    assert build_permit(call, judge_call(call)) is None
    assert build_permit(call, judge_call(call, rule("deny"))) is None


def test_the_first_rule_that_fits_decides_and_is_named() -> None:
    rules = [
        rule("deny", server="git*"),
        rule("ask", tool="files/*", reason="files are precious"),
        rule("allow", tool="write_file"),
    ]
    ruling = judge_call(make_call(), *rules)
    assert (ruling.verdict, ruling.reason, ruling.rule) == (
        Verdict.ASK,
        "files are precious",
        "rule 2 of the settings",
    )
    assert judge_call(make_call(), *rules[::-1]).verdict is Verdict.ALLOW


CONSOLIDATED = make_call("files/manage", operation="files/manage.delete")


@table(
    ("conditions", "fits"),
    [
        ({"server": "files"}, True),
        ({"server": "fil*"}, True),
        ({"server": "git"}, False),
        ({"tool": "files/manage"}, True),
        ({"tool": "manage"}, True),
        ({"tool": "git/*"}, False),
        ({"operation": "delete"}, True),
        ({"operation": "manage.delete"}, True),
        ({"operation": "files/manage.*"}, True),
        ({"operation": "read"}, False),
        ({"effect": "write"}, True),
        ({"effect": "destroy"}, False),
        ({"caller": "dana"}, True),
        ({"caller": "k*"}, False),
        ({"profile": "wor?"}, True),
        ({"arguments": {"path": "*.txt"}}, True),
        ({"arguments": {"path": "*.md"}}, False),
        ({"arguments": {"absent": "*"}}, False),
        ({"server": "files", "caller": "kim"}, False),
    ],
)
@table("verdict", ["allow", "deny"])
def test_a_rule_fits_when_all_its_conditions_hold(
    conditions: dict[str, Any], fits: bool, verdict: str
) -> None:
    context = make_context(caller="dana", profile="work")
    ruling = judge_call(CONSOLIDATED, rule(verdict, **conditions), context=context)
    assert (ruling.verdict.value == verdict) is fits


NESTED: dict[str, Json] = {
    "options": {"force": True, "depth": 3.0},
    "files": [{"path": "a.txt"}, {"path": "b.txt"}],
    "argv": ["rm", "-rf", "/"],
    "dotted.name": "x",
    "nothing": None,
}


@table(
    ("name", "pattern", "allowed", "denied"),
    [
        ("options.force", "true", True, True),
        ("options.depth", "3", False, True),  # 3.0 is not spelt 3, but means it
        ("files.path", "*.txt", True, True),
        ("files.path", "a*", False, True),  # one of them
        ("argv", "rm -rf*", False, True),  # a list is also one line
        ("dotted.name", "x", True, True),
        ("nothing", "*", False, True),  # null is no information
        ("Options.FORCE", "true", False, True),
        ("options.force.more", "*", False, False),
    ],
)
def test_arguments_are_matched_by_dotted_name_all_of_them_to_allow_and_any_to_deny(
    name: str, pattern: str, allowed: bool, denied: bool
) -> None:
    call = make_call(arguments=NESTED)
    assert (judge_call(call, rule("allow", arguments={name: pattern})).verdict is Verdict.ALLOW) is allowed
    assert (judge_call(call, rule("deny", arguments={name: pattern})).verdict is Verdict.DENY) is denied


ODD_SPELLINGS = [
    "/etc/passwd",
    "/ETC/Passwd",
    "/etc/passwd ",
    "/etc/passwd.",
    "//etc//passwd",
    "/safe/../etc/passwd",
    "/etc/./passwd",
    "%2Fetc%2fpasswd",
    "%252Fetc/passwd",
    "／etc／passwd",
    "/e\u200btc/passwd",
    "\\etc\\passwd",
    "file:///etc/passwd",
    "FILE://localhost/etc/passwd",
    "../../../../../../etc/passwd",
    "..\\..\\etc\\passwd",
    "/etc /passwd",
]


@proves("C6")
@table("value", ODD_SPELLINGS)
@table("verdict", ["deny", "ask"])
def test_a_rule_that_asks_or_denies_is_not_dodged_by_odd_spelling(value: str, verdict: str) -> None:
    call = make_call(arguments={"path": value})
    ruling = judge_call(call, rule(verdict, arguments={"path": "/etc/passwd"}), rule("allow"))
    assert ruling.verdict.value == verdict


@proves("C6")
@table(
    "value",
    [
        "/safe/../etc/passwd",
        "/safe/%2e%2e/etc",
        "/safe/．．/etc",
        "/safe/..\\etc",
        "/SAFE/x",
        "/safe/.. /etc",
    ],
)
def test_a_rule_that_allows_is_not_earned_by_odd_spelling(value: str) -> None:
    safe = rule("allow", arguments={"path": "/safe/*"})
    assert judge_call(make_call(arguments={"path": "/safe/x"}), safe).verdict is Verdict.ALLOW
    assert judge_call(make_call(arguments={"path": value}), safe).verdict is Verdict.ASK


def test_a_text_too_long_to_read_through_counts_against_the_call() -> None:
    call = make_call(arguments={"path": "a" * 100_000})
    assert judge_call(call, rule("allow", arguments={"path": "*"})).verdict is Verdict.ASK
    ruling = judge_call(call, rule("deny", arguments={"path": "x"}), rule("allow"))
    assert ruling.verdict is Verdict.DENY
    assert "it is unclear whether the rule matches" in ruling.reason


@pytest.mark.parametrize("condition", [{"caller": "*"}, {"profile": "*"}])
def test_a_caller_without_a_name_matches_no_named_rule_but_matches_the_wildcard(
    condition: dict[str, str],
) -> None:
    assert judge_call(make_call(), rule("allow", **condition)).verdict is Verdict.ASK
    assert judge_call(make_call(), rule("deny", **condition)).verdict is Verdict.DENY
    named = dict.fromkeys(condition, "guest")
    assert judge_call(make_call(), rule("deny", **named)).verdict is Verdict.ASK


def test_a_tool_without_operations_has_none_to_allow_but_can_be_denied_by_its_name() -> None:
    assert judge_call(make_call(), rule("allow", operation="*")).verdict is Verdict.ASK
    assert judge_call(make_call(), rule("deny", operation="write*")).verdict is Verdict.DENY


@table(
    ("placement", "allow_inside", "allow_outside", "deny_inside", "deny_outside"),
    [
        (PathPlacement.INSIDE, True, False, True, False),
        (PathPlacement.OUTSIDE, False, True, False, True),
        (PathPlacement.UNCLEAR, False, False, True, True),
        (PathPlacement.NOWHERE, False, False, False, True),
        (PathPlacement.NONE, False, False, False, False),
    ],
)
def test_where_paths_lie_counts_against_the_call_when_it_is_unclear(
    placement: PathPlacement, allow_inside: bool, allow_outside: bool, deny_inside: bool, deny_outside: bool
) -> None:
    def fits(verdict: str, paths: str) -> bool:
        policy = PolicyEngine([rule(verdict, paths=paths)])
        return policy.decide_by_rules(make_call(), make_context(), placement).verdict.value == verdict

    assert fits("allow", "inside") is allow_inside
    assert fits("allow", "outside") is allow_outside
    assert fits("deny", "inside") is deny_inside
    assert fits("deny", "outside") is deny_outside


def test_a_rule_that_only_may_fit_never_softens_a_later_one() -> None:
    policy = PolicyEngine([rule("ask", paths="inside"), rule("deny", paths="outside"), rule("allow")])
    assert policy.decide_by_rules(make_call(), make_context(), PathPlacement.UNCLEAR).verdict is Verdict.DENY
    policy = PolicyEngine([rule("ask", paths="inside"), rule("allow")])
    assert policy.decide_by_rules(make_call(), make_context(), PathPlacement.UNCLEAR).verdict is Verdict.ASK


@proves("C6")
async def test_judging_looks_at_the_disk_without_blocking_the_loop(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/")
    policy = PolicyEngine(
        [rule("allow", paths="inside"), rule("deny", paths="outside", reason="stay inside")]
    )
    context = make_context(working_directory=str(tmp_path))

    async def verdict(path: str) -> Verdict:
        return (await policy.judge(make_call(arguments={"path": path}), context)).verdict

    assert await verdict("a.txt") is Verdict.ALLOW
    assert await verdict("link/etc/passwd") is Verdict.DENY
    assert await verdict("/etc/passwd") is Verdict.DENY
    nowhere = await policy.judge(make_call(arguments={"path": "a.txt"}), make_context())
    assert nowhere.verdict is Verdict.DENY
    pathless = await policy.judge(make_call(arguments={"count": 3}), context)
    assert pathless.rule == "default for write"


names = st.sampled_from(["files", "git", "web"])
verdicts = st.sampled_from(["allow", "ask", "deny"])
texts = st.sampled_from(["a.txt", "../a", "/etc/x", "true", "A.TXT", "%2e%2e/x", "", "x" * 70_000])
patterns = st.sampled_from(["*", "*.txt", "/etc/*", "true", "a*", "?"])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


rules = st.builds(
    RuleSettings,
    verdict=verdicts,
    server=maybe(names | st.just("*")),
    tool=maybe(st.sampled_from(["files/*", "write", "read", "*"])),
    operation=maybe(st.sampled_from(["*", "delete"])),
    effect=maybe(st.sampled_from(Effect)),
    caller=maybe(st.sampled_from(["dana", "*"])),
    profile=maybe(st.sampled_from(["work", "*"])),
    arguments=st.dictionaries(st.sampled_from(["path", "o.x"]), patterns, max_size=2),
    paths=maybe(st.sampled_from(["inside", "outside"])),
)
arguments: st.SearchStrategy[dict[str, Json]] = st.dictionaries(
    st.sampled_from(["path", "o"]), texts | st.dictionaries(st.just("x"), texts), max_size=2
)


@st.composite
def some_calls(draw: st.DrawFn) -> Call:
    tool = f"{draw(names)}/{draw(st.sampled_from(['write', 'read']))}"
    operation = tool + draw(st.sampled_from(["", ".delete"]))
    return make_call(tool, draw(st.sampled_from(Effect)), arguments=draw(arguments), operation=operation)


calls = some_calls()
contexts = st.builds(
    CallContext,
    call_id=st.just("cal_1"),
    caller=maybe(st.sampled_from(["dana", "kim"])),
    profile=maybe(st.just("work")),
)
placements = st.sampled_from(PathPlacement)


def strictness(given: list[RuleSettings], call: Call, context: CallContext, placement: PathPlacement) -> int:
    return STRICTNESS.index(PolicyEngine(given).decide_by_rules(call, context, placement).verdict)


@given(st.lists(rules, max_size=6), calls, contexts, placements)
def test_a_deny_for_everything_in_front_always_denies(
    given: list[RuleSettings], call: Call, context: CallContext, placement: PathPlacement
) -> None:
    assert strictness([rule("deny"), *given], call, context, placement) == 2


@given(st.lists(rules, max_size=6), st.data(), calls, contexts, placements)
def test_a_further_deny_anywhere_never_loosens_and_a_further_allow_never_tightens(
    given: list[RuleSettings], data: st.DataObject, call: Call, context: CallContext, placement: PathPlacement
) -> None:
    before = strictness(given, call, context, placement)
    position = data.draw(st.integers(0, len(given)))
    further = data.draw(rules)
    after = strictness([*given[:position], further, *given[position:]], call, context, placement)
    if further.verdict == "deny":
        assert after >= before
    if further.verdict == "allow":
        assert after <= before


@given(st.lists(rules, max_size=6), calls, contexts, placements)
def test_rules_that_do_not_fit_alone_change_nothing_together(
    given: list[RuleSettings], call: Call, context: CallContext, placement: PathPlacement
) -> None:
    """The order of what does fit is all that counts."""
    alone = [
        PolicyEngine([each]).decide_by_rules(call, context, placement).rule.startswith("rule")
        for each in given
    ]
    fitting = [each for each, fits in zip(given, alone, strict=True) if fits]
    assert strictness(given, call, context, placement) == strictness(fitting, call, context, placement)


@given(st.lists(rules.filter(lambda each: each.verdict == "allow"), max_size=6), calls, contexts, placements)
def test_nothing_is_allowed_for_want_of_information(
    given: list[RuleSettings], call: Call, context: CallContext, placement: PathPlacement
) -> None:
    known = strictness(given, call, context, placement)
    poorer = replace(context, caller=None, profile=None)
    assert strictness(given, call, poorer, placement) >= known
    assert strictness(given, replace(call, arguments={}), context, placement) >= known
    assert strictness(given, replace(call, operation=call.tool), context, placement) >= known
    for vague in (PathPlacement.NONE, PathPlacement.UNCLEAR, PathPlacement.NOWHERE):
        assert strictness(given, call, context, vague) >= known


class FixedRule:
    """A rule in code that gives every call the same ruling, or raises."""

    def __init__(self, label: str, verdict: Verdict | None, error: Exception | None = None) -> None:
        self.label = label
        self.verdict = verdict
        self.error = error

    def judge(self, call: Call, context: CallContext) -> Ruling | None:
        if self.error is not None:
            raise self.error
        if self.verdict is None:
            return None
        return Ruling(verdict=self.verdict, reason=f"because of {self.label}", rule="anything")


async def judge_with(
    *extra: FixedRule, rules: Sequence[RuleSettings] = (), effect: Effect = Effect.WRITE, **changes: Any
) -> tuple[str, str]:
    engine = PolicyEngine(rules, extra_rules=extra)
    ruling = await engine.judge(make_call(effect=effect, **changes), make_context())
    return ruling.verdict.value, ruling.rule


@proves("C6")
@table("configured", [None, "allow", "ask", "deny"])
@table("extra", [None, "allow", "ask", "deny"])
@table("effect", Effect)
async def test_a_rule_in_code_makes_calls_stricter_and_allows_only_writes_no_rule_is_about(
    configured: str | None, extra: str | None, effect: Effect
) -> None:
    rules = [] if configured is None else [rule(configured)]
    fixed = FixedRule("office hours", None if extra is None else Verdict(extra))
    plain = await judge_with(rules=rules, effect=effect)
    verdict, name = await judge_with(fixed, rules=rules, effect=effect)
    if extra == "allow" and configured is None and effect is Effect.WRITE:
        assert (verdict, name) == ("allow", "office hours")
    else:
        assert STRICTNESS.index(Verdict(verdict)) == max(
            STRICTNESS.index(Verdict(one)) for one in (plain[0], extra) if one is not None
        )
        assert name == ("office hours" if verdict != plain[0] else name)
        assert name in (plain[1], "office hours")


@proves("C6")
async def test_the_strictest_rule_in_code_decides_and_one_that_fails_denies() -> None:
    ask, allow = FixedRule("second look", Verdict.ASK), FixedRule("trusted", Verdict.ALLOW)
    assert await judge_with(allow, ask, allow) == ("ask", "second look")
    broken = FixedRule("quota", None, KeyError("secret of the caller"))
    assert await judge_with(allow, broken) == ("deny", "quota")
    engine = PolicyEngine([rule("allow")], extra_rules=[broken])
    ruling = await engine.judge(make_call(), make_context())
    assert "the rule failed with KeyError, so the call was denied" in ruling.reason
    assert "secret" not in ruling.reason


@proves("C6")
@pytest.mark.parametrize(
    "written",
    [
        "http://loc\u2060alhost/",
        "http://127.0.0\ufe0f.1/",
        "http://l\u180bocal\u034fhost/",
        "\x01http://127.0.0.1/",
        "ht" + "\t" * 5000 + "tp://127.0.0.1/",
        "https://example.org\n",
    ],
)
async def test_characters_that_programs_leave_out_of_a_url_hide_no_address_of_this_machine(
    written: str,
) -> None:
    ruling = await PolicyEngine([]).judge(
        make_call(effect=Effect.READ, arguments={"page": written}), make_context()
    )
    assert (ruling.rule == LOCAL_ADDRESS_RULE) is ("example" not in written)


@proves("C6")
async def test_a_rule_in_code_opens_no_address_of_this_machine() -> None:
    allow = FixedRule("trusted", Verdict.ALLOW)
    local: dict[str, Json] = {"url": "http://127.0.0.1:9000/"}
    assert await judge_with(allow, arguments=local) == ("ask", LOCAL_ADDRESS_RULE)
    assert await judge_with(allow, arguments=local, effect=Effect.READ) == ("ask", LOCAL_ADDRESS_RULE)
