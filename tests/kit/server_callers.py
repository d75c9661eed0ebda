"""Callers as the gateway represents them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio

from fingerpost.errors import ToolFailed
from fingerpost.records import JsonObject


@dataclass
class RecordingCaller:
    """A caller who writes down what they hear and answers what they are asked."""

    key: str = "somebody"
    capabilities: JsonObject = field(default_factory=lambda: {"elicitation": {"form": {}}})
    accepts_input_required: bool = False
    authorization: str | None = None
    answer: JsonObject | None = field(
        default_factory=lambda: {"action": "accept", "content": {"colour": "blue"}}
    )
    thinks: float = 0.0
    notifications: list[tuple[str, JsonObject]] = field(default_factory=list[tuple[str, JsonObject]])
    asked: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        self.asked.append((method, params))
        await anyio.sleep(self.thinks)
        if self.answer is None:
            raise ToolFailed("not today", server="person", code=-32042, data={"mood": "bad"})
        return self.answer

    async def tell(self, method: str, params: JsonObject) -> None:
        self.notifications.append((method, params))
