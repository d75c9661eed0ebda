"""Pins: trusted tool definitions, their fingerprints, and the differences when a definition changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from fingerpost.catalog.tool_names import build_tool_key, escape_invisible_json
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject, Pin, Quarantined, ToolCard
from fingerpost.records.json import to_canonical_json

FINGERPRINTED_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
UNFINGERPRINTED_FIELDS: Final = frozenset({"_meta", "icons", "execution"})
_KNOWN_FIELDS: Final = UNFINGERPRINTED_FIELDS.union(FINGERPRINTED_FIELDS)


def compute_fingerprint(definition: JsonObject) -> str:
    """Return the SHA-256 of the relevant parts, independent of key order and white space."""
    return hashlib.sha256(to_canonical_json(extract_fingerprinted(definition))).hexdigest()


def compute_text_fingerprint(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def extract_fingerprinted(definition: JsonObject) -> JsonObject:
    """Return the fingerprinted parts, unknown ones last. Null counts as absent."""
    parts = {part: definition[part] for part in FINGERPRINTED_FIELDS if definition.get(part) is not None}
    if not definition.keys() <= _KNOWN_FIELDS:
        unknown = sorted(definition.keys() - _KNOWN_FIELDS)
        parts.update((part, definition[part]) for part in unknown if definition[part] is not None)
    return parts


# path, whether present before, before, whether present after, after.
_ComparisonStep = tuple[str, bool, Json, bool, Json]


@frozen
class PinComparison:
    """Cards sorted by the state of their pins. Every card is in exactly one of the three groups."""

    accepted: tuple[ToolCard, ...] = ()
    new: tuple[ToolCard, ...] = ()
    changed: tuple[Quarantined, ...] = ()


def compare_with_pins(cards: Iterable[ToolCard], pins: Mapping[str, Pin]) -> PinComparison:
    """Sort these tools into unchanged, new (without a pin) and changed ones."""
    accepted: list[ToolCard] = []
    new: list[ToolCard] = []
    changed: list[Quarantined] = []
    for card in cards:
        pin = pins.get(card.key)
        if pin is None:
            new.append(card)
        elif pin.fingerprint == card.fingerprint or compute_fingerprint(pin.definition) == card.fingerprint:
            accepted.append(card)
        else:
            changed.append(Quarantined(card=card, pin=pin))
    return PinComparison(accepted=tuple(accepted), new=tuple(new), changed=tuple(changed))


def build_pin(card: ToolCard, *, at: datetime, accepted_by: str | None = None) -> Pin:
    """Build the pin that makes the card's current definition the trusted one."""
    return Pin(
        key=card.key,
        fingerprint=card.fingerprint,
        definition=card.definition,
        pinned_at=at,
        accepted_by=accepted_by,
    )


def build_server_key(server: str) -> str:
    """Return the pin key of a server as a whole: the key of a tool without a name."""
    return build_tool_key(server, "")


def is_server_key(key: str) -> bool:
    return key.endswith("/")


def build_server_pin(
    server: str, instructions: str, tools: Iterable[str], *, at: datetime, accepted_by: str | None = None
) -> Pin:
    """Build the pin of a server: its instructions and the tools it was seen with."""
    return Pin(
        key=build_server_key(server),
        fingerprint=compute_text_fingerprint(instructions),
        definition={"instructions": instructions, "tools": sorted(tools)},
        pinned_at=at,
        accepted_by=accepted_by,
    )


def get_pinned_instructions(pin: Pin) -> str:
    return str(pin.definition.get("instructions", ""))


def get_pinned_tools(pin: Pin) -> frozenset[str]:
    """Return the names of the tools that the server was seen with."""
    tools = pin.definition.get("tools")
    return frozenset(map(str, tools)) if isinstance(tools, list | tuple) else frozenset()


def build_quarantine_entry(card: ToolCard, *, since: datetime, reviewed: bool) -> Quarantined:
    """Build the quarantine entry of a new tool on a known server, or on a new one that is reviewed."""
    pin = Pin(key=card.key, fingerprint="", definition={}, pinned_at=since)
    return Quarantined(card=card, pin=pin, reviewed=reviewed)


@frozen
class DefinitionDifference:
    """One difference between two definitions, each side as JSON text. None means absent.

    It is never shortened, because a person who accepts a change must see all of it. Invisible characters are
    JSON escapes.
    """

    path: str
    before: str | None
    after: str | None


def find_differences(old: JsonObject, new: JsonObject) -> tuple[DefinitionDifference, ...]:
    """Return the differences of the fingerprinted parts, in reading order."""
    changes: list[DefinitionDifference] = []
    todo: list[_ComparisonStep] = [("", True, extract_fingerprinted(old), True, extract_fingerprinted(new))]
    while todo:
        path, was, before, present, after = todo.pop()
        steps = _list_next_steps(path, before, after) if was and present else None
        if steps is not None:
            todo.extend(reversed(steps))
        elif was != present or _to_json_text(before) != _to_json_text(after):
            changes.append(
                DefinitionDifference(
                    path=path,
                    before=_to_json_text(before) if was else None,
                    after=_to_json_text(after) if present else None,
                )
            )
    return tuple(changes)


def _list_next_steps(path: str, before: Json, after: Json) -> list[_ComparisonStep] | None:
    """Return the pairs of parts to compare next, or None if the two are compared as a whole."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = [*before, *(name for name in after if name not in before)]
        return [
            (_join_path(path, name), name in before, before.get(name), name in after, after.get(name))
            for name in names
        ]
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return _list_item_steps(path, before, after)
    return None


def _join_path(path: str, name: str) -> str:
    """Return a path such as `inputSchema.properties.path`. A name that is not a plain word is quoted."""
    step = name if name.isidentifier() and name.isascii() else f"[{_to_json_text(name)}]"
    return f"{path}.{step}" if path and not step.startswith("[") else f"{path}{step}"


def _to_json_text(value: Json) -> str:
    return escape_invisible_json(json.dumps(value, ensure_ascii=False, sort_keys=True, default=dict))


def _list_item_steps(path: str, before: Sequence[Json], after: Sequence[Json]) -> list[_ComparisonStep]:
    count = max(len(before), len(after))
    return [
        (
            f"{path}[{index}]",
            index < len(before),
            before[index] if index < len(before) else None,
            index < len(after),
            after[index] if index < len(after) else None,
        )
        for index in range(count)
    ]
