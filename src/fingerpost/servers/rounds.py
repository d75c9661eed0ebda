"""Answering a modern server for a caller who cannot come back with answers themselves.

A 2026-07-28 server does not ask while it works: it answers `input_required`
and wants the same request again, with the answers. A caller of that era does
so on their own; for any other, this does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import anyio

from fingerpost.errors import ServerReplyInvalid
from fingerpost.records import Json, JsonObject
from fingerpost.servers.caller import RequestContext
from fingerpost.servers.clock import RequestClock
from fingerpost.servers.talk import MessageQuota, forward_question

MAX_ROUNDS = 10
FIRST_PAUSE = 0.05  # when a server wants nothing but to be asked again
MAX_PAUSE = 0.25

SendRound = Callable[[RequestContext], Awaitable[dict[str, Any]]]


def is_input_required(result: Mapping[str, Any]) -> bool:
    return result.get("resultType") == "input_required"


async def run_rounds(
    server: str,
    first: dict[str, Any],
    context: RequestContext,
    clock: RequestClock,
    quota: MessageQuota,
    send: SendRound,
) -> dict[str, Any]:
    """Ask, answer and send again until there is a result. Raises our errors."""
    result, pause = first, FIRST_PAUSE
    for _ in range(MAX_ROUNDS):
        questions: object = result.get("inputRequests")
        state: object = result.get("requestState")
        if state is not None and not isinstance(state, str):
            raise _build_invalid_reply(server, "its requestState is not text")
        answers: JsonObject | None = None
        if questions:
            answers = await _collect_answers(server, questions, context, clock, quota)
        else:
            await anyio.sleep(pause)
            pause = min(pause * 2, MAX_PAUSE)
        result = await send(replace(context, input_responses=answers, request_state=state))
        if not is_input_required(result):
            return result
    raise _build_invalid_reply(server, f"it still wanted input after {MAX_ROUNDS} rounds")


async def _collect_answers(
    server: str, questions: object, context: RequestContext, clock: RequestClock, quota: MessageQuota
) -> JsonObject:
    """One after the other: a person reads one question at a time."""
    if not isinstance(questions, Mapping):
        raise _build_invalid_reply(server, "its inputRequests are not an object")
    asked = cast("Mapping[str, object]", questions)
    quota.count_questions(len(asked))
    answers: dict[str, Json] = {}
    for name, question in asked.items():
        if not isinstance(question, Mapping):
            raise _build_invalid_reply(server, f"its question {name!r:.60} is not an object")
        entry = cast("Mapping[str, Any]", question)
        method: object = entry.get("method")
        params: object = entry.get("params") or {}
        if not isinstance(method, str) or not isinstance(params, Mapping):
            raise _build_invalid_reply(server, f"its question {name!r:.60} names no method")
        answers[name] = await forward_question(
            server, context.caller, method, cast("JsonObject", params), clock
        )
    return answers


def _build_invalid_reply(server: str, why: str) -> ServerReplyInvalid:
    message = f"{server} asked for input in a way that cannot be answered: {why}"
    return ServerReplyInvalid(message, server=server, hint="report this to the server's author")
