"""What a model answered when asked for servers: the JSON it was asked for, or anything else.

The likeliest reading comes first; each later one is for replies the earlier ones
cannot read: an object, a list that the token limit cut off, a bare list, a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fingerpost.frozen import frozen
from fingerpost.llm import ResponseSchema, structured
from fingerpost.llm.structured import without_thoughts
from fingerpost.narrow.preselection.names import ServerNames
from fingerpost.records import Json
from fingerpost.redaction import scrub

ASKED: Final = ResponseSchema(
    name="relevant_servers",
    schema={
        "type": "object",
        "properties": {
            "relevant_servers": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Names of the relevant servers, exactly as listed",
            },
            "reasoning": {"type": "string", "description": "One short sentence: why these"},
        },
        "required": ["relevant_servers", "reasoning"],
        "additionalProperties": False,
    },
)
# What we accept is wider than what we ask for: the list is what counts.
_ACCEPTED: Final = {
    "type": "object",
    "properties": {"relevant_servers": {"type": "array"}},
    "required": ["relevant_servers"],
}
_BARE: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}

_CUT_LIST: Final = re.compile(r'"relevant_servers"\s*:\s*\[([^\[\]]*)')
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_BULLET: Final = re.compile(r"^\s*(?:[-*•–+]|\(?\d{1,3}[.):])\s+")
_BREAK: Final = re.compile(r"[\n,;|]+|\s+(?:and|und|et|y|e|וגם)\s+")

MOST_NAMES: Final = 500
LONGEST_TEXT: Final = 20_000
LONGEST_CUT: Final = 4000
LONGEST_REASONING: Final = 500
_MOST_WORDS: Final = 6  # longer than this, a line is a sentence and not a name


@frozen
class Picked:
    """The servers a reply names, those it names that do not exist, and its reasons."""

    servers: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    reasoning: str = ""


def read_choice(reply: str, names: ServerNames) -> Picked:
    """The choice in `reply`. Never raises; a reply that says nothing gives no servers."""
    found = structured(reply, _ACCEPTED)
    if isinstance(found, Mapping):
        return _matched(_listed(found["relevant_servers"]), names, _reasoning(found.get("reasoning")))
    said = without_thoughts(reply[:LONGEST_TEXT])
    if cut := _CUT_LIST.findall(said):
        return _matched(_STRING.findall(cut[-1][:LONGEST_CUT]), names, "the reply was cut short")
    bare = structured(said, _BARE)
    if isinstance(bare, Sequence) and not isinstance(bare, str):
        return _matched(_listed(bare), names, "")
    return _in_words(said, names)


def _listed(value: Json) -> list[str]:
    """Names as texts, or as objects that have one."""
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    found = (item.get("name") or item.get("server") if isinstance(item, Mapping) else item for item in items)
    return [item for item in found if isinstance(item, str)]


def _matched(written: Iterable[str], names: ServerNames, reasoning: str) -> Picked:
    servers: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in list(written)[:MOST_NAMES]:
        server = names.meant(name)
        if server is not None:
            servers.setdefault(server)
        elif name.strip():
            unknown.setdefault(scrub(" ".join(name[:80].split())))
    return Picked(servers=tuple(servers), unknown=tuple(unknown), reasoning=reasoning)


def _in_words(said: str, names: ServerNames) -> Picked:
    """Names as items of a list, and names anywhere in the text: in doubt, all of them."""
    items = (_BULLET.sub("", item).strip() for item in _BREAK.split(said))
    listed = [item for item in items if item and len(item.split()) <= _MOST_WORDS]
    found = [server for item in listed[:MOST_NAMES] if (server := names.meant(item)) is not None]
    servers = tuple(dict.fromkeys((*found, *names.in_text(said))))
    return Picked(servers=servers, reasoning=_reasoning(said) if servers else "")


def _reasoning(value: object) -> str:
    if not isinstance(value, str):
        return ""
    line = " ".join(value[: 4 * LONGEST_REASONING].split())
    return line if len(line) <= LONGEST_REASONING else line[: LONGEST_REASONING - 1] + "…"
