"""The chat-completions format: our request into its fields, its reply into ours."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, cast

from fingerpost.llm.base import ModelReply, ModelRequest
from fingerpost.llm.content import get_content
from fingerpost.llm.fields import (
    MAX_REPLY_CALLS,
    as_list,
    as_mapping,
    build_invalid_reply,
    format_excerpt,
    parse_json,
    read_calls,
    read_model_name,
    read_reasoning,
    read_text,
    read_usage,
)
from fingerpost.llm.options import NEW_TOKEN_LIMIT_OPTION, TOKEN_LIMIT_OPTION, get_caller_options
from fingerpost.records import Json, JsonObject, Message


def build_body(
    request: ModelRequest, *, model: str, without: Collection[str] = (), stream: bool = False
) -> dict[str, Json]:
    """The fields of the request. Those in `without` are left out, except where a caller wrote them."""
    limit = NEW_TOKEN_LIMIT_OPTION if TOKEN_LIMIT_OPTION in without else TOKEN_LIMIT_OPTION
    options: dict[str, Json] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        limit: request.max_tokens,
        "response_format": _build_response_format(request),
        **_build_tools(request, without),
        **_build_stream_options(stream, without),
    }
    kept: dict[str, Json] = {name: value for name, value in options.items() if name not in without}
    kept.update(_build_caller_options(request, limit))
    return {
        "model": request.model or model,
        "messages": [_build_message(message) for message in request.messages],
        **{name: value for name, value in kept.items() if value is not None},
    }


def _build_caller_options(request: ModelRequest, limit: str) -> dict[str, Json]:
    """The caller's own options, the limit of tokens under one name."""
    wanted = get_caller_options(request.options)
    if TOKEN_LIMIT_OPTION in wanted and limit == NEW_TOKEN_LIMIT_OPTION:
        wanted.setdefault(NEW_TOKEN_LIMIT_OPTION, wanted.pop(TOKEN_LIMIT_OPTION))
        wanted.pop(TOKEN_LIMIT_OPTION, None)
    if wanted.get(NEW_TOKEN_LIMIT_OPTION) is not None:
        wanted.setdefault(TOKEN_LIMIT_OPTION, None)  # ours does not stand beside theirs
    if request.schema is not None:  # a turn of ours in a shape of ours
        wanted.pop("response_format", None)
    return wanted


def _build_response_format(request: ModelRequest) -> JsonObject | None:
    if request.schema is None:
        return None
    schema = request.schema.schema
    asked: JsonObject = {"name": request.schema.name, "schema": schema, "strict": _is_closed_schema(schema)}
    return {"type": "json_schema", "json_schema": asked}


def _build_tools(request: ModelRequest, without: Collection[str]) -> dict[str, Json]:
    """The tools and how to choose among them. "None of them" cannot be left out without leaving them out."""
    if not request.tools or (request.tool_choice == "none" and "tool_choice" in without):
        return {}
    return {"tools": list(request.tools), "tool_choice": request.tool_choice}


def _build_stream_options(stream: bool, without: Collection[str]) -> dict[str, Json]:
    if not stream or "stream" in without:
        return {}
    return {"stream": True, "stream_options": {"include_usage": True}}


def _build_message(message: Message) -> JsonObject:
    if message.tool_calls:
        calls = [_build_call(call) for call in message.tool_calls]
        return {"role": message.role, "content": get_content(message) or None, "tool_calls": calls}
    if message.tool_call_id is not None:
        content = get_content(message)
        return {"role": message.role, "content": content, "tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": get_content(message)}


def _build_call(call: JsonObject) -> JsonObject:
    """A call some model wrote, as every server takes it back: nothing extra, arguments as text."""
    function = as_mapping(call.get("function"))
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    named: JsonObject = {"name": cast("Json", function.get("name", "")), "arguments": written}
    return {"id": call.get("id", ""), "type": "function", "function": named}


def read_body(content: bytes, *, model: str) -> Mapping[str, Any]:
    """The object in these bytes. Raises `ModelReplyInvalid` when they are something else."""
    try:
        body = parse_json(content)
    except ValueError:
        raise build_invalid_reply(f"something that is not JSON: {format_excerpt(content)}", model) from None
    if not isinstance(body, Mapping):
        raise build_invalid_reply(f"no choice with a message: {format_excerpt(content)}", model)
    return as_mapping(cast("object", body))


def _is_closed_schema(schema: Json) -> bool:
    """Whether every object in it says all its fields: the strict mode of OpenAI refuses any other."""
    if isinstance(schema, list):
        return all(_is_closed_schema(part) for part in schema)
    if not isinstance(schema, dict):
        return True
    kind = schema.get("type")
    if (kind == "object" or (isinstance(kind, list) and "object" in kind)) and not _lists_all_fields(schema):
        return False
    return all(_is_closed_schema(part) for part in schema.values())


def _lists_all_fields(schema: Mapping[str, Json]) -> bool:
    properties, required = schema.get("properties"), schema.get("required")
    if schema.get("additionalProperties") is not False or not isinstance(properties, dict):
        return False
    return isinstance(required, list) and set(properties) <= set(map(str, required))


def read_reply(fields: Mapping[str, Any], *, model: str) -> ModelReply:
    """The reply in these fields. Raises `ModelReplyInvalid` when there is none in them."""
    choices = as_list(fields.get("choices"))
    first = as_mapping(choices[0] if choices else None)
    message = first.get("message")
    if not isinstance(message, Mapping):
        raise build_invalid_reply(
            f"no choice with a message: {format_excerpt(_format_fields(fields))}", model
        )
    said = as_mapping(cast("object", message))
    calls = as_list(said.get("tool_calls"))
    if len(calls) > MAX_REPLY_CALLS:
        raise build_invalid_reply(f"more than {MAX_REPLY_CALLS} tool calls at once", model)
    finish = first.get("finish_reason")
    return ModelReply(
        text=read_text(said.get("content")),
        model=read_model_name(fields, default=model),
        usage=read_usage(fields.get("usage")),
        finish=finish if isinstance(finish, str) else None,
        tool_calls=read_calls(calls),
        refusal=read_text(said.get("refusal")),
        reasoning=read_text(read_reasoning(said)),
    )


def _format_fields(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {value!r:.60}" for name, value in list(fields.items())[:5])
