"""The tools section of a prompt: what holds for all tools, then each tool in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fingerpost.choose.instructions.experience import describe_reliability
from fingerpost.choose.instructions.general import NO_TOOLS_INSTRUCTIONS, TOOLS_INSTRUCTIONS
from fingerpost.choose.instructions.guidance import ToolGuidance, build_guidance
from fingerpost.choose.offer import order_cards
from fingerpost.records import Effect, ToolCard, UsageProfile

_NO_USAGE: Final[Mapping[str, UsageProfile]] = {}
_EFFECT_NOTES: Final = {
    Effect.READ: "only reads",
    Effect.WRITE: "changes things: only when the person asks for it",
    Effect.DESTROY: "removes or overwrites things: only when the person asks for exactly that",
}


def build_tool_instructions(
    cards: Iterable[ToolCard],
    *,
    order: Sequence[str] = (),
    usage: Mapping[str, UsageProfile] = _NO_USAGE,
    general: str = TOOLS_INSTRUCTIONS,
) -> str:
    """Instructions for these tools, the general part first; the same bytes for the same cards and order."""
    guides = build_tool_guides(cards, order=order, usage=usage)
    return f"{general}\n\n{guides}" if guides else NO_TOOLS_INSTRUCTIONS


def build_tool_guides(
    cards: Iterable[ToolCard],
    *,
    order: Sequence[str] = (),
    usage: Mapping[str, UsageProfile] = _NO_USAGE,
) -> str:
    """The part about each tool. A tool added at the end of the order changes nothing before it.

    `usage` (by key) goes in only where instructions may follow recorded use; take it once
    per conversation.
    """
    offered = order_cards(cards, order)
    blocks = (
        _build_tool_block(card, offered[:place], usage.get(card.key)) for place, card in enumerate(offered)
    )
    return "\n\n".join("\n".join(lines) for lines in blocks)


def describe_tool_usage(
    cards: Iterable[ToolCard],
    *,
    order: Sequence[str] = (),
    usage: Mapping[str, UsageProfile] = _NO_USAGE,
) -> dict[str, str]:
    """The same for each tool by key, to stand behind the description in its definition."""
    offered = order_cards(cards, order)
    return {
        card.key: "\n".join(_describe_usage(card, offered[:place], usage.get(card.key)))
        for place, card in enumerate(offered)
    }


def _build_tool_block(
    card: ToolCard, before: Sequence[ToolCard], usage: UsageProfile | None
) -> Iterator[str]:
    told = build_guidance(card, before)
    yield f"## {card.exposed_name} ({_EFFECT_NOTES[card.effect.value]})"
    if told.purpose:
        yield f"Purpose: {told.purpose}"
    yield from _format_guidance(told, card, before, usage)


def _describe_usage(card: ToolCard, before: Sequence[ToolCard], usage: UsageProfile | None) -> Iterator[str]:
    """Without what the definition says itself: name, description, required parameters."""
    told = build_guidance(card, before)
    yield f"Effect: {_EFFECT_NOTES[card.effect.value]}"
    if card.instructions.purpose:
        yield f"Purpose: {told.purpose}"
    yield from _format_guidance(replace(told, required=()), card, before, usage)


def _format_guidance(
    guidance: ToolGuidance, card: ToolCard, before: Sequence[ToolCard], usage: UsageProfile | None
) -> Iterator[str]:
    yield f"Use it when: {'; '.join(guidance.when)}"
    yield f"Not when: {'; '.join(guidance.when_not)}"
    if guidance.required:
        yield f"Needs: {', '.join(guidance.required)}"
    if guidance.expect:
        yield f"Expect: {guidance.expect}"
    if guidance.examples:
        yield f"Example: {' | '.join(guidance.examples)}"
    if usage is not None and (line := describe_reliability(card, usage, before)):
        yield f"Experience: {line}"
