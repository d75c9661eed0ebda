"""Content of messages and replies: fields, parts, options, tool calls, and JSON inside text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from fingerpost.errors import ModelReplyInvalid
from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelUsage
from fingerpost.records import Json, JsonObject, Message, ToolCall, find_json_problem, to_valid_text
from fingerpost.records.json import MAX_DEPTH, parse_strict_json, refuse_constant
from fingerpost.redaction import scrub
from fingerpost.regex import prepare_re
from fingerpost.schemas.validator import SchemaValidator, StepBudget, StepBudgetExceeded

MAX_REPLY_CALLS: Final = 128  # tool calls in one reply
_MAX_EXCERPT_LENGTH: Final = 120


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the object, or an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[object]:
    """Return the list, or an empty one."""
    return cast("list[object]", value) if isinstance(value, list) else []


def parse_json(text: str | bytes) -> object:
    """Parse `text` as JSON. Raises `ValueError` if it is invalid or nested too deeply."""
    try:
        return cast("object", json.loads(text))
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep


def parse_object(content: str | bytes) -> Mapping[str, Any]:
    """Return the JSON object in this content, or an empty one."""
    try:
        return as_mapping(parse_json(content))
    except ValueError:
        return {}


def read_raw_text(content: object) -> str:
    """Return the text of a message, plain or in parts, as written. It may contain lone surrogates."""
    if isinstance(content, list):
        parts = (as_mapping(part).get("text") for part in cast("list[object]", content))
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def read_text(content: object) -> str:
    """Return the text of a message in a form that can be stored and sent."""
    return to_valid_text(read_raw_text(content))


def read_reasoning(message: Mapping[str, Any]) -> str:
    """Return the model's reasoning. Servers use two names for it."""
    return read_raw_text(message.get("reasoning_content")) or read_raw_text(message.get("reasoning"))


def read_usage(value: object) -> ModelUsage | None:
    """Return the tokens counted by the server, or None if missing or implausible."""
    fields = as_mapping(value)
    prompt, completion = read_count(fields.get("prompt_tokens")), read_count(fields.get("completion_tokens"))
    if prompt is None or completion is None:
        return None
    return ModelUsage(prompt_tokens=prompt, completion_tokens=completion)


def read_count(value: object) -> int | None:
    """Return a number of tokens, or None if it is implausible."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    return cast("int", value) if is_count else None


def read_calls(values: Iterable[object]) -> tuple[JsonObject, ...]:
    """Return the tool calls that are objects, as written."""
    objects = (cast("JsonObject", value) for value in values if isinstance(value, dict))
    return tuple(entry for entry in objects if find_json_problem(entry) is None)


def get_named_tool(choice: object) -> str | None:
    """Return the tool that a tool choice names, or None."""
    name = as_mapping(as_mapping(choice).get("function")).get("name")
    return name if isinstance(name, str) and name else None


def read_model_name(fields: Mapping[str, Any], *, default: str) -> str:
    """Return the model's name as given by the server."""
    named = fields.get("model")
    return named if isinstance(named, str) and named else default


def format_excerpt(content: bytes | str) -> str:
    """Return the beginning of external content for a message."""
    start = content[: 4 * _MAX_EXCERPT_LENGTH]
    text = " ".join((start.decode(errors="replace") if isinstance(start, bytes) else start).split())
    return scrub(text)[:_MAX_EXCERPT_LENGTH] or "nothing at all"


def build_invalid_reply_error(what: str, model: str) -> ModelReplyInvalid:
    """Build the error for an invalid reply."""
    return ModelReplyInvalid(f"{model} answered with {what}", model=model, hint="Is its base_url right?")


SYSTEM_ROLES: Final = ("system", "developer")  # newer models use the latter
_TEXT_PART_TYPES: Final = ("text", "input_text", "output_text")


def get_content(message: Message) -> Json:
    """Return the content to send: the text, or the parts as written.

    If the text was changed since (shortened history, tools described in the request), it precedes the parts
    that are not text.
    """
    if not message.parts:
        return message.text
    written = "".join(text for part in message.parts for text in get_part_texts(part))
    if "".join(written.split()) == "".join(message.text.split()):
        return list(message.parts)
    others = get_media_parts(message)
    if not others:
        return message.text
    words: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
    return [*words, *others]


def get_media_parts(message: Message) -> tuple[JsonObject, ...]:
    """Return the parts that are not text."""
    return tuple(part for part in message.parts if part.get("type") not in _TEXT_PART_TYPES)


def get_part_texts(part: JsonObject) -> tuple[str, ...]:
    text = part.get("text")
    return (text,) if part.get("type") in _TEXT_PART_TYPES and isinstance(text, str) else ()


