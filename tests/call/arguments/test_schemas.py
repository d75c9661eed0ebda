"""Schemas and arguments that mean harm, or no sense: nothing hangs, nothing is fetched, nothing is raised."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from fingerpost.call.arguments import format_signature, prepare_arguments
from fingerpost.call.arguments.coercion import MAX_DEPTH, MAX_NODES
from fingerpost.call.arguments.tool_schema import MAX_SCHEMAS, tool_schemas
from fingerpost.records import Json, ParameterFault
from tests.kit.argument_tools import TEXT, WHOLE, takes, with_schema
from tests.kit.cards import card
from tests.kit.tables import table
from tests.requirements import proves


@proves("C4")
def test_a_reference_to_another_host_is_never_fetched_and_counts_as_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.2)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        prepared = prepare_arguments(
            takes({"it": {"$ref": url}, "n": WHOLE}), {"it": {"any": "thing"}, "n": "3"}
        )
        with pytest.raises(TimeoutError):
            listener.accept()
    assert prepared.arguments == {"it": {"any": "thing"}, "n": 3}
    assert url[:40] in prepared.notes[0]


def test_a_reference_that_leads_nowhere_counts_as_anything() -> None:
    assert prepare_arguments(takes({"it": {"$ref": "#/$defs/lost"}}), {"it": 3}).ok
    for place in ("9" * 5000, "²", "٣", "-1"):
        assert prepare_arguments(takes({"it": {"$ref": f"#/allOf/{place}"}}, allOf=[{}]), {"it": 3}).ok


@table(
    "definitions",
    [
        {"a": {"$ref": "#/$defs/a"}},
        {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "integer"}]}},
        {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "integer"}]}},
    ],
)
def test_references_in_a_circle_end(definitions: dict[str, Any]) -> None:
    card = takes({"it": {"$ref": "#/$defs/a"}}, defs=definitions)
    assert prepare_arguments(card, {"it": 3}).ok
    prepare_arguments(card, {"it": "x"})
    assert "it" in format_signature(card)


def test_a_circle_in_one_parameter_hides_no_fault_in_another() -> None:
    loop = {"it": {"$ref": "#/$defs/a"}, "n": {"type": "integer", "minimum": 5}}
    prepared = prepare_arguments(takes(loop, defs={"a": {"$ref": "#/$defs/a"}}), {"it": 3, "n": 1})
    assert [error.parameter for error in prepared.errors] == ["n"]


def test_a_tree_described_by_itself_is_repaired_at_every_depth() -> None:
    node = {"type": "object", "properties": {"size": WHOLE, "next": {"$ref": "#/$defs/node"}}}
    card = takes({"root": {"$ref": "#/$defs/node"}}, defs={"node": node})
    prepared = prepare_arguments(card, {"root": {"size": "1", "next": {"size": "2", "next": {"size": "3"}}}})
    assert prepared.arguments == {"root": {"size": 1, "next": {"size": 2, "next": {"size": 3}}}}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_few_lines_that_ask_for_a_billion_steps_get_a_bounded_number(keyword: str) -> None:
    definitions: dict[str, Any] = {
        f"d{number}": {keyword: [{"$ref": f"#/$defs/d{number + 1}"}, {"$ref": f"#/$defs/d{number + 1}"}]}
        for number in range(30)
    }
    definitions["d30"] = {"type": "integer"}
    card = takes({"it": {"$ref": "#/$defs/d0"}}, defs=definitions)
    prepare_arguments(card, {"it": "x"})  # the test's own time limit is the assertion


def test_pattern_properties_and_forbidden_extras_work_together() -> None:
    card = takes({"id": TEXT}, patternProperties={"^x-": WHOLE}, additionalProperties=False)
    assert prepare_arguments(card, {"id": "a", "x-size": 3}).ok
    assert not prepare_arguments(card, {"id": "a", "y-size": 3}).ok
    assert not prepare_arguments(card, {"id": "a", "x-size": "many"}).ok


@table(
    "schema",
    [
        {"type": "string", "minLength": "three"},
        {"type": "integer", "multipleOf": 0},
        {"type": "number", "minimum": "low"},
        {"type": "string", "pattern": "("},
        {"type": "string", "pattern": 7},
        {"type": "object", "required": True},
        {"items": 7},
        {"enum": []},
        {"$ref": 7},
        {"type": "array", "uniqueItems": "yes"},
        True,
        False,
    ],
)
@table("value", [None, 1, 1e300, "a", [1, 1], {"a": 1}])
def test_a_schema_that_makes_no_sense_raises_nothing(schema: Json, value: Json) -> None:
    prepare_arguments(takes({"it": schema}, required=[]), {"it": value})


def test_objects_in_a_list_without_repetition_are_compared_as_json_is() -> None:
    card = takes({"rows": {"type": "array", "uniqueItems": True}})
    for first, second, same in (
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, [["a", 1]], False),
    ):
        assert prepare_arguments(card, {"rows": [first, second]}).ok is not same, (first, second)


def test_schemas_of_tools_that_were_not_used_for_long_are_dropped() -> None:
    first, *others = (card(f"tool_{number}") for number in range(MAX_SCHEMAS + 1))
    kept = tool_schemas.get_schema(first)
    assert tool_schemas.get_schema(first) is kept
    last = [tool_schemas.get_schema(other) for other in others][-1]
    assert tool_schemas.get_schema(others[-1]) is last
    assert tool_schemas.get_schema(first) is not kept


def test_the_schema_may_name_an_older_draft() -> None:
    card = with_schema(
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
        }
    )
    assert prepare_arguments(card, {"n": "1"}).arguments == {"n": 1}
    assert not prepare_arguments(card, {"n": 0}).ok


def test_arguments_too_deep_or_too_many_are_refused_before_anything_else() -> None:
    deep: Json = 1
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    card = takes({"it": {}})
    for value in (deep, [0] * (MAX_NODES + 1), float("nan"), "\ud800"):
        prepared = prepare_arguments(card, {"it": value})
        assert [error.fault for error in prepared.errors] == [ParameterFault.BAD_VALUE]


def test_a_text_that_spells_out_something_too_deep_is_not_parsed() -> None:
    card = takes({"it": {"type": "array"}})
    assert not prepare_arguments(card, {"it": "[" * 50_000 + "]" * 50_000}).ok
