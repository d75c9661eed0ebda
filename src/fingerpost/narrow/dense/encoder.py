"""Text encoders from ONNX files, and their tokenizer. Only this module uses onnxruntime.

The model is loaded with the first text, which takes about 0.2 seconds. Texts are encoded one at a time: with
dynamic int8 quantization, a text's vector would otherwise depend on the other texts in the batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol, cast

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


class BatchEncoder(TextEncoder, Protocol):
    """An encoder that encodes several texts of tools at once, and distinguishes them from requests."""

    batch_size: int

    def encode_texts(self, texts: Sequence[str]) -> Sequence[Vector]: ...


def get_batch_encoder(encoder: TextEncoder) -> BatchEncoder | None:
    """Return the encoder if it encodes several texts at once."""
    return cast("BatchEncoder", encoder) if hasattr(type(encoder), "encode_texts") else None


class OnnxEncoder:
    """An encoder in a folder, by default the routing encoder of the package. Thread-safe.

    The folder has the layout of Sentence Transformers: `model.onnx` (also in `onnx/`) and `tokenizer.json`;
    `1_Pooling/config.json` and `config_sentence_transformers.json` are used where they exist.
    """

    batch_size = 1

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self._folder = folder or Path(__file__).parent
        self._threads = threads
        self._lock = Lock()
        self._run: Callable[[str], Vector] | None = None
        self._prompts: Mapping[str, str] = {}
        self._identity: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the model files exist."""
        return _find_weights(self._folder) is not None and (self._folder / TOKENIZER_FILE_NAME).is_file()

    @property
    def identity(self) -> str:
        """A hash of the weights and the vocabulary."""
        if self._identity is None:
            try:
                weights = _find_weights(self._folder) or self._folder / WEIGHTS_FILE_NAME
                files = [path.read_bytes() for path in (weights, self._folder / TOKENIZER_FILE_NAME)]
            except OSError as error:
                raise _build_encoder_error(self._folder, error) from error
            parts = b"".join(hashlib.sha256(file).digest() for file in files)
            self._identity = hashlib.sha256(parts).hexdigest()
        return self._identity

    def encode(self, text: str) -> Vector:
        """Return a request as a unit vector."""
        return self._encode(text, "query")

    def encode_texts(self, texts: Sequence[str]) -> list[Vector]:
        """Return texts of tools as unit vectors."""
        return [self._encode(text, "document") for text in texts]

    def _encode(self, text: str, kind: str) -> Vector:
        try:
            with self._lock:
                if self._run is None:
                    self._prompts = _read_prompts(self._folder)
                    self._run = _load(self._folder, self._threads)
            return self._run(self._prompts.get(kind, "") + clean_line(text, MAX_CHARACTERS))
        except Exception as error:  # the library raises its own exception types
            raise _build_encoder_error(self._folder, error) from error


@cache
def get_shared_encoder() -> OnnxEncoder:
    """Return the encoder of the package, shared by the whole process."""
    return OnnxEncoder(threads=1)


def _find_weights(folder: Path) -> Path | None:
    names = (WEIGHTS_FILE_NAME, "model.onnx", "onnx/model_quantized.onnx", "onnx/model.onnx")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.is_file() else {}


def _read_prompts(folder: Path) -> Mapping[str, str]:
    """Return what the model wants before a `query` and before a `document`."""
    prompts: dict[str, str] = _read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    document = prompts.get("document") or prompts.get("passage") or ""
    return {"query": prompts.get("query") or "", "document": document}


def _load(folder: Path, threads: int) -> Callable[[str], Vector]:
    """Load the model. Return a function from text to vector."""
    tokenize = _load_tokenizer(folder)
    session = _load_session(_find_weights(folder) or folder / WEIGHTS_FILE_NAME, threads)
    names = {entry.name for entry in session.get_inputs()}
    pooling = _read_json(folder / "1_Pooling" / "config.json")
    if pooling.get("pooling_mode_cls_token"):
        pool = _take_first
    elif pooling.get("pooling_mode_lasttoken"):
        pool = _take_last
    else:
        pool = _average

    def run(text: str) -> Vector:
        ids = np.array([tokenize(text)], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        found = session.run(None, {name: value for name, value in inputs.items() if name in names})[0][0]
        # Vectors of the tokens, if the model does not combine them itself.
        vector = np.asarray(pool(found) if found.ndim == 2 else found, np.float32)
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length > 0 else vector

    return run


def _take_first(vectors: Vector) -> Vector:
    return vectors[0]


def _take_last(vectors: Vector) -> Vector:
    return vectors[-1]


def _average(vectors: Vector) -> Vector:
    return vectors.mean(axis=0)


class _OnnxInput(Protocol):
    name: str


class _OnnxSession(Protocol):
    def get_inputs(self) -> Sequence[_OnnxInput]: ...

    def run(self, outputs: None, inputs: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]: ...


def _load_tokenizer(folder: Path) -> Callable[[str], list[int]]:
    """Return a function from text to tokens. Tokenizers other than that of BERT need a package."""
    path = folder / TOKENIZER_FILE_NAME
    described = _read_json(path)
    normalizer: dict[str, Any] = described.get("normalizer") or {}
    if described["model"].get("type", "WordPiece") == "WordPiece" and normalizer.get("lowercase", True):
        return WordPieceTokenizer(path).encode
    try:
        library: Any = import_module("tokenizers")
    except ImportError as error:
        message = f"the tokenizer in {path} needs the package tokenizers"
        raise ConfigError(message, hint="Install it: pip install tokenizers") from error
    tokenizer = library.Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return lambda text: list(tokenizer.encode(text).ids)


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
    if isinstance(error, ConfigError):
        return error
    return ConfigError(
        f"the routing encoder in {folder} cannot be used: {error}",
        hint="install Fingerpost again, or set flags.dense_scores to false to route by words alone",
    )