def to_text_only(message: Message) -> Message:
    """Return the message with its parts replaced by their names, for models that read only text."""
    if not message.parts:
        return message
    text = message.text or " ".join(map(_format_part_name, get_media_parts(message)))
    return replace(message, text=text, parts=())


def _format_part_name(part: JsonObject) -> str:
    """Return `[image]` for a part of the type `image_url`."""
    kind = str(as_mapping(part).get("type") or "part")
    return f"[{kind.removeprefix('input_').removesuffix('_url')[:40]}]"


TOKEN_LIMIT_OPTION: Final = "max_tokens"  # noqa: S105 - no secret
NEW_TOKEN_LIMIT_OPTION: Final = "max_completion_tokens"  # noqa: S105 - what OpenAI's own newer models insist on
# Fields of the request itself, and fields that would change the format of the reply.
_NON_OPTION_FIELDS: Final = frozenset(
    {"model", "messages", "tools", "tool_choice", "stream", "stream_options"}
    | {"n", "functions", "function_call"}
)


def get_caller_options(options: JsonObject) -> dict[str, Json]:
    """Return the options among these fields."""
    return {name: value for name, value in options.items() if name not in _NON_OPTION_FIELDS}


def has_response_format(options: JsonObject) -> bool:
    """Return whether the caller requires a response format, so that nothing may be added to the answer."""
    kind = as_mapping(options.get("response_format")).get("type", "text")
    return kind != "text"


def get_token_limit(options: JsonObject) -> int | None:
    """Return the token limit of the answer, under either name."""
    for name in (NEW_TOKEN_LIMIT_OPTION, TOKEN_LIMIT_OPTION):
        value = options.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def get_number(options: JsonObject, name: str) -> float | None:
    value = options.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def get_stop_texts(options: JsonObject) -> list[str]:
    """Return the stop sequences, given as one text or several."""
    value = options.get("stop")
    written = value if isinstance(value, list) else [value]
    return [text for text in written if isinstance(text, str) and text]


def get_response_schema(options: JsonObject) -> tuple[str, JsonObject] | None:
    """Return the name and schema of the required response format, or None."""
    asked = as_mapping(as_mapping(options.get("response_format")).get("json_schema"))
    schema = asked.get("schema")
    if not isinstance(schema, Mapping):
        return None
    name = asked.get("name")
    return (name if isinstance(name, str) and name else "answer"), cast("JsonObject", schema)


MAX_CALLS = 128
MAX_ARGUMENT_CHARACTERS = 4_000_000
EXCERPT_LENGTH = 40


@frozen
class UnreadableToolCall:
    """A call that could not be parsed, and why."""

    reference: str | None
    name: str
    message: str


def parse_tool_calls(message: JsonObject) -> list[ToolCall | UnreadableToolCall]:
    """Return the tool calls of one assistant message, in order."""
    return [_parse_entry(entry) for entry in _iterate_entries(message)][:MAX_CALLS]


def _iterate_entries(message: JsonObject) -> Iterator[object]:
    calls = message.get("tool_calls")
    if isinstance(calls, Sequence) and not isinstance(calls, str):
        yield from calls
    elif calls is not None:
        yield calls
    if (single := message.get("function_call")) is not None:  # the format before tool_calls
        yield {"function": single}


def _parse_entry(entry: object) -> ToolCall | UnreadableToolCall:
    fields = as_mapping(entry)
    reference = fields.get("id")
    reference = reference if isinstance(reference, str) else None
    function = fields.get("function")
    if not isinstance(function, Mapping):
        return UnreadableToolCall(
            reference=reference, name="", message="the call has no function object with a name and arguments"
        )
    written = cast("Mapping[str, Any]", function)
    name = written.get("name")
    if not isinstance(name, str) or not name.strip():
        return UnreadableToolCall(reference=reference, name="", message="the call names no function")
    arguments = read_arguments(written.get("arguments"))
    if isinstance(arguments, str):
        return UnreadableToolCall(reference=reference, name=name, message=arguments)
    return ToolCall(name=name.strip(), arguments=arguments, reference=reference)


