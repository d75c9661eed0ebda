"""Questions of tools in the middle of a call: the journey ends with one, and goes on with the answer.

Only servers in this process may ask so: what they ask, our own code wrote down or a model did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from fingerpost.call.execution import is_input_required
from fingerpost.catalog import escape_invisible_except
from fingerpost.records import (
    AskingCall,
    ErrorKind,
    Json,
    JsonObject,
    MissingArgument,
    Outcome,
    Question,
    Selection,
    to_valid_text,
)
from fingerpost.redaction import scrub
from fingerpost.router.journeys.said import get_options

MAX_QUESTION_LENGTH: Final = 4_000
MAX_OPTIONS: Final = 20
ONE_QUESTION_NOTE: Final = "It was not asked: another question goes first. Ask it again afterwards."


def is_question(outcome: Outcome) -> bool:
    """Whether the call goes on only when the person has said something."""
    return outcome.success and outcome.result is not None and is_input_required(outcome.result)


def is_waiting(outcome: Outcome) -> bool:
    """Whether the journey cannot go on by itself: for leave, or for an answer."""
    return outcome.pending_id is not None or is_question(outcome)


def check_question(outcome: Outcome) -> Outcome:
    """The outcome; a failed one where a tool asks what no person can be asked."""
    if not is_question(outcome) or _read_request(outcome) is not None:
        return outcome
    return refuse_question(outcome, f"{outcome.tool} asks for something nobody here can give")


def refuse_question(outcome: Outcome, why: str = ONE_QUESTION_NOTE) -> Outcome:
    """The call, told as one that failed because its question was not put."""
    return replace(
        outcome, success=False, content=why, error=ErrorKind.OPERATION_NOT_SUPPORTED, result=None, detail=why
    )


def build_question(outcome: Outcome, selection: Selection, conversation: str | None) -> Question:
    """What the person is asked, with everything needed to go on with the call afterwards."""
    found = _read_request(outcome)
    assert found is not None
    name, params = found
    schema = cast("JsonObject", params["requestedSchema"])
    options = get_options(schema)[:MAX_OPTIONS]
    lines = [_sanitize(str(params["message"]))]
    lines += [f"{number}. {_sanitize(option)}" for number, option in enumerate(options, start=1)]
    state = None if outcome.result is None else outcome.result.get("requestState")
    return Question(
        text="\n".join(lines),
        tool=outcome.tool,
        missing=(MissingArgument(name="answer", options=options),),
        call=AskingCall(
            call_id=outcome.call_id,
            arguments=selection.arguments,
            name=name,
            schema=schema,
            state=state if isinstance(state, str) else None,
            conversation=conversation,
        ),
    )


def _read_request(outcome: Outcome) -> tuple[str, Mapping[str, Json]] | None:
    """The one question of the round, if it is one that a person can answer in words."""
    asked = (outcome.result or {}).get("inputRequests")
    if not isinstance(asked, Mapping) or len(asked) != 1:
        return None
    ((name, request),) = asked.items()
    params = request.get("params") if isinstance(request, Mapping) else None
    if not isinstance(request, Mapping) or request.get("method") != "elicitation/create":
        return None
    fits = isinstance(params, Mapping) and isinstance(params.get("requestedSchema"), Mapping)
    return (
        (name, cast("Mapping[str, Json]", params))
        if fits and "message" in cast("JsonObject", params)
        else None
    )


def _sanitize(text: str) -> str:
    """A server's words: they may hold a secret it was given, and what cannot be seen is spelled out."""
    return escape_invisible_except(scrub(to_valid_text(text[:MAX_QUESTION_LENGTH])).strip(), keep="\n\t\\")
