"""Progress messages while a tool runs: the action as text, and updates at suitable intervals."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, Self
from urllib.parse import urlsplit

from fingerpost.call.execution.concurrency import loop_time
from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.words import split_words
from fingerpost.data_files import read_sections
from fingerpost.events import CallProgressed, EventSink
from fingerpost.records import CallContext, Json, JsonObject, LatencyProfile, LatencyTier, Source, ToolCard
from fingerpost.redaction import is_secret_name, scrub

MAX_ACTION_LENGTH: Final = 120
_MAX_VALUE_LENGTH: Final = 60

_WORDS: Final = read_sections("fingerpost.call", "words.txt")
_PARTICIPLES: Final = dict(line.split(" ", 1) for line in _WORDS["doing"].strip().splitlines())
_SEARCHING: Final = frozenset({"Searching", "Querying", "Looking up"})
_WITH_PROVIDER: Final = frozenset({"Researching", "Thinking", "Asking"})


def describe_action(card: ToolCard, arguments: JsonObject) -> str:
    """Return one short line without secrets and invisible characters, at most `MAX_ACTION_LENGTH` long."""
    words = split_words(card.name)
    verb = next((word for word in words if word in _PARTICIPLES), None)
    text = (
        _compose_action(card, words, verb, arguments)
        if verb is not None
        else f"Running {_format_tool_name(card)}"
    )
    text = escape_invisible_except(" ".join(text.split()))
    return (text if len(text) < MAX_ACTION_LENGTH else text[: MAX_ACTION_LENGTH - 2].rstrip()) + "…"


def _compose_action(card: ToolCard, words: Sequence[str], verb: str, arguments: JsonObject) -> str:
    doing = _PARTICIPLES[verb]
    query = _find_value(arguments, "query")
    if doing in _WITH_PROVIDER:
        return f"{doing} with {_find_brand(card, words, verb)}"
    if doing in _SEARCHING:
        where = _describe_search(card, doing, words)
        return f"{doing}{where} for “{query}”" if query else f"{doing}{where}"
    if path := _find_value(arguments, "path"):
        return f"{doing} {_get_last_segment(path)}"
    if url := _find_value(arguments, "url"):
        return f"{doing} {_get_host(url)}"
    if name := _find_value(arguments, "name") or query:
        thing = " ".join(word for word in words[words.index(verb) + 1 :])
        return f"{doing} {thing + ' ' if thing else ''}“{name}”"
    thing = " ".join(words[words.index(verb) + 1 :])
    return f"{doing} {thing}" if thing else f"Running {_format_tool_name(card)}"


def _describe_search(card: ToolCard, doing: str, words: Sequence[str]) -> str:
    if doing == "Searching" and card.intelligence.category.value == "web_search":
        return " the web"
    things = [word for word in words if word not in _PARTICIPLES and word not in split_words(card.server)]
    if doing == "Searching":
        return f" {' '.join(things)}" if things else ""
    return f" {_clean_value(card.server)}"


def _find_brand(card: ToolCard, words: Sequence[str], verb: str) -> str:
    """Return the provider's name: the word before the verb (`perplexity_research`), else the server."""
    before = words[: words.index(verb)]
    return before[-1].capitalize() if before else _clean_value(card.server).capitalize()


def _format_tool_name(card: ToolCard) -> str:
    annotations = card.definition.get("annotations")
    hinted = annotations.get("title") if isinstance(annotations, Mapping) else None
    title = card.definition.get("title") or hinted
    return _clean_value(title if isinstance(title, str) and title.strip() else card.name)


def _find_value(arguments: JsonObject, kind: str) -> str:
    """Return the first useful argument with a name of this kind, short and without secrets."""
    for name in _WORDS[kind].split():
        found = arguments.get(name)
        if is_secret_name(name) or not isinstance(found, str | int) or isinstance(found, bool):
            continue
        if text := _clean_value(found):
            return text
    return ""


def _clean_value(value: Json) -> str:
    # Mask before shortening: the beginning of a secret must not be shown either.
    text = " ".join(scrub(str(value)[:4_000]).split())
    return text if len(text) <= _MAX_VALUE_LENGTH else text[: _MAX_VALUE_LENGTH - 1].rstrip() + "…"


def _get_last_segment(path: str) -> str:
    return path.rstrip("/\\").replace("\\", "/").rpartition("/")[2] or path


def _get_host(address: str) -> str:
    try:
        return urlsplit(address).hostname or address
    except ValueError:
        return address


logger = logging.getLogger("fingerpost.call.progress")

_INTERVALS: Final = {
    LatencyTier.FAST: 5.0,
    LatencyTier.MEDIUM: 5.0,
    LatencyTier.SLOW: 5.0,
    LatencyTier.VERY_SLOW: 3.0,
}
REPORT_INTERVAL_S: Final = 0.5  # seconds between a server's reports that are shown
_MAX_REPORT_LENGTH: Final = 160


