"""Models behind the native APIs of Anthropic and Google, over HTTP."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fingerpost.errors import ConfigError, ModelRefused, ModelReplyInvalid
from fingerpost.llm.base import ModelReply, ModelRequest, OnText
from fingerpost.llm.content import (
    as_list,
    as_mapping,
    format_excerpt,
    get_named_tool,
    get_number,
    get_stop_texts,
    parse_object,
    read_count,
)
from fingerpost.llm.native_formats import (
    NativeCall,
    NativeConversation,
    NativeMedia,
    NativePart,
    NativeRequest,
    NativeResult,
    NativeTurn,
    apply_caller_options,
    build_closed_schema,
    build_parameters_schema,
    build_plain_schema,
    describe_schema,
)
from fingerpost.llm.remote import (
    MAX_REPLY_BYTES,
    FailedAttempt,
    RemoteChat,
    build_reported_failure,
)
from fingerpost.llm.stream import HttpPost, ReplyAssembler, ReplyChunk
from fingerpost.records import Json, JsonObject, create_id
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2

FILTERED: Final = "content_filter"
CUT_SHORT: Final = "length"
GARBLED: Final = "malformed"
ANTHROPIC_URL: Final = "https://api.anthropic.com"
# The newer version does not accept a temperature, which selections use. A model that refuses it says so
# and is not sent one again.
ANTHROPIC_VERSION: Final = "2023-06-01"
ANTHROPIC_NEWER_VERSION: Final = "2026-10-21"  # for accounts without access to the older version
# Tokens, if no limit is given: the API requires one, and every model allows this value.
DEFAULT_ANTHROPIC_TOKENS: Final = 4096

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
    # Some models accept only one of the two. The temperature is more important here.
    "top_p": re.compile(r"\btop_p\b"),
    "temperature": re.compile(r"\btemperature\b"),
    "schema": re.compile(
        r"output_config|output_format|structured output|json_schema|\bschema\b", re.IGNORECASE
    ),
    "cache": re.compile(r"cache_control"),
}


class AnthropicDialect:
    """The API of Anthropic."""

    variables = ("ANTHROPIC_API_KEY",)
    options: Mapping[str, re.Pattern[str]] = _ANTHROPIC_OPTIONS

    def create_reader(self) -> AnthropicReader:
        return AnthropicReader()

    def build_url(self, base_url: str | None, model: str, *, streamed: bool) -> str:
        base = (base_url or ANTHROPIC_URL).rstrip("/")
        return f"{base}/messages" if base.endswith("/v1") else f"{base}/v1/messages"

    def build_headers(self, key: str | None, without: Collection[str]) -> dict[str, str]:
        if "version" in without:
            signed = {"authorization": f"Bearer {key}"} if key else {}
            return {"anthropic-version": ANTHROPIC_NEWER_VERSION, **signed}
        return {"anthropic-version": ANTHROPIC_VERSION, **({"x-api-key": key} if key else {})}

    def build_body(self, native_request: NativeRequest) -> dict[str, Json]:
        request = native_request.request
        unsampled = "version" in native_request.without
        # Other APIs allow a temperature up to 2.
        temperature = None if request.temperature is None else min(1.0, request.temperature)
        schema = None
        if request.schema and "schema" not in native_request.without:
            schema = build_closed_schema(request.schema.schema)
        output = None if schema is None else {"format": {"type": "json_schema", "schema": schema}}
        schema_prompt = describe_schema(request.schema) if request.schema and schema is None else ""
        conversation = NativeConversation.from_request(request, instructions=schema_prompt)
        options: dict[str, Json] = {
            "system": conversation.system or None,
            "temperature": None if unsampled else native_request.choose("temperature", temperature),
            "top_p": None if unsampled else native_request.choose("top_p", request.top_p),
            "tools": [_build_anthropic_tool(definition) for definition in request.tools] or None,
            "tool_choice": _build_anthropic_choice(request.tool_choice) if request.tools else None,
            "output_config": output,
            # With tools the same prefix is sent again with every result, so caching is useful.
            "cache_control": native_request.choose("cache", {"type": "ephemeral"}) if request.tools else None,
            "stop_sequences": get_stop_texts(request.options) or None,
            "stream": native_request.streamed or None,
        }
        return {
            "model": native_request.model,
            "max_tokens": (request.max_tokens or DEFAULT_ANTHROPIC_TOKENS) + native_request.reasoning_tokens,
            "messages": [
                {"role": turn.role, "content": [_build_block(part) for part in turn.parts]}
                for turn in conversation.turns
            ],
            **{name: value for name, value in options.items() if value is not None},
        }


def _build_anthropic_tool(definition: JsonObject) -> JsonObject:
    function = as_mapping(definition.get("function"))
    return {
        "name": str(function.get("name", "")),
        "description": str(function.get("description") or ""),
        "input_schema": build_parameters_schema(function.get("parameters")),
    }


def _build_anthropic_choice(tool_choice: Json) -> JsonObject | None:
    if (named := get_named_tool(tool_choice)) is not None:
        return {"type": "tool", "name": named}
    kind = _ANTHROPIC_CHOICES.get(tool_choice) if isinstance(tool_choice, str) else None
    return {"type": kind} if kind else None


def _build_block(part: NativePart) -> JsonObject:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, NativeMedia):
        source: JsonObject = {"type": "url", "url": part.url}
        if part.data:
            source = {"type": "base64", "media_type": part.kind, "data": part.data}
        return {"type": "document" if part.kind == "application/pdf" else "image", "source": source}
    call_id = _INVALID_ID_CHARACTER.sub("_", part.id)
    if isinstance(part, NativeCall):
        return {"type": "tool_use", "id": call_id, "name": part.name, "input": part.arguments}
    return {"type": "tool_result", "tool_use_id": call_id, "content": part.text}


class AnthropicReader:
    """Translates the events of one reply to chunks of the chat-completions format."""

    def __init__(self) -> None:
        self.has_reasoning = False  # whether it wrote reasoning, which counts towards the same token limit
        self._counts: dict[str, int] = {}
        self._calls: set[object] = set()  # the places of calls

    def translate(self, event: Mapping[str, Any]) -> Sequence[ReplyChunk | None]:
        match event.get("type"):
            case "message_start":
                message = as_mapping(event.get("message"))
                return [{"model": message.get("model"), **self._count_tokens(message.get("usage"))}]
            case "content_block_start":
                return self._read_block(event.get("index"), as_mapping(event.get("content_block")))
            case "content_block_delta":
                return self._read_delta(event.get("index"), as_mapping(event.get("delta")))
            case "message_delta":
                finish = _build_finish(as_mapping(event.get("delta")).get("stop_reason"))
                return [{**finish, **self._count_tokens(event.get("usage"))}]
            case "message_stop":
                return [None]
            case _:
                return []

    def translate_whole(self, body: Mapping[str, Any]) -> Sequence[ReplyChunk | None]:
        """Translate a complete reply. Empty if it is not one."""
        if not isinstance(body.get("content"), list):
            return []
        content = map(as_mapping, as_list(body["content"]))
        blocks = [self._read_block(at, block) for at, block in enumerate(content)]
        first = {"model": body.get("model"), **self._count_tokens(body.get("usage"))}
        return [first, *chain.from_iterable(blocks), _build_finish(body.get("stop_reason")), None]

    def _read_block(self, at: object, block: Mapping[str, Any]) -> Sequence[ReplyChunk]:
        match block.get("type"):
            case "text":
                return [build_chunk(block.get("text"))]
            case "tool_use" if isinstance(at, int) and isinstance(block.get("name"), str) and block["name"]:
                self._calls.add(at)
                return [build_call_chunk(at, block.get("input"), name=block["name"], call_id=block.get("id"))]
            case kind:
                self.has_reasoning = self.has_reasoning or kind in ("thinking", "redacted_thinking")
                return []

    def _read_delta(self, at: object, delta: Mapping[str, Any]) -> Sequence[ReplyChunk]:
        match delta.get("type"):
            case "text_delta":
                return [build_chunk(delta.get("text"))]
            case "input_json_delta" if isinstance(at, int) and at in self._calls:
                return [build_call_chunk(at, delta.get("partial_json"))]
            case _:
                return []

    def _count_tokens(self, usage: object) -> ReplyChunk:
        """Add up the tokens. Cached tokens are reported separately. Later counts replace earlier ones."""
        counts = {name: read_count(value) for name, value in as_mapping(usage).items()}
        read, written = counts.get("input_tokens"), counts.get("output_tokens")
        if read is not None:
            cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
            self._counts["prompt_tokens"] = read + sum(counts.get(name) or 0 for name in cached)
        if written is not None:
            self._counts["completion_tokens"] = written
        return {"usage": dict(self._counts)}


def _build_finish(reason: object) -> ReplyChunk:
    finish = _ANTHROPIC_STOP_REASONS.get(reason, reason) if isinstance(reason, str) else None
    return build_chunk(finish=finish)


def build_chunk(content: object = None, *, finish: str | None = None, **delta: Json) -> ReplyChunk:
    """Return a chunk of the chat-completions format."""
    return {"choices": [{"delta": {"content": content, **delta}, "finish_reason": finish}]}


def build_call_chunk(
    index: int, arguments: object, *, name: str = "", call_id: object = "", extra: JsonObject | None = None
) -> ReplyChunk:
    """Return the start of a call (with its name), or more of its arguments."""
    if name and not (isinstance(call_id, str) and call_id):
        call_id = create_id("call")
    function = {"name": name, "arguments": arguments}
    call: Any = {"index": index, "id": call_id, "function": function, "extra_content": extra}
    return build_chunk(tool_calls=[call])


GOOGLE_URL: Final = "https://generativelanguage.googleapis.com"
GOOGLE_VERSION: Final = "v1beta"
# Newer models require the thought signature with a call. A call from elsewhere (another model, a packet
# rebuilt after a restart) has none; this value is used instead.
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
    """The API of Google."""

    variables = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    options: Mapping[str, re.Pattern[str]] = _GOOGLE_OPTIONS

    def create_reader(self) -> GoogleReader:
        return GoogleReader()

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
        # Older models refuse a schema together with tools, with a message that names neither.
        if request.schema is not None and not request.tools and "schema" not in native_request.without:
            schema = build_plain_schema(request.schema.schema)
        schema_prompt = describe_schema(request.schema) if request.schema and schema is None else ""
        conversation = NativeConversation.from_request(request, instructions=schema_prompt)
        body: dict[str, Json] = {
            "contents": [content for turn in conversation.turns for content in _build_contents(turn)]
        }
        if conversation.system:
            body["systemInstruction"] = {"parts": [{"text": conversation.system}]}
        if config := _build_config(native_request, schema):
            body["generationConfig"] = config
        if request.tools:
            body["tools"] = [{"functionDeclarations": list(map(_build_google_tool, request.tools))}]
            if chosen := _build_google_choice(request.tool_choice):
                body["toolConfig"] = {"functionCallingConfig": chosen}
        return body


def _build_config(native_request: NativeRequest, schema: JsonObject | None) -> dict[str, Json]:
    request = native_request.request
    wanted = as_mapping(request.options.get("response_format")).get("type")
    any_json = wanted == "json_object" and not request.tools  # JSON without a schema
    limit = request.max_tokens
    config: dict[str, Json] = {
        "temperature": native_request.choose("temperature", request.temperature),
        "topP": native_request.choose("top_p", request.top_p),
        "maxOutputTokens": None if limit is None else limit + native_request.reasoning_tokens,
        "stopSequences": list[Json](get_stop_texts(request.options)) or None,
        "seed": request.options.get("seed"),
        "presencePenalty": get_number(request.options, "presence_penalty"),
        "frequencyPenalty": get_number(request.options, "frequency_penalty"),
        "responseMimeType": "application/json" if schema is not None or any_json else None,
        "responseJsonSchema": schema,
    }
    return {name: value for name, value in config.items() if value is not None}


def _build_google_choice(tool_choice: Json) -> JsonObject | None:
    if (named := get_named_tool(tool_choice)) is not None:
        return {"mode": "ANY", "allowedFunctionNames": [_encode_name(named)]}
    mode = _GOOGLE_CHOICES.get(tool_choice) if isinstance(tool_choice, str) else None
    return {"mode": mode} if mode else None


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
    """Add a prefix to a name that starts with a digit, which this API does not allow."""
    return name if _VALID_NAME_START.match(name) else f"_{name}"


def _decode_name(name: object) -> object:
    """Return the original name without the prefix."""
    if isinstance(name, str) and name.startswith("_") and not _VALID_NAME_START.match(name[1:]):
        return name[1:]
    return name


def _build_contents(turn: NativeTurn) -> list[JsonObject]:
    """Return a turn as one or two contents. Text next to results would count as the model's."""
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
            data = {"inlineData": {"mimeType": part.kind, "data": part.data}}
            written.append(data if part.data else {"fileData": {"fileUri": part.url}})
        else:
            mark = part.signature or (None if signed else UNSIGNED_SIGNATURE)
            signed = True
            called: JsonObject = {"id": part.id, "name": _encode_name(part.name), "args": part.arguments}
            written.append({"functionCall": called, **({"thoughtSignature": mark} if mark else {})})
    return written


