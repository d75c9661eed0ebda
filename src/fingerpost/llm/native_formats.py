"""Shared code of both native APIs: conversations, schemas, errors and partial replies."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

from fingerpost.errors import ModelRefused, ModelReplyInvalid, ModelUnavailable
from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelReply, ModelRequest, ModelUsage, OnText, ResponseSchema
from fingerpost.llm.content import (
    MAX_REPLY_CALLS,
    SYSTEM_ROLES,
    as_list,
    as_mapping,
    format_excerpt,
    get_media_parts,
    get_number,
    get_response_schema,
    get_token_limit,
    parse_json,
)
from fingerpost.llm.remote import FailedAttempt
from fingerpost.records import Json, JsonObject, Message, create_id, find_json_problem, to_valid_text
from fingerpost.records.json import has_lone_surrogate
from fingerpost.redaction import scrub
from fingerpost.schemas import replace_parts

if TYPE_CHECKING:
    import httpx2


FILTERED: Final = "content_filter"
CUT_SHORT: Final = "length"
GARBLED: Final = "malformed"


@dataclass(slots=True, kw_only=True)
class _NativeOpenCall:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list[str])
    signature: str | None = None

    def build_call(self) -> JsonObject:
        """Return the call in the OpenAI format, which the rest of the program uses."""
        function: JsonObject = {"name": self.name, "arguments": "".join(self.arguments) or "{}"}
        call: dict[str, Json] = {"id": self.id, "type": "function", "function": function}
        if self.signature:
            call["extra_content"] = {"google": {"thought_signature": self.signature}}
        return call


@dataclass(slots=True)
class ReplyDraft:
    """One attempt at a reply. `has_streamed` is true after text was streamed; then no retry is allowed."""

    requested_model: str  # the requested model
    on_text: OnText | None = None
    limit: int = 4 * 1024 * 1024  # characters
    model: str = ""
    finish: str | None = None
    ended: bool = False
    has_reasoning: bool = False  # whether it wrote reasoning, which counts towards the same token limit
    has_streamed: bool = False
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    _size: int = 0
    _pieces: list[str] = field(default_factory=list[str])
    _calls: dict[object, _NativeOpenCall] = field(default_factory=dict[object, "_NativeOpenCall"])

    def add_text(self, value: object) -> None:
        if not isinstance(value, str) or not value:
            return
        piece = self._validate_text(value)
        self._pieces.append(piece)
        if self.on_text is not None:
            self.has_streamed = True
            self.on_text(piece)

    def open_call(self, key: object, name: object, *, id: object = None, signature: object = None) -> None:
        """Start a call. Its arguments follow. A call without a name is ignored."""
        if not isinstance(name, str) or not name or len(self._calls) >= MAX_REPLY_CALLS:
            return
        identifier = id if isinstance(id, str) and id else create_id("call")
        mark = signature if isinstance(signature, str) else None
        self._calls[key] = _NativeOpenCall(id=identifier, name=to_valid_text(name), signature=mark)

    def add_arguments(self, key: object, value: object) -> None:
        """Add arguments to a call: a piece of JSON text, or all of them as an object."""
        call = self._calls.get(key)
        if call is None:
            return
        if isinstance(value, str):
            call.arguments.append(self._validate_text(value))
        elif isinstance(value, Mapping) and value and find_json_problem(cast("object", value)) is None:
            call.arguments.append(self._validate_text(json.dumps(value, ensure_ascii=False)))

    def _validate_text(self, text: str) -> str:
        """Count the text and return it without lone surrogates. Raises `ModelReplyInvalid` when the reply
        gets too long.
        """
        self._size += len(text)
        if self._size > self.limit:
            message = f"{self.requested_model} answered with more than {self.limit:,} characters"
            raise ModelReplyInvalid(message, model=self.requested_model, hint="Set a limit on its answers.")
        return to_valid_text(text) if has_lone_surrogate(text) else text

    @property
    def call_count(self) -> int:
        return len(self._calls)

    @property
    def is_out_of_tokens(self) -> bool:
        """Whether reasoning used up the tokens of the answer, and a retry is still possible."""
        return self.finish == CUT_SHORT and self.has_reasoning and not self.has_streamed

    def build_reply(self) -> ModelReply:
        """Return the complete reply. Raises if it is empty because the model refused or failed."""
        text = "".join(self._pieces)
        if not text and not self._calls:
            self._check_empty_reply()
        return ModelReply(
            text=text,
            model=self.model or self.requested_model,
            usage=self._build_usage(),
            finish=self.finish,
            tool_calls=tuple(call.build_call() for call in self._calls.values()),
        )

    def _check_empty_reply(self) -> None:
        if self.finish == FILTERED:
            message = f"{self.requested_model} would not answer this"
            raise ModelRefused(message, model=self.requested_model, hint="Put the request in other words.")
        if self.finish == GARBLED:
            message = f"{self.requested_model} wrote a malformed tool call"
            raise ModelReplyInvalid(
                message, model=self.requested_model, hint="Ask again, or choose another model."
            )

    def _build_usage(self) -> ModelUsage | None:
        if self.prompt_tokens is None or self.completion_tokens is None:
            return None
        return ModelUsage(prompt_tokens=self.prompt_tokens, completion_tokens=self.completion_tokens)


def parse_token_count(value: object) -> int | None:
    """Return a number of tokens, or None if it is invalid."""
    counts = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return cast("int", value) if counts else None


@frozen
class NativeRequest:
    """A request, with findings about its model."""

    request: ModelRequest
    model: str
    without: Collection[str] = ()  # options that the model has refused
    reasoning_tokens: int = 0  # additional tokens for reasoning
    streamed: bool = False


class NativeDialect(Protocol):
    """One API: its URLs, its requests, and how to read its replies."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment variables that may contain a key for the vendor."""
        ...

    @property
    def options(self) -> Mapping[str, re.Pattern[str]]:
        """Optional request fields, with patterns that find them in the message of a refusal."""
        ...

    def build_url(self, base_url: str | None, model: str, *, streamed: bool) -> str: ...

    def build_headers(self, key: str | None, without: Collection[str]) -> dict[str, str]: ...

    def build_body(self, native_request: NativeRequest) -> dict[str, Json]: ...

    def read_reply(self, draft: ReplyDraft, body: Mapping[str, Any]) -> bool:
        """Read a complete reply. Return False if it is not one."""
        ...

    def read_event(self, draft: ReplyDraft, event: Mapping[str, Any]) -> None:
        """Read one event of a streamed reply."""
        ...


