"""Events out of bytes, however these are cut; whole replies out of any chunks, or a clear error."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.errors import ModelReplyInvalid
from fingerpost.llm import ModelReply
from fingerpost.llm.remote import FailedAttempt
from fingerpost.llm.stream import ModelEventParser, ReplyAssembler
from tests.requirements import proves

WRAPPING = ("choices", "delta", "message", "tool_calls", "function", "usage", "error")
NAMES = (*WRAPPING, "content", "name", "arguments", "index", "id", "finish_reason", "model", "prompt_tokens")
LINE_ENDS = st.sampled_from(["\n", "\r\n", "\r"])
CUTS = st.lists(st.integers(0, 10_000), max_size=20) | st.just(list(range(2000)))  # or after every byte

texts = st.text(st.characters(exclude_characters="\r\n", exclude_categories=("Cs",)), min_size=1).filter(
    lambda text: text.strip() != "" and not text.startswith((" ", "\ufeff"))
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=25,
)


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return [content[start:end] for start, end in pairwise(edges)]


@pytest.mark.slow
@given(st.lists(texts, max_size=6), LINE_ENDS, CUTS)
def test_events_are_the_same_however_the_bytes_are_cut(given_text: list[str], end: str, cuts: list[int]):
    content = "".join(
        f": ping{end}data: {text}{end}id: 1{end}data:more{end}{end}" for text in given_text
    ).encode()
    reader = ModelEventParser()
    found = [event for piece in pieces(content, cuts) for event in reader.parse(piece)]
    assert found + reader.finish() == [f"{text}\nmore" for text in given_text]


@pytest.mark.slow
@given(st.binary(max_size=300), CUTS)
def test_any_bytes_at_all_are_survived(content: bytes, cuts: list[int]):
    whole, cut = ModelEventParser(), ModelEventParser()
    at_once = [*whole.parse(content), *whole.finish()]
    in_pieces = [event for piece in pieces(content, cuts) for event in cut.parse(piece)] + cut.finish()
    assert in_pieces == at_once


@pytest.mark.slow
@proves("W10")
@given(st.lists(junk, max_size=6))
def test_any_chunks_are_a_reply_a_setback_or_a_clear_error(chunks: list[Any]):
    reply, handed = ReplyAssembler("tiny", 1000), list[str]()
    try:
        handed += reply.add_events([json.dumps(chunk) for chunk in chunks])
        handed.append(reply.take_held_text())
        whole = reply.build_reply()
    except ModelReplyInvalid as invalid:
        assert str(invalid).startswith("tiny answered with")
        return
    assert isinstance(whole, ModelReply | FailedAttempt)
    if isinstance(whole, ModelReply):
        assert "".join(handed) == whole.text
        whole.text.encode()
        json.dumps(whole.tool_calls)
