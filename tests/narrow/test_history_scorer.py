"""Learned use: bounded, similar requests only, forgettable."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.call.outcomes import build_choice_sample
from fingerpost.narrow.history_scorer import HistoryScorer, ToolHistory
from fingerpost.narrow.scorer import ScorerRequest
from fingerpost.records import Choice, ErrorKind, Outcome, ToolFollower
from tests.kit.catalogs import catalog, create_listing, tool
from tests.kit.tables import table
from tests.requirements import proves

NOW = datetime(2026, 11, 15, tzinfo=UTC)
CARDS = catalog(
    create_listing("git", tool("log"), tool("diff")), create_listing("web", tool("search"), tool("fetch"))
).snapshot.cards
KEYS = [card.key for card in CARDS]


def choice(request: str, key: str, *, worked: bool = True) -> Choice:
    return Choice(request=request, tool=key, worked=worked, at=NOW)


def score_tools(experience: HistoryScorer, text: str, *used: str) -> dict[str, float]:
    scores = experience.scores(ScorerRequest(text=text, used=used), CARDS)
    return {key: scores[key].value if key in scores else 0.0 for key in KEYS}


@proves("A17", "E11")
def test_what_worked_for_the_same_request_rises_and_what_failed_sinks() -> None:
    experience = HistoryScorer(
        [
            choice("which commits came in last week?", "git/log"),
            choice("which commits came in last week?", "git/diff", worked=False),
            choice("opening hours of the city library", "web/search"),
        ]
    )
    scores = score_tools(experience, "Which commits came in last week?")
    assert scores["git/log"] == pytest.approx(0.5)
    assert scores["git/diff"] == pytest.approx(-0.5)
    assert scores["web/search"] == scores["web/fetch"] == 0.0


@table(
    ("past", "asked"),
    [
        ("show me the commits of last week", "which commits did we get last week"),
        ("find the opening hours of the library", "libary openning hours?"),
        ("תראה לי את הקומיטים מהשבוע שעבר", "אילו קומיטים נכנסו בשבוע שעבר"),
        ("查询北京的天气预报", "北京今天的天气预报"),
    ],
)
def test_a_request_in_other_words_or_misspelt_is_still_recognised(past: str, asked: str) -> None:
    scores = score_tools(HistoryScorer([choice(past, "git/log")]), asked)
    assert 0 < scores["git/log"] <= 0.5


@pytest.mark.parametrize(
    ("past", "asked"),
    [
        ("show me the commits of last week", "show me the weather in Oslo"),
        ("please find a file for me", "please find a flight for me"),
        ("תראה לי את הקבצים", "תראה לי את מזג האוויר"),
    ],
)
def test_common_words_alone_make_no_two_requests_alike(past: str, asked: str) -> None:
    assert set(score_tools(HistoryScorer([choice(past, "git/log")]), asked).values()) == {0.0}


@proves("A17")
def test_evidence_adds_up_but_never_beyond_its_bound() -> None:
    lent = [
        score_tools(
            HistoryScorer([choice("commits of last week", "git/log")] * count), "commits of last week"
        )
        for count in (1, 3, 30, 3000)
    ]
    assert [round(scores["git/log"], 2) for scores in lent] == [0.5, 0.75, 0.97, 1.0]


@proves("A17")
def test_what_usually_follows_the_tool_just_used_gets_a_smaller_bonus() -> None:
    followings = [
        ToolFollower(tool="web/search", then="web/fetch", times=8),
        ToolFollower(tool="web/search", then="git/log", times=2),
    ]
    experience = HistoryScorer([choice("commits of last week", "git/diff")], followings)
    scores = score_tools(experience, "commits of last week", "git/log", "web/search")
    assert scores["git/diff"] > scores["web/fetch"] > scores["git/log"] > 0
    assert scores["web/search"] == 0.0
    assert score_tools(experience, "something else")["web/fetch"] == 0.0


@proves("A17")
def test_learning_anew_forgets_what_was_known() -> None:
    experience = HistoryScorer([choice("commits of last week", "git/log")], [])
    assert score_tools(experience, "commits of last week")["git/log"] > 0
    experience.learn([])
    assert set(score_tools(experience, "commits of last week").values()) == {0.0}


def test_likeness_in_meaning_counts_when_vectors_are_given() -> None:
    experience = HistoryScorer()
    vectors = np.eye(2, 4, dtype=np.float32)
    experience.learn([choice("commits", "git/log"), choice("hours", "web/search")], vectors=vectors)
    scores = experience.scores(ScorerRequest(text="something else entirely", vector=vectors[1]), CARDS)
    assert [tool for tool, score in scores.items() if score.value] == ["web/search"]


def test_tools_that_are_gone_and_empty_catalogs_do_no_harm() -> None:
    experience = HistoryScorer(
        [choice("commits", "gone/tool")], [ToolFollower(tool="a/b", then="c/d", times=1)]
    )
    assert set(score_tools(experience, "commits", "a/b").values()) == {0.0}


@pytest.mark.slow
@given(
    text=st.text(max_size=80),
    past=st.lists(st.tuples(st.text(max_size=40), st.sampled_from(KEYS), st.booleans()), max_size=12),
)
def test_scores_are_bounded_for_any_text_and_do_not_depend_on_the_order_of_the_past(
    text: str, past: list[tuple[str, str, bool]]
) -> None:
    remembered = [choice(request, key, worked=worked) for request, key, worked in past]
    shuffled = random.Random(1).sample(remembered, len(remembered))
    one = score_tools(HistoryScorer(remembered), text)
    other = score_tools(HistoryScorer(shuffled), text)
    assert all(-1 <= value <= 1 for value in one.values())
    assert one == pytest.approx(other, abs=1e-5)


def test_the_note_says_what_is_remembered_without_quoting_requests() -> None:
    assert ToolHistory(worked=2, follows=0.5).note == "worked for similar requests, often comes next"
    assert ToolHistory().note == ""


@table(
    ("outcome", "worked"),
    [
        (Outcome(call_id="c", tool="git/log", success=True, content=""), True),
        (Outcome(call_id="c", tool="git/log", success=False, content="", error=ErrorKind.CANCELLED), False),
        (
            Outcome(call_id="c", tool="git/log", success=False, content="", error=ErrorKind.EXECUTION_FAILED),
            False,
        ),
        (Outcome(call_id="c", tool="git/log", success=False, content="", error=ErrorKind.UNAVAILABLE), None),
        (Outcome(call_id="c", tool="git/log", success=False, content="", error=ErrorKind.DENIED), None),
        (Outcome(call_id="c", tool="git/log", success=False, content="", pending_id="p"), None),
    ],
)
def test_only_outcomes_that_say_something_about_the_choice_teach(
    outcome: Outcome, worked: bool | None
) -> None:
    learned = build_choice_sample("commits?", outcome, at=NOW, conversation="ses")
    assert (learned.worked if learned else None) is worked
    assert build_choice_sample("  ", outcome, at=NOW) is None
