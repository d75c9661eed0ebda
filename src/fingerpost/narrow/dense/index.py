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
from fingerpost.narrow.dense.backlog import Backlog
from fingerpost.narrow.dense.encoder import TextEncoder, Vector
from fingerpost.narrow.dense.matrix import Matrix
from fingerpost.narrow.dense.vectors import LARGEST, VectorCache, rounded

log = logging.getLogger(__name__)

SAVED_TOGETHER: Final = 64

Progress = Callable[[int, int], None]


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
        largest: int = LARGEST,
        workers: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self._encoder = encoder
        self._folder = folder
        self._complaint = complaint
        self._largest = largest
        self._progress = progress
        self._backlog = Backlog(self._encode, self._save, workers=workers)
        self._replacing = Lock()  # over the cache and what was looked for in it
        self._cache: VectorCache | None = None
        self._looked_for: frozenset[bytes] = frozenset()
        self._lock = Lock()  # over everything below
        self._matrix = Matrix(())
        self._unsaved: dict[bytes, Vector] = {}
        self._complained = False
        self._to_do = self._done = 0

    @property
    def matrix(self) -> Matrix:
        """The vectors of the texts there are now."""
        return self._matrix

    def wait(self, seconds: float) -> bool:
        """Whether all that can be encoded is, at most so long from now."""
        return self._backlog.wait(seconds)

    def hasten(self, keys: Sequence[bytes], seconds: float) -> None:
        """Somebody waits for these: they come before the others, as far as `seconds` reach."""
        self._backlog.hasten(keys, seconds)

    def paused(self) -> AbstractContextManager[None]:
        """While somebody waits for an answer, the background does not take the processor."""
        return self._backlog.paused()

    def close(self) -> None:
        """Stop encoding. What is known can still be asked for."""
        self._backlog.close()
        self._save()

    def replace(self, keys: Sequence[bytes], text_of: Callable[[bytes], str]) -> Matrix:
        """These are the texts now; only those not known are read and encoded, in the background."""
        with self._replacing:
            old = self._matrix
            if tuple(keys) == old.keys and not old.missing:
                return old
            new = Matrix(keys)
            with self._lock:
                new.fill({key: vector for key in set(keys) if (vector := old.get(key)) is not None})
                new.fill(self._unsaved)
                self._matrix = new
            found = self._from_disk(new)
            with self._lock:
                new.fill(found)
                missing = new.missing
                self._to_do, self._done = len(missing), 0
            self._backlog.replace({key: text_of(key) for key in missing})
            return new

    def complain(self, error: Exception) -> None:
        """Once: the same will be the matter with every text."""
        with self._lock:
            first, self._complained = not self._complained, True
        if first:
            log.warning("%s: %s", self._complaint, error)

    def _from_disk(self, matrix: Matrix) -> dict[bytes, Vector]:
        """Each is looked for once while it is there: whatever comes later to the disk comes from us."""
        fresh = [key for key in matrix.missing if key not in self._looked_for]
        if not fresh or (cache := self._open_cache()) is None:
            return {}
        self._looked_for = (self._looked_for & frozenset(matrix.keys)) | frozenset(fresh)
        return cache.find(fresh)

    def _open_cache(self) -> VectorCache | None:
        if self._cache is None and self._folder is not None:
            try:
                self._cache = VectorCache(self._folder, self._encoder.identity, largest=self._largest)
            except FingerpostError as error:
                self.complain(error)
        return self._cache

    def _encode(self, key: bytes, text: str) -> None:
        """On a thread of the backlog."""
        try:
            vector = rounded(self._encoder.encode(text))
        except FingerpostError as error:  # no encoder for this text, so none for any
            self.complain(error)
            self._backlog.clear()
            return
        except Exception as error:  # noqa: BLE001 - one text that cannot be encoded must not end the others
            self.complain(error)
            return
        with self._lock:
            self._matrix.fill({key: vector})
            self._unsaved[key] = vector
            self._done += 1
            done, to_do, is_many = self._done, self._to_do, len(self._unsaved) >= SAVED_TOGETHER
        if is_many:
            self._save()
        if self._progress is not None:
            self._progress(min(done, to_do), to_do)

    def _save(self) -> None:
        with self._lock:
            vectors, self._unsaved = self._unsaved, {}
        if self._cache is not None:
            self._cache.add(vectors)
