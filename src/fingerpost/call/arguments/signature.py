"""A tool's parameters in one line: what a model needs to write the next call correctly."""

from __future__ import annotations

from typing import Final

from fingerpost.call.arguments.plan import Plan, plans
from fingerpost.call.arguments.shapes import Shape
from fingerpost.call.arguments.values import is_object, shortened, written
from fingerpost.records import Json, ToolCard

MOST_CHOICES: Final = 8
LONGEST_DEFAULT: Final = 24
DEEPEST: Final = 2


def signature(card: ToolCard, *, limit: int = 400) -> str:
    """`search(query: string, limit?: integer = 10, sort?: "asc"|"desc")`, required first, bounded."""
    plan = plans.of(card)
    known = plan.lines.get(limit)
    if known is None:
        known = plan.lines[limit] = _line(plan, card, limit)
    return known


def _line(plan: Plan, card: ToolCard, limit: int) -> str:
    name = shortened(card.exposed_name, max(limit - 4, 1))
    parts = _parameters(plan, plan.root, 0)
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
    return shortened(f"{name}({', '.join([*fitting, rest])})", limit)


def _parameters(plan: Plan, shape: Shape, depth: int) -> list[str]:
    must = [name for name in shape.required if name in shape.properties]
    unlisted = [name for name in shape.required if name not in shape.properties]
    may = [name for name in shape.properties if name not in shape.required]
    return [
        *(_parameter(plan, name, shape.properties[name], depth) for name in must),
        *(f"{name}: any" for name in unlisted),
        *(_parameter(plan, f"{name}?", shape.properties[name], depth) for name in may),
    ]


def _parameter(plan: Plan, name: str, source: Json, depth: int) -> str:
    shape = plan.shapes.of(source)
    default = shape.node.get("default")
    tail = f" = {shortened(written(default), LONGEST_DEFAULT)}" if default is not None else ""
    return f"{name}: {expectation(plan, shape, depth)}{tail}"


def expectation(plan: Plan, shape: Shape, depth: int = 0) -> str:
    """What a value of this shape looks like: `integer`, `"asc"|"desc"`, `list of string`, `{path, line?}`."""
    if shape.choices:
        listed = [shortened(written(choice), 40) for choice in shape.choices[:MOST_CHOICES]]
        more = len(shape.choices) - len(listed)
        return "|".join([*listed, f"… +{more} more"] if more else listed)
    if shape.branches and depth < DEEPEST:
        kinds = (expectation(plan, plan.shapes.of(branch), depth + 1) for branch in shape.branches)
        return "|".join(dict.fromkeys(kinds))
    return "|".join(_kind(plan, shape, name, depth) for name in sorted(shape.types)) or "any"


def _kind(plan: Plan, shape: Shape, name: str, depth: int) -> str:
    if name == "array":
        items = shape.items if is_object(shape.items) else None
        inner = expectation(plan, plan.shapes.of(items), depth + 1) if items and depth < DEEPEST else "any"
        return f"list of {inner}"
    if name == "object" and shape.properties and depth < DEEPEST:
        return f"{{{', '.join(_parameters(plan, shape, depth + 1))}}}"
    if name == "string" and shape.format in ("date", "date-time", "time", "uri", "email", "uuid"):
        return shape.format
    return name
