"""What passages mean, as vectors: worked out in the background, kept on disk, compared in a millisecond.

The encoder reads 128 tokens, fewer than a passage may have: a longer one is read in windows, and counts
by the window that comes nearest to the query. Nothing is encoded before somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import platformdirs
from numpy.typing import NDArray

from fingerpost.narrow.dense.encoder import TextEncoder
from fingerpost.narrow.dense.index import VectorIndex
from fingerpost.narrow.dense.matrix import VectorMatrix
from fingerpost.narrow.dense.vectors import hash_text
from fingerpost.narrow.text import MAX_REQUEST_LENGTH, clean_line

Scores = NDArray[np.float32]

WINDOW_LENGTH: Final = 460  # characters: with a heading, about as much as the encoder reads
MAX_WINDOWS: Final = 6  # of one passage; what comes behind counts by its words
MAX_HEADING_LENGTH: Final = 120
MAX_VECTORS: Final = 256 * 2**20  # bytes on disk: about 340,000 vectors


def get_default_folder() -> Path:
    """Where vectors of passages are kept between runs."""
    return platformdirs.user_cache_path("fingerpost", appauthor=False) / "passages"


def split_windows(heading: str, text: str) -> tuple[str, ...]:
    """A passage as the encoder reads it, in pieces that fit."""
    heading, text = (
        clean_line(heading, 2000)[-MAX_HEADING_LENGTH:],
        clean_line(text, WINDOW_LENGTH * MAX_WINDOWS),
    )
    pieces: list[str] = []
    while text:
        cut = (
            len(text)
            if len(text) <= WINDOW_LENGTH
            else text.rfind(" ", WINDOW_LENGTH // 2, WINDOW_LENGTH) + 1 or WINDOW_LENGTH
        )
        pieces.append(text[:cut].strip())
        text = text[cut:]
    return tuple(f"{heading}: {piece}" if heading else piece for piece in pieces or ("",))


class PassageVectors:
    """The vectors of all passages of one moment. Safe to use from several threads."""

    def __init__(self, encoder: TextEncoder, folder: Path | None) -> None:
        self._encoder = encoder
        complaint = "passages are searched by words alone"
        self._index = VectorIndex(encoder, folder, complaint=complaint, max_bytes=MAX_VECTORS)
        # The vectors of all windows, and where each passage's begin: they change together.
        self._windows: tuple[VectorMatrix, NDArray[np.intp]] = (self._index.matrix, np.zeros(0, np.intp))

    @property
    def ready(self) -> float:
        """The share of texts that can be compared, 0..1."""
        return self._index.matrix.ready

    @property
    def waiting(self) -> int:
        """How many texts have no vector yet."""
        return len(self._index.matrix.missing)

    def wait(self, seconds: float) -> bool:
        """Whether all that can be encoded is, at most so long from now."""
        return self._index.wait(seconds)

    def close(self) -> None:
        self._index.close()

    def prepare(self, passages: Sequence[tuple[str, ...]]) -> None:
        """These are the windows of the passages now; those not known are encoded in the background."""
        keyed = [(hash_text(text), text) for windows in passages for text in windows]
        lengths = np.fromiter((len(windows) for windows in passages), np.intp, len(passages))
        matrix = self._index.replace([key for key, _ in keyed], dict(keyed).__getitem__)
        self._windows = matrix, np.cumsum(lengths) - lengths

    def compare(self, query: str, size: int) -> Scores | None:
        """The cosine of each of `size` passages with a query, NaN where it is not known.

        None where nothing can be said, or where the passages have changed since.
        """
        matrix, starts = self._windows
        if matrix.is_blank or len(starts) != size or not any(map(str.isalnum, query)):
            return None
        try:
            with self._index.pause_background():
                vector = self._encoder.encode(clean_line(query, MAX_REQUEST_LENGTH))
        except Exception as error:  # noqa: BLE001 - without the encoder there are still the words
            self._index.warn_once(error)
            return None
        # A passage counts once all its windows are known: NaN wins over every number.
        return np.maximum.reduceat(matrix.compare(vector), starts)
