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

import numpy as np
import platformdirs

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.narrow.dense.encoder import (
    BatchEncoder,
    OnnxEncoder,
    TextEncoder,
    Vector,
    get_batch_encoder,
    get_shared_encoder,
)
from fingerpost.narrow.dense.vectors import VectorIndex, VectorMatrix, VectorProgress, hash_text
from fingerpost.narrow.lexical_terms import remove_empty_words
from fingerpost.narrow.remote_models import open_endpoint_encoder
from fingerpost.narrow.scorer import MAX_REQUEST_LENGTH, ScorerRequest, build_tool_text, clean_line
from fingerpost.records import Signals, ToolCard
from fingerpost.settings.model import NarrowSettings

if TYPE_CHECKING:
    from fingerpost.narrow.scorer import Scores

LONG_REQUEST_WORDS: Final = (
    25  # words; a longer request is also compared by sentence, and each sentence must be encoded
)
MAX_SENTENCES: Final = 4
MAX_QUERY_LENGTH: Final = 300  # characters of a request, or of one sentence, that the encoder gets
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


# Requests with the tool that each needs, to learn the scale of an encoder: how close it puts what belongs
# together, and what does not. The last ones are in other languages.
_PAIRS: Final = (
    ("what will the weather be like in Oslo tomorrow?", "get forecast: Weather forecast for a place"),
    ("read the file notes.txt", "read file: Return the contents of a file"),
    ("email Dana that I am late", "send message: Send an email to a recipient"),
    ("who changed this code last?", "git blame: Show which commit changed each line"),
    ("find papers about protein folding", "search arxiv: Search scientific papers by keywords"),
    ("how much is 200 dollars in yen?", "convert currency: Convert an amount between currencies"),
    ("book a table for four on Friday", "create reservation: Reserve a table in a restaurant"),
    ("which customers bought nothing this year?", "read query: Run a SELECT query on the database"),
    ("open an issue about the broken login", "create issue: Open an issue in a repository"),
    ("turn the lights in the kitchen off", "set light: Switch a lamp on or off"),
    ("play something by Miles Davis", "play track: Play music of an artist"),
    ("what is on this web page?", "fetch: Download a page and return its text"),
    ("remind me to call the bank at nine", "create reminder: Remind the user at a time"),
    ("how do I get from the station to the museum?", "get directions: Route between two places on a map"),
    ("translate this letter into French", "translate text: Translate text into another language"),
    ("draw a chart of the sales per month", "create chart: Make a bar or line chart from numbers"),
    ("מה מזג האוויר בחיפה מחר?", "get forecast: Weather forecast for a place"),
    ("读取文件 notes.txt", "read file: Return the contents of a file"),
    ("envía un correo a Ana", "send message: Send an email to a recipient"),
    ("обменяй 200 долларов на иены", "convert currency: Convert an amount between currencies"),
    ("شغّل موسيقى هادئة", "play track: Play music of an artist"),
    ("रसोई की बत्ती बंद करो", "set light: Switch a lamp on or off"),
)
_FOREIGN_PAIRS: Final = 6
_MATCHING_LEVEL: Final = 0.52  # mean cosine of the pairs in English with the encoder of the package
_OTHER_LEVEL: Final = 0.02  # mean cosine of a request with the tools of other requests
_MIN_SEPARATION: Final = 1.0  # of both means, in standard deviations of the second
_MULTILINGUAL_SHARE: Final = 0.5  # of the distance of both means in English, for other languages


@frozen
class EncoderScale:
    """How the cosines of an encoder compare with those of the encoder of the package.

    Fields:
        level: added to each cosine
        slope: each cosine is multiplied by it
        is_multilingual: whether requests in other languages come close to the tools they need
    """

    level: float = 0.0
    slope: float = 1.0
    is_multilingual: bool = False

    @classmethod
    def measure(cls, encoder: BatchEncoder) -> EncoderScale:
        """Encode pairs of requests and tools. Raises `ConfigError` if the encoder does not bring them
        together.
        """
        requests = np.stack([encoder.encode(request) for request, _ in _PAIRS])
        tools = np.stack(encoder.encode_texts([tool for _, tool in _PAIRS]))
        cosines = np.asarray(requests @ tools.T, np.float32)
        is_other = np.array([[first != second for _, second in _PAIRS] for _, first in _PAIRS])
        english, foreign = slice(None, -_FOREIGN_PAIRS), slice(-_FOREIGN_PAIRS, None)
        matching, others = np.diag(cosines), cosines[english][is_other[english]]
        other = float(others.mean())
        distance = float(matching[english].mean()) - other
        if distance < _MIN_SEPARATION * float(others.std()):
            message = "the encoder does not put requests close to the tools they need"
            raise ConfigError(message, hint="Is it a model for embeddings? Does it want prefixes?")
        slope = (_MATCHING_LEVEL - _OTHER_LEVEL) / distance
        elsewhere = float(matching[foreign].mean() - cosines[foreign][is_other[foreign]].mean())
        return cls(
            level=_OTHER_LEVEL - slope * other,
            slope=slope,
            is_multilingual=elsewhere >= _MULTILINGUAL_SHARE * distance,
        )


