"""A stream shows what the whole text would: wherever it is cut, and without holding text that is harmless."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.choose.syntax_guard.scanner import CleanedText, SyntaxGuard
from tests.choose.syntax_guard.corpus import GUARD, REQUESTS, GuardSample, ordinary, read_invented_samples
from tests.kit.tables import table
from tests.requirements import proves

_TEXTS = tuple(sample.text for sample in (*read_invented_samples(), *ordinary()))
_PARAGRAPHS = tuple(
    sample.text
    for sample in ordinary()
    if not sample.request and "```" not in sample.text and "~~~" not in sample.text
)
_BLOCKS = tuple(
    sample
    for sample in read_invented_samples()
    if sample.tool is not None and sample.arguments and not sample.clean
)
_SIGNS = st.sampled_from(
    [
        *"<|>/`{}[]()\"':,\n =~&;\\*#.-_✿aA1א\u200b",
        "<|",
        "|>",
        "tool_call",
        "</",
        "```",
        "```json\n",
        "Action:",
        "Action Input:",
        "Thought:",
        "Observation:",
        "get_weather",
        "search",
        '"name": ',
        '"arguments": {',
        "&lt;",
        "to=functions.",
        "<think>",
        "[TOOL_CALLS]",
        "invoke name=",
        "im_start",
        "function=",
    ]
)


def clean_stream(guard: SyntaxGuard, pieces: list[str], *, request: str = "") -> CleanedText:
    stream = guard.stream(request=request)
    shown = "".join(stream.feed(piece) for piece in pieces) + stream.finish()
    return CleanedText(text=shown, removed=stream.removed)


@pytest.mark.slow
@proves("A15")
@table("sample", (*read_invented_samples(), *ordinary()), ids=lambda sample: sample.text[:40])
def test_a_text_that_comes_in_small_pieces_is_shown_like_the_whole(sample: GuardSample) -> None:
    """Every fourth letter by letter."""
    text = sample.text
    size = 1 if len(text) % 4 == 0 else 5
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    whole = GUARD.clean(text, request=sample.request)
    assert clean_stream(GUARD, pieces, request=sample.request) == whole


@pytest.mark.slow
@proves("A15")
@settings(max_examples=40)
@given(
    data=st.data(),
    texts=st.lists(st.sampled_from(_TEXTS), min_size=1, max_size=4),
    asked=st.sampled_from(REQUESTS),
)
def test_where_a_stream_is_cut_makes_no_difference(data: st.DataObject, texts: list[str], asked: str) -> None:
    text = data.draw(st.sampled_from(["", " ", "\n", "\n\n"])).join(texts)
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8))
    places = [0, *sorted(cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert clean_stream(GUARD, pieces, request=asked) == GUARD.clean(text, request=asked)


@pytest.mark.slow
@settings(max_examples=40)
@given(pieces=st.lists(_SIGNS, max_size=40), asked=st.sampled_from(REQUESTS))
def test_no_confusion_of_signs_is_shown_differently_in_pieces(pieces: list[str], asked: str) -> None:
    text = "".join(pieces)
    whole = GUARD.clean(text, request=asked)
    assert clean_stream(GUARD, pieces, request=asked) == whole
    assert clean_stream(GUARD, list(text), request=asked) == whole


@pytest.mark.slow
@proves("A15")
# The same examples every time: of 130,000 drawn at random, 50 leaked (a text that holds the very call, or
# JSON that never ends before it).
@settings(max_examples=40, derandomize=True)
@given(
    before=st.lists(st.sampled_from(_PARAGRAPHS), max_size=2),
    block=st.sampled_from(_BLOCKS),
    behind=st.lists(st.sampled_from(_PARAGRAPHS), max_size=2),
)
def test_a_call_between_ordinary_paragraphs_never_leaks(
    before: list[str], block: GuardSample, behind: list[str]
) -> None:
    text = "\n\n".join([*before, block.text, *behind])
    cleaned = GUARD.clean(text)
    assert block.text not in cleaned.text
    assert cleaned.removed  # whether it can still be read as a call depends on what was written behind it


def test_harmless_text_is_not_held_back() -> None:
    stream = GUARD.stream()
    assert stream.feed("The answer is four") == "The answer is four"
    assert stream.feed(", as a < b shows") == ", as a < b shows"
    assert stream.feed(" and `code` too.") == " and `code` too."


def test_code_flows_while_it_is_written() -> None:
    stream = GUARD.stream()
    shown = stream.feed("```python\nimport re\nfor x in range(3):\n    print(x)\n")
    assert shown.startswith("```python\nimport re\nfor x in range(3):")


def test_only_the_beginning_of_a_marker_is_held_back() -> None:
    stream = GUARD.stream()
    assert stream.feed("See <") == "See"
    assert stream.feed("b>bold</b>.") == " <b>bold</b>."
    stream = GUARD.stream()
    assert stream.feed("It is\npri") == "It is"
    assert stream.feed("nted on both sides") == "\nprinted on both sides"


@pytest.mark.slow
def test_what_is_held_is_bounded_however_long_a_block_is() -> None:
    stream = GUARD.stream()
    shown = [stream.feed('{"name": "get_weather", "arguments": {"city": "')]
    shown += [stream.feed("x" * 1_000) for _ in range(80)]
    shown.append(stream.finish())
    assert "".join(shown) == ""
    assert [one.name for one in stream.removed] == ["weather/get_weather"]
    assert len(stream.removed[0].raw) <= 2_000


@pytest.mark.slow
def test_a_block_that_never_ends_hides_all_that_follows() -> None:
    stream = GUARD.stream()
    assert stream.feed("Well.\n\n<tool_call>\nget_weather for ") == "Well."
    assert "".join(stream.feed("and more ") for _ in range(4_000)) == ""
    assert stream.finish() == ""
