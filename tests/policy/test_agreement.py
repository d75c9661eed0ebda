"""Judging a call, showing a tool and naming a server agree: what is shown is what some call may reach."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Final

import anyio
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fingerpost.call.build import build_call
from fingerpost.policy.rules import CONDITIONS, PolicyEngine
from fingerpost.policy.visibility import find_hidden_tools, may_call_any
from fingerpost.records import Call, CallContext, Effect, Json, Known, Scope, Source, ToolCard, Verdict
from fingerpost.settings import RuleSettings
from tests.kit.catalogs import card, tool
from tests.requirements import proves

FOLDER: Final = "/nonexistent/folder"
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
OPERATIONS: Final = {"read": Effect.READ, "write": Effect.WRITE, "drop": Effect.DESTROY}
TOOL_PATTERNS: Final = ("*", "shop/*", "shop/manage", "SHOP/manage", "manage", "man*", "mail/*", "send")
OPERATION_PATTERNS: Final = ("*", "read", "drop", "re*", "manage", "manage.*", "shop/manage.*", "other")
ARGUMENTS: Final = {"mode": ("*", "fast", "f*"), "level": ("1", "*"), "operation": ("*", "drop")}
VALUES: Final = {
    "mode": ("fast", "f", "zz"),
    "level": ("1", "2"),
    "file": ("a.txt", "/etc/x"),
    "Operation": ("drop",),
}


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    return st.none() | st.sampled_from(values)


def make_rule(verdict: str, **conditions: Any) -> RuleSettings:
    return RuleSettings.model_validate({"verdict": verdict, **conditions})


verdicts = st.sampled_from(["allow", "ask", "deny", "deny", "deny"])


def make_rules(argument_names: Iterable[str]) -> st.SearchStrategy[list[RuleSettings]]:
    patterns = {name: st.sampled_from(ARGUMENTS[name]) for name in argument_names}
    return st.lists(
        st.builds(
            make_rule,
            verdicts,
            server=maybe("shop", "*", "mail"),
            tool=maybe(*TOOL_PATTERNS),
            operation=maybe(*OPERATION_PATTERNS),
            effect=maybe(*Effect),
            caller=maybe("dana", "*"),
            profile=maybe("work", "*"),
            arguments=st.fixed_dictionaries({}, optional=patterns),
            paths=maybe("inside", "outside"),
        )
        # With many conditions hardly any rule denies everything.
        | st.builds(make_rule, verdicts, tool=maybe(*TOOL_PATTERNS))
        | st.builds(make_rule, verdicts, operation=maybe(*OPERATION_PATTERNS))
        | st.builds(make_rule, st.just("deny"), effect=maybe(*Effect))
        | st.builds(make_rule, verdicts, arguments=st.fixed_dictionaries({}, optional=patterns)),
        max_size=5,
    )


callers = st.sampled_from([None, "dana", "kim"])
profiles = st.sampled_from([None, "work"])
scopes = st.lists(
    st.builds(
        Scope,
        servers=st.sampled_from([(), ("shop",), ("mail",), ("s*", "mail")]),
        tools=st.sampled_from([(), (), ("shop/*",), ("mail/*",)]),
        effects=st.sampled_from([(), (Effect.READ,), (Effect.WRITE, Effect.DESTROY)]),
    ),
    max_size=2,
).map(tuple)


@st.composite
def tools(draw: st.DrawFn) -> ToolCard:
    """A tool with or without operations, which a schema may list, and whose effects may differ."""
    properties: dict[str, Json] = {"mode": {"type": "string"}, "level": {"type": "string"}}
    listed = draw(st.lists(st.sampled_from([*OPERATIONS]), unique=True))
    kind = draw(st.sampled_from(["plain", "free", "listed"]))
    if kind != "plain":
        choices: dict[str, Json] = {"enum": listed} if kind == "listed" and listed else {}
        properties["operation"] = {"type": "string", **choices}
    requirable = ["mode"] if kind == "plain" else ["mode", "operation"]
    required = draw(st.lists(st.sampled_from(requirable), unique=True))
    schema: Json = {"type": "object", "properties": properties, "required": required}
    made = card(tool("manage", inputSchema=schema))
    written = draw(st.lists(st.sampled_from([*OPERATIONS]), unique=True))
    return replace(
        made,
        effect=Known(draw(st.sampled_from(Effect)), Source.WRITTEN),
        doubt=draw(st.sampled_from(["", "it may write"])),
        operations={name: OPERATIONS[name] for name in written},
    )


def list_arguments(given: Sequence[RuleSettings], required: Iterable[str]) -> Iterator[dict[str, Json]]:
    """Arguments of every kind that the rules tell apart."""
    named = {"Operation" if name == "operation" else name for rule in given for name in rule.arguments}
    named |= {"file"} if any(rule.paths for rule in given) else set[str]()
    choices = [
        (name, [*VALUES[name], *([] if name in required else [None])]) for name in sorted(named | {*required})
    ]
    for values in product(*(values for _, values in choices)):
        yield {name: value for (name, _), value in zip(choices, values, strict=True) if value is not None}


def list_operations(made: ToolCard) -> list[str | None]:
    schema: Any = made.definition["inputSchema"]
    required = "operation" in schema["required"]
    match schema["properties"]:
        case {"operation": {"enum": [*listed]}}:
            names = [str(name) for name in listed]
        case _:
            names = [*made.operations, "read", "READ", "drop", "DROP", "re", "manage", "other", "fresh"]
    return [*names, *([] if required else [None])]


def list_calls(made: ToolCard, given: Sequence[RuleSettings]) -> Iterator[Call]:
    required = [name for name in made.intelligence.parameters.required if name != "operation"]
    for operation in list_operations(made):
        named: dict[str, Json] = {} if operation is None else {"operation": operation}
        for arguments in list_arguments(given, required):
            yield build_call(made, named | arguments, ())


def list_server_calls(server: str, given: Sequence[RuleSettings]) -> Iterator[Call]:
    """Calls of tools that the server may have. The name of an operation may be any text."""
    named = {rule.operation.replace("*", "fresh") for rule in given if rule.operation is not None}
    operations = (None, "read", "drop", "re", "manage", "other", "fresh", *sorted(named))
    for name, effect, operation in product(("manage", "man", "send", "fresh"), Effect, operations):
        key = f"{server}/{name}"
        for arguments in list_arguments(given, ()):
            yield Call(
                tool=key,
                server=server,
                name=name,
                operation=key if operation is None else f"{key}.{operation}",
                arguments=arguments,
                effect=effect,
                fingerprint="",
            )


def passes_any(
    calls: Iterable[Call], given: Sequence[RuleSettings], caller: str | None, profile: str | None, within: Any
) -> bool:
    """Whether a call is not denied."""
    engine = PolicyEngine(given)
    context = CallContext(
        call_id="cal_1", caller=caller, profile=profile, scopes=within, working_directory=FOLDER
    )

    async def judge_all() -> bool:
        for call in calls:
            if (await engine.judge(call, context)).verdict is not Verdict.DENY:
                return True
        return False

    return anyio.run(judge_all)


# Reads only where an operation is named, which its schema does not list and the second rule denies.
UNLISTED: Final = replace(
    card(tool("manage", inputSchema={"type": "object", "properties": {}, "required": []})),
    effect=Known(Effect.DESTROY, Source.WRITTEN),
    operations={"read": Effect.READ},
)
NO_OPERATION: Final = [
    make_rule("deny", effect=Effect.DESTROY),
    make_rule("deny", arguments={"operation": "*"}),
    make_rule("allow"),
]


@pytest.mark.slow
@proves("N1")
@MANY
@example(given=NO_OPERATION, made=UNLISTED, caller=None, profile=None, within=())
@given(make_rules(ARGUMENTS), tools(), callers, profiles, scopes)
def test_a_tool_is_visible_exactly_when_some_call_of_it_would_not_be_denied(
    given: list[RuleSettings],
    made: ToolCard,
    caller: str | None,
    profile: str | None,
    within: tuple[Scope, ...],
) -> None:
    visible = not find_hidden_tools(given, [made], caller=caller, profile=profile, scopes=within)
    passes = passes_any(list_calls(made, given), given, caller, profile, within)
    assert visible == passes


@pytest.mark.slow
@proves("N1")
@settings(MANY, max_examples=30)  # each example is many calls
@given(make_rules(["mode", "level"]), st.sampled_from(["shop", "mail"]), callers, profiles, scopes)
def test_a_server_is_named_exactly_when_some_call_of_it_would_not_be_denied(
    given: list[RuleSettings], server: str, caller: str | None, profile: str | None, within: tuple[Scope, ...]
) -> None:
    named = may_call_any(given, server, caller=caller, profile=profile, scopes=within)
    assert named == passes_any(list_server_calls(server, given), given, caller, profile, within)


def test_every_condition_of_a_rule_has_a_matcher() -> None:
    assert {condition.field for condition in CONDITIONS} == RuleSettings.model_fields.keys() - {
        "verdict",
        "reason",
    }
