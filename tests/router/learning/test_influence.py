"""How far a person's word reaches: bounded, fading, and never to a request that wants the opposite."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.feedback import Corrections, RequestSimilarity, are_opposed
from fingerpost.records import Feedback, FeedbackVerdict
from tests.requirements import proves

NOW = datetime(2026, 11, 15, tzinfo=UTC)
HALF_LIFE = timedelta(days=90)
_TEXTS = st.text(max_size=60) | st.sampled_from(
    ["read the note", "delete the note", "turn it on", "turn it off"]
)
_SAID = st.builds(
    Feedback,
    packet_id=st.uuids().map(str),
    by=st.sampled_from(["dana", "kim"]),
    verdict=st.sampled_from(FeedbackVerdict),
    request=_TEXTS,
    at=st.integers(0, 2000).map(lambda days: NOW - timedelta(days=days)),
    tool=st.sampled_from(["a/x", "b/y", None]),
    should_have=st.sampled_from(["c/z", "b/y", None]),
)


def create_feedback(request: str, *, days: float = 0.0, by: str = "dana") -> Feedback:
    return Feedback(
        packet_id=f"pkt_{days}",
        by=by,
        verdict=FeedbackVerdict.BAD,
        request=request,
        at=NOW - timedelta(days=days),
        tool="a/x",
        should_have="b/y",
    )


def build_corrections(*words: Feedback, shared: bool = True) -> Corrections:
    made = Corrections(shared=shared)
    made.learn(words, now=NOW, half_life=HALF_LIFE)
    return made


@proves("L2")
@given(st.lists(_SAID, max_size=8), _TEXTS)
def test_whatever_was_said_its_reach_is_bounded(words: list[Feedback], asked: str) -> None:
    weights = RequestSimilarity([one.request for one in words]).compute_weights(asked)
    assert all(0.0 <= weight <= 1.0 for weight in weights)
    for one, weight in zip(words, weights, strict=True):
        assert are_opposed(one.request, asked) == are_opposed(asked, one.request)
        assert weight == 0.0 or not are_opposed(one.request, asked)
    for found in build_corrections(*words).find_corrections(asked).values():
        assert -0.5 <= found.score <= 1.0
        assert not found.settled or found.times >= 3


@proves("L2")
def test_it_fades_and_after_two_half_lives_settles_nothing() -> None:
    request = "how old is that dump"
    scores = [
        build_corrections(create_feedback(request, days=days)).find_corrections(request)["b/y"].score
        for days in (0, 90, 900)
    ]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(0.5)
    fresh = build_corrections(*(create_feedback(request, days=days) for days in (1, 2, 3)))
    old = build_corrections(*(create_feedback(request, days=days) for days in (181, 182, 183)))
    assert fresh.find_corrections(request)["b/y"].settled
    assert not old.find_corrections(request)["b/y"].settled


@proves("L2", "L5")
def test_not_shared_a_word_counts_for_who_said_it() -> None:
    own = build_corrections(create_feedback("how old is that dump", by="dana"), shared=False)
    assert own.find_corrections("how old is that dump", person="dana")["b/y"].score > 0
    assert own.find_corrections("how old is that dump", person="kim") == {}


@proves("L2")
def test_the_same_words_count_less_where_they_mean_something_else() -> None:
    near, far = np.array([1.0, 0.0], np.float32), np.array([0.3, 0.954], np.float32)
    texts = ["what changed in the calendar"]
    asked = "what changed in the calendar app"
    bearing = RequestSimilarity(texts, near[None, :])
    assert float(bearing.compute_weights(asked, near)[0]) == pytest.approx(1.0)
    assert float(bearing.compute_weights(asked, far)[0]) == 0.0
    assert float(bearing.compute_weights(asked)[0]) > 0.0, "without vectors the words have to do"
    other = "completely different words"
    assert float(bearing.compute_weights(other, near)[0]) == pytest.approx(1.0)
