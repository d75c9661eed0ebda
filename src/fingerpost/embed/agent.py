"""A conversation for use from threads."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from fingerpost.embed import Embedded
    from fingerpost.llm import OnText
    from fingerpost.records import Approval, Message
    from fingerpost.router import Route, RouteOptions
    from fingerpost.router.agent import Agent, AgentStats, AgentStatus


class EmbeddedAgent:
    """An agent for threads. `agent` is the wrapped asynchronous agent."""

    def __init__(self, embedded: Embedded, agent: Agent) -> None:
        self.agent = agent
        self._embedded = embedded

    def ask(self, text: str, *, timeout: float | None = None, **asking: Unpack[RouteOptions]) -> Route:
        """Answer the next request of the conversation."""

        def work(heard: OnText | None) -> Awaitable[Route]:
            asking["on_text"] = heard
            return self.agent.ask(text, **asking)

        return self._embedded.run_with_text(work, asking.get("on_text"), timeout)

    def give(
        self, results: Mapping[str, str], *, on_text: OnText | None = None, timeout: float | None = None
    ) -> Route:
        """Continue after the client's tools were called. `results` maps call ids to results."""

        def work(heard: OnText | None) -> Awaitable[Route]:
            return self.agent.give(results, on_text=heard)

        return self._embedded.run_with_text(work, on_text, timeout)

    def resume(
        self,
        approval: Approval | None = None,
        *,
        on_text: OnText | None = None,
        timeout: float | None = None,
    ) -> Route:
        """Continue the request that waits for a person."""

        def work(heard: OnText | None) -> Awaitable[Route]:
            return self.agent.resume(approval, on_text=heard)

        return self._embedded.run_with_text(work, on_text, timeout)

    def reset(self) -> None:
        """Start a new conversation."""
        self.agent.reset()

    @property
    def history(self) -> tuple[Message, ...]:
        return self.agent.history

    def stats(self) -> AgentStats:
        return self.agent.stats()

    def status(self) -> AgentStatus:
        return self.agent.status()
