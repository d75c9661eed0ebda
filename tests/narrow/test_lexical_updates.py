"""A catalog that changes: the index follows, and is the one that would be built from nothing."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.narrow.lexical_scorer import MAX_DEAD_TERMS, LexicalScorer
from fingerpost.records import ToolCard
from tests.kit.scorers import EVERYDAY, ask, cards, tool

REQUESTS = ("delete the branch", "wether forcast", "send mail", "open webpage", "find a file for me", "repo")

WORDS = ("delete", "branch", "weather", "forecast", "send", "email", "message", "web", "page", "file", "open")

some_tools = st.lists(
    st.tuples(
        st.sampled_from(["read_file", "sendMail", "get_forecast", "list_repos"]),
        st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join),
    ),
    max_size=6,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: cards(a=[tool(name, words) for name, words in pairs]))


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(some_tools, min_size=1, max_size=4))
def test_an_index_that_grew_step_by_step_scores_like_one_built_at_once(
    steps: list[tuple[ToolCard, ...]],
) -> None:
    grown = LexicalScorer()
    for tools in steps:
        grown.prepare(tools)
        fresh = LexicalScorer()
        fresh.prepare(tools)
        for request in REQUESTS:
            assert np.allclose(
                grown.scores(ask(request), tools), fresh.scores(ask(request), tools), atol=1e-5
            )


def test_a_tool_described_anew_by_its_server_is_read_again() -> None:
    scorer = LexicalScorer()
    before, after = cards(a=[tool("t", "Feeds the cat.")]), cards(a=[tool("t", "Waters the flowers.")])
    assert scorer.scores(ask("water the flowers"), before)[0] == 0
    assert scorer.scores(ask("water the flowers"), after)[0] > 0
    assert scorer.scores(ask("feed the cat"), after)[0] == 0


@pytest.mark.slow
def test_words_of_tools_long_gone_are_forgotten() -> None:
    def invent_cards(round_number: int) -> tuple[ToolCard, ...]:
        words = (f"w{round_number}x{number}" for number in range(MAX_DEAD_TERMS // 2))
        texts = [" ".join(next(words) for _ in range(200)) for _ in range(MAX_DEAD_TERMS // 2 // 200)]
        return cards(a=[tool(f"t{number}", text) for number, text in enumerate(texts)])

    scorer = LexicalScorer()
    for round_number in range(4):
        scorer.prepare(invent_cards(round_number))
    scorer.prepare(EVERYDAY)
    assert scorer.term_count < MAX_DEAD_TERMS * 2
    fresh = LexicalScorer()
    fresh.prepare(EVERYDAY)
    assert np.allclose(scorer.scores(ask("weather"), EVERYDAY), fresh.scores(ask("weather"), EVERYDAY))


def test_requests_are_answered_while_the_catalog_changes() -> None:
    scorer = LexicalScorer()
    few, many = EVERYDAY[:3], EVERYDAY
    scorer.prepare(few)
    wrong: list[int] = []
    done = threading.Event()

    def keep_asking() -> None:
        while not done.is_set():
            for tools in (few, many):
                size = len(scorer.scores(ask("delete wether in mail box"), tools))
                if size != len(tools):
                    wrong.append(size)

    asking = [threading.Thread(target=keep_asking) for _ in range(2)]
    for thread in asking:
        thread.start()
    for _ in range(50):
        scorer.prepare(many)
        scorer.prepare(few)
    done.set()
    for thread in asking:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong
