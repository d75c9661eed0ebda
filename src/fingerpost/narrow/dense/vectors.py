"""Vectors of texts: the cache on disk, the matrix in memory, and encoding in the background."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.errors import FingerpostError
from fingerpost.narrow.dense.encoder import DIMENSIONS, TextEncoder, Vector

WHOLE_REQUEST_WEIGHT: Final = 0.5  # how much the whole request counts where its best sentence counts too


class VectorMatrix:
    """Rows are filled in while they are being read: a row counts from the moment `known` says so."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._place = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        self._rows = np.fromiter((self._place[key] for key in keys), np.intp, len(keys))
        self._vectors = np.zeros((len(self._place), DIMENSIONS), np.float32)
        self._known = np.zeros(len(self._place), np.bool_)
        self.keys = tuple(keys)

    @property
    def missing(self) -> list[bytes]:
        """The texts without a vector, in the order of the tools."""
        return [key for key, known in zip(self._place, self._known.tolist(), strict=True) if not known]

    def get_missing(self, rows: Sequence[int]) -> list[bytes]:
        """The texts of these tools that have no vector yet."""
        return [self.keys[row] for row in rows if not self._known[self._rows[row]]]

    @property
    def is_blank(self) -> bool:
        return not self._known.any()

    @property
    def ready(self) -> float:
        """The share of tools that have their vector."""
        return float(self._known[self._rows].mean()) if len(self._rows) else 1.0

    def get(self, key: bytes) -> Vector | None:
        place = self._place.get(key)
        return self._vectors[place] if place is not None and self._known[place] else None

    def fill(self, vectors: Mapping[bytes, Vector]) -> None:
        """These are known now; texts that are not in the catalog are passed over."""
        for key, vector in vectors.items():
            if (place := self._place.get(key)) is not None:
                self._vectors[place] = vector
                self._known[place] = True

    def build_unknown_scores(self) -> NDArray[np.float32]:
        """The scores when nothing can be said."""
        return np.full(len(self._rows), np.nan, np.float32)

    def compare(self, whole: Vector, sentences: Sequence[Vector] = ()) -> NDArray[np.float32]:
        """The cosine of each tool with a request and its best sentence; NaN where the tool is not known."""
        known = self._known.copy()  # before the product: a row filled meanwhile waits for the next request
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
        # Row by row, not as a matrix product: that would wake all the threads of the linear algebra
        # library, which on a busy machine costs thirty times as much, and other threads their turn.
        return np.vecdot(self._vectors, vector)


log = logging.getLogger(__name__)

KEY_BYTES: Final = 16
_FILE_HEADER: Final = b"fingerpost vectors 1\n".ljust(32, b" ")
_VECTOR_RECORD: Final = np.dtype([("key", f"V{KEY_BYTES}"), ("vector", "<f2", (DIMENSIONS,)), ("sum", "<u4")])
MAX_CACHE_BYTES: Final = 64 * 2**20  # bytes: about 85,000 vectors
LOCK_TIMEOUT_S: Final = 2.0
MAX_UNUSED_S: Final = 30 * 86_400.0  # after which another encoder's file is swept away


def hash_text(text: str) -> bytes:
    """The name of a text in the cache."""
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def round_vector(vector: Vector) -> Vector:
    """The vector as it comes back from disk, so that a restart changes no score."""
    return vector.astype(np.float16).astype(np.float32)


