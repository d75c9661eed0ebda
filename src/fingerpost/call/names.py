"""From the name a model wrote to the one tool it means.

Models write `server/tool`, `server__tool`, `server.tool`, `tool`, and for
consolidated tools `tool.operation`. A name that fits nothing is answered with
the nearest real ones; a name that fits two tools is answered with both. Of a tool
that is known and not to be had now, `find_absence` says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from unicodedata import category, normalize

from fingerpost.catalog import Catalog, Snapshot, UnavailableTool, build_tool_key
from fingerpost.catalog.absence import build_refused, build_server_unavailable
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ServerStatus, ToolCall, ToolCard

MAX_NAME_LENGTH = 512
MAX_NEAR_NAMES = 12  # parameters
SEPARATORS = ("/", "__", ".", ":")
# Some models put the name space of their own prompt before the name.
_PREFIX = re.compile(r"^(?:functions|tools|mcp)(?:\.|__|/)", re.IGNORECASE)
# Of ASCII, the same that `_normalize_name` leaves out of every script, and quicker.
_SEPARATING = re.compile(r"""[\s!"#%&'()*,\-./:;?@\[\\\]_{}]""")


@frozen
class ResolvedTool:
    """The tool that is meant, and the arguments with the operation the name may have carried."""

    card: ToolCard
    arguments: JsonObject


@frozen
class ToolNotFound:
    """No tool is meant for certain; these are near."""

    name: str
    near: tuple[str, ...]
    ambiguous: bool = False


def resolve_tool(call: ToolCall, snapshot: Snapshot) -> ResolvedTool | ToolNotFound:
    """The tool this call means."""
    if (card := snapshot.find(call.name)) is not None:
        return ResolvedTool(card=card, arguments=call.arguments)  # nearly always
    name = call.name[:MAX_NAME_LENGTH]
    for written in dict.fromkeys((name, _PREFIX.sub("", name))):
        card = snapshot.find(written) or _find_by_server(written, snapshot)
        if card is not None:
            return ResolvedTool(card=card, arguments=call.arguments)
        if (found := _resolve_operation(written, call, snapshot)) is not None:
            return found
    namesakes = snapshot.named(name)
    if namesakes:
        return ToolNotFound(name=name, near=tuple(card.key for card in namesakes), ambiguous=True)
    alike = _find_similar(name, snapshot)
    if len(alike) == 1:
        return ResolvedTool(card=alike[0], arguments=call.arguments)
    return ToolNotFound(name=name, near=snapshot.near(name))


def find_absence(
    call: ToolCall, catalog: Catalog, statuses: Iterable[ServerStatus]
) -> UnavailableTool | None:
    """Why what this call means is not in the snapshot, where the tool or its server is known."""
    found = resolve_tool(call, catalog.unavailable)
    if isinstance(found, ResolvedTool):
        return catalog.explain_unavailable(found.card)
    names = {
        call.name,
        *(build_tool_key(server, tool) for server, tool in _split_name(call.name[:MAX_NAME_LENGTH])),
    }
    for drop in catalog.dropped:
        if not drop.switched_off and names & {drop.name, build_tool_key(drop.server, drop.name)}:
            return build_refused(drop)
    away = {status.name: status for status in statuses if not catalog.snapshot.by_server(status.name)}
    for server, tool in _split_name(call.name[:MAX_NAME_LENGTH]):
        if server in away:
            return build_server_unavailable(build_tool_key(server, tool), away[server])
    return None


def get_operation(card: ToolCard, arguments: JsonObject) -> str:
    """The operation key: what a grant for a conversation is bound to."""
    operation = arguments.get("operation")
    named = isinstance(operation, str) and "operation" in _get_properties(card)
    return f"{card.key}.{operation}" if named else card.key


def find_unknown_argument(card: ToolCard, names: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """The first of these that the tool has no parameter for, and the parameters nearest to it.

    None where there is no such name, or where the tool says that it takes others than it lists.
    """
    properties = _get_properties(card)
    match card.definition.get("inputSchema"):
        case {"additionalProperties": True | {}} | {"patternProperties": _}:
            return None
        case _ if not properties:
            return None
        case _:
            pass
    for name in names:
        if name not in properties:
            near = get_close_matches(name[:MAX_NAME_LENGTH], properties, n=3, cutoff=0.5)
            return name, tuple(near) or tuple(properties)[:MAX_NEAR_NAMES]
    return None


def _split_name(name: str) -> Iterator[tuple[str, str]]:
    for separator in SEPARATORS:
        start = name.find(separator)
        while start > 0:
            yield name[:start], name[start + len(separator) :]
            start = name.find(separator, start + 1)


def _find_by_server(name: str, snapshot: Snapshot) -> ToolCard | None:
    for server, tool in _split_name(name):
        if (card := snapshot.get(build_tool_key(server, tool))) is not None:
            return card
    return None


def _resolve_operation(name: str, call: ToolCall, snapshot: Snapshot) -> ResolvedTool | None:
    """`file_operations.read_file` is the tool `file_operations` with an operation, if it takes one."""
    for base, operation in _split_name(name):
        card = snapshot.find(base) or _find_by_server(base, snapshot)
        if card is not None and operation and "operation" in _get_properties(card):
            explicit = call.arguments.get("operation")
            chosen = explicit if explicit is not None else operation
            return ResolvedTool(card=card, arguments={**call.arguments, "operation": chosen})
    return None


def _find_similar(name: str, snapshot: Snapshot) -> list[ToolCard]:
    """Tools whose name differs only in case and separators: `ReadFile` for `read_file`."""
    wanted = _normalize_name(name)
    if not wanted:
        return []
    return [
        card for card in snapshot.cards if wanted in (_normalize_name(card.name), _normalize_name(card.key))
    ]


def _normalize_name(name: str) -> str:
    """Its letters, vowel signs, digits and symbols, of whatever script, without capitals and separators."""
    if name.isascii():
        return _SEPARATING.sub("", name.lower())
    folded = normalize("NFC", name.casefold())
    return "".join(
        character for character in folded if not character.isspace() and category(character)[0] not in "PZ"
    )


def _get_properties(card: ToolCard) -> JsonObject:
    match card.definition.get("inputSchema"):
        case {"properties": {**properties}}:
            return properties
        case _:
            return {}
