"""What one request may cost: turns, tokens, seconds, money."""

from __future__ import annotations

import time
from dataclasses import dataclass

from fingerpost.llm import ModelReply
from fingerpost.settings import ChooseSettings


class RunBudgetExceeded(Exception):
    """A limit is reached. Never leaves the journey: it ends with guidance instead."""

    def __init__(self, *, limit: str, detail: str) -> None:
        super().__init__(detail)
        self.limit = limit
        self.detail = detail


@dataclass(slots=True)
class ModelSpending:
    """What the models have cost so far."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: float = 0.0
    cost: float | None = None


class RunBudget:
    """Counts, and says when enough is enough."""

    def __init__(
        self,
        settings: ChooseSettings,
        *,
        seconds: float | None = None,
        tokens: int | None = None,
        parent: RunBudget | None = None,
    ) -> None:
        """What is spent here is spent of `parent`, too, and its end is the end of this."""
        self._settings = settings
        self._seconds = settings.max_seconds if seconds is None else min(seconds, settings.max_seconds)
        self._tokens = settings.max_tokens if tokens is None else min(tokens, settings.max_tokens)
        self._parent = parent
        self._began = time.monotonic()
        self.spent = ModelSpending()

    @property
    def milliseconds(self) -> float:
        return (time.monotonic() - self._began) * 1000

    @property
    def seconds_left(self) -> float:
        own = max(0.0, self._began + self._seconds - time.monotonic())
        return own if self._parent is None else min(own, self._parent.seconds_left)

    def check(self) -> None:
        """Raises `RunBudgetExceeded` when nothing more may be asked of a model."""
        if self._parent is not None:
            self._parent.check()
        used = self.spent.prompt_tokens + self.spent.completion_tokens
        if used >= self._tokens:
            detail = f"{used:,} of {self._tokens:,} tokens are used ({self._describe_limit('max_tokens')})"
            raise RunBudgetExceeded(limit="tokens", detail=detail)
        most = self._settings.max_cost
        if most is not None and self.spent.cost is not None and self.spent.cost >= most:
            detail = f"{self.spent.cost:.4f} of {most:g} is spent (choose.max_cost)"
            raise RunBudgetExceeded(limit="cost", detail=detail)
        if self.seconds_left <= 0:
            raise self.build_timeout()

    def build_timeout(self) -> RunBudgetExceeded:
        is_own = self._parent is None and self._seconds < self._settings.max_seconds
        named = "as long as the request was given" if is_own else self._describe_limit("max_seconds")
        return RunBudgetExceeded(limit="seconds", detail=f"{self._seconds:g} s are over ({named})")

    def _describe_limit(self, limit: str) -> str:
        return f"choose.{limit}" if self._parent is None else f"builtin.subagents.{limit}"

    def count(self, reply: ModelReply, *, prompt: int, completion: int, cost: float | None) -> None:
        """`prompt` and `completion` are what the server says, or an estimate where it does not."""
        if self._parent is not None:
            self._parent.count(reply, prompt=prompt, completion=completion, cost=cost)
        spent = self.spent
        spent.calls += 1
        spent.prompt_tokens += prompt
        spent.completion_tokens += completion
        spent.milliseconds += reply.milliseconds
        if cost is not None:
            spent.cost = (spent.cost or 0.0) + cost
