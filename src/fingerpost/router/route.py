"""The result of one request, as `Router.route` returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from fingerpost.errors import FingerpostError
from fingerpost.events import Event
from fingerpost.frozen import build_repr, frozen
from fingerpost.records import (
    Json,
    JsonObject,
    Message,
    Mode,
    Narrowing,
    Packet,
    Pending,
    Question,
    RouteOutcome,
)
from fingerpost.records.codec import to_plain


@frozen
class Route:
    """How the request ended, or what it waits for, and everything that led there.

    `answer` always holds a readable text: the answer, the question, the pending approval, or guidance.
    `detail` holds technical details.

    Fields:
        packet: the request and everything decided about it
        outcome: how it ended: answered, waiting (for approval), asked, declined, failed, …
        mode: the mode that answered it
        answer: the answer, the question, the pending approval, or guidance; always readable
        answered_by: the model; "no model" if none wrote it
        sources: the tools whose results the answer uses
        tool_calls: calls of the caller's own tools, in the OpenAI format
        hidden: earlier steps that the caller has not seen
        finish: finish reason: "stop", "length", "tool_calls", …
        refusal: the model's refusal
        wordless: the model wrote nothing: the answer is a standard text
        reasoning: the model's reasoning, if reported
        left_out: messages that did not fit into the model's window
        pending: the call that waits for approval
        question: the question that waits for an answer
        narrowing: which tools were offered, and why
        events: everything that happened, in order
        milliseconds: time of the whole request
        model_milliseconds: time of the models
        model_calls: number of model calls
        prompt_tokens: tokens sent to models
        completion_tokens: tokens written by models
        cost: in the currency of the configured prices; None without prices
        detail: technical details
        failure: the error that decided the outcome
    """

    packet: Packet
    outcome: RouteOutcome
    mode: Mode
    answer: str
    answered_by: str = ""
    sources: tuple[str, ...] = ()
    tool_calls: tuple[JsonObject, ...] = ()
    hidden: tuple[Message, ...] = ()
    finish: str = "stop"
    refusal: str = ""
    wordless: bool = False
    reasoning: str = ""
    left_out: int = 0
    pending: Pending | None = None
    question: Question | None = None
    narrowing: Narrowing | None = None
    events: tuple[Event, ...] = ()
    milliseconds: float = 0.0
    model_milliseconds: float = 0.0
    model_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    detail: str = ""
    failure: FingerpostError | None = None

    __repr__ = build_repr("outcome", "answer", "sources", "packet_id", "milliseconds")

    @property
    def packet_id(self) -> str:
        return self.packet.packet_id

    @property
    def directives(self) -> tuple[JsonObject, ...]:
        """The results of directive tools, in order: instructions for the client."""
        steps = self.packet.tool_routing.steps
        return tuple(step.directive for step in steps if step.directive is not None)

    def answered_with(self, results: Mapping[str, str]) -> tuple[Message, ...]:
        """Return the messages after the request: the calls handed back and their results.

        `results` are by call id. Append the messages to `since` when the request continues.
        """
        message = Message(role="assistant", text=self.answer, tool_calls=self.tool_calls)
        ids = [str(call.get("id")) for call in self.tool_calls]
        answers = (Message(role="tool", text=results.get(each, ""), tool_call_id=each) for each in ids)
        return (*self.hidden, message, *answers)

    @property
    def trace(self) -> str:
        """Return one line per event."""
        return "\n".join(f"{event.kind}: {event.summary()}".rstrip(": ") for event in self.events)

    def as_json(self) -> dict[str, Json]:
        """Return everything except the events, which are in the journal."""
        return {
            "packet_id": self.packet_id,
            "outcome": self.outcome.value,
            "mode": self.mode.value,
            "answer": self.answer,
            "answered_by": self.answered_by,
            "sources": list(self.sources),
            "tool_calls": list(self.tool_calls),
            "directives": list(self.directives),
            "profile": self.packet.context.profile,
            "finish": self.finish,
            "pending": None if self.pending is None else to_plain(self.pending),
            "question": None if self.question is None else to_plain(self.question),
            "narrowing": None if self.narrowing is None else to_plain(self.narrowing),
            "steps": [to_plain(step) for step in self.packet.tool_routing.steps],
            "milliseconds": round(self.milliseconds, 3),
            "model_milliseconds": round(self.model_milliseconds, 3),
            "model_calls": self.model_calls,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cost": self.cost,
            "detail": self.detail,
        }


@frozen
class AnswerPiece:
    """A piece of the answer in a stream. The journal has only the whole answer.

    Fields:
        text: the next piece of the answer
    """

    text: str


StreamItem: TypeAlias = Event | AnswerPiece | Route  # items of `Router.stream`; the route is the last