def read_arguments(written: object) -> dict[str, Any] | str:
    """Return the arguments as an object, or a text that says what is wrong with them."""
    if written is None or written == "":
        return {}
    if isinstance(written, str):
        if len(written) > MAX_ARGUMENT_CHARACTERS:
            return f"the arguments are longer than {MAX_ARGUMENT_CHARACTERS:,} characters"
        try:
            written = json.loads(written)
        except json.JSONDecodeError as error:
            at = error.pos
            before, after = written[max(0, at - EXCERPT_LENGTH) : at], written[at : at + EXCERPT_LENGTH]
            around = scrub(f"{before}⟦here⟧{after}")
            return f"the arguments are not valid JSON: {error.msg} at character {at}: {around}"
        except (ValueError, RecursionError):
            return "the arguments contain a number that is too long, or are nested too deeply"
    if not isinstance(written, Mapping):
        return f"the arguments must be a JSON object, not {_describe_kind(written)}"
    if (reason := find_json_problem(cast("object", written))) is not None:
        return f"the arguments {reason}" if not reason.startswith("is ") else f"the argument object {reason}"
    return dict(cast("Mapping[str, Any]", written))


def _describe_kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "a boolean" if isinstance(value, bool) else f"the {type(value).__name__} {value!s:.40}"


MAX_NODES: Final = 20_000  # for one reply; checking takes about ten microseconds for each
# Too costly for what they say about a reply.
_IGNORED_KEYWORDS: Final = frozenset({"pattern", "patternProperties", "uniqueItems", "unevaluatedProperties"})


class SchemaMatcher:
    """Matches the values of one reply against a schema. Without a schema, any object or array matches.

    What cannot be checked does not match: a schema that makes no sense, or work beyond the limit.
    """

    def __init__(self, schema: JsonObject | None) -> None:
        self._validator: SchemaValidator | None = None
        if schema is not None:
            self._validator = SchemaValidator(schema, strict=True, ignored=_IGNORED_KEYWORDS)
        self._nodes_left = MAX_NODES
        self._budget = StepBudget(reserved=0)

    def accepts(self, value: object) -> bool:
        """Return whether the value matches. After too many nodes the result is always False."""
        if find_json_problem(value) is not None:
            return False
        self._nodes_left -= _count_nodes(value, self._nodes_left)
        if self._nodes_left <= 0:
            return False
        if self._validator is None:
            return isinstance(value, dict | list)
        try:
            return self._validator.is_valid(cast("Json", value), self._budget)
        except StepBudgetExceeded:
            return False


def _count_nodes(value: object, limit: int) -> int:
    """Return the number of values in this one, counted up to `limit`."""
    count, todo = 0, [value]
    while todo and count < limit:
        node = todo.pop()
        count += 1
        if isinstance(node, dict):
            todo.extend(cast("dict[str, object]", node).values())
        elif isinstance(node, list):
            todo.extend(cast("list[object]", node))
    return count


MAX_REPLY_LENGTH: Final = 256_000  # characters examined
MAX_ATTEMPTS: Final = 200  # positions in prose where JSON might start
# Characters read without success at such positions, in total.
MAX_WASTED_CHARACTERS: Final = 4 * MAX_REPLY_LENGTH
MAX_FENCES: Final = 50

_THOUGHT_END: Final = prepare_re(r"</think(?:ing)?>", re.IGNORECASE)
_FENCE: Final = prepare_re(r"```[^\n`]{0,40}\n(.*?)```", re.DOTALL)
_OPENING: Final = prepare_re(r"[{\[]")
# A string (even an unterminated one) is matched as a whole, so that a comma inside it is kept.
_SPARE_COMMA: Final = prepare_re(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|,(?=\s*+[}\]])', re.DOTALL)


def parse_structured(text: str, schema: JsonObject | None = None) -> Json | None:
    """Return the JSON value in `text` that satisfies `schema` (None: any object or array), or None.

    Of several values the last one is returned, because models reason before they answer.
    """
    matcher = SchemaMatcher(schema)
    for value in _iterate_values(strip_reasoning(text[:MAX_REPLY_LENGTH])):
        if matcher.accepts(value):
            return cast("Json", value)
    return None


def strip_reasoning(text: str) -> str:
    """Return the text after the model's reasoning."""
    end = 0
    for found in _THOUGHT_END.finditer(text):
        end = found.end()
    return text[end:].strip() or text.strip()


def _iterate_values(text: str) -> Iterator[object]:
    """Yield the JSON values in `text`, most likely first. A value may occur more than once."""
    for candidate in (text, *reversed(_FENCE.findall(text)[-MAX_FENCES:])):
        with suppress(ValueError):
            yield parse_strict_json(candidate)
    yield from reversed(list(_iterate_embedded(text)))
    mended = remove_spare_commas(text)
    if mended != text:
        yield from reversed(list(_iterate_embedded(mended)))


