"""Runs the judge of sentences of definitions, a small language model that `training/fit_judge.py` made.

It is loaded for the first sentence that is suspected. Services run it in a process of its own that ends when
it was idle for a short time, so that no memory is held for it.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Sequence, Set
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final

from fingerpost.catalog.injection import JUDGE_FOLDER, JUDGE_SEPARATOR
from fingerpost.errors import ModelUnavailable
from fingerpost.narrow.scorer import clean_line

IDLE_SECONDS: Final = 20.0
MAX_CHARACTERS: Final = 2000  # of a text
MAX_SENTENCE_LENGTH: Final = 1000  # characters
SURELY_READ_LENGTH: Final = 120  # characters: no more tokens than the model reads


def judge_in_this_process(texts: Sequence[str]) -> list[float | None]:
    """Return for each text, as `PlacedSentence.write_for_judge` writes it, how much it steers the model.

    None: its sentence is too long to be read whole.
    """
    return _judge(texts, lambda text: _load_encoder().encode_texts([text])[0])


def judge_in_own_process(texts: Sequence[str]) -> list[float | None]:
    """Do the same in a process that is started for it."""
    process = _get_process()
    try:
        return _judge(texts, lambda text: process.encode(clean_line(text, MAX_CHARACTERS), "document"))
    finally:
        if not process.is_running:  # nothing else would tell the tokenizer that it is idle
            judge_tokenizer.forget()


def _judge(texts: Sequence[str], encode: Callable[[str], Sequence[float]]) -> list[float | None]:
    partly_read = _find_partly_read(texts)
    return [None if text in partly_read else _read_value(encode(text)) for text in texts]


def _find_partly_read(texts: Sequence[str]) -> Set[str]:
    """Return the texts whose sentences have more tokens than the model reads."""
    sentences = {text: text.partition(JUDGE_SEPARATOR)[0] for text in texts}
    return {
        text
        for text, one in sentences.items()
        if (len(one) > SURELY_READ_LENGTH or not one.isascii())
        and (len(one) > MAX_SENTENCE_LENGTH or not judge_tokenizer.fits(one))
    }


class JudgeTokenizer:
    """The judge's tokenizer, read with the first text. Thread-safe.

    Reading it takes 6 ms, as much as a definition, so it is kept for the next one. It takes 1.6 MB, so it is
    kept for as long as the model only: for ever in this process, otherwise until the judge's process ends,
    which tells when a gateway is idle.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "tokenizer.json"
        self._lock = Lock()  # guards everything below
        self._fits: Callable[[str], bool] | None = None

    @property
    def is_loaded(self) -> bool:
        return self._fits is not None

    def fits(self, sentence: str) -> bool:
        """Return whether the model reads the whole sentence. Raises `ModelUnavailable`."""
        with self._lock:
            fits = self._fits = self._fits or self._load()
        return fits(sentence)

    def forget(self) -> None:
        """Free its memory. The next text reads it again."""
        with self._lock:
            self._fits = None

    def _load(self) -> Callable[[str], bool]:
        package = import_module("fingerpost.narrow.dense.model")
        try:
            tokenizer = package.WordPieceTokenizer(json.loads(self._file.read_bytes()))
        except (OSError, ValueError) as error:
            message = f"the tokenizer of the judge cannot be used: {error}"
            raise ModelUnavailable(message, model="judge") from error
        return lambda sentence: len(tokenizer.encode(sentence)) < package.MAX_TOKENS


judge_tokenizer: Final = JudgeTokenizer(JUDGE_FOLDER)


def _read_value(vector: Sequence[float]) -> float:
    """Return the value in a vector of the model, which stands beside a one before it is scaled."""
    value, one = vector
    return float(value / one)


# The libraries are loaded with the first text: most programs list no new definitions.


@cache
def _load_encoder() -> Any:
    return import_module("fingerpost.narrow.dense.encoder").OnnxEncoder(JUDGE_FOLDER)


@cache
def _get_process() -> Any:
    package: Any = import_module("fingerpost.narrow.dense.encoder")
    process = package.ModelProcess(JUDGE_FOLDER, 1, IDLE_SECONDS, on_end=judge_tokenizer.forget)
    atexit.register(process.close)
    return process
