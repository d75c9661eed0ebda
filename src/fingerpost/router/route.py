"""The journey of one request, as it stands when `Router.route` returns."""

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
    """How it ended, or where it waits, and everything that led there.

    `answer` always holds something a person can read: the answer, the question they
    are asked, what waits for them, or guidance. `detail` is the technical truth.
    """

    packet: Packet
    outcome: RouteOutcome
    mode: Mode
    answer: str
    answered_by: str = ""  # the model; "no model" when none wrote it
    sources: tuple[str, ...] = ()  # the tools the answer rests on
    tool_calls: tuple[JsonObject, ...] = ()  # of the caller's own tools, in the OpenAI format
    hidden: tuple[Message, ...] = ()  # what came before those calls and the caller has not seen
    finish: str = "stop"  # why the model ended: "stop", "length", "tool_calls", …
    refusal: str = ""  # why it does not answer, in its own words
    wordless: bool = False  # the model wrote nothing: the words of the answer are ours
    reasoning: str = ""  # what the model that wrote the answer thought before, where it tells
    left_out: int = 0  # messages of the conversation that did not fit and the model did not read
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
    failure: FingerpostError | None = None  # of a model or of ours, where that decided how it ended

    @property
    def packet_id(self) -> str:
        return self.packet.packet_id

    @property
    def directives(self) -> tuple[JsonObject, ...]:
        """What the client is told to do, in order: the results of directive tools."""
        steps = self.packet.tool_routing.steps
        return tuple(step.directive for step in steps if step.directive is not None)

    def answered_with(self, results: Mapping[str, str]) -> tuple[Message, ...]:
        """What stands behind the request when it goes on: the calls handed back, and what came of each.

        `results` by the ids of the calls. For `since`, behind what stood there before.
        """
        said = Message(role="assistant", text=self.answer, tool_calls=self.tool_calls)
        ids = [str(call.get("id")) for call in self.tool_calls]
        told = (Message(role="tool", text=results.get(each, ""), tool_call_id=each) for each in ids)
        return (*self.hidden, said, *told)

    @property
    def trace(self) -> str:
        """One line per thing that happened."""
        return "\n".join(f"{event.kind}: {event.summary()}".rstrip(": ") for event in self.events)

    def as_json(self) -> dict[str, Json]:
        """Everything but the events, which the journal keeps."""
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
    """A piece of the answer, as it is being written. Only in streams: journals keep the whole."""

    text: str


StreamItem: TypeAlias = Event | AnswerPiece | Route  # what `Router.stream` gives; the route comes last
