"""What a model is told of the conversation: all of it, as long as it fits.

Only when the window demands it are the oldest messages put into fewer words (`fit`).
The room is measured in coarse steps, so that a longer question does not move the place
where the conversation was cut, and the next prompt begins as this one did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fingerpost.choose.base import Ask
from fingerpost.choose.fitting import Count, Fitted, fit
from fingerpost.choose.summaries import Summaries
from fingerpost.records import Message, Packet

STEPS: Final = 16  # in a window
MOST_MESSAGES: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationContext:
    """Who asks, in which conversation, after how many messages, and what was said."""

    user: str | None
    conversation: str
    message_count: int
    history: tuple[Message, ...]


def context_of(packet: Packet) -> ConversationContext:
    """The conversation this packet belongs to."""
    return ConversationContext(
        user=packet.header.caller,
        conversation=packet.header.session_id,
        message_count=packet.context.message_count,
        history=packet.context.history,
    )


async def build(
    packet: Packet,
    *,
    window_tokens: int,
    reserve: int,
    count: Count,
    system: str = "",
    ask: Ask | None = None,
    summaries: Summaries | None = None,
) -> Fitted:
    """The history as the model gets it, within what is left of its window.

    `reserve`: tokens for everything else: definitions, results, the answer. Ask once per request and use
    the same history in all its turns. Without `ask` (or when it fails) a history too long is cut.
    """
    left = window_tokens - reserve - count(system) - count(packet.content.original_prompt)
    step = max(1, window_tokens // STEPS)
    budget = max(0, left // step * step)
    history = packet.context.history[-MOST_MESSAGES:]
    return await fit(ask, history, budget=budget, count=count, summaries=summaries)
