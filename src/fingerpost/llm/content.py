"""The content of a message: words, or the parts a caller wrote (images, audio, files) around them."""

from __future__ import annotations

from typing import Final

from fingerpost.llm.fields import mapping
from fingerpost.records import Json, JsonObject, Message

SYSTEM_ROLES: Final = ("system", "developer")  # newer models know the latter
_TEXTS: Final = ("text", "input_text", "output_text")


def content_of(message: Message) -> Json:
    """What goes out: the text, or the parts as they were written.

    Words that were changed since (a history was shortened, tools are told with the request) stand
    before what is no text.
    """
    if not message.parts:
        return message.text
    if _letters("".join(text for part in message.parts for text in text_in_part(part))) == _letters(
        message.text
    ):
        return list(message.parts)
    others = things_in(message)
    if not others:
        return message.text
    words: list[Json] = [{"type": "text", "text": message.text}] if message.text else []
    return [*words, *others]


def things_in(message: Message) -> tuple[JsonObject, ...]:
    """The parts that are no text."""
    return tuple(part for part in message.parts if part.get("type") not in _TEXTS)


def text_in_part(part: JsonObject) -> tuple[str, ...]:
    text = part.get("text")
    return (text,) if part.get("type") in _TEXTS and isinstance(text, str) else ()


def worded(message: Message) -> Message:
    """The message without its parts, for whoever reads words alone; what it held is named."""
    if not message.parts:
        return message
    text = message.text or " ".join(_named(part) for part in things_in(message))
    return Message(
        role=message.role, text=text, tool_calls=message.tool_calls, tool_call_id=message.tool_call_id
    )


def _named(part: JsonObject) -> str:
    """`[image]` for a part of the type `image_url`."""
    kind = str(mapping(part).get("type") or "part")
    return f"[{kind.removeprefix('input_').removesuffix('_url')[:40]}]"


def _letters(text: str) -> str:
    return "".join(text.split())
