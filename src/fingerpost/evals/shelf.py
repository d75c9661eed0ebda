"""A set's tools as a catalog, with the way back to the set's own ids.

Cards are made by the real catalog. It takes one tool per server and name, as
servers offer them; a set may hold several definitions under one name. Those go
into further catalogs, and their cards get a key of their own (`server/tool~2`)
while server, name and text stay what they are. So no tool is lost, none is
renamed, and a ranking over the set is a ranking over its ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from fingerpost.catalog import Catalog, Snapshot, build_tool_key, escape_invisible_except
from fingerpost.errors import ConfigError
from fingerpost.evals.records import ToolRecord
from fingerpost.events import MemorySink
from fingerpost.frozen import frozen
from fingerpost.records import DroppedTool, JsonObject, Listing, ToolCard
from fingerpost.settings import Settings


@frozen
class EvalCatalog:
    """All tools of a set, ready to be routed over."""

    snapshot: Snapshot
    ids: Mapping[str, str]  # a card's key → the set's id
    keys: Mapping[str, tuple[str, ...]]  # the set's id → the cards' keys
    left_out: tuple[str, ...] = ()  # what could not become a card, and why

    def get_keys(self, ids: Iterable[str]) -> frozenset[str]:
        """The cards with these ids; ids of nothing are passed over."""
        return frozenset(key for one in ids for key in self.keys.get(one, ()))


def build_eval_catalog(tools: Sequence[ToolRecord], settings: Settings) -> EvalCatalog:
    """These tools as a catalog under these settings."""
    ids: dict[str, str] = {}
    cards: list[ToolCard] = []
    left_out: list[str] = []
    for number, layer in enumerate(_split_layers(tools), start=1):
        catalog = Catalog(events=MemorySink(limit=0), overrides=settings.tools, flags=settings.flags)
        for listing in _build_listings(layer.values()):
            catalog.replace_server(listing)
        for card in catalog.snapshot.cards:
            made = card if number == 1 else replace(card, key=_make_free_key(f"{card.key}~{number}", ids))
            cards.append(made)
            ids[made.key] = layer.pop(card.key).id
        left_out += _explain_left_out(layer.values(), catalog.dropped)
    if tools and not cards:
        message = f"none of the {len(tools)} tools could be taken; the first: {left_out[0]}"
        raise ConfigError(message, hint="Give every tool a name, a description and an input_schema.")
    keys: dict[str, tuple[str, ...]] = {}
    for key, own in ids.items():
        keys[own] = (*keys.get(own, ()), key)
    return EvalCatalog(
        snapshot=Snapshot(version=1, cards=tuple(cards)), ids=ids, keys=keys, left_out=tuple(left_out)
    )


def _make_free_key(key: str, taken: Mapping[str, str]) -> str:
    """A tool may really be called `name~2`."""
    while key in taken:
        key += "~"
    return key


def _split_layers(tools: Iterable[ToolRecord]) -> list[dict[str, ToolRecord]]:
    """The tools by key, each key once per layer: the first layer holds the first of every name."""
    layers: list[dict[str, ToolRecord]] = []
    seen: Counter[str] = Counter()
    for tool in tools:
        key = build_tool_key(tool.server, tool.name)
        if seen[key] == len(layers):
            layers.append({})
        layers[seen[key]][key] = tool
        seen[key] += 1
    return layers


def _explain_left_out(tools: Iterable[ToolRecord], dropped: Iterable[DroppedTool]) -> Iterator[str]:
    reasons = {(drop.server, drop.name): drop.reason for drop in dropped}
    for tool in tools:
        shown = escape_invisible_except(tool.name[:80]) if tool.name.strip() else "(no name)"
        yield f"{tool.id}: {reasons.get((tool.server, shown), 'was refused')}"


def _build_listings(tools: Iterable[ToolRecord]) -> Iterator[Listing]:
    by_server: dict[str, list[JsonObject]] = {}
    for tool in tools:
        by_server.setdefault(tool.server, []).append(
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        )
    for server, definitions in by_server.items():
        yield Listing(server=server, definitions=tuple(definitions))
