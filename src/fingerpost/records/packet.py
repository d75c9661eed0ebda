"""The packet: one user request and all decisions about it; ids that sort by time."""

from __future__ import annotations

import os
import time
from dataclasses import field, replace
from datetime import UTC, datetime
from enum import StrEnum
from random import Random
from typing import Final

from fingerpost.frozen import build_repr, frozen
from fingerpost.records.calls import ErrorKind
from fingerpost.records.json import Json, JsonObject, find_json_problem, to_valid_text

_random = Random()  # noqa: S311 - unique, not secret
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)  # otherwise parent and child would create the same ids
_VERSION_AND_VARIANT: Final = 0x7 << 76 | 0x2 << 62
_RANDOM_MASK: Final = (1 << 80) - 1 & ~(0xF << 76 | 0x3 << 62)


def create_id(prefix: str) -> str:
    """Return an id such as `pkt_019a…`: 48 bits of milliseconds, then 74 random bits. Text order is time
    order.

    Ids are unique but not secret. Random bits do not come from the operating system, because that call
    releases the GIL and would have to wait for it again.
    """
    milliseconds = time.time_ns() // 1_000_000
    return (
        f"{prefix}_{milliseconds << 80 | _random.getrandbits(80) & _RANDOM_MASK | _VERSION_AND_VARIANT:032x}"
    )


def get_random_bits(count: int) -> int:
    """Return a random number that is unique but not secret; see `create_id`."""
    return _random.getrandbits(count)


def utc_now() -> datetime:
    """Return the current time with a time zone."""
    return datetime.now(UTC)


MAX_REINJECTIONS: Final = 3


class PacketState(StrEnum):
    """The state of the packet."""

    RECEIVED = "received"
    PROCESSING = "processing"
    WAITING = "waiting"
    ANSWERED = "answered"
    FAILED = "failed"


class SystemTask(StrEnum):
    """The next task for the packet."""

    INTENT_DETECTION = "IntentDetection"
    RESEARCH = "Research"
    GENERATE_DRAFT = "GenerateDraft"
    REFINE = "Refine"
    VALIDATE = "Validate"
    DECISION = "Decision"
    STREAM = "Stream"
    TRIGGER_ACTION = "TriggerAction"
    TOOL_ROUTING = "ToolRouting"
    TOOL_EXECUTION = "ToolExecution"


class ExecutionStatus(StrEnum):
    """The status of the selected tool's call."""

    PENDING = "pending"
    AWAITING_CONFIDENCE = "awaiting_confidence"
    APPROVED = "approved"
    EXECUTED = "executed"
    FAILED = "failed"
    SKIPPED = "skipped"
    USER_DENIED = "user_denied"

    def may_become(self, following: ExecutionStatus) -> bool:
        """Return whether this transition is allowed. Only an approved call can be executed."""
        return following in _ALLOWED_NEXT[self]


# A finished selection (executed, failed, skipped, denied) may be followed by a new one: pending again.
_ALLOWED_NEXT: Final = {
    ExecutionStatus(status): frozenset(map(ExecutionStatus, following.split()))
    for status, following in {
        "pending": "awaiting_confidence skipped user_denied",
        "awaiting_confidence": "approved skipped user_denied",
        "approved": "executed failed skipped user_denied",
        **dict.fromkeys(("executed", "failed", "skipped", "user_denied"), "pending"),
    }.items()
}


@frozen
class Header:
    """The caller, the time and the conversation of the request."""

    packet_id: str
    session_id: str
    created: datetime
    caller: str | None = None
    parent_id: str | None = None  # of the packet that created this one as a subagent


@frozen
class Intent:
    """The detected intent of the request. `tool_routing` is one of the names."""

    name: str | None = None
    confidence: float | None = None
    reasons: tuple[str, ...] = ()


@frozen
class Message:
    """One message of a conversation with a model.

    Fields:
        role: system, user, assistant or tool
        text: text of the message
        tool_calls: of an assistant message, in the OpenAI format
        tool_call_id: of a tool message: the call it answers
        parts: content that is more than text, in the OpenAI format
        by_model: of a user message: a model wrote it, so that it holds no words of the person
    """

    role: str
    text: str
    tool_calls: tuple[JsonObject, ...] = ()
    tool_call_id: str | None = None
    parts: tuple[JsonObject, ...] = ()
    by_model: bool = False


@frozen
class Context:
    """The offered tools (by key), the conversation, and the mode of routing."""

    available_tools: tuple[str, ...] = ()
    history: tuple[Message, ...] = ()
    mode: str | None = None  # one of `Mode`; None if routing has not started
    profile: str | None = None
    working_directory: str | None = None
    words_given: bool = False  # the person's words came beside the request, which a model wrote

    @property
    def message_count(self) -> int:
        return len(self.history)


