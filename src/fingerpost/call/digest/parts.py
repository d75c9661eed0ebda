"""A raw MCP result as parts: texts to read, and things to refer to.

Servers are told to send structured content twice, as data and as text; when both
say the same, it is read once. Pictures, sound and other bytes never become text:
they are named by kind, size and number, and can be fetched by that number.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.call.digest.shapes import LEAST_ROWS, PARSED_UP_TO, parse
from fingerpost.call.digest.tree import write
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject
from fingerpost.records.json import LARGE, parse_in_steps

MOST_REFERENCES: Final = 20
LONGEST_SENTENCE: Final = 2_000
_SHAPED: Final = frozenset("{[<")  # how data and pages begin
_MOST_TEXTS: Final = 20
_LONGEST_LABEL: Final = 300
_NOTHING: Final[JsonObject] = {}
_EMPTY: Final[tuple[Json, ...]] = ({}, [], "")


@frozen
class Part:
    """One block of a result, as text."""

    number: int  # its place in the result, from 1
    text: str
    value: Json = None  # what the text says, when it is an object or a list
    reference: str | None = None  # what stands in the text for bytes kept aside


def read_parts(result: JsonObject) -> tuple[Part, ...]:
    """Everything the result holds, in order; neighbouring texts joined when there are very many."""
    parts = [_part(number, block) for number, block in enumerate(blocks(result), 1)]
    return tuple(_fewer(_with_structured(result, parts)))


def sentence_of(result: JsonObject) -> str | None:
    """The text of a result that is nothing but a line or two, of no particular shape."""
    content = result.get("content")
    if not isinstance(content, list) or len(content) != 1 or result.get("structuredContent") is not None:
        return None
    block = content[0]
    if not isinstance(block, dict) or block.get("type") != "text":
        return None
    text = block.get("text")
    if not isinstance(text, str) or len(text) > LONGEST_SENTENCE or text.lstrip()[:1] in _SHAPED:
        return None
    return text if len(text.splitlines()) < LEAST_ROWS else None


def blocks(result: JsonObject) -> list[JsonObject]:
    """The content blocks, whatever a careless server may have put beside them."""
    content = result.get("content")
    if not isinstance(content, list | tuple):
        return []
    return [
        item if isinstance(item, Mapping) else _text_block(item) for item in cast("Sequence[Json]", content)
    ]


def block_bytes(block: JsonObject) -> tuple[str, bytes]:
    """The kind and the bytes of one block: decoded, or its text."""
    resource = _object(block.get("resource"))
    mime = _label(block.get("mimeType") or resource.get("mimeType"))
    encoded = block.get("data") if isinstance(block.get("data"), str) else resource.get("blob")
    if isinstance(encoded, str):
        try:
            return mime or "application/octet-stream", base64.b64decode(encoded)
        except (binascii.Error, ValueError):
            return "text/plain", encoded.encode("utf-8", "replace")
    return mime or "text/plain", _part(0, block).text.encode("utf-8", "replace")


def _part(number: int, block: JsonObject) -> Part:
    kind = block.get("type")
    if kind == "text" and isinstance(text := block.get("text"), str):
        return _text_part(number, text)
    if kind == "resource_link":
        return Part(number=number, text=_link(block))
    if kind in ("image", "audio") and isinstance(data := block.get("data"), str):
        return _reference(number, _label(block.get("mimeType")) or str(kind), data)
    resource = _object(block.get("resource"))
    if kind == "resource" and isinstance(text := resource.get("text"), str):
        return _text_part(number, text)
    if kind == "resource" and isinstance(blob := resource.get("blob"), str):
        name = _label(resource.get("mimeType")) or "binary"
        return _reference(number, name, blob, at=_label(resource.get("uri")))
    return Part(number=number, text=written(block))


def _text_part(number: int, text: str) -> Part:
    return Part(number=number, text=text, value=parse(text))


def _reference(number: int, kind: str, encoded: str, at: str = "") -> Part:
    size = len(encoded) * 3 // 4
    said = f"{kind}, {_size(size)}, part {number}" + (f", {at}" if at else "")
    return Part(number=number, text=f"[{said}]", reference=said)


def _size(count: int) -> str:
    if count < 1_000:
        return f"{count} bytes"
    return f"{count / 1_000:.0f} KB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _link(block: JsonObject) -> str:
    name = _label(block.get("title")) or _label(block.get("name")) or "link"
    about = _label(block.get("description"))
    return f"{name} <{_label(block.get('uri'))}>" + (f": {about}" if about else "")


def texts_beside(result: JsonObject) -> tuple[str, ...]:
    """The texts of a result that say something its structured content does not."""
    parts = [_part(number, block) for number, block in enumerate(blocks(result), 1)]
    value = result.get("structuredContent")
    if _is_list_of(value, parts):
        return ()
    rest = [part for part in parts if part.reference is None and not _repeats(value, part)]
    return tuple(part.text for part in rest if part.text.strip())


def _with_structured(result: JsonObject, parts: list[Part]) -> list[Part]:
    """With the structured content, where it says more than the texts, and without texts it holds."""
    value = result.get("structuredContent")
    if value is None or value in _EMPTY or _said_already(value, parts):
        return parts
    rest = [part for part in parts if part.reference is not None or not _repeats(value, part)]
    text = value if isinstance(value, str) else written(value)
    return [*rest, Part(number=len(parts) + 1, text=text, value=value if _holds_values(value) else None)]


def _said_already(value: Json, parts: Sequence[Part]) -> bool:
    """Whether the texts hold the same: as one JSON text, bare, or item by item under one key."""
    return any(_is_same(value, part) for part in parts) or _is_list_of(value, parts)


def _is_same(value: Json, part: Part) -> bool:
    if part.value is None:
        return not _holds_values(value) and part.text.strip() == (
            value if isinstance(value, str) else written(value)
        )
    try:
        return part.value == value or (_only(value) is not None and part.value == _only(value))
    except RecursionError:  # compared too deeply: say it twice rather than lose it
        return False


def _is_list_of(value: Json, parts: Sequence[Part]) -> bool:
    """Whether the texts are its items, or those of its only member, one by one."""
    only = value if isinstance(value, list) else _only(value)
    if only is None:
        return False
    texts: list[Json] = [part.text if part.value is None else part.value for part in parts]
    try:
        return texts in ([only], only) or texts == [written(only)]
    except RecursionError:
        return False


def _only(value: Json) -> Json:
    """The only member of an object."""
    return next(iter(value.values())) if isinstance(value, Mapping) and len(value) == 1 else None


def _repeats(value: Json, part: Part) -> bool:
    """Whether the structured content says all of this text: as a member, without empty members, as lines."""
    if _is_same(value, part):
        return True
    said = part.text.strip() if part.value is None else part.value
    try:
        if not isinstance(value, Mapping):
            return said == _lines(value)
        if said == {name: member for name, member in value.items() if member is not None}:
            return True
        return any(said in (member, _lines(member)) for member in value.values())
    except RecursionError:
        return False


def _holds_values(value: Json) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _lines(member: Json) -> str | None:
    """A list of texts as one text, a text without the space around it."""
    if isinstance(member, str):
        return member.strip()
    if not isinstance(member, list | tuple):
        return None
    lines = [line for line in cast("Sequence[Json]", member) if isinstance(line, str)]
    return "\n".join(lines).strip() if lines and len(lines) == len(member) else None


def written(value: Json) -> str:
    """JSON text; for what is nested beyond writing, a word that it is."""
    try:
        return write(value)
    except (RecursionError, ValueError, TypeError):
        return "[data nested too deeply to be written]"


def _fewer(parts: list[Part]) -> list[Part]:
    """Ten thousand blocks of one line each are one text."""
    if len(parts) <= _MOST_TEXTS:
        return parts
    texts = [part for part in parts if part.reference is None]
    joined = Part(number=1, text="\n".join(part.text for part in texts))
    return [*([joined] if texts else []), *(part for part in parts if part.reference is not None)]


def _text_block(item: Json) -> JsonObject:
    return {"type": "text", "text": item if isinstance(item, str) else written(item)}


def _object(value: Json) -> JsonObject:
    return value if isinstance(value, Mapping) else _NOTHING


def _label(value: Json) -> str:
    """A short text in one line, or nothing."""
    return " ".join(value[:_LONGEST_LABEL].split()) if isinstance(value, str) else ""


def load(data: bytes) -> JsonObject:
    """A result as it was kept."""
    value = cast("Json", parse_in_steps(data.decode()) if len(data) > LARGE else json.loads(data))
    return value if isinstance(value, Mapping) else _NOTHING


__all__ = [
    "MOST_REFERENCES",
    "PARSED_UP_TO",
    "Part",
    "block_bytes",
    "blocks",
    "load",
    "read_parts",
    "texts_beside",
    "written",
]
