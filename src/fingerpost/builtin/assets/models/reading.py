"""Which bodies are wanted, out of a list of parts or of words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final, cast

from fingerpost.builtin.assets.models.glb import Body, turn
from fingerpost.builtin.assets.models.meshes import Mesh, cuboid, frustum, ring, solid, sphere
from fingerpost.builtin.kit import ToolRefused
from fingerpost.records import Json, JsonObject

MOST_PARTS: Final = 60
LARGEST: Final = 10_000.0
HOW: Final = (
    'Give data as a list of parts, such as [{"shape": "box", "size": [2, 1, 1], "position": [0, 0.5, 0], '
    '"color": "#d55e00"}, {"shape": "sphere", "radius": 0.5}], or name one in words: "a red cylinder, '
    'radius 1, height 3". Shapes are box, sphere, cylinder, cone and torus.'
)
_NAMES: Final[Mapping[str, str]] = {
    "box": "box", "cube": "box", "cuboid": "box", "block": "box",
    "sphere": "sphere", "ball": "sphere", "globe": "sphere",
    "cylinder": "cylinder", "tube": "cylinder", "disc": "cylinder", "disk": "cylinder", "pillar": "cylinder",
    "cone": "cone", "torus": "torus", "ring": "torus", "donut": "torus", "doughnut": "torus",
}  # fmt: skip
_COLOURS: Final[Mapping[str, str]] = {
    "red": "#d62728", "green": "#009e73", "blue": "#0072b2", "yellow": "#f0c419", "orange": "#e69f00",
    "purple": "#7a5195", "pink": "#cc79a7", "brown": "#8c5a2b", "black": "#222222", "white": "#f4f4f4",
    "grey": "#888888", "gray": "#888888", "gold": "#d4a017", "silver": "#b8bcc2",
}  # fmt: skip
_USUAL: Final = "#0072b2"
_SAID: Final = re.compile(
    r"(?:(?P<colour>"
    + "|".join(_COLOURS)
    + r")\s+)?(?:\w+\s+)?\b(?P<shape>"
    + "|".join(_NAMES)
    + r")s?\b(?P<rest>[^;\n]*)",
    re.IGNORECASE,
)
_MEASURE: Final = re.compile(
    r"\b(?P<name>radius|diameter|height|width|depth|length|side|size|edge|tube)\b\s*(?:of|is|=|:)?\s*(?P<value>\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_BY: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s*(?:x|×|by)\s*(\d+(?:\.\d+)?)\s*(?:x|×|by)\s*(\d+(?:\.\d+)?)", re.IGNORECASE
)


def read_bodies(data: Json, prompt: str) -> tuple[Body, ...]:
    """The bodies that are wanted. Raises `ToolRefused` where none is."""
    parts = _parts(data) or _in_words(data if isinstance(data, str) and data else prompt)
    if not parts:
        message = "There is no body to make."
        raise ToolRefused(message, hint=HOW)
    if len(parts) > MOST_PARTS:
        message = f"A model has at most {MOST_PARTS} parts, and this has {len(parts)}."
        raise ToolRefused(message, hint="Make several models.")
    return tuple(_body(number, part) for number, part in enumerate(parts, 1))


def _parts(data: Json) -> Sequence[JsonObject]:
    if isinstance(data, Mapping):
        inner = data.get("parts", data.get("shapes"))
        return _parts(inner) if isinstance(inner, list | tuple) else ((data,) if "shape" in data else ())
    if isinstance(data, list | tuple):
        return tuple(item for item in data if isinstance(item, Mapping))
    return ()


def _in_words(text: str) -> tuple[JsonObject, ...]:
    """`a red box 2 x 1 x 1`; several stand beside each other."""
    found: list[JsonObject] = []
    for said in _SAID.finditer(text[:4000].replace(" and ", " ;and ")):
        part: dict[str, Json] = {"shape": _NAMES[said["shape"].lower()]}
        if said["colour"]:
            part["color"] = said["colour"].lower()
        for measure in _MEASURE.finditer(said["rest"]):
            part[measure["name"].lower()] = float(measure["value"])
        if sizes := _BY.search(said["rest"]):
            part["size"] = [float(value) for value in sizes.groups()]
        if "diameter" in part:
            part["radius"] = cast("float", part.pop("diameter")) / 2
        found.append(part)
    return tuple(_beside(found))


def _beside(parts: list[JsonObject]) -> list[JsonObject]:
    if len(parts) < 2:
        return parts
    made: list[JsonObject] = []
    left = 0.0
    for part in parts:
        half = max(_sizes(part)[0], _radius(part, 0.0)) if part["shape"] == "box" else _reach(part)
        made.append({**part, "position": [left + half, 0, 0]})
        left += 2 * half + 0.5
    return made


def _reach(part: JsonObject) -> float:
    return _radius(part, 0.5) + (_length(part, "tube", 0.2) if part["shape"] == "torus" else 0.0)


def _body(number: int, part: JsonObject) -> Body:
    shape = _NAMES.get(str(part.get("shape", "")).lower())
    if shape is None:
        message = f"Part {number} has no shape we know."
        raise ToolRefused(message, hint=HOW)
    return Body(
        name=str(part.get("name") or f"{shape} {number}")[:60],
        mesh=solid(_mesh(shape, part)),
        position=_three(part.get("position"), 0.0),
        rotation=turn(_three(part.get("rotation"), 0.0)),
        colour=_linear(str(part.get("color", part.get("colour", _USUAL)))),
    )


def _mesh(shape: str, part: JsonObject) -> Mesh:
    if shape == "box":
        return cuboid(*_sizes(part))
    radius = _radius(part, 0.5)
    if shape == "sphere":
        return sphere(radius)
    if shape == "torus":
        return ring(radius, min(_length(part, "tube", radius * 0.3), radius))
    height = _length(part, "height", 1.0)
    if shape == "cone":
        return frustum(radius, 0.0, height)
    return frustum(radius, _length(part, "top", radius), height)


def _sizes(part: JsonObject) -> tuple[float, float, float]:
    size = part.get("size")
    if isinstance(size, list | tuple):
        x, y, z = _three(size, 1.0)
        return _within(x), _within(y), _within(z)
    side = _length(part, "side", _length(part, "edge", _number(size) or 1.0))
    return (
        _length(part, "width", _length(part, "length", side)),
        _length(part, "height", side),
        _length(part, "depth", side),
    )


def _radius(part: JsonObject, otherwise: float) -> float:
    across = _number(part.get("diameter")) or _number(part.get("size"))
    return _length(part, "radius", otherwise if across is None else across / 2)


def _length(part: JsonObject, name: str, otherwise: float) -> float:
    found = _number(part.get(name))
    return otherwise if found is None else _within(found)


def _within(length: float) -> float:
    if not 0 < length <= LARGEST:
        message = f"A length is more than 0 and at most {LARGEST:,.0f}, and {length:g} is not."
        raise ToolRefused(message, hint=HOW)
    return length


def _three(value: Json, otherwise: float) -> tuple[float, float, float]:
    items = list(cast("Sequence[Json]", value)) if isinstance(value, list | tuple) else []
    numbers = [_number(item) for item in (*items, None, None, None)[:3]]
    x, y, z = (otherwise if number is None else max(-LARGEST, min(LARGEST, number)) for number in numbers)
    return x, y, z


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < 1e300 and math.isfinite(value) else None


def _linear(colour: str) -> tuple[float, float, float]:
    """A colour's name or `#rrggbb` as glTF wants it."""
    text = _COLOURS.get(colour.strip().lower(), colour.strip())
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        text = _USUAL
    red, green, blue = (round((int(text[at : at + 2], 16) / 255) ** 2.2, 4) for at in (1, 3, 5))
    return red, green, blue
