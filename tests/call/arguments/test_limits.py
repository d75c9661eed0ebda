"""The work for one call is bounded, counted in steps; what is beyond is left to the server, never refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.arguments import PreparedArguments, prepare_arguments
from fingerpost.call.arguments.repair import prepare_thoroughly
from fingerpost.call.arguments.tool_schema import tool_schemas
from fingerpost.records import JsonObject, RepairKind, ToolCard
from fingerpost.schemas.validator import MAX_STEPS, StepBudget, StepBudgetExceeded
from tests.call.arguments.test_properties import PATIENT, accepts, arguments, schemas
from tests.kit.argument_tools import TEXT, WHOLE, takes, with_schema
from tests.kit.tables import table
from tests.requirements import proves

UNFINISHED = "not checked further"


def prepare_with(steps: int, card: ToolCard, given: JsonObject, *, repair: bool = True) -> PreparedArguments:
    effort = StepBudget(steps, reserved=steps // 3)
    return prepare_thoroughly(card, tool_schemas.get_schema(card), given, repair=repair, budget=effort)


def steps_for(card: ToolCard, given: JsonObject) -> int:
    effort = StepBudget()
    prepare_thoroughly(card, tool_schemas.get_schema(card), given, repair=True, budget=effort)
    return MAX_STEPS - max(effort.left, 0)


def is_complete(prepared: PreparedArguments) -> bool:
    return not any(note.startswith(UNFINISHED) for note in prepared.notes)


def alternatives(depth: int, keyword: str = "anyOf") -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string", "minLength": 3}
    for _ in range(depth):
        made = {keyword: [made, made]}
    return made


def parameters(number: int) -> dict[str, Any]:
    return {f"param_{place}": TEXT for place in range(number)}


@pytest.mark.slow
@proves("C4")
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_alternatives_within_alternatives_cost_a_bounded_number_of_steps(keyword: str) -> None:
    card = takes({"a": {"type": "array", "items": alternatives(11, keyword)}})
    given: JsonObject = {"a": list(range(200))}
    prepared = prepare_arguments(card, given)
    assert not is_complete(prepared)
    assert prepared.arguments == given


def test_an_ordinary_call_is_far_from_the_bound() -> None:
    card = takes(
        {
            "query": {"type": "string", "minLength": 2},
            "limit": WHOLE,
            "sort": {"enum": ["new", "old"]},
            "tags": {"type": "array", "items": TEXT},
            "note": {"anyOf": [TEXT, {"type": "null"}]},
        }
    )
    given: JsonObject = {"Query": "hours", "limit": "3", "sort": "NEW", "tags": ["a"], "note": None}
    assert prepare_arguments(card, given).ok
    assert steps_for(card, given) < MAX_STEPS // 200


def test_a_list_of_some_hundred_records_is_put_right_and_checked_to_the_end() -> None:
    record = {"type": "object", "properties": {"path": TEXT, "size": WHOLE}, "required": ["path"]}
    card = takes({"files": {"type": "array", "items": record}})
    prepared = prepare_arguments(card, {"files": [{"Path": "x", "size": "1"}] * 500})
    assert prepared.ok
    assert is_complete(prepared)
    assert prepared.arguments == {"files": [{"path": "x", "size": 1}] * 500}


@pytest.mark.slow
@pytest.mark.parametrize(("known", "unknown"), [(500, 90), (1_000, 1_000)])
def test_very_many_unknown_keys_are_not_compared_with_very_many_names(known: int, unknown: int) -> None:
    card = takes(parameters(known), required=[])
    given: JsonObject = {f"prm{place}": "x" for place in range(unknown)}
    assert steps_for(card, given) < MAX_STEPS // 4
    assert 0 < len(prepare_arguments(card, given).errors) <= 20


@pytest.mark.slow
def test_a_name_in_another_spelling_is_found_among_very_many() -> None:
    card = takes(parameters(5_000), required=[])
    assert prepare_arguments(card, {"Param-7": "x"}).arguments == {"param_7": "x"}


LISTS = [[0] * 100] * 20


@pytest.mark.slow
@table(
    "schema, value, least",
    [
        ({"items": {"enum": [[0] * 99 + [place] for place in range(1, 40)]}}, LISTS, 20_000),
        ({"uniqueItems": True}, LISTS, 900),
        ({"anyOf": [{"items": False}] * 300}, [0] * 20, 6_000),
        ({"anyOf": [False] * 300}, 1, 300),
        (
            {
                "anyOf": [
                    {"required": [f"x{place}"], "properties": {f"x{place}": {"default": 1}}}
                    for place in range(100)
                ]
            },
            {"a": LISTS},
            10_000,
        ),
        (
            {"items": {"propertyNames": {"anyOf": [{"pattern": f"^{place}.*$"} for place in range(100)]}}},
            [{"k": 1}] * 20,
            20_000,
        ),
        ({"allOf": [{"$ref": f"#/$defs/lost{place}"} for place in range(300)]}, 1, 1_200),
        ({"allOf": [{"$ref": f"#lost{place}"} for place in range(300)]}, 1, 1_200),
    ],
)
def test_what_looks_like_one_step_and_is_many_counts_as_many(
    schema: dict[str, Any], value: Any, least: int
) -> None:
    assert steps_for(takes({"it": schema}), {"it": value}) >= least


def test_references_that_part_and_meet_again_are_bounded_where_entries_are_counted_too() -> None:
    definitions: dict[str, Any] = {
        f"d{place}": {"$ref": f"#/$defs/d{place + 1}", "$dynamicRef": f"#/$defs/d{place + 1}"}
        for place in range(40)
    }
    definitions["d40"] = {"properties": {"id": TEXT}}
    schema = {"type": "object", "$defs": definitions, "$ref": "#/$defs/d0", "unevaluatedProperties": False}
    prepare_arguments(with_schema(schema), {"id": "x"})


@pytest.mark.slow
def test_once_the_steps_are_spent_what_was_certain_stays_and_the_rest_is_as_given() -> None:
    properties = {"first": WHOLE, "deep": alternatives(10), "last": WHOLE}
    prepared = prepare_with(3_000, takes(properties), {"first": "1", "deep": 7, "last": "2"})
    assert prepared.arguments == {"first": 1, "deep": 7, "last": "2"}
    assert [(repair.path, repair.kind) for repair in prepared.repairs] == [("first", RepairKind.COERCED)]
    assert not is_complete(prepared)


def test_a_parameter_is_put_right_as_a_whole_or_not_at_all() -> None:
    given: JsonObject = {"it": ["1"] * 200}
    prepared = prepare_with(600, takes({"it": {"type": "array", "items": WHOLE}}), given)
    assert prepared.arguments == given
    assert prepared.repairs == ()


def test_every_part_of_a_schema_counts_at_every_value() -> None:
    several = takes({"it": {"type": "array", "items": {"allOf": [TEXT] * 40}}})
    one, ten = (steps_for(several, {"it": ["x"] * number}) for number in (1, 10))
    assert one > 40
    assert ten > 9 * one // 2


def test_a_half_answer_settles_nothing() -> None:
    """`not`, and `oneOf` that must fit once only: with too few steps neither refuses what fits."""
    long = {"allOf": [TEXT] * 400}
    for schema in ({"not": {"allOf": [long, WHOLE]}}, {"oneOf": [{"allOf": [long, WHOLE]}, TEXT]}):
        card = takes({"it": schema})
        for steps in (0, 5, 50, 500, 5_000):
            assert prepare_with(steps, card, {"it": "x"}).ok


@pytest.mark.slow
@proves("C4")
@PATIENT
@given(schema=schemas, written=arguments, steps=st.integers(0, 400))
def test_with_any_number_of_steps_only_what_does_not_fit_is_refused(
    schema: dict[str, Any], written: dict[str, Any], steps: int
) -> None:
    card = with_schema(schema)
    checked = prepare_with(steps, card, written, repair=False)
    assert not checked.errors or not accepts(schema, written)
    assert not (checked.ok and is_complete(checked)) or accepts(schema, written)
    mended = prepare_with(steps, card, written)
    assert not (mended.ok and is_complete(mended)) or accepts(schema, mended.arguments)
    assert prepare_with(steps, card, written) == mended


def test_what_is_spent_stays_spent() -> None:
    effort = StepBudget(9, reserved=3)
    effort.spend(6)
    for _ in range(3):
        with pytest.raises(StepBudgetExceeded):
            effort.spend(1)
    effort.begin_checking()
    effort.spend(3)
    with pytest.raises(StepBudgetExceeded):
        effort.spend(1)
