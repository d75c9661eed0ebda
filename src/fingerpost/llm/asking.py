"""Asking for JSON and not believing that it came: checked, with one chance to put it right."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Final

from fingerpost.llm.base import Ask, ModelReply, ModelRequest
from fingerpost.llm.structured import misfit, structured
from fingerpost.records import Json, JsonObject, Message

_SHOWN_REPLY: Final = 4_000  # characters of its own words a model is shown again
_SHOWN_SCHEMA: Final = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonAnswer:
    """What a model that was asked for JSON gave."""

    value: Json | None  # fits the schema; None: nothing that does
    replies: tuple[ModelReply, ...]  # every one, in order, for whoever counts tokens
    problem: str = ""  # why there is no value; empty when there is one


async def ask_json(ask: Ask, request: ModelRequest, *, repair: bool = True) -> JsonAnswer:
    """The value `request.schema` asks for. A model that fails is a `ModelError`; a bad reply is not.

    With `repair` a reply that does not fit is shown to the model once, with what is wrong with it.
    """
    if request.schema is None:
        message = "ask_json needs a request with a schema"
        raise ValueError(message)
    schema = request.schema.schema
    first = await ask(request)
    value = structured(first.text, schema)
    if value is not None or not repair:
        return JsonAnswer(
            value=value, replies=(first,), problem="" if value is not None else _problem(first, schema)
        )
    second = await ask(_again(request, first, schema))
    value = structured(second.text, schema)
    return JsonAnswer(
        value=value, replies=(first, second), problem="" if value is not None else _problem(second, schema)
    )


def _problem(reply: ModelReply, schema: JsonObject) -> str:
    if reply.finish == "length":
        return "the reply was cut off before it was finished"
    if reply.tool_calls and not reply.text.strip():
        return "the reply is a tool call instead of JSON"
    return f"the reply does not fit: {misfit(reply.text, schema)}"


def _again(request: ModelRequest, reply: ModelReply, schema: JsonObject) -> ModelRequest:
    """The same request, with what came of it and what is wrong with that.

    The schema is spelled out: many servers that ignore `response_format` have a model that can read.
    """
    written = json.dumps(schema, ensure_ascii=False)
    shape = f" It has to fit this JSON Schema: {written}" if len(written) <= _SHOWN_SCHEMA else ""
    wish = (
        f"That cannot be used: {_problem(reply, schema)}.{shape}\n"
        "Reply again, with the JSON alone: complete, brief, no words around it."
    )
    said = reply.text[:_SHOWN_REPLY].strip()
    shown = (Message(role="assistant", text=said),) if said else ()
    return replace(request, messages=(*request.messages, *shown, Message(role="user", text=wish)))
