"""Models behind an OpenAI-compatible API."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from pydantic import ValidationError

from fingerpost.errors import ConfigError
from fingerpost.llm.base import ModelReply, ModelRequest, OnText
from fingerpost.llm.content import (
    MAX_REPLY_CALLS,
    NEW_TOKEN_LIMIT_OPTION,
    TOKEN_LIMIT_OPTION,
    as_list,
    as_mapping,
    build_invalid_reply_error,
    format_excerpt,
    get_caller_options,
    get_content,
    parse_json,
    read_calls,
    read_model_name,
    read_reasoning,
    read_text,
    read_usage,
)
from fingerpost.llm.remote import (
    MAX_REPLY_BYTES,
    FailedAttempt,
    RemoteChat,
    build_reported_failure,
)
from fingerpost.llm.stream import HttpPost, ReplyAssembler
from fingerpost.records import Json, JsonObject, Message
from fingerpost.schemas import get_properties, get_required, get_types, iterate_schemas
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2


def build_body(
    request: ModelRequest, *, model: str, without: Collection[str] = (), stream: bool = False
) -> dict[str, Json]:
    """Return the fields of the request. Those in `without` are left out unless the caller set them."""
    limit = NEW_TOKEN_LIMIT_OPTION if TOKEN_LIMIT_OPTION in without else TOKEN_LIMIT_OPTION
    options: dict[str, Json] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        limit: request.max_tokens,
        "response_format": _build_response_format(request),
    }
    # If the choice "none" cannot be sent, the tools are left out as well.
    if request.tools and not (request.tool_choice == "none" and "tool_choice" in without):
        options |= {"tools": list(request.tools), "tool_choice": request.tool_choice}
    if stream and "stream" not in without:
        options |= {"stream": True, "stream_options": {"include_usage": True}}
    kept: dict[str, Json] = {name: value for name, value in options.items() if name not in without}
    wanted = get_caller_options(request.options)
    if TOKEN_LIMIT_OPTION in wanted and limit == NEW_TOKEN_LIMIT_OPTION:
        wanted.setdefault(NEW_TOKEN_LIMIT_OPTION, wanted.pop(TOKEN_LIMIT_OPTION))
        wanted.pop(TOKEN_LIMIT_OPTION, None)
    if wanted.get(NEW_TOKEN_LIMIT_OPTION) is not None:
        wanted.setdefault(TOKEN_LIMIT_OPTION, None)  # our limit must not be sent together with the caller's
    if request.schema is not None:  # an internal request with its own schema
        wanted.pop("response_format", None)
    kept.update(wanted)
    return {
        "model": request.model or model,
        "messages": [_build_message(message) for message in request.messages],
        **{name: value for name, value in kept.items() if value is not None},
    }


def _build_response_format(request: ModelRequest) -> JsonObject | None:
    if request.schema is None:
        return None
    schema = request.schema.schema
    asked: JsonObject = {"name": request.schema.name, "schema": schema, "strict": _is_closed_schema(schema)}
    return {"type": "json_schema", "json_schema": asked}


def _build_message(message: Message) -> JsonObject:
    content = get_content(message)
    if message.tool_calls:
        calls = [_build_call(call) for call in message.tool_calls]
        return {"role": message.role, "content": content or None, "tool_calls": calls}
    answered = {} if message.tool_call_id is None else {"tool_call_id": message.tool_call_id}
    return {"role": message.role, "content": content, **answered}


def _build_call(call: JsonObject) -> JsonObject:
    """Return a tool call in a form that every server accepts: no extra fields, arguments as text."""
    function = as_mapping(call.get("function"))
    arguments = function.get("arguments")
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    named: JsonObject = {"name": cast("Json", function.get("name", "")), "arguments": written}
    return {"id": call.get("id", ""), "type": "function", "function": named}


def read_body(content: bytes, *, model: str) -> Mapping[str, Any]:
    """Return the object in these bytes. Raises `ModelReplyInvalid` if they contain something else."""
    try:
        body = parse_json(content)
    except ValueError:
        what = f"something that is not JSON: {format_excerpt(content)}"
        raise build_invalid_reply_error(what, model) from None
    if not isinstance(body, Mapping):
        raise build_invalid_reply_error(f"no choice with a message: {format_excerpt(content)}", model)
    return as_mapping(cast("object", body))


def _is_closed_schema(schema: Json) -> bool:
    """Return whether every object in it lists all its fields, as OpenAI's strict mode requires."""
    return all(
        part.get("additionalProperties") is False
        and {"properties", "required"} <= part.keys()
        and get_properties(part).keys() <= set(get_required(part))
        for part in iterate_schemas(schema)
        if "object" in get_types(part)
    )


