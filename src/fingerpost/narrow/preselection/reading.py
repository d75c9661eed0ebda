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
from fingerpost.llm.structured import strip_reasoning
from fingerpost.narrow.preselection.names import ServerNames
from fingerpost.records import Json
from fingerpost.redaction import scrub

REPLY_SCHEMA: Final = ResponseSchema(
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
_ACCEPTED_SCHEMA: Final = {
    "type": "object",
    "properties": {"relevant_servers": {"type": "array"}},
    "required": ["relevant_servers"],
}
_BARE_LIST_SCHEMA: Final = {"type": "array", "items": {"type": "string"}, "minItems": 1}

_TRUNCATED_LIST: Final = re.compile(r'"relevant_servers"\s*:\s*\[([^\[\]]*)')
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_BULLET: Final = re.compile(r"^\s*(?:[-*•–+]|\(?\d{1,3}[.):])\s+")
_LIST_BREAK: Final = re.compile(r"[\n,;|]+|\s+(?:and|und|et|y|e|וגם)\s+")

MAX_NAMES: Final = 500
MAX_REPLY_LENGTH: Final = 20_000
MAX_TRUNCATED_LENGTH: Final = 4000
MAX_REASONING_LENGTH: Final = 500
_MAX_NAME_WORDS: Final = 6  # longer than this, a line is a sentence and not a name


@frozen
class PickedServers:
    """The servers a reply names, those it names that do not exist, and its reasons."""

    servers: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    reasoning: str = ""


def parse_server_choice(reply: str, names: ServerNames) -> PickedServers:
    """The choice in `reply`. Never raises; a reply that says nothing gives no servers."""
    found = structured(reply, _ACCEPTED_SCHEMA)
    if isinstance(found, Mapping):
        return _match_names(
            _get_listed_names(found["relevant_servers"]), names, _get_reasoning(found.get("reasoning"))
        )
    said = strip_reasoning(reply[:MAX_REPLY_LENGTH])
    if cut := _TRUNCATED_LIST.findall(said):
        return _match_names(_STRING.findall(cut[-1][:MAX_TRUNCATED_LENGTH]), names, "the reply was cut short")
    bare = structured(said, _BARE_LIST_SCHEMA)
    if isinstance(bare, Sequence) and not isinstance(bare, str):
        return _match_names(_get_listed_names(bare), names, "")
    return _find_names_in_text(said, names)


def _get_listed_names(value: Json) -> list[str]:
    """Names as texts, or as objects that have one."""
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    found = (item.get("name") or item.get("server") if isinstance(item, Mapping) else item for item in items)
    return [item for item in found if isinstance(item, str)]


def _match_names(written: Iterable[str], names: ServerNames, reasoning: str) -> PickedServers:
    servers: dict[str, None] = {}
    unknown: dict[str, None] = {}
    for name in list(written)[:MAX_NAMES]:
        server = names.resolve(name)
        if server is not None:
            servers.setdefault(server)
        elif name.strip():
            unknown.setdefault(scrub(" ".join(name[:80].split())))
    return PickedServers(servers=tuple(servers), unknown=tuple(unknown), reasoning=reasoning)


def _find_names_in_text(said: str, names: ServerNames) -> PickedServers:
    """Names as items of a list, and names anywhere in the text: in doubt, all of them."""
    items = (_BULLET.sub("", item).strip() for item in _LIST_BREAK.split(said))
    listed = [item for item in items if item and len(item.split()) <= _MAX_NAME_WORDS]
    found = [server for item in listed[:MAX_NAMES] if (server := names.resolve(item)) is not None]
    servers = tuple(dict.fromkeys((*found, *names.find_in_text(said))))
    return PickedServers(servers=servers, reasoning=_get_reasoning(said) if servers else "")


def _get_reasoning(value: object) -> str:
    if not isinstance(value, str):
        return ""
    line = " ".join(value[: 4 * MAX_REASONING_LENGTH].split())
    return line if len(line) <= MAX_REASONING_LENGTH else line[: MAX_REASONING_LENGTH - 1] + "…"
