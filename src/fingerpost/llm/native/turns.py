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
from fingerpost.llm.content import SYSTEM_ROLES, things_in
from fingerpost.llm.fields import mapping, parsed
from fingerpost.records import Json, JsonObject, Message, as_valid_text

Role: TypeAlias = Literal["user", "assistant"]

EARLIER: Final = "(The conversation began before this.)"
GO_ON: Final = "(Go on.)"
_DATA: Final = re.compile(r"data:(?P<kind>[\w.+-]{1,60}/[\w.+-]{1,80});base64,")
_UNREADABLE: Final = 2000  # characters kept of arguments that are no JSON object


@frozen
class Call:
    """A tool the assistant asked for."""

    id: str
    name: str
    arguments: JsonObject
    signature: str | None = None  # Google's mark of the thought behind it


@frozen
class Result:
    """What came back for a call."""

    id: str
    name: str
    text: str


@frozen
class Media:
    """An image, a sound or a file: its bytes in base64, or where they are."""

    kind: str  # its media type, such as "image/png"; "" where only the address is known
    data: str = ""
    url: str = ""


Part: TypeAlias = str | Call | Result | Media


@frozen(kw_only=False)
class Turn:
    """Everything one side said before the other spoke again."""

    role: Role
    parts: tuple[Part, ...]


@frozen
class Talk:
    """A request's messages, put in order."""

    system: str
    turns: tuple[Turn, ...]


def talk_of(request: ModelRequest, *, instructions: str = "") -> Talk:
    """The messages as alternating turns; `instructions` join what the system says."""
    said = [message.text for message in request.messages if message.role in SYSTEM_ROLES]
    system = "\n\n".join(text for text in (*said, instructions) if text.strip())
    spoken = [message for message in request.messages if message.role not in SYSTEM_ROLES]
    turns = _merged(_parts(spoken, with_calls=bool(request.tools)))
    if not turns or turns[0].role == "assistant":
        turns.insert(0, Turn("user", (EARLIER,)))
    if turns[-1].role == "assistant":
        turns.append(Turn("user", (GO_ON,)))
    return Talk(system=as_valid_text(system), turns=tuple(turns))


def _parts(messages: Sequence[Message], *, with_calls: bool) -> Iterator[tuple[Role, Part]]:
    """Every part with its speaker. A call stays a call only where its result follows it."""
    open_calls: dict[str, str] = {}
    for at, message in enumerate(messages):
        if message.role == "tool":
            yield "user", _result(message, open_calls)
            continue
        open_calls = {}
        role: Role = "assistant" if message.role == "assistant" else "user"
        if message.text.strip():
            yield role, as_valid_text(message.text)
        for thing in things_in(message) if role == "user" else ():
            yield role, _media(thing)
        if role == "assistant" and with_calls:
            answered = _answered(messages[at + 1 :])
            for call in _calls(message.tool_calls, answered):
                open_calls[call.id] = call.name
                yield role, call


def _media(part: JsonObject) -> Part:
    """What a caller put beside their words, in the OpenAI format; what it is where it cannot be passed on."""
    image, sound, file = (mapping(part.get(name)) for name in ("image_url", "input_audio", "file"))
    address = image.get("url") or file.get("file_data")
    if isinstance(address, str) and (found := _DATA.match(address)):
        return Media(kind=found["kind"], data=address[found.end() :])
    if isinstance(address, str) and image:
        return Media(kind="", url=address)
    if isinstance(sound.get("data"), str):
        return Media(kind=f"audio/{sound.get('format', 'wav')}", data=str(sound["data"]))
    return f"({str(part.get('type'))[:40]}: this cannot be shown to this model)"


def _result(message: Message, open_calls: dict[str, str]) -> Part:
    """A result, or its text where it belongs to no call that can be sent."""
    text = as_valid_text(message.text)
    identifier = message.tool_call_id or ""
    if identifier not in open_calls:
        return f"A tool answered:\n{text or '(nothing)'}"
    return Result(id=identifier, name=open_calls.pop(identifier), text=text or "(nothing)")


def _answered(following: Iterable[Message]) -> set[str]:
    """Ids of the results that come before anybody else speaks."""
    found: set[str] = set()
    for message in following:
        if message.role != "tool":
            break
        found.add(message.tool_call_id or "")
    return found


def _calls(written: Sequence[JsonObject], answered: Collection[str]) -> Iterator[Call]:
    seen: set[str] = set()
    for entry in written:
        identifier, function = entry.get("id"), mapping(entry.get("function"))
        name = function.get("name")
        if not isinstance(identifier, str) or not isinstance(name, str):
            continue
        if identifier in answered and identifier not in seen:
            seen.add(identifier)
            arguments = _arguments(function.get("arguments"))
            yield Call(id=identifier, name=name, arguments=arguments, signature=_signature(entry))


def _arguments(written: object) -> JsonObject:
    """OpenAI's format carries them as text; models do not always write JSON."""
    value = written
    if isinstance(written, str):
        try:
            value = parsed(written or "{}")
        except ValueError:
            value = None
    if isinstance(value, dict):
        return cast("dict[str, Json]", value)
    return {"unreadable": as_valid_text(str(written)[:_UNREADABLE])}


def _signature(entry: JsonObject) -> str | None:
    """Where Google's OpenAI-compatible address puts it, and where our reader does."""
    found = mapping(mapping(entry.get("extra_content")).get("google")).get("thought_signature")
    return found if isinstance(found, str) and found else None


def _merged(parts: Iterable[tuple[Role, Part]]) -> list[Turn]:
    turns: list[tuple[Role, list[Part]]] = []
    for role, part in parts:
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].append(part)
    # Both want the results of a turn before anything else in it.
    return [Turn(role, tuple(sorted(found, key=_is_no_result))) for role, found in turns]


def _is_no_result(part: Part) -> bool:
    return not isinstance(part, Result)
