"""Metrics for Prometheus, counted from events.

Names and units follow Prometheus' rules. What a caller wrote is never a label: tools
are named by keys that were really called, and only so many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fingerpost.events import (
    AccessRefused,
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    BreakerMoved,
    CallFinished,
    Event,
    EventsDropped,
    FallbackTaken,
    ModelAnswered,
    RequestNarrowed,
    ResultDigested,
    RouteEnded,
    SmartRoutingEnd,
    SyntaxStopped,
)
from fingerpost.frozen import frozen
from fingerpost.telemetry.meters import OTHER, Durations, Labels, Names, Tallies

if TYPE_CHECKING:
    from prometheus_client import Metric

MOST_TOOLS: Final = 500
MOST_MODELS: Final = 50
MOST_PURPOSES: Final = 50
SUCCEEDED: Final = "succeeded"

_QUICK: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_CALL: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_REQUEST: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
_MODEL: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)


@frozen
class House:
    """What is so at this moment, and no event adds up to."""

    servers: Mapping[str, str] = field(default_factory=dict[str, str])  # their states, by name
    breakers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: int = 0
    approvals_waiting: int = 0
    live_streams: int = 0
    version: str = ""


class Metrics:
    """A sink that counts. Most kinds of events pass with one look into a dict."""

    def __init__(self, *, most_tools: int = MOST_TOOLS) -> None:
        self._lock = Lock()  # events may come from any thread
        self._most_tools = most_tools
        self._seats: dict[str, _Seat] = {}
        self._servers = Names(most_tools)
        self._models = Names(MOST_MODELS)
        self._purposes = Names(MOST_PURPOSES)
        self._requests = Tallies(
            "fingerpost_requests", "Requests by how they ended, or where they wait", ("outcome",)
        )
        self._request_s = Durations("fingerpost_request_duration_seconds", "From request to answer", _REQUEST)
        self._narrowings = Tallies("fingerpost_narrowings", "Requests by whether they need a tool", ("need",))
        self._narrow_s = Durations("fingerpost_narrowing_duration_seconds", "Finding the few tools", _QUICK)
        self._considered = Tallies("fingerpost_tools_considered", "Tools looked at, over all requests")
        self._offered = Tallies("fingerpost_tools_offered", "Tools shown to a model, over all requests")
        self._saved = Tallies(
            "fingerpost_tokens_saved", "Tokens one question saves each, against showing every tool"
        )
        self._server_choices = Tallies(
            "fingerpost_server_choices", "Choices of servers by smart routing", ("result",)
        )
        self._server_tools = Tallies(
            "fingerpost_server_choice_tools", "Tools kept and left out by smart routing", ("result",)
        )
        self._questions = Tallies(
            "fingerpost_model_questions", "Questions to models", ("model", "purpose", "result")
        )
        self._model_s = Durations(
            "fingerpost_model_duration_seconds", "What a model took to answer", _MODEL, ("model",)
        )
        self._tokens = Tallies("fingerpost_model_tokens", "Tokens read and written", ("model", "direction"))
        self._syntax = Tallies("fingerpost_syntax_stopped", "Invented tool syntax that reached nobody")
        self._calls = Tallies(
            "fingerpost_calls", "Calls of tools by how they ended", ("server", "tool", "outcome")
        )
        self._call_s = Durations(
            "fingerpost_call_duration_seconds", "A call from arguments to result", _CALL, ("server",)
        )
        self._attempts = Tallies("fingerpost_attempts", "Tries of tools", ("server", "outcome"))
        self._attempt_s = Durations(
            "fingerpost_attempt_duration_seconds", "What servers took to answer", _CALL, ("server",)
        )
        self._fallbacks = Tallies("fingerpost_fallbacks", "Tools that took over from another")
        self._results = Tallies("fingerpost_results", "Results, whole or cut to what fits", ("cut",))
        self._asked = Tallies("fingerpost_approvals_asked", "Calls that waited for a person")
        self._decided = Tallies("fingerpost_approvals_decided", "Decisions of people", ("decision",))
        self._breakers = Tallies("fingerpost_breaker_openings", "Servers left alone for a while", ("server",))
        self._refused = Tallies("fingerpost_access_refused", "Callers turned away")
        self._lost = Tallies("fingerpost_events_lost", "Events the store could not take")
        self._meaning: dict[type[Event], Callable[[Any], None]] = {
            CallFinished: self._call_finished,
            AttemptFinished: self._attempt_finished,
            ResultDigested: self._result_digested,
            ModelAnswered: self._model_answered,
            RequestNarrowed: self._narrowed,
            RouteEnded: self._route_ended,
            SmartRoutingEnd: self._servers_chosen,
            SyntaxStopped: lambda event: self._syntax.add(amount=event.count),
            FallbackTaken: lambda _: self._fallbacks.add(),
            ApprovalRequested: lambda _: self._asked.add(),
            ApprovalDecided: lambda event: self._decided.add((event.decision.value,)),
            BreakerMoved: self._breaker_moved,
            AccessRefused: lambda _: self._refused.add(),
            EventsDropped: lambda event: self._lost.add(amount=event.count),
        }

    def emit(self, event: Event) -> None:
        """Counts one event, where it counts."""
        meaning = self._meaning.get(type(event))
        if meaning is not None:
            with self._lock:
                meaning(event)

    def render(self, house: House | None = None, *, accept: str = "") -> tuple[bytes, str]:
        """Everything counted so far, and its content type. Takes a while: not for the event loop."""
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self, house))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def collect(self) -> list[Metric]:
        """In Prometheus' own shapes."""
        with self._lock:
            return [
                metric
                for meter in vars(self).values()
                if isinstance(meter, Tallies | Durations)
                for metric in meter.collect()
            ]

    # -- what events mean ---------------------------------------------------------------------------

    def _call_finished(self, event: CallFinished) -> None:
        # Where no attempt was ever made the tool's name may be what a caller wrote.
        seat = self._seats.get(event.tool, _ELSEWHERE)
        if event.success:
            self._calls.add(seat.called)
        else:
            outcome = "failed" if event.error is None else event.error.value
            self._calls.add((*seat.called[:2], outcome))
        self._call_s.observe(event.milliseconds, seat.server)

    def _attempt_finished(self, event: AttemptFinished) -> None:
        made = event.attempt
        seat = self._seats.get(made.tool) or self._new_seat(made.tool)
        if made.cached:
            self._attempts.add((*seat.server, "cached"))
            return
        self._attempts.add(seat.tried if made.error is None else (*seat.server, made.error.value))
        self._attempt_s.observe(made.milliseconds, seat.server)

    def _new_seat(self, tool: str) -> _Seat:
        if len(self._seats) >= self._most_tools:
            return _ELSEWHERE
        server = self._servers.of(tool.partition("/")[0])
        seat = self._seats[tool] = _seat(server, tool)
        return seat

    def _result_digested(self, event: ResultDigested) -> None:
        self._results.add(("yes" if event.dropped else "no",))

    def _model_answered(self, event: ModelAnswered) -> None:
        model, purpose = self._models.of(event.model), self._purposes.of(event.purpose)
        if event.error is not None:
            self._questions.add((model, purpose, "failed"))
            return
        self._questions.add((model, purpose, "answered"))
        self._model_s.observe(event.milliseconds, (model,))
        self._tokens.add((model, "input"), event.prompt_tokens or 0)
        self._tokens.add((model, "output"), event.completion_tokens or 0)

    def _narrowed(self, event: RequestNarrowed) -> None:
        narrowing = event.narrowing
        self._narrowings.add((narrowing.need.verdict.value,))
        self._narrow_s.observe(narrowing.milliseconds)
        self._considered.add(amount=narrowing.shortlist.considered)
        self._offered.add(amount=len(narrowing.shortlist.offered))
        self._saved.add(amount=max(0, event.tokens_all - event.tokens_offered))

    def _route_ended(self, event: RouteEnded) -> None:
        self._requests.add((event.outcome.value,))
        self._request_s.observe(event.milliseconds)

    def _servers_chosen(self, event: SmartRoutingEnd) -> None:
        if event.widened:
            self._server_choices.add(("widened",))
            return
        self._server_choices.add(("chosen" if event.filtered_tools < event.total_tools else "all_stayed",))
        self._server_tools.add(("kept",), amount=event.filtered_tools)
        self._server_tools.add(("left_out",), amount=event.total_tools - event.filtered_tools)

    def _breaker_moved(self, event: BreakerMoved) -> None:
        if event.state == "open":
            self._breakers.add((self._servers.of(event.server),))


