"""Spans of real journeys, by the real SDK: names, nesting, times, and what stays out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from fingerpost import Router
from fingerpost.records import ErrorKind, RouteOutcome
from fingerpost.surfaces.gateway.app import GatewayApp
from fingerpost.surfaces.gateway.methods import open_methods
from fingerpost.surfaces.gateway.sessions import NotificationListeners
from fingerpost.surfaces.http.server import get_address, listen_at
from fingerpost.surfaces.serve import TracedApp
from fingerpost.telemetry import spans
from fingerpost.telemetry.spans import (
    ATTR_CALLER,
    ATTR_INPUT_MESSAGES,
    ATTR_OUTCOME,
    ATTR_OUTPUT_MESSAGES,
    ATTR_PURPOSE,
    ATTR_TOOL_ARGUMENTS,
    ATTR_TOOL_RESULT,
    ATTR_UNFINISHED,
    MAX_TRACE_AGE,
    SpanSink,
)
from fingerpost.telemetry.tracing import use_trace_carrier
from fingerpost.testing import ScriptedModel, ToolServer, tool_server
from tests.kit.call_recorder import DESTROYS, READS, tool
from tests.kit.gateway_client import ask, tool_call
from tests.kit.gateways import run_app
from tests.kit.journal_events import NOON, call, request
from tests.kit.routers import open_router, script_model, write_review, write_selection
from tests.kit.small_gateway import Address, OpenGate
from tests.requirements import proves

pytestmark = pytest.mark.anyio

_CONVENTIONS = "opentelemetry.semconv._incubating.attributes."
gen_ai_attributes: ModuleType = import_module(_CONVENTIONS + "gen_ai_attributes")
mcp_attributes: ModuleType = import_module(_CONVENTIONS + "mcp_attributes")
SECRET_WISH = "Delete the file plans-for-monday.txt for good"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traces:
    """Everything that was exported."""

    def __init__(self, **more: Any) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.spans = SpanSink(provider.get_tracer("test"), **more)

    @property
    def finished_spans(self) -> Sequence[ReadableSpan]:
        return sorted(self._kept.get_finished_spans(), key=lambda span: span.start_time or 0)

    def find_spans(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.finished_spans if span.name.startswith(start)]

    def tree(self) -> dict[str, str | None]:
        """Each span's name and its parent's."""
        by_id = {get_context(span).span_id: span.name for span in self.finished_spans}
        return {
            span.name: None if span.parent is None else by_id.get(span.parent.span_id, "elsewhere")
            for span in self.finished_spans
        }

    def text(self) -> str:
        return "".join(span.to_json() for span in self.finished_spans)


def get_context(span: ReadableSpan) -> SpanContext:
    assert span.context is not None
    return span.context


def files() -> ToolServer:
    return tool_server(
        "files",
        (
            tool("delete_file", "Delete a file for good.", "path", **DESTROYS),
            tool("read_file", "Read a text file.", "path", **READS),
        ),
    )


def chooser() -> ScriptedModel:
    return script_model(
        selection=lambda request: write_selection("files__delete_file", {"path": "plans-for-monday.txt"}),
        review=lambda request: write_review(),
        answer=lambda request: "It is deleted, says files/delete_file.",
    )


@asynccontextmanager
async def open_traced_router(
    folder: Path, traces: Traces, model: ScriptedModel | None = None
) -> AsyncGenerator[Router]:
    async with open_router(folder, [files().spec()], model, sinks=[traces.spans]) as router:
        yield router


@proves("I10")
async def test_a_request_that_waits_for_a_person_and_goes_on(tmp_path: Path) -> None:
    traces = Traces()
    async with open_traced_router(tmp_path, traces, chooser()) as router:
        asked = await router.route(SECRET_WISH, conversation="ses_1", caller="dana")
        assert asked.outcome is RouteOutcome.WAITING
        assert asked.pending is not None
        first = traces.tree()
        done = await router.resume(asked, asked.pending.approve(by="noa"))
        assert done.outcome is RouteOutcome.ANSWERED
    root = "invoke_agent fingerpost"
    below = {name for name, parent in first.items() if parent == root}
    assert below >= {"narrow", "review", "execute_tool files/delete_file"}
    assert any(name.startswith("chat ") for name in below)
    began, resumed = traces.find_spans(root)
    attributes = began.attributes or {}
    assert attributes[gen_ai_attributes.GEN_AI_OPERATION_NAME] == "invoke_agent"
    assert attributes[gen_ai_attributes.GEN_AI_CONVERSATION_ID] == "ses_1"
    assert (attributes[ATTR_OUTCOME], attributes[ATTR_CALLER]) == ("waiting", "dana")
    assert [link.context.span_id for link in resumed.links] == [get_context(began).span_id]
    (attempt,) = traces.find_spans("tools/call delete_file")
    assert attempt.kind is SpanKind.CLIENT
    assert attempt.parent is not None
    second_call = traces.find_spans("execute_tool")[-1]
    assert attempt.parent.span_id == get_context(second_call).span_id
    assert (attempt.attributes or {})[mcp_attributes.MCP_METHOD_NAME] == "tools/call"
    events = [event.name for span in traces.finished_spans for event in span.events]
    assert {"tool selected", "confidence judged", "policy", "approval requested"} <= set(events)
    question = traces.find_spans("chat ")[0].attributes or {}
    assert question[gen_ai_attributes.GEN_AI_OPERATION_NAME] == "chat"
    assert question[ATTR_PURPOSE] == "selection"


@proves("I10")
@pytest.mark.parametrize("content", [False, True])
async def test_what_people_and_tools_said_stays_out_unless_wanted(tmp_path: Path, content: bool) -> None:
    traces = Traces(content=content)
    async with open_traced_router(tmp_path, traces, chooser()) as router:
        asked = await router.route(SECRET_WISH)
        assert asked.pending is not None
        await router.resume(asked, asked.pending.approve(by="noa"))
    text = traces.text()
    assert ("plans-for-monday" in text) is content
    assert ("It is deleted" in text) is content
    for wanted in (
        ATTR_INPUT_MESSAGES,
        ATTR_OUTPUT_MESSAGES,
        ATTR_TOOL_ARGUMENTS,
        ATTR_TOOL_RESULT,
    ):
        assert (wanted in text) is content


async def test_spans_lie_within_their_parents_in_time(tmp_path: Path) -> None:
    traces = Traces()
    async with open_traced_router(tmp_path, traces) as router:
        await router.route("Read the file a.txt")
    spans = {get_context(span).span_id: span for span in traces.finished_spans}
    assert len(spans) > 2
    slack = 5_000_000  # durations are measured by another clock than moments
    for span in spans.values():
        if span.parent is not None:
            parent = spans[span.parent.span_id]
            assert (span.start_time or 0) >= (parent.start_time or 0) - slack
            assert (span.end_time or 0) <= (parent.end_time or 0) + slack


@proves("I10")
async def test_a_call_through_the_gateway_is_part_of_the_callers_trace(tmp_path: Path) -> None:
    traces = Traces(transport_of={"files": "stdio"}.get)
    async with open_traced_router(tmp_path, traces) as router, open_traced_gateway(router) as address:
        body, headers = tool_call("files__read_file", path="a.txt")
        assert (await ask(address, body, {**headers, "traceparent": PARENT}, path="/mcp/all")).status == 200
    (root,) = traces.find_spans("execute_tool files/read_file")
    assert root.parent is not None
    assert f"{get_context(root).trace_id:032x}" == PARENT.split("-")[1]
    assert f"{root.parent.span_id:016x}" == PARENT.split("-")[2]
    attributes = root.attributes or {}
    assert attributes[gen_ai_attributes.GEN_AI_TOOL_NAME] == "files/read_file"
    assert attributes[gen_ai_attributes.GEN_AI_TOOL_CALL_ID]
    (attempt,) = traces.find_spans("tools/call read_file")
    assert (attempt.attributes or {})["network.transport"] == "pipe"
    assert traces.tree()["tools/call read_file"] == "execute_tool files/read_file"


@asynccontextmanager
async def open_traced_gateway(router: Router) -> AsyncGenerator[Address]:
    listening = listen_at("127.0.0.1", 0)
    audience = NotificationListeners()
    with listening:
        async with (
            open_methods(router, audience=audience) as methods,
            GatewayApp(methods, OpenGate(), router.settings.gateway, router.events, audience=audience) as app,
            run_app(TracedApp(app), listening),
        ):
            host, port = get_address(listening).rsplit(":", 1)
            yield Address(host, int(port))


def test_a_failed_call_says_which_kind_and_not_which_words() -> None:
    traces = Traces()
    for event in call("cal_1", error=ErrorKind.TIMEOUT):
        traces.spans.emit(event)
    assert traces.tree() == {"execute_tool time/now": None, "tools/call now": "execute_tool time/now"}
    for span in traces.finished_spans:
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "timeout"
        assert not span.status.description


def test_a_trace_that_is_none_is_not_taken() -> None:
    traces = Traces()
    with use_trace_carrier({"traceparent": "x" * 2_000}), use_trace_carrier({"traceparent": "not a trace"}):
        for event in call("cal_1"):
            traces.spans.emit(event)
    assert traces.tree()["execute_tool time/now"] is None


def test_requests_without_an_end_are_ended_in_time_and_number() -> None:
    traces = Traces(most_open=20)
    for number in range(25):
        for event in request(f"pkt_{number}", outcome=None):
            traces.spans.emit(event)
    roots = traces.find_spans("invoke_agent")
    assert len(roots) == 5
    assert all((span.attributes or {})[ATTR_UNFINISHED] for span in roots)
    later = NOON + MAX_TRACE_AGE + timedelta(seconds=1)
    traces.spans.emit(request("pkt_late", outcome=None, at=later)[0])
    assert len(traces.find_spans("invoke_agent")) == 25
    traces.spans.close()
    assert len(traces.find_spans("invoke_agent")) == 26


def test_events_of_unknown_requests_make_no_spans() -> None:
    traces = Traces()
    for event in (*request("pkt_1")[1:], *call("cal_1", packet_id="pkt_2"), *call("cal_2")[1:]):
        traces.spans.emit(event)
    traces.spans.close()
    assert not traces.finished_spans


def test_our_names_are_those_of_the_conventions() -> None:
    known = {
        value
        for module in (gen_ai_attributes, mcp_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    used = {value for name, value in vars(spans).items() if name.startswith("ATTR_")}
    assert {value for value in used if value.startswith(("gen_ai.", "mcp."))} <= known
    assert used - known == {value for value in used if value.startswith("fingerpost.")} | {
        "error.type",
        "network.transport",
    }


@pytest.mark.process
@proves("I10")
def test_nothing_of_it_is_loaded_where_it_is_off() -> None:
    code = """
import sys
import fingerpost, fingerpost.telemetry.tracing, fingerpost.surfaces.cli.main
print([name for name in sys.modules if name.startswith(("opentelemetry", "prometheus_client"))])
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert run.stdout.strip() == "[]"
