"""Vectors kept on disk, so that a restart need not work them out again.

One file per encoder, records of equal size one after the other: the hash of a text,
its vector in half precision, and a checksum. Records are only appended, under a lock
that other processes honour; a record torn by a crash or a full disk is cut off by the
next one to write, and skipped until then. Nothing here is precious: whatever cannot be
read is missing, whatever cannot be written is worked out again next time, and neither
is an error.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import time
import zlib
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.narrow.dense.encoder import DIMENSIONS, Vector

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