class _Seat(NamedTuple):
    """The labels of one tool, put together once."""

    server: Labels
    called: Labels  # and succeeded
    tried: Labels  # and succeeded


def _seat(server: str, tool: str) -> _Seat:
    return _Seat((server,), (server, tool, SUCCEEDED), (server, SUCCEEDED))


_ELSEWHERE: Final = _seat(OTHER, OTHER)


class _Collector:
    def __init__(self, metrics: Metrics, house: House | None) -> None:
        self._metrics = metrics
        self._house = house

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.collect()
        if self._house is not None:
            yield from _gauges(self._house)


def _gauges(house: House) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("fingerpost_build", "What runs here", value={"version": house.version})
    up = GaugeMetricFamily("fingerpost_server_up", "Whether a server answers", labels=["server"])
    for name, state in list(house.servers.items())[:MOST_TOOLS]:
        up.add_metric([name], float(state in ("ready", "degraded")))
    yield up
    breakers = GaugeMetricFamily(
        "fingerpost_breaker_open", "Whether a server is left alone for a while", labels=["server"]
    )
    for name, state in list(house.breakers.items())[:MOST_TOOLS]:
        breakers.add_metric([name], float(state == "open"))
    yield breakers
    yield GaugeMetricFamily("fingerpost_tools", "Tools in the catalog", value=house.tools)
    yield GaugeMetricFamily(
        "fingerpost_approvals_waiting", "Calls that wait for a person", value=house.approvals_waiting
    )
    yield GaugeMetricFamily("fingerpost_live_streams", "Readers of live streams", value=house.live_streams)
