"""The text encoder and its tokenizer. Only this module uses onnxruntime.

The model is loaded with the first text, which takes about 0.2 seconds. Texts are encoded one at a time: with
dynamic int8 quantization, a text's vector would otherwise depend on the other texts in the batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
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
MAX_WORD_CHARACTERS: Final = 100  # a longer word is unknown
MAX_KEPT_CHARACTERS: Final = 10_000  # more than texts of one installation have
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
        except Exception as error:  # the library raises its own exception types
            raise _build_encoder_error(self._folder, error) from error


@cache
def get_shared_encoder() -> OnnxEncoder:
    """Return the encoder of the package, shared by the whole process."""
    return OnnxEncoder(threads=1)


def _load(folder: Path, threads: int) -> Callable[[str], Vector]:
    """Load the model. Return a function from text to vector."""
    tokenizer = WordPieceTokenizer(folder / TOKENIZER_FILE_NAME)
    session = _load_session(folder / WEIGHTS_FILE_NAME, threads)

    def run(text: str) -> Vector:
        ids = np.array([tokenizer.encode(text)], np.int64)
        vector = session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length > 0 else vector

    return run


class _OnnxSession(Protocol):
    def run(self, outputs: None, inputs: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]: ...


class WordPieceTokenizer:
    """The tokenizer of BERT models, from the vocabulary in a `tokenizer.json`.

    It gives the same tokens as the package `tokenizers`, which would bring seven other packages. They differ
    in about 500 rare characters that are newer than the Unicode version of that package.
    """

    def __init__(self, path: Path) -> None:
        described = json.loads(path.read_bytes())
        self._vocabulary: dict[str, int] = described["model"]["vocab"]
        self._special: dict[str, int] = {token["content"]: token["id"] for token in described["added_tokens"]}
        self._split_special = re.compile(f"({'|'.join(map(re.escape, self._special))})").split
        self._split_word = lru_cache(maxsize=10_000)(self._find_pieces)

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text's tokens: at most `MAX_TOKENS`, with the first and the last marker."""
        ids = [self._special["[CLS]"]]
        for part in self._split_special(text):
            if part in self._special:
                ids.append(self._special[part])
            else:
                cleaned = unicodedata.normalize("NFD", part.translate(_CLEANED)).translate(_SEPARATED)
                for word in cleaned.split():
                    ids += self._split_word(word)
        return [*ids[: MAX_TOKENS - 1], self._special["[SEP]"]]

    def _find_pieces(self, word: str) -> tuple[int, ...]:
        """Split a word into the longest known pieces, from the left. If that fails it is unknown."""
        unknown = (self._special["[UNK]"],)
        ids: list[int] = []
        start = 0
        while start < len(word) <= MAX_WORD_CHARACTERS:
            prefix = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._vocabulary), None)
            if end is None:
                return unknown
            ids.append(self._vocabulary[prefix + word[start:end]])
            start = end
        return tuple(ids) or unknown


class _CharacterTable(dict[int, str]):
    """What each character is replaced by. Entries are computed when they are first needed."""

    def __init__(self, replace: Callable[[str], str]) -> None:
        self._replace = replace

    def __missing__(self, code: int) -> str:
        written = self._replace(chr(code))
        if len(self) < MAX_KEPT_CHARACTERS:
            self[code] = written
        return written


def _clean_character(character: str) -> str:
    if character in "\t\n\r":
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs"):
        return ""
    return f" {character} " if _IDEOGRAPH.match(character) else character


def _separate_character(character: str) -> str:
    """Remove an accent, put spaces around punctuation, and turn the rest into lower case."""
    category = unicodedata.category(character)
    if category == "Mn":
        return ""
    is_symbol = character.isascii() and character.isprintable() and not character.isalnum()
    return f" {character} " if is_symbol or category.startswith("P") else character.lower()


_IDEOGRAPH: Final = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)
_CLEANED: Final = _CharacterTable(_clean_character)
_SEPARATED: Final = _CharacterTable(_separate_character)


# The library has incomplete type information, so it is imported by name and cast.
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
