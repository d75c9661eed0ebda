"""Events of routing: narrowing, choosing and answering, feedback and what is learned from it."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Final

from fingerpost.events.base import Event, StepEvent
from fingerpost.events.packet import PacketEvent
from fingerpost.frozen import frozen
from fingerpost.records import (
    Confidence,
    DataField,
    FeedbackVerdict,
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

NO_MODEL_NAME: Final = "no model"  # as the author of an answer that no model wrote
INTERRUPTED: Final = (
    "the process that worked on it ended before it was done. Look in its trace at what its last call did, "
    "then ask again."
)


@frozen
class RouteBegan(PacketEvent):
    """Routing of the packet started, with this mode and these models."""

    mode: Mode
    lite: str | None = None
    prime: str | None = None
    profile: str | None = None
    working_directory: str | None = None
    scopes: tuple[Scope, ...] = ()  # the caller's permissions; they also apply when the request is resumed
    own_terms: bool = False  # the caller's own settings are not stored, so only this caller can resume
    arms: dict[str, str] = field(default_factory=dict[str, str])  # of rollouts, by name
    instance: str | None = None  # the process that handles it
    trail: str | None = None  # where its data is recorded, if not with its own conversation or packet
    words_given: bool = False  # the person's words came beside the request, which a model wrote

    def apply(self, packet: Packet) -> Packet:
        context = replace(
            packet.context,
            mode=self.mode.value,
            profile=self.profile,
            working_directory=self.working_directory,
            words_given=self.words_given,
        )
        return replace(packet, context=context)

    def summary(self) -> str:
        models = " and ".join(dict.fromkeys(name for name in (self.lite, self.prime) if name))
        return f"{self.mode} with {models}" if models else f"{self.mode}, no model used"


@frozen
class ModelAnswered(StepEvent):
    """A model was called and answered or failed."""

    role: str
    purpose: str  # "selection", "review", "answer", …
    model: str
    prompt_tokens: int | None = None  # None if the server does not report it
    completion_tokens: int | None = None
    milliseconds: float = 0.0
    stood_in: bool = False  # as a fallback for the first model
    error: str | None = None

    def summary(self) -> str:
        if self.error is not None:
            return f"{self.purpose}: {self.error}"
        tokens = (
            "" if self.prompt_tokens is None else f", {self.prompt_tokens}+{self.completion_tokens} tokens"
        )
        return f"{self.purpose} by {self.model} in {self.milliseconds:.0f} ms{tokens}"


@frozen
class ReplyRejected(StepEvent):
    """A model's reply could not be used."""

    purpose: str
    problem: str

    def summary(self) -> str:
        return f"{self.purpose}: {self.problem}"


@frozen
class PlanNoted(PacketEvent):
    """The remaining steps after the current tool."""

    remaining: str
    read_only: bool | None = None  # whether the current tool only reads; None: unknown

    def apply(self, packet: Packet) -> Packet:
        packet = packet.with_note(SketchpadEntry(key="remaining", text=self.remaining))
        return self.reflect(packet, "plan", self.summary())

    def summary(self) -> str:
        return f"then: {self.remaining}" if self.remaining else "nothing is left to do"


@frozen
class ThoughtNoted(PacketEvent):
    """The reasoning of an agent before an action."""

    turn: int
    text: str

    def apply(self, packet: Packet) -> Packet:
        return self.reflect(packet, "thought", self.text)

    def summary(self) -> str:
        return self.text


@frozen
class ConfidenceJudged(PacketEvent, audited=True):
    """The confidence in the selection, and the resulting action."""

    confidence: Confidence

    def apply(self, packet: Packet) -> Packet:
        return self.reflect(packet, "gate", self.summary(), self.confidence.score)

    def summary(self) -> str:
        return f"{self.confidence.verdict} at {self.confidence.score:.2f}: {self.confidence.reason}".rstrip(
            ": "
        )


@frozen
class ShortlistWidened(PacketEvent):
    """More tools were considered, because the confidence was low."""

    tools: tuple[str, ...]
    reason: str

    def apply(self, packet: Packet) -> Packet:
        packet = replace(packet, context=replace(packet.context, available_tools=self.tools))
        return self.reflect(packet, "narrow", self.summary())

    def summary(self) -> str:
        return f"widened to {len(self.tools)} tools: {self.reason}"


@frozen
class SyntaxStopped(StepEvent):
    """A model wrote tool syntax into its answer. It was not shown to the user."""

    syntax: str  # "chatml", "hermes", …
    count: int = 1
    rerouted: str | None = None  # the tool, if it was converted to a proper call

    def summary(self) -> str:
        became = f", called {self.rerouted} properly instead" if self.rerouted else ""
        return f"{self.count} × {self.syntax}{became}"


@frozen
class HistorySummarised(StepEvent):
    """The conversation was too long for the model, so its beginning was summarized."""

    messages: int
    tokens_before: int
    tokens_after: int
    by: str  # the model, or "cut" if no model was available

    def summary(self) -> str:
        return f"{self.messages} messages, {self.tokens_before} to {self.tokens_after} tokens, by {self.by}"


@frozen
class BudgetReached(StepEvent):
    """A limit of turns, tokens, seconds or cost was reached."""

    limit: str  # "turns", "loop", "tokens", "seconds", "cost"
    detail: str

    def summary(self) -> str:
        return f"{self.limit}: {self.detail}"