@frozen
class DataField:
    """A named value that belongs to the request. Each call adds one `tool_result`."""

    key: str
    value: Json
    source: str | None = None  # of a tool result: the server; of an answer: the model
    type: str | None = None  # for example `tool_execution_result`

    def __post_init__(self) -> None:
        if (reason := find_json_problem(self.value)) is not None:
            raise ValueError(f"data field {self.key!r} {reason}")


@frozen
class Content:
    """The user's request, unchanged, and data that belongs to it."""

    original_prompt: str
    data_fields: tuple[DataField, ...] = ()


@frozen
class Reflection:
    """One entry of the reflection log: a stage and its conclusion."""

    at: datetime
    stage: str
    text: str
    confidence: float | None = None


@frozen
class SketchpadEntry:
    """A named note for the next model call, such as `latest_tool_result`."""

    key: str
    text: str
    content_type: str = "text"  # "tool_output" if a tool wrote it


@frozen
class Reasoning:
    """The notes of the stages."""

    reflection_log: tuple[Reflection, ...] = ()
    sketchpad: tuple[SketchpadEntry, ...] = ()


@frozen
class Status:
    """The packet's state and next task."""

    state: PacketState = PacketState.RECEIVED
    next_task: SystemTask | None = SystemTask.INTENT_DETECTION


@frozen
class Selection:
    """A tool selected by a model, with arguments and the model's claimed confidence.

    Fields:
        tool: key of the tool, `server/tool`
        arguments: arguments of the call
        reasoning: the model's reason
        confidence: the model's claim, 0 to 1
        read_only: whether the call only reads; None: not known (yet)
    """

    tool: str
    arguments: JsonObject = field(default_factory=dict[str, Json])
    reasoning: str = ""
    confidence: float = 0.0
    read_only: bool | None = None


@frozen
class Review:
    """A model's review of a selection."""

    approved: bool
    confidence: float
    reasoning: str = ""
    failed: bool = False  # whether the review failed, so that it neither supports nor rejects the selection


@frozen
class ToolResult:
    """The tool's result, or the error."""

    success: bool
    output: Json = None
    error: str | None = None
    milliseconds: int = 0
    tool: str = ""  # the key of the tool that gave the result
    parameters: JsonObject = field(default_factory=dict[str, Json])
    content_type: str = "text"  # of the output: "text", "json", "table", …


@frozen
class Step:
    """One call of this packet, as a model reads it: the arguments and the result."""

    tool: str
    arguments: JsonObject
    success: bool
    text: str  # what the model reads: fenced data, or the error with advice
    call_id: str = ""
    error: str | None = None
    warnings: tuple[str, ...] = ()  # parts of the result that look like instructions
    directive: JsonObject | None = None  # directive for the client, if the tool returns one
    handle: str | None = None  # of a shortened result: the handle for `read_result`
    ran: bool = True  # false: the tool was not called, as in a dry run; `text` says what would happen


@frozen
class ToolRouting:
    """The tool decision, from whether a tool is needed to its result."""

    needs_tool: bool | None = None
    routing_requested: bool = False
    selected_tool: Selection | None = None
    alternative_tools: tuple[Selection, ...] = ()
    review: Review | None = None
    execution_status: ExecutionStatus | None = None
    execution_result: ToolResult | None = None
    reinjection_count: int = 0
    max_reinjections: int = MAX_REINJECTIONS
    steps: tuple[Step, ...] = ()  # all calls so far, in order

    @property
    def worked(self) -> tuple[Step, ...]:
        """The successful calls."""
        return tuple(step for step in self.steps if step.success)

    @property
    def cancelled(self) -> tuple[Step, ...]:
        """The calls denied by a person."""
        return tuple(step for step in self.steps if step.error == ErrorKind.CANCELLED.value)

    @property
    def reinjections_left(self) -> int:
        return max(0, self.max_reinjections - self.reinjection_count)


