"""Text encoders from ONNX files, in this process or in one of their own."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import LifoQueue
from threading import Lock
from typing import Final, Protocol, cast

import numpy as np

from fingerpost.errors import ConfigError, FingerpostError, ModelUnavailable
from fingerpost.frozen import frozen
from fingerpost.narrow.dense.model import (
    TOKENIZER_FILE_NAME,
    VECTOR,
    WEIGHTS_FILE_NAME,
    Vector,
    find_weights,
    load_model,
)
from fingerpost.narrow.scorer import clean_line

DIMENSIONS: Final = 384
MAX_CHARACTERS: Final = 2000  # more than the token limit


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
    `1_Pooling/config.json` and `config_sentence_transformers.json` are used where they exist. The model is
    loaded with the first text, which takes about 0.2 seconds, in this process or in one of its own:
    `model_processes` decides.
    """

    batch_size = 1

    def __init__(self, folder: Path | None = None, *, threads: int = 1) -> None:
        self._folder = folder or Path(__file__).parent
        self._threads = threads
        self._lock = Lock()
        self._model: Callable[[str, str], Vector] | None = None
        self._identity: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether the model files exist."""
        return find_weights(self._folder) is not None and (self._folder / TOKENIZER_FILE_NAME).is_file()

    @property
    def identity(self) -> str:
        """A hash of the weights and the vocabulary."""
        if self._identity is None:
            digest = hashlib.sha256()
            try:
                weights = find_weights(self._folder) or self._folder / WEIGHTS_FILE_NAME
                for path in (weights, self._folder / TOKENIZER_FILE_NAME):
                    with path.open("rb") as file:
                        digest.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise _build_encoder_error(self._folder, error) from error
            self._identity = digest.hexdigest()
        return self._identity

    def encode(self, text: str) -> Vector:
        """Return a request as a unit vector."""
        return self._encode(text, "query")

    def encode_texts(self, texts: Sequence[str]) -> list[Vector]:
        """Return texts of tools as unit vectors."""
        return [self._encode(text, "document") for text in texts]

    def _encode(self, text: str, kind: str) -> Vector:
        cleaned = clean_line(text, MAX_CHARACTERS)
        try:
            if (process := model_processes.get(self._folder, self._threads)) is not None:
                return process.encode(cleaned, kind)
            with self._lock:
                if self._model is None:
                    self._model = load_model(self._folder, self._threads)
            return self._model(cleaned, kind)
        except FingerpostError:
            raise
        except Exception as error:  # the library raises its own exception types
            raise _build_encoder_error(self._folder, error) from error


@cache
def get_shared_encoder() -> OnnxEncoder:
    """Return the encoder of the package, shared by the whole process."""
    return OnnxEncoder(threads=1)


def _build_encoder_error(folder: Path, error: Exception | str) -> ConfigError:
    return ConfigError(
        f"the routing encoder in {folder} cannot be used: {error}",
        hint="install Fingerpost again, or set flags.dense_scores to false to route by words alone",
    )


QUERY_CONNECTIONS: Final = 4  # requests that are encoded at once
ANSWER_TIMEOUT_S: Final = 30.0  # the first answer includes loading the model on a busy machine
RETRY_INTERVAL_S: Final = 30.0  # after a process has ended twice in a row, or hangs
_PROGRAM: Final = Path(__file__).with_name("model.py")
_PASSED_ENVIRONMENT: Final = ("PATH", "LD_LIBRARY_PATH")  # nothing secret


@frozen(eq=False)
class _RunningModel:
    """A process with its unused connections, by the kind of text that is sent there."""

    process: subprocess.Popen[bytes]
    connections: Mapping[str, LifoQueue[Connection]]

    def ask(self, text: str, kind: str) -> bytes:
        """Return the answer for a text. Raises `EOFError` if the process has ended, `TimeoutError` if it
        hangs.
        """
        unused = self.connections[kind]
        connection = unused.get()
        try:
            connection.send_bytes(f"{kind}\n{text}".encode())
            if not connection.poll(ANSWER_TIMEOUT_S):
                message = f"no answer for {ANSWER_TIMEOUT_S:g} s"
                raise TimeoutError(message)
            return connection.recv_bytes()
        except ConnectionError as error:
            raise EOFError from error
        finally:
            unused.put(connection)


class ModelProcess:
    """A model in a process of its own, so that its memory is free when it is not used. Thread-safe.

    The process is started with the first text. It ends after `idle_seconds` without one (0: never) and with
    this process, however that ends. If it ends while it is used, it is started once more. `on_end` is called
    in a thread whenever it has ended.
    """

    def __init__(
        self,
        folder: Path,
        threads: int,
        idle_seconds: float,
        *,
        on_end: Callable[[], object] = lambda: None,
    ) -> None:
        self._folder = folder
        self._threads = threads
        self._idle_seconds = idle_seconds
        self._on_end = on_end
        self._lock = Lock()  # guards everything below
        self._running: _RunningModel | None = None
        self._is_closed = False
        self._away_until = 0.0

    @property
    def is_running(self) -> bool:
        """Whether there is a process now."""
        running = self._running
        return running is not None and running.process.poll() is None

    def encode(self, text: str, kind: str) -> Vector:
        """Return the vector of a text. Raises `ModelUnavailable` if the process cannot be kept running."""
        try:
            answer = self._ask(text, kind)
        except TimeoutError as error:
            raise self._stay_away(error) from error
        except (EOFError, OSError):  # it was idle for too long, or was killed
            try:
                answer = self._ask(text, kind)
            except (EOFError, OSError) as error:
                raise self._stay_away(error) from error
        if not answer.startswith(VECTOR):
            raise _build_encoder_error(self._folder, answer[1:].decode())
        return np.frombuffer(answer, np.float32, offset=1).copy()

    def close(self) -> None:
        """End the process and start no other."""
        with self._lock:
            self._is_closed = True
            running, self._running = self._running, None
        if running is not None:
            _end(running)

    def _ask(self, text: str, kind: str) -> bytes:
        with self._lock:
            if self._is_closed or time.monotonic() < self._away_until:
                raise self._build_error("closed" if self._is_closed else "it failed a short time ago")
            running = self._running = self._running or self._start()
        try:
            return running.ask(text, kind)
        except (EOFError, OSError):
            with self._lock:
                if self._running is running:
                    self._running = None
            _end(running)
            raise

    def _start(self) -> _RunningModel:
        counts = {"query": QUERY_CONNECTIONS, "document": self._threads}
        pairs = {kind: [Pipe() for _ in range(count)] for kind, count in counts.items()}
        handles = {kind: [theirs.fileno() for _, theirs in made] for kind, made in pairs.items()}
        environment = {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ}
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", str(_PROGRAM), str(self._folder.resolve())),
                *(str(self._threads), str(self._idle_seconds)),
                *(",".join(map(str, handles[kind])) for kind in counts),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[handle for made in handles.values() for handle in made],
            cwd="/",
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # keys such as Ctrl+C are for this process, which ends the other
        )
        threading.Thread(
            target=self._wait_for_end, args=(process,), name="fingerpost-encoder", daemon=True
        ).start()
        unused: dict[str, LifoQueue[Connection]] = {}
        for kind, made in pairs.items():
            unused[kind] = LifoQueue()
            for ours, theirs in made:
                theirs.close()
                unused[kind].put(ours)
        return _RunningModel(process=process, connections=unused)

    def _wait_for_end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()  # or it would stay in the list of processes
        self._on_end()

    def _stay_away(self, error: Exception) -> ModelUnavailable:
        with self._lock:
            self._away_until = time.monotonic() + RETRY_INTERVAL_S
        return self._build_error("it ended twice" if isinstance(error, EOFError) else str(error))

    def _build_error(self, why: str) -> ModelUnavailable:
        message = f"the process of the routing encoder is not available: {why}"
        return ModelUnavailable(message, model=self._folder.name)


def _end(running: _RunningModel) -> None:
    running.process.kill()
    running.process.wait()


class ModelProcesses:
    """The model processes of this process, one for each folder. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()  # guards everything below
        self._users = 0
        self._idle_seconds = 0.0
        self._by_folder: dict[Path, ModelProcess] = {}

    def get(self, folder: Path, threads: int) -> ModelProcess | None:
        """Return the process for this folder, or None if texts are encoded in this process."""
        with self._lock:
            if self._users and folder not in self._by_folder:
                self._by_folder[folder] = ModelProcess(folder, threads, self._idle_seconds)
            return self._by_folder.get(folder)

    @contextmanager
    def use(self, idle_seconds: float) -> Generator[None]:
        """Within the block, encode all texts in processes that end after `idle_seconds` without a text (0:
        with the block). For services: they run for long and are often idle.
        """
        with self._lock:
            self._users += 1
            self._idle_seconds = idle_seconds
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                unused = {} if self._users else self._by_folder
                self._by_folder = self._by_folder if self._users else {}
            for process in unused.values():
                process.close()


model_processes: Final = ModelProcesses()
