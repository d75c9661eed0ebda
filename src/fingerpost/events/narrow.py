"""What narrowing found out, and how the servers of a conversation were chosen."""

from __future__ import annotations

from dataclasses import field

from fingerpost.events.base import Event
from fingerpost.events.packet import PacketEvent
from fingerpost.frozen import frozen
from fingerpost.records import Narrowing, Packet


@frozen
class RequestNarrowed(PacketEvent):
    """Whether a tool is needed, and the few that were found, each with why it stands where it stands."""

    narrowing: Narrowing
    tokens_all: int = 0  # of the definitions of every tool the caller may see; 0: not counted
    tokens_offered: int = 0  # of those on the shortlist
    arms: dict[str, str] = field(default_factory=dict[str, str])  # of rollouts, by name

    def apply(self, packet: Packet) -> Packet:
        return self.reflect(packet, "narrow", self.summary(), self.narrowing.shortlist.fit)

    def summary(self) -> str:
        shortlist = self.narrowing.shortlist
        offered = ", ".join(candidate.tool for candidate in shortlist.offered) or "no tool"
        return f"{self.narrowing.need.verdict}; {offered} of {shortlist.considered}"


@frozen
class SmartRoutingStart(Event):
    """The servers of a turn are about to be chosen, or an earlier choice widened."""

    conversation: str | None
    total_tools: int
    total_servers: int
    max_tools: int  # the thresholds above which it switches itself on
    max_servers: int

    def summary(self) -> str:
        return f"{self.total_tools} tools of {self.total_servers} servers"


@frozen
class SmartRoutingEnd(Event):
    """The servers of a turn were chosen, or an earlier choice widened; on failure all of them stay."""

    conversation: str | None
    total_tools: int
    filtered_tools: int
    total_servers: int
    relevant_servers: tuple[str, ...]
    reasoning: str
    by: str
    milliseconds: float
    tokens_saved: int
    success: bool
    error: str | None = None
    widened: tuple[str, ...] = ()  # servers added to an earlier choice; `by` is "widened" then

    def summary(self) -> str:
        if self.widened:
            return f"widened by {', '.join(self.widened)}: {self.reasoning}"
        kept = f"{self.filtered_tools} of {self.total_tools} tools on {', '.join(self.relevant_servers)}"
        return kept if self.success else f"{kept}; {self.error}"
