"""The shapes of what directives hold, as JSON schemas. Every one is bounded."""

from __future__ import annotations

from typing import Final

from fingerpost.records import Json, JsonObject

FURTHEST: Final = 10_000.0  # metres
LONGEST: Final = 3_600.0  # seconds
ID: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"
# Kept elsewhere: an id the client knows, or an address. Never a script, never a file of the client's.
ASSET: Final = (
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127}|(?:https|asset|fingerpost)://[^\s\\<>\"'`{}|^\x00-\x1f]{1,400})"
)


def exactly(pattern: str, description: str) -> JsonObject:
    """A text of this form, to its very end: `$` alone would let a line break follow."""
    return {"type": "string", "pattern": rf"^{pattern}$(?![\s\S])", "description": description}


def number(least: float, most: float, description: str) -> JsonObject:
    return {"type": "number", "minimum": least, "maximum": most, "description": description}


def whole(least: int, most: int, description: str) -> JsonObject:
    return {"type": "integer", "minimum": least, "maximum": most, "description": description}


def text(longest: int, description: str) -> JsonObject:
    return {"type": "string", "minLength": 1, "maxLength": longest, "description": description}


def one_of(description: str, *values: str) -> JsonObject:
    return {"type": "string", "enum": list(values), "description": description}


def identifier(description: str) -> JsonObject:
    return exactly(ID, description)


def asset(description: str) -> JsonObject:
    return exactly(ASSET, description)


def colour(description: str) -> JsonObject:
    return exactly("#[0-9a-fA-F]{6}", f"{description}, as #rrggbb")


def vector(description: str, *, least: float = -FURTHEST, most: float = FURTHEST) -> JsonObject:
    axes: dict[str, Json] = {axis: {"type": "number", "minimum": least, "maximum": most} for axis in "xyz"}
    return {
        "type": "object",
        "properties": axes,
        "required": ["x", "y", "z"],
        "additionalProperties": False,
        "description": description,
    }


POSITION: Final = vector("Where, in metres: x to the right, y up, z towards the person")
ROTATION: Final = vector("How it is turned, in degrees around each axis", least=-360, most=360)
SCALE: Final = number(0.001, 1000, "How many times its own size; 1 by default")
SECONDS: Final = number(0, LONGEST, "How long it takes; 0 at once")
