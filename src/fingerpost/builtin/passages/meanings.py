"""What passages mean, as vectors: worked out in the background, kept on disk, compared in a millisecond.

The encoder reads 128 tokens, fewer than a passage may have: a longer one is read in windows, and counts
by the window that comes nearest to the query. Nothing is encoded before somebody asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
import platformdirs
from numpy.typing import NDArray

from fingerpost.errors import FingerpostError
from fingerpost.narrow.dense.backlog import Backlog
from fingerpost.narrow.dense.encoder import Encoder, TextEncoder, Vector
from fingerpost.narrow.dense.matrix import Matrix
from fingerpost.narrow.dense.vectors import VectorCache, rounded, text_key
from fingerpost.narrow.text import LONGEST_REQUEST, clean

log = logging.getLogger(__name__)

Scores = NDArray[np.float32]

WINDOW: Final = 460  # characters: with a heading, about as much as the encoder reads
MOST_WINDOWS: Final = 6  # of one passage; what comes behind counts by its words
LONGEST_HEADING: Final = 120
LARGEST: Final = 256 * 2**20  # bytes on disk: about 340,000 vectors
SAVED_TOGETHER: Final = 64


@cache
def shared_encoder() -> Encoder:
    """One for all passages of this process; it is loaded when the first text comes."""
    return Encoder(threads=1)


def default_folder() -> Path:
    """Where vectors of passages are kept between runs."""
    return platformdirs.user_cache_path("fingerpost", appauthor=False) / "passages"


def windows(heading: str, text: str) -> tuple[str, ...]:
    """A passage as the encoder reads it, in pieces that fit."""
    heading, text = clean(heading, 2000)[-LONGEST_HEADING:], clean(text, WINDOW * MOST_WINDOWS)
    pieces: list[str] = []
    while text:
        cut = len(text) if len(text) <= WINDOW else text.rfind(" ", WINDOW // 2, WINDOW) + 1 or WINDOW
        pieces.append(text[:cut].strip())
        text = text[cut:]
    return tuple(f"{heading}: {piece}" if heading else piece for piece in pieces or ("",))


class Meanings:
    """The vectors of all passages of one moment. Safe to use from several threads."""

    def __init__(self, encoder: TextEncoder, folder: Path | None) -> None:
        self._encoder = encoder
        self._folder = folder
        self._backlog = Backlog(self._encode, self._save)
        self._lock = Lock()  # over everything below
        self._matrix = Matrix(())
        self._starts: NDArray[np.intp] = np.zeros(0, np.intp)
        self._cache: VectorCache | None = None
        self._looked_for: set[bytes] = set()
        self._unsaved: dict[bytes, Vector] = {}
        self._complained = False

    @property
    def ready(self) -> float:
        """The share of texts that can be compared, 0..1."""
        return self._matrix.ready

    @property
    def waiting(self) -> int:
        """How many texts have no vector yet."""
        return len(self._matrix.missing)

    def wait(self, seconds: float) -> bool:
        """Whether all that can be encoded is, at most so long from now."""
        return self._backlog.wait(seconds)

    def close(self) -> None:
        self._backlog.close()
        self._save()

    def prepare(self, passages: Sequence[tuple[str, ...]]) -> None:
        """These are the windows of the passages now; those not known are encoded in the background."""
        texts = {text_key(text): text for windows in passages for text in windows}
        keys = [text_key(text) for windows in passages for text in windows]
        lengths = np.fromiter((len(windows) for windows in passages), np.intp, len(passages))
        with self._lock:
            old, new = self._matrix, Matrix(keys)
            new.fill({key: vector for key in texts if (vector := old.get(key)) is not None})
            new.fill(self._unsaved)
            self._matrix = new
            self._starts = np.cumsum(lengths) - lengths
        if found := self._from_disk(new.missing):
            with self._lock:
                new.fill(found)
        self._backlog.replace({key: texts[key] for key in new.missing})

    def compare(self, query: str, size: int) -> Scores | None:
        """The cosine of each of `size` passages with a query, NaN where it is not known.

        None where nothing can be said, or where the passages have changed since.
        """
        with self._lock:
            matrix, starts = self._matrix, self._starts
        if matrix.is_blank or len(starts) != size or not any(map(str.isalnum, query)):
            return None
        try:
            with self._backlog.paused():
                vector = self._encoder.encode(clean(query, LONGEST_REQUEST))
        except Exception as error:  # noqa: BLE001 - without the encoder there are still the words
            self._complain(error)
            return None
        # A passage counts once all its windows are known: NaN wins over every number.
        return np.maximum.reduceat(matrix.compare(vector), starts)

    def _from_disk(self, keys: Iterable[bytes]) -> dict[bytes, Vector]:
        """Each is looked for once: whatever comes later to the disk comes from us."""
        fresh = [key for key in keys if key not in self._looked_for]
        if not fresh or (cache := self._open_cache()) is None:
            return {}
        self._looked_for.update(fresh)
        return cache.find(fresh)

    def _open_cache(self) -> VectorCache | None:
        if self._cache is None and self._folder is not None:
            try:
                self._cache = VectorCache(self._folder, self._encoder.identity, largest=LARGEST)
            except FingerpostError as error:
                self._complain(error)
        return self._cache

    def _encode(self, key: bytes, text: str) -> None:
        """On a thread of the backlog."""
        try:
            vector = rounded(self._encoder.encode(text))
        except FingerpostError as error:  # no encoder for this text, so none for any
            self._complain(error)
            self._backlog.clear()
            return
        with self._lock:
            self._matrix.fill({key: vector})
            self._unsaved[key] = vector
            is_many = len(self._unsaved) >= SAVED_TOGETHER
        if is_many:
            self._save()

    def _save(self) -> None:
        with self._lock:
            vectors, self._unsaved = self._unsaved, {}
        if self._cache is not None:
            self._cache.add(vectors)

    def _complain(self, error: Exception) -> None:
        """Once: the same will be the matter with every text."""
        with self._lock:
            first, self._complained = not self._complained, True
        if first:
            log.warning("passages are searched by words alone: %s", error)
