"""What a model is told about one tool, made from its card.

Where a person wrote something (`card.instructions`), that stands instead of ours.
Relations to other tools are told with the later of the two: so a tool that joins an
offer never changes what was said about those before it, and the prompt only grows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from fingerpost.catalog import CATEGORIES, visible
from fingerpost.choose.definitions import written
from fingerpost.frozen import frozen
from fingerpost.records import AnswerSize, Effect, Json, LatencyTier, Source, ToolCard

LONGEST_PURPOSE: Final = 160  # characters of a server's own words; a person's are taken as they are
LONGEST_NAME: Final = 60
LONGEST_EXAMPLE: Final = 200
LONGEST_WRITTEN: Final = 2000
MOST_NAMES: Final = 12
_LOOKED_AT: Final = 2000

_SENTENCE_END = re.compile(r"(?<=[.!?。])\s(?=[^a-z\d(])")  # not after "e.g."
_ABOUT: Final = {category.name: category.about for category in CATEGORIES}


_SLOW: Final = {
    LatencyTier.SLOW: "slow, 15 to 120 seconds",
    LatencyTier.VERY_SLOW: "very slow, 2 to 5 minutes",
}
_LARGE: Final = {
    AnswerSize.LARGE: "a large answer, 2,000 to 8,000 tokens",
    AnswerSize.VERY_LARGE: "a very large answer, 8,000 tokens or more",
}


@frozen
class Guidance:
    """The parts of an instruction, as they are shown."""

    purpose: str
    when: tuple[str, ...]
    when_not: tuple[str, ...]
    required: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    expect: str = ""  # how slow it is and how much it answers, where that is out of the ordinary


def guide(card: ToolCard, before: Sequence[ToolCard] = ()) -> Guidance:
    """What to tell about this tool, given the tools offered before it."""
    own = card.instructions
    return Guidance(
        purpose=_as_written(own.purpose) or purpose_of(card),
        when=tuple(map(_as_written, own.when)) or tuple(_when(card, before)),
        when_not=tuple(map(_as_written, own.when_not)) or tuple(_when_not(card, before)),
        required=tuple(one_line(name, LONGEST_NAME) for name in _required(card)[:MOST_NAMES]),
        examples=tuple(map(_as_written, own.examples)) or tuple(_example(card)),
        expect="; ".join(_expected(card)),
    )


def purpose_of(card: ToolCard) -> str:
    """The first sentence of the description, on one line."""
    text = " ".join(card.description[:_LOOKED_AT].split())
    return one_line(_SENTENCE_END.split(text, maxsplit=1)[0], LONGEST_PURPOSE)


def one_line(text: str, characters: int) -> str:
    """Foreign text as part of a line: nothing unseen, not too long."""
    shown = visible(" ".join(text[: 4 * characters].split()), keep="\\")
    return shown if len(shown) <= characters else shown[: characters - 1].rstrip() + "…"


def _as_written(text: str) -> str:
    return one_line(text, LONGEST_WRITTEN)


def _required(card: ToolCard) -> tuple[str, ...]:
    return card.intelligence.parameters.required


def _when(card: ToolCard, before: Sequence[ToolCard]) -> Iterator[str]:
    about = _ABOUT.get(card.intelligence.category.value)
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
        yield "the request speaks of " + ", ".join(one_line(word, LONGEST_NAME) for word in words.value[:8])
    for other in before:
        if card.key in other.intelligence.hierarchy.value:
            yield f"{other.exposed_name} has failed or found nothing"


def _when_not(card: ToolCard, before: Sequence[ToolCard]) -> Iterator[str]:
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
        if _in_conflict(card, other):
            yield f"{other.exposed_name} is used for the same request"


def _expected(card: ToolCard) -> Iterator[str]:
    """By tiers, so that one call more or less does not change a prompt."""
    if (speed := _SLOW.get(card.intelligence.latency.tier)) is not None:
        yield speed
    if (size := _LARGE.get(card.intelligence.response.size)) is not None:
        yield size


def _in_conflict(one: ToolCard, other: ToolCard) -> bool:
    return other.key in one.intelligence.conflicts.value or one.key in other.intelligence.conflicts.value


def _example(card: ToolCard) -> Iterator[str]:
    """Arguments the definition itself gives as examples, when they make a whole call."""
    known = card.intelligence.parameters
    if known.required and all(name in known.examples for name in known.required):
        arguments: dict[str, Json] = {name: known.examples[name] for name in known.required}
        shown = one_line(written(arguments), LONGEST_EXAMPLE)
        if not shown.endswith("…"):
            yield shown
