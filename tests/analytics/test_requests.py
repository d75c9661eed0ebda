"""A line for each request: what its events add up to, however they come."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fingerpost.analytics.records import PacketLine
from fingerpost.analytics.requests import fold_events
from fingerpost.events import CallFinished, Event, RouteEnded, RouteResumed
from fingerpost.records import Decision, ErrorKind, NeedVerdict, RouteOutcome
from fingerpost.store.journal import JournalEntry
from tests.kit.journal_events import (
    call,
    create_decided,
    create_narrowed,
    create_requested,
    number_entries,
    request,
)


def line_of(packet_id: str, *events: Event) -> PacketLine:
    return fold_events({}, number_entries(events))[packet_id]


def test_a_request_adds_up() -> None:
    line = line_of(
        "pkt_1",
        *request("pkt_1", within=call("cal_1", packet_id="pkt_1", fallback="clock/now"), profile="ops"),
    )
    assert (line.kind, line.state, line.outcome) == ("request", "ended", "answered")
    assert (line.caller, line.conversation, line.mode, line.profile) == ("dana", "ses_pkt_1", "staged", "ops")
    assert (line.considered, line.offered, line.need, line.language) == (40, 2, "tool", "en")
    assert line.tools == ("time/now", "clock/now")
    assert (line.fallbacks, line.failures) == (1, 1)
    assert (line.model_calls, line.prompt_tokens, line.completion_tokens) == (1, 300, 20)
    assert (line.milliseconds, line.saved_tokens) == (120.0, 3_800)
    assert (line.seq, line.last_seq) == (1, 14)


def test_a_request_that_was_only_narrowed_is_over() -> None:
    line = line_of("pkt_1", *request("pkt_1", mode=None, outcome=None))
    assert (line.state, line.outcome, line.milliseconds) == ("ended", "narrowed", 4.0)
    assert line.saved_tokens is None  # there was no model to save them


def test_a_request_on_its_way_is_running() -> None:
    line = line_of("pkt_1", *request("pkt_1", outcome=None, need=NeedVerdict.NONE))
    assert (line.state, line.outcome, line.need, line.offered) == ("running", None, "none", 0)


def test_a_request_waits_for_a_person_and_goes_on() -> None:
    waiting = request(
        "pkt_1", outcome=RouteOutcome.WAITING, within=[create_requested("cal_1", "pen_1", packet_id="pkt_1")]
    )
    line = line_of("pkt_1", *waiting)
    assert (line.state, line.pending_id) == ("waiting", "pen_1")
    approved = [*waiting, create_decided("cal_1", "pen_1", Decision.APPROVED, packet_id="pkt_1")]
    line = line_of("pkt_1", *approved)
    assert (line.state, line.outcome, line.pending_id) == ("waiting", "approved", None)
    approved.append(RouteResumed(packet_id="pkt_1", pending_id="pen_1"))
    line = line_of("pkt_1", *approved)
    assert (line.state, line.outcome) == ("running", None)
    ended = RouteEnded(packet_id="pkt_1", outcome=RouteOutcome.ANSWERED, milliseconds=50.0)
    line = line_of("pkt_1", *approved, ended)
    assert (line.state, line.outcome, line.milliseconds) == ("ended", "answered", 170.0)


def test_a_rejected_request_is_over() -> None:
    events = [
        *request("pkt_1", outcome=None, within=[create_requested("cal_1", "pen_1", packet_id="pkt_1")]),
        create_decided("cal_1", "pen_1", Decision.REJECTED, packet_id="pkt_1"),
    ]
    line = line_of("pkt_1", *events)
    assert (line.state, line.outcome) == ("ended", "declined")


def test_a_call_of_its_own_is_a_line() -> None:
    line = line_of("cal_1", *call("cal_1", error=ErrorKind.TIMEOUT))
    assert (line.kind, line.prompt, line.outcome, line.state) == ("call", "time/now", "timeout", "ended")
    assert (line.tools, line.failures, line.milliseconds) == (("time/now",), 1, 32.0)


def test_a_call_of_its_own_waits_for_a_person() -> None:
    begun = call("cal_1")[:2]
    stopped = CallFinished(
        packet_id="cal_1",
        call_id="cal_1",
        tool="time/now",
        success=False,
        error=ErrorKind.AUTHORIZATION_REQUIRED,
    )
    line = line_of("cal_1", *begun, create_requested("cal_1", "pen_1"), stopped)
    assert (line.state, line.pending_id, line.outcome) == ("waiting", "pen_1", None)
    line = line_of(
        "cal_1",
        *begun,
        create_requested("cal_1", "pen_1"),
        stopped,
        create_decided("cal_1", "pen_1", Decision.REJECTED),
    )
    assert (line.state, line.outcome) == ("ended", "cancelled")


def test_a_call_within_a_request_is_no_line() -> None:
    assert fold_events({}, number_entries(call("cal_1", packet_id="pkt_1"))) == {}


def _journal(seed: int) -> list[JournalEntry]:
    """Several packets, their events mixed as happens when they run side by side."""
    chosen = random.Random(seed)
    streams = [
        request("pkt_1", within=call("cal_1", packet_id="pkt_1")),
        request("pkt_2", outcome=RouteOutcome.FAILED, within=[create_narrowed("pkt_2")]),
        call("cal_2", fallback="clock/now"),
        [
            *call("cal_3")[:2],
            create_requested("cal_3", "pen_3"),
            create_decided("cal_3", "pen_3", Decision.APPROVED),
        ],
    ]
    events: list[Event] = []
    while any(streams):
        events.append(chosen.choice([stream for stream in streams if stream]).pop(0))
    return number_entries(events)


@given(seed=st.integers(0, 1000), cuts=st.lists(st.integers(0, 40), max_size=6), again=st.integers(0, 10))
def test_any_chunking_and_any_repetition_give_the_same_lines(seed: int, cuts: list[int], again: int) -> None:
    journal = _journal(seed)
    whole = fold_events({}, journal)
    lines: dict[str, PacketLine] = {}
    edges = [0, *sorted(cuts), len(journal)]
    for start, end in pairwise(edges):
        lines |= fold_events(lines, journal[max(0, start - again) : end])
    assert lines == whole
    assert fold_events(lines, journal) == {}
    assert set(whole) == {"pkt_1", "pkt_2", "cal_2", "cal_3"}
