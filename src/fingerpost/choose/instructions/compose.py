"""The tools section of a prompt: what holds for all tools, then each tool in turn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fingerpost.choose.instructions.experience import experience_with
from fingerpost.choose.instructions.general import WITH_TOOLS, WITHOUT_TOOLS
from fingerpost.choose.instructions.guidance import Guidance, guide
from fingerpost.choose.offer import arranged
from fingerpost.records import Effect, ToolCard, UsageProfile

_NO_USAGE: Final[Mapping[str, UsageProfile]] = {}
_EFFECTS: Final = {
    Effect.READ: "only reads",
    Effect.WRITE: "changes things: only when the person asks for it",
    Effect.DESTROY: "removes or overwrites things: only when the person asks for exactly that",
}


def tool_instructions(
    cards: Iterable[ToolCard],
    *,
    order: Sequence[str] = (),
    usage: Mapping[str, UsageProfile] = _NO_USAGE,
    general: str = WITH_TOOLS,
) -> str:
    """Instructions for these tools, the general part first; the same bytes for the same cards and order."""
    guides = tool_guides(cards, order=order, usage=usage)
    return f"{general}\n\n{guides}" if guides else WITHOUT_TOOLS


def tool_guides(
    cards: Iterable[ToolCard],
    *,
    order: Sequence[str] = (),
    usage: Mapping[str, UsageProfile] = _NO_USAGE,
) -> str:
    """The part about each tool. A tool added at the end of the order changes nothing before it.

    `usage` (by key) goes in only where instructions may follow recorded use; take it once
    per conversation.
    """
    offered = arranged(cards, order)
    blocks = (_block(card, offered[:place], usage.get(card.key)) for place, card in enumerate(offered))
    return "\n\n".join("\n".join(lines) for lines in blocks)


def describe_use(
    cards: Iterable[ToolCard],
    *,
    order: Sequence[str] = (),
    usage: Mapping[str, UsageProfile] = _NO_USAGE,
) -> dict[str, str]:
    """The same for each tool by key, to stand behind the description in its definition."""
    offered = arranged(cards, order)
    return {
        card.key: "\n".join(_use(card, offered[:place], usage.get(card.key)))
        for place, card in enumerate(offered)
    }


def _block(card: ToolCard, before: Sequence[ToolCard], usage: UsageProfile | None) -> Iterator[str]:
    told = guide(card, before)
    yield f"## {card.exposed_name} ({_EFFECTS[card.effect.value]})"
    if told.purpose:
        yield f"Purpose: {told.purpose}"
    yield from _told(told, card, before, usage)


def _use(card: ToolCard, before: Sequence[ToolCard], usage: UsageProfile | None) -> Iterator[str]:
    """Without what the definition says itself: name, description, required parameters."""
    told = guide(card, before)
    yield f"Effect: {_EFFECTS[card.effect.value]}"
    if card.instructions.purpose:
        yield f"Purpose: {told.purpose}"
    yield from _told(replace(told, required=()), card, before, usage)


def _told(
    told: Guidance, card: ToolCard, before: Sequence[ToolCard], usage: UsageProfile | None
) -> Iterator[str]:
    yield f"Use it when: {'; '.join(told.when)}"
    yield f"Not when: {'; '.join(told.when_not)}"
    if told.required:
        yield f"Needs: {', '.join(told.required)}"
    if told.expect:
        yield f"Expect: {told.expect}"
    if told.examples:
        yield f"Example: {' | '.join(told.examples)}"
    if usage is not None and (line := experience_with(card, usage, before)):
        yield f"Experience: {line}"
