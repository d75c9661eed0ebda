"""Which bodies are wanted, out of a list of parts or of words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.builtin.assets.models.glb import SolidBody, build_rotation
from fingerpost.builtin.assets.models.meshes import (
    Mesh,
    build_cuboid,
    build_frustum,
    build_sphere,
    build_torus,
    drop_empty_triangles,
)
from fingerpost.builtin.kit import ToolRefused
from fingerpost.records import Json, JsonObject

MAX_PARTS: Final = 60
MAX_SIZE_M: Final = 10_000.0
BODY_HINT: Final = (
    'Give data as a list of parts, such as [{"shape": "box", "size": [2, 1, 1], "position": [0, 0.5, 0], '
    '"color": "#d55e00"}, {"shape": "sphere", "radius": 0.5}], or name one in words: "a red cylinder, '
    'radius 1, height 3". Shapes are box, sphere, cylinder, cone and torus.'
)
_SHAPE_NAMES: Final[Mapping[str, str]] = {
    "box": "box", "cube": "box", "cuboid": "box", "block": "box",
    "sphere": "sphere", "ball": "sphere", "globe": "sphere",
    "cylinder": "cylinder", "tube": "cylinder", "disc": "cylinder", "disk": "cylinder", "pillar": "cylinder",
    "cone": "cone", "torus": "torus", "ring": "torus", "donut": "torus", "doughnut": "torus",
}  # fmt: skip
_COLOUR_VALUES: Final[Mapping[str, str]] = {
    "red": "#d62728", "green": "#009e73", "blue": "#0072b2", "yellow": "#f0c419", "orange": "#e69f00",
    "purple": "#7a5195", "pink": "#cc79a7", "brown": "#8c5a2b", "black": "#222222", "white": "#f4f4f4",
    "grey": "#888888", "gray": "#888888", "gold": "#d4a017", "silver": "#b8bcc2",
}  # fmt: skip
_DEFAULT_SIZE_M: Final = "#0072b2"
_SHAPE_PATTERN: Final = re.compile(
    r"(?:(?P<colour>"
    + "|".join(_COLOUR_VALUES)
    + r")\s+)?(?:\w+\s+)?\b(?P<shape>"
    + "|".join(_SHAPE_NAMES)
    + r")s?\b(?P<rest>[^;\n]*)",
    re.IGNORECASE,
)
_MEASURE_PATTERN: Final = re.compile(
    r"\b(?P<name>radius|diameter|height|width|depth|length|side|size|edge|tube)\b\s*(?:of|is|=|:)?\s*(?P<value>\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_DIMENSIONS_PATTERN: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:x|×|by)\s*(\d+(?:\.\d+)?)\s*(?:x|×|by)\s*(\d+(?:\.\d+)?)", re.IGNORECASE
)


def parse_bodies(data: Json, prompt: str) -> tuple[SolidBody, ...]:
    """The bodies that are wanted. Raises `ToolRefused` where none is."""
    parts = _parse_parts(data) or _parse_words(data if isinstance(data, str) and data else prompt)
    if not parts:
        message = "There is no body to make."
        raise ToolRefused(message, hint=BODY_HINT)
    if len(parts) > MAX_PARTS:
        message = f"A model has at most {MAX_PARTS} parts, and this has {len(parts)}."
        raise ToolRefused(message, hint="Make several models.")
    return tuple(_build_body(number, part) for number, part in enumerate(parts, 1))


def _parse_parts(data: Json) -> Sequence[JsonObject]:
    if isinstance(data, Mapping):
        inner = data.get("parts", data.get("shapes"))
        return (
            _parse_parts(inner) if isinstance(inner, list | tuple) else ((data,) if "shape" in data else ())
        )
    if isinstance(data, list | tuple):
        return tuple(item for item in data if isinstance(item, Mapping))
    return ()


def _parse_words(text: str) -> tuple[JsonObject, ...]:
    """`a red box 2 x 1 x 1`; several stand beside each other."""
    found: list[JsonObject] = []
    for said in _SHAPE_PATTERN.finditer(text[:4000].replace(" and ", " ;and ")):
        part: dict[str, Json] = {"shape": _SHAPE_NAMES[said["shape"].lower()]}
        if said["colour"]:
            part["color"] = said["colour"].lower()
        for measure in _MEASURE_PATTERN.finditer(said["rest"]):
            part[measure["name"].lower()] = float(measure["value"])
        if sizes := _DIMENSIONS_PATTERN.search(said["rest"]):
            part["size"] = [float(value) for value in sizes.groups()]
        if "diameter" in part:
            part["radius"] = cast("float", part.pop("diameter")) / 2
        found.append(part)
    return tuple(_place_side_by_side(found))


def _place_side_by_side(parts: list[JsonObject]) -> list[JsonObject]:
    if len(parts) < 2:
        return parts
    made: list[JsonObject] = []
    left = 0.0
    for part in parts:
        half = (
            max(_parse_sizes(part)[0], _parse_radius(part, 0.0))
            if part["shape"] == "box"
            else _get_extent(part)
        )
        made.append({**part, "position": [left + half, 0, 0]})
        left += 2 * half + 0.5
    return made


def _get_extent(part: JsonObject) -> float:
    return _parse_radius(part, 0.5) + (_parse_length(part, "tube", 0.2) if part["shape"] == "torus" else 0.0)


def _build_body(number: int, part: JsonObject) -> SolidBody:
    shape = _SHAPE_NAMES.get(str(part.get("shape", "")).lower())
    if shape is None:
        message = f"Part {number} has no shape we know."
        raise ToolRefused(message, hint=BODY_HINT)
    return SolidBody(
        name=str(part.get("name") or f"{shape} {number}")[:60],
        mesh=drop_empty_triangles(_build_mesh(shape, part)),
        position=_parse_vector(part.get("position"), 0.0),
        rotation=build_rotation(_parse_vector(part.get("rotation"), 0.0)),
        colour=_parse_colour(str(part.get("color", part.get("colour", _DEFAULT_SIZE_M)))),
    )


def _build_mesh(shape: str, part: JsonObject) -> Mesh:
    if shape == "box":
        return build_cuboid(*_parse_sizes(part))
    radius = _parse_radius(part, 0.5)
    if shape == "sphere":
        return build_sphere(radius)
    if shape == "torus":
        return build_torus(radius, min(_parse_length(part, "tube", radius * 0.3), radius))
    height = _parse_length(part, "height", 1.0)
    if shape == "cone":
        return build_frustum(radius, 0.0, height)
    return build_frustum(radius, _parse_length(part, "top", radius), height)


def _parse_sizes(part: JsonObject) -> tuple[float, float, float]:
    size = part.get("size")
    if isinstance(size, list | tuple):
        x, y, z = _parse_vector(size, 1.0)
        return _limit_length(x), _limit_length(y), _limit_length(z)
    side = _parse_length(part, "side", _parse_length(part, "edge", _parse_number(size) or 1.0))
    return (
        _parse_length(part, "width", _parse_length(part, "length", side)),
        _parse_length(part, "height", side),
        _parse_length(part, "depth", side),
    )


def _parse_radius(part: JsonObject, default: float) -> float:
    across = _parse_number(part.get("diameter")) or _parse_number(part.get("size"))
    return _parse_length(part, "radius", default if across is None else across / 2)


def _parse_length(part: JsonObject, name: str, default: float) -> float:
    found = _parse_number(part.get(name))
    return default if found is None else _limit_length(found)


def _limit_length(length: float) -> float:
    if not 0 < length <= MAX_SIZE_M:
        message = f"A length is more than 0 and at most {MAX_SIZE_M:,.0f}, and {length:g} is not."
        raise ToolRefused(message, hint=BODY_HINT)
    return length


def _parse_vector(value: Json, default: float) -> tuple[float, float, float]:
    items = list(cast("Sequence[Json]", value)) if isinstance(value, list | tuple) else []
    numbers = [_parse_number(item) for item in (*items, None, None, None)[:3]]
    x, y, z = (default if number is None else max(-MAX_SIZE_M, min(MAX_SIZE_M, number)) for number in numbers)
    return x, y, z


def _parse_number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def _parse_colour(colour: str) -> tuple[float, float, float]:
    """A colour's name or `#rrggbb` as glTF wants it."""
    text = _COLOUR_VALUES.get(colour.strip().lower(), colour.strip())
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        text = _DEFAULT_SIZE_M
    red, green, blue = (round((int(text[at : at + 2], 16) / 255) ** 2.2, 4) for at in (1, 3, 5))
    return red, green, blue
