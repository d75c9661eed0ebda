"""The scorer protocol, and the texts of tools and requests for scorers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from fingerpost.catalog.words import parse_word_set
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.records import Json, Message, Signals, ToolCard
from fingerpost.records.json import to_valid_text
from fingerpost.regex import prepare_re
from fingerpost.schemas import get_properties

if TYPE_CHECKING:  # importing numpy takes 0.1 seconds, so only narrowing imports it
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]
    ScoresByTool = Mapping[str, "float | ToolScore"] | Sequence[float] | NDArray[np.floating]


@frozen
class ScorerRequest:
    """A request as scorers get it.

    Fields:
        text: the request or one of its needs, of limited length
        sentences: its sentences if it has several; limited in number
        needs: its needs if it has several
        signals: what was found in the request: language, names, paths, dates, …
        history: earlier messages of the conversation
        used: keys of the tools used in this conversation, latest last
        caller: name of the caller
        profile: name of the profile
        conversation: id of the conversation
        vector: of the encoder; None without it
    """

    text: str
    sentences: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    signals: Signals = field(default_factory=Signals)
    history: tuple[Message, ...] = ()
    used: tuple[str, ...] = ()
    caller: str | None = None
    profile: str | None = None
    conversation: str | None = None
    vector: Scores | None = field(default=None, repr=False, compare=False)


@frozen(kw_only=False)
class ToolScore:
    """The score of one tool with the reason, which explanations show.

    Fields:
        value: score from -1 to 1; times the weight of its scorer it is added
        note: the reason
    """

    value: float
    note: str = ""


class Scorer(Protocol):
    """Scores tools for a request."""

    @property
    def label(self) -> str:
        """The name of its part of a score in explanations, such as `words` or `meaning`."""
        ...

    @property
    def weight(self) -> float:
        """The points that a score of 1 adds. Text scores are 0 to 1, most adjustments at most 0.3."""
        ...

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> ScoresByTool:
        """Return scores from -1 (unsuitable) to 1 (suitable): by tool key, or one for each card in order.

        A tool without a score has 0. Runs in a worker thread, possibly in several at once.
        """
        ...


# The names of our own parts of a score.
OWN_LABELS: Final = parse_word_set(
    """
    arguments conversation corrected entity exclusive health hierarchy intent keywords latency learned
    meaning mention mood preference priority produces recall reranker server turn words
    """
)
MAX_LABEL_LENGTH: Final = 40


@frozen
class AddedScorer:
    """A scorer of a program or package, with its label and weight as they were when it was added."""

    label: str
    weight: float
    scorer: Scorer

    def scores(self, request: ScorerRequest, cards: Sequence[ToolCard]) -> ScoresByTool:
        return self.scorer.scores(request, cards)


def check_scorers(scorers: Iterable[Scorer]) -> tuple[AddedScorer, ...]:
    """Return the scorers with their labels and weights. Raises `ConfigError` if one cannot be used."""
    found: dict[str, AddedScorer] = {}
    for scorer in scorers:
        label, weight = _get_label(scorer), getattr(scorer, "weight", None)
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight <= 1:
            message = f"the weight of the scorer {label!r} is no number above 0 and at most 1"
            raise ConfigError(message, hint="The weight is the points that a score of 1 adds: 0.1 is little.")
        if label in OWN_LABELS or label in found:
            message = f"the label {label!r} of a scorer is taken"
            raise ConfigError(message, hint=f"Not possible: {', '.join(sorted({*OWN_LABELS, *found}))}.")
        found[label] = AddedScorer(label=label, weight=float(weight), scorer=scorer)
    return tuple(found.values())


def _get_label(scorer: object) -> str:
    label = getattr(scorer, "label", None)
    if isinstance(scorer, type):
        message = f"scorers takes objects, and {scorer.__name__} is a class"
        raise ConfigError(message, hint=f"Write {scorer.__name__}().")
    if not callable(getattr(scorer, "scores", None)):
        message = f"{type(scorer).__name__} is no scorer: it has no method `scores`"
        raise ConfigError(message, hint="A scorer has `label`, `weight` and `scores(request, cards)`.")
    if label is None:
        message = f"the scorer {type(scorer).__name__} has no `label`"
        raise ConfigError(message, hint=f"It is text of at most {MAX_LABEL_LENGTH} characters.")
    if not isinstance(label, str) or not label or clean_line(label, MAX_LABEL_LENGTH) != label:
        message = f"the label of the scorer {type(scorer).__name__} is no short line of text"
        raise ConfigError(message, hint=f"Give it a `label` of at most {MAX_LABEL_LENGTH} characters.")
    return label


MAX_TEXT_NAME_LENGTH: Final = 200
MAX_DESCRIPTION_LENGTH: Final = 2000
MAX_PARAMETER_LENGTH: Final = 200
SHORT_PARAMETER_LENGTH: Final = 60
MAX_PARAMETERS: Final = 40
MAX_VALUES: Final = 20
MAX_REQUEST_LENGTH: Final = 8000
MAX_SENTENCES: Final = 4

# Control, zero-width, direction and private-use characters: invisible, and able to hide text.
_NOT_TEXT = prepare_re(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ue000-\uf8ff\U000e0000-\U000e0fff]+"
)
_SPACES = prepare_re(r"\s+")

# `HTTPServer` and `getUser` are two words, `mp3` is one; `_`, `-`, `.` and `/` separate words.
_NAME_WORD = prepare_re(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+|[^\W\d_A-Za-z]+")

_SENTENCE_END = prepare_re(r"(?<=[.!?;。！？；])\s+|(?<=[。！？；])|\n+")
MIN_SENTENCE_WORDS: Final = 3
MIN_SENTENCE_LENGTH: Final = 25
MIN_UNSPACED_LENGTH: Final = 6  # characters, in scripts without spaces
_UNSPACED = prepare_re(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


def clean_line(text: str, max_length: int) -> str:
    """Return the beginning of `text` on one line, without invisible characters."""
    text = text[: max_length * 2]
    if not text.isascii():
        text = to_valid_text(text)
    return _SPACES.sub(" ", _NOT_TEXT.sub(" ", text)).strip()[:max_length]


def split_tool_name(name: str) -> str:
    """Split a tool's name: `getUserById` and `get-user-by-id` become `get user by id`."""
    return " ".join(map(str.lower, _NAME_WORD.findall(clean_line(name, MAX_TEXT_NAME_LENGTH))))


