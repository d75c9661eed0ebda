"""The same request to another tool, or a refusal."""

from __future__ import annotations

import pytest

from fingerpost.call.arguments import translate_arguments
from fingerpost.records import Json, RepairKind
from tests.kit.argument_tools import FLAG, NUMBER, TEXT, WHOLE, takes
from tests.requirements import proves

SEARCH = takes(
    {"query": TEXT, "max_results": {"type": "integer", "default": 10}, "site": TEXT},
    required=["query"],
    name="search",
    server="one",
)


@proves("D7")
def test_arguments_are_mapped_to_the_other_tools_own_schema() -> None:
    other = takes({"q": TEXT, "count": TEXT}, name="web_search", server="two")
    prepared = translate_arguments({"query": "cats", "max_results": 5}, SEARCH, other)
    assert prepared.ok, prepared.errors
    assert prepared.arguments == {"q": "cats", "count": "5"}
    assert {repair.kind for repair in prepared.repairs} == {RepairKind.RENAMED, RepairKind.COERCED}


def test_what_the_model_wrote_for_the_first_tool_is_put_right_on_the_way() -> None:
    other = takes({"question": TEXT}, name="ask", server="two")
    assert translate_arguments({"Search": "cats"}, SEARCH, other).arguments == {"question": "cats"}


def test_a_setting_the_other_tool_lacks_is_dropped_and_recorded() -> None:
    other = takes({"query": TEXT}, name="find", server="two")
    prepared = translate_arguments({"query": "cats", "max_results": 5}, SEARCH, other)
    assert prepared.arguments == {"query": "cats"}
    assert [(repair.path, repair.kind) for repair in prepared.repairs] == [
        ("max_results", RepairKind.REMOVED)
    ]


def test_what_narrows_the_request_is_never_dropped() -> None:
    other = takes({"query": TEXT}, name="find", server="two")
    prepared = translate_arguments({"query": "cats", "site": "example.org"}, SEARCH, other)
    assert [error.parameter for error in prepared.errors] == ["site"]


def test_the_second_page_is_not_the_first() -> None:
    source = takes({"query": TEXT, "page": WHOLE}, required=["query"], server="one")
    other = takes({"query": TEXT}, name="find", server="two")
    assert translate_arguments({"query": "cats", "page": 1}, source, other).ok
    assert not translate_arguments({"query": "cats", "page": 2}, source, other).ok


@pytest.mark.parametrize("name", ["id", "issue_id", "cursor"])
def test_an_identifier_does_not_travel_to_another_server(name: str) -> None:
    source = takes({name: TEXT}, server="one")
    assert not translate_arguments({name: "7"}, source, takes({name: TEXT}, name="other", server="two")).ok
    assert translate_arguments({name: "7"}, source, takes({name: TEXT}, name="other", server="one")).ok


def test_a_required_parameter_nothing_was_said_about_is_an_error() -> None:
    other = takes({"query": TEXT, "country": TEXT}, name="find", server="two")
    prepared = translate_arguments({"query": "cats"}, SEARCH, other)
    assert [error.parameter for error in prepared.errors] == ["country"]


def test_a_question_becomes_a_conversation_of_one_turn() -> None:
    turn = {"type": "object", "properties": {"role": TEXT, "content": TEXT}, "required": ["role", "content"]}
    other = takes({"messages": {"type": "array", "items": turn}}, name="research", server="two")
    prepared = translate_arguments({"query": "why?"}, SEARCH, other)
    assert prepared.arguments == {"messages": [{"role": "user", "content": "why?"}]}


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [("max_price", 5, "min_price"), ("city", "Paris", "country"), ("dry_run", True, "run")],
)
def test_likeness_of_letters_is_no_reason_to_map(name: str, value: Json, other: str) -> None:
    schema = TEXT if isinstance(value, str) else FLAG if isinstance(value, bool) else NUMBER
    source = takes({name: schema}, server="one")
    target = takes({other: schema}, name="other", server="two")
    assert not translate_arguments({name: value}, source, target).ok
