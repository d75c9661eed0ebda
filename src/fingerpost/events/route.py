"""What narrowing, choosing and answering found out and did."""

from __future__ import annotations

from dataclasses import field, replace
from typing import ClassVar, Final

from fingerpost.events.base import Event
from fingerpost.events.packet import PacketEvent
from fingerpost.frozen import frozen
from fingerpost.records import (
    Confidence,
    DataField,
    Mode,
    Narrowing,
    Packet,
    PacketState,
    Question,
    RouteOutcome,
    Scope,
    SketchpadEntry,
    Status,
)

INTERRUPTED: Final = (
    "the process that worked on it ended before it was done. Look in its trace at what its last call did, "
    "then ask again."
)


@frozen
class RouteBegan(PacketEvent):
    """Somebody set out to answer the packet, in this way and with these models."""

    mode: Mode
    lite: str | None = None
    prime: str | None = None
    profile: str | None = None
    working_directory: str | None = None
    scopes: tuple[Scope, ...] = ()  # what the caller may use: it holds for whoever goes on with it later
    own_terms: bool = False  # what the caller brought is kept nowhere: nobody else can go on with it
    arms: dict[str, str] = field(default_factory=dict[str, str])  # of rollouts, by name
    instance: str | None = None  # the process that works on it

    def apply(self, packet: Packet) -> Packet:
        context = replace(
            packet.context,
            mode=self.mode.value,
            profile=self.profile,
            working_directory=self.working_directory,
        )
        return replace(packet, context=context)

    def summary(self) -> str:
        models = " and ".join(dict.fromkeys(name for name in (self.lite, self.prime) if name))
        return f"{self.mode} with {models or 'no model'}"


@frozen
class ModelAnswered(Event):
    """A model was asked and answered, or did not."""

    role: str
    purpose: str  # "selection", "review", "answer", …
    model: str
    prompt_tokens: int | None = None  # None: the server does not say
    completion_tokens: int | None = None
    milliseconds: float = 0.0
    stood_in: bool = False  # for the model that should have answered
    error: str | None = None

    def summary(self) -> str:
        if self.error is not None:
            return f"{self.purpose}: {self.error}"
        tokens = (
            "" if self.prompt_tokens is None else f", {self.prompt_tokens}+{self.completion_tokens} tokens"
        )
        return f"{self.purpose} by {self.model} in {self.milliseconds:.0f} ms{tokens}"


@frozen
class ReplyRejected(Event):
    """What a model said could not be used."""

    purpose: str
    problem: str

    def summary(self) -> str:
        return f"{self.purpose}: {self.problem}"


@frozen
class PlanNoted(PacketEvent):
    """What is still to be done after the tool at hand."""

    remaining: str
    read_only: bool | None = None  # whether the tool at hand changes nothing; None: not known

    def apply(self, packet: Packet) -> Packet:
        packet = packet.with_note(SketchpadEntry(key="remaining", text=self.remaining))
        return self.reflect(packet, "plan", self.summary())

    def summary(self) -> str:
        return f"then: {self.remaining}" if self.remaining else "nothing is left to do"


@frozen
class ThoughtNoted(PacketEvent):
    """What an agent says it thinks before it acts."""

    turn: int
    text: str

    def apply(self, packet: Packet) -> Packet:
        return self.reflect(packet, "thought", self.text)

    def summary(self) -> str:
        return self.text


@frozen
class ConfidenceJudged(PacketEvent):
    """How sure we are of the selection, and what follows from it."""

    audited: ClassVar[bool] = True

    confidence: Confidence

    def apply(self, packet: Packet) -> Packet:
        return self.reflect(packet, "gate", self.summary(), self.confidence.score)

    def summary(self) -> str:
        return f"{self.confidence.verdict} at {self.confidence.score:.2f}: {self.confidence.reason}".rstrip(
            ": "
        )


@frozen
class ShortlistWidened(PacketEvent):
    """Nobody was sure, so more tools were looked at."""

    tools: tuple[str, ...]
    reason: str

    def apply(self, packet: Packet) -> Packet:
        packet = replace(packet, context=replace(packet.context, available_tools=self.tools))
        return self.reflect(packet, "narrow", self.summary())

    def summary(self) -> str:
        return f"widened to {len(self.tools)} tools: {self.reason}"


@frozen
class SyntaxStopped(Event):
    """A model wrote tool syntax into its answer; it reached nobody."""

    syntax: str  # "chatml", "hermes", …
    count: int = 1
    rerouted: str | None = None  # the tool it became a proper call of

    def summary(self) -> str:
        became = f", called {self.rerouted} properly instead" if self.rerouted else ""
        return f"{self.count} × {self.syntax}{became}"


@frozen
class HistorySummarised(Event):
    """The conversation was too long for the model; its beginning was put into fewer words."""

    messages: int
    tokens_before: int
    tokens_after: int
    by: str  # the model, or "cut" when there was none to ask

    def summary(self) -> str:
        return f"{self.messages} messages, {self.tokens_before} to {self.tokens_after} tokens, by {self.by}"


@frozen
class BudgetReached(Event):
    """Turns, tokens, seconds or money ran out."""

    limit: str  # "turns", "loop", "tokens", "seconds", "cost"
    detail: str

    def summary(self) -> str:
        return f"{self.limit}: {self.detail}"


@frozen
class QuestionAsked(PacketEvent):
    """The person has to say something before it goes on."""

    question: Question

    def apply(self, packet: Packet) -> Packet:
        packet = replace(packet, status=Status(state=PacketState.WAITING, next_task=packet.status.next_task))
        return self.reflect(packet, "question", self.question.text)

    def summary(self) -> str:
        return self.question.text


@frozen
class AnswerGiven(PacketEvent):
    """What the person is told."""

    text: str
    by: str  # the model; "no model" when none wrote it
    sources: tuple[str, ...] = ()  # the tools it rests on

    def apply(self, packet: Packet) -> Packet:
        return packet.with_data(DataField(key="answer", value=self.text, source=self.by))

    def summary(self) -> str:
        rests = f", from {', '.join(self.sources)}" if self.sources else ""
        return f"{len(self.text)} characters by {self.by}{rests}"


@frozen
class RouteResumed(Event):
    """A request goes on after a person decided about its call."""

    pending_id: str
    instance: str | None = None  # the process that works on it

    def summary(self) -> str:
        return f"goes on after {self.pending_id} was decided"


@frozen
class RouteEnded(Event):
    """The journey is over, or waits for a person."""

    outcome: RouteOutcome
    milliseconds: float
    model_milliseconds: float = 0.0
    tokens: int = 0  # of all models together
    cost: float | None = None
    handed_back: tuple[str, ...] = ()  # the caller's own tools that are called; their arguments are theirs

    def summary(self) -> str:
        if self.outcome is RouteOutcome.INTERRUPTED:
            return f"{self.outcome}: {INTERRUPTED}"
        return f"{self.outcome} in {self.milliseconds:.0f} ms"


@frozen
class SubagentBegan(Event):
    """Another packet was made on behalf of this one."""

    child: str  # its id
    request: str

    def summary(self) -> str:
        return f"began {self.child}: {self.request}"


@frozen
class SubagentEnded(Event):
    """That packet has come to its end, or waits for a person."""

    child: str
    outcome: RouteOutcome
    milliseconds: float
    tokens: int

    def summary(self) -> str:
        return f"{self.child}: {self.outcome} after {self.tokens:,} tokens"


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
