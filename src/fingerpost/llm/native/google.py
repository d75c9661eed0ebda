"""Google's Gemini API (`generateContent`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from fingerpost.llm.base import ModelRequest
from fingerpost.llm.fields import entries, mapping, named_tool
from fingerpost.llm.native.dialect import Wish
from fingerpost.llm.native.draft import CUT_SHORT, FILTERED, GARBLED, Draft, count
from fingerpost.llm.native.schemas import in_words, plain_schema
from fingerpost.llm.native.turns import Call, Media, Part, Result, Turn, talk_of
from fingerpost.llm.options import number_of, stops_of
from fingerpost.records import Json, JsonObject

ADDRESS: Final = "https://generativelanguage.googleapis.com"
VERSION: Final = "v1beta"
# Newer models want the mark of the thought behind a call back with it. A call that comes from
# elsewhere (another model, a packet rebuilt after a restart) has none; this is what to say then.
UNSIGNED: Final = "skip_thought_signature_validator"

_VERSIONED: Final = re.compile(r"/v\d\w{0,10}\Z")
_FIRST: Final = re.compile(r"[A-Za-z_]")
_CHOICES: Final = {"auto": "AUTO", "required": "ANY", "none": "NONE"}
_ENDS: Final = {
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
_OPTIONS: Final = {
    "top_p": re.compile(r"top_?p\b", re.IGNORECASE),
    "temperature": re.compile(r"temperature", re.IGNORECASE),
    "schema": re.compile(r"response_?(?:json_?|mime_?)?(?:schema|type)|mime type|json mode", re.IGNORECASE),
}


class GoogleDialect:
    """Speaks it."""

    variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    options: Mapping[str, re.Pattern[str]] = _OPTIONS

    def address(self, base_url: str | None, model: str, *, streamed: bool) -> str:
        base = (base_url or ADDRESS).rstrip("/")
        if not _VERSIONED.search(base):
            base = f"{base}/{VERSION}"
        named = quote(model if "/" in model else f"models/{model}", safe="/")
        return f"{base}/{named}:" + ("streamGenerateContent?alt=sse" if streamed else "generateContent")

    def headers(self, key: str | None, without: Collection[str]) -> dict[str, str]:
        return {"x-goog-api-key": key} if key else {}

    def body(self, wish: Wish) -> dict[str, Json]:
        request = wish.request
        schema = None
        # Older models refuse a schema beside tools, with a message that names neither.
        if request.schema is not None and not request.tools and "schema" not in wish.without:
            schema = plain_schema(request.schema.schema)
        told = in_words(request.schema) if request.schema and schema is None else ""
        talk = talk_of(request, instructions=told)
        body: dict[str, Json] = {"contents": [content for turn in talk.turns for content in _contents(turn)]}
        if talk.system:
            body["systemInstruction"] = {"parts": [{"text": talk.system}]}
        if config := _config(wish, schema):
            body["generationConfig"] = config
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(definition) for definition in request.tools]}]
            if chosen := _chosen(request.tool_choice):
                body["toolConfig"] = {"functionCallingConfig": chosen}
        return body

    def read(self, draft: Draft, body: Mapping[str, Any]) -> bool:
        self.follow(draft, body)
        return draft.ended

    def follow(self, draft: Draft, event: Mapping[str, Any]) -> None:
        """An event of a stream has the shape of a whole reply, and holds the next piece of it."""
        named = event.get("modelVersion")
        draft.model = named if isinstance(named, str) else draft.model
        _count(draft, mapping(event.get("usageMetadata")))
        if isinstance(mapping(event.get("promptFeedback")).get("blockReason"), str):
            draft.finish, draft.ended = FILTERED, True
        candidate = mapping(next(iter(entries(event.get("candidates"))), None))
        for part in entries(mapping(candidate.get("content")).get("parts")):
            _take(draft, mapping(part))
        _end(draft, candidate.get("finishReason"))


def _config(wish: Wish, schema: JsonObject | None) -> dict[str, Json]:
    request = wish.request
    config: dict[str, Json] = {
        "temperature": None if "temperature" in wish.without else request.temperature,
        "topP": None if "top_p" in wish.without else request.top_p,
        "maxOutputTokens": None if request.max_tokens is None else request.max_tokens + wish.room,
        "stopSequences": list[Json](stops_of(request.options)) or None,
        "seed": request.options.get("seed"),
        "presencePenalty": number_of(request.options, "presence_penalty"),
        "frequencyPenalty": number_of(request.options, "frequency_penalty"),
        "responseMimeType": "application/json" if schema is not None or _any_json(request) else None,
        "responseJsonSchema": schema,
    }
    return {name: value for name, value in config.items() if value is not None}


def _any_json(request: ModelRequest) -> bool:
    """Whether the caller wants JSON of any shape."""
    return mapping(request.options.get("response_format")).get("type") == "json_object" and not request.tools


def _chosen(asked: Json) -> JsonObject | None:
    if (named := named_tool(asked)) is not None:
        return {"mode": "ANY", "allowedFunctionNames": [_spoken(named)]}
    return {"mode": _CHOICES[asked]} if isinstance(asked, str) and asked in _CHOICES else None


def _tool(definition: JsonObject) -> JsonObject:
    function = mapping(definition.get("function"))
    declared: dict[str, Json] = {
        "name": _spoken(str(function.get("name", ""))),
        "description": str(function.get("description") or ""),
    }
    if isinstance(function.get("parameters"), Mapping):
        declared["parametersJsonSchema"] = function["parameters"]
    return declared


def _spoken(name: str) -> str:
    """Names must not begin with a digit here. A mark in front, which `_ours` takes away again."""
    return name if _FIRST.match(name) else f"_{name}"


def _ours(name: object) -> object:
    """The name as it was given to the API. No name of ours needs the mark that begins with a letter."""
    if isinstance(name, str) and name.startswith("_") and not _FIRST.match(name[1:]):
        return name[1:]
    return name


def _contents(turn: Turn) -> list[JsonObject]:
    """A turn; results apart from words, or the words would count as the model's own."""
    role = "model" if turn.role == "assistant" else "user"
    results = [part for part in turn.parts if isinstance(part, Result)]
    others = [part for part in turn.parts if not isinstance(part, Result)]
    return [{"role": role, "parts": _parts(group)} for group in (results, others) if group]


