"""Whether a client can answer what a server asks with its result (`input_required`).

A server should ask for nothing that the client did not say it has. What it asks all the same ends
here: a client that never said it takes such questions need not know what to do with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from fingerpost.call.guidance import advice
from fingerpost.records import ErrorKind, Json, JsonObject, Outcome
from fingerpost.surfaces.gateway.asking.capabilities import missing
from fingerpost.surfaces.gateway.asking.side import METHOD_NOT_FOUND, MISSING_CAPABILITY
from fingerpost.surfaces.gateway.exchange import Refusal

_HINT = "give everything it needs in the arguments"


def cannot_answer(result: JsonObject, capabilities: JsonObject, *, rounds: bool) -> JsonObject | None:
    """The capabilities that are missing; None: the client has all of them.

    Empty where no client could answer: the server does not speak the protocol that has such results
    (`rounds`), or asks in no way that anybody knows.
    """
    if not rounds:
        return {}
    asked = result.get("inputRequests")
    if asked is None:
        return None  # it wants nothing but to be asked again
    if not isinstance(asked, Mapping):
        return {}
    needed: dict[str, Json] = {}
    for entry in cast("JsonObject", asked).values():
        method, params = _question(entry)
        lacks = missing(capabilities, method, params)
        if lacks is None:
            continue
        if not lacks:
            return {}
        needed.update(lacks)
    return needed or None


def _question(entry: Json) -> tuple[str, JsonObject]:
    question: JsonObject = entry if isinstance(entry, Mapping) else {}
    method, params = question.get("method"), question.get("params")
    return (method if isinstance(method, str) else "", params if isinstance(params, Mapping) else {})


def failed_for_input(outcome: Outcome, needed: JsonObject) -> Outcome:
    """The call, ended by a question that cannot be answered."""
    kind = ErrorKind.OPERATION_NOT_SUPPORTED
    words = _words(outcome.tool, needed)
    return replace(
        outcome,
        success=False,
        error=kind,
        content=words,
        detail=words,
        advice=advice(kind, hint=_HINT),
        result=None,
        metadata={**outcome.metadata, "error_type": kind},
    )


def refused_for_input(server: str, method: str, needed: JsonObject) -> Refusal:
    """The same for what is no tool."""
    words = _words(f"{method} of {server}", needed)
    if needed:
        return Refusal(MISSING_CAPABILITY, words, {"requiredCapabilities": needed})
    return Refusal(METHOD_NOT_FOUND, words)


def _words(what: str, needed: JsonObject) -> str:
    lacks = f"this client does not offer {', '.join(needed)}" if needed else "there is no way to answer it"
    return f"{what} asks for more input before it answers, and {lacks}"
