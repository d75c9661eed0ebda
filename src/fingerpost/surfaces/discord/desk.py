"""One request of a conversation at a time, few at once, none too often."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from fingerpost.settings import DiscordSettings
from fingerpost.surfaces.web.rate import RateLimiter

MAX_CONCURRENT: Final = 8  # requests under way, of all conversations together
MAX_QUEUED: Final = 200  # of all conversations together


@dataclass(slots=True)
class _ConversationQueue:
    """Those who wait in one conversation; the lock lets them in as they came."""

    lock: anyio.Lock = field(default_factory=anyio.Lock)
    length: int = 0


class DiscordQueue:
    """Lets requests in."""

    def __init__(self, settings: DiscordSettings) -> None:
        self._rate = RateLimiter(settings.requests_per_minute)
        self._most_waiting = settings.max_waiting
        self._lines: dict[str, _ConversationQueue] = {}
        self._at_once = anyio.CapacityLimiter(MAX_CONCURRENT)
        self._warned: set[str] = set()  # callers who know that they are too fast

    def explain_refusal(self, caller: str, conversation: str) -> str | None:
        """Why this person may not ask now: words for them, empty when they were told a moment ago."""
        if sum(line.length for line in self._lines.values()) >= MAX_QUEUED:
            return "Too many requests wait at the moment. Please ask again in a few minutes."
        line = self._lines.get(conversation)
        if line is not None and line.length > self._most_waiting:
            many = "1 request waits" if self._most_waiting == 1 else f"{self._most_waiting} requests wait"
            return f"{many} here already. Please wait for the answers."
        wait = self._rate.take_token(caller)
        if wait == 0:
            self._warned.discard(caller)
            return None
        if caller in self._warned:
            return ""
        self._warned.add(caller)
        return f"You ask more often than I may answer. Please try again in {math.ceil(wait)} seconds."

    def is_busy(self, conversation: str) -> bool:
        return conversation in self._lines

    @asynccontextmanager
    async def wait_turn(self, conversation: str) -> AsyncGenerator[None]:
        """Entered when it is this request's turn."""
        line = self._lines.setdefault(conversation, _ConversationQueue())
        line.length += 1
        try:
            async with line.lock, self._at_once:
                yield
        finally:
            line.length -= 1
            if line.length == 0:
                del self._lines[conversation]
