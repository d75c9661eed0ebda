"""Metrics for Prometheus, counted from events."""

from __future__ import annotations

from bisect import bisect_left
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
from fingerpost.events.counts import count_event
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

if TYPE_CHECKING:
    from prometheus_client import Metric


OTHER_LABEL: Final = "other"

Labels = tuple[str, ...]


class LabelLimiter:
    """A limited set of label values, because each value creates a time series."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._known: set[str] = set()

    def limit(self, name: str) -> str:
        """Return the name, or `other` when there are already too many."""
        if name not in self._known:
            if len(self._known) >= self._max_values:
                return OTHER_LABEL
            self._known.add(name)
        return name


SINGLE_PROCESS: Final = ""


def _get_worker_labels(workers: Mapping[str, Any]) -> Labels:
    return () if SINGLE_PROCESS in workers else ("worker",)


class CounterMetric:
    """A counter with labels."""

    def __init__(self, name: str, help_text: str, labels: Labels = ()) -> None:
        self._name = name
        self._help = help_text
        self._labels = labels
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, labels: Labels = (), amount: float = 1) -> None:
        values = self._values
        values[labels] = values.get(labels, 0) + amount

    def export(self) -> list[Json]:
        """Return labels and value of each series."""
        return [[list(labels), value] for labels, value in self._values.items()]

    def collect(self, workers: Mapping[str, Any]) -> Iterator[Metric]:
        """Yield the metric of these processes, by their label; a single process has none."""
        from prometheus_client.core import CounterMetricFamily

        own = _get_worker_labels(workers)
        family = CounterMetricFamily(self._name, self._help, labels=(*self._labels, *own))
        for worker, series in workers.items():
            for labels, value in series:
                family.add_metric([*labels, worker] if own else labels, value)
        yield family


class DurationHistogram:
    """A histogram of seconds with labels."""

    def __init__(self, name: str, help_text: str, bounds: tuple[float, ...], labels: Labels = ()) -> None:
        self._name = name
        self._help = help_text
        self._bounds = bounds
        self._labels = labels
        self._rows: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        if not labels:
            self._create_series(())

    def _create_series(self, labels: Labels) -> list[int]:
        row = self._rows[labels] = [0] * (len(self._bounds) + 1)
        self._sums[labels] = 0.0
        return row

    def observe(self, milliseconds: float, labels: Labels = ()) -> None:
        seconds = milliseconds / 1000
        row = self._rows.get(labels)
        if row is None:
            row = self._create_series(labels)
        row[bisect_left(self._bounds, seconds)] += 1
        self._sums[labels] += seconds

    def export(self) -> list[Json]:
        """Return labels, counts and sum of each series."""
        return [[list(labels), list(row), self._sums[labels]] for labels, row in self._rows.items()]

    def collect(self, workers: Mapping[str, Any]) -> Iterator[Metric]:
        """Yield the metric of these processes, by their label; a single process has none."""
        from prometheus_client.core import HistogramMetricFamily

        own = _get_worker_labels(workers)
        family = HistogramMetricFamily(self._name, self._help, labels=(*self._labels, *own))
        for worker, series in workers.items():
            for labels, row, total in series:
                up_to = 0
                buckets: list[tuple[str, float]] = []
                for bound, count in zip((*self._bounds, float("inf")), row, strict=True):
                    up_to += count
                    buckets.append(("+Inf" if bound == float("inf") else str(bound), up_to))
                family.add_metric([*labels, worker] if own else labels, buckets, total)
        yield family


MAX_TOOLS: Final = 500
MAX_MODELS: Final = 50
MAX_PURPOSES: Final = 50
SUCCEEDED_LABEL: Final = "succeeded"

_QUICK_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_CALL_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_REQUEST_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)
_MODEL_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0)


# Each becomes `fingerpost_NAME` with its labels, and Prometheus adds `_total`.
_COUNTERS: Final[Mapping[str, tuple[str, Labels]]] = {
    "requests": ("Requests by how they ended, or where they wait", ("outcome",)),
    "narrowings": ("Requests by whether they need a tool", ("need",)),
    "tools_considered": ("Tools looked at, over all requests", ()),
    "tools_offered": ("Tools shown to a model, over all requests", ()),
    "tokens_saved": ("Tokens one question saves each, against showing every tool", ()),
    "server_choices": ("Choices of servers by smart routing", ("result",)),
    "server_choice_tools": ("Tools kept and left out by smart routing", ("result",)),
    "model_questions": ("Calls of models", ("model", "purpose", "result")),
    "model_tokens": ("Tokens read and written", ("model", "direction")),
    "syntax_stopped": ("Hallucinated tool-call markup removed from answers", ()),
    "calls": ("Calls of tools by how they ended", ("server", "tool", "outcome")),
    "attempts": ("Tries of tools", ("server", "outcome")),
    "fallbacks": ("Tools that took over from another", ()),
    "results": ("Results, whole or cut to what fits", ("cut",)),
    "approvals_asked": ("Calls that waited for a person", ()),
    "approvals_decided": ("Decisions of people", ("decision",)),
    "breaker_openings": ("Circuit breakers that opened", ("server",)),
    "access_refused": ("Requests refused for lack of access", ()),
    "events_lost": ("Events that the store could not save", ()),
}
# Each becomes `fingerpost_NAME_duration_seconds`.
_DURATIONS: Final[Mapping[str, tuple[str, tuple[float, ...], Labels]]] = {
    "request": ("From request to answer", _REQUEST_BUCKETS, ()),
    "narrowing": ("Finding the few tools", _QUICK_BUCKETS, ()),
    "model": ("What a model took to answer", _MODEL_BUCKETS, ("model",)),
    "call": ("A call from arguments to result", _CALL_BUCKETS, ("server",)),
    "attempt": ("What servers took to answer", _CALL_BUCKETS, ("server",)),
}


@frozen
class GaugeValues:
    """The current values that cannot be counted from events."""

    servers: Mapping[str, str] = field(default_factory=dict[str, str])  # server states by name
    breakers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: int = 0
    approvals_waiting: int = 0
    live_streams: int = 0
    version: str = ""


class PrometheusMetrics:
    """An event sink that counts metrics. Most events cost only one dict lookup."""

    def __init__(self, *, max_tools: int = MAX_TOOLS) -> None:
        self._lock = Lock()  # events come from any thread
        self._max_tools = max_tools
        self._tool_labels: dict[str, _ToolLabels] = {}
        self._servers = LabelLimiter(max_tools)
        self._models = LabelLimiter(MAX_MODELS)
        self._purposes = LabelLimiter(MAX_PURPOSES)
        self._counters = {name: CounterMetric(f"fingerpost_{name}", *row) for name, row in _COUNTERS.items()}
        self._durations = {
            name: DurationHistogram(f"fingerpost_{name}_duration_seconds", *row)
            for name, row in _DURATIONS.items()
        }
        self._meters: dict[str, CounterMetric | DurationHistogram] = {
            **self._counters,
            **{f"{name}_duration": meter for name, meter in self._durations.items()},
        }
        self._handlers: dict[type[Event], Callable[[Any], None]] = {
            CallFinished: self._count_call_finished,
            AttemptFinished: self._count_attempt_finished,
            ResultDigested: lambda event: self._count("results", "yes" if event.dropped else "no"),
            ModelAnswered: self._count_model_answered,
            RequestNarrowed: self._count_narrowed,
            RouteEnded: self._count_route_ended,
            SmartRoutingEnd: self._count_servers_chosen,
            SyntaxStopped: lambda event: self._count("syntax_stopped", amount=event.count),
            FallbackTaken: lambda _: self._count("fallbacks"),
            ApprovalRequested: lambda _: self._count("approvals_asked"),
            ApprovalDecided: lambda event: self._count("approvals_decided", event.decision.value),
            BreakerMoved: self._count_breaker_moved,
            AccessRefused: lambda _: self._count("access_refused"),
            EventsDropped: lambda event: self._count("events_lost", amount=event.count),
        }

    def emit(self, event: Event) -> None:
        """Count one event, if a metric uses its kind."""
        handler = self._handlers.get(type(event))
        if handler is not None:
            with self._lock:
                handler(event)

    def render(
        self,
        gauges: GaugeValues | None = None,
        *,
        accept: str = "",
        workers: Mapping[str, JsonObject] | None = None,
    ) -> tuple[bytes, str]:
        """Return all metrics and their content type. This is slow, so do not call it on the event loop.

        `workers` are the exported metrics of several processes, by the label that each gets.
        """
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        registry = CollectorRegistry(auto_describe=False)
        registry.register(_MetricsCollector(self, gauges, workers))
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def export(self) -> JsonObject:
        """Return all values, for another process that renders them."""
        with self._lock:
            return {name: meter.export() for name, meter in self._meters.items()}

    def collect(self, workers: Mapping[str, JsonObject] | None = None) -> list[Metric]:
        """Return the metrics as Prometheus metric families: of these processes, or of this one."""
        found = workers or {SINGLE_PROCESS: self.export()}
        return [
            metric
            for name, meter in self._meters.items()
            for metric in meter.collect({worker: values[name] for worker, values in found.items()})
        ]

    def _count(self, name: str, *labels: str, amount: float = 1) -> None:
        self._counters[name].add(labels, amount)

    def _time(self, name: str, milliseconds: float, *labels: str) -> None:
        self._durations[name].observe(milliseconds, labels)

    def _count_call_finished(self, event: CallFinished) -> None:
        # Without an attempt, the tool's name may be any text from a caller.
        labels = self._tool_labels.get(event.tool, _OTHER_TOOL_LABELS)
        if event.success:
            self._count("calls", *labels.called)
        else:
            outcome = "failed" if event.error is None else event.error.value
            self._count("calls", *labels.called[:2], outcome)
        self._time("call", event.milliseconds, *labels.server)

    def _count_attempt_finished(self, event: AttemptFinished) -> None:
        made = event.attempt
        labels = self._tool_labels.get(made.tool) or self._create_tool_labels(made.tool)
        if made.cached:
            self._count("attempts", *labels.server, "cached")
            return
        outcome = SUCCEEDED_LABEL if made.error is None else made.error.value
        self._count("attempts", *labels.server, outcome)
        self._time("attempt", made.milliseconds, *labels.server)

    def _create_tool_labels(self, tool: str) -> _ToolLabels:
        if len(self._tool_labels) >= self._max_tools:
            return _OTHER_TOOL_LABELS
        server = self._servers.limit(tool.partition("/")[0])
        labels = self._tool_labels[tool] = _build_tool_labels(server, tool)
        return labels

    def _count_model_answered(self, event: ModelAnswered) -> None:
        model, purpose = self._models.limit(event.model), self._purposes.limit(event.purpose)
        if event.error is not None:
            self._count("model_questions", model, purpose, "failed")
            return
        self._count("model_questions", model, purpose, "answered")
        self._time("model", event.milliseconds, model)
        amounts = count_event(event)
        self._count("model_tokens", model, "input", amount=amounts["prompt_tokens"])
        self._count("model_tokens", model, "output", amount=amounts["completion_tokens"])

    def _count_narrowed(self, event: RequestNarrowed) -> None:
        narrowing = event.narrowing
        self._count("narrowings", narrowing.need.verdict.value)
        self._time("narrowing", narrowing.milliseconds)
        amounts = count_event(event)
        self._count("tools_considered", amount=amounts["considered"])
        self._count("tools_offered", amount=amounts["offered"])
        self._count("tokens_saved", amount=amounts["tokens_saved"])

    def _count_route_ended(self, event: RouteEnded) -> None:
        self._count("requests", event.outcome.value)
        self._time("request", event.milliseconds)

    def _count_servers_chosen(self, event: SmartRoutingEnd) -> None:
        if event.widened:
            self._count("server_choices", "widened")
            return
        self._count("server_choices", "all_stayed" if event.kept_all else "chosen")
        self._count("server_choice_tools", "kept", amount=event.filtered_tools)
        self._count("server_choice_tools", "left_out", amount=event.total_tools - event.filtered_tools)

    def _count_breaker_moved(self, event: BreakerMoved) -> None:
        if event.state == "open":
            self._count("breaker_openings", self._servers.limit(event.server))


class _ToolLabels(NamedTuple):
    """The labels of one tool, built once."""

    server: Labels
    called: Labels  # for a successful call


def _build_tool_labels(server: str, tool: str) -> _ToolLabels:
    return _ToolLabels((server,), (server, tool, SUCCEEDED_LABEL))


_OTHER_TOOL_LABELS: Final = _build_tool_labels(OTHER_LABEL, OTHER_LABEL)


class _MetricsCollector:
    def __init__(
        self, metrics: PrometheusMetrics, gauges: GaugeValues | None, workers: Mapping[str, JsonObject] | None
    ) -> None:
        self._metrics = metrics
        self._gauges = gauges
        self._workers = workers

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics.collect(self._workers)
        if self._gauges is not None:
            yield from _collect_gauges(self._gauges)


def _collect_gauges(gauges: GaugeValues) -> Iterator[Metric]:
    from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

    yield InfoMetricFamily("fingerpost_build", "What runs here", value={"version": gauges.version})
    for name, about, states, wanted in (
        ("server_up", "Whether a server answers", gauges.servers, ("ready", "degraded")),
        ("server_asleep", "Whether a server is not running until it is called", gauges.servers, ("asleep",)),
        ("breaker_open", "Whether the circuit breaker of a server is open", gauges.breakers, ("open",)),
    ):
        family = GaugeMetricFamily(f"fingerpost_{name}", about, labels=["server"])
        for server, state in list(states.items())[:MAX_TOOLS]:
            family.add_metric([server], float(state in wanted))
        yield family
    yield GaugeMetricFamily("fingerpost_tools", "Tools in the catalog", value=gauges.tools)
    yield GaugeMetricFamily(
        "fingerpost_approvals_waiting", "Calls that wait for a person", value=gauges.approvals_waiting
    )
    yield GaugeMetricFamily("fingerpost_live_streams", "Readers of live streams", value=gauges.live_streams)
