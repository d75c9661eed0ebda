"""Which tools policy keeps from a caller altogether."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fingerpost.policy.visibility import find_hidden_tools, may_call_any
from fingerpost.records import Effect, Json, Known, Listing, Scope, Source, ToolCard
from fingerpost.settings import RuleSettings
from tests.kit.catalogs import card, catalog, tool
from tests.requirements import proves

CARDS: tuple[ToolCard, ...] = catalog(
    Listing(
        server="files",
        definitions=(tool("read_file", "Read a file."), tool("delete_file", "Delete a file.")),
    ),
    Listing(server="shop", definitions=(tool("list_orders", "List orders."),)),
).snapshot.cards


def hidden(*rules: dict[str, Any], caller: str | None = None) -> dict[str, str]:
    found = find_hidden_tools([RuleSettings.model_validate(rule) for rule in rules], CARDS, caller=caller)
    return {key: entry.rule for key, entry in found.items()}


@proves("E11")
def test_a_tool_every_call_of_which_is_denied_is_hidden_by_that_rule() -> None:
    assert hidden() == {}
    assert hidden({"verdict": "allow", "server": "shop"}, {"verdict": "deny", "tool": "delete_file"}) == {
        "files/delete_file": "rule 2 of the settings"
    }
    assert set(hidden({"verdict": "deny", "server": "files"})) == {"files/read_file", "files/delete_file"}
    assert set(hidden({"verdict": "deny", "effect": "destroy"})) == {"files/delete_file"}


def test_an_earlier_rule_that_lets_some_call_through_keeps_it_visible() -> None:
    deny = {"verdict": "deny", "server": "files"}
    assert "files/read_file" not in hidden({"verdict": "allow", "tool": "files/read_file"}, deny)
    assert hidden({"verdict": "ask", "server": "files", "paths": "inside"}, deny) == {}
    assert "files/read_file" not in hidden(
        {"verdict": "allow", "tool": "read_file", "arguments": {"path": "/safe/*"}}, deny
    )


def test_what_is_denied_only_for_some_arguments_stays_visible() -> None:
    assert hidden({"verdict": "deny", "tool": "read_file", "arguments": {"path": "/etc/*"}}) == {}


@proves("E11")
@pytest.mark.parametrize("allowed", [{"operation": "drop"}, {"arguments": {"operation": "drop"}}])
def test_an_operation_with_a_written_effect_does_not_show_a_tool_by_another_effect(
    allowed: dict[str, Any],
) -> None:
    """No call can name `drop` and only read, so that the first rule never allows one."""
    schema: Json = {
        "type": "object",
        "properties": {"operation": {"type": "string"}},
        "required": ["operation"],
    }
    made = card(tool("manage", inputSchema=schema))
    made = replace(made, effect=Known(Effect.READ, Source.WRITTEN), operations={"drop": Effect.DESTROY})
    rules = [{"verdict": "allow", "effect": "read", **allowed}, {"verdict": "deny"}]

    def is_hidden(card: ToolCard) -> bool:
        return bool(find_hidden_tools([RuleSettings.model_validate(rule) for rule in rules], [card]))

    assert is_hidden(made)
    assert not is_hidden(replace(made, operations={"drop": Effect.READ}))
    assert not is_hidden(replace(made, operations={"other": Effect.DESTROY}))


@proves("E11")
def test_rules_for_other_callers_hide_nothing_and_unnamed_callers_match_no_name() -> None:
    rules = ({"verdict": "allow", "caller": "dana"}, {"verdict": "deny", "server": "shop"})
    assert hidden(*rules, caller="dana") == {}
    assert set(hidden(*rules, caller="eve")) == {"shop/list_orders"}
    assert set(hidden(*rules)) == {"shop/list_orders"}


@proves("G7")
def test_what_lies_outside_of_any_scope_of_the_caller_is_hidden() -> None:
    def outside(*scopes: Scope) -> dict[str, str]:
        return {key: entry.rule for key, entry in find_hidden_tools([], CARDS, scopes=scopes).items()}

    assert outside(Scope()) == {}
    assert outside(Scope(servers=("files",))) == {"shop/list_orders": "scope of the caller"}
    assert set(outside(Scope(servers=("files",)), Scope(effects=(Effect.READ,)))) == {
        "shop/list_orders",
        "files/delete_file",
    }
    assert set(outside(Scope(tools=("files/read_*",)))) == {"shop/list_orders", "files/delete_file"}


@proves("N1")
def test_a_rule_about_operations_hides_a_tool_whose_every_call_it_denies() -> None:
    everything = {card.key for card in CARDS}
    assert set(hidden({"verdict": "deny", "operation": "*"})) == everything
    assert set(hidden({"verdict": "deny", "operation": "delete_file"})) == {"files/delete_file"}
    # A tool without operations has none that could be allowed.
    assert set(hidden({"verdict": "allow", "operation": "*"}, {"verdict": "deny"})) == everything


@proves("E11")
def test_calls_that_an_earlier_rule_denies_are_not_what_a_later_one_lets_through() -> None:
    """A tool stays visible only if some call of it is allowed or asks."""
    schema: Json = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    made = card(tool("read", inputSchema=schema), server="files")
    allowed = {"verdict": "allow", "tool": "read", "arguments": {"path": "/etc/pass*"}}

    def is_hidden(denied_path: str) -> bool:
        first = {"verdict": "deny", "arguments": {"path": denied_path}}
        rules = [RuleSettings.model_validate(each) for each in (first, allowed, {"verdict": "deny"})]
        return bool(find_hidden_tools(rules, [made]))

    assert is_hidden("/etc/pass*")
    assert is_hidden("/etc/*")
    assert is_hidden("*")  # a required argument always has a value
    assert not is_hidden("/etc/pass")
    assert not is_hidden("/etc/passwd*")
    assert not is_hidden("/e[tu]c/*")  # what it covers is not worked out, so it counts as less
    assert not is_hidden("*/pass*")


def test_a_server_whose_tools_are_unknown_has_none_to_call_if_the_tools_a_rule_allows_are_denied() -> None:
    allowed: dict[str, Any] = {"verdict": "ask", "tool": "shop/list*"}

    def may_call(*rules: dict[str, Any]) -> bool:
        return may_call_any(
            [RuleSettings.model_validate(rule) for rule in (*rules, {"verdict": "deny"})], "shop"
        )

    assert may_call(allowed)
    assert not may_call({"verdict": "deny", "tool": "shop/*"}, allowed)
    assert not may_call({"verdict": "deny", "tool": "list*"}, allowed)
    assert may_call({"verdict": "deny", "tool": "list_orders"}, allowed)
    assert may_call({"verdict": "deny", "tool": "list*"}, {"verdict": "ask", "server": "shop"})