def _iterate_embedded(text: str) -> Iterator[object]:
    """Yield complete objects and arrays that start anywhere in the text."""
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    at = wasted = 0
    for _ in range(MAX_ATTEMPTS):
        opening = _OPENING.search(text, at)
        if opening is None or wasted > MAX_WASTED_CHARACTERS:
            return
        try:
            value, at = decoder.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            at, wasted = opening.end(), wasted + error.pos - opening.start()
        except (ValueError, RecursionError):
            at, wasted = opening.end(), wasted + len(text) // 50
        else:
            yield value


def remove_spare_commas(text: str) -> str:
    """Return the text without commas before a closing bracket. Commas inside strings stay."""
    return _SPARE_COMMA.sub(lambda match: match[0] if match[0] != "," else "", text)


MAX_SEARCHED_LENGTH: Final = 100_000  # characters searched for objects; far above the size asked for
MAX_OBJECTS: Final = 200
_MAX_STRAY_BRACKETS: Final = 4  # unclosed braces in prose; each costs a scan of the rest

_THOUGHT_TAG: Final = prepare_re(r"<(/?)think(?:ing)?>", re.IGNORECASE)
# The start of data, valid or not. A brace or bracket followed by anything else is prose.
_DATA_START: Final = prepare_re(
    r"""\{\s*+(?:["'{}\[/\#]|[\w$-]{1,40}+\s*+[:=])|\[\s*+(?:["'{\[\]/\#0-9-]|true|false|null)"""
)
# A string, even an unclosed one, is matched as a whole, so that brackets inside it do not count.
_STRINGS_AND_BRACKETS: Final = prepare_re(r'"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_UNQUOTED_CLAIM: Final = prepare_re(r'("confidence"\s{0,9}:\s{0,9})([^\s",{}\[\]\\]{1,40})', re.IGNORECASE)


def find_outermost_objects(text: str, *, whole: bool = False) -> list[tuple[JsonObject, ...]]:
    """Return the outermost objects in `text`, in order. The objects of one list form one group.

    With `whole`, a text that is one JSON value may have any length, because it may contain an answer.
    """
    found = _group_objects(decode_json((text if whole else text[:MAX_SEARCHED_LENGTH]).strip()))
    if found:
        return [found]
    groups = map(_group_objects, _scan_values(_strip_thoughts(text[:MAX_SEARCHED_LENGTH])))
    return [group for group in groups if group]


def _group_objects(value: object) -> tuple[JsonObject, ...]:
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(cast("JsonObject", each) for each in values[:MAX_OBJECTS] if isinstance(each, dict))


def _strip_thoughts(text: str) -> str:
    """Return the text after the reasoning. Reasoning without an end is removed."""
    begin, end, thinking = 0, len(text), False
    for tag in _THOUGHT_TAG.finditer(text):
        if tag[1]:
            begin, end, thinking = tag.end(), len(text), False
        elif not thinking:
            end, thinking = tag.start(), True
    return text[begin:end]


def _scan_values(text: str) -> Iterator[object]:
    at, strays = 0, 0
    for _ in range(MAX_OBJECTS):
        opening = _OPENING.search(text, at)
        if opening is None:
            return
        begin = opening.start()
        end = _find_closing_bracket(text, begin)
        if end is not None:
            at = end
            yield decode_json(text[begin:end])
        elif _DATA_START.match(text, begin) or strays == _MAX_STRAY_BRACKETS:
            return  # cut off: the rest is inside this value
        else:
            at, strays = begin + 1, strays + 1


def _find_closing_bracket(text: str, begin: int) -> int | None:
    """Return the end of the bracket at `begin`. Return None when it is not closed or nested too deeply."""
    depth = 0
    for mark in _STRINGS_AND_BRACKETS.finditer(text, begin):
        if mark[0] in "{[":
            depth += 1
            if depth > 2 * MAX_DEPTH:
                return None  # too deep to be stored
        elif mark[0] in "}]":
            depth -= 1
            if depth == 0:
                return mark.end()
    return None


def decode_json(text: str) -> object:
    """Parse JSON or return None. A trailing comma and an unquoted confidence are repaired."""
    if not text.startswith(("{", "[")):
        return None
    for candidate in (text, _UNQUOTED_CLAIM.sub(_quote_claim, remove_spare_commas(text))):
        try:
            hook = _reject_repeated_keys
            return parse_strict_json(candidate, control_characters=True, object_pairs_hook=hook)
        except ValueError:
            continue
    return None


def _quote_claim(match: re.Match[str]) -> str:
    try:
        parse_strict_json(match[2])
    except ValueError:
        return f'{match[1]}"{match[2]}"'
    return match[0]


def _reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found and found[key] != value:
            raise ValueError(f"two values for {key[:40]!r}")
        found[key] = value
    return found
