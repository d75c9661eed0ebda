"""The scorer by meaning: the cosine of the request's vector with each tool's vector.

Vectors on disk are used at once. The others are computed in the background; until then the tool's score is
NaN. The comparison is exact over all tools: for ten thousand tools it takes a millisecond, less than encoding
the request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Final

import platformdirs

from fingerpost.narrow.dense.encoder import TextEncoder, Vector, get_shared_encoder
from fingerpost.narrow.dense.vectors import VectorIndex, VectorMatrix, VectorProgress, hash_text
from fingerpost.narrow.scorer import MAX_REQUEST_LENGTH, ScorerRequest, build_tool_text, clean_line
from fingerpost.records import Signals, ToolCard
from fingerpost.settings.model import NarrowSettings

if TYPE_CHECKING:
    from fingerpost.narrow.scorer import Scores

LONG_REQUEST_WORDS: Final = (
    25  # words; a longer request is also compared by sentence, and each sentence must be encoded
)
MAX_SENTENCES: Final = 4
MAX_CACHED_QUERIES: Final = 512  # vectors of requests
PRIORITY_TIMEOUT_S: Final = 0.3  # longest wait of a request for vectors; eight tools on a busy machine

# The encoder was trained on English: it counts less for a request in another language, and for a request that
# is known only by its English gloss.
ENGLISH_WEIGHT: Final = 0.55
GLOSS_WEIGHT: Final = 0.5
FOREIGN_WEIGHT: Final = 0.25

CardIdentity = tuple[str, str, str]


def get_default_vectors_folder() -> Path:
    """Return the folder for vectors when the settings name none."""
    return platformdirs.user_cache_path("fingerpost", appauthor=False) / "vectors"


class DenseScorer:
    """Scores tools by meaning. Synchronous and thread-safe. Its weight is its share of the text score.

    `folder` stores vectors between runs (None: they are not stored). `workers` is the number of threads that
    fill the index. `progress` is called on one of them with the number of finished texts and the total.
    """

    label = "meaning"
    weight = ENGLISH_WEIGHT

    def __init__(
        self,
        encoder: TextEncoder,
        *,
        folder: Path | None = None,
        workers: int = 1,
        progress: VectorProgress | None = None,
    ) -> None:
        self._encoder = encoder
        self._index = VectorIndex(
            encoder, folder, warning_text="meanings cannot be compared", workers=workers, progress=progress
        )
        self._preparing = Lock()  # guards the cards and their keys
        self._cards: Sequence[ToolCard] | None = None
        self._keys: dict[CardIdentity, bytes] = {}
        self._lock = Lock()  # guards the cached queries
        self._query_vectors: OrderedDict[str, Vector] = OrderedDict()

    @classmethod
    def from_settings(
        cls, settings: NarrowSettings, *, keep: bool = True, progress: VectorProgress | None = None
    ) -> DenseScorer:
        """Create a scorer with the encoder of the package. Without `keep`, vectors are stored only where the
        settings name a folder.
        """
        default = get_default_vectors_folder() if keep else None
        folder = Path(settings.vectors).expanduser() if settings.vectors else default
        # One text per thread fills the index faster than several threads per text.
        return cls(get_shared_encoder(), folder=folder, workers=settings.threads, progress=progress)

    def __enter__(self) -> DenseScorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def ready(self) -> float:
        """The share of tools that have a vector, 0..1."""
        return self._index.matrix.ready

    def wait(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds. Return whether all possible vectors are computed."""
        return self._index.queue.wait(timeout)

    def close(self) -> None:
        """Stop filling the index. Existing vectors can still be used."""
        self._index.close()

    def prepare(self, cards: Sequence[ToolCard]) -> VectorMatrix:
        """Set the tools and return their vectors. Only tools with changed text are encoded, in the
        background.
        """
        with self._preparing:
            if cards is not self._cards:
                keys = self._get_text_keys(cards)
                by_key = dict(zip(keys, cards, strict=True))
                self._index.replace(keys, lambda key: build_tool_text(by_key[key]).format_long())
                self._cards = cards
            return self._index.matrix

    def prioritize(self, rows: Sequence[int]) -> None:
        """Compute the vectors of these tools now, before the others."""
        if missing := self._index.matrix.get_missing(rows):
            self._index.queue.prioritize(missing, PRIORITY_TIMEOUT_S)

    def get_weight(self, signals: Signals) -> float:
        """Return the weight for a request with these signals: how reliable the encoder is for it."""
        if signals.language in ("en", "und"):
            return self.weight
        return GLOSS_WEIGHT if signals.gloss else FOREIGN_WEIGHT

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Scores:
        """Return the cosine with each tool. It is NaN for a tool without a vector, and for all tools without
        an encoder.
        """
        matrix = self.prepare(cards)
        text = request.signals.gloss or request.text
        if matrix.is_blank or not any(map(str.isalnum, text)):
            return matrix.build_unknown_scores()
        try:
            with self._index.queue.pause():
                whole = self.encode_query(text)
                parts = [self.encode_query(sentence) for sentence in _get_query_sentences(request)]
        except Exception as error:  # noqa: BLE001 - without the encoder there are still the words
            self._index.warn_once(error)
            return matrix.build_unknown_scores()
        return matrix.compare(whole, parts)

    def encode_query(self, text: str) -> Vector:
        """Return the vector of a request. Recent ones are cached."""
        text = clean_line(text, MAX_REQUEST_LENGTH)
        with self._lock:
            if (known := self._query_vectors.get(text)) is not None:
                self._query_vectors.move_to_end(text)
                return known
        vector = self._encoder.encode(text)
        vector.setflags(write=False)  # callers share the cached array
        with self._lock:
            self._query_vectors[text] = vector
            while len(self._query_vectors) > MAX_CACHED_QUERIES:
                self._query_vectors.popitem(last=False)
        return vector

    def _get_text_keys(self, cards: Sequence[ToolCard]) -> tuple[bytes, ...]:
        """Return the keys of the cards' texts. The keys of known cards are cached."""
        keys: dict[CardIdentity, bytes] = {}
        for card in cards:
            # The fingerprint covers what the server sent; the settings may override the description.
            identity = (card.key, card.fingerprint, card.description)
            keys[identity] = self._keys.get(identity) or hash_text(build_tool_text(card).format_long())
        self._keys = keys
        return tuple(keys[card.key, card.fingerprint, card.description] for card in cards)


def _get_query_sentences(request: ScorerRequest) -> tuple[str, ...]:
    """Return the sentences of a long request. A gloss has none, because it is a list of words."""
    if request.signals.gloss or len(request.text.split()) <= LONG_REQUEST_WORDS:
        return ()
    return request.sentences[:MAX_SENTENCES]
