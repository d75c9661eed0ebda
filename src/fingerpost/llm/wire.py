"""The chat-completions format: our request into its fields, its reply into ours.

Replies are read field by field. Servers that call themselves compatible leave
fields out, send null, or send an error page with status 200.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from fingerpost.errors import ModelReplyInvalid
from fingerpost.llm.base import ModelReply, ModelRequest, ModelUsage
from fingerpost.records import Json, JsonObject, check_json
from fingerpost.redaction import scrub

_SHOWN: Final = 120
LIMIT: Final = "max_tokens"
NEWER_LIMIT: Final = "max_completion_tokens"  # what OpenAI's own newer models insist on


def body_of(request: ModelRequest, *, model: str, without: Collection[str] = ()) -> dict[str, Json]:
    """The fields of the request; those in `without` are left out."""
    options: dict[str, Json] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        NEWER_LIMIT if LIMIT in without else LIMIT: request.max_tokens,
        "response_format": _response_format(request),
        "tools": list(request.tools) or None,
    }
    kept = {name: value for name, value in options.items() if value is not None and name not in without}
    messages: Json = [{"role": message.role, "content": message.text} for message in request.messages]
    return {"model": model, "messages": messages, **kept}


def _response_format(request: ModelRequest) -> JsonObject | None:
    if request.schema is None:
        return None
    asked: JsonObject = {"name": request.schema.name, "schema": request.schema.schema, "strict": True}
    return {"type": "json_schema", "json_schema": asked}


def read_reply(content: bytes, *, model: str, milliseconds: float) -> ModelReply:
    """The reply in these bytes. Raises `ModelReplyInvalid` when there is none in them."""
    try:
        body: object = json.loads(content)
    except (ValueError, RecursionError):
        raise _invalid(f"something that is not JSON: {_shown(content)}", model) from None
    fields = _mapping(body)
    choices = fields.get("choices")
    first = cast("list[object]", choices)[0] if isinstance(choices, list) and choices else None
    message = _mapping(first).get("message")
    if not isinstance(message, Mapping):
        raise _invalid(f"no choice with a message: {_shown(content)}", model)
    said = cast("Mapping[str, Any]", message)
    finish = _mapping(first).get("finish_reason")
    named = fields.get("model")
    return ModelReply(
        text=_text(said.get("content")),
        model=named if isinstance(named, str) and named else model,
        usage=_usage(_mapping(fields.get("usage"))),
        finish=finish if isinstance(finish, str) else None,
        tool_calls=_calls(said.get("tool_calls")),
        milliseconds=milliseconds,
    )


def _text(content: object) -> str:
    """The text of a message: plain, or in parts."""
    if isinstance(content, list):
        parts = (_mapping(part).get("text") for part in cast("list[object]", content))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _calls(value: object) -> tuple[JsonObject, ...]:
    entries = cast("list[object]", value) if isinstance(value, list) else []
    objects = [cast("JsonObject", entry) for entry in entries if isinstance(entry, dict)]
    return tuple(entry for entry in objects if check_json(entry) is None)


def _usage(fields: Mapping[str, Any]) -> ModelUsage | None:
    prompt, completion = fields.get("prompt_tokens"), fields.get("completion_tokens")
    if not _is_count(prompt) or not _is_count(completion):
        return None
    return ModelUsage(prompt_tokens=cast("int", prompt), completion_tokens=cast("int", completion))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _shown(content: bytes) -> str:
    text = " ".join(content[: 4 * _SHOWN].decode(errors="replace").split())
    return scrub(text)[:_SHOWN] or "nothing at all"


def _invalid(what: str, model: str) -> ModelReplyInvalid:
    return ModelReplyInvalid(f"{model} answered with {what}", model=model, hint="Is its base_url right?")
