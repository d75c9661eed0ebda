"""Counting tokens without a vocabulary: never far too few, and safe to build a text by."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.call.digest import clip_to_tokens, count_tokens
from fingerpost.call.digest.tokens import MAX_EXACT_LENGTH, estimate_tokens
from tests.kit.tables import table
from tests.requirements import proves

ENGLISH = (
    "The library is open from nine to five on weekdays. On public holidays it is closed, and in summer "
    "the reading room on the second floor stays open until eight in the evening."
)
HEBREW = "הספרייה פתוחה בימי חול מתשע עד חמש. בחגים היא סגורה, ובקיץ אולם הקריאה פתוח עד שמונה בערב."
CODE = (
    "def count_tokens(text: str) -> int:\n    if len(text) <= EXACT_UP_TO:\n"
    "        return math.ceil(price(text))\n    return sum(price(part) for part in samples(text))\n"
)
JSON = (
    '{"id": 4711, "name": "Dana Levi", "mail": "dana@example.org", "roles": ["admin", "editor"], '
    '"created_at": "2025-03-01T12:30:00Z", "score": 0.8731, "active": true, "manager": null}'
)
LOG = "2025-03-01 12:30:00,123 ERROR [worker-3] app.jobs.runner: job 8837 failed after 31.02 ms (attempt 2)"
MIXED = "a1 B2_c3 האם café 🎉 {x: [1, 22, 333]}\n\n\t—“quoted”— ABCdef XMLHttpRequest \u200b\u202e漢字 Привет"

text = st.text(max_size=60) | st.text(alphabet='aB1 _\n-{}"א漢🎉\u200b', max_size=60)


# The largest of what four real vocabularies (cl100k, o200k, Qwen, Claude 2) make of each.
@table(
    ("sample", "real"),
    [(ENGLISH, 37), (HEBREW, 89), (CODE, 52), (JSON, 81), (LOG, 53)],
    ids=["English", "Hebrew", "code", "JSON", "log"],
)
@proves("D6")
def test_the_estimate_is_near_the_thirstiest_real_vocabulary(sample: str, real: int) -> None:
    assert 0.85 * real <= count_tokens(sample) <= 1.5 * real


@pytest.mark.slow
@given(text, text)
@settings(deadline=None, max_examples=60)
def test_a_whole_costs_no_more_than_its_parts_together(one: str, other: str) -> None:
    assert estimate_tokens(one + other) <= estimate_tokens(one) + estimate_tokens(other) + 1e-9


@given(text, text)
@settings(deadline=None, max_examples=60)
def test_a_beginning_costs_no_more_than_the_whole(one: str, other: str) -> None:
    assert count_tokens(one) <= count_tokens(one + other)


@given(text.map(lambda some: some * 5), st.integers(0, 60))
@settings(deadline=None, max_examples=60)
def test_a_clipped_text_is_a_beginning_that_fits(some: str, tokens: int) -> None:
    short = clip_to_tokens(some, tokens)
    assert some.startswith(short)
    assert count_tokens(short) <= tokens
    if count_tokens(some) <= tokens:
        assert short == some


def test_nothing_costs_nothing_and_something_costs_something() -> None:
    assert count_tokens("") == 0
    assert all(count_tokens(character) >= 1 for character in MIXED)


def test_long_runs_of_blanks_cost_something_too() -> None:
    assert count_tokens(" " * 1_000_000) > 10_000
    assert count_tokens("\n" * 1_000_000) > 10_000
    assert count_tokens("=" * 1_000_000) > 10_000


def test_a_very_long_text_is_counted_from_samples() -> None:
    long = MIXED * (2 * MAX_EXACT_LENGTH // len(MIXED))
    estimate, exact = count_tokens(long), estimate_tokens(long)
    assert 0.99 * exact <= estimate <= 1.01 * exact
