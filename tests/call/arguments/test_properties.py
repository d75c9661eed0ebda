"""What holds for every schema and every argument, found out by trying many."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry

from fingerpost.call.arguments import format_signature, prepare_arguments, translate_arguments
from fingerpost.call.arguments.repair import prepare_thoroughly
from fingerpost.call.arguments.tool_schema import tool_schemas
from fingerpost.records import JsonObject
from tests.kit.argument_tools import with_schema
from tests.kit.tables import table
from tests.requirements import proves

PATIENT = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.sampled_from(
    ["path", "file_path", "query", "limit", "maxResults", "tags", "mode", "id", "when", "q"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-10_000, 10_000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(
        ["3", "3.0", "true", "null", "", "[1]", '{"a": 1}', "a,b", "ASC", "2024/3/5", "3/4/2024"]
    )
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)

LEAVES: list[dict[str, Any]] = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "integer", "minimum": 0, "maximum": 5},
    {"type": "number"},
    {"type": "boolean"},
    {"enum": ["asc", "desc", "random"]},
    {"const": 3},
    {"type": "string", "format": "date"},
    {"type": ["integer", "null"]},
    {"type": "string", "pattern": "^[a-z]+$"},
    {},
]
leaves = st.sampled_from(LEAVES)


def objects(parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    def build(made: tuple[dict[str, Any], list[str], str]) -> dict[str, Any]:
        properties, required, extras = made
        schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "required": sorted(name for name in set(required) if name in properties),
        }
        if extras != "unsaid":
            schema["additionalProperties"] = extras == "welcome"
        return schema

    extras = st.sampled_from(["unsaid", "welcome", "forbidden"])
    return st.tuples(st.dictionaries(names, parts, max_size=4), st.lists(names, max_size=4), extras).map(
        build
    )


def to_array_schema(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def any_of(branches: list[dict[str, Any]]) -> dict[str, Any]:
    return {"anyOf": branches}


def one_of(branches: list[dict[str, Any]]) -> dict[str, Any]:
    return {"oneOf": branches}


def nest_schemas(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    pair = st.lists(inner, min_size=2, max_size=2)
    return inner.map(to_array_schema) | pair.map(any_of) | pair.map(one_of) | objects(inner)


parts = st.recursive(leaves, nest_schemas, max_leaves=5)
schemas = objects(parts)
arguments = st.dictionaries(names | st.text(max_size=8), values, max_size=4)


def accepts(schema: dict[str, Any], value: JsonObject) -> bool:
    judge: Any = Draft202012Validator(schema, registry=Registry())
    return judge.is_valid(value)


@pytest.mark.slow
@proves("C4")
@PATIENT
@given(schema=schemas, written=arguments)
def test_whatever_is_accepted_fits_the_schema_and_nothing_is_raised(
    schema: dict[str, Any], written: dict[str, Any]
) -> None:
    prepared = prepare_arguments(with_schema(schema), written)
    json.dumps(prepared.arguments)
    assert not prepared.ok or accepts(schema, prepared.arguments)
    assert prepared.ok or all(error.message for error in prepared.errors)


@pytest.mark.slow
@proves("D7")
@PATIENT
@given(schema=schemas, written=arguments)
def test_what_was_repaired_once_needs_no_repair_again(
    schema: dict[str, Any], written: dict[str, Any]
) -> None:
    card = with_schema(schema)
    once = prepare_arguments(card, written)
    if once.ok:
        again = prepare_arguments(card, once.arguments)
        assert again.ok
        assert json.dumps(again.arguments) == json.dumps(once.arguments)
        assert not again.repairs


@pytest.mark.slow
@proves("D7")
@PATIENT
@given(schema=schemas, data=st.data())
def test_arguments_that_fit_come_back_as_they_are(schema: dict[str, Any], data: st.DataObject) -> None:
    """Only parameters the schema lists, and nothing it would read otherwise: whole floats, dates by hand."""
    known = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(schema["properties"], values)))
    if not accepts(schema, known) or not _is_settled(schema, known):
        return
    prepared = prepare_arguments(with_schema(schema), known)
    assert prepared.ok
    assert not prepared.repairs
    assert json.dumps(prepared.arguments) == json.dumps(known)


def _is_settled(schema: dict[str, Any], value: Any) -> bool:
    """No whole float, no date by hand, and no key that is not listed, at any depth."""
    branches = schema.get("anyOf", schema.get("oneOf", []))
    if not all(_is_settled(branch, value) for branch in branches):
        return False
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        listed = schema.get("properties", entries)
        return entries.keys() <= listed.keys() and all(
            _is_settled(schema.get("properties", {}).get(key, {}), entry) for key, entry in entries.items()
        )
    if isinstance(value, list):
        return all(_is_settled(schema.get("items", {}), item) for item in cast("list[Any]", value))
    return not (isinstance(value, float) and value.is_integer()) and not (
        isinstance(value, str) and "/" in value
    )


@pytest.mark.slow
@PATIENT
@given(written=arguments, one=schemas, two=schemas)
def test_a_translation_never_raises_and_what_it_accepts_fits(
    written: dict[str, Any], one: dict[str, Any], two: dict[str, Any]
) -> None:
    prepared = translate_arguments(written, with_schema(one, name="one"), with_schema(two, name="two"))
    assert not prepared.ok or accepts(two, prepared.arguments)


@PATIENT
@given(schema=schemas, limit=st.integers(1, 500))
def test_a_signature_keeps_to_its_limit(schema: dict[str, Any], limit: int) -> None:
    assert len(format_signature(with_schema(schema), limit=limit)) <= limit


@pytest.mark.slow
@proves("D7")
@settings(PATIENT, max_examples=75)
@given(schema=schemas, data=st.data())
def test_a_glance_finds_only_what_a_closer_look_would_find(
    schema: dict[str, Any], data: st.DataObject
) -> None:
    card = with_schema(schema)
    plan = tool_schemas.get_schema(card)
    written = data.draw(st.fixed_dictionaries({}, optional=dict.fromkeys(schema["properties"], values)))
    seen = plan.fast_check.copy_if_valid(written)
    if seen is not None:
        looked = prepare_thoroughly(card, plan, written, repair=True)
        assert looked.ok
        assert not looked.repairs
        assert json.dumps(seen) == json.dumps(looked.arguments)


FLAT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 2, "description": "What to look for"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 9},
        "sort": {"enum": ["new", "old"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "day": {"type": "string", "format": "date"},
        "deep": {"type": "object"},
    },
    "required": ["query"],
}


@proves("C4")
@table(
    ("written", "at_a_glance"),
    [
        ({"query": "hours"}, True),
        ({"query": "hours", "limit": 3, "sort": "new", "tags": ["a", "b"], "note": None}, True),
        ({"query": "h"}, False),
        ({"query": "hours", "limit": 10}, False),
        ({"query": "hours", "limit": 3.0}, False),
        ({"query": "hours", "limit": True}, False),
        ({"query": "hours", "sort": "NEW"}, False),
        ({"query": "hours", "tags": ["a", 1]}, False),
        ({"query": "half a \ud800 character"}, False),
        ({"query": "hours", "day": "2024-01-02"}, False),
        ({"query": "hours", "deep": {}}, False),
        ({"query": "hours", "Limit": 3}, False),
        ({"limit": 3}, False),
    ],
)
def test_plain_arguments_are_seen_to_fit_at_a_glance(written: dict[str, Any], at_a_glance: bool) -> None:
    plan = tool_schemas.get_schema(with_schema(FLAT))
    assert (plan.fast_check.copy_if_valid(written) is not None) is at_a_glance


def test_what_was_taken_is_a_copy() -> None:
    tags = ["a"]
    taken = prepare_arguments(with_schema(FLAT), {"query": "hours", "tags": tags}).arguments
    tags.append("b")
    assert taken["tags"] == ["a"]
