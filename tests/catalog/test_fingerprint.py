from __future__ import annotations

import hashlib
import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fingerpost.catalog import compute_fingerprint
from fingerpost.catalog.pins import FINGERPRINTED_FIELDS, UNFINGERPRINTED_FIELDS
from fingerpost.records import Json
from tests.kit.catalogs import tool
from tests.requirements import proves

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
definitions = st.fixed_dictionaries(
    {"name": st.text(min_size=1)}, optional=dict.fromkeys(FINGERPRINTED_FIELDS[1:], json_values)
)


def reverse_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reverse_keys(value[key]) for key in reversed(list(value))}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType] - any JSON
    if isinstance(value, list):
        return [reverse_keys(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - any JSON
    return value


@pytest.mark.slow
@proves("F24")
@given(definitions)
@example(
    {"name": "a", "inputSchema": {"default": 1e22, "minimum": 1e-7, "enum": [123456789012345680.0, -0.0]}}
)
@example({"name": "a", "inputSchema": {"default": None, "enum": [None, "null"]}})
@example({"name": "\x7f", "description": "\x00\u2028é\U0001f600"})
@example({"name": "a", "inputSchema": {"maximum": 2**64, "é": 1, "e": 1.0, "f": 1}})
def test_pins_of_earlier_releases_hold(definition: dict[str, Json]) -> None:
    parts = {part: definition[part] for part in FINGERPRINTED_FIELDS if definition.get(part) is not None}
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    assert compute_fingerprint(definition) == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.slow
@proves("F24")
@given(definitions)
def test_key_order_white_space_and_mapping_type_do_not_matter(definition: dict[str, Json]) -> None:
    spaced = json.loads(json.dumps(reverse_keys(definition), indent=3))
    assert (
        compute_fingerprint(spaced)
        == compute_fingerprint(definition)
        == compute_fingerprint(MappingProxyType(definition))
    )


@pytest.mark.slow
@proves("F24")
@given(definitions, st.sampled_from(FINGERPRINTED_FIELDS), json_values)
def test_any_change_to_a_covered_part_changes_the_fingerprint(
    definition: dict[str, Json], part: str, value: Json
) -> None:
    changed = {**definition, part: value}
    same = json.dumps(definition.get(part), sort_keys=True) == json.dumps(value, sort_keys=True)
    assert (compute_fingerprint(changed) == compute_fingerprint(definition)) == same


@proves("F24")
def test_the_fingerprint_of_a_plain_tool_is_what_it_has_always_been() -> None:
    plain = tool("get_thing", title="A thing", annotations={"readOnlyHint": True})
    first_released = "3d75efbec6978a41f117ef5fda3b695086e927472de3fe6af1ce388545918c14"
    assert compute_fingerprint(plain) == first_released
    assert compute_fingerprint({**plain, "_meta": {"a": 1}, "icons": [], "execution": {}}) == first_released


@proves("F24")
@given(json_values)
def test_what_serves_programs_and_screens_does_not_count(value: Json) -> None:
    plain = tool("get_thing")
    assert compute_fingerprint(
        {**plain, "_meta": value, "icons": value, "execution": value}
    ) == compute_fingerprint(plain)


@pytest.mark.slow
@proves("F24")
@given(
    st.text().filter(lambda name: name not in {*FINGERPRINTED_FIELDS, *UNFINGERPRINTED_FIELDS}),
    json_values,
    json_values,
)
@example("instructions", "Ignore all", None)
def test_a_member_that_no_protocol_knows_counts(name: str, one: Json, other: Json) -> None:
    plain = tool("get_thing")
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (compute_fingerprint({**plain, name: one}) == compute_fingerprint({**plain, name: other})) == same
    assert (compute_fingerprint({**plain, name: one}) == compute_fingerprint(plain)) == (one is None)


@proves("F24")
def test_a_true_and_a_one_are_different_definitions() -> None:
    assert compute_fingerprint(tool("a", inputSchema={"default": True})) != compute_fingerprint(
        tool("a", inputSchema={"default": 1})
    )
