"""Vectors of texts: the cache on disk, the matrix in memory, and encoding in the background."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.errors import FingerpostError, ModelError
from fingerpost.narrow.dense.encoder import TextEncoder, Vector, get_batch_encoder
from fingerpost.narrow.dense.model import lower_priority
from fingerpost.narrow.remote_models import BODY_STATUSES

WHOLE_REQUEST_WEIGHT: Final = 0.5  # weight of the whole request when its best sentence counts too


class VectorMatrix:
    """The vectors of all tools. Rows are filled while other threads read them. A row is used only after it is
    marked as known.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._positions = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        self._rows = np.fromiter((self._positions[key] for key in keys), np.intp, len(keys))
        self._vectors = np.zeros((len(self._positions), 0), np.float32)  # until the first vector is known
        self._known = np.zeros(len(self._positions), np.bool_)
        self.keys = tuple(keys)

    @property
    def missing(self) -> list[bytes]:
        """The keys of texts without a vector, in tool order."""
        return [key for key, known in zip(self._positions, self._known.tolist(), strict=True) if not known]

    def get_missing(self, rows: Sequence[int]) -> list[bytes]:
        """Return the keys of these tools' texts that have no vector yet."""
        return [self.keys[row] for row in rows if not self._known[self._rows[row]]]

    @property
    def dimensions(self) -> int:
        """The length of the vectors; 0 while none is known."""
        return self._vectors.shape[1]

    @property
    def is_blank(self) -> bool:
        return not self._known.any()

    @property
    def ready(self) -> float:
        """The share of tools that have a vector."""
        return float(self._known[self._rows].mean()) if len(self._rows) else 1.0

    def get(self, key: bytes) -> Vector | None:
        place = self._positions.get(key)
        return self._vectors[place] if place is not None and self._known[place] else None

    def fill(self, vectors: Mapping[bytes, Vector]) -> None:
        """Add these vectors. Texts that are not in the catalog are ignored, and vectors of another length."""
        for key, vector in vectors.items():
            if not self.dimensions:
                self._vectors = np.zeros((len(self._positions), len(vector)), np.float32)
            if (place := self._positions.get(key)) is not None and len(vector) == self.dimensions:
                self._vectors[place] = vector
                self._known[place] = True

    def build_unknown_scores(self) -> NDArray[np.float32]:
        """Return NaN for every tool."""
        return np.full(len(self._rows), np.nan, np.float32)

    def compare(self, whole: Vector, sentences: Sequence[Vector] = ()) -> NDArray[np.float32]:
        """Return the cosine of each tool with the request and its best sentence. It is NaN for tools without
        a vector.
        """
        known = self._known.copy()  # before the product: a row filled meanwhile counts for the next request
        cosines = self._compute_cosines(whole)
        if sentences:
            best = self._compute_cosines(sentences[0])
            for sentence in sentences[1:]:
                np.maximum(best, self._compute_cosines(sentence), out=best)
            cosines = np.asarray(
                WHOLE_REQUEST_WEIGHT * cosines + (1 - WHOLE_REQUEST_WEIGHT) * best, np.float32
            )
        cosines[~known] = np.nan
        return cosines[self._rows]

    def _compute_cosines(self, vector: Vector) -> NDArray[np.float32]:
        # Row by row, not as a matrix product, which would use all threads of the linear algebra
        # library. On a busy machine that is thirty times slower and delays other threads.
        return np.vecdot(self._vectors, vector)


log = logging.getLogger(__name__)

KEY_BYTES: Final = 16
_ENTRY_BYTES: Final = 232  # of an entry on disk without its vector: the key and its share of the index
_MAX_KEYS_PER_QUERY: Final = 500
MAX_CACHE_BYTES: Final = 64 * 2**20  # about 67,000 vectors
LOCK_TIMEOUT_S: Final = 2.0
MAX_UNUSED_S: Final = 30 * 86_400.0  # then the file of another encoder is removed


def hash_text(text: str) -> bytes:
    """Return the cache key of a text."""
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def round_vector(vector: Vector) -> Vector:
    """Round the vector to the precision on disk, so that a restart does not change scores."""
    return vector.astype(np.float16).astype(np.float32)


