"""Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from fingerpost.llm.fields import entries, mapping, named_tool
from fingerpost.llm.native.dialect import Wish
from fingerpost.llm.native.draft import CUT_SHORT, FILTERED, Draft, count
from fingerpost.llm.native.schemas import closed_schema, in_words, parameters_schema
from fingerpost.llm.native.turns import Call, Media, Part, Result, talk_of
from fingerpost.llm.options import stops_of
from fingerpost.records import Json, JsonObject

ADDRESS: Final = "https://api.anthropic.com"
# The newer version takes no temperature at all, with which a selection is asked for; a model
# that takes none says so, and is not sent one again.
VERSION: Final = "2023-06-01"
NEWER_VERSION: Final = "2026-10-21"  # for whom the older one is closed
LONGEST: Final = (
    4096  # tokens, where nothing is said: the API wants a number, and every model allows this one
)

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_CHOICES: Final = {"auto": "auto", "required": "any", "none": "none"}
_ENDS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": CUT_SHORT,
    "model_context_window_exceeded": CUT_SHORT,
    "refusal": FILTERED,
}
_OPTIONS: Final = {
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
    options: Mapping[str, re.Pattern[str]] = _OPTIONS

    def address(self, base_url: str | None, model: str, *, streamed: bool) -> str:
        base = (base_url or ADDRESS).rstrip("/")
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def headers(self, key: str | None, without: Collection[str]) -> dict[str, str]:
        if "version" in without:
            return {"anthropic-version": NEWER_VERSION, **({"authorization": f"Bearer {key}"} if key else {})}
        return {"anthropic-version": VERSION, **({"x-api-key": key} if key else {})}

    def body(self, wish: Wish) -> dict[str, Json]:
        request = wish.request
        unsampled = "version" in wish.without
        schema = (
            closed_schema(request.schema.schema) if request.schema and "schema" not in wish.without else None
        )
        told = in_words(request.schema) if request.schema and schema is None else ""
        talk = talk_of(request, instructions=told)
        options: dict[str, Json] = {
            "system": talk.system or None,
            "temperature": None if unsampled or "temperature" in wish.without else _low(request.temperature),
            "top_p": None if unsampled or "top_p" in wish.without else request.top_p,
            "tools": [_tool(definition) for definition in request.tools] or None,
            "tool_choice": _tool_choice(request.tool_choice) if request.tools else None,
            "output_config": None
            if schema is None
            else {"format": {"type": "json_schema", "schema": schema}},
            # With tools the same beginning is sent again with every result: worth being remembered there.
            "cache_control": {"type": "ephemeral"} if request.tools and "cache" not in wish.without else None,
            "stop_sequences": stops_of(request.options) or None,
            "stream": wish.streamed or None,
        }
        return {
            "model": wish.model,
            "max_tokens": (request.max_tokens or LONGEST) + wish.room,
            "messages": [
                {"role": turn.role, "content": [_block(part) for part in turn.parts]} for turn in talk.turns
            ],
            **{name: value for name, value in options.items() if value is not None},
        }

    def read(self, draft: Draft, body: Mapping[str, Any]) -> bool:
        if not isinstance(body.get("content"), list):
            return False
        _begin(draft, body)
        for at, block in enumerate(entries(body["content"])):
            _begin_block(draft, at, mapping(block))
        _end(draft, body.get("stop_reason"))
        draft.ended = True
        return True

    def follow(self, draft: Draft, event: Mapping[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            _begin(draft, mapping(event.get("message")))
        elif kind == "content_block_start":
            _begin_block(draft, event.get("index"), mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            _go_on(draft, event.get("index"), mapping(event.get("delta")))
        elif kind == "message_delta":
            _end(draft, mapping(event.get("delta")).get("stop_reason"))
            _count(draft, mapping(event.get("usage")))
        elif kind == "message_stop":
            draft.ended = True


def _low(temperature: float | None) -> float | None:
    """Other APIs go up to 2, this one to 1."""
    return None if temperature is None else min(1.0, temperature)


def _tool(definition: JsonObject) -> JsonObject:
    function = mapping(definition.get("function"))
    return {
        "name": str(function.get("name", "")),
        "description": str(function.get("description") or ""),
        "input_schema": parameters_schema(function.get("parameters")),
    }


def _tool_choice(asked: Json) -> JsonObject | None:
    if (named := named_tool(asked)) is not None:
        return {"type": "tool", "name": named}
    return {"type": _CHOICES[asked]} if isinstance(asked, str) and asked in _CHOICES else None


def _block(part: Part) -> JsonObject:
    if isinstance(part, Call):
        return {"type": "tool_use", "id": _identifier(part.id), "name": part.name, "input": part.arguments}
    if isinstance(part, Result):
        return {"type": "tool_result", "tool_use_id": _identifier(part.id), "content": part.text}
    return _media(part) if isinstance(part, Media) else {"type": "text", "text": part}


def _media(media: Media) -> JsonObject:
    source: JsonObject = {"type": "url", "url": media.url}
    if media.data:
        source = {"type": "base64", "media_type": media.kind, "data": media.data}
    return {"type": "document" if media.kind == "application/pdf" else "image", "source": source}


def _identifier(written: str) -> str:
    return _ODD.sub("_", written)


def _begin(draft: Draft, message: Mapping[str, Any]) -> None:
    named = message.get("model")
    draft.model = named if isinstance(named, str) else ""
    _count(draft, mapping(message.get("usage")))


def _begin_block(draft: Draft, at: object, block: Mapping[str, Any]) -> None:
    kind = block.get("type")
    if kind == "text":
        draft.add_text(block.get("text"))
    elif kind == "tool_use":
        draft.open_call(_key(at), block.get("name"), id=block.get("id"))
        draft.add_arguments(_key(at), block.get("input"))
    elif kind in ("thinking", "redacted_thinking"):
        draft.thought = True


def _go_on(draft: Draft, at: object, delta: Mapping[str, Any]) -> None:
    kind = delta.get("type")
    if kind == "text_delta":
        draft.add_text(delta.get("text"))
    elif kind == "input_json_delta":
        draft.add_arguments(_key(at), delta.get("partial_json"))


def _key(at: object) -> object:
    return at if isinstance(at, int) else None


def _end(draft: Draft, reason: object) -> None:
    if isinstance(reason, str):
        draft.finish = _ENDS.get(reason, reason)


def _count(draft: Draft, usage: Mapping[str, Any]) -> None:
    """Tokens from a cache were read, too; they are counted apart. Later counts replace earlier ones."""
    read = count(usage.get("input_tokens"))
    if read is not None:
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        draft.prompt_tokens = read + sum(count(usage.get(name)) or 0 for name in cached)
    written = count(usage.get("output_tokens"))
    if written is not None:
        draft.completion_tokens = written
