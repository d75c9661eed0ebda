"""The packet: its sections, its JSON, and the steps its execution may take."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.records import DataField, ExecutionStatus, Packet, SystemTask, find_json_problem
from fingerpost.records.codec import from_json, to_json
from tests.kit.record_strategies import json_values, packets
from tests.kit.tables import table
from tests.requirements import proves


@pytest.mark.slow
@proves("A1")
@settings(max_examples=8)
@given(packets)
def test_a_packet_goes_to_json_and_back_without_loss(packet: Packet) -> None:
    assert from_json(Packet, to_json(packet)) == packet


@proves("A1")
def test_a_packet_has_the_seven_sections_and_an_id_of_its_own() -> None:
    packet = Packet.start("what time is it?", session_id="ses_1")
    sections = json.loads(to_json(packet))
    assert list(sections) == [
        "header",
        "content",
        "intent",
        "context",
        "reasoning",
        "status",
        "tool_routing",
    ]
    assert sections["header"]["packet_id"] == packet.packet_id
    assert sections["header"]["session_id"] == "ses_1"
    assert sections["content"]["original_prompt"] == "what time is it?"
    assert Packet.start("again").packet_id != packet.packet_id


def test_packet_ids_sort_by_the_time_they_were_made() -> None:
    ids = [Packet.start("x").packet_id[:16] for _ in range(50)]
    assert ids == sorted(ids)


def test_a_packet_cannot_be_changed() -> None:
    packet = Packet.start("hello")
    with pytest.raises(dataclasses.FrozenInstanceError):
        packet.header.caller = "me"  # pyright: ignore[reportAttributeAccessIssue]


def test_half_a_character_in_a_prompt_is_replaced_not_refused() -> None:
    packet = Packet.start("broken \ud83d emoji")
    assert from_json(Packet, to_json(packet)) == packet
    assert packet.content.original_prompt == "broken \ufffd emoji"


def test_a_second_data_field_of_the_same_key_replaces_the_first() -> None:
    packet = Packet.start("x").with_data(DataField(key="k", value=1)).with_data(DataField(key="k", value=2))
    assert [(entry.key, entry.value) for entry in packet.content.data_fields] == [("k", 2)]


@proves("A14")
def test_the_ten_system_tasks_have_their_names() -> None:
    assert [task.value for task in SystemTask] == [
        "IntentDetection",
        "Research",
        "GenerateDraft",
        "Refine",
        "Validate",
        "Decision",
        "Stream",
        "TriggerAction",
        "ToolRouting",
        "ToolExecution",
    ]


@proves("A6")
@given(st.lists(st.sampled_from(ExecutionStatus), max_size=30))
def test_nothing_is_executed_that_was_not_approved_just_before(wishes: list[ExecutionStatus]) -> None:
    status = ExecutionStatus.PENDING
    for text in wishes:
        if status.may_become(text):
            if text in (ExecutionStatus.EXECUTED, ExecutionStatus.FAILED):
                assert status is ExecutionStatus.APPROVED
            if text is ExecutionStatus.APPROVED:
                assert status is ExecutionStatus.AWAITING_CONFIDENCE
            status = text


@proves("A6")
def test_every_status_can_be_left() -> None:
    for status in ExecutionStatus:
        assert any(status.may_become(other) for other in ExecutionStatus)
        assert not status.may_become(status)


@given(json_values)
def test_every_ordinary_json_value_may_be_carried(value: object) -> None:
    assert find_json_problem(value) is None


def nest_objects(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@proves("F13", "F14")
@table(
    ("value", "reason"),
    [
        (math.nan, "nan"),
        ([math.inf], "inf"),
        pytest.param(10**5000, "digits", id="integer"),
        pytest.param(nest_objects(10_000), "levels deep", id="deep"),
        ({1: 2}, "not text"),
        ({"a": "\ud800"}, "Unicode"),
        ({"a": {1, 2}}, "a set"),
    ],
)
def test_what_json_cannot_say_is_refused_with_the_reason(value: object, reason: str) -> None:
    assert reason in (find_json_problem(value) or "")
    with pytest.raises(ValueError, match=reason):
        DataField(key="k", value=value)  # pyright: ignore[reportArgumentType]
