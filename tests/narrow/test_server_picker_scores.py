"""Servers by their tools' scores: a wide cut, none where nothing stands out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.server_picker import pick_by_scores
from tests.requirements import proves

CLEAR = {"a": [0.9, 0.8], "b": [0.5], "c": [0.32, 0.3], "d": [0.1], "e": [0.02], "f": []}


@proves("E4")
def test_servers_near_the_best_are_kept_and_those_without_a_score_too():
    choice = pick_by_scores(CLEAR)
    assert choice.servers == ("a", "b", "c", "f")
    assert choice.left_out == ("d", "e")
    assert choice.reasoning.startswith("best scores: a 0.85, b 0.50")


@proves("E4")
def test_mentioned_and_related_servers_are_kept_and_strangers_passed_over():
    choice = pick_by_scores(CLEAR, mentions=["e", "stranger"], related=["d"])
    assert choice.left_out == ()
    assert "stranger" not in choice.servers


@proves("E4")
def test_where_nothing_stands_out_all_stay():
    for scores in ({}, {"a": [0.1], "b": [0.02], "c": [0.0], "d": [0.0]}, {"a": [0.9], "b": [0.0], "c": []}):
        choice = pick_by_scores(scores)
        assert choice.servers == tuple(sorted(scores))
        assert choice.left_out == ()


def test_several_good_tools_count_for_more_than_one_lucky_one():
    several = {
        "lucky": [0.6, 0.0, 0.0],
        "able": [0.5, 0.5, 0.5],
        "x": [0.4] * 3,
        "y": [0.3] * 3,
        "z": [0.25] * 3,
    }
    assert pick_by_scores(several, min_servers=1, share=0.9).servers == ("able",)


@pytest.mark.slow
@given(
    st.dictionaries(st.text(min_size=1, max_size=8), st.lists(st.floats(), max_size=6), max_size=12),
    st.lists(st.text(max_size=8), max_size=3),
)
def test_whatever_the_scores_every_server_is_kept_or_left_out_and_the_best_is_kept(
    scores: dict[str, list[float]], mentions: list[str]
):
    choice = pick_by_scores(scores, mentions)
    assert sorted((*choice.servers, *choice.left_out)) == sorted(scores)
    assert set(mentions) & set(choice.left_out) == set()
    single = {name: value for name, found in scores.items() for value in found[:1] if len(found) == 1}
    if single and all(math.isfinite(value) for value in single.values()) and len(single) == len(scores):
        assert max(single, key=lambda name: single[name]) in choice.servers or not choice.left_out
    assert not scores or choice.servers
