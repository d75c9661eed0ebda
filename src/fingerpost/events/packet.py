"""Events of a packet, and rebuilding a packet from its events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace

from fingerpost.events.base import Event, StepEvent
from fingerpost.events.call import AttemptFinished, AttemptStarted
from fingerpost.frozen import frozen
from fingerpost.records import (
    DataField,
    ExecutionStatus,
    Intent,
    Json,
    Packet,
    PacketState,
    Reflection,
    Review,
    Selection,
    SketchpadEntry,
    Status,
    Step,
    SystemTask,
    ToolResult,
)
from fingerpost.records.codec import to_plain


@frozen
class PacketEvent(StepEvent):
    """An event of one packet."""

    def __post_init__(self) -> None:
        if self.packet_id is None:
            raise ValueError(f"{self.kind} needs the id of its packet")
        Event.__post_init__(self)

    @abstractmethod
    def apply(self, packet: Packet) -> Packet:
        """Return the packet after this event."""
        raise NotImplementedError

    def reflect(self, packet: Packet, stage: str, text: str, confidence: float | None = None) -> Packet:
        """Return the packet with this event in its reflection log."""
        entry = Reflection(at=self.at, stage=stage, text=text, confidence=confidence)
        return packet.with_reflection(entry)


@frozen
class PacketReceived(PacketEvent):
    """A request was received."""

    packet: Packet

    @classmethod
    def from_packet(cls, packet: Packet) -> PacketReceived:
        return cls(packet_id=packet.packet_id, packet=packet, at=packet.header.created)

    def apply(self, packet: Packet) -> Packet:
        return self.packet

    def summary(self) -> str:
        return self.packet.content.original_prompt


@frozen
class IntentDetected(PacketEvent):
    """The intent of the request, and whether it needs a tool (None: unclear)."""

    intent: Intent
    needs_tool: bool | None

    def apply(self, packet: Packet) -> Packet:
        routing = replace(
            packet.tool_routing, needs_tool=self.needs_tool, routing_requested=self.needs_tool is not False
        )
        packet = replace(packet, intent=self.intent, tool_routing=routing)
        return self.reflect(packet, "intent", self.summary(), self.intent.confidence)

    def summary(self) -> str:
        need = {True: "needs a tool", False: "needs no tool", None: "may need a tool"}[self.needs_tool]
        return f"{self.intent.name or 'no intent'}: {need}"


@frozen
class ToolsOffered(PacketEvent):
    """The tools offered to the model for this request, as listed."""

    tools: tuple[str, ...]
    # Those of `tools` that were offered in an earlier turn and not found for this request.
    kept: tuple[str, ...] = ()

    def apply(self, packet: Packet) -> Packet:
        return replace(packet, context=replace(packet.context, available_tools=self.tools))

    def summary(self) -> str:
        kept = f" (kept from earlier turns: {', '.join(self.kept)})" if self.kept else ""
        return (", ".join(self.tools) or "no tool") + kept


@frozen
class ToolSelected(PacketEvent, audited=True):
    """A tool was selected (None: the model wants none)."""

    selection: Selection | None
    alternatives: tuple[Selection, ...] = ()
    beside: tuple[Selection, ...] = ()  # further tools selected to run in parallel

    def apply(self, packet: Packet) -> Packet:
        routing = replace(
            packet.tool_routing,
            selected_tool=self.selection,
            alternative_tools=self.alternatives,
            review=None,
            execution_result=None,
        )
        confidence = self.selection.confidence if self.selection else None
        return self.reflect(replace(packet, tool_routing=routing), "selection", self.summary(), confidence)

    def summary(self) -> str:
        if self.selection is None:
            return "chose no tool"
        tools = ", ".join(chosen.tool for chosen in (self.selection, *self.beside))
        return f"chose {tools}: {self.selection.reasoning}".rstrip(": ")


@frozen
class SelectionReviewed(PacketEvent, audited=True):
    """The result of a second model's review of the selection."""

    review: Review

    def apply(self, packet: Packet) -> Packet:
        packet = replace(packet, tool_routing=replace(packet.tool_routing, review=self.review))
        return self.reflect(packet, "review", self.summary(), self.review.confidence)

    def summary(self) -> str:
        verdict = "agrees" if self.review.approved else "disagrees"
        return f"{verdict} at {self.review.confidence:.2f}: {self.review.reasoning}".rstrip(": ")


