"""Results of choosing: mode, confidence, questions to the user, and the outcome."""

from __future__ import annotations

from enum import StrEnum

from fingerpost.frozen import frozen
from fingerpost.records.json import JsonObject
from fingerpost.records.packet import Selection


class Mode(StrEnum):
    """How a request is answered."""

    STAGED = "staged"  # a light model selects, the prime model reviews and answers
    SINGLE = "single"  # one decision with the shortlisted definitions, then the answer
    SIMPLE = "simple"  # an agent: calls and results until the model answers
    REACT = "react"  # an agent that writes its reasoning before each call
    KEYLESS = "keyless"  # no model


class RouteOutcome(StrEnum):
    """How the routing of a packet ended, or what it waits for."""

    ANSWERED = "answered"
    WAITING = "waiting"  # a call waits for approval
    ASKED = "asked"  # the user must answer a question
    DECLINED = "declined"  # no suitable tool was found, or a person denied the call
    FAILED = "failed"  # everything was tried; the answer is guidance
    HANDED_BACK = "handed_back"  # the model calls tools that the caller provides
    LIMITED = "limited"  # a limit of turns, tokens, seconds or cost was reached
    INTERRUPTED = "interrupted"  # the process that handled it is gone
    LEFT = "left"  # the caller disconnected or the process was stopped, so there is no answer


class GateVerdict(StrEnum):
    """What is done with a selection."""

    GO = "go"
    ASK = "ask"
    DECLINE = "decline"


@frozen
class ParsedSelection:
    """The selecting model's reply, as far as it is readable and matches the offered tools."""

    selection: Selection | None  # None: no tool, or nothing usable
    alternatives: tuple[Selection, ...] = ()
    reasoning: str = ""
    remaining: str = ""  # what remains to be done after this tool, in the model's words
    problem: str = ""  # why nothing was usable; empty if the model wants no tool


@frozen
class Confidence:
    """The confidence in a selection, and its components."""

    claim: float  # claimed by the selecting model
    review: float  # claimed by the reviewing model
    margin: float  # lead over the next tool in the shortlist, 0..1
    score: float  # combined score, 0..1
    calibrated: bool  # whether the score was calibrated with recorded outcomes
    verdict: GateVerdict
    reason: str = ""
    raw: float = 0.0  # score before calibration, stored in a `ConfidenceSample`


@frozen
class ConfidenceSample:
    """One selection with its raw score, and whether it was right."""

    raw: float
    right: bool
    tool: str = ""


@frozen
class MissingArgument:
    """A value that only the user can give."""

    name: str
    description: str = ""
    options: tuple[str, ...] = ()  # the only allowed values, if any


@frozen
class AskingCall:
    """A call whose tool asked a question. It continues with the user's answer."""

    call_id: str
    arguments: JsonObject
    name: str  # of the question, as the tool names it
    schema: JsonObject  # of the answer: a flat object
    state: str | None = None  # the tool's state, returned unchanged
    conversation: str | None = None  # the conversation of the call


@frozen
class Question:
    """A question that the user must answer before routing continues.

    Fields:
        text: the question for the person
        tool: key of the tool that needs the value
        missing: the arguments that are missing
        pending_id: of the call that waits for approval
        need: index in the shortlist's `needs`
        call: if a tool asks during a call
    """

    text: str
    tool: str | None = None
    missing: tuple[MissingArgument, ...] = ()
    pending_id: str | None = None
    need: int = 0
    call: AskingCall | None = None
