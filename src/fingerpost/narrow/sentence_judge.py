"""Runs the judge of sentences of definitions, a small language model that `training/fit_judge.py` made.

It is loaded for the first sentence that is suspected. Services run it in a process of its own that ends when
it was idle for a short time, so that no memory is held for it.
"""

from __future__ import annotations

import atexit
import json
import threading
import time
from collections.abc import Callable, Sequence, Set
from functools import cache
from importlib import import_module
from pathlib import Path
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
    return _judge(texts, lambda text: _get_process().encode(clean_line(text, MAX_CHARACTERS), "document"))


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
        and (len(one) > MAX_SENTENCE_LENGTH or not _tokenizer.fits(one))
    }


class JudgeTokenizer:
    """The judge's tokenizer, read with the first text. Thread-safe.

    Reading it takes 6 ms, as much as a definition, so it is kept for the next one. It takes 1.6 MB, so it is
    forgotten as soon as the judge's process may end: when it was not used for `idle_seconds`.
    """

    def __init__(self, folder: Path, idle_seconds: float) -> None:
        self._file = folder / "tokenizer.json"
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()  # guards everything below
        self._package: Any = None
        self._tokenizer: Any = None
        self._used_at = 0.0

    @property
    def is_loaded(self) -> bool:
        """Whether it is kept at present."""
        return self._tokenizer is not None

    def fits(self, sentence: str) -> bool:
        """Return whether the model reads the whole sentence. Raises `ModelUnavailable`."""
        with self._lock:
            if self._tokenizer is None:
                self._tokenizer = self._load()
                self._forget_after(self._idle_seconds)
            self._used_at = time.monotonic()
            return len(self._tokenizer.encode(sentence)) < self._package.MAX_TOKENS

    def _load(self) -> Any:
        self._package = import_module("fingerpost.narrow.dense.model")
        try:
            return self._package.WordPieceTokenizer(json.loads(self._file.read_bytes()))
        except (OSError, ValueError) as error:
            message = f"the tokenizer of the judge cannot be used: {error}"
            raise ModelUnavailable(message, model="judge") from error

    def _forget_after(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._forget_if_idle)
        timer.daemon = True
        timer.start()

    def _forget_if_idle(self) -> None:
        with self._lock:
            left = self._used_at + self._idle_seconds - time.monotonic()
            if left > 0:
                self._forget_after(left)
            else:
                self._tokenizer = None


_tokenizer: Final = JudgeTokenizer(JUDGE_FOLDER, IDLE_SECONDS)


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
    process = package.ModelProcess(JUDGE_FOLDER, 1, IDLE_SECONDS)
    atexit.register(process.close)
    return process
