"""The chat-completions format: our request into its fields, its reply into ours."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from fingerpost.llm.base import ModelReply, ModelRequest
from fingerpost.llm.content import content_of
from fingerpost.llm.fields import (
    MOST_CALLS,
    calls_of,
    entries,
    invalid,
    mapping,
    name_in,
    parsed,
    shown,
    text_of,
    thoughts_in,
    usage_of,
)
from fingerpost.llm.options import LIMIT, NEWER_LIMIT, of_caller
from fingerpost.records import Json, JsonObject, Message


def body_of(
    request: ModelRequest, *, model: str, without: Collection[str] = (), stream: bool = False
) -> dict[str, Json]:
    """The fields of the request. Those in `without` are left out, except where a caller wrote them."""
    limit = NEWER_LIMIT if LIMIT in without else LIMIT
    options: dict[str, Json] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        limit: request.max_tokens,
        "response_format": _response_format(request),
        **_tools(request, without),
        **_streaming(stream, without),
    }
    kept: dict[str, Json] = {name: value for name, value in options.items() if name not in without}
    kept.update(_wanted(request, limit))
    return {
        "model": request.model or model,
        "messages": [_message(message) for message in request.messages],
        **{name: value for name, value in kept.items() if value is not None},
    }


def _wanted(request: ModelRequest, limit: str) -> dict[str, Json]:
    """The caller's own options, the limit of tokens under one name."""
    wanted = of_caller(request.options)
    if LIMIT in wanted and limit == NEWER_LIMIT:
        wanted.setdefault(NEWER_LIMIT, wanted.pop(LIMIT))
        wanted.pop(LIMIT, None)
    if wanted.get(NEWER_LIMIT) is not None:
        wanted.setdefault(LIMIT, None)  # ours does not stand beside theirs
    if request.schema is not None:  # a turn of ours in a shape of ours
        wanted.pop("response_format", None)
    return wanted


def _response_format(request: ModelRequest) -> JsonObject | None:
    if request.schema is None:
        return None
    schema = request.schema.schema
    asked: JsonObject = {"name": request.schema.name, "schema": schema, "strict": _is_closed(schema)}
    return {"type": "json_schema", "json_schema": asked}


def _tools(request: ModelRequest, without: Collection[str]) -> dict[str, Json]:
    """The tools and how to choose among them. "None of them" cannot be left out without leaving them out."""
    if not request.tools or (request.tool_choice == "none" and "tool_choice" in without):
        return {}
    return {"tools": list(request.tools), "tool_choice": request.tool_choice}


def _streaming(stream: bool, without: Collection[str]) -> dict[str, Json]:
    if not stream or "stream" in without:
        return {}
    return {"stream": True, "stream_options": {"include_usage": True}}


def _message(message: Message) -> JsonObject:
    if message.tool_calls:
        calls = [_call(call) for call in message.tool_calls]
        return {"role": message.role, "content": content_of(message) or None, "tool_calls": calls}
    if message.tool_call_id is not None:
        content = content_of(message)
        return {"role": message.role, "content": content, "tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": content_of(message)}


def _call(call: JsonObject) -> JsonObject:
    """A call some model wrote, as every server takes it back: nothing extra, arguments as text."""
    function = mapping(call.get("function"))
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    named: JsonObject = {"name": cast("Json", function.get("name", "")), "arguments": written}
    return {"id": call.get("id", ""), "type": "function", "function": named}


def read_body(content: bytes, *, model: str) -> Mapping[str, Any]:
    """The object in these bytes. Raises `ModelReplyInvalid` when they are something else."""
    try:
        body = parsed(content)
    except ValueError:
        raise invalid(f"something that is not JSON: {shown(content)}", model) from None
    if not isinstance(body, Mapping):
        raise invalid(f"no choice with a message: {shown(content)}", model)
    return mapping(cast("object", body))


def _is_closed(schema: Json) -> bool:
    """Whether every object in it says all its fields: the strict mode of OpenAI refuses any other."""
    if isinstance(schema, list):
        return all(_is_closed(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    if (kind == "object" or (isinstance(kind, list) and "object" in kind)) and not _says_all(schema):
        return False
    return all(_is_closed(part) for part in schema.values())


def _says_all(schema: Mapping[str, Json]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False or not isinstance(properties, dict):
        return False
    return isinstance(required, list) and set(properties) <= set(map(str, required))


def read_reply(fields: Mapping[str, Any], *, model: str) -> ModelReply:
    """The reply in these fields. Raises `ModelReplyInvalid` when there is none in them."""
    choices = entries(fields.get("choices"))
    first = mapping(choices[0] if choices else None)
    message = first.get("message")
    if not isinstance(message, Mapping):
        raise invalid(f"no choice with a message: {shown(_again(fields))}", model)
    said = mapping(cast("object", message))
    calls = entries(said.get("tool_calls"))
    if len(calls) > MOST_CALLS:
        raise invalid(f"more than {MOST_CALLS} tool calls at once", model)
    finish = first.get("finish_reason")
    return ModelReply(
        text=text_of(said.get("content")),
        model=name_in(fields, otherwise=model),
        usage=usage_of(fields.get("usage")),
        finish=finish if isinstance(finish, str) else None,
        tool_calls=calls_of(calls),
        refusal=text_of(said.get("refusal")),
        reasoning=text_of(thoughts_in(said)),
    )


def _again(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value!r:.60}" for name, value in list(fields.items())[:5])
