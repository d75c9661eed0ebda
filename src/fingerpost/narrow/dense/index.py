"""Vectors of a set of texts: known ones at once, the others in the background, all kept on disk.

Tools and passages are compared by meaning in the same way; what differs is only which texts there are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock
from typing import Final

from fingerpost.errors import FingerpostError
from fingerpost.narrow.dense.backlog import EncodingQueue
from fingerpost.narrow.dense.encoder import TextEncoder, Vector
from fingerpost.narrow.dense.matrix import VectorMatrix
from fingerpost.narrow.dense.vectors import MAX_CACHE_BYTES, VectorCache, round_vector

log = logging.getLogger(__name__)

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
