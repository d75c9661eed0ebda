"""Whatever is asked of whatever tool: arguments fit their schema and stem from what was said."""

from __future__ import annotations

import json
import re
import time
from datetime import date
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fingerpost.choose.keyless.arguments import fill_arguments
from fingerpost.choose.keyless.choice import build_missing_question
from fingerpost.choose.keyless.tables import (
    CITIES,
    COUNTRIES,
    CURRENCIES,
    CURRENCY_WORDS,
    HEBREW_OPTION_WORDS,
    LANGUAGES,
    ZONES,
)
from fingerpost.records import Effect, Json, Signals, ToolCard
from tests.choose.keyless.corpus import TODAY, cases, every_card, read
from tests.kit.catalogs import card, tool
from tests.kit.tables import table

CARDS = list(every_card().values())
REQUESTS = [case.request for name in ("cases", "held_out", "hard") for case in cases(name)]
PIECES = sorted({piece for request in REQUESTS for piece in request.split(" ")})
ZONE = "Europe/Oslo"

requests = st.one_of(
    st.sampled_from(REQUESTS),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map(" ".join),
    st.tuples(st.sampled_from(REQUESTS), st.sampled_from(REQUESTS)).map(" ".join),
)


def properties(card: ToolCard) -> dict[str, Any]:
    schema = cast("dict[str, Any]", card.definition["inputSchema"])
    return cast("dict[str, Any]", schema.get("properties", {}))


def accepts(schema: Any, argument: Json) -> bool:
    validator: Any = Draft202012Validator(schema)
    return bool(validator.is_valid(argument))


@pytest.mark.slow
@given(request=requests, card=st.sampled_from(CARDS))
def test_no_argument_fails_its_own_schema(request: str, card: ToolCard):
    got = fill_arguments(card, request, read(request), today=TODAY, zone=ZONE)
    for name, argument in got.arguments.items():
        assert accepts(properties(card)[name], argument), (request, card.key, name, argument)
    json.dumps(got.arguments)


@pytest.mark.slow
@given(request=requests, card=st.sampled_from(CARDS))
def test_every_value_stems_from_the_request_or_from_what_is_written_down(request: str, card: ToolCard):
    got = fill_arguments(card, request, read(request), today=TODAY, zone=ZONE)
    for name, argument in got.arguments.items():
        for item in argument if isinstance(argument, list) else [argument]:
            assert stems_from(request, card, name, item), (request, card.key, name, item)


def stems_from(request: str, card: ToolCard, name: str, item: Json) -> bool:
    low = request.lower()
    if isinstance(item, bool):
        return name.replace("_", "")[:4].lower() in re.sub(r"[\s_]", "", low)
    if isinstance(item, int | float):
        numbers = [float(number.replace(",", "")) for number in re.findall(r"-?\d[\d,]*(?:\.\d+)?", request)]
        factors = (1, 60, 3600, 86400, 604800, 1440, 24, 7, 1 / 60, 1 / 3600, 10080)
        return any(abs(abs(item) - abs(number) * factor) < 1e-6 for number in numbers for factor in factors)
    assert isinstance(item, str)
    return (
        item in request
        or item.removeprefix("https://") in request
        or _is_written_down(low, item)
        or _is_a_day_or_hour(request, item)
        or _is_listed(card, name, low, item)
    )


def _is_written_down(low: str, item: str) -> bool:
    if item in ZONES:
        places = [place for place, zone in {**CITIES, **COUNTRIES}.items() if zone == item]
        return item == ZONE or any(place in low for place in (*places, item.lower()))
    if item in CURRENCIES:
        return any(word in low for word, code in CURRENCY_WORDS.items() if code == item)
    return any(word in low for word, code in LANGUAGES.items() if code == item)


def _is_a_day_or_hour(request: str, item: str) -> bool:
    if re.fullmatch(r"\d{2}:\d{2}", item):
        return bool(re.search(r"\d|noon|midnight", request))
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", item):
        return False
    date.fromisoformat(item)
    return bool(re.search(r"\d{4}|day|tomorrow|yesterday|week|מחר|היום|אתמול|ימים|שבוע|יום|שלשום", request))


def _is_listed(card: ToolCard, name: str, low: str, item: str) -> bool:
    listed = properties(card)[name].get("enum", ())
    spoken = [word for word in re.split(r"[\s_-]|(?<=[a-z])(?=[A-Z])", item) if word]
    is_spoken = all(word.lower().rstrip("s") in low for word in spoken)
    # A required choice of a tool that reads, left open by the request.
    if item == "all" and card.effect.value is Effect.READ:
        return True
    return item in listed and (is_spoken or any(word in low for word in HEBREW_OPTION_WORDS.get(item, ())))


junk_schemas = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "enum",
                    "anyOf",
                    "oneOf",
                    "items",
                    "properties",
                    "required",
                    "format",
                    "$ref",
                    "minimum",
                ]
            ),
            inner | st.sampled_from(["string", "integer", "array", "object", "#/properties/path", "date"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(
    prop=junk_schemas,
    name=st.sampled_from(["path", "a", "q", "count", "", "שם", "x y", "date"]),
    request=st.sampled_from(REQUESTS) | st.text(max_size=80),
)
def test_a_schema_or_a_request_of_any_shape_is_survived(prop: Json, name: str, request: str):
    schema: Json = {"type": "object", "properties": {name: prop}, "required": [name]}
    made = card(tool("act", inputSchema=schema))
    got = fill_arguments(made, request, read(request), today=TODAY)
    assert set(got.arguments) | {one.name for one in got.missing} == {name}
    assert build_missing_question(made, got.missing, "he").text if got.missing else got.is_complete


@pytest.mark.slow
@given(request=st.text(max_size=200), other=st.sampled_from(REQUESTS))
def test_signals_of_another_text_do_not_mislead(request: str, other: str):
    """A request is cut and split on its way here; what is not in the text is not used."""
    for made in CARDS[::9]:
        for argument in fill_arguments(made, request, read(other), today=TODAY).arguments.values():
            for item in argument if isinstance(argument, list) else [argument]:
                assert not isinstance(item, str) or stems_from(request, made, "", item) or item in request


@pytest.mark.slow
@table(
    "piece",
    ["a/", "((", "in Paris ", "1,", "SELECT ", 'x" ', "query: ", "from to ", "a_b ", "search for ", "*"],
)
def test_long_requests_take_no_longer_than_their_length_allows(piece: str):
    request = piece * (1_500 // len(piece))
    began = time.process_time()
    for made in CARDS[::24]:
        fill_arguments(made, request, Signals(), today=TODAY)
    assert (
        time.process_time() - began < 5
    )  # some hundredths of a second; a pattern that backtracks takes minutes
