"""Masked arguments that are edited: a mask never becomes a value, and what was not touched stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.redaction import MASK
from fingerpost.surfaces.api.masks import MaskLeft, masked_paths, meant, shown

SECRET = "sk-abcdefghijklmnop1234"

_leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.just(SECRET), st.just(f"key={SECRET}")
)
_values = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "password", "token"]), inner, max_size=3),
    ),
    max_leaves=8,
)
_arguments = st.dictionaries(st.sampled_from(["a", "b", "password", "list"]), _values, max_size=3)


@given(_arguments)
def test_what_was_not_touched_stays(arguments: dict[str, Any]) -> None:
    seen = json.loads(json.dumps(shown(arguments)))
    assert meant(seen, arguments) == arguments
    assert bool(masked_paths(arguments)) == (shown(arguments) != arguments)


@given(_arguments, _arguments)
def test_no_mask_becomes_a_value(arguments: dict[str, Any], other: dict[str, Any]) -> None:
    try:
        edited = meant(shown(other), arguments)
    except MaskLeft as left:
        assert left.where
    else:
        assert MASK not in json.dumps(edited)


def test_one_argument_changes_beside_a_secret() -> None:
    original = {
        "url": "https://a",
        "headers": {"authorization": "Bearer abcdefghijkl"},
        "keys": [SECRET, "x"],
    }
    edited = json.loads(json.dumps(shown(original)))
    assert masked_paths(original) == ("headers.authorization", "keys[0]")
    edited["url"] = "https://b"
    edited["keys"][1] = "y"
    assert meant(edited, original) == {**original, "url": "https://b", "keys": [SECRET, "y"]}


@pytest.mark.parametrize(
    "edited", [{"b": MASK}, {"a": f"x {MASK}"}, {"a": ["x", MASK]}, {"a": {"deep": MASK}}]
)
def test_a_mask_that_was_moved_is_refused(edited: dict[str, Any]) -> None:
    with pytest.raises(MaskLeft):
        meant(edited, {"a": SECRET})