class GoogleReader:
    """Translates the events of one reply to chunks of the chat-completions format."""

    def __init__(self) -> None:
        self.has_reasoning = False
        self._calls = 0

    def translate(self, event: Mapping[str, Any]) -> Sequence[ReplyChunk | None]:
        """Translate an event. It has the form of a complete reply and contains the next piece."""
        first: dict[str, Any] = {
            "model": event.get("modelVersion"),
            "usage": self._count_tokens(as_mapping(event.get("usageMetadata"))),
        }
        candidate = as_mapping(next(iter(as_list(event.get("candidates"))), None))
        parts = as_list(as_mapping(candidate.get("content")).get("parts"))
        chunks = [first, *chain.from_iterable(self._read_part(as_mapping(part)) for part in parts)]
        reason = candidate.get("finishReason")
        if isinstance(as_mapping(event.get("promptFeedback")).get("blockReason"), str):
            reason = "SAFETY"
        if not isinstance(reason, str) or not reason:
            return chunks
        finish = _GOOGLE_FINISH_REASONS.get(reason, reason.lower())
        finish = "tool_calls" if finish == "stop" and self._calls else finish
        return [*chunks, build_chunk(finish=finish), None]

    def translate_whole(self, body: Mapping[str, Any]) -> Sequence[ReplyChunk | None]:
        """Translate a complete reply. Empty if it is not one."""
        chunks = self.translate(body)
        return chunks if chunks[-1] is None else []

    def _read_part(self, part: Mapping[str, Any]) -> Sequence[ReplyChunk]:
        if part.get("thought") is True:
            self.has_reasoning = True
            return []
        chunks = [build_chunk(part.get("text"))]
        call = as_mapping(part.get("functionCall"))
        name = _decode_name(call.get("name"))
        if isinstance(name, str) and name:
            mark = part.get("thoughtSignature")
            extra: JsonObject = {"google": {"thought_signature": mark}} if isinstance(mark, str) else {}
            at, arguments, call_id = self._calls, call.get("args"), call.get("id")
            chunks.append(build_call_chunk(at, arguments, name=name, call_id=call_id, extra=extra))
            self._calls += 1
        return chunks

    def _count_tokens(self, usage: Mapping[str, Any]) -> JsonObject:
        """Add up the tokens. Reasoning is reported separately and billed as output."""
        thoughts = read_count(usage.get("thoughtsTokenCount")) or 0
        self.has_reasoning = self.has_reasoning or thoughts > 0
        written = read_count(usage.get("candidatesTokenCount")) or 0
        return {"prompt_tokens": usage.get("promptTokenCount"), "completion_tokens": written + thoughts}