class DenseScorer:
    """Scores tools by meaning. Synchronous and thread-safe. Its weight is its share of the text score.

    `reference` encodes requests for the estimate of need and for feedback, which were fitted to the encoder
    of the package; by default it is the encoder itself. `folder` stores vectors between runs (None: they are
    not stored). `workers` is the number of threads that fill the index. `progress` is called on one of them
    with the number of finished texts and the total.
    """

    label = "meaning"
    weight = ENGLISH_WEIGHT

    def __init__(
        self,
        encoder: TextEncoder,
        *,
        reference: TextEncoder | None = None,
        folder: Path | None = None,
        workers: int = 1,
        progress: VectorProgress | None = None,
    ) -> None:
        self._encoder = encoder
        self._reference = reference
        self._scale: EncoderScale | None = None if reference is not None else EncoderScale()
        self._index = VectorIndex(
            encoder, folder, warning_text="meanings cannot be compared", workers=workers, progress=progress
        )
        self._preparing = Lock()  # guards the cards and their keys
        self._cards: Sequence[ToolCard] | None = None
        self._keys: dict[CardIdentity, bytes] = {}
        self._lock = Lock()  # guards the cached queries
        self._query_vectors: OrderedDict[tuple[bool, str], Vector] = OrderedDict()

    @classmethod
    def from_settings(
        cls, settings: NarrowSettings, *, keep: bool = True, progress: VectorProgress | None = None
    ) -> DenseScorer:
        """Create a scorer with the configured encoder. Without `keep`, vectors are stored only where the
        settings name a folder. Raises `ConfigError` if there is no such encoder.
        """
        default = get_default_vectors_folder() if keep else None
        folder = Path(settings.vectors).expanduser() if settings.vectors else default
        encoder, reference = open_encoder(settings), get_shared_encoder()
        return cls(
            encoder,
            reference=None if encoder is reference else reference,
            folder=folder,
            # One text per thread fills the index faster than several threads per text.
            workers=settings.threads,
            progress=progress,
        )

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

    def get_weight(self, signals: Signals, english: float | None = None) -> float:
        """Return the weight for a request with these signals: how reliable the encoder is for it.

        `english` is the weight for a language that the encoder knows.
        """
        weight = self.weight if english is None else english
        if signals.language in ("en", "und") or (self._scale is not None and self._scale.is_multilingual):
            return weight
        return weight / ENGLISH_WEIGHT * (GLOSS_WEIGHT if signals.gloss else FOREIGN_WEIGHT)

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> Scores:
        """Return the cosine with each tool. It is NaN for a tool without a vector, and for all tools without
        an encoder.
        """
        matrix = self.prepare(cards)
        text = request.signals.gloss or request.text
        is_empty = matrix.is_blank and not self._index.is_stalled
        if is_empty or not any(map(str.isalnum, request.text)):
            return matrix.build_unknown_scores()
        try:
            with self._index.queue.pause():
                scale = self._get_scale()
                if scale.is_multilingual:
                    text = request.text
                whole = self._encode(text, self._encoder)
                parts = [
                    self._encode(sentence, self._encoder)
                    for sentence in _get_query_sentences(request, by_gloss=text != request.text)
                ]
        except Exception as error:  # noqa: BLE001 - without the encoder there are still the words
            self._index.warn_once(error)
            return matrix.build_unknown_scores()
        self._index.resume()  # the encoder has just answered
        if matrix.is_blank:
            return matrix.build_unknown_scores()
        if len(whole) != matrix.dimensions:  # the endpoint has another model now
            self._index.discard()
            return matrix.build_unknown_scores()
        cosines = matrix.compare(whole, parts)
        return cosines if scale.slope == 1.0 else np.asarray(scale.level + scale.slope * cosines, np.float32)

    def encode_query(self, text: str) -> Vector:
        """Return the vector of a request from the reference encoder. Recent ones are cached."""
        return self._encode(text, self._reference or self._encoder)

    def _get_scale(self) -> EncoderScale:
        if self._scale is None:
            encoder = get_batch_encoder(self._encoder)
            self._scale = EncoderScale() if encoder is None else EncoderScale.measure(encoder)
        return self._scale

    def _encode(self, text: str, encoder: TextEncoder) -> Vector:
        text = clean_line(text, MAX_REQUEST_LENGTH)
        key = (encoder is self._encoder, text)
        with self._lock:
            if (known := self._query_vectors.get(key)) is not None:
                self._query_vectors.move_to_end(key)
                return known
        is_configured = encoder is self._encoder and self._reference is not None
        vector = encoder.encode(text if is_configured else _shorten_query(text))
        vector.setflags(write=False)  # callers share the cached array
        with self._lock:
            self._query_vectors[key] = vector
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


def _get_query_sentences(request: ScorerRequest, *, by_gloss: bool) -> tuple[str, ...]:
    """Return the sentences of a long request. A gloss has none, because it is a list of words."""
    if by_gloss or len(request.text.split()) <= LONG_REQUEST_WORDS:
        return ()
    return request.sentences[:MAX_SENTENCES]


def _shorten_query(text: str) -> str:
    """Return a long text as the beginning of its content words: encoding takes time for every word."""
    if len(text) <= MAX_QUERY_LENGTH:
        return text
    text = remove_empty_words(text) or text
    if len(text) <= MAX_QUERY_LENGTH:
        return text
    beginning = text[:MAX_QUERY_LENGTH]
    return beginning.rpartition(" ")[0] or beginning


def open_encoder(settings: NarrowSettings) -> BatchEncoder:
    """Return the encoder of the settings. Raises `ConfigError` if it is not there."""
    if settings.encoder == "builtin":
        return get_shared_encoder()
    if settings.encoder.startswith("openai:"):
        return open_endpoint_encoder(settings)
    encoder = OnnxEncoder(Path(settings.encoder).expanduser(), threads=settings.threads)
    if not encoder.is_installed:
        raise ConfigError(
            f"narrow.encoder: {settings.encoder} has no ONNX model",
            hint="It needs model.onnx and tokenizer.json. Or write builtin, or openai:<base URL>#<model>.",
        )
    return encoder
