"""Runs the judge of sentences of definitions, a small language model that `training/fit_judge.py` made.

It is loaded for the first sentence that is suspected. Services run it in a process of its own that ends when
it was idle for a short time, so that no memory is held for it.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from fingerpost.catalog.injection import JUDGE_FOLDER
from fingerpost.narrow.scorer import clean_line

IDLE_SECONDS: Final = 20.0
MAX_CHARACTERS: Final = 2000  # more than the token limit


def judge_in_this_process(texts: Sequence[str]) -> list[float]:
    """Return for each text, as `PlacedSentence.write_for_judge` writes it, how much it steers the model."""
    return [_read_value(vector) for vector in _load_encoder().encode_texts(texts)]


def judge_in_own_process(texts: Sequence[str]) -> list[float]:
    """Do the same in a process that is started for it."""
    process = _get_process()
    return [_read_value(process.encode(clean_line(text, MAX_CHARACTERS), "document")) for text in texts]


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