_MAX_NATIVE_MESSAGE_LENGTH: Final = 200
_NATIVE_BUSY_STATUSES: Final = (408, 409, 425, 429)
_OVERLOADED_STATUSES: Final = (429, 529)
# Google returns the status of an invalid request for a wrong key.
_API_KEY_MENTION: Final = re.compile(r"\bapi[ _-]?key\b", re.IGNORECASE)
_NATIVE_HINTS: Final = {
    401: "Check the model's api_key.",
    403: "Check what the model's api_key may do.",
    404: "Check the model's name and base_url.",
    413: "Shorten the request.",
}


def build_status_failure(
    response: httpx2.Response, options: Mapping[str, re.Pattern[str]], *, model: str
) -> FailedAttempt:
    """Build the failure for an error status whose body was read. `options` are the patterns of each
    option.
    """
    status, body = response.status_code, _parse_error(response.content)
    reported = _get_error_message(body) or format_excerpt(response.content)
    if status in _NATIVE_BUSY_STATUSES or status >= 500:
        what = "is overloaded" if status in _OVERLOADED_STATUSES else "failed"
        message = f"{model} {what} (status {status}): {reported}"
        busy = ModelUnavailable(message, model=model, hint="Try again later.", status=status)
        return FailedAttempt(error=busy, can_retry=True, wait=_parse_wait(response, body))
    hint = _NATIVE_HINTS[401] if _API_KEY_MENTION.search(reported) else _NATIVE_HINTS.get(status)
    message = f"{model} refused the request (status {status}): {reported}"
    refused = ModelRefused(message, model=model, hint=hint, status=status)
    option = ""
    if status in (400, 422):
        option = next((name for name, named in options.items() if named.search(reported)), "")
    return FailedAttempt(error=refused, option=option)


