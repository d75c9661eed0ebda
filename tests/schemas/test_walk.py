"""Every part of a schema is found once, references lead where they point, and circles end."""

from __future__ import annotations

from itertools import islice
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.records import Json, JsonObject
from fingerpost.schemas import (
    NO_OBJECT,
    find_schema_fault,
    get_choices,
    get_properties,
    get_required,
    get_types,
    iterate_parameters,
    iterate_schemas,
    replace_parts,
    resolve_reference,
)
from fingerpost.schemas.validator import SchemaValidator, StepBudget
from tests.kit.tables import table

KEYWORDS = [
    "type", "properties", "required", "items", "anyOf", "$ref", "$defs", "enum", "const", "not", "allOf",
    "dependencies", "additionalProperties",
]  # fmt: skip
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["object", "#", "#/$defs/a", "#/items", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYWORDS, "a"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(anything)
def test_no_value_in_place_of_a_schema_does_harm(value: Any) -> None:
    for part in islice(iterate_schemas(value), 1000):
        assert None not in (get_choices(part), get_properties(part), get_required(part), get_types(part))
        assert replace_parts(part, lambda inner: inner) == part
    for name, part in islice(iterate_parameters(value), 1000):
        assert isinstance(name, str) and isinstance(part, dict)
    assert find_schema_fault("it", value) is None or "it" in str(find_schema_fault("it", value))
    schema: JsonObject = cast("JsonObject", value) if isinstance(value, dict) else NO_OBJECT
    SchemaValidator(schema, strict=True).is_valid({"a": 1}, StepBudget())


@table(
    ("reference", "found"),
    [
        ("#", "the root"),
        ("#/$defs/a~1b", "slash"),
        ("#/$defs/a~0b", "tilde"),
        ("#/$defs/a%20b", "space"),
        ("#/allOf/1", "second"),
        ("#/allOf/2", None),
        ("#/allOf/-1", None),
        ("#/allOf/²", None),
        ("#/$defs/lost/deeper", None),
        ("https://example.org/#/$defs/a", None),
        ("#/" + "$defs/" * 1000, None),
    ],
)
def test_a_reference_is_followed_inside_the_schema_alone(reference: str, found: str | None) -> None:
    named = {"a/b": {"title": "slash"}, "a~b": {"title": "tilde"}, "a b": {"title": "space"}}
    root: Json = {"title": "the root", "$defs": named, "allOf": [{"title": "first"}, {"title": "second"}]}
    target = resolve_reference(root, reference)
    assert (target["title"] if isinstance(target, dict) else target) == found


def test_the_parameters_of_a_schema_that_refers_to_itself_are_listed_once() -> None:
    node = {"properties": {"next": {"$ref": "#/$defs/node"}, "size": {"enum": [1]}}}
    schema: Json = {"properties": {"root": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    assert [name for name, _ in iterate_parameters(schema)] == [
        "", "root", "root", "next", "size", "next", "next", "size",
    ]  # fmt: skip


def test_parts_are_replaced_where_they_stand_and_data_stays() -> None:
    schema: Json = {
        "properties": {"enum": {"type": "string"}},
        "items": [{"type": "string"}],
        "not": {"type": "string"},
        "dependencies": {"a": ["b"], "c": {"type": "string"}},
        "enum": [{"type": "string"}],
    }
    assert replace_parts(schema, lambda _: "part") == {
        "properties": {"enum": "part"},
        "items": ["part"],
        "not": "part",
        "dependencies": {"a": ["b"], "c": "part"},
        "enum": [{"type": "string"}],
    }
