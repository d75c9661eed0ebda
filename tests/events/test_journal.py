"""A packet is what its events add up to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.events import (
    AttemptFinished,
    AttemptStarted,
    Event,
    ExecutionStatusChanged,
    IntentDetected,
    PacketEvent,
    PacketReceived,
    PacketReinjected,
    SelectionReviewed,
    ServerStateChanged,
    TaskScheduled,
    ToolResultInjected,
    ToolSelected,
    ToolsOffered,
    decode,
    encode,
    find_unfinished_attempts,
    rebuild_packet,
)
from fingerpost.records import (
    Attempt,
    ExecutionStatus,
    Intent,
    Packet,
    PacketState,
    Review,
    Selection,
    ServerState,
    SystemTask,
    ToolResult,
    utc_now,
)
from tests.kit.event_strategies import is_allowed, packet_events
from tests.kit.tables import table
from tests.requirements import proves


def create_request_events(packet: Packet) -> list[PacketEvent]:
    """One request from its arrival to its answer, with one tool used."""
    identity = packet.packet_id
    return [
        PacketReceived.from_packet(packet),
        IntentDetected(
            packet_id=identity, intent=Intent(name="tool_routing", confidence=0.9), needs_tool=True
        ),
        ToolsOffered(packet_id=identity, tools=("files/read", "web/search")),
        ToolSelected(
            packet_id=identity,
            selection=Selection(
                tool="files/read", arguments={"path": "a.md"}, reasoning="a path", confidence=0.8
            ),
            alternatives=(Selection(tool="web/search"),),
        ),
        ExecutionStatusChanged(packet_id=identity, status=ExecutionStatus.PENDING),
        ExecutionStatusChanged(packet_id=identity, status=ExecutionStatus.AWAITING_CONFIDENCE),
        SelectionReviewed(
            packet_id=identity, review=Review(approved=True, confidence=0.9, reasoning="fits the request")
        ),
        ExecutionStatusChanged(packet_id=identity, status=ExecutionStatus.APPROVED, reason="0.90 ≥ 0.70"),
        ExecutionStatusChanged(packet_id=identity, status=ExecutionStatus.EXECUTED),
        ToolResultInjected(
            packet_id=identity, result=ToolResult(success=True, output="text", milliseconds=4)
        ),
        PacketReinjected(packet_id=identity),
        TaskScheduled(packet_id=identity, state=PacketState.ANSWERED),
    ]


@proves("H23", "A10", "A11")
def test_a_packet_is_rebuilt_from_its_stored_events_alone() -> None:
    packet = Packet.start("what does a.md say?")
    live = packet
    for event in create_request_events(packet):
        live = event.apply(live)
    stored: list[Event] = [decode(encode(event)) for event in create_request_events(packet)]
    stored.insert(3, ServerStateChanged(server="x", previous=ServerState.READY, state=ServerState.DOWN))
    rebuilt = rebuild_packet(stored)
    assert rebuilt is not None
    assert rebuilt.tool_routing == live.tool_routing
    assert rebuilt.content == live.content
    assert rebuilt.status.state is PacketState.ANSWERED
    assert rebuilt.tool_routing.reinjection_count == 1
    assert [entry.key for entry in rebuilt.content.data_fields] == ["tool_result"]
    assert [(note.key, note.text) for note in rebuilt.reasoning.sketchpad] == [("latest_tool_result", "text")]


@proves("A12")
def test_selection_review_decision_and_execution_are_in_the_reflection_log() -> None:
    packet = rebuild_packet(create_request_events(Packet.start("x")))
    assert packet is not None
    assert [(line.stage, line.text) for line in packet.reasoning.reflection_log] == [
        ("intent", "tool_routing: needs a tool"),
        ("selection", "chose files/read: a path"),
        ("decision", "pending"),
        ("decision", "awaiting_confidence"),
        ("review", "agrees at 0.90: fits the request"),
        ("decision", "ready to call: 0.90 ≥ 0.70"),
        ("decision", "executed"),
        ("execution", "succeeded in 4 ms"),
    ]


@proves("A12")
def test_what_must_be_accounted_for_is_marked_for_the_audit_trail() -> None:
    audited = {event.kind for event in create_request_events(Packet.start("x")) if event.audited}
    assert audited == {
        "tool_selected",
        "selection_reviewed",
        "execution_status_changed",
        "tool_result_injected",
    }


@pytest.mark.slow
@proves("H23")
@settings(max_examples=10)
@given(st.lists(packet_events, max_size=12))
def test_any_history_a_packet_can_have_survives_storage(wishes: list[PacketEvent]) -> None:
    history: list[PacketEvent] = [PacketReceived.from_packet(Packet.start("begin"))]
    packet = rebuild_packet(history)
    assert packet is not None
    for text in wishes:
        event = decode(
            encode(text).replace(b'"packet_id":"pkt_1"', f'"packet_id":"{packet.packet_id}"'.encode())
        )
        assert isinstance(event, PacketEvent)
        if not isinstance(event, PacketReceived) and is_allowed(packet, event):
            packet = event.apply(packet)
            history.append(event)
    assert rebuild_packet(decode(encode(event)) for event in history) == packet


@proves("A6")
@table("status", [s for s in ExecutionStatus if s is not ExecutionStatus.PENDING])
def test_an_execution_begins_pending_and_nowhere_else(status: ExecutionStatus) -> None:
    packet = Packet.start("x")
    with pytest.raises(ValueError, match="cannot go from nothing"):
        ExecutionStatusChanged(packet_id=packet.packet_id, status=status).apply(packet)


@proves("A11")
def test_a_packet_goes_round_only_so_often() -> None:
    packet = Packet.start("x", max_reinjections=2)
    again = PacketReinjected(packet_id=packet.packet_id)
    packet = again.apply(again.apply(packet))
    with pytest.raises(ValueError, match="already reinjected 2 times"):
        again.apply(packet)


@proves("A14")
def test_the_next_task_is_part_of_the_packet() -> None:
    packet = Packet.start("x")
    for task in SystemTask:
        event = TaskScheduled(packet_id=packet.packet_id, state=PacketState.PROCESSING, next_task=task)
        assert event.apply(packet).status.next_task is task


def test_a_journal_without_a_beginning_gives_no_packet() -> None:
    assert rebuild_packet([TaskScheduled(packet_id="pkt_9", state=PacketState.FAILED)]) is None


def create_attempt_started(number: int) -> AttemptStarted:
    return AttemptStarted(call_id="cal_1", tool="t", number=number, call_fingerprint="f", permit="p")


def create_attempt_finished(number: int) -> AttemptFinished:
    attempt = Attempt(tool="t", number=number, began=utc_now(), milliseconds=1)
    return AttemptFinished(call_id="cal_1", attempt=attempt)


@proves("F35")
def test_an_attempt_that_began_again_under_the_same_number_and_never_ended_is_told() -> None:
    assert (
        find_unfinished_attempts(
            [
                create_attempt_started(1),
                create_attempt_finished(1),
                create_attempt_started(2),
                create_attempt_finished(2),
            ]
        )
        == []
    )
    again = create_attempt_started(1)
    assert find_unfinished_attempts([create_attempt_started(1), create_attempt_finished(1), again]) == [again]
