"""What is not certain is refused, with an error that lets the next try succeed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fingerpost.call.arguments import prepare_arguments
from fingerpost.records import Json, ParameterFault
from fingerpost.redaction import MASK
from tests.kit.argument_tools import FLAG, NUMBER, TEXT, WHOLE, takes
from tests.kit.tables import table
from tests.requirements import proves

WORDS = {"type": "array", "items": TEXT}
DATE = {"type": "string", "format": "date"}


@proves("D7")
@table(
    ("schema", "given"),
    [
        (WHOLE, "three"),
        (WHOLE, "3.7"),
        (WHOLE, 3.7),
        (WHOLE, "5 km"),
        (WHOLE, True),
        (WHOLE, "٣"),
        (NUMBER, "1,234"),  # 1.234 in half of Europe
        (NUMBER, "nan"),
        (FLAG, "maybe"),
        (FLAG, 2),
        (TEXT, ["a", "b"]),
        (TEXT, {"a": 1}),
        (TEXT, None),
        (WORDS, "Paris, France"),  # one item or two?
        (DATE, "3/4/2024"),  # March or April?
        ({"enum": ["asc", "desc"]}, "newest"),
        ({"enum": ["ascending", "random"]}, "descending"),
        ({"enum": ["active", "archived"]}, "inactive"),
        ({"enum": ["enabled", "unknown"]}, "disabled"),
        ({"enum": ["allow", "deny"]}, "all"),
        ({"enum": ["read_write", "none"]}, "read"),
        ({"enum": ["readwrite", "none"]}, "read"),
        ({"enum": ["monday", "monthly"]}, "mon"),
        ({"enum": ["monday", "mondays"]}, "monda"),
        ({"enum": ["symmetric", "none"]}, "asymmetric"),
        ({"enum": ["v1", "v2"]}, "v3"),
        ({"enum": ["version10", "version12"]}, "version11"),
        ({"anyOf": [WHOLE, FLAG]}, "1"),
        ({"type": "integer", "minimum": 1}, 0),
        ({"type": "integer", "maximum": 5}, "6"),
        ({"type": "object"}, "[1]"),
    ],
)
def test_a_value_with_no_or_two_readings_is_refused(schema: dict[str, Any], given: Json) -> None:
    prepared = prepare_arguments(takes({"it": schema}), {"it": given})
    assert not prepared.ok
    assert prepared.errors[0].parameter == "it"


@proves("D7")
@pytest.mark.parametrize(
    ("parameters", "given"),
    [
        ({"start_date": TEXT, "end_date": TEXT}, {"date": "2024-01-01", "end_date": "2024-02-01"}),
        ({"max_price": NUMBER}, {"price": 5}),
        ({"min_price": NUMBER}, {"max_price": 5}),
        ({"country": TEXT}, {"county": "Kent"}),
        ({"country": TEXT}, {"city": "Paris"}),
        ({"user_name": TEXT}, {"user_id": "7"}),
        ({"timeout_ms": WHOLE}, {"timeout": 5}),
        ({"address1": TEXT}, {"address2": "Main"}),
        ({"distance_km": NUMBER}, {"distance_miles": 5}),
        ({"path": TEXT, "filename": TEXT}, {"file": "a", "path": "b"}),
        ({"query": TEXT}, {"q": "a", "search": "b"}),
        ({"include_tests": FLAG}, {"exclude_tests": True}),
        ({"from_account": TEXT, "to_account": TEXT}, {"account": "a", "to_account": "b"}),
    ],
)
def test_a_key_that_may_mean_something_else_is_not_renamed(
    parameters: dict[str, Any], given: dict[str, Json]
) -> None:
    if "file" in given:
        parameters = {**parameters, "directory": TEXT}
    prepared = prepare_arguments(takes(parameters), given)
    assert not prepared.ok


def test_a_word_that_turns_a_name_around_counts_even_when_the_tool_is_called_after_it() -> None:
    card = takes({"maximum_price": NUMBER}, name="find_below_maximum_price")
    assert not prepare_arguments(card, {"price": 5}).ok


def test_a_key_that_is_itself_a_parameter_is_never_taken_for_another() -> None:
    card = takes({"path": TEXT, "file": TEXT}, required=["path"])
    prepared = prepare_arguments(card, {"file": "a"})
    assert [error.parameter for error in prepared.errors] == ["path"]
    assert prepared.arguments == {"file": "a"}


def test_an_unknown_key_that_may_have_meant_an_open_parameter_is_not_waved_through() -> None:
    card = takes({"city": TEXT, "scale": {"enum": ["metric", "imperial"]}}, required=["city"])
    prepared = prepare_arguments(card, {"city": "Acre", "measurements": "metric"})
    assert [error.parameter for error in prepared.errors] == ["measurements"]
    assert "scale" in prepared.errors[0].message


def test_an_unknown_key_that_no_open_parameter_could_take_is_the_servers_to_judge() -> None:
    card = takes({"city": TEXT, "days": WHOLE}, required=["city"])
    prepared = prepare_arguments(card, {"city": "Acre", "mood": "sunny"})
    assert prepared.ok
    assert prepared.arguments == {"city": "Acre", "mood": "sunny"}


@proves("C4")
def test_missing_wrong_type_and_bad_value_are_told_apart_each_naming_its_parameter() -> None:
    card = takes(
        {"path": {**TEXT, "description": "Where the file is"}, "line": WHOLE, "mode": {"enum": ["r", "w"]}}
    )
    prepared = prepare_arguments(card, {"line": "first", "mode": "execute"})
    found = {error.parameter: error for error in prepared.errors}
    assert {name: error.fault for name, error in found.items()} == {
        "path": ParameterFault.MISSING,
        "line": ParameterFault.WRONG_TYPE,
        "mode": ParameterFault.BAD_VALUE,
    }
    assert found["path"].message == "path is missing: expected string (Where the file is)"
    assert found["line"].message == 'line: expected integer, given string "first"'
    assert found["mode"].message == 'mode: expected one of "r"|"w", given "execute"'
    assert prepared.signature == 'shop__act(path: string, line: integer, mode: "r"|"w")'


def test_a_forbidden_key_is_named_with_the_parameters_near_it() -> None:
    card = takes({"path": TEXT, "encoding": TEXT}, required=["path"], additionalProperties=False)
    prepared = prepare_arguments(card, {"path": "a", "encode_as_well": 7.5})
    (error,) = prepared.errors
    assert error.parameter == "encode_as_well"
    assert "encoding" in error.message


def test_each_parameter_has_one_error_and_nested_ones_say_where() -> None:
    item = {"type": "object", "properties": {"line": {"type": "integer", "minimum": 1, "multipleOf": 2}}}
    card = takes({"edits": {"type": "array", "items": item}})
    prepared = prepare_arguments(card, {"edits": [{"line": 2}, {"line": -1}]})
    assert [error.parameter for error in prepared.errors] == ["edits[1].line"]


def test_of_two_faults_of_one_parameter_the_type_is_told_first() -> None:
    prepared = prepare_arguments(takes({"level": {"type": "integer", "enum": [1, 2]}}), {"level": "x"})
    assert [error.fault for error in prepared.errors] == [ParameterFault.WRONG_TYPE]


def test_a_range_is_told() -> None:
    prepared = prepare_arguments(takes({"volume": {"type": "integer", "maximum": 100}}), {"volume": 300})
    assert prepared.errors[0].message == "volume: expected at most 100, given 300"


@proves("C4")
def test_no_secret_shows_in_an_error_or_a_repair() -> None:
    card = takes({"api_key": WHOLE, "note": WHOLE, "token": TEXT})
    secret = "ghp_" + "a1B2" * 9
    prepared = prepare_arguments(
        card, {"api_key": "hunter2hunter2", "note": f"key {secret}", "Token": secret}
    )
    text = json.dumps([error.message for error in prepared.errors]) + repr(prepared.repairs)
    assert "hunter2" not in text
    assert secret not in text
    assert MASK in text


def test_a_repair_of_a_secret_tells_that_it_happened_but_not_what_it_was() -> None:
    prepared = prepare_arguments(takes({"password": TEXT}), {"PASSWORD": ["hunter2hunter2"]})
    assert prepared.arguments == {"password": "hunter2hunter2"}
    assert len(prepared.repairs) == 2
    assert "hunter2" not in repr(prepared.repairs)


def test_a_long_value_is_shown_short() -> None:
    prepared = prepare_arguments(takes({"line": WHOLE}), {"line": "x" * 100_000})
    assert len(prepared.errors[0].message) < 200


def test_many_faults_are_bounded() -> None:
    card = takes({f"p{number}": TEXT for number in range(200)})
    assert 0 < len(prepare_arguments(card, {}).errors) <= 20
