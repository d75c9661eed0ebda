"""Spans over OTLP to a collector, as the settings want it; clear words where that cannot be."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fingerpost import Router
from fingerpost.errors import ConfigError
from fingerpost.events import Fanout
from fingerpost.settings import Settings
from fingerpost.telemetry.tracing import build_traces_url, open_spans
from fingerpost.testing import tool_server
from tests.kit.journal_events import call
from tests.kit.routers import build_settings
from tests.requirements import proves

pytestmark = pytest.mark.anyio


class Collector:
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, ExportTraceServiceRequest]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.requests.append((self.path, ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is written to the terminal."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    @contextmanager
    def run(self) -> Generator[None]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@proves("I10")
@pytest.mark.parametrize("by_environment", [False, True])
async def test_spans_arrive_at_a_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    collector = Collector()
    server = tool_server("time", [{"name": "now", "annotations": {"readOnlyHint": True}}])
    if by_environment:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    endpoint = {} if by_environment else {"otlp_endpoint": collector.address}
    chosen = build_settings(tmp_path, telemetry={"service_name": "front desk", **endpoint})
    with collector.run():
        async with (
            Router([server.spec()], settings=chosen) as router,
            open_spans(chosen, router.events) as tracing,
        ):
            assert tracing
            await router.connect()
            assert (await router.call("time/now", {})).success
    ((path, sent),) = collector.requests
    assert path == "/v1/traces"
    (resource,) = sent.resource_spans
    attributes = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert attributes["service.name"] == "front desk"
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert set(spans) == {"execute_tool time/now", "tools/call now"}
    attempt, root = spans["tools/call now"], spans["execute_tool time/now"]
    assert (attempt.parent_span_id, attempt.trace_id) == (root.span_id, root.trace_id)
    assert 0 < root.start_time_unix_nano <= attempt.start_time_unix_nano


@pytest.mark.slow
async def test_a_missing_collector_does_not_disturb_requests(tmp_path: Path) -> None:
    chosen = build_settings(tmp_path, telemetry={"otlp_endpoint": "http://127.0.0.1:9"})
    events = Fanout()
    async with open_spans(chosen, events, environment={}):
        for event in call("cal_1"):
            events.emit(event)
    assert events.failures == 0


async def test_without_the_extra_a_person_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    chosen = Settings.model_validate({"telemetry": {"otlp_endpoint": "http://127.0.0.1:4318"}})
    with pytest.raises(ConfigError) as refused:
        async with open_spans(chosen, Fanout(), environment={}):
            pass
    assert refused.value.hint == "pip install 'fingerpost[otel]'"


async def test_the_environment_alone_does_not_stop_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    wanted = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    async with open_spans(Settings(), Fanout(), environment=wanted) as tracing:
        assert not tracing


async def test_what_is_off_is_off() -> None:
    async with open_spans(Settings(), Fanout(), environment={}) as tracing:
        assert not tracing


def test_where_spans_go() -> None:
    assert build_traces_url("http://collector:4318/") == "http://collector:4318/v1/traces"
    assert build_traces_url("https://house.example/otlp/v1/traces") == "https://house.example/otlp/v1/traces"
