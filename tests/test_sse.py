"""Server-sent events, however they are cut into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.sse import SseEvent, SseEventTooLarge, SseParser, SseStream


def one_line(data: bytes) -> bytes:
    return data.replace(b"\r", b"").replace(b"\n", b"")


def data_of(value: bytes) -> bytes:
    return b"data: " + value


def tight_data_of(value: bytes) -> bytes:
    return b"data:" + value


def id_of(value: bytes) -> bytes:
    return b"id: " + value


def encode_events(events: Sequence[tuple[list[bytes], bytes]]) -> bytes:
    return b"".join(end.join(lines) + end + end for lines, end in events)


FIXED = (b"event: message", b"event:message", b"event: other", b"retry: 5", b": hello", b"data")
WORDS = st.binary(max_size=12).map(one_line)
LINES = WORDS.map(data_of) | WORDS.map(tight_data_of) | WORDS.map(id_of) | st.sampled_from(FIXED) | WORDS
ENDS = st.sampled_from((b"\n", b"\r\n", b"\r"))
STREAMS = st.lists(st.tuples(st.lists(LINES, min_size=1, max_size=4), ENDS), max_size=5).map(encode_events)


async def read(pieces: list[bytes], *, event_limit: int = 10_000) -> list[SseEvent]:
    waiting = list(pieces)

    async def more() -> bytes:
        return waiting.pop(0) if waiting else b""

    events = SseStream(more, event_limit=event_limit, whole_limit=None)
    found: list[SseEvent] = []
    while (event := await events.read_event()) is not None:
        found.append(event)
    return found


@given(stream=STREAMS, cuts=st.lists(st.integers(0, 200), max_size=6))
async def test_the_cuts_do_not_matter(stream: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(stream), *(cut % (len(stream) + 1) for cut in cuts)})
    pieces = [stream[begin:end] for begin, end in pairwise(places)]
    assert await read(pieces) == SseParser(10_000).parse(stream)


@given(stream=STREAMS)
async def test_each_event_in_a_piece_of_its_own_is_the_same_event(stream: bytes) -> None:
    for end in (b"\n\n", b"\r\n\r\n"):
        for part in stream.split(end):
            whole = part + end
            assert await read([whole]) == SseParser(10_000).parse(whole)


async def test_what_is_too_large_is_refused_in_one_piece_and_in_many() -> None:
    event = b"event: message\r\ndata: " + b"x" * 100 + b"\r\n\r\n"
    assert [found.data for found in await read([event], event_limit=200)] == [b"x" * 100]
    for pieces in ([event], [event[:50], event[50:]]):
        with pytest.raises(SseEventTooLarge):
            await read(pieces, event_limit=50)