def build_unreadable_error(content: bytes, *, model: str) -> ModelReplyInvalid:
    message = f"{model} returned an invalid reply: {format_excerpt(content)}"
    return ModelReplyInvalid(message, model=model, hint="Are its base_url and its provider right?")


def parse_object(content: bytes | str) -> Mapping[str, Any] | None:
    """Return the JSON object in this content, or None."""
    try:
        value = parse_json(content)
    except ValueError:
        return None
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _parse_error(content: bytes) -> Mapping[str, Any]:
    """Return the error object. Google may put it in a list."""
    try:
        value = parse_json(content)
    except ValueError:
        return {}
    body = as_mapping(next(iter(as_list(value)), value))
    return as_mapping(body.get("error"))


def _get_error_message(error: Mapping[str, Any]) -> str:
    for candidate in (error.get("message"), error.get("type"), error.get("status")):
        if isinstance(candidate, str) and candidate.strip():
            return scrub(" ".join(candidate[: 10 * _MAX_NATIVE_MESSAGE_LENGTH].split()))[
                :_MAX_NATIVE_MESSAGE_LENGTH
            ]
    return ""


def _parse_wait(response: httpx2.Response, error: Mapping[str, Any]) -> float | None:
    """Return the requested delay from a header, or in Google's form (`"12s"`)."""
    delays = [as_mapping(detail).get("retryDelay") for detail in as_list(error.get("details"))]
    google_delays = [delay.removesuffix("s") for delay in delays if isinstance(delay, str)]
    for text in (response.headers.get("retry-after", ""), *google_delays):
        try:
            seconds = float(text[:20])
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def apply_caller_options(request: ModelRequest) -> ModelRequest:
    """Return the request with the caller's options instead of ours. Options without an equivalent are
    dropped.
    """
    options = request.options
    if not options:
        return request
    shape = get_response_schema(options)
    return replace(
        request,
        temperature=get_number(options, "temperature") if "temperature" in options else request.temperature,
        top_p=get_number(options, "top_p") if "top_p" in options else request.top_p,
        max_tokens=get_token_limit(options) or request.max_tokens,
        schema=request.schema or (None if shape is None else ResponseSchema(name=shape[0], schema=shape[1])),
    )


_ANTHROPIC_KEYWORDS: Final = frozenset(
    {"type", "title", "description", "enum", "const", "default", "properties", "required", "items", "anyOf"}
    | {"allOf", "$ref", "$defs", "additionalProperties"}
)
_GOOGLE_KEYWORDS: Final = frozenset(
    {"type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems"}
    | {"minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required"}
    | {"$id", "$defs", "$ref", "$anchor"}
)
_MEANINGFUL_KEYWORDS: Final = ("type", "enum", "const", "anyOf", "allOf", "$ref")
_TYPE_KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items",),
    "string": ("enum",),
}
_TOP_LEVEL_KEYWORDS: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else")


class _OpenObject(Exception):
    """An object with property names that are not known in advance."""


def build_closed_schema(schema: JsonObject) -> JsonObject | None:
    """Return `schema` in the form that Anthropic enforces, with every object closed. None if one must stay
    open.
    """
    try:
        return _close_schema(schema)
    except (_OpenObject, RecursionError):
        return None


def _close_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(schema)
    if "oneOf" in found:
        found.setdefault("anyOf", found["oneOf"])
    kept = {name: value for name, value in found.items() if name in _ANTHROPIC_KEYWORDS}
    kinds = kept.get("type")
    if isinstance(kinds, list):
        kept = _split_by_type(kept, kinds)
    elif kinds == "object":
        if kept.get("additionalProperties", False if kept.get("properties") else None) is not False:
            raise _OpenObject
        kept["additionalProperties"] = False
    elif not any(name in kept for name in _MEANINGFUL_KEYWORDS):
        raise _OpenObject
    return replace_parts(kept, _close_schema)


