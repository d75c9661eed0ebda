"""Models that encode texts, from ONNX files, and their tokenizer. Only this module uses onnxruntime.

It is also a program that encodes texts for its parent, so it imports nothing of the package. Texts are
encoded one at a time: with dynamic int8 quantization, a text's vector would otherwise depend on the other
texts in the batch.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fingerpost.regex import prepare_re

Vector = NDArray[np.float32]

MAX_TOKENS: Final = 128
MAX_WORD_CHARACTERS: Final = 100  # a longer word is unknown
MAX_KEPT_CHARACTERS: Final = 10_000  # more than texts of one installation have
WEIGHTS_FILE_NAME: Final = "routing-encoder.onnx"
TOKENIZER_FILE_NAME: Final = "tokenizer.json"


def find_weights(folder: Path) -> Path | None:
    """Return the file with the weights of a model, or None."""
    names = (WEIGHTS_FILE_NAME, "model.onnx", "onnx/model_quantized.onnx", "onnx/model.onnx")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()) if path.is_file() else {}


def _read_prompts(folder: Path) -> Mapping[str, str]:
    """Return what the model wants before a `query` and before a `document`."""
    prompts: dict[str, str] = _read_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    document = prompts.get("document") or prompts.get("passage") or ""
    return {"query": prompts.get("query") or "", "document": document}


def load_model(folder: Path, threads: int) -> Callable[[str, str], Vector]:
    """Load the model. Return a function from text and kind (`query` or `document`) to vector."""
    prompts = _read_prompts(folder)
    tokenize = _load_tokenizer(folder)
    session = _load_session(find_weights(folder) or folder / WEIGHTS_FILE_NAME, threads)
    names = {entry.name for entry in session.get_inputs()}
    pooling = _read_json(folder / "1_Pooling" / "config.json")
    if pooling.get("pooling_mode_cls_token"):
        pool = _take_first
    elif pooling.get("pooling_mode_lasttoken"):
        pool = _take_last
    else:
        pool = _average

    def encode(text: str, kind: str) -> Vector:
        ids = np.array([tokenize(prompts[kind] + text)], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        found = session.run(None, {name: value for name, value in inputs.items() if name in names})[0][0]
        # Vectors of the tokens, if the model does not combine them itself.
        vector = np.asarray(pool(found) if found.ndim == 2 else found, np.float32)
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length > 0 else vector

    return encode


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
        return WordPieceTokenizer(described).encode
    try:
        library: Any = import_module("tokenizers")
    except ImportError as error:
        message = f"{path} needs the package tokenizers: pip install tokenizers"
        raise ImportError(message) from error
    tokenizer = library.Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return lambda text: list(tokenizer.encode(text).ids)


class WordPieceTokenizer:
    """The tokenizer of BERT models, from what its `tokenizer.json` describes.

    It gives the same tokens as the package `tokenizers`, which would bring seven other packages. They differ
    in about 500 rare characters that are newer than the Unicode version of that package.
    """

    def __init__(self, described: Mapping[str, Any]) -> None:
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


_IDEOGRAPH: Final = prepare_re(
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
    return onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        # The operator that this one puts in place of two takes twice their time, a sixth of the whole.
        disabled_optimizers=["SkipLayerNormFusion"],
    )


# The program: `model.py FOLDER THREADS IDLE_SECONDS QUERIES DOCUMENTS`. The last two are file descriptors of
# connections to the parent, separated by commas.

# A request is the kind of the text (`query` or `document`), a line break, and the text. An answer is one of
# these, and what it says.
VECTOR: Final = b"+"
PROBLEM: Final = b"-"
MIN_IDLE_SECONDS: Final = 1.0
LOW_PRIORITY: Final = 10


def lower_priority() -> None:
    """Lower the priority of this thread only. Only Linux supports this."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)


class ModelProgram:
    """Answers requests, each connection in a thread, until all connections are closed or none was used for
    `idle_seconds` (0: for ever).
    """

    def __init__(self, folder: Path, threads: int, idle_seconds: float) -> None:
        self._folder = folder
        self._threads = threads
        self._idle_seconds = max(idle_seconds, MIN_IDLE_SECONDS) if idle_seconds else threading.TIMEOUT_MAX
        self._loading = threading.Lock()
        self._model: Callable[[str, str], Vector] | None = None
        self._changed = threading.Condition()  # guards everything below
        self._open = self._busy = 0
        self._used_at = time.monotonic()

    def run(self, queries: Sequence[Connection], documents: Sequence[Connection]) -> None:
        """Answer until the end. Documents are encoded with low priority."""
        with self._changed:
            self._open = len(queries) + len(documents)
        for connections, is_urgent in ((queries, True), (documents, False)):
            for connection in connections:
                threading.Thread(target=self._serve, args=(connection, is_urgent), daemon=True).start()
        with self._changed:
            while self._open:
                seconds = self._used_at + self._idle_seconds - time.monotonic()
                if seconds <= 0 and not self._busy:
                    return
                self._changed.wait(max(seconds, 0.1))

    def _serve(self, connection: Connection, is_urgent: bool) -> None:
        if not is_urgent:
            lower_priority()
        try:
            while True:
                request = connection.recv_bytes()
                with self._changed:
                    self._busy += 1
                try:
                    connection.send_bytes(self._answer(request))
                finally:
                    with self._changed:
                        self._busy -= 1
                        self._used_at = time.monotonic()
        except (EOFError, OSError):  # the parent has closed the connection or has ended
            with self._changed:
                self._open -= 1
                self._changed.notify()

    def _answer(self, request: bytes) -> bytes:
        try:
            with self._loading:
                if self._model is None:
                    self._model = load_model(self._folder, self._threads)
            kind, _, text = request.decode().partition("\n")
            return VECTOR + self._model(text, kind).tobytes()
        except Exception as error:  # noqa: BLE001 - the library raises its own exception types
            return PROBLEM + str(error).encode(errors="replace")


def _open_connections(handles: str) -> list[Connection]:
    return [Connection(int(handle)) for handle in handles.split(",")]


if __name__ == "__main__":
    ModelProgram(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run(
        _open_connections(sys.argv[4]), _open_connections(sys.argv[5])
    )