@frozen
class QuestionAsked(PacketEvent):
    """The user has to answer a question before routing continues."""

    question: Question

    def apply(self, packet: Packet) -> Packet:
        packet = replace(packet, status=Status(state=PacketState.WAITING, next_task=packet.status.next_task))
        return self.reflect(packet, "question", self.question.text)

    def summary(self) -> str:
        return self.question.text


@frozen
class AnswerGiven(PacketEvent):
    """The answer to the user."""

    text: str
    by: str  # the model, or `NO_MODEL_NAME`
    sources: tuple[str, ...] = ()  # the tools that the answer is based on

    def apply(self, packet: Packet) -> Packet:
        return packet.with_data(DataField(key="answer", value=self.text, source=self.by))

    def summary(self) -> str:
        sources = f", from {', '.join(self.sources)}" if self.sources else ""
        author = ", no model used" if self.by == NO_MODEL_NAME else f" by {self.by}"
        return f"{len(self.text)} characters{author}{sources}"


@frozen
class RouteResumed(StepEvent):
    """Routing continues after a person decided about a call."""

    pending_id: str
    instance: str | None = None  # the process that handles it

    def summary(self) -> str:
        return f"goes on after {self.pending_id} was decided"


@frozen
class RouteEnded(StepEvent):
    """Routing ended, or waits for a person."""

    outcome: RouteOutcome
    milliseconds: float
    model_milliseconds: float = 0.0
    tokens: int = 0  # of all models together
    cost: float | None = None
    # Called tools that the caller provides; their arguments are not recorded.
    handed_back: tuple[str, ...] = ()

    @property
    def is_last(self) -> bool:
        return True

    def summary(self) -> str:
        if self.outcome is RouteOutcome.INTERRUPTED:
            return f"{self.outcome}: {INTERRUPTED}"
        return f"{self.outcome} in {self.milliseconds:.0f} ms"


@frozen
class SubagentBegan(StepEvent):
    """A child packet was created for this one."""

    child: str  # its id
    request: str

    def summary(self) -> str:
        return f"began {self.child}: {self.request}"


@frozen
class SubagentEnded(StepEvent):
    """The child packet ended, or waits for a person."""

    child: str
    outcome: RouteOutcome
    milliseconds: float
    tokens: int

    def summary(self) -> str:
        return f"{self.child}: {self.outcome} after {self.tokens:,} tokens"


@frozen
class RequestNarrowed(PacketEvent):
    """Whether a tool is needed, and the shortlist with the reason for each rank."""

    narrowing: Narrowing
    tokens_all: int = 0  # tokens of all tool definitions visible to the caller; 0: not counted
    tokens_offered: int = 0  # tokens of the shortlist
    arms: dict[str, str] = field(default_factory=dict[str, str])  # of rollouts, by name

    @property
    def saved_tokens(self) -> int | None:
        """The tokens that one model call saves compared with showing every tool. None: not counted."""
        return max(0, self.tokens_all - self.tokens_offered) if self.tokens_all else None

    def apply(self, packet: Packet) -> Packet:
        return self.reflect(packet, "narrow", self.summary(), self.narrowing.shortlist.fit)

    def summary(self) -> str:
        shortlist = self.narrowing.shortlist
        offered = ", ".join(candidate.tool for candidate in shortlist.offered) or "no tool"
        return f"{self.narrowing.need.verdict}; {offered} of {shortlist.considered}"


@frozen
class SmartRoutingStart(StepEvent):
    """Server selection for a turn starts, or an earlier selection is being widened."""

    conversation: str | None
    total_tools: int
    total_servers: int
    max_tools: int  # the thresholds above which smart routing is used
    max_servers: int

    def summary(self) -> str:
        return f"{self.total_tools} tools of {self.total_servers} servers"


@frozen
class SmartRoutingEnd(StepEvent):
    """Server selection for a turn ended, or an earlier selection was widened. On failure all servers stay."""

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
    widened: tuple[str, ...] = ()  # servers added to an earlier selection; `by` is then "widened"

    @property
    def kept_all(self) -> bool:
        """Whether no tool was left out, by failure or without a clear result."""
        return self.filtered_tools >= self.total_tools

    def summary(self) -> str:
        if self.widened:
            return f"widened by {', '.join(self.widened)}: {self.reasoning}"
        kept = f"{self.filtered_tools} of {self.total_tools} tools on {', '.join(self.relevant_servers)}"
        return kept if self.success else f"{kept}; {self.error}"


@frozen
class FeedbackGiven(Event, audited=True):
    """A person reported whether the right tool was used, and which one should have been."""

    verdict: FeedbackVerdict
    by: str
    tool: str | None = None  # the judged tool
    should_have: str | None = None
    comment: str = ""

    def summary(self) -> str:
        text = f"{self.by} said {self.verdict.value}" + (f" of {self.tool}" if self.tool else "")
        return text + (f": should have used {self.should_have}" if self.should_have else "")


@frozen
class LearningForgotten(Event, audited=True):
    """A person deleted learned data."""

    what: str
    by: str
    person: str | None = None  # the person whose data it is; None: everyone
    count: int = 0

    def summary(self) -> str:
        owner = f" of {self.person}" if self.person is not None else ""
        return f"{self.what}{owner} forgotten by {self.by}"


@frozen
class ThresholdMoved(Event, audited=True):
    """A threshold was adjusted to measured results, within its limits."""

    name: str
    before: float
    after: float
    base: float  # the value in the settings
    reason: str
    samples: int

    def summary(self) -> str:
        return f"{self.name}: {self.before:.2f} → {self.after:.2f}, {self.reason}"
