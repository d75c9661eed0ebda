"""What a model is told of the conversation: all of it, as long as it fits.

Only when the window demands it are the oldest messages put into fewer words (`fit`).
The room is measured in coarse steps, so that a longer question does not move the place
where the conversation was cut, and the next prompt begins as this one did.
"""

from __future__ import annotations

from typing import Final

from fingerpost.choose.fitting import FittedHistory, TokenCounter, fit_history
from fingerpost.choose.summaries import SummaryCache
from fingerpost.llm import Ask
from fingerpost.records import Packet

WINDOW_STEPS: Final = 16  # in a window
MAX_MESSAGES: Final = 20_000


async def fit_packet_history(
    packet: Packet,
    *,
    window_tokens: int,
    reserve: int,
    count: TokenCounter,
    system: str = "",
    ask: Ask | None = None,
    summaries: SummaryCache | None = None,
) -> FittedHistory:
    """The history as the model gets it, within what is left of its window.

    `reserve`: tokens for everything else: definitions, results, the answer. Ask once per request and use
    the same history in all its turns. Without `ask` (or when it fails) a history too long is cut.
    """
    left = window_tokens - reserve - count(system) - count(packet.content.original_prompt)
    step = max(1, window_tokens // WINDOW_STEPS)
    budget = max(0, left // step * step)
    history = packet.context.history[-MAX_MESSAGES:]
    return await fit_history(ask, history, budget=budget, count=count, summaries=summaries)