class VectorCache:
    """The vectors of one encoder in one folder. Any number of processes may share it."""

    def __init__(self, folder: Path, identity: str, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._folder = folder
        self._path = folder / f"{identity[:32]}.vectors"
        self._largest = max_bytes
        self._complained = False

    def find(self, keys: Collection[bytes]) -> dict[bytes, Vector]:
        """Those of the vectors that are there, by key."""
        if not keys:
            return {}
        wanted = set(keys)
        found: dict[bytes, Vector] = {}
        records = self._read_records()
        for place, key in enumerate(records["key"].tolist()):
            if key in wanted and key not in found and _is_record_valid(records[place]):
                found[key] = records[place]["vector"].astype(np.float32)
        return found

    def add(self, vectors: Mapping[bytes, Vector]) -> None:
        """Keep these too, as far as there is room."""
        if not vectors:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._lock_file() as held:
                if held:
                    self._append(_build_records(vectors))
        except OSError as error:
            if not self._complained:
                self._complained = True
                log.warning("vectors cannot be kept in %s: %s", self._folder, error)

    def _read_records(self) -> NDArray[np.void]:
        """All records, the good and the bad; a torn one at the end is left out."""
        try:
            with self._path.open("rb") as file:
                if file.read(len(_FILE_HEADER)) != _FILE_HEADER:
                    return np.zeros(0, _VECTOR_RECORD)
                content = file.read(2 * self._largest)
        except OSError:
            return np.zeros(0, _VECTOR_RECORD)
        return np.frombuffer(content, _VECTOR_RECORD, len(content) // _VECTOR_RECORD.itemsize)

    def _append(self, records: NDArray[np.void]) -> None:
        whole = self._find_valid_size()
        if whole + records.nbytes > self._largest:
            self._make_room(records)
            return
        with self._path.open("ab" if whole else "wb") as file:
            file.truncate(whole)
            begin = b"" if whole else _FILE_HEADER
            try:
                file.write(begin + records.tobytes())
                file.flush()
            except OSError:
                with suppress(OSError):
                    os.truncate(self._path, whole)
                raise
        if not whole:
            self._remove_unused_files()

    def _find_valid_size(self) -> int:
        """Up to where the file is good; 0 when it is not one of ours, or not there."""
        try:
            with self._path.open("rb") as file:
                if file.read(len(_FILE_HEADER)) != _FILE_HEADER:
                    return 0
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return 0
        return size - (size - len(_FILE_HEADER)) % _VECTOR_RECORD.itemsize

    def _make_room(self, records: NDArray[np.void]) -> None:
        """The newest half of the room stays; readers see the old file or the new one, never half of one."""
        most = max(self._largest // 2 // _VECTOR_RECORD.itemsize, 1)
        kept = np.concatenate([self._read_records(), records])[-most:]
        fresh = self._path.with_suffix(f".{os.getpid()}.new")
        try:
            fresh.write_bytes(_FILE_HEADER + kept.tobytes())
            fresh.replace(self._path)
        finally:
            fresh.unlink(missing_ok=True)

    def _remove_unused_files(self) -> None:
        """Files of encoders nobody has used for long."""
        before = time.time() - MAX_UNUSED_S
        for path in self._folder.glob("*.vectors"):
            with suppress(OSError):
                if path != self._path and path.stat().st_mtime < before:
                    path.unlink()

    @contextmanager
    def _lock_file(self) -> Generator[bool]:
        """Alone with the file, or False when that could not be had in time."""
        with (self._folder / "lock").open("w") as file:
            deadline = time.monotonic() + LOCK_TIMEOUT_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        yield False
                        return
                    time.sleep(0.01)
                else:
                    yield True  # closing the file lets go of the lock
                    return


def _build_records(vectors: Mapping[bytes, Vector]) -> NDArray[np.void]:
    records = np.zeros(len(vectors), _VECTOR_RECORD)
    for place, (key, vector) in enumerate(vectors.items()):
        half = vector.astype("<f2")
        records[place] = (key, half, zlib.crc32(key + half.tobytes()))
    return records


def _is_record_valid(record: np.void) -> bool:
    key: bytes = record["key"].tobytes()
    vector: NDArray[np.float16] = record["vector"]
    return bool(zlib.crc32(key + vector.tobytes()) == int(record["sum"]))


MAX_PAUSE_S: Final = 0.25  # seconds: a busy router must not stop the index for ever
CLOSE_TIMEOUT_S: Final = 5.0
LOW_PRIORITY: Final = 10


class EncodingQueue:
    """Works off texts, each once, by calling `work(key, text)` on threads of its own.

    Neither `work` nor `rest` may raise; `rest` is called by each thread that finds nothing left to do.
    """

    def __init__(
        self, work: Callable[[bytes, str], None], rest: Callable[[], None], *, workers: int = 1
    ) -> None:
        self._work = work
        self._rest = rest
        self._workers = workers
        self._changed = threading.Condition()
        self._waiting: dict[bytes, str] = {}
        self._at_work: set[bytes] = set()
        self._threads: set[threading.Thread] = set()
        self._pauses = 0
        self._closed = False

    def replace(self, waiting: Mapping[bytes, str]) -> None:
        """These are wanted now; what waited before and is not among them no longer is."""
        with self._changed:
            if self._closed:
                return
            self._waiting = {key: text for key, text in waiting.items() if key not in self._at_work}
            while self._waiting and len(self._threads) < min(self._workers, len(self._waiting)):
                thread = threading.Thread(target=self._run, name="fingerpost-vectors", daemon=True)
                self._threads.add(thread)
                thread.start()

    def wait(self, timeout: float) -> bool:
        """Whether nothing is left, at most `timeout` seconds from now."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._threads and not self._at_work, timeout)

    def prioritize(self, keys: Sequence[bytes], seconds: float) -> None:
        """These are wanted now: they are worked off on this thread, as far as `seconds` reach."""
        deadline = time.monotonic() + seconds
        did_any = False
        for key in keys:
            with self._changed:
                if time.monotonic() > deadline:
                    break
                if (text := self._waiting.pop(key, None)) is None:
                    continue
                self._at_work.add(key)
            self._work(key, text)
            self._mark_done(key)
            did_any = True
        with self._changed:  # what another thread had begun
            self._changed.wait_for(
                lambda: self._at_work.isdisjoint(keys), max(deadline - time.monotonic(), 0.0)
            )
            is_last = not self._threads
        if did_any and is_last:
            self._rest()

    @contextmanager
    def pause(self) -> Generator[None]:
        """While something more urgent runs."""
        with self._changed:
            self._pauses += 1
        try:
            yield
        finally:
            with self._changed:
                self._pauses -= 1
                self._changed.notify_all()

    def clear(self) -> None:
        """Nothing is wanted any more."""
        with self._changed:
            self._waiting = {}

    def close(self) -> None:
        """No more work; what is being done is finished, at most a few seconds."""
        with self._changed:
            self._closed = True
            self._waiting = {}
            self._changed.notify_all()
        self.wait(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        first = True
        while (item := self._wait_for_next()) is not None:
            key, text = item
            self._work(key, text)
            self._mark_done(key)
            if first:  # now, because threads the model starts would inherit the priority
                first = False
                _lower_priority()

    def _wait_for_next(self) -> tuple[bytes, str] | None:
        """The next text, or None when this thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._pauses or self._closed, MAX_PAUSE_S)
            if item := self._take():
                return item
        self._rest()
        with self._changed:
            if item := self._take():  # something came meanwhile
                return item
            self._threads.discard(threading.current_thread())
            self._changed.notify_all()
            return None

    def _mark_done(self, key: bytes) -> None:
        with self._changed:
            self._at_work.discard(key)
            self._changed.notify_all()

    def _take(self) -> tuple[bytes, str] | None:
        for key, text in self._waiting.items():
            del self._waiting[key]
            self._at_work.add(key)
            return key, text
        return None


def _lower_priority() -> None:
    """Of this thread alone, which only Linux can do."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW_PRIORITY)


SAVE_BATCH: Final = 64

VectorProgress = Callable[[int, int], None]


class VectorIndex:
    """The vectors of all texts of one moment. Safe to use from several threads at once.

    `folder` is where vectors are kept between runs (None: nowhere), `largest` how many bytes it may
    take; `complaint` opens the one warning there is when the encoder cannot be used; `workers` is how many
    threads encode; `progress` is told how many of how many texts are done, on one of those.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        folder: Path | None,
        *,
        complaint: str,
        max_bytes: int = MAX_CACHE_BYTES,
        workers: int = 1,
        progress: VectorProgress | None = None,
    ) -> None:
        self._encoder = encoder
        self._folder = folder
        self._complaint = complaint
        self._largest = max_bytes
        self._progress = progress
        self._backlog = EncodingQueue(self._encode, self._save, workers=workers)
        self._replacing = Lock()  # over the cache and what was looked for in it
        self._cache: VectorCache | None = None
        self._looked_for: frozenset[bytes] = frozenset()
        self._lock = Lock()  # over everything below
        self._matrix = VectorMatrix(())
        self._unsaved: dict[bytes, Vector] = {}
        self._complained = False
        self._to_do = self._done = 0

    @property
    def matrix(self) -> VectorMatrix:
        """The vectors of the texts there are now."""
        return self._matrix

    def wait(self, seconds: float) -> bool:
        """Whether all that can be encoded is, at most so long from now."""
        return self._backlog.wait(seconds)

    def prioritize(self, keys: Sequence[bytes], seconds: float) -> None:
        """Somebody waits for these: they come before the others, as far as `seconds` reach."""
        self._backlog.prioritize(keys, seconds)

    def pause_background(self) -> AbstractContextManager[None]:
        """While somebody waits for an answer, the background does not take the processor."""
        return self._backlog.pause()

    def close(self) -> None:
        """Stop encoding. What is known can still be asked for."""
        self._backlog.close()
        self._save()

    def replace(self, keys: Sequence[bytes], text_of: Callable[[bytes], str]) -> VectorMatrix:
        """These are the texts now; only those not known are read and encoded, in the background."""
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
            self._backlog.replace({key: text_of(key) for key in missing})
            return new

    def warn_once(self, error: Exception) -> None:
        """Once: the same will be the matter with every text."""
        with self._lock:
            first, self._complained = not self._complained, True
        if first:
            log.warning("%s: %s", self._complaint, error)

    def _load_cached(self, matrix: VectorMatrix) -> dict[bytes, Vector]:
        """Each is looked for once while it is there: whatever comes later to the disk comes from us."""
        fresh = [key for key in matrix.missing if key not in self._looked_for]
        if not fresh or (cache := self._open_cache()) is None:
            return {}
        self._looked_for = (self._looked_for & frozenset(matrix.keys)) | frozenset(fresh)
        return cache.find(fresh)

    def _open_cache(self) -> VectorCache | None:
        if self._cache is None and self._folder is not None:
            try:
                self._cache = VectorCache(self._folder, self._encoder.identity, max_bytes=self._largest)
            except FingerpostError as error:
                self.warn_once(error)
        return self._cache

    def _encode(self, key: bytes, text: str) -> None:
        """On a thread of the backlog."""
        try:
            vector = round_vector(self._encoder.encode(text))
        except FingerpostError as error:  # no encoder for this text, so none for any
            self.warn_once(error)
            self._backlog.clear()
            return
        except Exception as error:  # noqa: BLE001 - one text that cannot be encoded must not end the others
            self.warn_once(error)
            return
        with self._lock:
            self._matrix.fill({key: vector})
            self._unsaved[key] = vector
            self._done += 1
            done, to_do, is_many = self._done, self._to_do, len(self._unsaved) >= SAVE_BATCH
        if is_many:
            self._save()
        if self._progress is not None:
            self._progress(min(done, to_do), to_do)

    def _save(self) -> None:
        with self._lock:
            vectors, self._unsaved = self._unsaved, {}
        if self._cache is not None:
            self._cache.add(vectors)
