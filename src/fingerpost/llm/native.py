"""Models behind the native APIs of Anthropic and Google, over HTTP."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import anyio

from fingerpost.errors import ConfigError
from fingerpost.llm.base import ModelReply, ModelRequest, OnText
from fingerpost.llm.content import as_list, as_mapping, get_named_tool, get_number, get_stop_texts
from fingerpost.llm.native_formats import (
    CUT_SHORT,
    FILTERED,
    GARBLED,
    NativeCall,
    NativeConversation,
    NativeDialect,
    NativeMedia,
    NativePart,
    NativeRequest,
    NativeResult,
    NativeTurn,
    ReplyDraft,
    apply_caller_options,
    build_closed_schema,
    build_parameters_schema,
    build_plain_schema,
    build_status_failure,
    build_unreadable_error,
    describe_schema,
    parse_object,
    parse_token_count,
)
from fingerpost.llm.openai_chat import CONNECT_SECONDS, limit_response
from fingerpost.llm.remote import (
    MAX_REPLY_BYTES,
    FailedAttempt,
    RemoteChat,
    build_incomplete_failure,
    build_reported_failure,
    build_unreachable_failure,
)
from fingerpost.llm.stream import ModelEventParser
from fingerpost.records import Json, JsonObject
from fingerpost.redaction import register_secret
from fingerpost.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2
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
        schema_prompt = describe_schema(request.schema) if request.schema and schema is None else ""
        conversation = NativeConversation.from_request(request, instructions=schema_prompt)
        options: dict[str, Json] = {
            "system": conversation.system or None,
            "temperature": None
            if unsampled or "temperature" in native_request.without
            else _clamp_temperature(request.temperature),
            "top_p": None if unsampled or "top_p" in native_request.without else request.top_p,
            "tools": [_build_anthropic_tool(definition) for definition in request.tools] or None,
            "tool_choice": _build_anthropic_choice(request.tool_choice) if request.tools else None,
            "output_config": None
            if schema is None
            else {"format": {"type": "json_schema", "schema": schema}},
            # With tools the same prefix is sent again with every result, so caching is useful.
            "cache_control": {"type": "ephemeral"}
            if request.tools and "cache" not in native_request.without
            else None,
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
    """Limit the temperature to 1. Other APIs allow up to 2."""
    return None if temperature is None else min(1.0, temperature)


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
    return (
        {"type": _ANTHROPIC_CHOICES[tool_choice]}
        if isinstance(tool_choice, str) and tool_choice in _ANTHROPIC_CHOICES
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
        draft.has_reasoning = True


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
    """Add up the tokens. Cached tokens are reported separately. Later counts replace earlier ones."""
    read = parse_token_count(usage.get("input_tokens"))
    if read is not None:
        cached = ("cache_creation_input_tokens", "cache_read_input_tokens")
        draft.prompt_tokens = read + sum(parse_token_count(usage.get(name)) or 0 for name in cached)
    written = parse_token_count(usage.get("output_tokens"))
    if written is not None:
        draft.completion_tokens = written


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
        """Add an event of a stream. It has the form of a complete reply and contains the next piece."""
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
        "maxOutputTokens": None
        if request.max_tokens is None
        else request.max_tokens + native_request.reasoning_tokens,
        "stopSequences": list[Json](get_stop_texts(request.options)) or None,
        "seed": request.options.get("seed"),
        "presencePenalty": get_number(request.options, "presence_penalty"),
        "frequencyPenalty": get_number(request.options, "frequency_penalty"),
        "responseMimeType": "application/json" if schema is not None or _wants_any_json(request) else None,
        "responseJsonSchema": schema,
    }
    return {name: value for name, value in config.items() if value is not None}


def _wants_any_json(request: ModelRequest) -> bool:
    """Return whether the caller wants JSON without a schema."""
    return (
        as_mapping(request.options.get("response_format")).get("type") == "json_object" and not request.tools
    )


def _build_google_choice(tool_choice: Json) -> JsonObject | None:
    if (named := get_named_tool(tool_choice)) is not None:
        return {"mode": "ANY", "allowedFunctionNames": [_encode_name(named)]}
    return (
        {"mode": _GOOGLE_CHOICES[tool_choice]}
        if isinstance(tool_choice, str) and tool_choice in _GOOGLE_CHOICES
        else None
    )


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
    """Add a prefix to a name that starts with a digit, which this API does not allow. `_decode_name` removes
    it.
    """
    return name if _VALID_NAME_START.match(name) else f"_{name}"


def _decode_name(name: object) -> object:
    """Return the original name without the prefix."""
    if isinstance(name, str) and name.startswith("_") and not _VALID_NAME_START.match(name[1:]):
        return name[1:]
    return name


def _build_contents(turn: NativeTurn) -> list[JsonObject]:
    """Return a turn as one or two contents. Results are separate from text, or the text would count as the
    model's.
    """
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
        draft.has_reasoning = True
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
    """Add up the tokens. Reasoning is reported separately and billed as output."""
    thoughts = parse_token_count(usage.get("thoughtsTokenCount")) or 0
    draft.has_reasoning = draft.has_reasoning or thoughts > 0
    read, written = (
        parse_token_count(usage.get("promptTokenCount")),
        parse_token_count(usage.get("candidatesTokenCount")),
    )
    if read is not None:
        draft.prompt_tokens = read
        draft.completion_tokens = (written or 0) + thoughts


AFTER_END_SECONDS: Final = 0.2  # for the connection to end after the reply is complete
REASONING_TOKENS: Final = 8192  # tokens for a model whose reasoning counts towards the limit of its answer


class NativeChat(RemoteChat["httpx2.AsyncClient"]):
    """One model behind a native API. Connections are kept until it is closed."""

    def __init__(self, settings: ModelSettings, *, reply_bytes: int = MAX_REPLY_BYTES) -> None:
        super().__init__(settings, reply_bytes=reply_bytes)
        self._dialect = _get_dialect(settings)
        self._reasoning_tokens = 0
        self._key: str | None = None

    async def _complete_on(
        self, connection: httpx2.AsyncClient, request: ModelRequest, on_text: OnText | None
    ) -> ModelReply:
        """Return the reply, with retries. After text was streamed there are no more retries."""
        failed = 0
        while True:
            draft = ReplyDraft(request.model or self.name, on_text, self._reply_bytes)
            failure = await self._try_once(connection, request, draft)
            if failure is None:
                if not draft.is_out_of_tokens or self._reasoning_tokens:
                    return draft.build_reply()
                self._reasoning_tokens = REASONING_TOKENS
            elif draft.has_streamed:
                raise failure.error from None
            elif not self._drop_refused_option(failure, request):
                failed += 1
                await self._wait_or_raise(failure, failed)

    def _drop_refused_option(self, failed: FailedAttempt, request: ModelRequest) -> bool:
        """Remember an option that the model refused. Return whether the request can be sent again without
        it.
        """
        if not failed.option or failed.option in self._get_refused_options(request):
            return False
        if failed.option in request.options:  # the caller set it, so the error is returned
            return False
        self._note_refused_option(request, failed.option)
        return True

    async def _try_once(
        self, client: httpx2.AsyncClient, request: ModelRequest, draft: ReplyDraft
    ) -> FailedAttempt | None:
        """Make one attempt. The content is added to `draft`; a failure is returned."""
        import httpx2

        streamed = draft.on_text is not None
        model, unwanted = request.model or self.name, self._get_refused_options(request)
        native_request = NativeRequest(
            request=apply_caller_options(request),
            model=model,
            without=unwanted,
            reasoning_tokens=self._reasoning_tokens,
            streamed=streamed,
        )
        address = self._dialect.build_url(self._settings.base_url, model, streamed=streamed)
        headers = self._dialect.build_headers(self._key, unwanted)
        content = json.dumps(self._dialect.build_body(native_request)).encode()
        has_started = False
        try:
            async with client.stream("POST", address, content=content, headers=headers) as response:
                has_started = response.is_success
                if not has_started:
                    await response.aread()
                    return build_status_failure(response, self._dialect.options, model=model)
                if _is_event_stream(response):
                    return await self._read_stream(response, draft)
                return self._read_whole(await response.aread(), draft)
        except (httpx2.HTTPError, httpx2.StreamError, ssl.SSLError, anyio.EndOfStream) as error:
            return (
                build_incomplete_failure(self.name)
                if has_started
                else build_unreachable_failure(error, self.name)
            )

    def _read_whole(self, content: bytes, draft: ReplyDraft) -> FailedAttempt | None:
        """Read a complete reply."""
        body = parse_object(content)
        if body is None:
            raise build_unreadable_error(content, model=self.name)
        if body.get("error"):
            return build_reported_failure(body["error"], self.name)
        if not self._dialect.read_reply(draft, body):
            raise build_unreadable_error(content, model=self.name)
        return None

    async def _read_stream(self, response: httpx2.Response, draft: ReplyDraft) -> FailedAttempt | None:
        """Read a streamed reply to its end."""
        reader = ModelEventParser()
        with anyio.CancelScope() as scope:
            async for piece in response.aiter_bytes():
                if (broken := self._read_events(reader.parse(piece), draft)) is not None:
                    return broken
                if draft.ended:
                    scope.deadline = min(scope.deadline, anyio.current_time() + AFTER_END_SECONDS)
        return self._read_events(reader.finish(), draft) or (
            None if draft.ended else build_incomplete_failure(self.name)
        )

    def _read_events(self, events: list[str], draft: ReplyDraft) -> FailedAttempt | None:
        for event in events:
            body = parse_object(event)
            if body is None:  # a message of a proxy
                continue
            if body.get("error"):
                return build_reported_failure(body["error"], self.name)
            self._dialect.read_event(draft, body)
        return None

    def _create_connection(self) -> httpx2.AsyncClient:
        import httpx2

        self._key = self._find_key()
        settings = self._settings
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(settings.timeout, connect=min(CONNECT_SECONDS, settings.timeout)),
            follow_redirects=False,
            headers={"accept-encoding": "identity", "content-type": "application/json"},
            event_hooks={"response": [self._limit_response]},
        )

    def _find_key(self) -> str | None:
        """Return the API key. A key from the environment is sent only to the vendor's own address."""
        if self._settings.api_key or self._settings.base_url:
            return self._settings.api_key
        for variable in self._dialect.variables:
            if found := os.environ.get(variable, "").strip():
                register_secret(found)
                return found
        message = f"no key is configured for the model {self.name}"
        hint = f"Set api_key of the model (better as ${{VARIABLE}}), or {self._dialect.variables[0]}."
        raise ConfigError(message, hint=hint)

    async def _limit_response(self, response: httpx2.Response) -> None:
        limit_response(response, limit=self._reply_bytes, model=self.name)


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


def _get_dialect(settings: ModelSettings) -> NativeDialect:
    if settings.provider == "anthropic":
        return AnthropicDialect()
    if settings.provider == "google":
        return GoogleDialect()
    message = f"the model {settings.model} is not behind a native API: its provider is {settings.provider}"
    raise ConfigError(message, hint='Set provider to "anthropic" or "google", or use OpenAIChat.')


__all__ = ["NativeChat"]
