"""A conversation as both APIs want it: whose turn it is strictly alternates, and calls stand beside results.

Our messages come from anywhere (a client's history, a packet rebuilt after a restart), so
they may hold what these APIs refuse: a call nobody answered, an answer to no call, an
empty text, two messages of the same person in a row, an assistant who speaks first.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Literal, TypeAlias, cast

from fingerpost.frozen import frozen
from fingerpost.llm.base import ModelRequest
from fingerpost.llm.content import SYSTEM_ROLES, get_media_parts
from fingerpost.llm.fields import as_mapping, parse_json
from fingerpost.records import Json, JsonObject, Message, to_valid_text

NativeRole: TypeAlias = Literal["user", "assistant"]

EARLIER_TEXT: Final = "(The conversation began before this.)"
CONTINUE_TEXT: Final = "(Go on.)"
_DATA_URL: Final = re.compile(r"data:(?P<kind>[\w.+-]{1,60}/[\w.+-]{1,80});base64,")
_UNREADABLE: Final = 2000  # characters kept of arguments that are no JSON object


@frozen
class NativeCall:
    """A tool the assistant asked for."""

    id: str
    name: str
    arguments: JsonObject
    signature: str | None = None  # Google's mark of the thought behind it


@frozen
class NativeResult:
    """What came back for a call."""

    id: str
    name: str
    text: str


@frozen
class NativeMedia:
    """An image, a sound or a file: its bytes in base64, or where they are."""

    kind: str  # its media type, such as "image/png"; "" where only the address is known
    data: str = ""
    url: str = ""


NativePart: TypeAlias = str | NativeCall | NativeResult | NativeMedia


@frozen(kw_only=False)
class NativeTurn:
    """Everything one side said before the other spoke again."""

    role: NativeRole
    parts: tuple[NativePart, ...]


@frozen
class NativeConversation:
    """A request's messages, put in order."""

    system: str
    turns: tuple[NativeTurn, ...]


def build_conversation(request: ModelRequest, *, instructions: str = "") -> NativeConversation:
    """The messages as alternating turns; `instructions` join what the system says."""
    said = [message.text for message in request.messages if message.role in SYSTEM_ROLES]
    system = "\n\n".join(text for text in (*said, instructions) if text.strip())
    spoken = [message for message in request.messages if message.role not in SYSTEM_ROLES]
    turns = _merge_turns(_iterate_parts(spoken, with_calls=bool(request.tools)))
    if not turns or turns[0].role == "assistant":
        turns.insert(0, NativeTurn("user", (EARLIER_TEXT,)))
    if turns[-1].role == "assistant":
        turns.append(NativeTurn("user", (CONTINUE_TEXT,)))
    return NativeConversation(system=to_valid_text(system), turns=tuple(turns))


def _iterate_parts(
    messages: Sequence[Message], *, with_calls: bool
) -> Iterator[tuple[NativeRole, NativePart]]:
    """Every part with its speaker. A call stays a call only where its result follows it."""
    open_calls: dict[str, str] = {}
    for at, message in enumerate(messages):
        if message.role == "tool":
            yield "user", _build_result(message, open_calls)
            continue
        open_calls = {}
        role: NativeRole = "assistant" if message.role == "assistant" else "user"
        if message.text.strip():
            yield role, to_valid_text(message.text)
        for thing in get_media_parts(message) if role == "user" else ():
            yield role, _parse_media(thing)
        if role == "assistant" and with_calls:
            answered = _get_answered_ids(messages[at + 1 :])
            for call in _iterate_calls(message.tool_calls, answered):
                open_calls[call.id] = call.name
                yield role, call


def _parse_media(part: JsonObject) -> NativePart:
    """What a caller put beside their words, in the OpenAI format; what it is where it cannot be passed on."""
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
    """A result, or its text where it belongs to no call that can be sent."""
    text = to_valid_text(message.text)
    identifier = message.tool_call_id or ""
    if identifier not in open_calls:
        return f"A tool answered:\n{text or '(nothing)'}"
    return NativeResult(id=identifier, name=open_calls.pop(identifier), text=text or "(nothing)")


def _get_answered_ids(following: Iterable[Message]) -> set[str]:
    """Ids of the results that come before anybody else speaks."""
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
    """OpenAI's format carries them as text; models do not always write JSON."""
    value = written
    if isinstance(written, str):
        try:
            value = parse_json(written or "{}")
        except ValueError:
            value = None
    if isinstance(value, dict):
        return cast("dict[str, Json]", value)
    return {"unreadable": to_valid_text(str(written)[:_UNREADABLE])}


def _get_signature(entry: JsonObject) -> str | None:
    """Where Google's OpenAI-compatible address puts it, and where our reader does."""
    found = as_mapping(as_mapping(entry.get("extra_content")).get("google")).get("thought_signature")
    return found if isinstance(found, str) and found else None


def _merge_turns(parts: Iterable[tuple[NativeRole, NativePart]]) -> list[NativeTurn]:
    turns: list[tuple[NativeRole, list[NativePart]]] = []
    for role, part in parts:
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(part)
    # Both want the results of a turn before anything else in it.
    return [NativeTurn(role, tuple(sorted(found, key=_is_not_result))) for role, found in turns]


def _is_not_result(part: NativePart) -> bool:
    return not isinstance(part, NativeResult)