def _split_by_type(schema: Mapping[str, Json], kinds: Sequence[Json]) -> dict[str, Json]:
    """Return a schema of several types as a choice of schemas with one type."""
    outside = {name: value for name, value in schema.items() if name in ("title", "description", "$defs")}
    choices: list[Json] = []
    for kind in kinds:
        belongs = _TYPE_KEYWORDS.get(cast("str", kind), ())
        choices.append({"type": kind, **{name: schema[name] for name in belongs if name in schema}})
    return {**outside, "anyOf": choices}


def build_plain_schema(schema: JsonObject) -> JsonObject | None:
    """Return `schema` with only the keywords that Google supports. None if it is nested too deeply."""
    try:
        return _simplify_schema(schema)
    except RecursionError:
        return None


def _simplify_schema(schema: Mapping[str, Json]) -> dict[str, Json]:
    found = dict(schema)
    if "const" in found:
        found.setdefault("enum", [found["const"]])
    return replace_parts(
        {name: value for name, value in found.items() if name in _GOOGLE_KEYWORDS}, _simplify_schema
    )


def build_parameters_schema(schema: object) -> JsonObject:
    """Return a tool's parameters as Anthropic requires: an object at the top level, not a choice."""
    found = dict(cast("Mapping[str, Json]", schema)) if isinstance(schema, Mapping) else {}
    kept = {name: value for name, value in found.items() if name not in _TOP_LEVEL_KEYWORDS}
    return {**kept, "type": "object"}


def describe_schema(schema: ResponseSchema) -> str:
    """Return a prompt that asks for the form, where it cannot be enforced."""
    text = json.dumps(schema.schema, ensure_ascii=False)
    return f"Answer with one JSON value that satisfies this JSON Schema, and with nothing around it:\n{text}"


NativeRole: TypeAlias = Literal["user", "assistant"]

EARLIER_TEXT: Final = "(The conversation began before this.)"
CONTINUE_TEXT: Final = "(Go on.)"
_DATA_URL: Final = re.compile(r"data:(?P<kind>[\w.+-]{1,60}/[\w.+-]{1,80});base64,")
_MAX_UNREADABLE_LENGTH: Final = 2000  # characters kept of arguments that are not a JSON object


@frozen
class NativeCall:
    """A tool call of the assistant."""

    id: str
    name: str
    arguments: JsonObject
    signature: str | None = None  # Google's thought signature of the call


@frozen
class NativeResult:
    """The result of a call."""

    id: str
    name: str
    text: str


@frozen
class NativeMedia:
    """An image, audio or a file: base64 data or a URL."""

    kind: str  # media type such as "image/png"; "" if only the URL is known
    data: str = ""
    url: str = ""


NativePart: TypeAlias = str | NativeCall | NativeResult | NativeMedia


@frozen(kw_only=False)
class NativeTurn:
    """The parts of consecutive messages of one role."""

    role: NativeRole
    parts: tuple[NativePart, ...]


@frozen
class NativeConversation:
    """The messages of a request as turns."""

    system: str
    turns: tuple[NativeTurn, ...]

    @classmethod
    def from_request(cls, request: ModelRequest, *, instructions: str = "") -> NativeConversation:
        """Return the messages as alternating turns. `instructions` are added to the system prompt."""
        system_texts = [message.text for message in request.messages if message.role in SYSTEM_ROLES]
        system = "\n\n".join(text for text in (*system_texts, instructions) if text.strip())
        dialogue = [message for message in request.messages if message.role not in SYSTEM_ROLES]
        turns = _merge_turns(_iterate_parts(dialogue, with_calls=bool(request.tools)))
        if not turns or turns[0].role == "assistant":
            turns.insert(0, NativeTurn("user", (EARLIER_TEXT,)))
        if turns[-1].role == "assistant":
            turns.append(NativeTurn("user", (CONTINUE_TEXT,)))
        return cls(system=to_valid_text(system), turns=tuple(turns))