def read_reply(fields: Mapping[str, Any], *, model: str) -> ModelReply:
    """Return the reply in these fields. Raises `ModelReplyInvalid` if there is none."""
    choices = as_list(fields.get("choices"))
    first = as_mapping(choices[0] if choices else None)
    message = first.get("message")
    if not isinstance(message, Mapping):
        found = ", ".join(f"{name}: {value!r:.60}" for name, value in list(fields.items())[:5])
        raise build_invalid_reply_error(f"no choice with a message: {format_excerpt(found)}", model)
    message_fields = as_mapping(cast("object", message))
    calls = as_list(message_fields.get("tool_calls"))
    if len(calls) > MAX_REPLY_CALLS:
        raise build_invalid_reply_error(f"more than {MAX_REPLY_CALLS} tool calls at once", model)
    finish = first.get("finish_reason")
    return ModelReply(
        text=read_text(message_fields.get("content")),
        model=read_model_name(fields, default=model),
        usage=read_usage(fields.get("usage")),
        finish=finish if isinstance(finish, str) else None,
        tool_calls=read_calls(calls),
        refusal=read_text(message_fields.get("refusal")),
        reasoning=read_text(read_reasoning(message_fields)),
    )


OPENAI_URL: Final = "https://api.openai.com/v1"


class OpenAIChat(RemoteChat):
    """One model behind an OpenAI-compatible API. Connections are kept until it is closed.

        OpenAIChat("small-instruct", base_url="http://127.0.0.1:8000/v1")

    A `ModelSettings` can be given instead of a name. The other arguments override it.
    """

    key_variables = ("OPENAI_API_KEY",)

    def __init__(
        self,
        model: str | ModelSettings,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        reply_bytes: int = MAX_REPLY_BYTES,
    ) -> None:
        settings = _build_settings(model, base_url=base_url, api_key=api_key, timeout=timeout)
        super().__init__(settings, reply_bytes=reply_bytes)

    async def _try_once(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply | FailedAttempt:
        without = self._get_refused_options(request)
        body = build_body(request, model=self.name, without=without, stream=on_text is not None)
        result = await self._ask(connection, body, on_text)
        if isinstance(result, ModelReply):
            return result
        # The error about an option of the caller is returned. The token limit can be renamed instead.
        is_callers = result.option in request.options and result.option != TOKEN_LIMIT_OPTION
        return replace(result, option="") if is_callers or result.option not in body else result

    async def _ask(
        self, connection: httpx2.AsyncClient, body: Mapping[str, Json], on_text: OnText | None
    ) -> ModelReply | FailedAttempt:
        """Send this body and return the reply. Text is streamed to `on_text`."""
        model = str(body["model"])
        post = HttpPost(
            address=f"{(self._settings.base_url or OPENAI_URL).rstrip('/')}/chat/completions",
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            body=body,
            model=model,
        )
        reply = ReplyAssembler(model, self._reply_bytes)
        return await post.send(connection, reply, on_text, lambda content: _read_whole(content, model))


def _read_whole(content: bytes, model: str) -> ModelReply | FailedAttempt:
    fields = read_body(content, model=model)
    if fields.get("error") and not fields.get("choices"):
        return build_reported_failure(fields["error"], model)
    return read_reply(fields, model=model)


def _build_settings(
    model: str | ModelSettings, *, base_url: str | None, api_key: str | None, timeout: float | None
) -> ModelSettings:
    given = {"base_url": base_url, "api_key": api_key, "timeout": timeout}
    known = {"model": model} if isinstance(model, str) else model.model_dump()
    wanted = {**known, **{name: value for name, value in given.items() if value is not None}}
    try:
        return ModelSettings.model_validate(wanted)
    except ValidationError as wrong:
        first = wrong.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        message = f"this model cannot be used: {location}: {first['msg']}"
        raise ConfigError(message, hint="See the settings of [models.prime].") from None
