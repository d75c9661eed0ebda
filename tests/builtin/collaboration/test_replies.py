"""A person's own words as the answer to a tool's question."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import validate

from fingerpost.router.modes.elicitation import get_options, parse_answer
from tests.kit.tables import table
from tests.requirements import proves

WORDS = {"type": "string"}
YES = {"type": "boolean"}
CITY = {"type": "string", "enum": ["Oslo", "Rome", "New York"]}
TITLED = {"type": "string", "oneOf": [{"const": "no", "title": "Norway"}, {"const": "it", "title": "Italy"}]}


def schema(required: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": list(required)}


@proves("U10")
@table(
    ("wanted", "text", "answer"),
    [
        (schema(answer=WORDS), "  the blue one, please ", {"answer": "the blue one, please"}),
        (schema(answer=CITY), "rome.", {"answer": "Rome"}),
        (schema(answer=CITY), "3", {"answer": "New York"}),
        (schema(answer=CITY), "4", None),
        (schema(answer=CITY), "neither", None),
        (schema(answer=CITY, comment=WORDS), "neither", {"comment": "neither"}),
        (schema(answer=TITLED), "italy", {"answer": "it"}),
        (schema(ok=YES), "Yes", {"ok": True}),
        (schema(ok=YES, why=WORDS), "yes, but only a.md", {"ok": True, "why": "but only a.md"}),
        (schema(ok=YES, why=WORDS), "no: too early", {"ok": False, "why": "too early"}),
        (schema(ok=YES, why=WORDS), "later perhaps", {"why": "later perhaps"}),
        (schema(("ok",), ok=YES, why=WORDS), "later perhaps", None),
        (schema(ok=YES), "yesterday", None),
        (schema(ok=YES), "not yes", None),
        (schema(n={"type": "integer"}), "12", {"n": 12}),
        (schema(n={"type": "integer"}), "12.5", None),
        (schema(n={"type": "number"}), "1e400", None),
        (schema(n={"type": "number"}), "nan", None),
        (schema(("a", "b"), a=WORDS, b={"type": "integer"}), "a: tea\nb: 2", {"a": "tea", "b": 2}),
        (schema(("a", "b"), a=WORDS, b={"type": "integer"}), '{"a": "tea", "b": 2}', {"a": "tea", "b": 2}),
        (schema(("a", "b"), a=WORDS, b={"type": "integer"}), "tea", None),
        (schema(answer=WORDS), " ", None),
        ({"type": "object"}, "anything", None),
    ],
)
def test_words_become_what_was_asked_for_or_nothing(
    wanted: dict[str, Any], text: str, answer: dict[str, Any] | None
) -> None:
    assert parse_answer(wanted, text) == answer


fields = st.one_of(
    st.just(WORDS), st.just(YES), st.just(CITY), st.just(TITLED), st.just({"type": "integer"}),
    st.just({"type": "number"}),
)  # fmt: skip
names = st.sampled_from(["answer", "ok", "how many", "b"])
things = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["yes", "no, thanks", "1", "Rome", "ok: yes\nb: 2", "answer: Oslo", "-3.5e2", "٣"]),
    st.dictionaries(names, st.one_of(st.text(max_size=5), st.booleans(), st.integers())).map(json.dumps),
)


@proves("U10")
@given(
    properties=st.dictionaries(names, fields, max_size=4),
    text=things,
    data=st.data(),
)
def test_an_answer_always_fits_what_was_asked(properties: dict[str, Any], text: str, data: Any) -> None:
    wanted = schema(**properties)
    wanted["required"] = data.draw(st.lists(st.sampled_from(sorted(properties) or ["x"]), unique=True))
    answer = parse_answer(wanted, text)
    if answer is not None:
        validate(answer, wanted)
        assert answer
        assert parse_answer(wanted, json.dumps(answer)) == answer  # said back as it is, it means the same


keys = st.sampled_from(["type", "enum", "oneOf", "const", "properties", "a"])
odd_values = st.recursive(
    st.none() | st.text(max_size=3) | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
)


@pytest.mark.slow
@settings(max_examples=15)
@given(broken=odd_values)
def test_no_schema_is_too_odd(broken: Any) -> None:
    for odd in ({"properties": broken}, {"properties": {"a": broken}}, {"required": broken}):
        parse_answer(odd, "yes")
        get_options(odd)
