"""Where a request is taken apart, and where it is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.narrow.request import MAX_NEEDS, split_needs
from tests.kit.tables import table

TWO_NEEDS = [
    ("find the flight and put it in my calendar", ("find the flight", "put it in my calendar")),
    ("Read a.txt; delete b.txt", ("Read a.txt", "delete b.txt")),
    (
        "I'm off to Oslo next week. What's the weather there? Also, book a hotel for two nights.",
        ("What's the weather there?", "book a hotel for two nights."),
    ),
    (
        "search the logs for errors, then open an issue and email the team",
        ("search the logs for errors", "open an issue", "email the team"),
    ),
    (
        "show me what changed since Monday and what time is it in Tokyo",
        ("show me what changed since Monday", "what time is it in Tokyo"),
    ),
    ("1. find the invoice\n2. send it to Bob", ("find the invoice", "send it to Bob")),
    ("please do: 1) list the pods 2) restart the failing one", ("list the pods", "restart the failing one")),
]
ONE_NEED = [
    "buy salt and pepper",
    "movie and book recommendations",
    "compare apples and oranges",
    "What's the weather in Paris and London?",
    "search and replace foo with bar",
    "open and close prices of AAPL",
    "drag and drop the file",
    "tell me when and where the meeting is",
    "who and what made this happen?",
    "research and development budget of Siemens",
    "find books by J.K. Rowling published after 10 a.m. on Monday",
    "I'm writing a thesis. Can you find papers about owls? Thanks, can you help me with that?",
]
HEBREW = [
    ("תמצא טיסה ללונדון ותוסיף אותה ליומן", 2),
    ("תשלח מייל לדנה ואז תקבע פגישה", 2),
    ("חפש מתכון ללחם וחמאה", 1),
]


@table(("text", "needs"), TWO_NEEDS)
def test_several_wishes_are_taken_apart(text: str, needs: tuple[str, ...]) -> None:
    assert split_needs(text) == needs


@table("text", ONE_NEED)
def test_one_wish_stays_whole(text: str) -> None:
    assert split_needs(text) == (text,)


@pytest.mark.parametrize(("text", "count"), HEBREW)
def test_hebrew_wishes_are_taken_apart_at_their_verbs(text: str, count: int) -> None:
    assert len(split_needs(text, "he")) == count


def test_other_languages_are_taken_apart_at_words_that_join_wishes() -> None:
    assert split_needs("查一下明天的天气，然后订一张去上海的火车票", "zh") == (
        "查一下明天的天气",
        "订一张去上海的火车票",
    )
    assert len(split_needs("busca un vuelo a Roma y luego reserva un hotel", "es")) == 2


def test_a_long_list_is_joined_to_a_few_needs_and_nothing_is_lost() -> None:
    wishes = [f"find the {animal} report" for animal in ("owl", "cat", "dog", "bee", "ant", "fox")]
    needs = split_needs("\n".join(f"- {text}" for text in wishes))
    assert len(needs) == MAX_NEEDS
    assert all(any(text in need for need in needs) for text in wishes)


@given(st.text(max_size=400), st.sampled_from(["en", "he", "zh", "und"]))
def test_needs_are_few_and_only_an_empty_request_has_none(text: str, language: str) -> None:
    needs = split_needs(text, language)
    assert len(needs) <= MAX_NEEDS
    assert bool(needs) == bool(text.strip())
    assert all(need.strip() for need in needs)
