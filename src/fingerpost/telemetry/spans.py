"""Spans for OpenTelemetry, made from events.

A request is a span `invoke_agent fingerpost` with its stages below; a call of a tool is
`execute_tool …` with each attempt below. Times are those of the events. What people
and tools said stays out unless `content` is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from threading import Lock
from typing import Any, Final

import orjson
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fingerpost.events import (
    AnswerGiven,
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    AttemptStarted,
    BudgetReached,
    CallFinished,
    CallPrepared,
    CallReceived,
    CallRuled,
    ConfidenceJudged,
    Event,
    FallbackTaken,
    ModelAnswered,
    PacketReceived,
    RequestNarrowed,
    ResultDigested,
    RouteBegan,
    RouteEnded,
    SelectionReviewed,
    ToolResultInjected,
    ToolSelected,
)
from fingerpost.records import RouteOutcome
from fingerpost.telemetry import names
from fingerpost.telemetry.caller import get_trace_carrier
from fingerpost.telemetry.journeys import MAX_OPEN_TRACES, OpenTrace, OpenTraces, to_nanoseconds

logger = logging.getLogger("fingerpost.telemetry")

MAX_CONTENT_LENGTH: Final = 8_000
_AGENT_NAME: Final = "fingerpost"
_PROVIDERS: Final = {"google": "gcp.gemini"}
_TRANSPORTS: Final = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}
_WAITING_OUTCOMES: Final = frozenset({RouteOutcome.WAITING, RouteOutcome.ASKED})
_FAILED_OUTCOMES: Final = frozenset({RouteOutcome.FAILED, RouteOutcome.LIMITED})

_propagator: Final = TraceContextTextMapPropagator()

SpanAttributes = dict[str, str | int | float | bool]


class SpanSink:
    """A sink that turns events into spans."""

    def __init__(
        self,
        tracer: Tracer,
        *,
        content: bool = False,
        providers: Mapping[str, str] | None = None,
        transport_of: Callable[[str], str | None] = lambda _: None,
        most_open: int = MAX_OPEN_TRACES,
    ) -> None:
        """`providers` are APIs by the models' names, `transport_of` says how a server is connected."""
        self._tracer = tracer
        self._content = content
        self._providers = providers or {}
        self._transport_of = transport_of
        self._open_traces = OpenTraces(most_open)
        self._lock = Lock()  # events may come from any thread

    def emit(self, event: Event) -> None:
        """Begins, changes or ends the span the event is about."""
        meaning = _SPAN_HANDLERS.get(type(event))
        if meaning is not None and event.packet_id is not None:
            with self._lock:
                meaning(self, event)

    def close(self) -> None:
        """End what is open."""
        with self._lock:
            self._open_traces.close_all()

    # -- trees --------------------------------------------------------------------------------------

    def _open_trace(
        self, event: Event, name: str, attributes: SpanAttributes, *, came_from: Any = None
    ) -> OpenTrace:
        assert event.packet_id is not None
        links = () if came_from is None else (Link(came_from),)
        root = self._tracer.start_span(
            name,
            context=_get_parent_context(),
            kind=SpanKind.SERVER if get_trace_carrier() is not None else SpanKind.INTERNAL,
            attributes=attributes,
            links=links,
            start_time=to_nanoseconds(event.at),
        )
        return self._open_traces.open(event.packet_id, root, event.at)

    def _get_trace(self, event: Event) -> OpenTrace | None:
        """The tree of this packet; one that waited goes on in a new tree, linked to the old."""
        assert event.packet_id is not None
        tree = self._open_traces.get(event.packet_id, event.at)
        if tree is None and (came_from := self._open_traces.take_waiting(event.packet_id)) is not None:
            attributes = {**_build_agent_attributes(event.packet_id), names.ATTR_RESUMED: True}
            tree = self._open_trace(event, f"invoke_agent {_AGENT_NAME}", attributes, came_from=came_from)
            tree.is_routed = True
        return tree

    def _start_finished_span(
        self, parent: Span, name: str, began: int, ended: datetime, kind: SpanKind, attributes: SpanAttributes
    ) -> Span:
        """A span whose beginning is told together with its end; the caller ends it."""
        return self._tracer.start_span(
            name,
            context=set_span_in_context(parent),
            kind=kind,
            attributes=attributes,
            start_time=min(began, to_nanoseconds(ended)),
        )

    # -- requests -----------------------------------------------------------------------------------

    def _trace_received(self, event: PacketReceived) -> None:
        packet = event.packet
        attributes = _build_agent_attributes(packet.packet_id)
        attributes[names.ATTR_CONVERSATION] = packet.header.session_id
        if packet.header.caller is not None:
            attributes[names.ATTR_CALLER] = packet.header.caller
        if self._content:
            attributes[names.ATTR_INPUT_MESSAGES] = _format_message("user", packet.content.original_prompt)
        self._open_trace(event, f"invoke_agent {_AGENT_NAME}", attributes)

    def _trace_began(self, event: RouteBegan) -> None:
        if (tree := self._get_trace(event)) is not None:
            tree.is_routed = True
            tree.root.set_attribute(names.ATTR_MODE, event.mode.value)
            if event.profile is not None:
                tree.root.set_attribute(names.ATTR_PROFILE, event.profile)

    def _trace_narrowed(self, event: RequestNarrowed) -> None:
        tree = self._get_trace(event)
        if tree is None:
            return
        narrowing = event.narrowing
        shortlist = narrowing.shortlist
        span = self._start_finished_span(
            tree.root,
            "narrow",
            to_nanoseconds(event.at, narrowing.milliseconds),
            event.at,
            SpanKind.INTERNAL,
            {
                names.ATTR_NEED: narrowing.need.verdict.value,
                names.ATTR_CONSIDERED: shortlist.considered,
                names.ATTR_OFFERED: len(shortlist.offered),
                names.ATTR_FIT: shortlist.fit,
                names.ATTR_LANGUAGE: narrowing.signals.language,
            },
        )
        span.end(to_nanoseconds(event.at))
        if not tree.is_routed:  # nobody set out to answer it: this is all that was wanted
            self._open_traces.close(event.packet_id or "", event.at)

    def _trace_model_answered(self, event: ModelAnswered) -> None:
        tree = self._get_trace(event)
        if tree is None:
            return
        provider = self._providers.get(event.model, "openai")
        attributes: SpanAttributes = {
            names.ATTR_OPERATION: "chat",
            names.ATTR_PROVIDER: _PROVIDERS.get(provider, provider),
            names.ATTR_REQUEST_MODEL: event.model,
            names.ATTR_ROLE: event.role,
            names.ATTR_PURPOSE: event.purpose,
        }
        if event.prompt_tokens is not None:
            attributes[names.ATTR_INPUT_TOKENS] = event.prompt_tokens
        if event.completion_tokens is not None:
            attributes[names.ATTR_OUTPUT_TOKENS] = event.completion_tokens
        if event.stood_in:
            attributes[names.ATTR_STOOD_IN] = True
        began = to_nanoseconds(event.at, event.milliseconds)
        span = self._start_finished_span(
            tree.root, f"chat {event.model}", began, event.at, SpanKind.CLIENT, attributes
        )
        if event.error is not None:
            _mark_failed(span, "model_error", event.error if self._content else None)
        span.end(to_nanoseconds(event.at))

    def _trace_selected(self, event: ToolSelected) -> None:
        if (tree := self._get_trace(event)) is not None:
            tree.selected = event.at
            chosen = event.selection
            told: SpanAttributes = {} if chosen is None else {names.ATTR_TOOL: chosen.tool}
            if chosen is not None:
                told[names.ATTR_CONFIDENCE] = chosen.confidence
            tree.root.add_event("tool selected", told, to_nanoseconds(event.at))

    def _trace_reviewed(self, event: SelectionReviewed) -> None:
        if (tree := self._get_trace(event)) is not None:
            began = to_nanoseconds(tree.selected or event.at)
            attributes: SpanAttributes = {
                names.ATTR_APPROVED: event.review.approved,
                names.ATTR_CONFIDENCE: event.review.confidence,
            }
            span = self._start_finished_span(
                tree.root, "review", began, event.at, SpanKind.INTERNAL, attributes
            )
            span.end(to_nanoseconds(event.at))

    def _trace_judged(self, event: ConfidenceJudged) -> None:
        if (tree := self._get_trace(event)) is not None:
            told: SpanAttributes = {
                names.ATTR_CONFIDENCE: event.confidence.score,
                names.ATTR_VERDICT: event.confidence.verdict.value,
            }
            tree.root.add_event("confidence judged", told, to_nanoseconds(event.at))

    def _trace_limit_reached(self, event: BudgetReached) -> None:
        if (tree := self._get_trace(event)) is not None:
            tree.root.add_event("limit reached", {names.ATTR_LIMIT: event.limit}, to_nanoseconds(event.at))

    def _trace_result_injected(self, event: ToolResultInjected) -> None:
        if self._content and (tree := self._get_trace(event)) is not None:
            told: SpanAttributes = {names.ATTR_TOOL_RESULT: _format_text(event.result.output)}
            tree.root.add_event("tool result", told, to_nanoseconds(event.at))

    def _trace_answered(self, event: AnswerGiven) -> None:
        if self._content and (tree := self._get_trace(event)) is not None:
            tree.root.set_attribute(names.ATTR_OUTPUT_MESSAGES, _format_message("assistant", event.text))

    def _trace_route_ended(self, event: RouteEnded) -> None:
        tree = self._get_trace(event)
        if tree is None or event.packet_id is None:
            return
        tree.root.set_attribute(names.ATTR_OUTCOME, event.outcome.value)
        if event.outcome in _FAILED_OUTCOMES:
            _mark_failed(tree.root, event.outcome.value)
        self._open_traces.close(event.packet_id, event.at, is_waiting=event.outcome in _WAITING_OUTCOMES)

    # -- calls --------------------------------------------------------------------------------------

    def _trace_call_received(self, event: CallReceived) -> None:
        attributes: SpanAttributes = {
            names.ATTR_OPERATION: "execute_tool",
            names.ATTR_TOOL_CALL: event.call_id,
            names.ATTR_TOOL_TYPE: "function",
        }
        if event.conversation is not None:
            attributes[names.ATTR_CONVERSATION] = event.conversation
        if event.caller is not None:
            attributes[names.ATTR_CALLER] = event.caller
        if event.packet_id == event.call_id:
            tree = self._open_trace(event, "execute_tool", attributes)
            tree.calls[event.call_id] = tree.root
        elif (tree := self._get_trace(event)) is not None:
            tree.calls[event.call_id] = self._tracer.start_span(
                "execute_tool",
                context=set_span_in_context(tree.root),
                attributes=attributes,
                start_time=to_nanoseconds(event.at),
            )

    def _trace_call_prepared(self, event: CallPrepared) -> None:
        if (span := self._get_call_span(event)) is not None:
            span.update_name(f"execute_tool {event.tool}")
            span.set_attribute(names.ATTR_TOOL, event.tool)
            if self._content:
                span.set_attribute(names.ATTR_TOOL_ARGUMENTS, _format_text(event.arguments))

    def _trace_call_ruled(self, event: CallRuled) -> None:
        if (span := self._get_call_span(event)) is not None:
            told: SpanAttributes = {names.ATTR_VERDICT: event.verdict.value, names.ATTR_RULE: event.rule}
            span.add_event("policy", told, to_nanoseconds(event.at))

    def _trace_approval_requested(self, event: ApprovalRequested) -> None:
        if (span := self._get_call_span(event)) is not None:
            span.add_event(
                "approval requested", {names.ATTR_PENDING: event.pending_id}, to_nanoseconds(event.at)
            )

    def _trace_approval_decided(self, event: ApprovalDecided) -> None:
        """In the call that waits, or where it is over, in the request."""
        tree = self._open_traces.get(event.packet_id or "", event.at)
        if tree is not None:
            told: SpanAttributes = {
                names.ATTR_PENDING: event.pending_id,
                names.ATTR_VERDICT: event.decision.value,
            }
            span = tree.calls.get(event.call_id, tree.root)
            span.add_event("approval decided", told, to_nanoseconds(event.at))

    def _trace_fallback_taken(self, event: FallbackTaken) -> None:
        if (span := self._get_call_span(event)) is not None:
            span.add_event("fallback taken", {names.ATTR_TOOL: event.tool}, to_nanoseconds(event.at))

    def _trace_result_digested(self, event: ResultDigested) -> None:
        if (span := self._get_call_span(event)) is not None:
            span.set_attribute(names.ATTR_RESULT_TOKENS, event.tokens)
            span.set_attribute(names.ATTR_ORIGINAL_TOKENS, event.original_tokens)

    def _trace_attempt_started(self, event: AttemptStarted) -> None:
        tree = self._get_trace(event)
        call = None if tree is None else tree.calls.get(event.call_id)
        if tree is None or call is None:
            return
        server, _, tool = event.tool.partition("/")
        attributes: SpanAttributes = {
            names.ATTR_MCP_METHOD: "tools/call",
            names.ATTR_OPERATION: "execute_tool",
            names.ATTR_TOOL: tool,
            names.ATTR_SERVER: server,
            names.ATTR_ATTEMPT: event.number,
        }
        if (transport := _TRANSPORTS.get(self._transport_of(server) or "")) is not None:
            attributes[names.ATTR_TRANSPORT] = transport
        if event.fallback:
            attributes[names.ATTR_FALLBACK] = True
        tree.attempts[event.call_id, event.tool, event.number] = self._tracer.start_span(
            f"tools/call {tool}",
            context=set_span_in_context(call),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=to_nanoseconds(event.at),
        )

    def _trace_attempt_finished(self, event: AttemptFinished) -> None:
        tree, made = self._get_trace(event), event.attempt
        if tree is None:
            return
        span = tree.attempts.pop((event.call_id, made.tool, made.number), None)
        if span is not None:
            if made.error is not None:
                _mark_failed(span, made.error.value, made.detail if self._content else None)
            span.end(to_nanoseconds(event.at))
        elif made.cached and (call := tree.calls.get(event.call_id)) is not None:
            call.add_event("answered from the cache", {names.ATTR_TOOL: made.tool}, to_nanoseconds(event.at))

    def _trace_call_finished(self, event: CallFinished) -> None:
        tree = self._get_trace(event)
        span = None if tree is None else tree.calls.pop(event.call_id, None)
        if tree is None or span is None:
            return
        if not event.success:
            kind = "failed" if event.error is None else event.error.value
            _mark_failed(span, kind, event.detail if self._content else None)
        if span is tree.root:
            self._open_traces.close(event.call_id, event.at)
        else:
            span.end(to_nanoseconds(event.at))

    def _get_call_span(self, event: Any) -> Span | None:
        tree = self._get_trace(event)
        return None if tree is None else tree.calls.get(event.call_id)

    handlers: Final[dict[type[Event], Callable[[SpanSink, Any], None]]] = {
        PacketReceived: _trace_received,
        RouteBegan: _trace_began,
        RequestNarrowed: _trace_narrowed,
        ModelAnswered: _trace_model_answered,
        ToolSelected: _trace_selected,
        SelectionReviewed: _trace_reviewed,
        ConfidenceJudged: _trace_judged,
        BudgetReached: _trace_limit_reached,
        ToolResultInjected: _trace_result_injected,
        AnswerGiven: _trace_answered,
        RouteEnded: _trace_route_ended,
        CallReceived: _trace_call_received,
        CallPrepared: _trace_call_prepared,
        CallRuled: _trace_call_ruled,
        ApprovalRequested: _trace_approval_requested,
        ApprovalDecided: _trace_approval_decided,
        FallbackTaken: _trace_fallback_taken,
        ResultDigested: _trace_result_digested,
        AttemptStarted: _trace_attempt_started,
        AttemptFinished: _trace_attempt_finished,
        CallFinished: _trace_call_finished,
    }


_SPAN_HANDLERS: Final = SpanSink.handlers


def _get_parent_context() -> Context | None:
    """The caller's trace; None: the span that is current in this task, where there is one."""
    carrier = get_trace_carrier()
    return None if carrier is None else _propagator.extract(dict(carrier))


def _build_agent_attributes(packet_id: str) -> SpanAttributes:
    return {
        names.ATTR_OPERATION: "invoke_agent",
        names.ATTR_PROVIDER: _AGENT_NAME,
        names.ATTR_AGENT: _AGENT_NAME,
        names.ATTR_PACKET: packet_id,
    }


def _mark_failed(span: Span, kind: str, detail: str | None = None) -> None:
    span.set_attribute(names.ATTR_ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, detail and detail[:MAX_CONTENT_LENGTH]))


def _format_message(role: str, text: str) -> str:
    """As the conventions want messages: a list of one, with its parts."""
    part = {"type": "text", "content": text[:MAX_CONTENT_LENGTH]}
    return orjson.dumps([{"role": role, "parts": [part]}]).decode()


def _format_text(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text[:MAX_CONTENT_LENGTH]
