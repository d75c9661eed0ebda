"""Which tool a written name means: one answer for calls, selections, the syntax guard, requests and clients.

A name that a tool really has is found as it is. Other spellings are tried from the least changed to the most
changed one, and the first that fits counts: without quotes and `()`, by server and tool with any separator,
without regard to case and separators, as a tool and its operation, and without the namespaces that models
write before names. Where two tools remain possible, the name is ambiguous.
"""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, cast
from unicodedata import category, normalize

from fingerpost.catalog.tool_names import build_tool_key
from fingerpost.frozen import frozen
from fingerpost.records import JsonObject, ToolCard

MAX_WRITTEN_LENGTH: Final = 512  # a longer name is found only as it is
OPERATION: Final = "operation"  # the parameter of tools that combine several
_MAX_NAMESPACES: Final = 3
_MAX_ENDINGS: Final = 3
_MAX_QUERY_LENGTH: Final = 256
_MAX_SHORTLISTED: Final = 40

_QUOTES: Final = " \t\r\n`'\"“”‘’„«»*<>"
# A call without arguments, and the number that some models write after the name of each call.
_ENDING: Final = re.compile(r"(?:\(\s*\)|:\d{1,4})\Z")
# The namespaces of prompts and of other programs; Cursor writes `mcp_server_tool`.
NAMESPACES: Final = (
    "function", "functions", "tool", "tools", "tool_code", "call", "default_api", "api", "client",
    "multi_tool_use", "mcp",
)  # fmt: skip
_NAMESPACE: Final = re.compile(
    rf"({'|'.join(NAMESPACES)})(?:__|[./:])+(?=.)|(mcp)[_-](?=.)", re.IGNORECASE | re.DOTALL
)
_SEPARATOR: Final = re.compile(r"::|__|[./:]")
_OPERATION_NAME: Final = re.compile(r"[^\s()\[\]{}\"'`]+")
_METHOD_NAME: Final = "call"  # `get_weather.call(…)`
# What `fold_name` makes of each ASCII character: it keeps letters, digits and symbols.
_FOLDED_ASCII: Final = {
    code: chr(code).lower() if category(chr(code))[0] in "LNS" else None for code in range(128)
}


@frozen
class NameMatch:
    """The tools that a written name may mean: none, one (perhaps with an operation), or several."""

    cards: tuple[ToolCard, ...] = ()
    operation: str = ""

    @property
    def card(self) -> ToolCard | None:
        """The tool, if there is exactly one."""
        return self.cards[0] if len(self.cards) == 1 else None

    @property
    def is_ambiguous(self) -> bool:
        return len(self.cards) > 1

    def add_operation(self, arguments: JsonObject) -> JsonObject:
        """Return the arguments with the operation that the name contains. An explicit one stays."""
        if not self.operation or arguments.get(OPERATION) is not None:
            return arguments
        return {**arguments, OPERATION: self.operation}


_NO_MATCH: Final = NameMatch()


def fold_name(name: str) -> str:
    """Return the letters, digits and symbols of any script, in lower case and without separators."""
    if name.isascii():
        return name.translate(_FOLDED_ASCII)
    folded = normalize("NFKC", normalize("NFKC", name).casefold())
    kept = ((character, category(character)) for character in folded)
    return "".join(character for character, kind in kept if kind[0] not in "PZ" and kind not in {"Cc", "Cf"})


def list_readings(written: str) -> Iterator[str]:
    """Return the names that may be meant, the least changed first.

    Quotes, `()`, a number at the end and namespaces are removed, one after the other.
    """
    for group in _group_readings(written, ()):
        yield from group


def find_reading(written: str, names: Collection[str]) -> str | None:
    """Return the name among `names` that is written, perhaps with a namespace, or None."""
    return next((reading for reading in list_readings(written) if reading in names), None)


def list_server_readings(written: str) -> Iterator[tuple[str, str]]:
    """Return the pairs of server and tool that a written name may consist of."""
    for reading in list_readings(written):
        yield from _split_name(reading)


