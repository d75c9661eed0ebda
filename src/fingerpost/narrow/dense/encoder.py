"""Text to vector: the one place that knows onnxruntime and tokenizers.

The model is loaded when the first text comes, which takes a fifth of a second;
until then having an encoder costs nothing. Texts go through one at a time: with
dynamic int8, a text's vector would otherwise depend on its neighbours in the batch.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fingerpost.errors import ConfigError
from fingerpost.narrow.scorer import clean_line

Vector = NDArray[np.float32]

DIMENSIONS: Final = 384
MAX_TOKENS: Final = 128
MAX_CHARACTERS: Final = 2000  # more than fits those tokens
WEIGHTS: Final = "routing-encoder.onnx"
TOKENIZER: Final = "tokenizer.json"


class TextEncoder(Protocol):
    """Anything that turns a text into a unit vector, always the same one."""

    @property
    def identity(self) -> str:
        """Two encoders with the same identity give the same vectors."""
        ...

    def encode(self, text: str) -> Vector: ...


class OnnxEncoder:
    """The routing encoder that comes with the package. Safe to use from several threads."""

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self._folder = folder or Path(__file__).parent
        self._threads = threads
        self._lock = Lock()
        self._run: Callable[[str], Vector] | None = None
        self._identity: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the files of the model are where they belong."""
        return all((self._folder / name).is_file() for name in (WEIGHTS, TOKENIZER))

    @property
    def identity(self) -> str:
        """A hash of the weights and the vocabulary."""
        if self._identity is None:
            try:
                files = [(self._folder / name).read_bytes() for name in (WEIGHTS, TOKENIZER)]
            except OSError as error:
                raise _build_encoder_error(self._folder, error) from error
            parts = b"".join(hashlib.sha256(file).digest() for file in files)
            self._identity = hashlib.sha256(parts).hexdigest()
        return self._identity

    def encode(self, text: str) -> Vector:
        """The meaning of a text, as a vector of length one."""
        try:
            with self._lock:
                if self._run is None:
                    self._run = _load(self._folder, self._threads)
            return self._run(clean_line(text, MAX_CHARACTERS))
        except Exception as error:  # both libraries raise kinds of their own
            raise _build_encoder_error(self._folder, error) from error


@cache
def get_shared_encoder() -> OnnxEncoder:
    """The one that comes with the package, once for all who compare meanings in this process."""
    return OnnxEncoder(threads=1)


def _load(folder: Path, threads: int) -> Callable[[str], Vector]:
    """A function from text to vector."""
    tokenize = _load_tokenizer(folder / TOKENIZER)
    session = _load_session(folder / WEIGHTS, threads)

    def run(text: str) -> Vector:
        ids = np.array([tokenize(text)], np.int64)
        vector = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length > 0 else vector

    return run


class _OnnxSession(Protocol):
    def run(self, outputs: None, inputs: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]: ...


# Neither library says much about its types, so both are loaded by name and given ours.
def _load_tokenizer(path: Path) -> Callable[[str], list[int]]:
    tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text).ids


def _load_session(path: Path, threads: int) -> _OnnxSession:
    # Nothing about this machine or anybody's requests leaves it. The library notes the machine for its maker
    # while it is being imported, before it could be asked not to, unless the environment says so.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    onnxruntime: Any = import_module("onnxruntime")
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it pays for one fixed length, and ours vary
    options.log_severity_level = 3
    # Idle threads of the model must not spin: they would take the time of the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _build_encoder_error(folder: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"the routing encoder in {folder} cannot be used: {error}",
        hint="install Fingerpost again, or set flags.dense_scores to false to route by words alone",
    )
