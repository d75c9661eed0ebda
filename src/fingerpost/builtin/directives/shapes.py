"""The shapes of what directives hold, as JSON schemas. Every one is bounded."""

from __future__ import annotations

from typing import Final

from fingerpost.records import Json, JsonObject

MAX_DISTANCE: Final = 10_000.0  # metres
MAX_TEXT_LENGTH: Final = 3_600.0  # seconds
ID: Final = r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}"
# Kept elsewhere: an id the client knows, or an address. Never a script, never a file of the client's.
ASSET: Final = (
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,127}|(?:https|asset|fingerpost)://[^\s\\<>\"'`{}|^\x00-\x1f]{1,400})"
)


def build_pattern_schema(pattern: str, description: str) -> JsonObject:
    """A text of this form, to its very end: `$` alone would let a line break follow."""
    return {"type": "string", "pattern": rf"^{pattern}$(?![\s\S])", "description": description}


def build_number_schema(minimum: float, maximum: float, description: str) -> JsonObject:
    return {"type": "number", "minimum": minimum, "maximum": maximum, "description": description}


def build_integer_schema(minimum: int, maximum: int, description: str) -> JsonObject:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}


def build_text_schema(max_length: int, description: str) -> JsonObject:
    return {"type": "string", "minLength": 1, "maxLength": max_length, "description": description}


def build_enum_schema(description: str, *values: str) -> JsonObject:
    return {"type": "string", "enum": list(values), "description": description}


def build_id_schema(description: str) -> JsonObject:
    return build_pattern_schema(ID, description)


def build_asset_schema(description: str) -> JsonObject:
    return build_pattern_schema(ASSET, description)


def build_colour_schema(description: str) -> JsonObject:
    return build_pattern_schema("#[0-9a-fA-F]{6}", f"{description}, as #rrggbb")


def build_vector_schema(
    description: str, *, minimum: float = -MAX_DISTANCE, maximum: float = MAX_DISTANCE
) -> JsonObject:
    axes: dict[str, Json] = {
        axis: {"type": "number", "minimum": minimum, "maximum": maximum} for axis in "xyz"
    }
    return {
        "type": "object",
        "properties": axes,
        "required": ["x", "y", "z"],
        "additionalProperties": False,
        "description": description,
    }


POSITION: Final = build_vector_schema("Where, in metres: x to the right, y up, z towards the person")
ROTATION: Final = build_vector_schema(
    "How it is turned, in degrees around each axis", minimum=-360, maximum=360
)
SCALE: Final = build_number_schema(0.001, 1000, "How many times its own size; 1 by default")
SECONDS: Final = build_number_schema(0, MAX_TEXT_LENGTH, "How long it takes; 0 at once")
