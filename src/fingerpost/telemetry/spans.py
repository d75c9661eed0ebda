"""Spans for OpenTelemetry, built from events."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Final

import orjson
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fingerpost.events import (
    AnswerGiven,
    ApprovalDecided,
    ApprovalRequested,
    AttemptFinished,
    AttemptStarted,
    BudgetReached,
    CallEvent,
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
from fingerpost.telemetry.tracing import get_trace_carrier

# Names of the OpenTelemetry conventions, which a test compares with these.
ATTR_OPERATION: Final = "gen_ai.operation.name"
ATTR_AGENT: Final = "gen_ai.agent.name"
ATTR_REQUEST_MODEL: Final = "gen_ai.request.model"
ATTR_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
ATTR_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
ATTR_TOOL_TYPE: Final = "gen_ai.tool.type"
ATTR_TOOL_CALL: Final = "gen_ai.tool.call.id"
ATTR_MCP_METHOD: Final = "mcp.method.name"
ATTR_TRANSPORT: Final = "network.transport"
ATTR_ERROR_TYPE: Final = "error.type"
ATTR_PROVIDER: Final = "gen_ai.provider.name"
ATTR_CONVERSATION: Final = "gen_ai.conversation.id"
ATTR_INPUT_MESSAGES: Final = "gen_ai.input.messages"
ATTR_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
ATTR_TOOL: Final = "gen_ai.tool.name"
ATTR_TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
ATTR_TOOL_RESULT: Final = "gen_ai.tool.call.result"

ATTR_CALLER: Final = "fingerpost.caller"
ATTR_OUTCOME: Final = "fingerpost.outcome"
ATTR_UNFINISHED: Final = "fingerpost.unfinished"
ATTR_PURPOSE: Final = "fingerpost.model.purpose"
ATTR_CONFIDENCE: Final = "fingerpost.confidence"
ATTR_VERDICT: Final = "fingerpost.verdict"
ATTR_PENDING: Final = "fingerpost.pending.id"


MAX_OPEN_TRACES: Final = 2_000
MAX_WAITING_TRACES: Final = 1_000
MAX_TRACE_AGE: Final = timedelta(hours=1)  # since the last event; no end event will follow
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def to_nanoseconds(moment: datetime, less_milliseconds: float = 0.0) -> int:
    since = moment - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1_000
    return whole - round(less_milliseconds * 1_000_000)


@dataclass(slots=True)
class OpenTrace:
    """The open spans of one request: the root and the spans below it."""

    root: Span
    last_event_at: datetime
    calls: dict[str, Span] = field(default_factory=dict[str, Span])
    attempts: dict[tuple[str, str, int], Span] = field(default_factory=dict[tuple[str, str, int], Span])
    selected_at: datetime | None = None
    is_routed: bool = False  # False: the request is only narrowed

    def get_call(self, event: CallEvent) -> Span:
        """Return the span of the event's call, or one that records nothing."""
        return self.calls.get(event.call_id, INVALID_SPAN)

    def end(self, at: datetime, *, unfinished: bool = False) -> None:
        """End all spans, the innermost first."""
        # A direct call has only the root span.
        below = [span for span in (*self.attempts.values(), *self.calls.values()) if span is not self.root]
        for span in below:
            span.set_attribute(ATTR_UNFINISHED, True)  # noqa: FBT003 - an attribute and its value
            span.end(to_nanoseconds(at))
        self.attempts.clear()
        self.calls.clear()
        if unfinished:
            self.root.set_attribute(ATTR_UNFINISHED, True)  # noqa: FBT003 - an attribute and its value
        self.root.end(to_nanoseconds(at))