def _parts(parts: Sequence[Part]) -> list[Json]:
    written: list[Json] = []
    signed = False
    for part in parts:
        if isinstance(part, str):
            written.append({"text": part})
        elif isinstance(part, Result):
            answer: JsonObject = {"output": part.text}
            response: JsonObject = {"id": part.id, "name": _spoken(part.name), "response": answer}
            written.append({"functionResponse": response})
        elif isinstance(part, Media):
            written.append(_media(part))
        else:
            mark = part.signature or (None if signed else UNSIGNED)
            signed = True
            written.append(_call(part, mark))
    return written


def _media(media: Media) -> JsonObject:
    if media.data:
        return {"inlineData": {"mimeType": media.kind, "data": media.data}}
    return {"fileData": {"fileUri": media.url}}


def _call(call: Call, mark: str | None) -> JsonObject:
    called: JsonObject = {"id": call.id, "name": _spoken(call.name), "args": call.arguments}
    return {"functionCall": called, **({"thoughtSignature": mark} if mark else {})}


def _take(draft: Draft, part: Mapping[str, Any]) -> None:
    if part.get("thought") is True:
        draft.thought = True
        return
    draft.add_text(part.get("text"))
    call = mapping(part.get("functionCall"))
    if call:
        key = draft.called
        draft.open_call(
            key, _ours(call.get("name")), id=call.get("id"), signature=part.get("thoughtSignature")
        )
        draft.add_arguments(key, call.get("args"))


def _end(draft: Draft, reason: object) -> None:
    if isinstance(reason, str) and reason:
        finish = _ENDS.get(reason, reason.lower())
        draft.finish = "tool_calls" if finish == "stop" and draft.called else finish
        draft.ended = True


def _count(draft: Draft, usage: Mapping[str, Any]) -> None:
    """Thoughts are paid for as what is written; they are counted apart."""
    thoughts = count(usage.get("thoughtsTokenCount")) or 0
    draft.thought = draft.thought or thoughts > 0
    read, written = count(usage.get("promptTokenCount")), count(usage.get("candidatesTokenCount"))
    if read is not None:
        draft.prompt_tokens = read
        draft.completion_tokens = (written or 0) + thoughts
