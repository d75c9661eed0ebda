"""Pieces without the white space around the whole, wherever they are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.router.modes.answer import StripStream


@given(st.lists(st.text(alphabet=" \n\tab\u00a0", max_size=6), max_size=20))
def test_the_pieces_are_what_the_whole_would_be(pieces: list[str]):
    texts: list[str] = []
    say = StripStream(texts.append)
    for piece in pieces:
        say(piece)
    assert "".join(texts) == "".join(pieces).strip()
    assert all(texts)
