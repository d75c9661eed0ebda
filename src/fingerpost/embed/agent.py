"""A conversation for threads."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fingerpost.embed.embedded import Embedded
    from fingerpost.llm import OnText
    from fingerpost.records import Approval, Message
    from fingerpost.router import Route
    from fingerpost.router.agent import Agent, AgentStats, AgentStatus


class EmbeddedAgent:
    """An agent for threads. `agent` is the agent itself, for its switches and everything else of it."""

    def __init__(self, embedded: Embedded, agent: Agent) -> None:
        self.agent = agent
        self._embedded = embedded

    def ask(self, text: str, *, on_text: OnText | None = None, timeout: float | None = None) -> Route:
        """The next request of the conversation."""

        def work(heard: OnText | None) -> Awaitable[Route]:
            return self.agent.ask(text, on_text=heard)

        return self._embedded.heard(work, on_text, timeout)

    def resume(
        self,
        approval: Approval | None = None,
        *,
        on_text: OnText | None = None,
        timeout: float | None = None,
    ) -> Route:
        """Go on with the request that waits for a person."""

        def work(heard: OnText | None) -> Awaitable[Route]:
            return self.agent.resume(approval, on_text=heard)

        return self._embedded.heard(work, on_text, timeout)

    def reset(self) -> None:
        """Begin another conversation."""
        self.agent.reset()

    @property
    def history(self) -> tuple[Message, ...]:
        return self.agent.history

    def stats(self) -> AgentStats:
        return self.agent.stats()

    def status(self) -> AgentStatus:
        return self.agent.status()
