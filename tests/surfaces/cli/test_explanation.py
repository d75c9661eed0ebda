"""The time axis of an explained answer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from fingerpost.events import (
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    Event,
    ModelAnswered,
    RouteBegan,
)
from fingerpost.records import Attempt, Decision, Mode
from fingerpost.surfaces.cli.explanation import Timeline, draw_bar

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(milliseconds: float) -> datetime:
    return BEGAN + timedelta(milliseconds=milliseconds)


def began() -> Event:
    return RouteBegan(packet_id="pkt_1", at=BEGAN, mode=Mode.STAGED)


def model(end: float, milliseconds: float) -> Event:
    return ModelAnswered(
        packet_id="pkt_1", at=after(end), role="prime", purpose="answer", model="m", milliseconds=milliseconds
    )


def tool(start: float, milliseconds: float) -> Event:
    attempt = Attempt(tool="time/now", number=1, began=after(start), milliseconds=milliseconds)
    return AttemptFinished(
        packet_id="pkt_1", call_id="cal_1", at=after(start + milliseconds), attempt=attempt
    )


def create_approval_events(start: float, end: float, name: str = "apr_1") -> tuple[Event, Event]:
    asked = ApprovalRequested(
        packet_id="pkt_1",
        call_id="cal_1",
        at=after(start),
        pending_id=name,
        tool="t",
        call_fingerprint="f",
        reason="r",
    )
    decided = ApprovalDecided(
        packet_id="pkt_1",
        call_id="cal_1",
        at=after(end),
        pending_id=name,
        decision=Decision.APPROVED,
        decided_by="dana",
    )
    return asked, decided


def test_the_time_a_person_took_is_cut_out_of_the_axis() -> None:
    asked, decided = create_approval_events(100, 60_100)
    found = Timeline.from_events(
        [began(), model(100, 80), asked, decided, tool(60_110, 40), model(60_300, 100)]
    )
    assert [(span.name, round(span.start), round(span.length)) for span in found.spans] == [
        ("answer (m)", 20, 80),
        ("time/now", 110, 40),
        ("answer (m)", 200, 100),
    ]
    assert round(found.length) == 300
    assert round(found.waited) == 60_000


def test_what_runs_side_by_side_is_counted_once() -> None:
    found = Timeline.from_events([began(), tool(0, 100), tool(50, 100), tool(300, 10)])
    assert round(found.sum_stage("tool")) == 160
    assert found.sum_stage("model") == 0


def test_two_questions_to_a_person_at_the_same_time_are_one_wait() -> None:
    first, second = create_approval_events(10, 1000, "apr_1"), create_approval_events(20, 1500, "apr_2")
    found = Timeline.from_events([began(), first[0], second[0], first[1], second[1], tool(1500, 5)])
    assert round(found.waited) == 1490
    assert round(found.spans[0].start) == 10


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from(["model", "tool", "wait"]))),
)
@example([(0.0, 1.1125369292536007e-308, "model")])  # too short to divide by
def test_every_bar_lies_on_the_axis(things: list[tuple[float, float, str]]) -> None:
    events: list[Event] = [began()]
    for number, (start, length, kind) in enumerate(things):
        match kind:
            case "model":
                events.append(model(start + length, length))
            case "tool":
                events.append(tool(start, length))
            case _:
                events += create_approval_events(start, start + length, f"apr_{number}")
    found = Timeline.from_events(sorted(events, key=lambda event: event.at))
    for span in found.spans:
        assert span.start >= 0
        assert span.start + span.length <= found.length + 1e-6
        drawn = draw_bar(span, found.length, coloured=False, width=40).plain
        assert 1 <= len(drawn) <= 40
        assert drawn.strip()
    for stage in ("model", "tool"):
        assert found.sum_stage(stage) <= found.length + 1e-6
