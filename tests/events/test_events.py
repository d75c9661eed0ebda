"""Events: their JSON, their versions, and what they never hold."""

from __future__ import annotations

import dataclasses
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fingerpost import events as vocabulary
from fingerpost.events import (
    Event,
    PacketReceived,
    ServerStateChanged,
    ToolResultInjected,
    ToolSelected,
    UnknownEvent,
    decode,
    encode,
)
from fingerpost.records import DataField, Packet, Selection, ServerState, ToolResult
from fingerpost.redaction import MASK, register_secret
from tests.kit.event_strategies import packet_events
from tests.kit.tables import table
from tests.requirements import proves

SECRET = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"  # the shape of a token, not one


@proves("H25")
@given(packet_events)
def test_an_event_goes_to_json_and_back_without_loss(event: Event) -> None:
    assert decode(encode(event)) == event


@proves("H25")
def test_every_kind_of_event_is_public_and_named_after_its_class() -> None:
    for kind, event_type in Event.kinds.items():
        assert kind == "".join(f"_{c.lower()}" if c.isupper() else c for c in event_type.__name__).strip("_")
        assert getattr(vocabulary, event_type.__name__) is event_type
        assert event_type.version >= 1


@proves("H25")
def test_an_event_of_a_newer_fingerpost_is_kept_as_it_was_written() -> None:
    event = ServerStateChanged(server="a", previous=ServerState.IDLE, state=ServerState.READY)
    line = encode(event).replace(b'"v":1', b'"v":99').replace(b'"server":"a"', b'"server":{"name":"a"}')
    unknown = decode(line)
    assert isinstance(unknown, UnknownEvent)
    assert (unknown.unknown_kind, unknown.unknown_version) == ("server_state_changed", 99)
    assert unknown.at == event.at
    assert decode(encode(unknown)) == unknown
    assert encode(unknown) == line


@table("line", [b"[]", b"{}", b'{"kind":1,"v":1,"event":{}}', b"not json", b'"x"'])
def test_a_line_that_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        decode(line)


@proves("F49", "A12")
def test_a_secret_is_masked_before_the_event_exists() -> None:
    packet = Packet.start(f"use {SECRET} please").with_data(DataField(key="note", value=[{"x": SECRET}]))
    register_secret("correct horse battery")
    made = [
        PacketReceived.from_packet(packet),
        ToolSelected(
            packet_id=packet.packet_id,
            selection=Selection(tool="t", arguments={"password": "hunter22", "text": SECRET}),
        ),
        ToolResultInjected(
            packet_id=packet.packet_id,
            result=ToolResult(success=False, error=f"denied for {SECRET}: correct horse battery"),
        ),
        ServerStateChanged(
            server="s", previous=ServerState.READY, state=ServerState.DOWN, reason=f"401 for Bearer {SECRET}"
        ),
    ]
    for event in made:
        seen = f"{event!r} {event.summary()} {encode(event).decode()}"
        assert SECRET not in seen
        assert "hunter22" not in seen
        assert "correct horse battery" not in seen
        assert MASK in seen


def test_an_event_without_secrets_keeps_the_very_same_values() -> None:
    packet = Packet.start("nothing secret")
    assert PacketReceived.from_packet(packet).packet is packet


def test_a_packet_event_needs_its_packet() -> None:
    with pytest.raises(ValueError, match="needs the id of its packet"):
        ToolSelected(selection=None)


def test_events_are_frozen() -> None:
    event = ServerStateChanged(server="a", previous=ServerState.IDLE, state=ServerState.READY)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.server = "b"  # pyright: ignore[reportAttributeAccessIssue]


@given(st.binary(max_size=60))
def test_no_bytes_make_the_decoder_fail_in_another_way(line: bytes) -> None:
    try:
        event = decode(line)
    except ValueError:
        return
    typing.assert_type(event, Event)
