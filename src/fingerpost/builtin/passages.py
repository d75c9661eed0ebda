"""Search over passages of text, by words and by meaning: for notes, memories and files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
import platformdirs
from numpy.typing import NDArray

from fingerpost.frozen import frozen
from fingerpost.narrow.dense.encoder import TextEncoder, get_shared_encoder
from fingerpost.narrow.dense.vectors import VectorIndex, VectorMatrix, hash_text
from fingerpost.narrow.fusion import fuse_scores
from fingerpost.narrow.lexical_scorer import SpellingIndex, TermBag, TermVocabulary, build_term_index
from fingerpost.narrow.lexical_terms import iterate_terms
from fingerpost.narrow.scorer import MAX_REQUEST_LENGTH, clean_line
from fingerpost.narrow.signals.reader import detect_language
from fingerpost.settings import Settings

Scores = NDArray[np.float32]

WINDOW_LENGTH: Final = 460  # characters; with a heading, about the encoder's limit
MAX_WINDOWS: Final = 6  # per passage; the rest is found by words only
MAX_HEADING_LENGTH: Final = 120
MAX_VECTOR_BYTES: Final = 256 * 2**20  # bytes on disk: about 340,000 vectors


def get_vector_folder(settings: Settings) -> Path:
    """Return the folder for vectors of passages, beside those of tools if the settings define one."""
    given = settings.narrow.vectors
    if given is None:
        return platformdirs.user_cache_path("fingerpost", appauthor=False) / "passages"
    return Path(given).expanduser() / "passages"


def split_windows(heading: str, text: str) -> tuple[str, ...]:
    """Split a passage into windows that fit the encoder."""
    heading = clean_line(heading, 2000)[-MAX_HEADING_LENGTH:]
    text = clean_line(text, WINDOW_LENGTH * MAX_WINDOWS)
    pieces: list[str] = []
    while text:
        cut = len(text)
        if cut > WINDOW_LENGTH:
            cut = text.rfind(" ", WINDOW_LENGTH // 2, WINDOW_LENGTH) + 1 or WINDOW_LENGTH
        pieces.append(text[:cut].strip())
        text = text[cut:]
    return tuple(f"{heading}: {piece}" if heading else piece for piece in pieces or ("",))


class PassageVectors:
    """The vectors of all current passages. Thread-safe."""

    def __init__(self, encoder: TextEncoder, folder: Path | None) -> None:
        self._encoder = encoder
        complaint = "passages are searched by words alone"
        self._index = VectorIndex(encoder, folder, warning_text=complaint, max_bytes=MAX_VECTOR_BYTES)
        # The vectors of all windows, and the first window of each passage. Always replaced together.
        self._windows: tuple[VectorMatrix, NDArray[np.intp]] = (self._index.matrix, np.zeros(0, np.intp))

    @property
    def ready(self) -> float:
        """The share of texts that have a vector, from 0 to 1."""
        return self._index.matrix.ready

    @property
    def waiting(self) -> int:
        """The number of texts without a vector."""
        return len(self._index.matrix.missing)

    def wait(self, seconds: float) -> bool:
        """Wait until everything is encoded. Return whether this happened within `seconds`."""
        return self._index.queue.wait(seconds)

    def close(self) -> None:
        self._index.close()

    def prepare(self, passages: Sequence[tuple[str, ...]]) -> None:
        """Set the windows of the current passages. Unknown ones are encoded in the background."""
        keyed = [(hash_text(text), text) for windows in passages for text in windows]
        lengths = np.fromiter((len(windows) for windows in passages), np.intp, len(passages))
        matrix = self._index.replace([key for key, _ in keyed], dict(keyed).__getitem__)
        self._windows = matrix, np.cumsum(lengths) - lengths

    def compare(self, query: str, size: int) -> Scores | None:
        """Return the cosine similarity of each of `size` passages with a query, NaN if unknown.

        Return None if nothing can be compared, or if the passages have changed since.
        """
        matrix, starts = self._windows
        if matrix.is_blank or len(starts) != size or not any(map(str.isalnum, query)):
            return None
        try:
            with self._index.queue.pause():
                vector = self._encoder.encode(clean_line(query, MAX_REQUEST_LENGTH))
        except Exception as error:  # noqa: BLE001 - without the encoder, search by words still works
            self._index.warn_once(error)
            return None
        # A passage counts when all its windows have vectors: NaN is the maximum of any number and NaN.
        return np.maximum.reduceat(matrix.compare(vector), starts)


@frozen
class TextPassage:
    """A searchable piece of text."""

    source: str  # a path, or the id of a memory
    text: str
    heading: str = ""  # heading above the text; searched like the text
    first_line: int = 0  # from 1, if the source has lines
    last_line: int = 0
    page: int = 0  # from 1, if the source has pages instead


@frozen
class PassageHit:
    """A found passage. Scores are comparable within one search."""

    passage: TextPassage
    score: float
    words: float  # score by shared words
    meaning: float | None = None  # score by meaning; None: not known yet


HEADING_WEIGHT: Final = 1.5  # weight of a word in a heading relative to the text
# The weight of meaning, measured with `python -m benchmarks knowledge`. From 0.55 on it hardly matters
# there, and names are found by words. The encoder supports English.
ENGLISH_MEANING_SHARE: Final = 0.6
OTHER_MEANING_SHARE: Final = 0.2
# Minimum similarity of a passage that shares no word with the query.
MIN_MEANING_SCORE: Final = 0.3
MAX_DEAD_TERMS: Final = 50_000  # numbers of unused terms before the vocabulary is rebuilt


@frozen(kw_only=False)
class _PassageRow:
    """A passage prepared for comparison."""

    passage: TextPassage
    bag: TermBag


@frozen(kw_only=False)
class _BuiltIndex:
    """An index of all current passages."""

    vocabulary: TermVocabulary
    passages: tuple[TextPassage, ...]

    def score_words(self, query: str) -> Scores:
        weights = self.vocabulary.weigh_terms(query)
        length = math.sqrt(sum(weight * weight for weight in weights.values())) or 1.0
        shares = [weight / length for weight in weights.values()]
        return self.vocabulary.index.sum_weights(list(weights), shares)


class PassageIndex:
    """All passages of some sources. A source is added and replaced as a whole.

    The encoder is loaded on the first search or `refresh`, so an unused index costs nothing. `vectors` is the
    folder for stored vectors (None: not stored). With `by_meaning` false, only words are compared. `share` is
    the weight of meaning; its default was measured.
    """

    def __init__(
        self,
        *,
        by_meaning: bool = True,
        vectors: Path | None = None,
        encoder: TextEncoder | None = None,
        share: float | None = None,
    ) -> None:
        self._lock = Lock()
        self._clear_vocabulary()
        self._sources: dict[str, list[_PassageRow]] = {}
        self._size = 0
        self._built: _BuiltIndex | None = None
        self._share = share
        self._vectors = PassageVectors(encoder or get_shared_encoder(), vectors) if by_meaning else None

    def _clear_vocabulary(self) -> None:
        self._numbers: dict[str, int] = {}
        self._spelling = SpellingIndex()
        self._spelling_count = 0  # number of terms that the spelling correction knows

    def __enter__(self) -> PassageIndex:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def set_source(self, source: str, passages: Sequence[TextPassage]) -> None:
        """Set the passages of the source."""
        with self._lock:
            self._size += len(passages) - len(self._sources.get(source, ()))
            self._sources[source] = [_PassageRow(passage, self._build_bag(passage)) for passage in passages]
            self._built = None

    def remove(self, source: str) -> None:
        """Remove the source."""
        with self._lock:
            if (gone := self._sources.pop(source, None)) is not None:
                self._size -= len(gone)
                self._built = None

    @property
    def sources(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._sources)

    def get_all(self) -> dict[str, tuple[TextPassage, ...]]:
        """Return all passages by source."""
        with self._lock:
            return {source: tuple(row.passage for row in rows) for source, rows in self._sources.items()}

    @property
    def size(self) -> int:
        """The number of passages."""
        return self._size

    @property
    def ready(self) -> float:
        """The share of passages searchable by meaning, from 0 to 1, as of the last search."""
        return 1.0 if self._vectors is None else self._vectors.ready

    @property
    def waiting(self) -> int:
        """The number of texts without a vector, as of the last search."""
        return 0 if self._vectors is None else self._vectors.waiting

    def refresh(self) -> None:
        """Build the index now if passages have changed, so that the next search does not have to."""
        with self._lock:
            self._ensure_built()

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait until all passages are searchable by meaning. Return False after `seconds`."""
        self.refresh()
        return self._vectors is None or (self._vectors.wait(seconds) and self._vectors.ready == 1.0)

    def close(self) -> None:
        """Stop background work. Search is still possible."""
        if self._vectors is not None:
            self._vectors.close()

    def search(
        self, query: str, limit: int = 10, *, within: Callable[[str], bool] | None = None
    ) -> tuple[PassageHit, ...]:
        """Return the best passages first. `within` selects the sources."""
        with self._lock:
            built = self._ensure_built()
        if not built.passages or limit < 1:
            return ()
        words = built.score_words(query)
        meaning = None if self._vectors is None else self._vectors.compare(query, len(built.passages))
        scores = fuse_scores(words, meaning, self._get_meaning_share(query)).base
        good = words > 0 if meaning is None else (words > 0) | (np.nan_to_num(meaning) >= MIN_MEANING_SCORE)
        accepts: Callable[[str], bool] = within or (lambda _: True)
        is_wanted = cache(accepts)  # evaluated once per source
        order: list[int] = np.argsort(-np.where(good, scores, -np.inf), kind="stable").tolist()
        best = (place for place in order[: int(good.sum())] if is_wanted(built.passages[place].source))
        return tuple(
            PassageHit(
                passage=built.passages[place],
                score=float(scores[place]),
                words=float(words[place]),
                meaning=None if meaning is None or math.isnan(meaning[place]) else float(meaning[place]),
            )
            for place in islice(best, limit)
        )

    def _get_meaning_share(self, query: str) -> float:
        if self._share is not None:
            return self._share
        return ENGLISH_MEANING_SHARE if detect_language(query) in ("en", "und") else OTHER_MEANING_SHARE

    def _ensure_built(self) -> _BuiltIndex:
        if self._built is None:
            rows = self._list_rows()
            index = build_term_index([row.bag for row in rows], len(self._numbers))
            if len(self._numbers) - int(np.count_nonzero(np.diff(index.starts))) > MAX_DEAD_TERMS:
                self._rebuild_vocabulary()
                rows = self._list_rows()
                index = build_term_index([row.bag for row in rows], len(self._numbers))
            self._spelling.add(islice(self._numbers, self._spelling_count, None))
            self._spelling_count = len(self._numbers)
            passages = tuple(row.passage for row in rows)
            self._built = _BuiltIndex(TermVocabulary(index, self._numbers, self._spelling), passages)
            if self._vectors is not None:
                self._vectors.prepare([split_windows(passage.heading, passage.text) for passage in passages])
        return self._built

    def _list_rows(self) -> list[_PassageRow]:
        return [row for source in self._sources.values() for row in source]

    def _rebuild_vocabulary(self) -> None:
        """Rebuild the term numbers with only those terms that are still used."""
        self._clear_vocabulary()
        for source, rows in self._sources.items():
            self._sources[source] = [_PassageRow(row.passage, self._build_bag(row.passage)) for row in rows]

    def _build_bag(self, passage: TextPassage) -> TermBag:
        counts: dict[str, float] = {}
        for text, weight in ((passage.heading, HEADING_WEIGHT), (passage.text, 1.0)):
            for term in iterate_terms(text):
                counts[term] = counts.get(term, 0.0) + weight
        numbers = [self._numbers.setdefault(term, len(self._numbers)) for term in counts]
        return TermBag(np.array(numbers, np.int32), np.fromiter(counts.values(), np.float32, len(counts)))
