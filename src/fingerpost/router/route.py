"""The result of one request, as `Router.route` returns it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from fingerpost.errors import FingerpostError
from fingerpost.events import Event
from fingerpost.frozen import frozen
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
    """

    packet: Packet
    outcome: RouteOutcome
    mode: Mode
    answer: str
    answered_by: str = ""  # the model; "no model" if none wrote it
    sources: tuple[str, ...] = ()  # the tools whose results the answer uses
    tool_calls: tuple[JsonObject, ...] = ()  # calls of the caller's own tools, in the OpenAI format
    hidden: tuple[Message, ...] = ()  # earlier steps that the caller has not seen
    finish: str = "stop"  # finish reason: "stop", "length", "tool_calls", …
    refusal: str = ""  # the model's refusal
    wordless: bool = False  # the model wrote nothing: the answer is a standard text
    reasoning: str = ""  # the model's reasoning, if reported
    left_out: int = 0  # messages that did not fit into the model's window
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
    failure: FingerpostError | None = None  # the error that decided the outcome

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
    """A piece of the answer in a stream. The journal has only the whole answer."""

    text: str


StreamItem: TypeAlias = Event | AnswerPiece | Route  # items of `Router.stream`; the route is the last