REASONING_TOKENS: Final = 8192  # tokens for a model whose reasoning counts towards the limit of its answer
_DIALECTS: Final = {"anthropic": AnthropicDialect, "google": GoogleDialect}


class NativeChat(RemoteChat):
    """One model behind a native API. Connections are kept until it is closed."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__(settings, reply_bytes=reply_bytes)
        if settings.provider not in _DIALECTS:
            provider = f"its provider is {settings.provider}"
            message = f"the model {settings.model} is not behind a native API: {provider}"
            raise ConfigError(message, hint='Set provider to "anthropic" or "google", or use OpenAIChat.')
        self._dialect = _DIALECTS[settings.provider]()
        self.key_variables = self._dialect.variables
        self._reasoning_tokens = 0

    async def _try_once(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply | FailedAttempt:
        reader = self._dialect.create_reader()
        result = await self._send(connection, request, reader, on_text)
        if isinstance(result, FailedAttempt):
            # The error about an option of the caller is returned.
            return replace(result, option="") if result.option in request.options else result
        starved = result.finish == CUT_SHORT and reader.has_reasoning
        if starved and not self._reasoning_tokens and (on_text is None or not result.text):
            self._reasoning_tokens = REASONING_TOKENS
            return await self._try_once(connection, request, on_text)
        _check_empty_reply(result, request.model or self.name)
        return result

    async def _send(
        self,
        connection: httpx2.AsyncClient,
        request: ModelRequest,
        reader: AnthropicReader | GoogleReader,
        on_text: OnText | None,
    ) -> ModelReply | FailedAttempt:
        model, unwanted = request.model or self.name, self._get_refused_options(request)
        native_request = NativeRequest(
            request=apply_caller_options(request),
            model=model,
            without=unwanted,
            reasoning_tokens=self._reasoning_tokens,
            streamed=on_text is not None,
        )
        address = self._dialect.build_url(self._settings.base_url, model, streamed=on_text is not None)
        headers = self._dialect.build_headers(self._key, unwanted)
        body = self._dialect.build_body(native_request)
        reply = ReplyAssembler(model, self._reply_bytes, reader)

        def read_whole(content: bytes) -> ModelReply | FailedAttempt:
            body = parse_object(content)
            if body.get("error"):
                return build_reported_failure(body["error"], model)
            chunks = reader.translate_whole(body)
            if not chunks:
                message = f"{model} returned an invalid reply: {format_excerpt(content)}"
                hint = "Are its base_url and its provider right?"
                raise ModelReplyInvalid(message, model=model, hint=hint)
            deque(reply.add_chunks(chunks), maxlen=0)
            return reply.build_reply()

        post = HttpPost(address=address, headers=headers, body=body, model=model)
        return await post.send(connection, reply, on_text, read_whole, options=self._dialect.options)


def _check_empty_reply(reply: ModelReply, model: str) -> None:
    """Raise if the reply is empty because the model refused or failed."""
    if reply.text or reply.tool_calls:
        return
    if reply.finish == FILTERED:
        hint = "Put the request in other words."
        raise ModelRefused(f"{model} would not answer this", model=model, hint=hint)
    if reply.finish == GARBLED:
        hint = "Ask again, or choose another model."
        raise ModelReplyInvalid(f"{model} wrote a malformed tool call", model=model, hint=hint)
