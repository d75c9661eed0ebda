"""Input items as messages of a chat."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from fingerpost.records import Json, JsonObject, Message
from fingerpost.surfaces.completions.bodies import get_fields
from fingerpost.surfaces.completions.faults import CompletionError
from fingerpost.surfaces.completions.messages import (
    MAX_MESSAGES,
    MAX_PARTS,
    ChatConversation,
    check_order,
    split_conversation,
)

_ITEM_ROLES: Final = ("system", "developer", "user", "assistant")
_TEXT_PART_TYPES: Final = ("input_text", "output_text", "text")


def parse_input(value: object, instructions: object) -> ChatConversation:
    """The conversation in `instructions` and `input`. Raises `CompletionError`."""
    first = _parse_instructions(instructions)
    if isinstance(value, str):
        return split_conversation((*first, Message(role="user", text=value)))
    if not isinstance(value, list) or not value:
        raise CompletionError(400, "`input` is a text, or a list of items.", "input")
    items = cast("list[object]", value)
    if len(items) > MAX_MESSAGES:
        raise CompletionError(400, f"A request has at most {MAX_MESSAGES} items.", "input")
    messages = list(first)
    for at, item in enumerate(items):
        _add_item(messages, item, f"input[{at}]")
    check_order(messages)
    return split_conversation(messages)


def _parse_instructions(value: object) -> tuple[Message, ...]:
    if value is None:
        return ()
    if not isinstance(value, str):
        raise CompletionError(400, "`instructions` is a text.", "instructions")
    return (Message(role="system", text=value),)


def _add_item(messages: list[Message], item: object, where: str) -> None:
    """Calls of one turn stand in one message, together with the text before them."""
    fields = get_fields(item)
    kind = fields.get("type", "message" if "role" in fields else None)
    if kind == "message":
        messages.append(_parse_item_message(fields, where))
    elif kind == "function_call":
        call = _parse_function_call(fields, where)
        last = messages[-1] if messages else None
        if last is not None and last.role == "assistant":
            messages[-1] = replace(last, tool_calls=(*last.tool_calls, call))
        else:
            messages.append(Message(role="assistant", text="", tool_calls=(call,)))
    elif kind == "function_call_output":
        messages.append(_parse_function_result(fields, where))
    elif kind != "reasoning":  # of another model, for its own eyes: nothing can be done with it here
        known = "message, function_call and function_call_output"
        raise CompletionError(400, f"Items of type {kind!r:.60} are not taken; {known} are.", f"{where}.type")


def _parse_item_message(fields: object, where: str) -> Message:
    item = get_fields(fields)
    role = item.get("role")
    if role not in _ITEM_ROLES:
        raise CompletionError(
            400, f"The role of a message is one of {', '.join(_ITEM_ROLES)}.", f"{where}.role"
        )
    text, parts = _parse_item_content(item.get("content"), f"{where}.content")
    return Message(role=str(role), text=text, parts=parts)


def _parse_item_content(value: object, where: str) -> tuple[str, tuple[JsonObject, ...]]:
    if isinstance(value, str):
        return value, ()
    if not isinstance(value, list):
        raise CompletionError(400, "Content is a text or a list of parts.", where)
    given = cast("list[object]", value)
    if len(given) > MAX_PARTS:
        raise CompletionError(400, f"A message has at most {MAX_PARTS} parts.", where)
    parts = [_parse_item_part(part, f"{where}[{at}]") for at, part in enumerate(given)]
    words = [str(part["text"]) for part in parts if part["type"] == "text"]
    plain = len(words) == len(parts)
    return "\n".join(words), () if plain else tuple(parts)


def _parse_item_part(part: object, where: str) -> JsonObject:
    """A part as the chat API has it: that is what the model behind us is told."""
    fields = get_fields(part)
    kind = fields.get("type")
    if kind in _TEXT_PART_TYPES or kind == "refusal":
        text = fields.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise CompletionError(400, "This part holds no text.", where)
        return {"type": "text", "text": text}
    if kind == "input_image" and isinstance(fields.get("image_url"), str):
        image: dict[str, Json] = {"url": str(fields["image_url"])}
        if isinstance(fields.get("detail"), str):
            image["detail"] = str(fields["detail"])
        return {"type": "image_url", "image_url": image}
    if kind == "input_file" and isinstance(fields.get("file_data"), str):
        named = {name: str(fields[name]) for name in ("file_data", "filename") if name in fields}
        return {"type": "file", "file": named}
    raise CompletionError(400, "A part is a text, a picture by its URL, or a file with its data.", where)


def _parse_function_call(fields: object, where: str) -> JsonObject:
    item = get_fields(fields)
    call_id, name, arguments = item.get("call_id"), item.get("name"), item.get("arguments")
    if not isinstance(call_id, str) or not isinstance(name, str) or not isinstance(arguments, str):
        raise CompletionError(400, "A call has a call_id, a name, and arguments as a text of JSON.", where)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _parse_function_result(fields: object, where: str) -> Message:
    item = get_fields(fields)
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        raise CompletionError(400, "A result names the call it answers.", f"{where}.call_id")
    text, parts = _parse_item_content(item.get("output"), f"{where}.output")
    return Message(role="tool", text=text, tool_call_id=call_id, parts=parts)