def _group_readings(written: str, own: Collection[str]) -> Iterator[list[str]]:
    """Return the readings by the number of removed namespaces. In each group, the last one has no ending.

    `own` are folded names of servers and tools, which are no namespaces here.
    """
    if len(written) > MAX_WRITTEN_LENGTH:
        return
    readings = [written.strip(_QUOTES)]
    for _ in range(_MAX_ENDINGS):
        shorter = _ENDING.sub("", readings[-1]).rstrip(_QUOTES)
        if not shorter or shorter == readings[-1]:
            break
        readings.append(shorter)
    for _ in range(_MAX_NAMESPACES + 1):
        yield readings
        namespace = _NAMESPACE.match(readings[-1])
        if namespace is None or fold_name(namespace[1] or namespace[2]) in own:
            return
        readings = [reading[namespace.end() :].lstrip(_QUOTES) for reading in readings]
        if not readings[-1]:
            return


def _split_name(name: str) -> Iterator[tuple[str, str]]:
    """Return the two parts of a name at each separator."""
    for separator in _SEPARATOR.finditer(name):
        before, after = name[: separator.start()], name[separator.end() :]
        if before and after:
            yield before, after


def list_operations(card: ToolCard) -> tuple[str, ...] | None:
    """Return the operations that the tool declares, or None if it has no parameter `operation`."""
    schema = card.definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or OPERATION not in properties:
        return None
    parameter = properties[OPERATION]
    declared = parameter.get("enum") if isinstance(parameter, Mapping) else None
    values = cast("Sequence[object]", declared) if isinstance(declared, list | tuple) else ()
    return tuple(value for value in values if isinstance(value, str))


class _FoldedNames:
    """The folded names of the cards: each tool's own name, and its name with the server."""

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self.own: dict[str, list[ToolCard]] = {}
        self.full: dict[str, list[ToolCard]] = {}
        self.servers: dict[str, str] = {}
        self.no_namespaces: set[str] = set()  # servers, and tools whose names an operation may follow
        for card in cards:
            server = self.servers.get(card.server)
            if server is None:
                server = self.servers[card.server] = fold_name(card.server)
                self.no_namespaces.add(server)
            name = fold_name(card.name)
            if name:
                self.own.setdefault(name, []).append(card)
                self.full.setdefault(f"{server}{name}", []).append(card)
                if name in _FOLDED_NAMESPACES and list_operations(card) is not None:
                    self.no_namespaces.add(name)
            exposed = fold_name(card.exposed_name)
            if exposed and exposed not in {name, f"{server}{name}"}:
                self.full.setdefault(exposed, []).append(card)


_FOLDED_NAMESPACES: Final = frozenset(map(fold_name, NAMESPACES))


