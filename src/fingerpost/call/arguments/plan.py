"""What is worked out once for each tool: its schema compiled, its shapes, its line of signature.

A plan belongs to a fingerprint, so a tool that changes gets a new one by itself.
The number kept is bounded; the tools in use stay.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from fingerpost.call.arguments.quick import Quick
from fingerpost.call.arguments.shapes import Shape, Shapes
from fingerpost.call.arguments.validation import Validation
from fingerpost.call.arguments.values import is_list, is_object, plain_object
from fingerpost.catalog.words import singular, words
from fingerpost.records import Json, JsonObject, ToolCard

MOST_PLANS: Final = 512
MOST_NOTES: Final = 8


class Plan:
    """One tool's schema, ready for use."""

    def __init__(self, card: ToolCard) -> None:
        given = card.definition.get("inputSchema")
        self.schema: JsonObject = plain_object(given) if is_object(given) else {"type": "object"}
        self.quick = Quick(self.schema)
        self.validation = Validation(self.schema)
        self.shapes = Shapes(self.schema)
        self.root: Shape = self.shapes.of(self.schema)
        # Words that say what the tool is about add nothing to a parameter's name.
        self.topic = frozenset(singular(word) for word in words(card.name))
        self.called = frozenset({card.name, card.key, card.exposed_name})
        self.notes = _notes(self.schema)
        self.lines: dict[int, str] = {}  # signatures, by their limit


class _Plans:
    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], Plan] = OrderedDict()

    def of(self, card: ToolCard) -> Plan:
        name = (card.key, card.fingerprint)
        with self._lock:
            plan = self._kept.get(name)
            if plan is not None:
                self._kept.move_to_end(name)
                return plan
        plan = Plan(card)
        with self._lock:
            self._kept[name] = plan
            while len(self._kept) > MOST_PLANS:
                self._kept.popitem(last=False)
        return plan


plans = _Plans()


def _notes(schema: JsonObject) -> tuple[str, ...]:
    """What of the schema is not checked here, in plain words."""
    found: dict[str, None] = {}
    todo: list[Json] = [schema]
    while todo and len(found) < MOST_NOTES:
        node = todo.pop()
        if is_list(node):
            todo.extend(node)
        if not is_object(node):
            continue
        reference = node.get("$ref")
        if isinstance(reference, str) and not reference.startswith("#"):
            found[f"{reference[:80]} is never fetched: what it describes is not checked here"] = None
        todo.extend(node.values())
    return tuple(found)
