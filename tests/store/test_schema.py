from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.store.schema import escape, from_microseconds, to_microseconds, unescape
from tests.requirements import proves

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))


@proves("H4")
@given(text=ANY_TEXT)
def test_any_text_becomes_storable_and_comes_back(text: str) -> None:
    stored = escape(text)
    assert "\x00" not in stored
    stored.encode()
    assert unescape(stored) == text


@given(one=ANY_TEXT, two=ANY_TEXT)
def test_different_texts_are_stored_differently(one: str, two: str) -> None:
    assert (escape(one) == escape(two)) == (one == two)


@given(moment=st.datetimes(timezones=st.just(UTC)))
def test_a_moment_comes_back_to_the_microsecond(moment: datetime) -> None:
    assert from_microseconds(to_microseconds(moment)) == moment