@frozen
class Packet:
    """One request, with an id that stays the same in all stages.

    Fields:
        header: ids, time and caller
        content: the request, unchanged
        intent: what kind of request it is
        context: the offered tools, the history, the mode and the profile
        reasoning: notes of the stages
        status: state and next task
        tool_routing: the selected tool, its review, and every call with its result
    """

    header: Header
    content: Content
    intent: Intent = field(default_factory=Intent)
    context: Context = field(default_factory=Context)
    reasoning: Reasoning = field(default_factory=Reasoning)
    status: Status = field(default_factory=Status)
    tool_routing: ToolRouting = field(default_factory=ToolRouting)

    __repr__ = build_repr("packet_id", "content.original_prompt", "status.state")

    @property
    def packet_id(self) -> str:
        return self.header.packet_id

    @classmethod
    def start(
        cls,
        prompt: str,
        *,
        session_id: str | None = None,
        caller: str | None = None,
        parent_id: str | None = None,
        history: tuple[Message, ...] = (),
        max_reinjections: int = MAX_REINJECTIONS,
    ) -> Packet:
        """Create a packet for a user request."""
        return cls(
            header=Header(
                packet_id=create_id("pkt"),
                session_id=session_id or create_id("ses"),
                created=utc_now(),
                caller=caller,
                parent_id=parent_id,
            ),
            content=Content(original_prompt=to_valid_text(prompt)),
            context=Context(history=history),
            tool_routing=ToolRouting(max_reinjections=max_reinjections),
        )

    def with_data(self, entry: DataField) -> Packet:
        """Return the packet with a data field added, replacing one with the same key."""
        kept = tuple(old for old in self.content.data_fields if old.key != entry.key)
        return replace(self, content=replace(self.content, data_fields=(*kept, entry)))

    def with_tool_result(self, entry: DataField) -> Packet:
        """Return the packet with the result of another call. Earlier results are kept."""
        fields = (*self.content.data_fields, entry)
        return replace(self, content=replace(self.content, data_fields=fields))

    def with_note(self, entry: SketchpadEntry) -> Packet:
        """Return the packet with a sketchpad entry added, replacing one with the same key."""
        kept = tuple(old for old in self.reasoning.sketchpad if old.key != entry.key)
        return replace(self, reasoning=replace(self.reasoning, sketchpad=(*kept, entry)))

    def with_reflection(self, entry: Reflection) -> Packet:
        """Return the packet with a line added to its reflection log."""
        log = (*self.reasoning.reflection_log, entry)
        return replace(self, reasoning=replace(self.reasoning, reflection_log=log))


class Mode(StrEnum):
    """How a request is answered."""

    STAGED = "staged"  # a light model selects, the prime model reviews and answers
    SINGLE = "single"  # one decision with the shortlisted definitions, then the answer
    SIMPLE = "simple"  # an agent: calls and results until the model answers
    REACT = "react"  # an agent that writes its reasoning before each call
    KEYLESS = "keyless"  # no model


class RouteOutcome(StrEnum):
    """How the routing of a packet ended, or what it waits for."""

    ANSWERED = "answered"
    WAITING = "waiting"  # a call waits for approval
    ASKED = "asked"  # the user must answer a question
    DECLINED = "declined"  # no suitable tool was found, or a person denied the call
    FAILED = "failed"  # everything was tried; the answer is guidance
    HANDED_BACK = "handed_back"  # the model calls tools that the caller provides
    LIMITED = "limited"  # a limit of turns, tokens, seconds or cost was reached
    INTERRUPTED = "interrupted"  # the process that handled it is gone
    LEFT = "left"  # the caller disconnected or the process was stopped, so there is no answer


class GateVerdict(StrEnum):
    """What is done with a selection."""

    GO = "go"
    ASK = "ask"
    DECLINE = "decline"


@frozen
class ParsedSelection:
    """The selecting model's reply, as far as it is readable and matches the offered tools."""

    selection: Selection | None  # None: no tool, or nothing usable
    alternatives: tuple[Selection, ...] = ()
    reasoning: str = ""
    remaining: str = ""  # what remains to be done after this tool, in the model's words
    problem: str = ""  # why nothing was usable; empty if the model wants no tool


@frozen
class Confidence:
    """The confidence in a selection, and its components."""

    claim: float  # claimed by the selecting model
    review: float  # claimed by the reviewing model
    margin: float  # lead over the next tool in the shortlist, 0..1
    score: float  # combined score, 0..1
    calibrated: bool  # whether the score was calibrated with recorded outcomes
    verdict: GateVerdict
    reason: str = ""
    raw: float = 0.0  # score before calibration, stored in a `ConfidenceSample`


@frozen
class ConfidenceSample:
    """One selection with its raw score, and whether it was right."""

    raw: float
    right: bool
    tool: str = ""


@frozen
class MissingArgument:
    """A value that only the user can give."""

    name: str
    description: str = ""
    options: tuple[str, ...] = ()  # the only allowed values, if any


@frozen
class AskingCall:
    """A call whose tool asked a question. It continues with the user's answer."""

    call_id: str
    arguments: JsonObject
    name: str  # of the question, as the tool names it
    schema: JsonObject  # of the answer: a flat object
    state: str | None = None  # the tool's state, returned unchanged
    conversation: str | None = None  # the conversation of the call


@frozen
class Question:
    """A question that the user must answer before routing continues.

    Fields:
        text: the question for the person
        tool: key of the tool that needs the value
        missing: the arguments that are missing
        pending_id: of the call that waits for approval
        need: index in the shortlist's `needs`
        call: if a tool asks during a call
    """

    text: str
    tool: str | None = None
    missing: tuple[MissingArgument, ...] = ()
    pending_id: str | None = None
    need: int = 0
    call: AskingCall | None = None