@frozen
class ExecutionStatusChanged(PacketEvent, audited=True):
    """The execution status changed."""

    status: ExecutionStatus
    reason: str = ""

    def apply(self, packet: Packet) -> Packet:
        before = packet.tool_routing.execution_status
        first = before is None and self.status is ExecutionStatus.PENDING
        if not first and not (before is not None and before.may_become(self.status)):
            raise ValueError(f"execution cannot go from {before or 'nothing'} to {self.status}")
        routing = replace(packet.tool_routing, execution_status=self.status)
        return self.reflect(replace(packet, tool_routing=routing), "decision", self.summary())

    def summary(self) -> str:
        # The status `approved` precedes the policy's decision; a person's approval is `approval_decided`.
        status = "ready to call" if self.status is ExecutionStatus.APPROVED else self.status
        return f"{status}: {self.reason}".rstrip(": ")


@frozen
class ToolResultInjected(PacketEvent, audited=True):
    """The tool's result was added to the packet."""

    result: ToolResult
    step: Step | None = None  # the call as a model reads it, if one answers

    def apply(self, packet: Packet) -> Packet:
        steps = packet.tool_routing.steps + (() if self.step is None else (self.step,))
        routing = replace(packet.tool_routing, execution_result=self.result, steps=steps)
        packet = replace(packet, tool_routing=routing)
        result = self.result
        if not result.tool and self.step is not None:  # as written by older versions
            result = replace(result, tool=self.step.tool, parameters=self.step.arguments)
        value: Json = to_plain(result)
        source = result.tool.partition("/")[0] or None
        entry = DataField(key="tool_result", value=value, source=source, type="tool_execution_result")
        packet = packet.with_tool_result(entry)
        text = result.error if result.error is not None else str(result.output)
        note = SketchpadEntry(key="latest_tool_result", text=text, content_type="tool_output")
        packet = packet.with_note(note)
        return self.reflect(packet, "execution", self.summary())

    def summary(self) -> str:
        if self.step is not None and not self.step.ran and self.result.success:
            return "nothing was called (dry run)"
        outcome = "succeeded" if self.result.success else f"failed: {self.result.error or 'no reason given'}"
        return f"{outcome} in {self.result.milliseconds} ms"


@frozen
class PacketReinjected(PacketEvent):
    """The packet returned to the start of the pipeline with new information."""

    def apply(self, packet: Packet) -> Packet:
        count = packet.tool_routing.reinjection_count + 1
        if count > packet.tool_routing.max_reinjections:
            raise ValueError(f"packet was already reinjected {packet.tool_routing.max_reinjections} times")
        return replace(packet, tool_routing=replace(packet.tool_routing, reinjection_count=count))


@frozen
class TaskScheduled(PacketEvent):
    """The next task for the packet (None: it is finished)."""

    state: PacketState
    next_task: SystemTask | None = None

    def apply(self, packet: Packet) -> Packet:
        return replace(packet, status=Status(state=self.state, next_task=self.next_task))

    def summary(self) -> str:
        return f"{self.state}, next {self.next_task or 'nothing'}"


def rebuild_packet(events: Iterable[Event]) -> Packet | None:
    """Return the packet after all these events, or None if none of them creates one."""
    packet: Packet | None = None
    for event in events:
        if isinstance(event, PacketReceived):
            packet = event.packet
        elif isinstance(event, PacketEvent) and packet is not None and event.packet_id == packet.packet_id:
            packet = event.apply(packet)
    return packet


def find_unfinished_attempts(events: Iterable[Event]) -> list[AttemptStarted]:
    """Return attempts without an end event. It is unknown whether they took effect.

    The order matters: a resumed call numbers its attempts from the start under the same id.
    """
    started: dict[tuple[str, str, int], AttemptStarted] = {}
    for event in events:
        if isinstance(event, AttemptStarted):
            started[event.call_id, event.tool, event.number] = event
        elif isinstance(event, AttemptFinished):
            started.pop((event.call_id, event.attempt.tool, event.attempt.number), None)
    return list(started.values())
