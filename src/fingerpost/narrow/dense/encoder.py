"""The text encoder. Only this module uses onnxruntime and tokenizers.

The model is loaded with the first text, which takes about 0.2 seconds. Texts are encoded one at a time: with
dynamic int8 quantization, a text's vector would otherwise depend on the other texts in the batch.
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
MAX_CHARACTERS: Final = 2000  # more than the token limit
WEIGHTS_FILE_NAME: Final = "routing-encoder.onnx"
TOKENIZER_FILE_NAME: Final = "tokenizer.json"


class TextEncoder(Protocol):
    """Encodes a text as a unit vector. The same text always gives the same vector."""

    @property
    def identity(self) -> str:
        """An identifier of the encoder. Encoders with the same identity give the same vectors."""
        ...

    def encode(self, text: str) -> Vector: ...


class OnnxEncoder:
    """The routing encoder of the package. Thread-safe."""

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self._folder = folder or Path(__file__).parent
        self._threads = threads
        self._lock = Lock()
        self._run: Callable[[str], Vector] | None = None
        self._identity: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the model files exist."""
        return all((self._folder / name).is_file() for name in (WEIGHTS_FILE_NAME, TOKENIZER_FILE_NAME))

    @property
    def identity(self) -> str:
        """A hash of the weights and the vocabulary."""
        if self._identity is None:
            try:
                files = [
                    (self._folder / name).read_bytes() for name in (WEIGHTS_FILE_NAME, TOKENIZER_FILE_NAME)
                ]
            except OSError as error:
                raise _build_encoder_error(self._folder, error) from error
            parts = b"".join(hashlib.sha256(file).digest() for file in files)
            self._identity = hashlib.sha256(parts).hexdigest()
        return self._identity

    def encode(self, text: str) -> Vector:
        """Return the text as a unit vector."""
        try:
            with self._lock:
                if self._run is None:
                    self._run = _load(self._folder, self._threads)
            return self._run(clean_line(text, MAX_CHARACTERS))
        except Exception as error:  # both libraries raise their own exception types
            raise _build_encoder_error(self._folder, error) from error


@cache
def get_shared_encoder() -> OnnxEncoder:
    """Return the encoder of the package, shared by the whole process."""
    return OnnxEncoder(threads=1)


def _load(folder: Path, threads: int) -> Callable[[str], Vector]:
    """Load the model. Return a function from text to vector."""
    tokenize = _load_tokenizer(folder / TOKENIZER_FILE_NAME)
    session = _load_session(folder / WEIGHTS_FILE_NAME, threads)

    def run(text: str) -> Vector:
        ids = np.array([tokenize(text)], np.int64)
        vector = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length > 0 else vector

    return run


class _OnnxSession(Protocol):
    def run(self, outputs: None, inputs: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]: ...


# Both libraries have incomplete type information, so they are imported by name and cast.
def _load_tokenizer(path: Path) -> Callable[[str], list[int]]:
    tokenizer: Any = import_module("tokenizers").Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text).ids


def _load_session(path: Path, threads: int) -> _OnnxSession:
    # No data may leave this machine. The library sends telemetry to its vendor
    # during import unless this environment variable is set.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    onnxruntime: Any = import_module("onnxruntime")
    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # only useful for inputs of a fixed length
    options.log_severity_level = 3
    # Idle model threads must not spin: they would take CPU time from the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _build_encoder_error(folder: Path, error: Exception) -> ConfigError:
    return ConfigError(
        f"the routing encoder in {folder} cannot be used: {error}",
        hint="install Fingerpost again, or set flags.dense_scores to false to route by words alone",
    )
