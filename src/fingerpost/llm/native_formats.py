"""Shared code of both native APIs: conversations, schemas, errors and partial replies."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias, cast

from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelRequest, ResponseSchema
from fingerpost.llm.content import (
    SYSTEM_ROLES,
    as_mapping,
    get_media_parts,
    get_number,
    get_response_schema,
    get_token_limit,
    parse_json,
)
from fingerpost.records import Json, JsonObject, Message, to_valid_text
from fingerpost.schemas import replace_parts


@frozen
class NativeRequest:
    """A request, with findings about its model."""

    request: ModelRequest
    model: str
    without: Collection[str] = ()  # options that the model has refused
    reasoning_tokens: int = 0  # additional tokens for reasoning
    streamed: bool = False

    def choose(self, option: str, value: Json) -> Json:
        """Return the value of an option, or None if the model has refused it."""
        return None if option in self.without else value


def apply_caller_options(request: ModelRequest) -> ModelRequest:
    """Return the request with the caller's options instead of ours, where they have an equivalent."""
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
    """Return `schema` with every object closed, as Anthropic enforces it. None if one must stay open."""
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
    kept = {name: value for name, value in found.items() if name in _GOOGLE_KEYWORDS}
    return replace_parts(kept, _simplify_schema)


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
            # In the field of Google's OpenAI-compatible API.
            extra = as_mapping(as_mapping(entry.get("extra_content")).get("google"))
            signature = extra.get("thought_signature")
            signature = signature if isinstance(signature, str) else None
            yield NativeCall(id=identifier, name=name, arguments=arguments, signature=signature)


def _parse_arguments(written: object) -> JsonObject:
    """Parse arguments, which are text in the OpenAI format and not always valid JSON."""
    try:
        value = parse_json(written or "{}") if isinstance(written, str) else written
    except ValueError:
        value = None
    if isinstance(value, dict):
        return cast("dict[str, Json]", value)
    return {"unreadable": to_valid_text(str(written)[:_MAX_UNREADABLE_LENGTH])}


def _merge_turns(parts: Iterable[tuple[NativeRole, NativePart]]) -> list[NativeTurn]:
    turns: list[tuple[NativeRole, list[NativePart]]] = []
    for role, part in parts:
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(part)
    for _, found in turns:  # both APIs require the results of a turn before its other parts
        found.sort(key=lambda part: not isinstance(part, NativeResult))
    return [NativeTurn(role, tuple(found)) for role, found in turns]
