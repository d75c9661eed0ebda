"""Google's Gemini API (`generateContent`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from fingerpost.llm.base import ModelRequest
from fingerpost.llm.fields import as_list, as_mapping, get_named_tool
from fingerpost.llm.native.dialect import NativeRequest
from fingerpost.llm.native.draft import CUT_SHORT, FILTERED, GARBLED, ReplyDraft, parse_token_count
from fingerpost.llm.native.schemas import build_plain_schema, describe_schema
from fingerpost.llm.native.turns import (
    NativeCall,
    NativeMedia,
    NativePart,
    NativeResult,
    NativeTurn,
    build_conversation,
)
from fingerpost.llm.options import get_number, get_stop_texts
from fingerpost.records import Json, JsonObject

GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"
GOOGLE_VERSION: Final = "v1beta"
# Newer models want the mark of the thought behind a call back with it. A call that comes from
# elsewhere (another model, a packet rebuilt after a restart) has none; this is what to say then.
UNSIGNED_SIGNATURE: Final = "skip_thought_signature_validator"

_VERSIONED: Final = re.compile(r"/v\d\w{0,10}\Z")
_VALID_NAME_START: Final = re.compile(r"[A-Za-z_]")
_GOOGLE_CHOICES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_GOOGLE_FINISH_REASONS: Final = {
    "STOP": "stop",
    "MAX_TOKENS": CUT_SHORT,
    "SAFETY": FILTERED,
    "RECITATION": FILTERED,
    "LANGUAGE": FILTERED,
    "BLOCKLIST": FILTERED,
    "PROHIBITED_CONTENT": FILTERED,
    "SPII": FILTERED,
    "MALFORMED_FUNCTION_CALL": GARBLED,
    "UNEXPECTED_TOOL_CALL": GARBLED,
    "MALFORMED_RESPONSE": GARBLED,
}
_GOOGLE_OPTIONS: Final = {
    "top_p": re.compile(r"top_?p\b", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "schema": re.compile(r"response_?(?:json_?|mime_?)?(?:schema|type)|mime type|json mode", re.IGNORECASE),
}


class GoogleDialect:
    """Speaks it."""

    variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    options: Mapping[str, re.Pattern[str]] = _GOOGLE_OPTIONS

    def build_url(self, base_url: str | None, model: str, *, streamed: bool) -> str:
        base = (base_url or GOOGLE_URL).rstrip("/")
        if not _VERSIONED.search(base):
            base = f"{base}/{GOOGLE_VERSION}"
        named = quote(model if "/" in model else f"models/{model}", safe="/")
        return f"{base}/{named}:" + ("streamGenerateContent?alt=sse" if streamed else "generateContent")

    def build_headers(self, key: str | None, without: Collection[str]) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def build_body(self, native_request: NativeRequest) -> dict[str, Json]:
        request = native_request.request
        schema = None
        # Older models refuse a schema beside tools, with a message that names neither.
        if request.schema is not None and not request.tools and "schema" not in native_request.without:
            schema = build_plain_schema(request.schema.schema)
        told = describe_schema(request.schema) if request.schema and schema is None else ""
        talk = build_conversation(request, instructions=told)
        body: dict[str, Json] = {
            "contents": [content for turn in talk.turns for content in _build_contents(turn)]
        }
        if talk.system:
            body["systemInstruction"] = {"parts": [{"text": talk.system}]}
        if config := _build_config(native_request, schema):
            body["generationConfig"] = config
        if request.tools:
            body["tools"] = [
                {"functionDeclarations": [_build_google_tool(definition) for definition in request.tools]}
            ]
            if chosen := _build_google_choice(request.tool_choice):
                body["toolConfig"] = {"functionCallingConfig": chosen}
        return body

    def read_reply(self, draft: ReplyDraft, body: Mapping[str, Any]) -> bool:
        self.read_event(draft, body)
        return draft.ended

    def read_event(self, draft: ReplyDraft, event: Mapping[str, Any]) -> None:
        """An event of a stream has the shape of a whole reply, and holds the next piece of it."""
        named = event.get("modelVersion")
        draft.model = named if isinstance(named, str) else draft.model
        _count_google_tokens(draft, as_mapping(event.get("usageMetadata")))
        if isinstance(as_mapping(event.get("promptFeedback")).get("blockReason"), str):
            draft.finish, draft.ended = FILTERED, True
        candidate = as_mapping(next(iter(as_list(event.get("candidates"))), None))
        for part in as_list(as_mapping(candidate.get("content")).get("parts")):
            _read_part(draft, as_mapping(part))
        _set_google_finish(draft, candidate.get("finishReason"))


def _build_config(native_request: NativeRequest, schema: JsonObject | None) -> dict[str, Json]:
    request = native_request.request
    config: dict[str, Json] = {
        "temperature": None if "temperature" in native_request.without else request.temperature,
        "topP": None if "top_p" in native_request.without else request.top_p,
        "maxOutputTokens": None if request.max_tokens is None else request.max_tokens + native_request.room,
        "stopSequences": list[Json](get_stop_texts(request.options)) or None,
        "seed": request.options.get("seed"),
        "presencePenalty": get_number(request.options, "presence_penalty"),
        "frequencyPenalty": get_number(request.options, "frequency_penalty"),
        "responseMimeType": "application/json" if schema is not None or _wants_any_json(request) else None,
        "responseJsonSchema": schema,
    }
    return {name: value for name, value in config.items() if value is not None}


def _wants_any_json(request: ModelRequest) -> bool:
    """Whether the caller wants JSON of any shape."""
    return (
        as_mapping(request.options.get("response_format")).get("type") == "json_object" and not request.tools
    )


def _build_google_choice(asked: Json) -> JsonObject | None:
    if (named := get_named_tool(asked)) is not None:
        return {"mode": "ANY", "allowedFunctionNames": [_encode_name(named)]}
    return {"mode": _GOOGLE_CHOICES[asked]} if isinstance(asked, str) and asked in _GOOGLE_CHOICES else None


def _build_google_tool(definition: JsonObject) -> JsonObject:
    function = as_mapping(definition.get("function"))
    declared: dict[str, Json] = {
        "name": _encode_name(str(function.get("name", ""))),
        "description": str(function.get("description") or ""),
    }
    if isinstance(function.get("parameters"), Mapping):
        declared["parametersJsonSchema"] = function["parameters"]
    return declared


def _encode_name(name: str) -> str:
    """Names must not begin with a digit here. A mark in front, which `_decode_name` takes away again."""
    return name if _VALID_NAME_START.match(name) else f"_{name}"


def _decode_name(name: object) -> object:
    """The name as it was given to the API. No name of ours needs the mark that begins with a letter."""
    if isinstance(name, str) and name.startswith("_") and not _VALID_NAME_START.match(name[1:]):
        return name[1:]
    return name


def _build_contents(turn: NativeTurn) -> list[JsonObject]:
    """A turn; results apart from words, or the words would count as the model's own."""
    role = "model" if turn.role == "assistant" else "user"
    results = [part for part in turn.parts if isinstance(part, NativeResult)]
    others = [part for part in turn.parts if not isinstance(part, NativeResult)]
    return [{"role": role, "parts": _build_parts(group)} for group in (results, others) if group]


