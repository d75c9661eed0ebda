"""Spans that are open: one tree for each request or bare call, so many and no longer than a while."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from opentelemetry.trace import Span, SpanContext

from fingerpost.telemetry import names

MAX_OPEN_TRACES: Final = 2_000
MAX_WAITING_TRACES: Final = 1_000
MAX_TRACE_AGE: Final = timedelta(hours=1)  # after the last event; nobody will tell of its end any more
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def to_nanoseconds(moment: datetime, less_milliseconds: float = 0.0) -> int:
    since = moment - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
    return whole - round(less_milliseconds * 1_000_000)


@dataclass(slots=True)
class OpenTrace:
    """The spans of one request: its root, and what is open below."""

    root: Span
    last_event_at: datetime
    calls: dict[str, Span] = field(default_factory=dict[str, Span])
    attempts: dict[tuple[str, str, int], Span] = field(default_factory=dict[tuple[str, str, int], Span])
    selected: datetime | None = None
    is_routed: bool = False  # somebody set out to answer it; else it is only narrowed

    def end(self, at: datetime, *, unfinished: bool = False) -> None:
        """End everything, the innermost first."""
        # The only span of a bare call is its root.
        below = [span for span in (*self.attempts.values(), *self.calls.values()) if span is not self.root]
        for span in below:
            span.set_attribute(names.ATTR_UNFINISHED, True)  # noqa: FBT003 - an attribute and its value
            span.end(to_nanoseconds(at))
        self.attempts.clear()
        self.calls.clear()
        if unfinished:
            self.root.set_attribute(names.ATTR_UNFINISHED, True)  # noqa: FBT003 - an attribute and its value
        self.root.end(to_nanoseconds(at))


class OpenTraces:
    """Trees by packet. The oldest give way when there are too many."""

    def __init__(self, most: int = MAX_OPEN_TRACES) -> None:
        self._most = most
        self._trees: OrderedDict[str, OpenTrace] = OrderedDict()
        self._waiting: OrderedDict[str, SpanContext] = OrderedDict()  # requests that stopped for a person

    def __len__(self) -> int:
        return len(self._trees)

    def get(self, packet_id: str, at: datetime) -> OpenTrace | None:
        tree = self._trees.get(packet_id)
        if tree is not None:
            tree.last_event_at = at
            self._trees.move_to_end(packet_id)
        return tree

    def open(self, packet_id: str, root: Span, at: datetime) -> OpenTrace:
        for old in self._evict_old(at):
            old.end(old.last_event_at, unfinished=True)
        tree = self._trees[packet_id] = OpenTrace(root=root, last_event_at=at)
        return tree

    def close(self, packet_id: str, at: datetime, *, is_waiting: bool = False) -> None:
        """The request has come to its end, or waits: then it may go on in another tree."""
        tree = self._trees.pop(packet_id, None)
        if tree is None:
            return
        tree.end(at)
        if is_waiting:
            self._waiting[packet_id] = tree.root.get_span_context()
            if len(self._waiting) > MAX_WAITING_TRACES:
                self._waiting.popitem(last=False)

    def take_waiting(self, packet_id: str) -> SpanContext | None:
        """Where a request that waited came from; None where it did not wait."""
        return self._waiting.pop(packet_id, None)

    def close_all(self) -> None:
        while self._trees:
            _, tree = self._trees.popitem()
            tree.end(tree.last_event_at, unfinished=True)

    def _evict_old(self, now: datetime) -> Iterator[OpenTrace]:
        while self._trees:
            packet_id, oldest = next(iter(self._trees.items()))
            if len(self._trees) < self._most and now - oldest.last_event_at < MAX_TRACE_AGE:
                return
            del self._trees[packet_id]
            yield oldest