def get_first_wait(latency: LatencyProfile) -> float:
    """Return the seconds until the first message."""
    return latency.feedback_delay.value / 1000


def get_next_wait(latency: LatencyProfile, elapsed: float) -> float:
    """Return the seconds until the next message, after one at `elapsed` seconds."""
    return _INTERVALS[_get_tier(latency, elapsed)]


def format_progress(action: str, latency: LatencyProfile, elapsed: float, reported: str = "") -> str:
    """Return the message after `elapsed` seconds. `reported` is the server's last report."""
    tier = _get_tier(latency, elapsed)
    shown = f"{action} {reported}" if reported else action
    if tier in (LatencyTier.FAST, LatencyTier.MEDIUM):
        return shown
    expected = get_expected_seconds(latency)
    usual = f", usually about {_format_duration(expected)}" if expected is not None else ""
    shown = f"{shown} {_format_duration(elapsed)} so far{usual}"
    if tier is LatencyTier.VERY_SLOW:
        shown += f"; given up after {_format_duration(latency.timeout.value / 1000)} without progress"
    return shown


def get_expected_seconds(latency: LatencyProfile) -> float | None:
    """Return the tool's usual duration if it was measured or set by a person, else None."""
    if latency.typical.source not in (Source.LEARNED, Source.WRITTEN):
        return None
    return latency.typical.value / 1000


def _get_tier(latency: LatencyProfile, elapsed: float) -> LatencyTier:
    """Return the latency tier. A tool that takes longer than expected moves to a slower tier."""
    return LatencyTier.from_milliseconds(max(latency.typical.value, elapsed * 1000))


def _format_duration(seconds: float) -> str:
    whole = max(1, round(seconds))
    if whole < 100:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


class CancellableTimer(Protocol):
    """A scheduled action that can be cancelled."""

    def cancel(self) -> object: ...


def schedule_on_loop(seconds: float, action: Callable[[], None]) -> CancellableTimer:
    """Schedule `action` without a task: most calls end before it is due."""
    return asyncio.get_running_loop().call_later(seconds, action)


class CallProgress:
    """A running call: `with CallProgress(…) as progress: await call(on_progress=progress.report)`."""

    def __init__(
        self,
        card: ToolCard,
        arguments: JsonObject,
        context: CallContext,
        *,
        events: EventSink,
        clock: Callable[[], float] = loop_time,
        schedule: Callable[[float, Callable[[], None]], CancellableTimer] = schedule_on_loop,
    ) -> None:
        self._card = card
        self._latency = card.intelligence.latency
        self._arguments = arguments
        self._action: str | None = None
        self._context = context
        self._events = events
        self._clock = clock
        self._schedule = schedule
        self._timer: CancellableTimer | None = None
        self._started_at = 0.0
        self._reported: tuple[float | None, float | None, str] = (None, None, "")
        self._last_report_at = -math.inf

    def __enter__(self) -> Self:
        self._started_at = self._clock()
        self._timer = self._schedule(get_first_wait(self._latency), self._on_timer)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Store the server's own progress report. Show it if the last one is `REPORT_INTERVAL_S` old."""
        self._reported = (_keep_finite(progress), _keep_finite(total), _to_one_line(message or ""))
        elapsed = self._elapsed
        if elapsed >= get_first_wait(self._latency) and elapsed - self._last_report_at >= REPORT_INTERVAL_S:
            self._last_report_at = elapsed
            self._emit(elapsed)

    def _on_timer(self) -> None:
        self._emit(self._elapsed)
        self._timer = self._schedule(get_next_wait(self._latency, self._elapsed), self._on_timer)

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._started_at

    def _emit(self, elapsed: float) -> None:
        progress, total, message = self._reported
        if self._action is None:
            self._action = describe_action(self._card, self._arguments)
        event = CallProgressed(
            call_id=self._context.call_id,
            packet_id=self._context.packet_id or self._context.call_id,
            tool=self._card.key,
            message=format_progress(self._action, self._latency, elapsed, message),
            seconds=elapsed,
            progress=progress,
            total=total,
            expected_seconds=get_expected_seconds(self._latency),
        )
        try:
            self._events.emit(event)
        except Exception:  # a failing listener must not end the call
            logger.exception("a progress event was lost")


def _keep_finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None


def _to_one_line(text: str) -> str:
    line = escape_invisible_except(" ".join(scrub(text[: _MAX_REPORT_LENGTH * 10]).split()))
    return line if len(line) <= _MAX_REPORT_LENGTH else line[: _MAX_REPORT_LENGTH - 1].rstrip() + "…"
