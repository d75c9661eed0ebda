"""Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from fingerpost.llm.fields import as_list, as_mapping, get_named_tool
from fingerpost.llm.native.dialect import NativeRequest
from fingerpost.llm.native.draft import CUT_SHORT, FILTERED, ReplyDraft, parse_token_count
from fingerpost.llm.native.schemas import build_closed_schema, build_parameters_schema, describe_schema
from fingerpost.llm.native.turns import NativeCall, NativeMedia, NativePart, NativeResult, build_conversation
from fingerpost.llm.options import get_stop_texts
from fingerpost.records import Json, JsonObject

ANTHROPIC_URL: Final = "https://api.anthropic.com"
# The newer version takes no temperature at all, with which a selection is asked for; a model
# that takes none says so, and is not sent one again.
ANTHROPIC_VERSION: Final = "2023-06-01"
ANTHROPIC_NEWER_VERSION: Final = "2026-10-21"  # for whom the older one is closed
MAX_ANTHROPIC_TOKENS: Final = (
    4096  # tokens, where nothing is said: the API wants a number, and every model allows this one
)

_INVALID_ID_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_-]")
_ANTHROPIC_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
_ANTHROPIC_STOP_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": CUT_SHORT,
    "model_context_window_exceeded": CUT_SHORT,
    "refusal": FILTERED,
}
_ANTHROPIC_OPTIONS: Final = {
    "version": re.compile(r"anthropic-version"),
    # Some take either of the two but not both; the temperature is the one that matters here.
    "top_p": re.compile(r"\btop_p\b"),
    "temperature": re.compile(r"\btemperature\b"),
    "schema": re.compile(
        r"output_config|output_format|structured output|json_schema|\bschema\b", re.IGNORECASE
    ),
    "cache": re.compile(r"cache_control"),
}


class AnthropicDialect:
    """Speaks it."""

    variables = ("ANTHROPIC_API_KEY",)
    options: Mapping[str, re.Pattern[str]] = _ANTHROPIC_OPTIONS

    def build_url(self, base_url: str | None, model: str, *, streamed: bool) -> str:
        base = (base_url or ANTHROPIC_URL).rstrip("/")
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def build_headers(self, key: str | None, without: Collection[str]) -> dict[str, str]:
        if "version" in without:
            return {
                "anthropic-version": ANTHROPIC_NEWER_VERSION,
                **({"authorization": f"Bearer {key}"} if key else {}),
            }
        return {"anthropic-version": ANTHROPIC_VERSION, **({"x-api-key": key} if key else {})}

    def build_body(self, native_request: NativeRequest) -> dict[str, Json]:
        request = native_request.request
        unsampled = "version" in native_request.without
        schema = (
            build_closed_schema(request.schema.schema)
            if request.schema and "schema" not in native_request.without
            else None
        )
        told = describe_schema(request.schema) if request.schema and schema is None else ""
        talk = build_conversation(request, instructions=told)
        options: dict[str, Json] = {
            "system": talk.system or None,
            "temperature": None
            if unsampled or "temperature" in native_request.without
            else _clamp_temperature(request.temperature),
            "top_p": None if unsampled or "top_p" in native_request.without else request.top_p,
            "tools": [_build_anthropic_tool(definition) for definition in request.tools] or None,
            "tool_choice": _build_anthropic_choice(request.tool_choice) if request.tools else None,
            "output_config": None
            if schema is None
            else {"format": {"type": "json_schema", "schema": schema}},
            # With tools the same beginning is sent again with every result: worth being remembered there.
            "cache_control": {"type": "ephemeral"}
            if request.tools and "cache" not in native_request.without
            else None,
            "stop_sequences": get_stop_texts(request.options) or None,
            "stream": native_request.streamed or None,
        }
        return {
            "model": native_request.model,
            "max_tokens": (request.max_tokens or MAX_ANTHROPIC_TOKENS) + native_request.room,
            "messages": [
                {"role": turn.role, "content": [_build_block(part) for part in turn.parts]}
                for turn in talk.turns
            ],
            **{name: value for name, value in options.items() if value is not None},
        }

    def read_reply(self, draft: ReplyDraft, body: Mapping[str, Any]) -> bool:
        if not isinstance(body.get("content"), list):
            return False
        _read_message_start(draft, body)
        for at, block in enumerate(as_list(body["content"])):
            _read_block_start(draft, at, as_mapping(block))
        _set_anthropic_finish(draft, body.get("stop_reason"))
        draft.ended = True
        return True

    def read_event(self, draft: ReplyDraft, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            _read_message_start(draft, as_mapping(event.get("message")))
        elif kind == "content_block_start":
            _read_block_start(draft, event.get("index"), as_mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            _read_block_delta(draft, event.get("index"), as_mapping(event.get("delta")))
        elif kind == "message_delta":
            _set_anthropic_finish(draft, as_mapping(event.get("delta")).get("stop_reason"))
            _count_anthropic_tokens(draft, as_mapping(event.get("usage")))
        elif kind == "message_stop":
            draft.ended = True


def _clamp_temperature(temperature: float | None) -> float | None:
    """Other APIs go up to 2, this one to 1."""
    return None if temperature is None else min(1.0, temperature)


def _build_anthropic_tool(definition: JsonObject) -> JsonObject:
    function = as_mapping(definition.get("function"))
    return {
        "name": str(function.get("name", "")),
        "description": str(function.get("description") or ""),
        "input_schema": build_parameters_schema(function.get("parameters")),
    }


def _build_anthropic_choice(asked: Json) -> JsonObject | None:
    if (named := get_named_tool(asked)) is not None:
        return {"type": "tool", "name": named}
    return (
        {"type": _ANTHROPIC_CHOICES[asked]}
        if isinstance(asked, str) and asked in _ANTHROPIC_CHOICES
        else None
    )


def _build_block(part: NativePart) -> JsonObject:
    if isinstance(part, NativeCall):
        return {"type": "tool_use", "id": _clean_id(part.id), "name": part.name, "input": part.arguments}
    if isinstance(part, NativeResult):
        return {"type": "tool_result", "tool_use_id": _clean_id(part.id), "content": part.text}
    return _build_anthropic_media(part) if isinstance(part, NativeMedia) else {"type": "text", "text": part}


def _build_anthropic_media(media: NativeMedia) -> JsonObject:
    source: JsonObject = {"type": "url", "url": media.url}
    if media.data:
        source = {"type": "base64", "media_type": media.kind, "data": media.data}
    return {"type": "document" if media.kind == "application/pdf" else "image", "source": source}


def _clean_id(written: str) -> str:
    return _INVALID_ID_CHARACTER.sub("_", written)


def _read_message_start(draft: ReplyDraft, message: Mapping[str, Any]) -> None:
    named = message.get("model")
    draft.model = named if isinstance(named, str) else ""
    _count_anthropic_tokens(draft, as_mapping(message.get("usage")))


def _read_block_start(draft: ReplyDraft, at: object, block: Mapping[str, Any]) -> None:
    kind = block.get("type")
    if kind == "text":
        draft.add_text(block.get("text"))
    elif kind == "tool_use":
        draft.open_call(_get_block_key(at), block.get("name"), id=block.get("id"))
        draft.add_arguments(_get_block_key(at), block.get("input"))
    elif kind in ("thinking", "redacted_thinking"):
        draft.thought = True


def _read_block_delta(draft: ReplyDraft, at: object, delta: Mapping[str, Any]) -> None:
    kind = delta.get("type")
    if kind == "text_delta":
        draft.add_text(delta.get("text"))
    elif kind == "input_json_delta":
        draft.add_arguments(_get_block_key(at), delta.get("partial_json"))


def _get_block_key(at: object) -> object:
    return at if isinstance(at, int) else None


def _set_anthropic_finish(draft: ReplyDraft, reason: object) -> None:
    if isinstance(reason, str):
        draft.finish = _ANTHROPIC_STOP_REASONS.get(reason, reason)


def _count_anthropic_tokens(draft: ReplyDraft, usage: Mapping[str, Any]) -> None:
    """Tokens from a cache were read, too; they are counted apart. Later counts replace earlier ones."""
    read = parse_token_count(usage.get("input_tokens"))
    if read is not None:
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        draft.prompt_tokens = read + sum(parse_token_count(usage.get(name)) or 0 for name in cached)
    written = parse_token_count(usage.get("output_tokens"))
    if written is not None:
        draft.completion_tokens = written
