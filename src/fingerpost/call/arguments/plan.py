"""What is worked out once for each tool: its schema compiled, its shapes, its line of signature.

A plan belongs to a fingerprint, so a tool that changes gets a new one by itself.
The number kept is bounded; the tools in use stay.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final

from fingerpost.call.arguments.quick import FastCheck
from fingerpost.call.arguments.shapes import SchemaNode, SchemaNodes
from fingerpost.call.arguments.validation import SchemaValidator
from fingerpost.call.arguments.values import copy_object, is_list, is_object
from fingerpost.catalog.words import split_words, to_singular
from fingerpost.records import Json, JsonObject, ToolCard

MAX_SCHEMAS: Final = 512
MAX_NOTES: Final = 8


class ToolSchema:
    """One tool's schema, ready for use."""

    def __init__(self, card: ToolCard) -> None:
        given = card.definition.get("inputSchema")
        self.schema: JsonObject = copy_object(given) if is_object(given) else {"type": "object"}
        self.quick = FastCheck(self.schema)
        self.validation = SchemaValidator(self.schema)
        self.shapes = SchemaNodes(self.schema)
        self.root: SchemaNode = self.shapes.get_node(self.schema)
        # Words that say what the tool is about add nothing to a parameter's name.
        self.topic = frozenset(to_singular(word) for word in split_words(card.name))
        self.called = frozenset({card.name, card.key, card.exposed_name})
        self.notes = _describe_unchecked(self.schema)
        self.lines: dict[int, str] = {}  # signatures, by their limit


class _ToolSchemaCache:
    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[tuple[str, str], ToolSchema] = OrderedDict()

    def get_schema(self, card: ToolCard) -> ToolSchema:
        name = (card.key, card.fingerprint)
        with self._lock:
            plan = self._kept.get(name)
            if plan is not None:
                self._kept.move_to_end(name)
                return plan
        plan = ToolSchema(card)
        with self._lock:
            self._kept[name] = plan
            while len(self._kept) > MAX_SCHEMAS:
                self._kept.popitem(last=False)
        return plan


tool_schemas = _ToolSchemaCache()


def _describe_unchecked(schema: JsonObject) -> tuple[str, ...]:
    """What of the schema is not checked here, in plain words."""
    found: dict[str, None] = {}
    todo: list[Json] = [schema]
    while todo and len(found) < MAX_NOTES:
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