class OpenTraces:
    """Open traces by packet. The oldest are ended when there are too many."""

    def __init__(self, max_traces: int = MAX_OPEN_TRACES) -> None:
        self._max_traces = max_traces
        self._trees: OrderedDict[str, OpenTrace] = OrderedDict()
        self._waiting: OrderedDict[str, SpanContext] = OrderedDict()  # requests that wait for a person

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
        """End the trace of a request that ended or waits. A waiting one can continue in a new trace."""
        tree = self._trees.pop(packet_id, None)
        if tree is None:
            return
        tree.end(at)
        if is_waiting:
            self._waiting[packet_id] = tree.root.get_span_context()
            if len(self._waiting) > MAX_WAITING_TRACES:
                self._waiting.popitem(last=False)

    def take_waiting(self, packet_id: str) -> SpanContext | None:
        """Return and forget the span context of a request that waited, or None if it did not wait."""
        return self._waiting.pop(packet_id, None)

    def close_all(self) -> None:
        while self._trees:
            _, tree = self._trees.popitem()
            tree.end(tree.last_event_at, unfinished=True)

    def _evict_old(self, now: datetime) -> Iterator[OpenTrace]:
        while self._trees:
            packet_id, oldest = next(iter(self._trees.items()))
            if len(self._trees) < self._max_traces and now - oldest.last_event_at < MAX_TRACE_AGE:
                return
            del self._trees[packet_id]
            yield oldest


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
    """An event sink that creates spans."""

    def __init__(
        self,
        tracer: Tracer,
        *,
        content: bool = False,
        providers: Mapping[str, str] | None = None,
        transport_of: Callable[[str], str | None] = lambda _: None,
        most_open: int = MAX_OPEN_TRACES,
    ) -> None:
        """`providers` maps model names to provider APIs; `transport_of` returns that of a server."""
        self._tracer = tracer
        self._content = content
        self._providers = providers or {}
        self._transport_of = transport_of
        self._open_traces = OpenTraces(most_open)
        self._lock = Lock()  # events come from any thread

    def emit(self, event: Event) -> None:
        """Start, change or end the span of the event."""
        handler = _SPAN_HANDLERS.get(type(event))
        if handler is not None and event.packet_id is not None:
            with self._lock:
                handler(self, event)
        elif (trace_handler := _TRACE_HANDLERS.get(type(event))) is not None and event.packet_id is not None:
            with self._lock:
                if (tree := self._get_trace(event)) is not None:
                    trace_handler(self, tree, event)

    def close(self) -> None:
        """End all open spans."""
        with self._lock:
            self._open_traces.close_all()

    def _open_trace(
        self, event: Event, name: str, attributes: SpanAttributes, *, linked_context: Any = None
    ) -> OpenTrace:
        assert event.packet_id is not None
        links = () if linked_context is None else (Link(linked_context),)
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
        """Return the trace of this packet. A request that waited continues in a new, linked trace."""
        assert event.packet_id is not None
        tree = self._open_traces.get(event.packet_id, event.at)
        if tree is None and (linked_context := self._open_traces.take_waiting(event.packet_id)) is not None:
            attributes = {**_build_agent_attributes(event.packet_id), "fingerpost.resumed": True}
            tree = self._open_trace(
                event, f"invoke_agent {_AGENT_NAME}", attributes, linked_context=linked_context
            )
            tree.is_routed = True
        return tree

    def _add_span(
        self,
        tree: OpenTrace,
        event: Event,
        name: str,
        began: int,
        attributes: SpanAttributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        """Add a span for work that ended with this event. Its end is set by the caller."""
        return self._tracer.start_span(
            name,
            context=set_span_in_context(tree.root),
            kind=kind,
            attributes=attributes,
            start_time=min(began, to_nanoseconds(event.at)),
        )

    def _trace_received(self, event: PacketReceived) -> None:
        packet = event.packet
        attributes = _build_agent_attributes(packet.packet_id)
        attributes[ATTR_CONVERSATION] = packet.header.session_id
        if packet.header.caller is not None:
            attributes[ATTR_CALLER] = packet.header.caller
        if self._content:
            attributes[ATTR_INPUT_MESSAGES] = _format_message("user", packet.content.original_prompt)
        self._open_trace(event, f"invoke_agent {_AGENT_NAME}", attributes)

    def _trace_call_received(self, event: CallReceived) -> None:
        attributes: SpanAttributes = {
            ATTR_OPERATION: "execute_tool",
            ATTR_TOOL_CALL: event.call_id,
            ATTR_TOOL_TYPE: "function",
        }
        if event.conversation is not None:
            attributes[ATTR_CONVERSATION] = event.conversation
        if event.caller is not None:
            attributes[ATTR_CALLER] = event.caller
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

    def _trace_approval_decided(self, event: ApprovalDecided) -> None:
        """Add the decision to the waiting call's span or, if it has ended, to the request's span."""
        tree = self._open_traces.get(event.packet_id or "", event.at)
        if tree is not None:
            attributes: SpanAttributes = {ATTR_PENDING: event.pending_id, ATTR_VERDICT: event.decision.value}
            _add_event(tree.calls.get(event.call_id, tree.root), event, "approval decided", attributes)

    def _trace_began(self, tree: OpenTrace, event: RouteBegan) -> None:
        tree.is_routed = True
        tree.root.set_attribute("fingerpost.mode", event.mode.value)
        if event.profile is not None:
            tree.root.set_attribute("fingerpost.profile", event.profile)

    def _trace_narrowed(self, tree: OpenTrace, event: RequestNarrowed) -> None:
        narrowing, shortlist = event.narrowing, event.narrowing.shortlist
        attributes: SpanAttributes = {
            "fingerpost.need": narrowing.need.verdict.value,
            "fingerpost.tools.considered": shortlist.considered,
            "fingerpost.tools.offered": len(shortlist.offered),
            "fingerpost.fit": shortlist.fit,
            "fingerpost.language": narrowing.signals.language,
        }
        began = to_nanoseconds(event.at, narrowing.milliseconds)
        self._add_span(tree, event, "narrow", began, attributes).end(to_nanoseconds(event.at))
        if not tree.is_routed:  # only narrowed, not routed: the request is complete
            self._open_traces.close(event.packet_id or "", event.at)

    def _trace_model_answered(self, tree: OpenTrace, event: ModelAnswered) -> None:
        provider = self._providers.get(event.model, "openai")
        attributes: SpanAttributes = {
            ATTR_OPERATION: "chat",
            ATTR_PROVIDER: _PROVIDERS.get(provider, provider),
            ATTR_REQUEST_MODEL: event.model,
            "fingerpost.model.role": event.role,
            ATTR_PURPOSE: event.purpose,
        }
        if event.prompt_tokens is not None:
            attributes[ATTR_INPUT_TOKENS] = event.prompt_tokens
        if event.completion_tokens is not None:
            attributes[ATTR_OUTPUT_TOKENS] = event.completion_tokens
        if event.stood_in:
            attributes["fingerpost.model.stood_in"] = True
        began = to_nanoseconds(event.at, event.milliseconds)
        span = self._add_span(tree, event, f"chat {event.model}", began, attributes, kind=SpanKind.CLIENT)
        if event.error is not None:
            _mark_failed(span, "model_error", event.error if self._content else None)
        span.end(to_nanoseconds(event.at))

    def _trace_selected(self, tree: OpenTrace, event: ToolSelected) -> None:
        tree.selected_at = event.at
        chosen = event.selection
        attributes: SpanAttributes = (
            {} if chosen is None else {ATTR_TOOL: chosen.tool, ATTR_CONFIDENCE: chosen.confidence}
        )
        _add_event(tree.root, event, "tool selected", attributes)

    def _trace_reviewed(self, tree: OpenTrace, event: SelectionReviewed) -> None:
        began, review = to_nanoseconds(tree.selected_at or event.at), event.review
        attributes: SpanAttributes = {
            "fingerpost.review.approved": review.approved,
            ATTR_CONFIDENCE: review.confidence,
        }
        self._add_span(tree, event, "review", began, attributes).end(to_nanoseconds(event.at))

    def _trace_judged(self, tree: OpenTrace, event: ConfidenceJudged) -> None:
        sure = event.confidence
        attributes: SpanAttributes = {ATTR_CONFIDENCE: sure.score, ATTR_VERDICT: sure.verdict.value}
        _add_event(tree.root, event, "confidence judged", attributes)

    def _trace_limit_reached(self, tree: OpenTrace, event: BudgetReached) -> None:
        _add_event(tree.root, event, "limit reached", {"fingerpost.limit": event.limit})

    def _trace_result_injected(self, tree: OpenTrace, event: ToolResultInjected) -> None:
        if self._content:
            _add_event(tree.root, event, "tool result", {ATTR_TOOL_RESULT: _format_text(event.result.output)})

    def _trace_answered(self, tree: OpenTrace, event: AnswerGiven) -> None:
        if self._content:
            tree.root.set_attribute(ATTR_OUTPUT_MESSAGES, _format_message("assistant", event.text))

    def _trace_route_ended(self, tree: OpenTrace, event: RouteEnded) -> None:
        tree.root.set_attribute(ATTR_OUTCOME, event.outcome.value)
        if event.outcome in _FAILED_OUTCOMES:
            _mark_failed(tree.root, event.outcome.value)
        is_waiting = event.outcome in _WAITING_OUTCOMES
        self._open_traces.close(event.packet_id or "", event.at, is_waiting=is_waiting)

    def _trace_call_prepared(self, tree: OpenTrace, event: CallPrepared) -> None:
        span = tree.get_call(event)
        span.update_name(f"execute_tool {event.tool}")
        span.set_attribute(ATTR_TOOL, event.tool)
        if self._content:
            span.set_attribute(ATTR_TOOL_ARGUMENTS, _format_text(event.arguments))

    def _trace_call_ruled(self, tree: OpenTrace, event: CallRuled) -> None:
        attributes: SpanAttributes = {ATTR_VERDICT: event.verdict.value, "fingerpost.rule": event.rule}
        _add_event(tree.get_call(event), event, "policy", attributes)

    def _trace_approval_requested(self, tree: OpenTrace, event: ApprovalRequested) -> None:
        _add_event(tree.get_call(event), event, "approval requested", {ATTR_PENDING: event.pending_id})

    def _trace_fallback_taken(self, tree: OpenTrace, event: FallbackTaken) -> None:
        _add_event(tree.get_call(event), event, "fallback taken", {ATTR_TOOL: event.tool})

    def _trace_result_digested(self, tree: OpenTrace, event: ResultDigested) -> None:
        span = tree.get_call(event)
        span.set_attribute("fingerpost.result.tokens", event.tokens)
        span.set_attribute("fingerpost.result.original_tokens", event.original_tokens)

    def _trace_attempt_started(self, tree: OpenTrace, event: AttemptStarted) -> None:
        call = tree.calls.get(event.call_id)
        if call is None:
            return
        server, _, tool = event.tool.partition("/")
        attributes: SpanAttributes = {
            ATTR_MCP_METHOD: "tools/call",
            ATTR_OPERATION: "execute_tool",
            ATTR_TOOL: tool,
            "fingerpost.server.name": server,
            "fingerpost.attempt.number": event.number,
        }
        if (transport := _TRANSPORTS.get(self._transport_of(server) or "")) is not None:
            attributes[ATTR_TRANSPORT] = transport
        if event.fallback:
            attributes["fingerpost.fallback"] = True
        tree.attempts[event.call_id, event.tool, event.number] = self._tracer.start_span(
            f"tools/call {tool}",
            context=set_span_in_context(call),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=to_nanoseconds(event.at),
        )

    def _trace_attempt_finished(self, tree: OpenTrace, event: AttemptFinished) -> None:
        made = event.attempt
        span = tree.attempts.pop((event.call_id, made.tool, made.number), None)
        if span is not None:
            if made.error is not None:
                _mark_failed(span, made.error.value, made.detail if self._content else None)
            span.end(to_nanoseconds(event.at))
        elif made.cached:
            _add_event(tree.get_call(event), event, "answered from the cache", {ATTR_TOOL: made.tool})

    def _trace_call_finished(self, tree: OpenTrace, event: CallFinished) -> None:
        span = tree.calls.pop(event.call_id, None)
        if span is None:
            return
        if not event.success:
            kind = "failed" if event.error is None else event.error.value
            _mark_failed(span, kind, event.detail if self._content else None)
        if span is tree.root:
            self._open_traces.close(event.call_id, event.at)
        else:
            span.end(to_nanoseconds(event.at))

    handlers: Final[dict[type[Event], Callable[[SpanSink, Any], None]]] = {
        PacketReceived: _trace_received,
        CallReceived: _trace_call_received,
        ApprovalDecided: _trace_approval_decided,
    }
    trace_handlers: Final[dict[type[Event], Callable[[SpanSink, OpenTrace, Any], None]]] = {
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
        CallPrepared: _trace_call_prepared,
        CallRuled: _trace_call_ruled,
        ApprovalRequested: _trace_approval_requested,
        FallbackTaken: _trace_fallback_taken,
        ResultDigested: _trace_result_digested,
        AttemptStarted: _trace_attempt_started,
        AttemptFinished: _trace_attempt_finished,
        CallFinished: _trace_call_finished,
    }


_SPAN_HANDLERS: Final = SpanSink.handlers
_TRACE_HANDLERS: Final = SpanSink.trace_handlers


def _add_event(span: Span, event: Event, name: str, attributes: SpanAttributes) -> None:
    span.add_event(name, attributes, to_nanoseconds(event.at))


def _get_parent_context() -> Context | None:
    """Return the caller's trace context. With None, the current span of this task becomes the parent."""
    carrier = get_trace_carrier()
    return None if carrier is None else _propagator.extract(dict(carrier))


def _build_agent_attributes(packet_id: str) -> SpanAttributes:
    return {
        ATTR_OPERATION: "invoke_agent",
        ATTR_PROVIDER: _AGENT_NAME,
        ATTR_AGENT: _AGENT_NAME,
        "fingerpost.packet.id": packet_id,
    }


def _mark_failed(span: Span, kind: str, detail: str | None = None) -> None:
    span.set_attribute(ATTR_ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, detail and detail[:MAX_CONTENT_LENGTH]))


def _format_message(role: str, text: str) -> str:
    """Format a message by the OpenTelemetry conventions: a list with one message and its parts."""
    part = {"type": "text", "content": text[:MAX_CONTENT_LENGTH]}
    return orjson.dumps([{"role": role, "parts": [part]}]).decode()


def _format_text(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text[:MAX_CONTENT_LENGTH]