def _build_parts(parts: Sequence[NativePart]) -> list[Json]:
    written: list[Json] = []
    signed = False
    for part in parts:
        if isinstance(part, str):
            written.append({"text": part})
        elif isinstance(part, NativeResult):
            answer: JsonObject = {"output": part.text}
            response: JsonObject = {"id": part.id, "name": _encode_name(part.name), "response": answer}
            written.append({"functionResponse": response})
        elif isinstance(part, NativeMedia):
            written.append(_build_google_media(part))
        else:
            mark = part.signature or (None if signed else UNSIGNED_SIGNATURE)
            signed = True
            written.append(_build_call_part(part, mark))
    return written


def _build_google_media(media: NativeMedia) -> JsonObject:
    if media.data:
        return {"inlineData": {"mimeType": media.kind, "data": media.data}}
    return {"fileData": {"fileUri": media.url}}


def _build_call_part(call: NativeCall, mark: str | None) -> JsonObject:
    called: JsonObject = {"id": call.id, "name": _encode_name(call.name), "args": call.arguments}
    return {"functionCall": called, **({"thoughtSignature": mark} if mark else {})}


def _read_part(draft: ReplyDraft, part: Mapping[str, Any]) -> None:
    if part.get("thought") is True:
        draft.thought = True
        return
    draft.add_text(part.get("text"))
    call = as_mapping(part.get("functionCall"))
    if call:
        key = draft.call_count
        draft.open_call(
            key, _decode_name(call.get("name")), id=call.get("id"), signature=part.get("thoughtSignature")
        )
        draft.add_arguments(key, call.get("args"))


def _set_google_finish(draft: ReplyDraft, reason: object) -> None:
    if isinstance(reason, str) and reason:
        finish = _GOOGLE_FINISH_REASONS.get(reason, reason.lower())
        draft.finish = "tool_calls" if finish == "stop" and draft.call_count else finish
        draft.ended = True


def _count_google_tokens(draft: ReplyDraft, usage: Mapping[str, Any]) -> None:
    """Thoughts are paid for as what is written; they are counted apart."""
    thoughts = parse_token_count(usage.get("thoughtsTokenCount")) or 0
    draft.thought = draft.thought or thoughts > 0
    read, written = (
        parse_token_count(usage.get("promptTokenCount")),
        parse_token_count(usage.get("candidatesTokenCount")),
    )
    if read is not None:
        draft.prompt_tokens = read
        draft.completion_tokens = (written or 0) + thoughts
