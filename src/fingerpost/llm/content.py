"""The content of a message: words, or the parts a caller wrote (images, audio, files) around them."""

from __future__ import annotations

from typing import Final

from fingerpost.llm.fields import as_mapping
from fingerpost.records import Json, JsonObject, Message

SYSTEM_ROLES: Final = ("system", "developer")  # newer models know the latter
_TEXTS: Final = ("text", "input_text", "output_text")


def get_content(message: Message) -> Json:
    """What goes out: the text, or the parts as they were written.

    Words that were changed since (a history was shortened, tools are told with the request) stand
    before what is no text.
    """
    if not message.parts:
        return message.text
    if _keep_letters(
        "".join(text for part in message.parts for text in get_part_texts(part))
    ) == _keep_letters(message.text):
        return list(message.parts)
    others = get_media_parts(message)
    if not others:
        return message.text
    words: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
    return [*words, *others]


def get_media_parts(message: Message) -> tuple[JsonObject, ...]:
    """The parts that are no text."""
    return tuple(part for part in message.parts if part.get("type") not in _TEXTS)


def get_part_texts(part: JsonObject) -> tuple[str, ...]:
    text = part.get("text")
    return (text,) if part.get("type") in _TEXTS and isinstance(text, str) else ()


def to_text_only(message: Message) -> Message:
    """The message without its parts, for whoever reads words alone; what it held is named."""
    if not message.parts:
        return message
    text = message.text or " ".join(_format_part_name(part) for part in get_media_parts(message))
    return Message(
        role=message.role, text=text, tool_calls=message.tool_calls, tool_call_id=message.tool_call_id
    )


def _format_part_name(part: JsonObject) -> str:
    """`[image]` for a part of the type `image_url`."""
    kind = str(as_mapping(part).get("type") or "part")
    return f"[{kind.removeprefix('input_').removesuffix('_url')[:40]}]"


def _keep_letters(text: str) -> str:
    return "".join(text.split())
