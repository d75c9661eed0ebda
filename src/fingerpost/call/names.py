"""From the name a model wrote to the one tool it means.

Models write `server/tool`, `server__tool`, `server.tool`, `tool`, and for
consolidated tools `tool.operation`. A name that fits nothing is answered with
the nearest real ones; a name that fits two tools is answered with both. Of a tool
that is known and not to be had now, `absent` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from unicodedata import category, normalize

from fingerpost.catalog import Absence, Catalog, Snapshot, tool_key
from fingerpost.catalog.absence import refused, server_away
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ServerStatus, ToolCall, ToolCard

LONGEST_NAME = 512
MOST_NAMED = 12  # parameters
SEPARATORS = ("/", "__", ".", ":")
# Some models put the name space of their own prompt before the name.
_PREFIX = re.compile(r"^(?:functions|tools|mcp)(?:\.|__|/)", re.IGNORECASE)
# Of ASCII, the same that `_plain` leaves out of every script, and quicker.
_SEPARATING = re.compile(r"""[\s!"#%&'()*,\-./:;?@\[\\\]_{}]""")


@frozen
class Resolved:
    """The tool that is meant, and the arguments with the operation the name may have carried."""

    card: ToolCard
    arguments: JsonObject


@frozen
class NotFound:
    """No tool is meant for certain; these are near."""

    name: str
    near: tuple[str, ...]
    ambiguous: bool = False


def resolve(call: ToolCall, snapshot: Snapshot) -> Resolved | NotFound:
    """The tool this call means."""
    if (card := snapshot.find(call.name)) is not None:
        return Resolved(card=card, arguments=call.arguments)  # nearly always
    name = call.name[:LONGEST_NAME]
    for written in dict.fromkeys((name, _PREFIX.sub("", name))):
        card = snapshot.find(written) or _by_server(written, snapshot)
        if card is not None:
            return Resolved(card=card, arguments=call.arguments)
        if (found := _with_operation(written, call, snapshot)) is not None:
            return found
    namesakes = snapshot.named(name)
    if namesakes:
        return NotFound(name=name, near=tuple(card.key for card in namesakes), ambiguous=True)
    alike = _alike(name, snapshot)
    if len(alike) == 1:
        return Resolved(card=alike[0], arguments=call.arguments)
    return NotFound(name=name, near=snapshot.near(name))


def absent(call: ToolCall, catalog: Catalog, statuses: Iterable[ServerStatus]) -> Absence | None:
    """Why what this call means is not in the snapshot, where the tool or its server is known."""
    found = resolve(call, catalog.away)
    if isinstance(found, Resolved):
        return catalog.why_away(found.card)
    names = {call.name, *(tool_key(server, tool) for server, tool in _splits(call.name[:LONGEST_NAME]))}
    for drop in catalog.dropped:
        if not drop.switched_off and names & {drop.name, tool_key(drop.server, drop.name)}:
            return refused(drop)
    away = {status.name: status for status in statuses if not catalog.snapshot.by_server(status.name)}
    for server, tool in _splits(call.name[:LONGEST_NAME]):
        if server in away:
            return server_away(tool_key(server, tool), away[server])
    return None


def operation_of(card: ToolCard, arguments: JsonObject) -> str:
    """The operation key: what a grant for a conversation is bound to."""
    operation = arguments.get("operation")
    named = isinstance(operation, str) and "operation" in _properties(card)
    return f"{card.key}.{operation}" if named else card.key


def unknown_argument(card: ToolCard, names: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The first of these that the tool has no parameter for, and the parameters nearest to it.

    None where there is no such name, or where the tool says that it takes others than it lists.
    """
    properties = _properties(card)
    match card.definition.get("inputSchema"):
        case {"additionalProperties": True | {}} | {"patternProperties": _}:
            return None
        case _ if not properties:
            return None
        case _:
            pass
    for name in names:
        if name not in properties:
            near = get_close_matches(name[:LONGEST_NAME], properties, n=3, cutoff=0.5)
            return name, tuple(near) or tuple(properties)[:MOST_NAMED]
    return None


def _splits(name: str) -> Iterator[tuple[str, str]]:
    for separator in SEPARATORS:
        start = name.find(separator)
        while start > 0:
            yield name[:start], name[start + len(separator) :]
            start = name.find(separator, start + 1)


def _by_server(name: str, snapshot: Snapshot) -> ToolCard | None:
    for server, tool in _splits(name):
        if (card := snapshot.get(tool_key(server, tool))) is not None:
            return card
    return None


def _with_operation(name: str, call: ToolCall, snapshot: Snapshot) -> Resolved | None:
    """`file_operations.read_file` is the tool `file_operations` with an operation, if it takes one."""
    for base, operation in _splits(name):
        card = snapshot.find(base) or _by_server(base, snapshot)
        if card is not None and operation and "operation" in _properties(card):
            explicit = call.arguments.get("operation")
            chosen = explicit if explicit is not None else operation
            return Resolved(card=card, arguments={**call.arguments, "operation": chosen})
    return None


def _alike(name: str, snapshot: Snapshot) -> list[ToolCard]:
    """Tools whose name differs only in case and separators: `ReadFile` for `read_file`."""
    wanted = _plain(name)
    if not wanted:
        return []
    return [card for card in snapshot.cards if wanted in (_plain(card.name), _plain(card.key))]


def _plain(name: str) -> str:
    """Its letters, vowel signs, digits and symbols, of whatever script, without capitals and separators."""
    if name.isascii():
        return _SEPARATING.sub("", name.lower())
    folded = normalize("NFC", name.casefold())
    return "".join(
        character for character in folded if not character.isspace() and category(character)[0] not in "PZ"
    )


def _properties(card: ToolCard) -> JsonObject:
    match card.definition.get("inputSchema"):
        case {"properties": {**properties}}:
            return properties
        case _:
            return {}
