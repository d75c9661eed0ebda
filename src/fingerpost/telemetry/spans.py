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
from fingerpost.telemetry.caller import carried
from fingerpost.telemetry.journeys import MOST_OPEN, Forest, Tree, nanoseconds

logger = logging.getLogger("fingerpost.telemetry")

LONGEST_CONTENT: Final = 8_000
_AGENT: Final = "fingerpost"
_PROVIDERS: Final = {"google": "gcp.gemini"}
_TRANSPORTS: Final = {"stdio": "pipe", "http": "tcp", "sse": "tcp"}
_WAITING: Final = frozenset({RouteOutcome.WAITING, RouteOutcome.ASKED})
_BAD: Final = frozenset({RouteOutcome.FAILED, RouteOutcome.LIMITED})

_propagator: Final = TraceContextTextMapPropagator()

Attributes = dict[str, str | int | float | bool]


class Spans:
    """A sink that turns events into spans."""

    def __init__(
        self,
        tracer: Tracer,
        *,
        content: bool = False,
        providers: Mapping[str, str] | None = None,
        transport_of: Callable[[str], str | None] = lambda _: None,
        most_open: int = MOST_OPEN,
    ) -> None:
        """`providers` are APIs by the models' names, `transport_of` says how a server is connected."""
        self._tracer = tracer
        self._content = content
        self._providers = providers or {}
        self._transport_of = transport_of
        self._forest = Forest(most_open)
        self._lock = Lock()  # events may come from any thread

    def emit(self, event: Event) -> None:
        """Begins, changes or ends the span the event is about."""
        meaning = _MEANING.get(type(event))
        if meaning is not None and event.packet_id is not None:
            with self._lock:
                meaning(self, event)

    def close(self) -> None:
        """End what is open."""
        with self._lock:
            self._forest.fell_all()

    # -- trees --------------------------------------------------------------------------------------

    def _plant(self, event: Event, name: str, attributes: Attributes, *, came_from: Any = None) -> Tree:
        assert event.packet_id is not None
        links = () if came_from is None else (Link(came_from),)
        root = self._tracer.start_span(
            name,
            context=_parent(),
            kind=SpanKind.SERVER if carried() is not None else SpanKind.INTERNAL,
            attributes=attributes,
            links=links,
            start_time=nanoseconds(event.at),
        )
        return self._forest.plant(event.packet_id, root, event.at)

    def _tree(self, event: Event) -> Tree | None:
        """The tree of this packet; one that waited goes on in a new tree, linked to the old."""
        assert event.packet_id is not None
        tree = self._forest.get(event.packet_id, event.at)
        if tree is None and (came_from := self._forest.awaken(event.packet_id)) is not None:
            attributes = {**_invoked(event.packet_id), names.RESUMED: True}
            tree = self._plant(event, f"invoke_agent {_AGENT}", attributes, came_from=came_from)
            tree.routed = True
        return tree

    def _finished(
        self, parent: Span, name: str, began: int, ended: datetime, kind: SpanKind, attributes: Attributes
    ) -> Span:
        """A span whose beginning is told together with its end; the caller ends it."""
        return self._tracer.start_span(
            name,
            context=set_span_in_context(parent),
            kind=kind,
            attributes=attributes,
            start_time=min(began, nanoseconds(ended)),
        )

    # -- requests -----------------------------------------------------------------------------------

    def _received(self, event: PacketReceived) -> None:
        packet = event.packet
        attributes = _invoked(packet.packet_id)
        attributes[names.CONVERSATION] = packet.header.session_id
        if packet.header.caller is not None:
            attributes[names.CALLER] = packet.header.caller
        if self._content:
            attributes[names.INPUT_MESSAGES] = _message("user", packet.content.original_prompt)
        self._plant(event, f"invoke_agent {_AGENT}", attributes)

    def _began(self, event: RouteBegan) -> None:
        if (tree := self._tree(event)) is not None:
            tree.routed = True
            tree.root.set_attribute(names.MODE, event.mode.value)
            if event.profile is not None:
                tree.root.set_attribute(names.PROFILE, event.profile)

    def _narrowed(self, event: RequestNarrowed) -> None:
        tree = self._tree(event)
        if tree is None:
            return
        narrowing = event.narrowing
        shortlist = narrowing.shortlist
        span = self._finished(
            tree.root,
            "narrow",
            nanoseconds(event.at, narrowing.milliseconds),
            event.at,
            SpanKind.INTERNAL,
            {
                names.NEED: narrowing.need.verdict.value,
                names.CONSIDERED: shortlist.considered,
                names.OFFERED: len(shortlist.offered),
                names.FIT: shortlist.fit,
                names.LANGUAGE: narrowing.signals.language,
            },
        )
        span.end(nanoseconds(event.at))
        if not tree.routed:  # nobody set out to answer it: this is all that was wanted
            self._forest.fell(event.packet_id or "", event.at)

    def _model_answered(self, event: ModelAnswered) -> None:
        tree = self._tree(event)
        if tree is None:
            return
        provider = self._providers.get(event.model, "openai")
        attributes: Attributes = {
            names.OPERATION: "chat",
            names.PROVIDER: _PROVIDERS.get(provider, provider),
            names.REQUEST_MODEL: event.model,
            names.ROLE: event.role,
            names.PURPOSE: event.purpose,
        }
        if event.prompt_tokens is not None:
            attributes[names.INPUT_TOKENS] = event.prompt_tokens
        if event.completion_tokens is not None:
            attributes[names.OUTPUT_TOKENS] = event.completion_tokens
        if event.stood_in:
            attributes[names.STOOD_IN] = True
        began = nanoseconds(event.at, event.milliseconds)
        span = self._finished(tree.root, f"chat {event.model}", began, event.at, SpanKind.CLIENT, attributes)
        if event.error is not None:
            _fail(span, "model_error", event.error if self._content else None)
        span.end(nanoseconds(event.at))

    def _selected(self, event: ToolSelected) -> None:
        if (tree := self._tree(event)) is not None:
            tree.selected = event.at
            chosen = event.selection
            told: Attributes = {} if chosen is None else {names.TOOL: chosen.tool}
            if chosen is not None:
                told[names.CONFIDENCE] = chosen.confidence
            tree.root.add_event("tool selected", told, nanoseconds(event.at))

    def _reviewed(self, event: SelectionReviewed) -> None:
        if (tree := self._tree(event)) is not None:
            began = nanoseconds(tree.selected or event.at)
            attributes: Attributes = {
                names.APPROVED: event.review.approved,
                names.CONFIDENCE: event.review.confidence,
            }
            span = self._finished(tree.root, "review", began, event.at, SpanKind.INTERNAL, attributes)
            span.end(nanoseconds(event.at))

    def _judged(self, event: ConfidenceJudged) -> None:
        if (tree := self._tree(event)) is not None:
            told: Attributes = {
                names.CONFIDENCE: event.confidence.score,
                names.VERDICT: event.confidence.verdict.value,
            }
            tree.root.add_event("confidence judged", told, nanoseconds(event.at))

    def _limit_reached(self, event: BudgetReached) -> None:
        if (tree := self._tree(event)) is not None:
            tree.root.add_event("limit reached", {names.LIMIT: event.limit}, nanoseconds(event.at))

    def _result_injected(self, event: ToolResultInjected) -> None:
        if self._content and (tree := self._tree(event)) is not None:
            told: Attributes = {names.TOOL_RESULT: _text(event.result.output)}
            tree.root.add_event("tool result", told, nanoseconds(event.at))

    def _answered(self, event: AnswerGiven) -> None:
        if self._content and (tree := self._tree(event)) is not None:
            tree.root.set_attribute(names.OUTPUT_MESSAGES, _message("assistant", event.text))

    def _route_ended(self, event: RouteEnded) -> None:
        tree = self._tree(event)
        if tree is None or event.packet_id is None:
            return
        tree.root.set_attribute(names.OUTCOME, event.outcome.value)
        if event.outcome in _BAD:
            _fail(tree.root, event.outcome.value)
        self._forest.fell(event.packet_id, event.at, waits=event.outcome in _WAITING)

    # -- calls --------------------------------------------------------------------------------------

    def _call_received(self, event: CallReceived) -> None:
        attributes: Attributes = {
            names.OPERATION: "execute_tool",
            names.TOOL_CALL: event.call_id,
            names.TOOL_TYPE: "function",
        }
        if event.conversation is not None:
            attributes[names.CONVERSATION] = event.conversation
        if event.caller is not None:
            attributes[names.CALLER] = event.caller
        if event.packet_id == event.call_id:
            tree = self._plant(event, "execute_tool", attributes)
            tree.calls[event.call_id] = tree.root
        elif (tree := self._tree(event)) is not None:
            tree.calls[event.call_id] = self._tracer.start_span(
                "execute_tool",
                context=set_span_in_context(tree.root),
                attributes=attributes,
                start_time=nanoseconds(event.at),
            )

    def _call_prepared(self, event: CallPrepared) -> None:
        if (span := self._call(event)) is not None:
            span.update_name(f"execute_tool {event.tool}")
            span.set_attribute(names.TOOL, event.tool)
            if self._content:
                span.set_attribute(names.TOOL_ARGUMENTS, _text(event.arguments))

    def _call_ruled(self, event: CallRuled) -> None:
        if (span := self._call(event)) is not None:
            told: Attributes = {names.VERDICT: event.verdict.value, names.RULE: event.rule}
            span.add_event("policy", told, nanoseconds(event.at))

    def _approval_requested(self, event: ApprovalRequested) -> None:
        if (span := self._call(event)) is not None:
            span.add_event("approval requested", {names.PENDING: event.pending_id}, nanoseconds(event.at))

    def _approval_decided(self, event: ApprovalDecided) -> None:
        """In the call that waits, or where it is over, in the request."""
        tree = self._forest.get(event.packet_id or "", event.at)
        if tree is not None:
            told: Attributes = {names.PENDING: event.pending_id, names.VERDICT: event.decision.value}
            span = tree.calls.get(event.call_id, tree.root)
            span.add_event("approval decided", told, nanoseconds(event.at))

    def _fallback_taken(self, event: FallbackTaken) -> None:
        if (span := self._call(event)) is not None:
            span.add_event("fallback taken", {names.TOOL: event.tool}, nanoseconds(event.at))

    def _result_digested(self, event: ResultDigested) -> None:
        if (span := self._call(event)) is not None:
            span.set_attribute(names.RESULT_TOKENS, event.tokens)
            span.set_attribute(names.ORIGINAL_TOKENS, event.original_tokens)

    def _attempt_started(self, event: AttemptStarted) -> None:
        tree = self._tree(event)
        call = None if tree is None else tree.calls.get(event.call_id)
        if tree is None or call is None:
            return
        server, _, tool = event.tool.partition("/")
        attributes: Attributes = {
            names.MCP_METHOD: "tools/call",
            names.OPERATION: "execute_tool",
            names.TOOL: tool,
            names.SERVER: server,
            names.ATTEMPT: event.number,
        }
        if (transport := _TRANSPORTS.get(self._transport_of(server) or "")) is not None:
            attributes[names.TRANSPORT] = transport
        if event.fallback:
            attributes[names.FALLBACK] = True
        tree.attempts[event.call_id, event.tool, event.number] = self._tracer.start_span(
            f"tools/call {tool}",
            context=set_span_in_context(call),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=nanoseconds(event.at),
        )

    def _attempt_finished(self, event: AttemptFinished) -> None:
        tree, made = self._tree(event), event.attempt
        if tree is None:
            return
        span = tree.attempts.pop((event.call_id, made.tool, made.number), None)
        if span is not None:
            if made.error is not None:
                _fail(span, made.error.value, made.detail if self._content else None)
            span.end(nanoseconds(event.at))
        elif made.cached and (call := tree.calls.get(event.call_id)) is not None:
            call.add_event("answered from the cache", {names.TOOL: made.tool}, nanoseconds(event.at))

    def _call_finished(self, event: CallFinished) -> None:
        tree = self._tree(event)
        span = None if tree is None else tree.calls.pop(event.call_id, None)
        if tree is None or span is None:
            return
        if not event.success:
            kind = "failed" if event.error is None else event.error.value
            _fail(span, kind, event.detail if self._content else None)
        if span is tree.root:
            self._forest.fell(event.call_id, event.at)
        else:
            span.end(nanoseconds(event.at))

    def _call(self, event: Any) -> Span | None:
        tree = self._tree(event)
        return None if tree is None else tree.calls.get(event.call_id)

    meaning: Final[dict[type[Event], Callable[[Spans, Any], None]]] = {
        PacketReceived: _received,
        RouteBegan: _began,
        RequestNarrowed: _narrowed,
        ModelAnswered: _model_answered,
        ToolSelected: _selected,
        SelectionReviewed: _reviewed,
        ConfidenceJudged: _judged,
        BudgetReached: _limit_reached,
        ToolResultInjected: _result_injected,
        AnswerGiven: _answered,
        RouteEnded: _route_ended,
        CallReceived: _call_received,
        CallPrepared: _call_prepared,
        CallRuled: _call_ruled,
        ApprovalRequested: _approval_requested,
        ApprovalDecided: _approval_decided,
        FallbackTaken: _fallback_taken,
        ResultDigested: _result_digested,
        AttemptStarted: _attempt_started,
        AttemptFinished: _attempt_finished,
        CallFinished: _call_finished,
    }


_MEANING: Final = Spans.meaning


def _parent() -> Context | None:
    """The caller's trace; None: the span that is current in this task, where there is one."""
    carrier = carried()
    return None if carrier is None else _propagator.extract(dict(carrier))


def _invoked(packet_id: str) -> Attributes:
    return {
        names.OPERATION: "invoke_agent",
        names.PROVIDER: _AGENT,
        names.AGENT: _AGENT,
        names.PACKET: packet_id,
    }


def _fail(span: Span, kind: str, detail: str | None = None) -> None:
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, detail and detail[:LONGEST_CONTENT]))


def _message(role: str, text: str) -> str:
    """As the conventions want messages: a list of one, with its parts."""
    part = {"type": "text", "content": text[:LONGEST_CONTENT]}
    return orjson.dumps([{"role": role, "parts": [part]}]).decode()


def _text(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return text[:LONGEST_CONTENT]
