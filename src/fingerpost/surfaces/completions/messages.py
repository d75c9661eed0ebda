"""The messages of a caller as ours, and which of them is the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, Message
from fingerpost.surfaces.completions.bodies import get_fields
from fingerpost.surfaces.completions.faults import CompletionError

MAX_MESSAGES: Final = 5000
MAX_PARTS: Final = 1000
_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_PART_KINDS: Final = ("text", "image_url", "input_audio", "file", "refusal")


@frozen
class ChatConversation:
    """A conversation split at the request: what came before it, and what came of it so far."""

    request: Message
    history: tuple[Message, ...] = ()
    since: tuple[Message, ...] = ()

    @property
    def messages(self) -> tuple[Message, ...]:
        return (*self.history, self.request, *self.since)

    @property
    def is_bare(self) -> bool:
        """Nothing was said before, as far as is told."""
        return not self.since and all(message.role in ("system", "developer") for message in self.history)


def parse_messages(value: object) -> tuple[Message, ...]:
    """Messages as the chat API has them. Raises `CompletionError` that names the one that is wrong."""
    if not isinstance(value, list) or not value:
        raise CompletionError(400, "`messages` has to be a list with at least one message.", "messages")
    entries = cast("list[object]", value)
    if len(entries) > MAX_MESSAGES:
        raise CompletionError(400, f"A request has at most {MAX_MESSAGES} messages.", "messages")
    read = tuple(_parse_message(entry, f"messages[{at}]") for at, entry in enumerate(entries))
    check_order(read)
    return read


def split_conversation(messages: Sequence[Message]) -> ChatConversation:
    """The last thing a person said is the request. Raises `CompletionError` where nobody said anything."""
    at = _find_last(messages, lambda message: message.role == "user" and bool(message.text or message.parts))
    if at is None:
        at = _find_last(messages, lambda message: message.role != "tool" and bool(message.text))
    if at is None:
        raise CompletionError(400, "No message holds any text: there is nothing to answer.", "messages")
    return ChatConversation(
        request=messages[at], history=tuple(messages[:at]), since=tuple(messages[at + 1 :])
    )


def _find_last(messages: Sequence[Message], predicate: Callable[[Message], bool]) -> int | None:
    return next((at for at in range(len(messages) - 1, -1, -1) if predicate(messages[at])), None)


def _parse_message(entry: object, where: str) -> Message:
    if not isinstance(entry, Mapping):
        raise CompletionError(400, "A message is an object with a role and content.", where)
    fields = cast("Mapping[str, object]", entry)
    role = fields.get("role")
    if role == "function" or fields.get("function_call"):
        raise CompletionError(
            400, "Functions are the old form of tools: send `tools`, and results with the role `tool`.", where
        )
    if role not in _ROLES:
        raise CompletionError(400, f"The role of a message is one of {', '.join(_ROLES)}.", f"{where}.role")
    if fields.get("audio") is not None:
        raise CompletionError(400, "Answers in sound cannot be continued here.", f"{where}.audio")
    text, parts = _parse_content(fields, where, required=role not in ("assistant",))
    if role == "tool":
        call = fields.get("tool_call_id")
        if not isinstance(call, str) or not call:
            raise CompletionError(400, "A tool's message names the call it answers.", f"{where}.tool_call_id")
        return Message(role=role, text=text, tool_call_id=call, parts=parts)
    calls = parse_tool_calls(fields.get("tool_calls"), f"{where}.tool_calls") if role == "assistant" else ()
    return Message(role=role, text=text, tool_calls=calls, parts=parts)


def _parse_content(
    fields: Mapping[str, object], where: str, *, required: bool
) -> tuple[str, tuple[JsonObject, ...]]:
    """The text, and the parts where there is more than text."""
    content = fields.get("content")
    if content is None:
        refusal = fields.get("refusal")
        if required:
            raise CompletionError(400, "This message has no content.", f"{where}.content")
        return (refusal if isinstance(refusal, str) else ""), ()
    if isinstance(content, str):
        return content, ()
    if not isinstance(content, list):
        raise CompletionError(400, "Content is a text or a list of parts.", f"{where}.content")
    parts = cast("list[object]", content)
    if len(parts) > MAX_PARTS:
        raise CompletionError(400, f"A message has at most {MAX_PARTS} parts.", f"{where}.content")
    read = [_parse_part(part, f"{where}.content[{at}]") for at, part in enumerate(parts)]
    words = [str(part[str(part["type"])]) for part in read if part["type"] in ("text", "refusal")]
    plain = all(part["type"] == "text" for part in read)
    return "\n".join(words), () if plain else tuple(read)


def _parse_part(part: object, where: str) -> JsonObject:
    if not isinstance(part, Mapping):
        raise CompletionError(400, "A part of a message is an object with a type.", where)
    fields = cast("JsonObject", part)
    kind = fields.get("type")
    if kind not in _PART_KINDS:
        raise CompletionError(400, f"A part is one of {', '.join(_PART_KINDS)}.", f"{where}.type")
    held = fields.get(str(kind))
    if kind in ("text", "refusal"):
        if not isinstance(held, str):
            raise CompletionError(400, "This part holds no text.", f"{where}.{kind}")
    elif not isinstance(held, Mapping):
        raise CompletionError(400, f"This part holds no object {kind!r}.", f"{where}.{kind}")
    return fields


def parse_tool_calls(value: object, where: str) -> tuple[JsonObject, ...]:
    """Calls an assistant made, each with an id, a name and arguments as text."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise CompletionError(400, "`tool_calls` is a list.", where)
    return tuple(
        _parse_tool_call(call, f"{where}[{at}]") for at, call in enumerate(cast("list[object]", value))
    )


def _parse_tool_call(call: object, where: str) -> JsonObject:
    fields = get_fields(call)
    function = fields.get("function")
    named = get_fields(function)
    if fields.get("type", "function") != "function" or not named:
        raise CompletionError(400, "A call is an object of type `function`.", where)
    call_id, name, arguments = fields.get("id"), named.get("name"), named.get("arguments", "{}")
    if not isinstance(call_id, str) or not call_id:
        raise CompletionError(400, "A call has an id, by which its result names it.", f"{where}.id")
    if not isinstance(name, str) or not name or not isinstance(arguments, str):
        raise CompletionError(400, "A call has a name, and arguments as a text of JSON.", f"{where}.function")
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def check_order(messages: Sequence[Message]) -> None:
    """Every result answers a call that stands before it: no model takes it otherwise."""
    made: set[str] = set()
    for at, message in enumerate(messages):
        made.update(str(call["id"]) for call in message.tool_calls)
        if message.tool_call_id is not None and message.tool_call_id not in made:
            raise CompletionError(
                400,
                "This result answers no call of an assistant's message before it.",
                f"messages[{at}].tool_call_id",
            )
