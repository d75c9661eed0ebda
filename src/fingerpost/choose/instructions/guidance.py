"""What a model is told about one tool, made from its card.

Where a person wrote something (`card.instructions`), that stands instead of ours.
Relations to other tools are told with the later of the two: so a tool that joins an
offer never changes what was said about those before it, and the prompt only grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fingerpost.catalog import CATEGORIES, escape_invisible_except
from fingerpost.choose.definitions import dump_stable_json
from fingerpost.frozen import frozen
from fingerpost.records import AnswerSize, Effect, Json, LatencyTier, Source, ToolCard

MAX_PURPOSE_LENGTH: Final = 160  # characters of a server's own words; a person's are taken as they are
MAX_GUIDE_NAME_LENGTH: Final = 60
MAX_EXAMPLE_LENGTH: Final = 200
MAX_GUIDE_TEXT_LENGTH: Final = 2000
MAX_NAMES: Final = 12
_MAX_READ_LENGTH: Final = 2000

_SENTENCE_END = re.compile(r"(?<=[.!?。])\s(?=[^a-z\d(])")  # not after "e.g."
_CATEGORY_DESCRIPTIONS: Final = {category.name: category.about for category in CATEGORIES}


_LATENCY_NOTES: Final = {
    LatencyTier.SLOW: "slow, 15 to 120 seconds",
    LatencyTier.VERY_SLOW: "very slow, 2 to 5 minutes",
}
_SIZE_NOTES: Final = {
    AnswerSize.LARGE: "a large answer, 2,000 to 8,000 tokens",
    AnswerSize.VERY_LARGE: "a very large answer, 8,000 tokens or more",
}


@frozen
class ToolGuidance:
    """The parts of an instruction, as they are shown."""

    purpose: str
    when: tuple[str, ...]
    when_not: tuple[str, ...]
    required: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    expect: str = ""  # how slow it is and how much it answers, where that is out of the ordinary


def build_guidance(card: ToolCard, before: Sequence[ToolCard] = ()) -> ToolGuidance:
    """What to tell about this tool, given the tools offered before it."""
    own = card.instructions
    return ToolGuidance(
        purpose=_quote_author_text(own.purpose) or get_purpose(card),
        when=tuple(map(_quote_author_text, own.when)) or tuple(_list_when_to_use(card, before)),
        when_not=tuple(map(_quote_author_text, own.when_not)) or tuple(_list_when_not_to_use(card, before)),
        required=tuple(to_one_line(name, MAX_GUIDE_NAME_LENGTH) for name in _list_required(card)[:MAX_NAMES]),
        examples=tuple(map(_quote_author_text, own.examples)) or tuple(_format_example(card)),
        expect="; ".join(_describe_expectations(card)),
    )


def get_purpose(card: ToolCard) -> str:
    """The first sentence of the description, on one line."""
    text = " ".join(card.description[:_MAX_READ_LENGTH].split())
    return to_one_line(_SENTENCE_END.split(text, maxsplit=1)[0], MAX_PURPOSE_LENGTH)


def to_one_line(text: str, characters: int) -> str:
    """Foreign text as part of a line: nothing unseen, not too long."""
    shown = escape_invisible_except(" ".join(text[: 4 * characters].split()), keep="\\")
    return shown if len(shown) <= characters else shown[: characters - 1].rstrip() + "…"


def _quote_author_text(text: str) -> str:
    return to_one_line(text, MAX_GUIDE_TEXT_LENGTH)


def _list_required(card: ToolCard) -> tuple[str, ...]:
    return card.intelligence.parameters.required


def _list_when_to_use(card: ToolCard, before: Sequence[ToolCard]) -> Iterator[str]:
    about = _CATEGORY_DESCRIPTIONS.get(card.intelligence.category.value)
    match card.effect.value:
        case Effect.READ:
            subject = f"the request is about {about}" if about else "the answer depends on what it returns"
            yield f"the conversation does not hold the answer and {subject}"
        case Effect.WRITE:
            yield "the person asks for this change"
        case Effect.DESTROY:
            yield "the person asks for exactly this to be done"
    words = card.intelligence.signals.keywords
    if words.source is Source.WRITTEN and words.value:
        yield "the request speaks of " + ", ".join(
            to_one_line(word, MAX_GUIDE_NAME_LENGTH) for word in words.value[:8]
        )
    for other in before:
        if card.key in other.intelligence.hierarchy.value:
            yield f"{other.exposed_name} has failed or found nothing"


def _list_when_not_to_use(card: ToolCard, before: Sequence[ToolCard]) -> Iterator[str]:
    match card.effect.value:
        case Effect.READ:
            yield "what you know, or the conversation, is enough"
        case Effect.WRITE:
            yield "nobody asked for it: it changes things"
        case Effect.DESTROY:
            yield "there is any doubt what is meant: it removes or overwrites things"
    latency = card.intelligence.latency
    if latency.typical.source is not Source.LEARNED and latency.tier in (
        LatencyTier.SLOW,
        LatencyTier.VERY_SLOW,
    ):
        yield "a quick answer is wanted: it takes a while"
    for other in before:
        if _are_in_conflict(card, other):
            yield f"{other.exposed_name} is used for the same request"


def _describe_expectations(card: ToolCard) -> Iterator[str]:
    """By tiers, so that one call more or less does not change a prompt."""
    if (speed := _LATENCY_NOTES.get(card.intelligence.latency.tier)) is not None:
        yield speed
    if (size := _SIZE_NOTES.get(card.intelligence.response.size)) is not None:
        yield size


def _are_in_conflict(one: ToolCard, other: ToolCard) -> bool:
    return other.key in one.intelligence.conflicts.value or one.key in other.intelligence.conflicts.value


def _format_example(card: ToolCard) -> Iterator[str]:
    """Arguments the definition itself gives as examples, when they make a whole call."""
    known = card.intelligence.parameters
    if known.required and all(name in known.examples for name in known.required):
        arguments: dict[str, Json] = {name: known.examples[name] for name in known.required}
        shown = to_one_line(dump_stable_json(arguments), MAX_EXAMPLE_LENGTH)
        if not shown.endswith("…"):
            yield shown