class VectorCache:
    """The vectors of one encoder in an SQLite file. Several processes can share it. A damaged file is written
    anew.
    """

    def __init__(self, folder: Path, identity: str, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._folder = folder
        self._path = folder / f"{identity[:32]}.vectors"
        self._max_bytes = max_bytes
        self._has_warned = False

    def find(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Return the stored vectors for these keys."""
        found: dict[bytes, Vector] = {}
        if not self._path.is_file():
            return found
        wanted = list(keys)
        with suppress(sqlite3.Error), self._connect() as connection:
            for start in range(0, len(wanted), _MAX_KEYS_PER_QUERY):
                part = wanted[start : start + _MAX_KEYS_PER_QUERY]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, vector, sum FROM vectors WHERE key IN ({marks})"  # noqa: S608 - only marks
                for key, data, checksum in connection.execute(query, part):
                    if zlib.crc32(key + data) == checksum:
                        found[key] = np.frombuffer(data, "<f2").astype(np.float32)
        return found

    def add(self, vectors: Mapping[bytes, Vector]) -> None:
        """Store these vectors. Old vectors are dropped when the file is full."""
        if not vectors:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                self._remove_unused_files()
            try:
                self._insert(vectors)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise
                self._path.unlink()  # damaged, or not a cache
                self._insert(vectors)
        except (OSError, sqlite3.Error) as error:
            if not self._has_warned:
                self._has_warned = True
                log.warning("vectors cannot be kept in %s: %s", self._folder, error)

    def remove(self) -> None:
        """Remove all stored vectors."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _insert(self, vectors: Mapping[bytes, Vector]) -> None:
        halves = ((key, vector.astype("<f2").tobytes()) for key, vector in vectors.items())
        rows = [(key, data, zlib.crc32(key + data)) for key, data in halves]
        max_entries = max(self._max_bytes // (_ENTRY_BYTES + len(rows[0][1])), 1)
        with self._connect() as connection:
            connection.executemany("INSERT OR REPLACE INTO vectors (key, vector, sum) VALUES (?, ?, ?)", rows)
            connection.execute(
                "DELETE FROM vectors WHERE seq <= (SELECT max(seq) FROM vectors) - ?", (max_entries,)
            )

    @contextmanager
    def _connect(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=LOCK_TIMEOUT_S)) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")  # a lost vector is computed again
            connection.execute(
                "CREATE TABLE IF NOT EXISTS vectors"
                " (seq INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB UNIQUE, vector BLOB, sum INTEGER)"
            )
            yield connection

    def _remove_unused_files(self) -> None:
        """Remove files of encoders that were not used for `MAX_UNUSED_S`."""
        before = time.time() - MAX_UNUSED_S
        for path in self._folder.glob("*.vectors"):
            with suppress(OSError):
                if path != self._path and path.stat().st_mtime < before:
                    path.unlink()


MAX_PAUSE_S: Final = 0.25  # a busy router must not stop the index forever
CLOSE_TIMEOUT_S: Final = 5.0


class EncodingQueue:
    """A queue of texts by key. Worker threads call `work` once for each text, with up to `batch` at a time.

    `work` and `on_idle` must not raise. Each thread calls `on_idle` when the queue is empty.
    """

    def __init__(
        self,
        work: Callable[[Mapping[bytes, str]], None],
        on_idle: Callable[[], None],
        *,
        workers: int = 1,
        batch: int = 1,
    ) -> None:
        self._work = work
        self._on_idle = on_idle
        self._workers = workers
        self._batch = batch
        self._changed = threading.Condition()
        self._waiting: dict[bytes, str] = {}
        self._in_progress: set[bytes] = set()
        self._threads: set[threading.Thread] = set()
        self._pauses = 0
        self._closed = False

    def replace(self, waiting: Mapping[bytes, str]) -> None:
        """Replace the waiting texts."""
        with self._changed:
            if self._closed:
                return
            self._waiting = {key: text for key, text in waiting.items() if key not in self._in_progress}
            while self._waiting and len(self._threads) < min(self._workers, len(self._waiting)):
                thread = threading.Thread(target=self._run, name="fingerpost-vectors", daemon=True)
                self._threads.add(thread)
                thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. Return whether the queue is empty and idle."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads and not self._in_progress, timeout)

    def prioritize(self, keys: Sequence[bytes], seconds: float) -> None:
        """Process these texts now, on this thread, for at most `seconds`."""
        deadline = time.monotonic() + seconds
        did_any = False
        while time.monotonic() <= deadline and (items := self._take(keys)):
            self._work(items)
            self._mark_done(items)
            did_any = True
        with self._changed:  # wait for texts that another thread has started
            self._changed.wait_for(
                lambda: self._in_progress.isdisjoint(keys), max(deadline - time.monotonic(), 0.0)
            )
            is_last = not self._threads
        if did_any and is_last:
            self._on_idle()

    @contextmanager
    def pause(self) -> Generator[None]:
        """Pause the worker threads while more urgent work runs."""
        with self._changed:
            self._pauses += 1
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def clear(self) -> None:
        """Remove all waiting texts."""
        with self._changed:
            self._waiting = {}

    def close(self) -> None:
        """Stop. Wait a few seconds at most for texts in progress."""
        with self._changed:
            self._closed = True
            self._waiting = {}
            self._changed.notify_all()
        self.wait(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        first = True
        while items := self._wait_for_next():
            self._work(items)
            self._mark_done(items)
            if first:  # not earlier: threads that the model starts would inherit the priority
                first = False
                lower_priority()

    def _wait_for_next(self) -> Mapping[bytes, str]:
        """Return the next texts, or none when this thread must end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pauses or self._closed, MAX_PAUSE_S)
            if items := self._take():
                return items
        self._on_idle()
        with self._changed:
            if items := self._take():  # added in the meantime
                return items
            self._threads.discard(threading.current_thread())
            self._changed.notify_all()
            return {}

    def _mark_done(self, keys: Iterable[bytes]) -> None:
        with self._changed:
            self._in_progress.difference_update(keys)
            self._changed.notify_all()

    def _take(self, keys: Iterable[bytes] | None = None) -> Mapping[bytes, str]:
        """Take a batch of waiting texts, of these keys if given."""
        with self._changed:
            wanted = self._waiting if keys is None else (key for key in keys if key in self._waiting)
            taken = {key: self._waiting.pop(key) for key in list(islice(wanted, self._batch))}
            self._in_progress.update(taken)
            return taken


SAVE_BATCH: Final = 64

VectorProgress = Callable[[int, int], None]


class VectorIndex:
    """The vectors of the current texts. Thread-safe.

    `folder` stores vectors between runs (None: they are not stored), with at most `max_bytes`. `warning_text`
    is the text of the single warning when the encoder cannot be used. `workers` is the number of threads that
    encode. `progress` is called on one of them with the number of finished texts and the total.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        folder: Path | None,
        *,
        warning_text: str,
        max_bytes: int = MAX_CACHE_BYTES,
        workers: int = 1,
        progress: VectorProgress | None = None,
    ) -> None:
        self._encoder = encoder
        self._folder = folder
        self._warning_text = warning_text
        self._max_bytes = max_bytes
        self._progress = progress
        self._batch_encoder = get_batch_encoder(encoder)
        batch = self._batch_encoder.batch_size if self._batch_encoder is not None else 1
        self.queue = EncodingQueue(self._encode, self._save, workers=workers, batch=batch)
        self._replacing = Lock()  # guards the cache and `_looked_for`
        self._cache: VectorCache | None = None
        self._looked_for: frozenset[bytes] = frozenset()
        self._lock = Lock()  # guards everything below
        self._matrix = VectorMatrix(())
        self._get_text: Callable[[bytes], str] = str
        self._is_stalled = False  # whether texts are missing because the encoder was away
        self._unsaved: dict[bytes, Vector] = {}
        self._has_warned = False
        self._to_do = self._done = 0

    @property
    def matrix(self) -> VectorMatrix:
        """The vectors of the current texts."""
        return self._matrix

    def close(self) -> None:
        """Stop encoding. Existing vectors can still be used."""
        self.queue.close()
        self._save()

    def replace(self, keys: Sequence[bytes], get_text: Callable[[bytes], str]) -> VectorMatrix:
        """Set the texts. Only unknown texts are loaded and encoded, in the background."""
        with self._replacing:
            old = self._matrix
            if tuple(keys) == old.keys and not old.missing:
                return old
            new = VectorMatrix(keys)
            with self._lock:
                new.fill({key: vector for key in set(keys) if (vector := old.get(key)) is not None})
                new.fill(self._unsaved)
                self._matrix = new
            found = self._load_cached(new)
            with self._lock:
                new.fill(found)
                missing = new.missing
                self._to_do, self._done = len(missing), 0
                self._get_text, self._is_stalled = get_text, False
            self.queue.replace({key: get_text(key) for key in missing})
            return new

    @property
    def is_stalled(self) -> bool:
        """Whether texts are missing because the encoder was away."""
        return self._is_stalled

    def resume(self) -> None:
        """Encode what is missing because the encoder was away. Call it when the encoder is back."""
        with self._lock:
            if not self._is_stalled:
                return
            self._is_stalled = False
            waiting = {key: self._get_text(key) for key in self._matrix.missing}
        self.queue.replace(waiting)

    def discard(self) -> None:
        """Forget all vectors, on disk too, and compute them again."""
        with self._replacing, self._lock:
            self._matrix = VectorMatrix(self._matrix.keys)
            self._unsaved, self._is_stalled = {}, True
            if self._cache is not None:
                self._cache.remove()
        self.resume()

    def warn_once(self, error: Exception) -> None:
        """Log the error only once, because every text would cause the same error."""
        with self._lock:
            first, self._has_warned = not self._has_warned, True
        if first:
            log.warning("%s: %s", self._warning_text, error)

    def _load_cached(self, matrix: VectorMatrix) -> dict[bytes, Vector]:
        """Load missing vectors from disk, each key only once: later entries on disk are our own."""
        fresh = [key for key in matrix.missing if key not in self._looked_for]
        if not fresh or (cache := self._open_cache()) is None:
            return {}
        self._looked_for = (self._looked_for & frozenset(matrix.keys)) | frozenset(fresh)
        return cache.find(fresh)

    def _open_cache(self) -> VectorCache | None:
        if self._cache is None and self._folder is not None:
            try:
                self._cache = VectorCache(self._folder, self._encoder.identity, max_bytes=self._max_bytes)
            except FingerpostError as error:
                self.warn_once(error)
        return self._cache

    def _encode(self, items: Mapping[bytes, str]) -> None:
        """Encode texts, on a thread of the queue."""
        try:
            vectors = self._encode_texts(list(items.values()))
        except FingerpostError as error:
            if isinstance(error, ModelError) and error.status in BODY_STATUSES:  # one of the texts is refused
                if len(items) == 1:
                    self.warn_once(error)
                    return
                for key, text in items.items():
                    self._encode({key: text})
                return
            self.warn_once(error)  # the encoder is not usable for any text
            self.queue.clear()
            with self._lock:
                self._is_stalled = isinstance(error, ModelError)
            return
        except Exception as error:  # noqa: BLE001 - one text that cannot be encoded must not end the others
            self.warn_once(error)
            return
        found = dict(zip(items, map(round_vector, vectors), strict=True))
        with self._lock:
            self._matrix.fill(found)
            self._unsaved |= found
            self._done += len(found)
            done, to_do, is_many = self._done, self._to_do, len(self._unsaved) >= SAVE_BATCH
        if is_many:
            self._save()
        if self._progress is not None:
            self._progress(min(done, to_do), to_do)

    def _encode_texts(self, texts: Sequence[str]) -> Sequence[Vector]:
        if self._batch_encoder is not None:
            return self._batch_encoder.encode_texts(texts)
        return [self._encoder.encode(text) for text in texts]

    def _save(self) -> None:
        with self._lock:
            vectors, self._unsaved = self._unsaved, {}
        if self._cache is not None:
            self._cache.add(vectors)
