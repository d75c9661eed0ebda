"""JSON out of what models write: found where it is, never guessed, never a crash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.llm import parse_structured
from fingerpost.llm.content import MAX_REPLY_LENGTH
from tests.kit.tables import table
from tests.requirements import proves

ANSWER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=5)


@table(
    "text",
    [
        '{"a": 1}',
        ' \n{"a": 1}\n',
        '```json\n{"a": 1}\n```',
        'Sure!\n```\n{"a": 1}\n```\nHope that helps.',
        'The answer is {"a": 1}, I think.',
        'The set [1] has {"b": 2} but the answer is {"a": 1}.',
        'First I thought {"a": 0}. No: {"a": 1}',
        '<think>maybe {"a": 7}</think>{"a": 1}',
        'maybe {"a": 7} </think>\n{"a": 1}',
        '{"a": 1,}',
        'So: {"a": 1, "b": [1, 2,], "c": "x,]",}',
        'text { not json } and {"a": 1}',
    ],
)
def test_the_object_is_found(text: str):
    found = parse_structured(text, ANSWER)
    assert isinstance(found, dict)
    assert found["a"] == 1


def test_a_comma_inside_a_text_stays():
    assert parse_structured('{"a": 1, "c": "x,]",}', ANSWER) == {"a": 1, "c": "x,]"}


@pytest.mark.slow
@table(
    "text",
    [
        "",
        "no json at all",
        '{"a": "one"}',
        '{"a": 1',
        '{"a": NaN}',
        '{"a": 1, "b": Infinity}',
        '{"a": 1, "b": 1e999}',
        '{"a": 1, "b": ' + "9" * 5000 + "}",
        '{"a": ' * 5000,
        "[" * 100_000,
        '{"a": 1, "b": ' + "[" * 500 + "]" * 500 + "}",
        '"\\' * 50_000,
        "<think>" * 30_000,
        " " * MAX_REPLY_LENGTH + '{"a": 1}',
    ],
)
def test_what_is_not_there_is_not_made_up(text: str):
    assert parse_structured(text, ANSWER) is None


MEGABYTE = 1_000_000
HOSTILE = {
    "nested, then long": "[" * 200 + "1," * MEGABYTE,
    "nested for ever": '{"a":' * (MEGABYTE // 5),
    "strings that never end": '["' * (MEGABYTE // 2),
    "fences": "```\n{" * (MEGABYTE // 5),
    "one long list": "[" + "1," * 120_000 + "1]",
    "many long lists": ("[" + "1," * 9000 + "1] ") * 14,
    "many objects": '{"b": 1} ' * (MEGABYTE // 9),
    "not numbers": '{"a": NaN} ' * (MEGABYTE // 11),
    "infinities": '{"a": 1e999} ' * (MEGABYTE // 13),
    "digits": '{"a": ' + "9" * MEGABYTE + "}",
    "objects to compare": "[" + ",".join(f'{{"a":{number}}}' for number in range(9000)) + "]",
}


NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 5}}
UNIQUE = {"type": "array", "uniqueItems": True, "minItems": 20_000}
PATTERN = {"type": "object", "patternProperties": {"^(a+)+$": False}, "required": ["zzz"]}


@proves("W10")
@pytest.mark.timeout(60)  # each takes some tenths of a second; without bounds, minutes
@pytest.mark.parametrize(
    ("name", "schema"),
    [
        *((name, ANSWER) for name in HOSTILE),
        ("one long list", NUMBERS),
        ("many long lists", NUMBERS),
        ("many long lists", UNIQUE),
        ("objects to compare", UNIQUE),
        ("nested for ever", PATTERN),
        ("many objects", PATTERN),
    ],
)
def test_a_megabyte_of_trouble_is_over_soon(name: str, schema: dict[str, Any]):
    assert parse_structured(HOSTILE[name], schema) is None


def test_a_schema_may_be_nonsense_or_point_elsewhere_without_harm():
    for schema in (
        {"type": "nothing-known"},
        {"$ref": "https://example.org/never-fetched.json"},
        {"$ref": "#/$defs/missing"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"required": 7},
    ):
        assert parse_structured('{"a": 1}', schema) is None


def test_a_strangers_pattern_is_not_run():
    endless = {"properties": {"a": {"type": "string", "pattern": "^(x+)+y$"}}, "required": ["a"]}
    assert parse_structured(f'{{"a": "{"x" * 60}"}}', endless) == {"a": "x" * 60}
    for draft in ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"):
        named = {"type": "object", "allOf": [{"$schema": draft, **endless}]}
        assert parse_structured(f'{{"a": "{"x" * 60}"}}', named) == {"a": "x" * 60}


@proves("W10")
@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_doubles_with_every_level_is_given_up(keyword: str):
    levels = {f"level{depth}": {keyword: [{"$ref": f"#/$defs/level{depth + 1}"}] * 2} for depth in range(60)}
    schema = {"$defs": {**levels, "level60": {"type": "string"}}, "$ref": "#/$defs/level0"}
    assert parse_structured('{"a": 1}', schema) is None


def test_without_a_schema_any_object_or_array_will_do():
    assert parse_structured("well: [1, 2]") == [1, 2]
    assert parse_structured("7") is None


@pytest.mark.slow
@given(objects)
def test_every_object_survives_fences_and_prose(value: dict[str, Any]):
    for text in (json.dumps(value), f"```json\n{json.dumps(value)}\n```", f"Here: {json.dumps(value)} Done."):
        assert parse_structured(text, {"type": "object"}) == value


@given(st.text(alphabet='{}[]",:\\`<>/think 12aé\n', max_size=400))
def test_junk_never_raises(text: str):
    found = parse_structured(text, ANSWER)
    assert found is None or (isinstance(found, dict) and isinstance(found["a"], int))
