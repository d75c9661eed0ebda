"""Tools by meaning: the cosine between the vector of the request and the vector of each tool.

Tools whose vectors are on disk count at once; the others get theirs in the background
and score NaN until then. The comparison is exact, over all tools: for ten thousand of them
it takes a millisecond, less than the request's own encoding.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Final

import platformdirs

from fingerpost.errors import FingerpostError
from fingerpost.narrow.base import Query
from fingerpost.narrow.dense.backlog import Backlog
from fingerpost.narrow.dense.encoder import Encoder, TextEncoder, Vector
from fingerpost.narrow.dense.matrix import Matrix
from fingerpost.narrow.dense.vectors import VectorCache, rounded, text_key
from fingerpost.narrow.text import LONGEST_REQUEST, clean, tool_text
from fingerpost.records import ToolCard
from fingerpost.settings.model import NarrowSettings

if TYPE_CHECKING:
    from fingerpost.narrow.base import Scores

log = logging.getLogger(__name__)

LONG_REQUEST: Final = 25  # words, above which sentences are compared too: each costs an encoding
MOST_SENTENCES: Final = 4
REMEMBERED: Final = 512  # vectors of requests
SAVED_TOGETHER: Final = 64

Identity = tuple[str, str, str]
Progress = Callable[[int, int], None]


def default_vectors_folder() -> Path:
    """Where vectors are kept when the settings name no folder."""
    return platformdirs.user_cache_path("fingerpost", appauthor=False) / "vectors"


class DenseScorer:
    """Scores by meaning. Synchronous, and safe to use from several threads at once.

    `folder` is where vectors are kept between runs (None: nowhere); `workers` is how many
    threads fill the index; `progress` is told how many of how many texts are done, on one of those.
    """

    def __init__(
        self,
        encoder: TextEncoder,
        *,
        folder: Path | None = None,
        workers: int = 1,
        progress: Progress | None = None,
    ) -> None:
        self._encoder = encoder
        self._folder = folder
        self._progress = progress
        self._backlog = Backlog(self._encode, self._save, workers=workers)
        self._preparing = Lock()
        self._lock = Lock()  # over everything below
        self._matrix = Matrix(())
        self._keys: dict[Identity, bytes] = {}
        self._cache: VectorCache | None = None
        self._unsaved: dict[bytes, Vector] = {}
        self._asked: OrderedDict[str, Vector] = OrderedDict()
        self._complained = False
        self._to_do = self._done = 0

    @classmethod
    def from_settings(cls, settings: NarrowSettings, *, progress: Progress | None = None) -> DenseScorer:
        """With the encoder that comes with the package."""
        folder = Path(settings.vectors).expanduser() if settings.vectors else default_vectors_folder()
        # One text per thread fills an index faster than several threads per text.
        return cls(Encoder(threads=1), folder=folder, workers=settings.threads, progress=progress)

    def __enter__(self) -> DenseScorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def signal(self) -> str:
        return "meaning"

    @property
    def ready(self) -> float:
        """The share of tools that can be compared, 0..1."""
        return self._matrix.ready

    def wait(self, timeout: float) -> bool:
        """Whether all that can be encoded is, at most `timeout` seconds from now."""
        return self._backlog.wait(timeout)

    def close(self) -> None:
        """Stop filling the index. What is known can still be asked for."""
        self._backlog.close()
        self._save()

    def prepare(self, cards: Sequence[ToolCard]) -> None:
        """These are the tools now; only those whose text changed are encoded, in the background."""
        with self._preparing:
            keys = self._read(cards)
            if keys == self._matrix.keys and not self._matrix.missing:
                return
            old, new = self._matrix, Matrix(keys)
            with self._lock:
                new.fill({key: vector for key in set(keys) if (vector := old.get(key)) is not None})
                new.fill(self._unsaved)
                self._matrix = new
            if (cache := self._open_cache()) is not None:
                found = cache.find(new.missing)
                with self._lock:
                    new.fill(found)
            missing = set(new.missing)
            with self._lock:
                self._to_do, self._done = len(missing), 0
            waiting = {key: card for key, card in zip(keys, cards, strict=True) if key in missing}
            self._backlog.replace({key: tool_text(card).long() for key, card in waiting.items()})

    def scores(self, query: Query) -> Scores:
        """The cosine with each tool; NaN where it is not known yet, everywhere without an encoder."""
        matrix = self._matrix
        text = query.signals.gloss or query.text
        if matrix.is_blank or not any(map(str.isalnum, text)):
            return matrix.unknown()
        try:
            with self._backlog.paused():
                whole = self.query_vector(text)
                parts = [self.query_vector(sentence) for sentence in _sentences(query)]
        except Exception as error:  # noqa: BLE001 - without the encoder there are still the words
            self._complain(error)
            return matrix.unknown()
        return matrix.compare(whole, parts)

    def query_vector(self, text: str) -> Vector:
        """The vector of a request; those of the latest requests are remembered."""
        text = clean(text, LONGEST_REQUEST)
        with self._lock:
            if (known := self._asked.get(text)) is not None:
                self._asked.move_to_end(text)
                return known
        vector = self._encoder.encode(text)
        vector.setflags(write=False)  # it is handed out
        with self._lock:
            self._asked[text] = vector
            while len(self._asked) > REMEMBERED:
                self._asked.popitem(last=False)
        return vector

    def _read(self, cards: Sequence[ToolCard]) -> tuple[bytes, ...]:
        """The keys of the cards' texts; cards seen before are not read again."""
        keys: dict[Identity, bytes] = {}
        for card in cards:
            # The fingerprint covers what the server sent; a person may describe the tool anew.
            identity = (card.key, card.fingerprint, card.description)
            keys[identity] = self._keys.get(identity) or text_key(tool_text(card).long())
        self._keys = keys
        return tuple(keys[card.key, card.fingerprint, card.description] for card in cards)

    def _open_cache(self) -> VectorCache | None:
        if self._cache is None and self._folder is not None:
            try:
                self._cache = VectorCache(self._folder, self._encoder.identity)
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
        except Exception as error:  # noqa: BLE001 - one text that cannot be encoded must not end the others
            self._complain(error)
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

    def _complain(self, error: Exception) -> None:
        """Once: the same will be the matter with every text."""
        with self._lock:
            first, self._complained = not self._complained, True
        if first:
            log.warning("meanings cannot be compared: %s", error)


def _sentences(query: Query) -> tuple[str, ...]:
    """The sentences of a long request. A gloss has none: it is a list of words."""
    if query.signals.gloss or len(query.text.split()) <= LONG_REQUEST:
        return ()
    return query.sentences[:MOST_SENTENCES]
