"""The encoder that comes with the package, with its real weights."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from fingerpost.narrow.dense import DenseScorer, OnnxEncoder
from fingerpost.narrow.dense.encoder import model_processes
from fingerpost.narrow.dense.model import TOKENIZER_FILE_NAME, WordPieceTokenizer
from fingerpost.narrow.scorer import clean_line
from fingerpost.settings.model import NarrowSettings
from tests.kit.programs import ROOT
from tests.kit.scorers import EVERYDAY, ask, best
from tests.requirements import proves

pytestmark = pytest.mark.skipif(not OnnxEncoder().is_installed, reason="the weights are not in this checkout")


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    return OnnxEncoder()


def test_a_text_becomes_a_unit_vector_always_the_same(encoder: OnnxEncoder) -> None:
    vector = encoder.encode("What is the weather in Paris?")
    assert vector.shape == (384,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-5)
    assert np.array_equal(vector, encoder.encode("What is the weather in Paris?"))


def test_what_means_the_same_is_near_and_what_does_not_is_far(encoder: OnnxEncoder) -> None:
    request = encoder.encode("Will I need an umbrella in Haifa tomorrow?")
    weather = encoder.encode("weather - get forecast: The weather forecast of the coming days for a city.")
    database = encoder.encode("postgres - run query: Runs an SQL statement on a database.")
    assert request @ weather > request @ database + 0.1


def test_tools_are_found_without_a_shared_word(encoder: OnnxEncoder) -> None:
    with DenseScorer(encoder) as scorer:
        scorer.prepare(EVERYDAY)
        assert scorer.wait(30)
        assert best(scorer, EVERYDAY, "Is it going to be sunny in Haifa?") == "weather/get_forecast"
        assert best(scorer, EVERYDAY, "drop a line to grandma by mail") == "gmail/send_message"


@pytest.mark.parametrize("text", ["", "\x00", "🙂" * 50, "\ud800 half", "a" * 1_000_000, "שלום 你好 привет"])
def test_junk_becomes_a_vector_too(encoder: OnnxEncoder, text: str) -> None:
    assert np.isfinite(encoder.encode(text)).all()


def test_several_threads_get_the_same_vectors() -> None:
    fresh = OnnxEncoder()
    texts = [f"request number {number}" for number in range(8)]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(fresh.encode, texts))
    assert all(
        np.array_equal(vector, fresh.encode(text)) for vector, text in zip(together, texts, strict=True)
    )


def test_scores_of_the_same_request_do_not_depend_on_when_it_is_asked(encoder: OnnxEncoder) -> None:
    with DenseScorer(encoder) as scorer:
        scorer.prepare(EVERYDAY)
        assert scorer.wait(30)
        assert np.array_equal(
            scorer.scores(ask("read it"), EVERYDAY), scorer.scores(ask("read it"), EVERYDAY)
        )


def test_the_settings_say_where_vectors_are_kept(tmp_path: Path) -> None:
    with DenseScorer.from_settings(NarrowSettings(vectors=str(tmp_path / "kept"))) as scorer:
        scorer.prepare(EVERYDAY[:1])
        assert scorer.wait(30)
        assert scorer.ready == 1.0
    assert list((tmp_path / "kept").glob("*.vectors"))


@pytest.mark.process
def test_the_library_that_runs_the_model_notes_nothing_for_its_maker(tmp_path: Path) -> None:
    """It would keep an id of the machine in its cache, with facts about the machine, and send them."""
    program = (
        "from fingerpost.narrow.dense import encoder; print(len(encoder.OnnxEncoder().encode('a word')))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-B", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "384\n"
    assert [*tmp_path.rglob("*")] == []


@pytest.mark.process
@proves("S12")
def test_a_process_of_its_own_gives_the_same_vectors_also_if_it_is_killed(encoder: OnnxEncoder) -> None:
    texts = ["read the file notes.txt", "", "\ud800 half", "שלום 你好 привет", *map(str, range(40))]
    with model_processes.use(0):
        first = encoder.encode(texts[0])
        [child] = find_encoder_processes()
        with ThreadPoolExecutor(8) as threads:
            found = threads.map(encoder.encode, texts)
            tools = threads.map(encoder.encode_texts, ([text] for text in texts))
            child.kill()
            found, tools = list(found), list(tools)
        assert child not in find_encoder_processes()
    assert find_encoder_processes() == []
    assert np.array_equal(first, encoder.encode(texts[0]))
    for text, vector, [tool] in zip(texts, found, tools, strict=True):
        assert np.array_equal(vector, encoder.encode(text)), text
        assert np.array_equal(tool, vector), text


@pytest.mark.process
@proves("S12")
def test_an_idle_process_ends_and_is_started_again(encoder: OnnxEncoder) -> None:
    with model_processes.use(0.01):
        first = encoder.encode("a word")
        until = time.monotonic() + 60
        while find_encoder_processes():
            assert time.monotonic() < until
            time.sleep(0.05)
        assert np.array_equal(first, encoder.encode("a word"))


@pytest.mark.process
@proves("S12")
def test_without_the_process_tools_are_found_by_words_alone(
    encoder: OnnxEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "numpy.py").write_text("import os\nos._exit(3)", "utf-8")  # what the process imports first
    with model_processes.use(0), DenseScorer(encoder) as scorer:
        scorer.prepare(EVERYDAY)
        assert scorer.wait(30)
        find_encoder_processes()[0].kill()
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        assert np.isnan(scorer.scores(ask("read it"), EVERYDAY)).all()
        assert np.isnan(scorer.scores(ask("send it"), EVERYDAY)).all()
        assert find_encoder_processes() == []  # it is not started for each request
    assert [record.getMessage() for record in caplog.records] == [
        "meanings cannot be compared: the process of the routing encoder is not available: it ended twice"
    ]


def find_encoder_processes() -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has just ended
            found += [child] if "model.py" in " ".join(child.cmdline()) else []
    return found


# Of the tokens that the package `tokenizers` 0.23.3 makes of all descriptions and requests in training/data.
TOKENS_OF_TRAINING_DATA = "39102ef66a274ee906c6f21d837eec0af0e6e2e870289f8b3afd73fb6ea5e853"


@pytest.mark.slow
def test_tokens_are_those_of_the_package_that_the_encoder_was_trained_with() -> None:
    file = ROOT / "src/fingerpost/narrow/dense" / TOKENIZER_FILE_NAME
    tokenizer = WordPieceTokenizer(json.loads(file.read_bytes()))
    for line in Path(__file__).with_name("tokens.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        assert tokenizer.encode(case["text"]) == case["ids"], case["text"]
    digest = hashlib.sha256()
    for file in sorted((ROOT / "training/data").glob("*.jsonl")):
        for line in file.read_text("utf-8").splitlines():
            fields = json.loads(line)
            text = clean_line(fields.get("description") or fields.get("query") or "", 2000)
            digest.update(str(tokenizer.encode(text)).encode())
    assert digest.hexdigest() == TOKENS_OF_TRAINING_DATA
