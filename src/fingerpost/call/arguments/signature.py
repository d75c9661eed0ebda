"""A tool's parameters in one line: what a model needs to write the next call correctly."""

from __future__ import annotations

from typing import Final

from fingerpost.call.arguments.plan import ToolSchema, tool_schemas
from fingerpost.call.arguments.shapes import SchemaNode
from fingerpost.call.arguments.values import is_object, shorten, to_json
from fingerpost.records import Json, ToolCard

MAX_SHOWN_CHOICES: Final = 8
MAX_DEFAULT_LENGTH: Final = 24
MAX_SIGNATURE_DEPTH: Final = 2


def format_signature(card: ToolCard, *, limit: int = 400) -> str:
    """`search(query: string, limit?: integer = 10, sort?: "asc"|"desc")`, required first, bounded."""
    plan = tool_schemas.get_schema(card)
    known = plan.lines.get(limit)
    if known is None:
        known = plan.lines[limit] = _build_signature(plan, card, limit)
    return known


def _build_signature(tool_schema: ToolSchema, card: ToolCard, limit: int) -> str:
    name = shorten(card.exposed_name, max(limit - 4, 1))
    parts = _format_parameters(tool_schema, tool_schema.root, 0)
    whole = f"{name}({', '.join(parts)})"
    if len(whole) <= limit:
        return whole
    room = limit - len(name) - len("(, … +999 more)")
    fitting: list[str] = []
    for part in parts:
        room -= len(part) + 2
        if room < 0:
            break
        fitting.append(part)
    rest = f"… +{len(parts) - len(fitting)} more"
    return shorten(f"{name}({', '.join([*fitting, rest])})", limit)


def _format_parameters(tool_schema: ToolSchema, node: SchemaNode, depth: int) -> list[str]:
    must = [name for name in node.required if name in node.properties]
    unlisted = [name for name in node.required if name not in node.properties]
    may = [name for name in node.properties if name not in node.required]
    return [
        *(_format_parameter(tool_schema, name, node.properties[name], depth) for name in must),
        *(f"{name}: any" for name in unlisted),
        *(_format_parameter(tool_schema, f"{name}?", node.properties[name], depth) for name in may),
    ]


def _format_parameter(tool_schema: ToolSchema, name: str, source: Json, depth: int) -> str:
    shape = tool_schema.shapes.get_node(source)
    default = shape.keywords.get("default")
    tail = f" = {shorten(to_json(default), MAX_DEFAULT_LENGTH)}" if default is not None else ""
    return f"{name}: {describe_expected(tool_schema, shape, depth)}{tail}"


def describe_expected(tool_schema: ToolSchema, node: SchemaNode, depth: int = 0) -> str:
    """What a value of this shape looks like: `integer`, `"asc"|"desc"`, `list of string`, `{path, line?}`."""
    if node.choices:
        listed = [shorten(to_json(choice), 40) for choice in node.choices[:MAX_SHOWN_CHOICES]]
        more = len(node.choices) - len(listed)
        return "|".join([*listed, f"… +{more} more"] if more else listed)
    if node.branches and depth < MAX_SIGNATURE_DEPTH:
        kinds = (
            describe_expected(tool_schema, tool_schema.shapes.get_node(branch), depth + 1)
            for branch in node.branches
        )
        return "|".join(dict.fromkeys(kinds))
    return "|".join(_describe_type(tool_schema, node, name, depth) for name in sorted(node.types)) or "any"


def _describe_type(tool_schema: ToolSchema, node: SchemaNode, name: str, depth: int) -> str:
    if name == "array":
        items = node.items if is_object(node.items) else None
        inner = (
            describe_expected(tool_schema, tool_schema.shapes.get_node(items), depth + 1)
            if items and depth < MAX_SIGNATURE_DEPTH
            else "any"
        )
        return f"list of {inner}"
    if name == "object" and node.properties and depth < MAX_SIGNATURE_DEPTH:
        return f"{{{', '.join(_format_parameters(tool_schema, node, depth + 1))}}}"
    if name == "string" and node.format in ("date", "date-time", "time", "uri", "email", "uuid"):
        return node.format
    return name
