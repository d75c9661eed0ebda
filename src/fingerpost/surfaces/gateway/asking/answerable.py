"""Whether a client can answer what a server asks with its result (`input_required`).

A server should ask for nothing that the client did not say it has. What it asks all the same ends
here: a client that never said it takes such questions need not know what to do with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from fingerpost.call.guidance import get_advice
from fingerpost.records import ErrorKind, Json, JsonObject, Outcome
from fingerpost.surfaces.gateway.asking.capabilities import find_missing_capability
from fingerpost.surfaces.gateway.asking.side import METHOD_NOT_FOUND, MISSING_CAPABILITY_CODE
from fingerpost.surfaces.gateway.exchange import JsonRpcError

_HINT = "give everything it needs in the arguments"


def find_missing_capabilities(
    result: JsonObject, capabilities: JsonObject, *, rounds: bool
) -> JsonObject | None:
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
        method, params = _parse_question(entry)
        lacks = find_missing_capability(capabilities, method, params)
        if lacks is None:
            continue
        if not lacks:
            return {}
        needed.update(lacks)
    return needed or None


def _parse_question(entry: Json) -> tuple[str, JsonObject]:
    question: JsonObject = entry if isinstance(entry, Mapping) else {}
    method, params = question.get("method"), question.get("params")
    return (method if isinstance(method, str) else "", params if isinstance(params, Mapping) else {})


def fail_for_missing_input(outcome: Outcome, needed: JsonObject) -> Outcome:
    """The call, ended by a question that cannot be answered."""
    kind = ErrorKind.OPERATION_NOT_SUPPORTED
    words = _describe_missing_input(outcome.tool, needed)
    return replace(
        outcome,
        success=False,
        error=kind,
        content=words,
        detail=words,
        advice=get_advice(kind, hint=_HINT),
        result=None,
        metadata={**outcome.metadata, "error_type": kind},
    )


def build_missing_input_error(server: str, method: str, needed: JsonObject) -> JsonRpcError:
    """The same for what is no tool."""
    words = _describe_missing_input(f"{method} of {server}", needed)
    if needed:
        return JsonRpcError(MISSING_CAPABILITY_CODE, words, {"requiredCapabilities": needed})
    return JsonRpcError(METHOD_NOT_FOUND, words)


def _describe_missing_input(what: str, needed: JsonObject) -> str:
    lacks = f"this client does not offer {', '.join(needed)}" if needed else "there is no way to answer it"
    return f"{what} asks for more input before it answers, and {lacks}"
