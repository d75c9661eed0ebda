"""The console's modules alone: streams read in pieces, lists merged, texts compared, journeys built."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser

from tests.kit.browser import ConsoleServer, visit, write_import

EXAMPLES = settings(max_examples=25, deadline=None)
Run = Callable[[str, str, Any], Any]

texts = st.text(alphabet="abא\n :\x1b\u202e{}", max_size=30)


@pytest.fixture(scope="module")
def run(browser: Browser, server: ConsoleServer) -> Iterator[Run]:
    """`run(module, expression, value)`: what the expression over `m` (the module) and `value` gives."""
    with visit(browser, server, "#/ask") as page:

        def evaluate(module: str, expression: str, value: Any) -> Any:
            script = f"(value) => {write_import(module)}.then((m) => ({expression}))"
            return page.evaluate(script, value)

        yield evaluate


def format_events(events: list[tuple[str, str]], newline: str) -> str:
    """Events as a server writes them."""
    lines: list[str] = []
    for name, data in events:
        lines += [f"event: {name}", *(f"data: {line}" for line in data.split("\n")), ""]
    return newline.join(["", *lines, ""])


@EXAMPLES
@given(
    events=st.lists(st.tuples(st.sampled_from(["lines", "route"]), texts), max_size=4),
    newline=st.sampled_from(["\n", "\r\n"]),
    size=st.integers(min_value=1, max_value=9),
)
def test_a_stream_means_the_same_however_it_is_cut(
    run: Run, events: list[tuple[str, str]], newline: str, size: int
):
    whole = format_events(events, newline)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    read = "((parser) => value.flatMap((piece) => parser.feed(piece)))(m.createParser())"
    found = run("sse.js", read, pieces)
    assert [(event["event"], event["data"]) for event in found] == events


@EXAMPLES
@given(before=st.lists(texts, max_size=6), after=st.lists(texts, max_size=6))
def test_a_diff_holds_both_sides(run: Run, before: list[str], after: list[str]):
    old, new = "\n".join(before), "\n".join(after)
    lines = run("ui/diff.js", "m.diffLines(value[0], value[1])", [old, new])
    assert "\n".join(line["text"] for line in lines if line["sign"] != "+") == old
    assert "\n".join(line["text"] for line in lines if line["sign"] != "-") == new


def test_nothing_unseen_is_left(run: Run):
    text = "".join(map(chr, (*range(0x3000), 0xFEFF)))
    shown = run("ui/text.js", "m.escapeInvisible(value)", text)
    assert not any(character < " " and character not in "\n\t\r" for character in shown)
    assert not set(shown) & set("\x7f\x9b\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u200b\ufeff")


@EXAMPLES
@given(changes=st.lists(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 9)), max_size=6), max_size=6))
def test_joined_lines_are_the_newest_each_once(run: Run, changes: list[list[tuple[int, int]]]):
    frames = [
        [{"packet_id": f"p{seq}", "seq": seq, "last_seq": seq + more} for seq, more in frame]
        for frame in changes
    ]
    lines = run("live.js", "value.reduce((lines, frame) => m.mergeLines(lines, frame, 5), [])", frames)
    numbers = [line["seq"] for line in lines]
    assert numbers == sorted(set(numbers), reverse=True)
    assert len(numbers) <= 5
    seen = {line["seq"] for frame in frames for line in frame}
    assert not seen or numbers[0] == max(seen)


def test_a_journey_of_nothing_is_empty(run: Run):
    journey = run("journey.js", "m.buildJourney(value)", [])
    assert journey["sections"] == []
    assert journey["time"]["bars"] == []


def test_a_signal_keeps_its_colour_and_what_was_subtracted_is_known(run: Run):
    parts = [{"signal": "mood", "points": -0.2}, {"signal": "words", "points": 0.5}]
    shortlist = {"candidates": [{"tool": "a/b", "score": 0.3, "parts": parts}]}
    bars = run("journey.js", "m.buildScoreBars(value)", shortlist)
    shown = run("journey.js", "m.listSignals(value)", bars["rows"])
    assert shown == {"signals": ["words"], "subtracts": True}
    assert (bars["rows"][0]["gains"], bars["rows"][0]["losses"]) == (0.5, 0.2)
    first, *again = run("journey.js", "value.map(m.getSignalColour)", ["words", "mood", "words"])
    assert first == again[1] != again[0]


def test_copied_calls_contain_no_keys(run: Run):
    given = {
        "key": "mail/send", "values": {"to": "it's dana", "token": "s3cret", "sure": True},
        "secretNames": ["token"], "address": "http://localhost:1", "needsKey": True,
    }  # fmt: skip
    snippets = run("pages/try.js", "m.buildSnippets(value)", given)
    assert "s3cret" not in json.dumps(snippets)
    assert "$FINGERPOST_KEY" in snippets["curl"]
    assert shlex.split(snippets["cli"])[:3] == ["fingerpost", "call", "mail/send"]
    assert json.loads(shlex.split(snippets["cli"])[4])["to"] == "it's dana"
    compile(snippets["python"], "snippet", "exec")
    assert '"sure": True' in snippets["python"]


def event(seq: int, kind: str, second: float, /, **data: Any) -> dict[str, Any]:
    at = f"2026-05-04T09:{int(second) // 60:02d}:{second % 60:06.3f}Z"
    return {
        "seq": seq, "event_id": f"evt_{seq}", "kind": kind, "at": at, "packet_id": "pkt_1",
        "summary": "", "data": data,
    }  # fmt: skip


def attempt(number: int, began: str, milliseconds: float, error: str | None = None) -> dict[str, Any]:
    return {
        "tool": "a/b", "number": number, "began": began, "milliseconds": milliseconds, "error": error,
        "detail": "it broke" if error else "", "waited_ms": 0.0, "cached": False,
    }  # fmt: skip


def test_a_long_wait_does_not_hide_the_work(run: Run):
    """Ten minutes of a person's time, and half a second of work on either side of it."""
    decided = {"pending_id": "apr_1", "decision": "approved", "decided_by": "dana", "reason": None}
    events = [
        event(1, "call_received", 0, call_id="c", name="a/b", arguments={"x": 1}),
        event(2, "attempt_started", 0, call_id="c", tool="a/b", number=1, fallback=False),
        event(
            3,
            "attempt_finished",
            0.5,
            call_id="c",
            attempt=attempt(1, "2026-05-04T09:00:00Z", 500, "timeout"),
        ),
        event(4, "approval_requested", 0.5, call_id="c", pending_id="apr_1", tool="a/b", reason="it writes"),
        event(5, "approval_decided", 600.5, call_id="c", edited=False, **decided),
        event(6, "attempt_started", 600.5, call_id="c", tool="a/b", number=2, fallback=False),
        event(7, "attempt_finished", 601, call_id="c", attempt=attempt(2, "2026-05-04T09:10:00.5Z", 500)),
        event(8, "call_finished", 601, call_id="c", tool="a/b", success=True, error=None),
    ]
    again = [*events[4:], *events]  # as a stream that was resumed tells them
    journey = run("journey.js", "m.buildJourney(value)", again)
    first, wait, second = journey["time"]["bars"]
    assert [bar["kind"] for bar in (first, wait, second)] == ["attempt", "person", "attempt"]
    assert first["end"] - first["begin"] > 0.3
    assert second["end"] - second["begin"] > 0.3
    assert wait["end"] - wait["begin"] < 0.3
    assert 599_000 < journey["time"]["gaps"][0]["milliseconds"] < 601_000
    [section] = journey["sections"]
    assert section["type"] == "call"
    assert [one["made"]["error"] for one in section["call"]["attempts"]] == ["timeout", None]
    assert run("journey.js", "m.describeCall(value)", section["call"]) == ["good", "succeeded"]
