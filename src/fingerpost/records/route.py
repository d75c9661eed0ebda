"""What choosing concludes: which mode, how sure, what a person is asked, how it ended."""

from __future__ import annotations

from enum import StrEnum

from fingerpost.frozen import frozen
from fingerpost.records.json import JsonObject
from fingerpost.records.packet import Selection


class Mode(StrEnum):
    """How a request is answered."""

    STAGED = "staged"  # a light model selects, the prime one reviews and answers
    SINGLE = "single"  # one decision with the shortlisted definitions, then the answer
    SIMPLE = "simple"  # an agent: calls and results until the model answers
    REACT = "react"  # an agent that says what it thinks before each call
    KEYLESS = "keyless"  # no model at all


class RouteOutcome(StrEnum):
    """How the journey of a packet ended, or where it waits."""

    ANSWERED = "answered"
    WAITING = "waiting"  # a call waits for a person's leave
    ASKED = "asked"  # the person has to say something first
    DECLINED = "declined"  # a suitable tool was not found, or a person said no
    FAILED = "failed"  # everything was tried; guidance is the answer
    HANDED_BACK = "handed_back"  # the model calls tools of the caller's own: it is their turn
    LIMITED = "limited"  # turns, tokens, seconds or money ran out
    INTERRUPTED = "interrupted"  # the process that worked on it is gone
    LEFT = "left"  # whoever asked is gone, or we were stopped: nobody gets an answer


class GateVerdict(StrEnum):
    """What is done with a selection."""

    GO = "go"
    ASK = "ask"
    DECLINE = "decline"


@frozen
class ParsedSelection:
    """What the selecting model said, as far as it could be understood and is true of the tools offered."""

    selection: Selection | None  # None: no tool, or nothing usable
    alternatives: tuple[Selection, ...] = ()
    reasoning: str = ""
    remaining: str = ""  # what is left to be done after this tool, in the model's words
    problem: str = ""  # why nothing usable came; empty when the model plainly wants no tool


@frozen
class Confidence:
    """How sure we are of a selection, and where each part of that comes from."""

    claim: float  # what the selecting model says of itself
    review: float  # what the reviewing model says
    margin: float  # how far the tool stands above the next in the shortlist, 0..1
    score: float  # all of it together, 0..1
    calibrated: bool  # whether the score was fitted on recorded outcomes
    verdict: GateVerdict
    reason: str = ""
    raw: float = 0.0  # the score before it was fitted: what a `ConfidenceSample` keeps


@frozen
class ConfidenceSample:
    """One selection that was made, the raw score it had, and whether it turned out right."""

    raw: float
    right: bool
    tool: str = ""


@frozen
class MissingArgument:
    """A value only the person can give."""

    name: str
    description: str = ""
    options: tuple[str, ...] = ()  # where only these will do


@frozen
class AskingCall:
    """A call whose tool wants to know something first: it goes on with what the person says."""

    call_id: str
    arguments: JsonObject
    name: str  # of the question, in the tool's own words
    schema: JsonObject  # of the answer: a flat object
    state: str | None = None  # the tool's own, given back as it is
    conversation: str | None = None  # the call was made in


@frozen
class Question:
    """What a person is asked before the journey can go on."""

    text: str
    tool: str | None = None
    missing: tuple[MissingArgument, ...] = ()
    pending_id: str | None = None  # of the call that waits for a yes or no
    need: int = 0  # which of the shortlist's `needs` it is about
    call: AskingCall | None = None  # where a tool asks in the middle of a call
