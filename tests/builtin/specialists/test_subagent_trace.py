"""A subagent in the traces of its parent: drawn inside of it, on its time axis, bounded."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import anyio.to_thread
import pytest
from rich.console import Console

from fingerpost.analytics.requests import fold_events
from fingerpost.events import (
    CallFinished,
    Event,
    PacketReceived,
    RouteEnded,
    SubagentBegan,
    SubagentEnded,
)
from fingerpost.records import Packet, RouteOutcome, utc_now
from fingerpost.store.journal import JournalEntry
from fingerpost.surfaces.cli.explanation import Timeline
from fingerpost.surfaces.cli.trace import draw_trace
from fingerpost.testing.models import ScriptLine
from tests.builtin.specialists.test_subagents import (
    WISH,
    ask,
    begin,
    by_prompt,
    child_of,
    open_subagent_router,
)
from tests.kit.command_line import CommandLine
from tests.requirements import proves
from tests.surfaces.cli.conftest import person

__all__ = ["person"]


@pytest.mark.process
@proves("U11")
async def test_the_command_draws_children_inside_of_their_parents(person: CommandLine) -> None:
    def say(prompt: str, turn: int) -> ScriptLine:
        if prompt == WISH:
            return begin(f"{WISH} in the notes") if turn == 1 else "Parent's word."
        if prompt.endswith("notes"):
            return begin("count them") if turn == 1 else "Child's word."
        return "Grandchild's word."

    async with open_subagent_router(person.home, by_prompt(say)) as router:
        route = await ask(router)
        child = child_of(route)
    drawn = await anyio.to_thread.run_sync(lambda: person.runs("trace", route.packet_id))
    assert drawn.returncode == 0, drawn.stderr
    lines = drawn.stdout.splitlines()

    def indent(words: str) -> int:
        (line,) = [line for line in lines if words in line]
        return len(line) - len(line.lstrip("│├└─ "))

    assert indent(f"asked {WISH} in the notes") > indent(f"subagent {child}")
    assert indent("asked count them") > indent(f"asked {WISH} in the notes")
    alone = await anyio.to_thread.run_sync(lambda: person.runs("trace", child))
    assert f"on behalf of {route.packet_id}" in alone.stdout
    output = await anyio.to_thread.run_sync(lambda: person.runs("trace", route.packet_id, "--json"))
    assert {event["kind"] for event in json.loads(output.stdout)} >= {"subagent_began", "subagent_ended"}


def create_received(packet: Packet) -> Event:
    return PacketReceived.from_packet(packet)


def render_tree(tree: object) -> str:
    console = Console(width=200, record=True, file=StringIO())
    console.print(tree)
    return console.export_text()


@proves("U11")
def test_one_that_went_on_is_drawn_once_and_one_that_is_not_known_is_named() -> None:
    parent, child = Packet.start("parent"), Packet.start("child")
    again = SubagentBegan(packet_id=parent.packet_id, child=child.packet_id, request="child")
    other = SubagentBegan(packet_id=parent.packet_id, child="pkt_other", request="other")
    events = [create_received(parent), again, again, other]
    text = render_tree(draw_trace(parent.packet_id, events, {child.packet_id: [create_received(child)]}))
    assert text.count("asked child") == 1
    assert "fingerpost trace pkt_other" in text


@proves("U11")
def test_a_packet_that_names_itself_as_its_child_is_drawn_to_an_end() -> None:
    packet = Packet.start("loop")
    own = SubagentBegan(packet_id=packet.packet_id, child=packet.packet_id, request="loop")
    text = render_tree(
        draw_trace(
            packet.packet_id,
            [create_received(packet), own],
            {packet.packet_id: [create_received(packet), own]},
        )
    )
    assert text.count("asked loop") == 2


@proves("U11")
def test_the_time_axis_holds_subagents_and_leaves_out_the_time_of_a_person() -> None:
    packet, began = Packet.start("parent"), utc_now()
    minute = timedelta(minutes=1)
    ended = SubagentEnded(
        packet_id=packet.packet_id, child="pkt_1", outcome=RouteOutcome.LIMITED, milliseconds=500.0,
        tokens=12, at=began + timedelta(seconds=1),
    )  # fmt: skip
    asked = RouteEnded(
        packet_id=packet.packet_id, outcome=RouteOutcome.ASKED, milliseconds=1.0, at=began + 2 * minute
    )
    after = CallFinished(
        packet_id=packet.packet_id, call_id="cal_1", tool="a/b", success=True, at=began + 60 * minute
    )
    found = Timeline.from_events(
        [PacketReceived(packet=packet, packet_id=packet.packet_id, at=began), ended, asked, after]
    )
    (span,) = found.spans
    assert (span.length, span.failed) == (500.0, True) and "12 tokens" in span.note
    assert found.length == 120_000 and found.waited == 58 * 60_000


@proves("U11")
def test_a_line_knows_its_parent_and_its_children_each_once() -> None:
    packet = Packet.start("x", parent_id="pkt_p")
    events: list[Event] = [create_received(packet)]
    events += [
        SubagentBegan(packet_id=packet.packet_id, child=f"pkt_{number % 60}", request="")
        for number in range(120)
    ]
    line = fold_events({}, [JournalEntry(number, event) for number, event in enumerate(events, 1)])[
        packet.packet_id
    ]
    assert line.parent == "pkt_p"
    assert len(line.children) == len(set(line.children)) == 50
