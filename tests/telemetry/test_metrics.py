"""Metrics: what events add up to, and what never becomes a label."""

from __future__ import annotations

from typing import Any, cast

from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from fingerpost.events import BreakerMoved, Event, ServerStateChanged
from fingerpost.records import Decision, ErrorKind, NeedVerdict, ServerState
from fingerpost.telemetry.metrics import GaugeValues, PrometheusMetrics
from tests.kit.journal_events import call, create_decided, create_requested, request
from tests.requirements import proves

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def collect_metrics(*events: Event) -> PrometheusMetrics:
    metrics = PrometheusMetrics()
    for event in events:
        metrics.emit(event)
    return metrics


def samples_of(metrics: PrometheusMetrics, gauges: GaugeValues | None = None) -> Samples:
    body, content_type = metrics.render(gauges)
    assert content_type.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read_text(body.decode())
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


@proves("I9")
def test_events_add_up() -> None:
    samples = samples_of(
        collect_metrics(
            *request("pkt_1", within=call("cal_1", packet_id="pkt_1", cut=True)),
            *request("pkt_2", need=NeedVerdict.NONE),
            *call("cal_2", error=ErrorKind.TIMEOUT, milliseconds=40.0),
            *call("cal_3", fallback="clock/now"),
            create_requested("cal_4", "pen_1"),
            create_decided("cal_4", "pen_1", Decision.REJECTED),
            BreakerMoved(server="time", state="open", reason=""),
            ServerStateChanged(server="time", previous=ServerState.IDLE, state=ServerState.READY),
        )
    )
    assert value(samples, "fingerpost_requests_total", outcome="answered") == 2
    assert value(samples, "fingerpost_narrowings_total", need="none") == 1
    assert value(samples, "fingerpost_tools_considered_total") == 80
    assert value(samples, "fingerpost_tools_offered_total") == 2
    assert value(samples, "fingerpost_tokens_saved_total") == 7_800
    assert value(samples, "fingerpost_model_tokens_total", model="small", direction="input") == 600
    called = {"server": "time", "tool": "time/now"}
    assert value(samples, "fingerpost_calls_total", outcome="succeeded", **called) == 1
    assert value(samples, "fingerpost_calls_total", outcome="timeout", **called) == 1
    assert value(samples, "fingerpost_attempts_total", server="time", outcome="timeout") == 2
    assert value(samples, "fingerpost_attempt_duration_seconds_count", server="time") == 3
    assert value(samples, "fingerpost_attempt_duration_seconds_bucket", server="time", le="0.025") == 0
    assert value(samples, "fingerpost_attempt_duration_seconds_bucket", server="time", le="0.05") == 3
    assert value(samples, "fingerpost_fallbacks_total") == 1
    assert value(samples, "fingerpost_results_total", cut="yes") == 1
    assert value(samples, "fingerpost_approvals_asked_total") == 1
    assert value(samples, "fingerpost_approvals_decided_total", decision="rejected") == 1
    assert value(samples, "fingerpost_breaker_openings_total", server="time") == 1


def test_what_a_caller_wrote_is_no_label() -> None:
    metrics = collect_metrics(*call("cal_1", "no such/tool of mine", error=ErrorKind.TOOL_NOT_FOUND)[-1:])
    assert b"mine" not in metrics.render()[0]
    samples = samples_of(metrics)
    assert (
        value(samples, "fingerpost_calls_total", server="other", tool="other", outcome="tool_not_found") == 1
    )


def test_label_values_are_bounded() -> None:
    metrics = PrometheusMetrics(max_tools=20)
    for number in range(25):
        for event in call(f"cal_{number}", f"server{number}/tool{number}"):
            metrics.emit(event)
    samples = samples_of(metrics)
    tools = {dict(labels)["tool"] for name, labels in samples if name == "fingerpost_calls_total"}
    assert len(tools) == 20 + 1
    assert value(samples, "fingerpost_calls_total", server="other", tool="other", outcome="succeeded") == 5


def test_the_house_as_it_is_now() -> None:
    gauges = GaugeValues(
        servers={"time": "ready", "web": "down"},
        breakers={"web": "open"},
        tools=7,
        approvals_waiting=2,
        live_streams=3,
        version="1.2",
    )
    samples = samples_of(PrometheusMetrics(), gauges)
    assert value(samples, "fingerpost_server_up", server="time") == 1
    assert value(samples, "fingerpost_server_up", server="web") == 0
    assert value(samples, "fingerpost_breaker_open", server="web") == 1
    assert value(samples, "fingerpost_approvals_waiting") == 2
    assert value(samples, "fingerpost_live_streams") == 3
    assert value(samples, "fingerpost_build_info", version="1.2") == 1


def test_both_formats_can_be_read() -> None:
    metrics = collect_metrics(*call("cal_1"))
    body, content_type = metrics.render(
        GaugeValues(version="1"), accept="application/openmetrics-text; version=1.0.0"
    )
    assert content_type.startswith("application/openmetrics-text")
    families: Any = cast("Any", openmetrics).text_string_to_metric_families(body.decode())
    assert {family.name for family in families} >= {
        "fingerpost_calls",
        "fingerpost_call_duration_seconds",
        "fingerpost_server_up",
    }
