"""What a person sees while a tool works: nothing too early, enough when it is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerpost.call.progress import MAX_ACTION_LENGTH, CallProgress, describe_action
from fingerpost.errors import ToolTimeout
from fingerpost.events import CallProgressed, Event, MemorySink
from fingerpost.records import CallContext, Known, LatencyProfile, Source, ToolCard
from tests.kit.cards import card, snapshot
from tests.kit.tables import table
from tests.requirements import proves

CONTEXT = CallContext(call_id="call_1")
READ = card("read_file")


@dataclass
class Alarm:
    """What is due at one moment."""

    at: float
    action: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class SteppedClock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[Alarm] = []

    def __call__(self) -> float:
        return self.now

    def later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        self._timers.append(Alarm(self.now + seconds, action))
        return self._timers[-1]

    async def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while due := [one for one in self._timers if one.at <= until and not one.cancelled]:
            first = min(due, key=lambda one: one.at)
            self._timers.remove(first)
            self.now = max(self.now, first.at)
            first.action()
        self.now = until


def with_latency(tool: ToolCard, seconds: float, delay: float, source: Source = Source.LEARNED) -> ToolCard:
    latency = LatencyProfile(
        typical=Known(int(seconds * 1000), source),
        timeout=Known(300_000, Source.DEFAULT),
        feedback_delay=Known(int(delay * 1000), Source.DEFAULT),
    )
    return replace(tool, intelligence=replace(tool.intelligence, latency=latency))


class Watch:
    """A call being watched."""

    def __init__(self, tool: ToolCard, arguments: Mapping[str, Any] | None = None) -> None:
        self.clock = SteppedClock()
        self.sink = MemorySink()
        self.progress = CallProgress(
            tool, arguments or {}, CONTEXT, events=self.sink, clock=self.clock, schedule=self.clock.later
        )

    @property
    def events(self) -> list[CallProgressed]:
        return [event for event in self.sink.events if isinstance(event, CallProgressed)]


@proves("D10")
async def test_nothing_is_shown_before_the_feedback_delay() -> None:
    watch = Watch(with_latency(READ, 1, 3), {"path": "/home/me/notes.md"})
    with watch.progress as progress:
        await watch.clock.advance(1)
        await progress.report(1, 10, "early")
        await watch.clock.advance(1.9)
        assert watch.events == []
        await watch.clock.advance(0.2)
        assert [event.message for event in watch.events] == ["Reading notes.md… early"]
    assert watch.events[0].seconds == 3.0
    assert watch.events[0].call_id == watch.events[0].packet_id == "call_1"


@proves("D10")
async def test_a_slow_tool_says_how_long_it_has_been_and_usually_takes() -> None:
    watch = Watch(with_latency(READ, 60, 0.5), {"path": "a.txt"})
    with watch.progress:
        await watch.clock.advance(11)
    assert watch.events[-1].message == "Reading a.txt… 10 s so far, usually about 60 s"
    assert watch.events[-1].expected_seconds == 60
    assert [event.seconds for event in watch.events] == [0.5, 5.5, 10.5]


@proves("D10")
async def test_a_very_slow_tool_says_more_and_more_often() -> None:
    watch = Watch(with_latency(READ, 150, 0), {"path": "a.txt"})
    with watch.progress as progress:
        await watch.clock.advance(1)
        await progress.report(3, 8, "reading source 3 of 8")
        await watch.clock.advance(130)
    assert watch.events[0].seconds == 0
    last = watch.events[-1]
    assert "reading source 3 of 8" in last.message
    assert "2 min" in last.message
    assert "usually about 2 min 30 s" in last.message
    assert "given up after 5 min" in last.message
    assert (last.progress, last.total) == (3, 8)
    assert len(watch.events) > 40


async def test_a_tool_that_takes_longer_than_usual_is_treated_as_slow() -> None:
    watch = Watch(with_latency(READ, 1, 3, Source.INFERRED), {"path": "a.txt"})
    with watch.progress:
        await watch.clock.advance(25)
    assert watch.events[0].message == "Reading a.txt…"
    assert watch.events[-1].message == "Reading a.txt… 23 s so far"
    assert watch.events[-1].expected_seconds is None


@proves("D10")
async def test_what_the_server_reports_is_passed_on_but_not_in_a_flood() -> None:
    watch = Watch(with_latency(READ, 5, 1), {"path": "a.txt"})
    with watch.progress as progress:
        await watch.clock.advance(1.5)
        before = len(watch.events)
        for number in range(1000):
            await progress.report(number, 1000, f"step {number}")
        assert len(watch.events) == before + 1
        await watch.clock.advance(0.6)
        await progress.report(float("nan"), float("inf"), None)
        assert (watch.events[-1].progress, watch.events[-1].total) == (None, None)


@proves("F49")
async def test_what_the_server_reports_is_masked_visible_and_short() -> None:
    watch = Watch(with_latency(READ, 5, 0))
    with watch.progress as progress:
        await watch.clock.advance(1)
        await progress.report(1, None, "\x1b[2J token=abcdef123456 " + "x" * 10_000)
    message = watch.events[-1].message
    assert "abcdef123456" not in message
    assert "\x1b" not in message
    assert len(message) < 400


async def test_the_error_of_the_call_comes_through_unwrapped() -> None:
    watch = Watch(READ)
    with pytest.raises(ToolTimeout), watch.progress:
        await watch.clock.advance(10)
        raise ToolTimeout("too long", server="s")


async def test_cancelling_the_call_ends_the_ticking() -> None:
    watch = Watch(READ)
    with anyio.move_on_after(0.05) as scope:
        with watch.progress:
            await anyio.sleep(60)
    assert scope.cancelled_caught


async def test_a_broken_reader_does_not_end_the_call() -> None:
    class Broken:
        def emit(self, event: Event) -> None:
            raise RuntimeError(event.kind)

    with CallProgress(with_latency(READ, 5, 0), {}, CONTEXT, events=Broken()):
        await anyio.sleep(0.02)


TOOLS = snapshot(
    perplexity=[{"name": "perplexity_research"}],
    tavily=[{"name": "tavily-search"}],
    fs=[{"name": name} for name in ("read_file", "get_sum", "list_directory", "search_files", "fetch")],
    gh=[{"name": "create_issue"}, {"name": "x1", "title": "Make coffee"}],
)


@table(
    ("key", "arguments", "text"),
    [
        ("perplexity/perplexity_research", {"query": "x"}, "Researching with Perplexity…"),
        ("tavily/tavily-search", {"query": "opening hours"}, "Searching the web for “opening hours”…"),
        ("tavily/tavily-search", {"query": "שעות פתיחה"}, "Searching the web for “שעות פתיחה”…"),
        ("fs/read_file", {"path": "/home/me/notes.md"}, "Reading notes.md…"),
        ("fs/read_file", {"path": 7}, "Reading 7…"),
        ("fs/get_sum", {"a": 1, "b": 2}, "Running get_sum…"),
        ("fs/list_directory", {"path": "C:\\Users\\me\\"}, "Listing me…"),
        ("fs/search_files", {"pattern": "*.py"}, "Searching files for “*.py”…"),
        ("fs/fetch", {"url": "https://example.org/a?token=abcdef123456"}, "Fetching example.org…"),
        ("fs/fetch", {"url": "http://[broken"}, "Fetching http://[broken…"),
        ("gh/create_issue", {"title": "It broke"}, "Creating issue “It broke”…"),
        ("gh/x1", {}, "Running Make coffee…"),
    ],
)
@proves("D10")
def test_action_words_are_the_tools_own(key: str, arguments: Mapping[str, Any], text: str) -> None:
    tool = TOOLS.get(key)
    assert tool is not None
    assert describe_action(tool, arguments) == text


@proves("F49")
def test_action_words_hold_no_secret() -> None:
    tool = TOOLS.get("tavily/tavily-search")
    assert tool is not None
    secret = "sk-" + "a1B2c3D4" * 12
    assert secret[:20] not in describe_action(tool, {"query": f"{'word ' * 8}{secret}"})


@given(
    st.sampled_from(TOOLS.cards),
    st.dictionaries(
        st.sampled_from(["path", "query", "url", "title", "id"]), st.text() | st.integers() | st.none()
    ),
)
@settings(deadline=None, max_examples=60)
def test_action_words_are_short_and_visible_whatever_the_arguments(
    tool: ToolCard, arguments: Mapping[str, Any]
) -> None:
    text = describe_action(tool, arguments)
    assert len(text) <= MAX_ACTION_LENGTH
    assert text.isprintable()
    assert text.endswith("…")
