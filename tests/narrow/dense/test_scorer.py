"""Tools by meaning: what is encoded when, what is served meanwhile, and that nothing breaks it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from fingerpost.errors import ConfigError
from fingerpost.narrow.dense import DenseScorer, OnnxEncoder, TextEncoder
from fingerpost.narrow.dense.encoder import Vector
from fingerpost.narrow.dense.scorer import MAX_QUERY_LENGTH
from fingerpost.narrow.lexical_scorer import LexicalScorer
from fingerpost.narrow.scorer import ScorerRequest, build_tool_text, split_sentences
from fingerpost.records import ToolCard
from tests.kit.scorers import EVERYDAY, WordEncoder, ask, best, cards, tool
from tests.kit.tables import table
from tests.requirements import proves

LONG_WAIT = 30.0
LONG_REQUEST = (
    "I have been thinking about this for a while and would like to have it done properly now. "
    "reads a file from the disk. Then we shall see what else there is to be done about everything."
)


def prepare_scorer(
    encoder: TextEncoder, tools: tuple[ToolCard, ...], folder: Path | None = None
) -> DenseScorer:
    scorer = DenseScorer(encoder, folder=folder)
    scorer.prepare(tools)
    assert scorer.wait(LONG_WAIT)
    return scorer


def test_the_score_is_the_cosine_with_the_tools_text() -> None:
    encoder = WordEncoder()
    with prepare_scorer(encoder, EVERYDAY) as scorer:
        scores = scorer.scores(ask("reads a file"), EVERYDAY)
        expected = [
            float(encoder.encode(build_tool_text(card).format_long()) @ encoder.encode("reads a file"))
            for card in EVERYDAY
        ]
    assert np.allclose(scores, expected, atol=2e-3)
    assert scores.dtype == np.float32


def test_in_a_long_request_the_best_sentence_counts_for_half() -> None:
    encoder = WordEncoder()
    with prepare_scorer(encoder, EVERYDAY) as scorer:
        scores = scorer.scores(
            ScorerRequest(text=LONG_REQUEST, sentences=split_sentences(LONG_REQUEST)), EVERYDAY
        )
        whole = scorer.scores(ask(LONG_REQUEST), EVERYDAY)
        sentence = scorer.scores(ask("reads a file from the disk."), EVERYDAY)
    row = [card.key for card in EVERYDAY].index("files/read_file")
    assert scores[row] == pytest.approx(0.5 * whole[row] + 0.5 * sentence[row], abs=1e-5)


def test_a_short_request_is_encoded_once_and_remembered() -> None:
    encoder = WordEncoder()
    with prepare_scorer(encoder, EVERYDAY) as scorer:
        encoder.encoded.clear()
        for _ in range(3):
            scorer.scores(ask("Read it. Then write it. Then send it."), EVERYDAY)
        assert encoder.encoded == ["Read it. Then write it. Then send it."]


def test_of_a_very_long_request_the_first_content_words_are_encoded() -> None:
    encoder, configured = WordEncoder(), WordEncoder()
    long = "Could you please read all of the files that are in the folder? " * 9
    with prepare_scorer(encoder, EVERYDAY) as scorer, DenseScorer(configured, reference=encoder) as other:
        encoder.encoded.clear()
        for text in (long, "an " * 200, "读取文件" * 200):
            scorer.encode_query(text)
            other.encode_query(text)
        asked = encoder.encoded[:1]
        assert asked[0].split() == (["read", "files", "folder?"] * 9)[: len(asked[0].split())]
        assert all(len(text) <= MAX_QUERY_LENGTH for text in encoder.encoded)
        assert all(encoder.encoded)
        other.prepare(EVERYDAY)
        assert other.wait(LONG_WAIT)
        other.scores(ask(long), EVERYDAY)
        assert configured.encoded[-1] == long.strip()


def test_the_gloss_is_compared_instead_of_a_request_in_another_language() -> None:
    encoder = WordEncoder()
    with prepare_scorer(encoder, EVERYDAY) as scorer:
        encoder.encoded.clear()
        glossed = scorer.scores(ask("מה התחזית", gloss="weather forecast", language="he"), EVERYDAY)
        assert encoder.encoded == ["weather forecast"]
        assert np.array_equal(glossed, scorer.scores(ask("weather forecast"), EVERYDAY))


def test_a_changed_tool_encodes_only_itself() -> None:
    encoder = WordEncoder()
    before = cards(a=[tool("t1", "One."), tool("t2", "Two.")], b=[tool("t3", "Three.")])
    after = cards(a=[tool("t1", "One."), tool("t2", "Two, but better.")], b=[tool("t3", "Three.")])
    with prepare_scorer(encoder, before) as scorer:
        encoder.encoded.clear()
        scorer.prepare(after)
        assert scorer.wait(LONG_WAIT)
        assert encoder.encoded == ["a - t2: Two, but better."]
        assert scorer.ready == 1.0


def test_tools_that_go_and_the_same_tools_in_another_order_encode_nothing() -> None:
    encoder = WordEncoder()
    with prepare_scorer(encoder, EVERYDAY) as scorer:
        there = scorer.scores(ask("send an email"), EVERYDAY)
        encoder.encoded.clear()
        scorer.prepare(EVERYDAY[::-1])
        assert scorer.ready == 1.0
        assert np.allclose(scorer.scores(ask("send an email"), EVERYDAY[::-1]), there[::-1], atol=1e-6)
        scorer.prepare(EVERYDAY[:2])
        assert np.allclose(scorer.scores(ask("send an email"), EVERYDAY[:2]), there[:2], atol=1e-6)
        assert encoder.encoded == []


@pytest.mark.slow
def test_many_identical_tools_are_encoded_once() -> None:
    encoder = WordEncoder()
    with prepare_scorer(encoder, EVERYDAY[:1] * 2_000) as scorer:
        assert len(encoder.encoded) == 1
        scores = scorer.scores(ask("weather"), EVERYDAY[:1] * 2_000)
    assert scores.shape == (2_000,)
    assert len(set(scores.tolist())) == 1


def test_vectors_survive_a_restart(tmp_path: Path) -> None:
    with prepare_scorer(WordEncoder(), EVERYDAY, tmp_path) as scorer:
        before = scorer.scores(ask("send an email"), EVERYDAY)
    encoder = WordEncoder()
    encoder.go_on.clear()  # nothing can be encoded: what is ready came from disk
    with DenseScorer(encoder, folder=tmp_path) as scorer:
        scorer.prepare(EVERYDAY)
        assert scorer.ready == 1.0
        encoder.go_on.set()
        assert np.array_equal(scorer.scores(ask("send an email"), EVERYDAY), before)


def test_a_new_encoder_works_everything_out_anew(tmp_path: Path) -> None:
    prepare_scorer(WordEncoder("words-1"), EVERYDAY, tmp_path).close()
    encoder = WordEncoder("words-2")
    prepare_scorer(encoder, EVERYDAY, tmp_path).close()
    assert len(encoder.encoded) == len(EVERYDAY)


def test_what_was_encoded_before_closing_is_kept(tmp_path: Path) -> None:
    class Stopping(WordEncoder):
        """Is closed upon while it encodes the fourth text."""

        def encode(self, text: str) -> Vector:
            if len(self.encoded) == 3:
                closing.start()
                assert asked_to_close.wait(LONG_WAIT)
            return super().encode(text)

    asked_to_close = threading.Event()

    def close() -> None:
        asked_to_close.set()
        scorer.close()

    closing = threading.Thread(target=close)
    first = Stopping()
    scorer = DenseScorer(first, folder=tmp_path)
    scorer.prepare(EVERYDAY)
    assert scorer.wait(LONG_WAIT)
    closing.join(LONG_WAIT)
    second = WordEncoder()
    prepare_scorer(second, EVERYDAY, tmp_path).close()
    assert len(first.encoded) >= 4
    assert len(first.encoded) + len(second.encoded) == len(EVERYDAY)


def test_words_serve_at_once_while_vectors_are_made() -> None:
    encoder = WordEncoder()
    encoder.go_on.clear()
    lexical = LexicalScorer()
    with DenseScorer(encoder) as dense:
        for scorer in (lexical, dense):
            scorer.prepare(EVERYDAY)
        assert dense.ready == 0.0
        assert np.isnan(dense.scores(ask("delete a branch"), EVERYDAY)).all()
        assert best(lexical, EVERYDAY, "delete a branch") == "github/delete_branch"
        encoder.go_on.set()
        assert dense.wait(LONG_WAIT)
        assert dense.ready == 1.0
        assert np.isfinite(dense.scores(ask("delete a branch"), EVERYDAY)).all()


def test_new_tools_score_nan_and_the_others_go_on() -> None:
    encoder = WordEncoder()
    newcomer = cards(late=[tool("newcomer", "Came last.")])
    with prepare_scorer(encoder, EVERYDAY) as scorer:
        scorer.encode_query("weather")
        encoder.go_on.clear()
        scorer.prepare((*EVERYDAY, *newcomer))
        scores = scorer.scores(ask("weather"), (*EVERYDAY, *newcomer))
        encoder.go_on.set()
    assert np.isfinite(scores[:-1]).all()
    assert np.isnan(scores[-1])


class HeldInTheBackground(WordEncoder):
    """Background threads wait until the test lets them continue; requests do not."""

    def encode(self, text: str) -> Vector:
        if threading.current_thread().name == "fingerpost-vectors":
            return super().encode(text)
        return WordEncoder().encode(text)


@proves("N2")
def test_tools_that_are_likely_meant_get_their_vectors_first_with_the_request() -> None:
    encoder = HeldInTheBackground()
    encoder.go_on.clear()
    keys = [card.key for card in EVERYDAY]
    wanted = ["files/write_file", "github/delete_branch"]
    with DenseScorer(encoder) as scorer:
        scorer.prepare(EVERYDAY)
        scorer.prioritize([keys.index(key) for key in wanted])
        scores = scorer.scores(ask("anything"), EVERYDAY)
        encoder.go_on.set()
        assert scorer.wait(LONG_WAIT)
        assert scorer.ready == 1.0
    assert [key for key, score in zip(keys, scores, strict=True) if np.isfinite(score)] == wanted
    assert len(encoder.encoded) == len(keys) - len(wanted)  # none of them twice


def test_what_is_made_with_a_request_is_kept_like_the_rest(tmp_path: Path) -> None:
    with DenseScorer(WordEncoder(), folder=tmp_path) as scorer:
        scorer.prepare(EVERYDAY)
        scorer.prioritize(range(len(EVERYDAY)))
        assert scorer.wait(LONG_WAIT)
    second = WordEncoder()
    prepare_scorer(second, EVERYDAY, tmp_path).close()
    assert not second.encoded


def test_waiting_has_an_end() -> None:
    encoder = WordEncoder()
    encoder.go_on.clear()
    with DenseScorer(encoder) as scorer:
        scorer.prepare(EVERYDAY)
        assert not scorer.wait(0.05)
        encoder.go_on.set()


def test_tools_no_longer_wanted_are_not_encoded() -> None:
    encoder = WordEncoder()
    encoder.go_on.clear()
    with DenseScorer(encoder) as scorer:
        scorer.prepare(EVERYDAY)
        scorer.prepare(EVERYDAY[:2])
        encoder.go_on.set()
        assert scorer.wait(LONG_WAIT)
        assert scorer.ready == 1.0
    assert len(encoder.encoded) <= 3  # the two, and one that may have been at work


@pytest.mark.parametrize("workers", [1, 3])
def test_progress_is_told_until_all_is_done(workers: int) -> None:
    received: list[tuple[int, int]] = []
    scorer = DenseScorer(
        WordEncoder(), workers=workers, progress=lambda done, total: received.append((done, total))
    )
    with scorer:
        scorer.prepare(EVERYDAY)
        assert scorer.wait(LONG_WAIT)
    assert sorted(received) == [(done, len(EVERYDAY)) for done in range(1, len(EVERYDAY) + 1)]


def test_one_text_that_cannot_be_encoded_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(WordEncoder):
        def encode(self, text: str) -> Vector:
            if "branch" in text:
                message = "not that one"
                raise RuntimeError(message)
            return super().encode(text)

    with prepare_scorer(Picky(), EVERYDAY) as scorer:
        scores = scorer.scores(ask("weather"), EVERYDAY)
    assert [card.key for card, score in zip(EVERYDAY, scores, strict=True) if np.isnan(score)] == [
        "github/delete_branch"
    ]
    assert len(caplog.messages) == 1


def test_without_weights_everything_is_unknown_and_nothing_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = OnnxEncoder(tmp_path)
    assert not encoder.is_installed
    with prepare_scorer(encoder, EVERYDAY, tmp_path / "vectors") as scorer:
        assert scorer.ready == 0.0
        assert np.isnan(scorer.scores(ask("weather"), EVERYDAY)).all()
    assert len(caplog.messages) == 1
    with pytest.raises(ConfigError, match="cannot be used") as caught:
        encoder.encode("weather")
    assert caught.value.hint is not None


def test_broken_weights_are_the_same_as_none(tmp_path: Path) -> None:
    for name in ("routing-encoder.onnx", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}")
    with prepare_scorer(OnnxEncoder(tmp_path), EVERYDAY) as scorer:
        assert scorer.ready == 0.0


@table("text", ["", "🙂🙂", "?!", "\x00"])
def test_a_request_without_a_word_says_nothing_about_meaning(text: str) -> None:
    with prepare_scorer(WordEncoder(), EVERYDAY) as scorer:
        assert np.isnan(scorer.scores(ask(text), EVERYDAY)).all()


def test_an_encoder_that_fails_on_a_request_leaves_it_to_the_words() -> None:
    class Failing(WordEncoder):
        def encode(self, text: str) -> Vector:
            if text == "weather":
                raise MemoryError
            return super().encode(text)

    with prepare_scorer(Failing(), EVERYDAY) as scorer:
        assert np.isnan(scorer.scores(ask("weather"), EVERYDAY)).all()
        assert np.isfinite(scorer.scores(ask("email"), EVERYDAY)).all()


def test_a_catalog_of_none_is_ready() -> None:
    with prepare_scorer(WordEncoder(), ()) as scorer:
        assert scorer.ready == 1.0
        assert scorer.scores(ask("weather"), ()).shape == (0,)


def test_requests_are_answered_while_the_catalog_changes() -> None:
    encoder = WordEncoder()
    wrong: list[object] = []
    done = threading.Event()
    with prepare_scorer(encoder, EVERYDAY) as scorer:

        def keep_asking() -> None:
            while not done.is_set():
                for tools in (EVERYDAY[:3], EVERYDAY):
                    scores = scorer.scores(ask("weather"), tools)
                    if len(scores) != len(tools) or np.nanmax(np.abs(scores)) > 1.001:
                        wrong.append(scores)

        asking = [threading.Thread(target=keep_asking) for _ in range(2)]
        for thread in asking:
            thread.start()
        for _ in range(30):
            scorer.prepare(EVERYDAY[:3])
            scorer.prepare(EVERYDAY)
        done.set()
        for thread in asking:
            thread.join(LONG_WAIT)
            assert not thread.is_alive()
    assert not wrong


def test_no_thread_is_left_behind() -> None:
    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "fingerpost-vectors"]

    with prepare_scorer(WordEncoder(), EVERYDAY):
        pass
    assert ours() == []
