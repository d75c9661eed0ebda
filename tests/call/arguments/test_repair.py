"""What models write, made to fit: every repair that is certain, and its record."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.arguments import gold_of_ours, verdicts

from fingerpost.call.arguments import prepare_arguments
from fingerpost.records import Json, RepairKind
from tests.kit.argument_tools import FLAG, NUMBER, TEXT, WHOLE, takes, with_schema
from tests.kit.tables import table
from tests.requirements import proves

NULLABLE = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
DATE = {"type": "string", "format": "date"}
CIRCLE = {
    "type": "object",
    "properties": {"kind": {"const": "circle"}, "radius": NUMBER},
    "required": ["kind", "radius"],
}
SQUARE = {
    "type": "object",
    "properties": {"kind": {"const": "square"}, "side": NUMBER},
    "required": ["kind", "side"],
}


@proves("D7")
@table(
    ("schema", "given", "meant"),
    [
        (WHOLE, "3", 3),
        (WHOLE, " 42 ", 42),
        (WHOLE, "3.0", 3),
        (WHOLE, 3.0, 3),
        (WHOLE, "1,234", 1234),
        (WHOLE, ["7"], 7),
        (NUMBER, "2.5", 2.5),
        (NUMBER, "1e3", 1000.0),
        (NUMBER, "1,234,567.5", 1234567.5),
        (FLAG, "true", True),
        (FLAG, "No", False),
        (FLAG, 1, True),
        (TEXT, 5, "5"),
        (TEXT, 2.5, "2.5"),
        (TEXT, True, "true"),
        (TEXT, ["one"], "one"),
        (NULLABLE, "null", None),
        (NULLABLE, "7", 7),
        ({"type": "array", "items": TEXT}, "one", ["one"]),
        ({"type": "array", "items": WHOLE}, "1, 2,3", [1, 2, 3]),
        ({"type": "array", "items": WHOLE}, 4, [4]),
        ({"type": "array", "items": TEXT}, '["a, b", "c"]', ["a, b", "c"]),
        ({"type": "array", "items": TEXT}, "['a', 'b']", ["a", "b"]),
        ({"type": "array", "items": {"enum": ["red", "green"]}}, "Red; GREEN", ["red", "green"]),
        ({"enum": ["red", "green"]}, ["Green"], "green"),
        ({"type": "object"}, '{"a": [1, null]}', {"a": [1, None]}),
        ({"type": "object", "properties": {"line": WHOLE}}, [{"line": "3"}], {"line": 3}),
        ({"enum": ["asc", "desc"]}, "ASC", "asc"),
        ({"enum": ["asc", "desc"]}, "descending", "desc"),
        ({"enum": ["read_file", "write_file"]}, "readFile", "read_file"),
        ({"enum": ["information", "warning"]}, "info", "information"),
        ({"enum": ["pending", "finished"]}, "pendng", "pending"),
        ({"enum": [1, 2, 3]}, "2", 2),
        ({"const": "v1"}, "V1", "v1"),
        (DATE, "2024/3/5", "2024-03-05"),
        (DATE, "March 5, 2024", "2024-03-05"),
        (DATE, "5th of March 2024", "2024-03-05"),
        (DATE, "25/12/2024", "2024-12-25"),
        (DATE, "20240305", "2024-03-05"),
        ({"type": "string", "description": "Day, as YYYY-MM-DD"}, "5 Mar 2024", "2024-03-05"),
        ({"oneOf": [CIRCLE, SQUARE]}, {"kind": "Circle", "radius": "2"}, {"kind": "circle", "radius": 2}),
        ({"anyOf": [CIRCLE, SQUARE]}, '{"kind": "square", "side": 4}', {"kind": "square", "side": 4}),
        ({"type": "string", "contentMediaType": "application/json"}, {"a": 1}, '{"a": 1}'),
    ],
)
def test_a_value_is_read_the_way_its_schema_asks_for(
    schema: dict[str, Any], given: Json, meant: Json
) -> None:
    prepared = prepare_arguments(takes({"it": schema}), {"it": given})
    assert prepared.ok, prepared.errors
    assert prepared.arguments == {"it": meant}
    assert type(prepared.arguments["it"]) is type(meant)
    assert prepared.repairs


@proves("D7")
@table(
    ("parameters", "given", "meant"),
    [
        ({"file_path": TEXT}, {"filePath": "a"}, {"file_path": "a"}),
        ({"maxResults": WHOLE}, {"max-results": 3}, {"maxResults": 3}),
        ({"path": TEXT}, {"filename": "a"}, {"path": "a"}),
        ({"query": TEXT, "limit": WHOLE}, {"q": "x", "top_k": 3}, {"query": "x", "limit": 3}),
        ({"latitude": NUMBER, "longitude": NUMBER}, {"lat": 1, "lng": 2}, {"latitude": 1, "longitude": 2}),
        ({"tags": {"type": "array"}}, {"tag": ["a"]}, {"tags": ["a"]}),
        ({"who": {**TEXT, "title": "Account owner"}}, {"account_owner": "d"}, {"who": "d"}),
        ({"who": {**TEXT, "aliases": ["holder"]}}, {"holder": "d"}, {"who": "d"}),
        ({"destination": TEXT}, {"destnation": "x"}, {"destination": "x"}),
        ({"radius": NUMBER}, {"r": 2}, {"radius": 2}),
        ({"operation": {"enum": ["read", "write"]}, "path": TEXT}, {"action": "Read", "file": "a"},
         {"operation": "read", "path": "a"}),
        ({"content": TEXT}, {"input": "x"}, {"content": "x"}),
        ({"city": TEXT}, {"city_name": "Acre"}, {"city": "Acre"}),
        ({"user_id": WHOLE}, {"id": 7}, {"user_id": 7}),
        ({"colours": {"type": "array"}}, {"colours_list": ["a"]}, {"colours": ["a"]}),
    ],
)  # fmt: skip
def test_a_key_finds_the_parameter_it_was_meant_for(
    parameters: dict[str, Any], given: dict[str, Json], meant: dict[str, Json]
) -> None:
    prepared = prepare_arguments(takes(parameters), given)
    assert prepared.ok, prepared.errors
    assert prepared.arguments == meant
    assert any(repair.kind is RepairKind.RENAMED for repair in prepared.repairs)


@proves("D7")
def test_every_repair_is_recorded_with_before_and_after() -> None:
    card = takes({"query": TEXT, "limit": WHOLE})
    prepared = prepare_arguments(card, {"q": "cats", "limit": "3"})
    assert [(each.path, each.kind, each.before, each.after) for each in prepared.repairs] == [
        ("query", RepairKind.RENAMED, {"q": "cats"}, {"query": "cats"}),
        ("limit", RepairKind.COERCED, "3", 3),
    ]
    assert all(each.reason for each in prepared.repairs)


@proves("D7")
def test_the_record_of_a_repair_holds_no_large_value() -> None:
    card = takes({"rows": {"type": "array", "items": WHOLE}})
    prepared = prepare_arguments(card, {"Rows": list(range(300))})
    assert prepared.arguments == {"rows": list(range(300))}
    assert [each.after for each in prepared.repairs] == [{"rows": "a list of more than 200 values"}]


@proves("D7")
def test_objects_within_objects_and_lists_are_put_right_too() -> None:
    edit = {"type": "object", "properties": {"old_text": TEXT, "line": WHOLE}, "required": ["old_text"]}
    card = takes({"edits": {"type": "array", "items": edit}})
    prepared = prepare_arguments(card, {"edits": '[{"oldText": "a", "line": "3"}]'})
    assert prepared.arguments == {"edits": [{"old_text": "a", "line": 3}]}
    assert {repair.path for repair in prepared.repairs} == {"edits", "edits[0].old_text", "edits[0].line"}


@table("wrapper", ["arguments", "input", "params", "act", "kwargs"])
def test_arguments_one_level_too_deep_are_lifted(wrapper: str) -> None:
    card = takes({"path": TEXT})
    assert prepare_arguments(card, {wrapper: {"path": "a"}}).arguments == {"path": "a"}
    assert prepare_arguments(card, {wrapper: '{"Path": "a"}'}).arguments == {"path": "a"}
    assert prepare_arguments(card, {"name": "act", wrapper: {"path": "a"}}).arguments == {"path": "a"}


def test_a_parameter_that_is_called_like_a_wrapper_keeps_its_value() -> None:
    card = takes({"input": {"type": "object"}})
    prepared = prepare_arguments(card, {"input": {"input": {"a": 1}}})
    assert prepared.arguments == {"input": {"input": {"a": 1}}}
    assert not prepared.repairs


def test_arguments_one_level_too_high_go_into_the_one_object_that_takes_them() -> None:
    inner = {"type": "object", "properties": {"path": TEXT, "line": WHOLE}, "required": ["path"]}
    prepared = prepare_arguments(takes({"request": inner}), {"path": "a", "line": "3"})
    assert prepared.arguments == {"request": {"path": "a", "line": 3}}


def test_a_missing_required_parameter_is_filled_from_its_default_or_const() -> None:
    card = takes({"path": TEXT, "depth": {"type": "integer", "default": 2}, "version": {"const": "v1"}})
    prepared = prepare_arguments(card, {"path": "a"})
    assert prepared.arguments == {"path": "a", "depth": 2, "version": "v1"}
    assert [repair.kind for repair in prepared.repairs] == [RepairKind.DEFAULT, RepairKind.DEFAULT]


def test_a_missing_optional_parameter_stays_missing_whatever_its_default() -> None:
    card = takes({"path": TEXT, "depth": {"type": "integer", "default": 2}}, required=["path"])
    assert prepare_arguments(card, {"path": "a"}).arguments == {"path": "a"}


def test_null_or_emptiness_for_an_optional_parameter_is_left_out() -> None:
    card = takes({"path": TEXT, "depth": WHOLE, "mode": {"enum": ["a", "b"]}}, required=["path"])
    prepared = prepare_arguments(card, {"path": "a", "depth": None, "mode": "", "unheard_of": None})
    assert prepared.arguments == {"path": "a"}
    assert [repair.kind for repair in prepared.repairs] == [RepairKind.REMOVED] * 3


def test_null_is_kept_where_it_is_a_value() -> None:
    card = takes({"path": TEXT, "depth": NULLABLE}, required=["path"])
    prepared = prepare_arguments(card, {"path": "a", "depth": None})
    assert prepared.arguments == {"path": "a", "depth": None}
    assert not prepared.repairs


def test_extra_keys_stay_where_the_schema_welcomes_them_and_empty_ones_go_where_it_does_not() -> None:
    open_card = takes({"path": TEXT}, additionalProperties=True)
    assert prepare_arguments(open_card, {"path": "a", "colour": ""}).arguments == {"path": "a", "colour": ""}
    closed = takes({"path": TEXT}, additionalProperties=False)
    assert prepare_arguments(closed, {"path": "a", "colour": ""}).arguments == {"path": "a"}


def test_a_schema_spread_over_references_and_all_of_is_repaired_like_a_plain_one() -> None:
    card = with_schema(
        {
            "type": "object",
            "$defs": {"size": {"type": "integer", "minimum": 1}},
            "allOf": [
                {"properties": {"path": TEXT}, "required": ["path"]},
                {"properties": {"limit": {"$ref": "#/$defs/size"}}},
            ],
        }
    )
    prepared = prepare_arguments(card, {"filename": "a", "limit": "3"})
    assert prepared.arguments == {"path": "a", "limit": 3}


def test_a_null_within_free_data_is_not_ours_to_remove() -> None:
    data = {"type": "object", "properties": {"name": TEXT}}
    prepared = prepare_arguments(takes({"data": data}), {"data": {"name": "a", "nickname": None}})
    assert prepared.arguments == {"data": {"name": "a", "nickname": None}}


def test_without_repair_arguments_are_only_judged() -> None:
    prepared = prepare_arguments(takes({"limit": WHOLE}), {"limit": "3"}, repair=False)
    assert not prepared.ok
    assert prepared.arguments == {"limit": "3"}
    assert not prepared.repairs


def test_the_arguments_given_are_never_changed_themselves() -> None:
    given: dict[str, Any] = {"edits": [{"line": "3"}]}
    edit = {"type": "object", "properties": {"line": WHOLE}}
    prepare_arguments(takes({"edits": {"type": "array", "items": edit}}), given)
    assert given == {"edits": [{"line": "3"}]}


@pytest.mark.slow
@proves("C4", "D7")
def test_of_our_own_calls_broken_in_every_way_none_is_accepted_with_other_arguments() -> None:
    outcomes = [(verdict.outcome, verdict.way, verdict.broken) for verdict in verdicts(gold_of_ours())]
    assert [outcome for outcome in outcomes if outcome[0] == "wrong"] == []
    assert sum(outcome[0] == "right" for outcome in outcomes) >= 0.95 * len(outcomes)
