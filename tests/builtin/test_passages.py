"""Search over passages: by words at once, by meaning once that is known."""

from __future__ import annotations

import string
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost.builtin.passages import WINDOW_LENGTH, PassageIndex, TextPassage, split_windows
from fingerpost.narrow.dense.encoder import OnnxEncoder, Vector, get_shared_encoder
from tests.requirements import proves

PATIENCE = 60.0


def passage(source: str, text: str, heading: str = "") -> TextPassage:
    return TextPassage(source=source, text=text, heading=heading)


class CountingEncoder:
    """The real encoder, and what it was asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @property
    def identity(self) -> str:
        return get_shared_encoder().identity

    def encode(self, text: str) -> Vector:
        self.texts.append(text)
        return get_shared_encoder().encode(text)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[PassageIndex]:
    with PassageIndex(vectors=tmp_path) as made:
        made.set_source("garden", [passage("garden", "Water the beds in the evening.", "Garden › Tomatoes")])
        made.set_source("car", [passage("car", "The service is due in May.", "Car")])
        yield made


def search_sources(index: PassageIndex, query: str) -> list[str]:
    return [hit.passage.source for hit in index.search(query)]


@proves("B2")
def test_words_count_at_once_and_slips_are_forgiven(index: PassageIndex):
    assert search_sources(index, "when are the tomatos watered?") == ["garden"]


@proves("B2")
def test_meaning_finds_what_shares_no_word(index: PassageIndex):
    index.set_source("team", [passage("team", "We hired two developers.")])
    assert index.wait_until_ready(PATIENCE)
    hit, *_ = index.search("recruiting engineers")
    assert hit.passage.source == "team"
    assert hit.words == 0
    assert hit.meaning is not None and hit.meaning > 0.3
    assert search_sources(index, "the capital of France") == []


def test_without_an_encoder_words_are_enough(tmp_path: Path):
    with PassageIndex(encoder=OnnxEncoder(tmp_path), vectors=tmp_path) as index:
        index.set_source("a", [passage("a", "a red bicycle")])
        assert not index.wait_until_ready(PATIENCE)
        assert search_sources(index, "bicycles") == ["a"]


def test_vectors_are_kept_between_runs_and_a_changed_passage_alone_is_read_again(tmp_path: Path):
    texts = {name: [passage(name, f"what is said about {name} is said once")] for name in ("tea", "rain")}
    for expected in (2, 0):
        encoder = CountingEncoder()
        with PassageIndex(vectors=tmp_path, encoder=encoder) as index:
            for name, passages in texts.items():
                index.set_source(name, passages)
            assert index.wait_until_ready(PATIENCE)
            assert len(encoder.texts) == expected
    with PassageIndex(vectors=tmp_path, encoder=encoder) as index:
        index.set_source("tea", texts["tea"])
        index.set_source("rain", [passage("rain", "now it says something else")])
        assert index.wait_until_ready(PATIENCE)
    assert encoder.texts == ["now it says something else"]


def test_nothing_is_encoded_before_the_first_query(tmp_path: Path):
    encoder = CountingEncoder()
    with PassageIndex(vectors=tmp_path, encoder=encoder) as index:
        index.set_source("a", [passage("a", "words")])
    assert encoder.texts == []


def test_within_says_which_sources_count(index: PassageIndex):
    assert (
        index.search("service water", within=lambda source: source == "garden")[0].passage.source == "garden"
    )
    assert index.search("service", within=lambda _: False) == ()


def test_a_long_passage_counts_by_its_best_part(tmp_path: Path):
    filler = "The committee met again and talked about the minutes of the last meeting. " * 12
    assert len(filler) > WINDOW_LENGTH
    with PassageIndex(vectors=tmp_path) as index:
        index.set_source("long", [passage("long", filler + "Send the invoice for the apartment by e-mail.")])
        assert index.wait_until_ready(PATIENCE)
        (hit,) = index.search("mail the bill of the flat")
        assert hit.meaning is not None and hit.meaning > 0.3


WORDS = st.text(string.ascii_lowercase[:6], min_size=1, max_size=4)
TEXTS = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
STEPS = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.lists(TEXTS, max_size=3)), max_size=12)


@given(steps=STEPS, query=TEXTS)
def test_an_index_that_changed_finds_what_a_fresh_one_finds(
    steps: list[tuple[str, list[str] | None]], query: str
):
    changed = PassageIndex(by_meaning=False)
    now: dict[str, list[TextPassage]] = {}
    for source, texts in steps:
        if texts is None:
            changed.remove(source)
            now.pop(source, None)
        else:
            now.pop(source, None)
            now[source] = [passage(source, text) for text in texts]
            changed.remove(source)
            changed.set_source(source, now[source])
        changed.search(query)
    fresh = PassageIndex(by_meaning=False)
    for source, passages in now.items():
        fresh.set_source(source, passages)
    assert changed.sources == fresh.sources
    assert changed.size == fresh.size
    scored = [(hit.passage, round(hit.score, 5)) for hit in changed.search(query, 50)]
    assert scored == [(hit.passage, round(hit.score, 5)) for hit in fresh.search(query, 50)]


@given(heading=st.text(max_size=400), text=st.text(max_size=6000))
def test_windows_fit_and_lose_no_word(heading: str, text: str):
    made = split_windows("", text)
    assert all(len(piece) <= WINDOW_LENGTH for piece in made)
    kept = "".join("".join(made).split())
    assert "".join(text.split()).startswith(kept) or not text.isprintable() or not text.isascii()
    assert all(len(piece) <= WINDOW_LENGTH + 130 for piece in split_windows(heading, text))


def test_threads_may_write_and_search_at_once():
    index = PassageIndex(by_meaning=False)
    failures: list[Exception] = []

    def write(name: str) -> None:
        try:
            for round_ in range(20):
                index.set_source(name, [passage(name, f"shared words and {name} {round_}")])
                assert index.search("shared words", 50)
        except Exception as error:
            failures.append(error)

    threads = [Thread(target=write, args=(f"source{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert failures == []
    assert len(index.search("shared words", 50)) == 6