class ToolNameResolver:
    """Finds the tools of one catalog by the names that are written for them.

    Only these tools are named in an answer, also as suggestions.
    """

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self._cards = sorted(cards, key=lambda card: card.key)
        self._keys = {card.key: card for card in self._cards}
        self._exposed = {card.exposed_name: card for card in reversed(self._cards)}
        self._names: dict[str, list[ToolCard]] = {}
        for card in self._cards:
            self._names.setdefault(card.name, []).append(card)
        self._folded: _FoldedNames | None = None  # made when a name is first written differently

    def get(self, key: str) -> ToolCard | None:
        return self._keys.get(key)

    def by_exposed_name(self, name: str) -> ToolCard | None:
        return self._exposed.get(name)

    def find(self, name: str) -> ToolCard | None:
        """Return the tool that has this name: its key, its exposed name, or its own name if unique."""
        card = self._keys.get(name) or self._exposed.get(name)
        if card is None and len(namesakes := self._names.get(name, ())) == 1:
            card = namesakes[0]
        return card

    def resolve(self, written: str) -> NameMatch:
        """Return the tools that a written name may mean."""
        if (card := self.find(written)) is not None:
            return NameMatch(cards=(card,))  # the most frequent case
        if namesakes := self._names.get(written):
            return NameMatch(cards=tuple(namesakes))
        for readings in _group_readings(written, self._get_folded().no_namespaces):
            match = self._match_readings(readings)
            if match.cards:
                return match
        return _NO_MATCH

    def list_folded_names(self) -> Collection[str]:
        """Return all names of the tools, folded, with and without their servers."""
        folded = self._get_folded()
        return folded.own.keys() | folded.full.keys()

    def near(self, written: str, n: int = 3) -> tuple[str, ...]:
        """Return the keys most similar to a written name, best first, for "did you mean"."""
        *_, bare = (written, *list_readings(written))
        wanted = bare[:_MAX_QUERY_LENGTH].casefold()
        pairs = _list_letter_pairs(wanted)
        scored = ((_compute_overlap(pairs, card), card.key) for card in self._cards)
        keys = [key for score, key in heapq.nlargest(_MAX_SHORTLISTED, scored) if score > 0]
        ranked = sorted(keys, key=lambda key: (-_compute_similarity(wanted, self._keys[key]), key))
        return tuple(ranked[:n])

    def _get_folded(self) -> _FoldedNames:
        if self._folded is None:
            self._folded = _FoldedNames(self._cards)
        return self._folded

    def _match_readings(self, readings: Sequence[str]) -> NameMatch:
        """Return the tools for readings that differ only in their endings."""
        for reading in readings:
            if cards := self._find_exact(reading):
                return NameMatch(cards=tuple(cards))
        named = {key: card for reading in readings for key, card in self._find_similar(reading).items()}
        operations = self._find_operations(readings[-1])
        possible = {match.cards[0].key: match for match, declared in operations if declared}
        if named:
            cards = {**named, **{key: match.cards[0] for key, match in possible.items()}}
            return NameMatch(cards=tuple(cards[key] for key in sorted(cards)))
        possible = possible or {match.cards[0].key: match for match, _ in reversed(operations)}
        if len(possible) == 1:
            return next(iter(possible.values()))
        return NameMatch(cards=tuple(possible[key].cards[0] for key in sorted(possible)))

    def _find_exact(self, name: str) -> Sequence[ToolCard]:
        card = self.find(name)
        return self._names.get(name, ()) if card is None else (card,)

    def _find_similar(self, name: str) -> dict[str, ToolCard]:
        """Return the tools, by key, that this is another spelling of."""
        folded = self._get_folded()
        whole = fold_name(name)
        if whole not in folded.own and whole not in folded.full:
            return {}
        parts = list(_split_name(name))
        exact = [self._keys.get(build_tool_key(server, tool)) for server, tool in parts]
        if found := {card.key: card for card in exact if card is not None}:
            return found
        own = folded.own.get(whole, ())
        by_server = [
            card
            for server, tool in parts
            for card in folded.own.get(fold_name(tool), ())
            if folded.servers[card.server] == fold_name(server)
        ]
        return {card.key: card for card in (*own, *(by_server or folded.full.get(whole, ())))}

    def _find_operations(self, name: str) -> list[tuple[NameMatch, bool]]:
        """Return the tools with an operation that this may mean, and whether the tool can have it."""
        found: list[tuple[NameMatch, bool]] = []
        for base, operation in _split_name(name):
            if _OPERATION_NAME.fullmatch(operation) is None:
                continue
            for card in self._find_exact(base) or self._find_similar(base).values():
                if (declared := list_operations(card)) is not None:
                    same = [value for value in declared if fold_name(value) == fold_name(operation)]
                    named = operation if operation in declared or len(same) != 1 else same[0]
                    is_declared = not declared or named in declared
                    found.append((NameMatch(cards=(card,), operation=named), is_declared))
                elif operation == _METHOD_NAME:
                    found.append((NameMatch(cards=(card,)), True))
        return found


def _compute_similarity(wanted: str, card: ToolCard) -> float:
    return max(
        difflib.SequenceMatcher(None, wanted, form.casefold()[:_MAX_QUERY_LENGTH]).ratio()
        for form in (card.name, card.key, card.exposed_name)
    )


def _list_letter_pairs(text: str) -> set[str]:
    return {text[index : index + 2] for index in range(len(text) - 1)} or {text}


def _compute_overlap(wanted: set[str], card: ToolCard) -> float:
    """Return the share of common letter pairs, a cheap filter before the full comparison."""
    forms = (_list_letter_pairs(name.casefold()[:_MAX_QUERY_LENGTH]) for name in (card.name, card.key))
    return max(2 * len(wanted & pairs) / (len(wanted) + len(pairs)) for pairs in forms)