def _iterate_parts(
    messages: Sequence[Message], *, with_calls: bool
) -> Iterator[tuple[NativeRole, NativePart]]:
    """Yield every part with its role. A call is kept as a call only if its result follows."""
    open_calls: dict[str, str] = {}
    for at, message in enumerate(messages):
        if message.role == "tool":
            yield "user", _build_result(message, open_calls)
            continue
        open_calls = {}
        role: NativeRole = "assistant" if message.role == "assistant" else "user"
        if message.text.strip():
            yield role, to_valid_text(message.text)
        for media in get_media_parts(message) if role == "user" else ():
            yield role, _parse_media(media)
        if role == "assistant" and with_calls:
            answered = _get_answered_ids(messages[at + 1 :])
            for call in _iterate_calls(message.tool_calls, answered):
                open_calls[call.id] = call.name
                yield role, call


def _parse_media(part: JsonObject) -> NativePart:
    """Convert a media part from the OpenAI format, or to a text with its kind if that is not possible."""
    image, sound, file = (as_mapping(part.get(name)) for name in ("image_url", "input_audio", "file"))
    address = image.get("url") or file.get("file_data")
    if isinstance(address, str) and (found := _DATA_URL.match(address)):
        return NativeMedia(kind=found["kind"], data=address[found.end() :])
    if isinstance(address, str) and image:
        return NativeMedia(kind="", url=address)
    if isinstance(sound.get("data"), str):
        return NativeMedia(kind=f"audio/{sound.get('format', 'wav')}", data=str(sound["data"]))
    return f"({str(part.get('type'))[:40]}: this cannot be shown to this model)"


def _build_result(message: Message, open_calls: dict[str, str]) -> NativePart:
    """Return a result, or its text if it belongs to no call that can be sent."""
    text = to_valid_text(message.text)
    identifier = message.tool_call_id or ""
    if identifier not in open_calls:
        return f"A tool answered:\n{text or '(nothing)'}"
    return NativeResult(id=identifier, name=open_calls.pop(identifier), text=text or "(nothing)")


def _get_answered_ids(following: Iterable[Message]) -> set[str]:
    """Return the ids of the results that follow before the next message of another role."""
    found: set[str] = set()
    for message in following:
        if message.role != "tool":
            break
        found.add(message.tool_call_id or "")
    return found


def _iterate_calls(written: Sequence[JsonObject], answered: Collection[str]) -> Iterator[NativeCall]:
    seen: set[str] = set()
    for entry in written:
        identifier, function = entry.get("id"), as_mapping(entry.get("function"))
        name = function.get("name")
        if not isinstance(identifier, str) or not isinstance(name, str):
            continue
        if identifier in answered and identifier not in seen:
            seen.add(identifier)
            arguments = _parse_arguments(function.get("arguments"))
            yield NativeCall(id=identifier, name=name, arguments=arguments, signature=_get_signature(entry))


def _parse_arguments(written: object) -> JsonObject:
    """Parse arguments, which are text in the OpenAI format and not always valid JSON."""
    value = written
    if isinstance(written, str):
        try:
            value = parse_json(written or "{}")
        except ValueError:
            value = None
    if isinstance(value, dict):
        return cast("dict[str, Json]", value)
    return {"unreadable": to_valid_text(str(written)[:_MAX_UNREADABLE_LENGTH])}


def _get_signature(entry: JsonObject) -> str | None:
    """Return the thought signature, which is in the field of Google's OpenAI-compatible API."""
    found = as_mapping(as_mapping(entry.get("extra_content")).get("google")).get("thought_signature")
    return found if isinstance(found, str) and found else None


def _merge_turns(parts: Iterable[tuple[NativeRole, NativePart]]) -> list[NativeTurn]:
    turns: list[tuple[NativeRole, list[NativePart]]] = []
    for role, part in parts:
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(part)
    # Both APIs require the results of a turn before its other parts.
    return [NativeTurn(role, tuple(sorted(found, key=_is_not_result))) for role, found in turns]


def _is_not_result(part: NativePart) -> bool:
    return not isinstance(part, NativeResult)
