"""How an agent does, added up from the events of its requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from threading import Lock

from fingerpost.events import CallFinished, Event, RequestNarrowed, SmartRoutingEnd, SyntaxStopped
from fingerpost.frozen import frozen
from fingerpost.records import Narrowing, RouteOutcome


@frozen
class AgentStats:
    """Over all requests of one agent since it was made. A share of nothing is 0."""

    requests: int = 0
    success_rate: float = 0.0  # requests that were answered, or handed back to the caller's own tools
    waiting: int = 0  # that stopped for a person: a yes, or a value only they know
    failures: int = 0  # that ended without an answer, by an error, a refusal or a limit
    reduction: float = 0.0  # the share of tools the model was spared, in the mean
    mean_added_ms: float = 0.0  # that narrowing took, server choice included
    server_choices: int = 0  # how often smart routing chose servers
    fallback_rate: float = 0.0  # of these, those after which all servers stayed
    tokens_saved: int = 0  # by leaving servers out
    tool_calls: int = 0
    tool_failures: int = 0
    invented_calls: int = 0  # tool syntax a model made up in an answer, which was taken out


@dataclass(slots=True)
class _AgentTotals:
    requests: int = 0
    answered: int = 0
    waiting: int = 0
    failures: int = 0
    narrowings: int = 0
    spared: float = 0.0
    added_ms: float = 0.0
    choices: int = 0
    fallbacks: int = 0
    tokens_saved: int = 0
    calls: int = 0
    failed_calls: int = 0
    invented: int = 0


_WAITING = (RouteOutcome.WAITING, RouteOutcome.ASKED)
_SUCCESSES = (RouteOutcome.ANSWERED, RouteOutcome.HANDED_BACK)


class AgentCounter:
    """Counts. Safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sums = _AgentTotals()

    def count(self, outcome: RouteOutcome | None, events: Iterable[Event]) -> None:
        """One more request; `outcome` is None where an error ended it."""
        with self._lock:
            sums = self._sums
            sums.requests += 1
            sums.answered += outcome in _SUCCESSES
            sums.waiting += outcome in _WAITING
            sums.failures += outcome not in _SUCCESSES and outcome not in _WAITING
            self._count_events(events)

    def count_resumed(self, outcome: RouteOutcome | None, events: Iterable[Event]) -> None:
        """A request that had stopped for a person came to this end."""
        with self._lock:
            sums = self._sums
            if outcome not in _WAITING:
                sums.waiting -= 1
                sums.answered += outcome in _SUCCESSES
                sums.failures += outcome not in _SUCCESSES
            self._count_events(events)

    def _count_events(self, events: Iterable[Event]) -> None:
        sums = self._sums
        for event in events:
            if isinstance(event, RequestNarrowed):
                self._count_narrowing(event.narrowing)
            elif isinstance(event, SmartRoutingEnd) and not event.widened:
                sums.choices += 1
                sums.fallbacks += event.filtered_tools >= event.total_tools
                sums.tokens_saved += event.tokens_saved
            elif isinstance(event, CallFinished):
                sums.calls += 1
                sums.failed_calls += not event.success
            elif isinstance(event, SyntaxStopped):
                sums.invented += event.count

    def _count_narrowing(self, narrowing: Narrowing) -> None:
        sums, shortlist, servers = self._sums, narrowing.shortlist, narrowing.servers
        sums.narrowings += 1
        sums.spared += 1 - len(shortlist.offered) / shortlist.considered if shortlist.considered else 0.0
        sums.added_ms += narrowing.milliseconds + (0.0 if servers is None else servers.milliseconds)

    @property
    def stats(self) -> AgentStats:
        with self._lock:
            sums = self._sums
            return AgentStats(
                requests=sums.requests,
                success_rate=_divide(sums.answered, sums.requests),
                waiting=sums.waiting,
                failures=sums.failures,
                reduction=_divide(sums.spared, sums.narrowings),
                mean_added_ms=_divide(sums.added_ms, sums.narrowings),
                server_choices=sums.choices,
                fallback_rate=_divide(sums.fallbacks, sums.choices),
                tokens_saved=sums.tokens_saved,
                tool_calls=sums.calls,
                tool_failures=sums.failed_calls,
                invented_calls=sums.invented,
            )


def _divide(part: float, whole: int) -> float:
    return part / whole if whole else 0.0