@frozen
class ParameterText:
    """One parameter: its name as words, the beginning of its description, and its allowed values."""

    name: str
    description: str = ""
    values: tuple[str, ...] = ()  # as words; not part of the encoder's text

    def format_short(self) -> str:
        if len(self.description) <= SHORT_PARAMETER_LENGTH:
            return f"{self.name} {self.description}".rstrip()
        return f"{self.name} {self.description[:SHORT_PARAMETER_LENGTH].rpartition(' ')[0]}".rstrip()


@frozen
class ToolText:
    """The text of one tool for scoring."""

    server: str
    name: str
    description: str
    parameters: tuple[ParameterText, ...] = ()

    def format_long(self) -> str:
        """Return the text on one line, the most important part first, because an encoder cuts off the end."""
        text = f"{self.server} - " if self.server else ""
        text += f"{self.name}: {self.description}" if self.name else self.description
        if self.parameters:
            text += " Parameters: " + " ".join(parameter.format_short() for parameter in self.parameters)
        return text


def build_tool_text(card: ToolCard) -> ToolText:
    """Build the text of a card."""
    schema = card.definition.get("inputSchema")
    properties = islice(get_properties(schema).items(), MAX_PARAMETERS)
    return ToolText(
        server=split_tool_name(card.server),
        name=split_tool_name(card.name),
        description=clean_line(card.description, MAX_DESCRIPTION_LENGTH),
        parameters=tuple(_build_parameter_text(name, about) for name, about in properties),
    )


def _build_parameter_text(name: str, schema: Json) -> ParameterText:
    if not isinstance(schema, Mapping):
        return ParameterText(name=split_tool_name(name))
    about = schema.get("description")
    return ParameterText(
        name=split_tool_name(name),
        description=clean_line(about, MAX_PARAMETER_LENGTH) if isinstance(about, str) else "",
        values=_list_allowed_values(schema) or _list_allowed_values(schema.get("items")),
    )


def _list_allowed_values(schema: Json) -> tuple[str, ...]:
    """Return the allowed values if they are words: `create`, `delete`, … describe a tool."""
    allowed = schema.get("enum") if isinstance(schema, Mapping) else None
    if isinstance(allowed, str) or not isinstance(allowed, Sequence):
        return ()
    return tuple(split_tool_name(value) for value in islice(allowed, MAX_VALUES) if isinstance(value, str))


def split_sentences(text: str) -> tuple[str, ...]:
    """Return the first few sufficiently long sentences of a request that has several."""
    found: list[str] = []
    for piece in _SENTENCE_END.split(text[:MAX_REQUEST_LENGTH]):
        sentence = clean_line(piece, MAX_REQUEST_LENGTH)
        if _is_meaningful(sentence):
            found.append(sentence)
            if len(found) == MAX_SENTENCES:
                break
    return tuple(found) if len(found) > 1 else ()


def _is_meaningful(sentence: str) -> bool:
    if len(sentence) >= MIN_SENTENCE_LENGTH or len(sentence.split()) >= MIN_SENTENCE_WORDS:
        return True
    return len(_UNSPACED.findall(sentence)) >= MIN_UNSPACED_LENGTH
