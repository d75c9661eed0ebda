"""Simple 3D bodies: parsed from parts or text, built as meshes, written as binary glTF."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

FloatArray = NDArray[np.float32]
SEGMENTS: Final = 48  # of a full turn


@frozen(kw_only=False)
class Mesh:
    """Vertices, normals, and triangles in counter-clockwise order as seen from outside."""

    positions: FloatArray
    normals: FloatArray
    triangles: NDArray[np.uint32]


def build_cuboid(width: float, height: float, depth: float) -> Mesh:
    """Build a box."""
    positions: list[FloatArray] = []
    normals: list[FloatArray] = []
    half = np.asarray([width, height, depth], np.float32) / 2
    for axis in range(3):
        for side in (-1.0, 1.0):
            normal = np.zeros(3, np.float32)
            normal[axis] = side
            one, other = np.roll(np.eye(3, dtype=np.float32), axis, axis=1)[1:]
            one = one * side  # so that all six sides face outwards
            corners = [normal - one - other, normal + one - other, normal + one + other, normal - one + other]
            positions += [corner * half for corner in corners]
            normals += [normal] * 4
    faces = np.asarray([[0, 1, 2], [0, 2, 3]], np.uint32)
    triangles = np.concatenate([faces + 4 * face for face in range(6)])
    return Mesh(np.stack(positions), np.stack(normals), triangles)


def build_revolved(profile: Sequence[tuple[float, float]], slopes: Sequence[tuple[float, float]]) -> Mesh:
    """Build a surface of revolution about the vertical axis from points (radius, height) and their
    normals.
    """
    angles = np.linspace(0, 2 * np.pi, SEGMENTS + 1, dtype=np.float32)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    radii, heights = np.asarray(profile, np.float32).T
    outward, upward = np.asarray(slopes, np.float32).T
    positions = _build_rings(around, radii, heights)
    normals = _build_rings(around, outward, upward)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.float32(1e-9))
    return Mesh(positions, normals, _build_strips(len(profile), SEGMENTS + 1))


def _build_rings(around: FloatArray, radii: FloatArray, heights: FloatArray) -> FloatArray:
    """Return the points of all rings, one ring after another."""
    made = np.empty((len(radii), len(around), 3), np.float32)
    made[..., 0] = radii[:, None] * around[None, :, 0]
    made[..., 1] = heights[:, None]
    made[..., 2] = -radii[:, None] * around[None, :, 1]
    return made.reshape(-1, 3)


def _build_strips(rings: int, size: int) -> NDArray[np.uint32]:
    """Return two triangles for each quad between neighbouring rings."""
    ring, place = np.meshgrid(np.arange(rings - 1), np.arange(size - 1), indexing="ij")
    first = (ring * size + place).ravel()
    one = np.stack([first, first + 1, first + size + 1], axis=1)
    other = np.stack([first, first + size + 1, first + size], axis=1)
    return np.concatenate([one, other]).astype(np.uint32)


def build_sphere(radius: float) -> Mesh:
    turns = np.linspace(-np.pi / 2, np.pi / 2, SEGMENTS // 2 + 1)
    slopes = [(float(np.cos(turn)), float(np.sin(turn))) for turn in turns]
    return build_revolved([(radius * out, radius * up) for out, up in slopes], slopes)


def build_frustum(below: float, above: float, height: float) -> Mesh:
    """Build a cylinder, a cone or a frustum, closed at both ends."""
    half = height / 2
    profile = [(0.0, -half), (below, -half), (below, -half), (above, half), (above, half), (0.0, half)]
    side = (height, below - above)
    slopes = [(0.0, -1.0), (0.0, -1.0), side, side, (0.0, 1.0), (0.0, 1.0)]
    return build_revolved(profile, slopes)


def build_torus(radius: float, tube: float) -> Mesh:
    """Build a horizontal torus."""
    turns = np.linspace(-np.pi, np.pi, SEGMENTS // 2 + 1)
    slopes = [(float(np.cos(turn)), float(np.sin(turn))) for turn in turns]
    return build_revolved([(radius + tube * out, tube * up) for out, up in slopes], slopes)


def drop_empty_triangles(mesh: Mesh) -> Mesh:
    """Return the mesh without triangles of zero area. They occur where a ring is a point."""
    corners = mesh.positions[mesh.triangles]
    sides = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(sides, axis=1)
    return Mesh(mesh.positions, mesh.normals, mesh.triangles[area > area.max() * 1e-7])


_GLB_MAGIC: Final = 0x46546C67
_JSON_CHUNK: Final = 0x4E4F534A
_BINARY_CHUNK: Final = 0x004E4942
_FLOAT_TYPE: Final = 5126
_UINT_TYPE: Final = 5125
_ARRAY_BUFFER: Final = 34962
_ELEMENT_BUFFER: Final = 34963


@frozen
class SolidBody:
    """A mesh with its position and colour."""

    name: str
    mesh: Mesh
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)  # a quaternion, x y z w
    colour: tuple[float, float, float] = (0.0, 0.17, 0.45)  # linear red, green, blue


def render_glb(bodies: Sequence[SolidBody], title: str) -> bytes:
    """Return the glTF file."""
    views: list[Json] = []
    accessors: list[Json] = []
    binary = bytearray()

    def add(data: bytes, target: int) -> int:
        views.append({"buffer": 0, "byteOffset": len(binary), "byteLength": len(data), "target": target})
        binary.extend(data + b"\0" * (-len(data) % 4))
        return len(views) - 1

    meshes: list[Json] = []
    for number, body in enumerate(bodies):
        mesh, first = body.mesh, len(accessors)
        position: dict[str, Json] = {
            "bufferView": add(mesh.positions.astype("<f4").tobytes(), _ARRAY_BUFFER),
            "componentType": _FLOAT_TYPE,
            "count": len(mesh.positions),
            "type": "VEC3",
            "min": [float(value) for value in mesh.positions.min(axis=0)],
            "max": [float(value) for value in mesh.positions.max(axis=0)],
        }
        normal: dict[str, Json] = {
            "bufferView": add(mesh.normals.astype("<f4").tobytes(), _ARRAY_BUFFER),
            "componentType": _FLOAT_TYPE,
            "count": len(mesh.normals),
            "type": "VEC3",
        }
        corners: dict[str, Json] = {
            "bufferView": add(mesh.triangles.astype("<u4").tobytes(), _ELEMENT_BUFFER),
            "componentType": _UINT_TYPE,
            "count": int(mesh.triangles.size),
            "type": "SCALAR",
        }
        accessors += [position, normal, corners]
        part: JsonObject = {
            "attributes": {"POSITION": first, "NORMAL": first + 1},
            "indices": first + 2,
            "material": number,
        }
        meshes.append({"name": body.name, "primitives": [part]})
    document: JsonObject = {
        "asset": {"version": "2.0", "generator": "Fingerpost"},
        "scene": 0,
        "scenes": [{"name": title, "nodes": list(range(len(bodies)))}],
        "nodes": [_build_node(number, body) for number, body in enumerate(bodies)],
        "meshes": meshes,
        "materials": [_build_material(body) for body in bodies],
        "accessors": accessors,
        "bufferViews": views,
        "buffers": [{"byteLength": len(binary)}],
    }
    return _build_file(document, bytes(binary))


def _build_node(number: int, body: SolidBody) -> JsonObject:
    return {
        "name": body.name,
        "mesh": number,
        "translation": list(body.position),
        "rotation": list(body.rotation),
    }


def _build_material(body: SolidBody) -> JsonObject:
    surface: JsonObject = {
        "baseColorFactor": [*body.colour, 1.0],
        "metallicFactor": 0.0,
        "roughnessFactor": 0.7,
    }
    return {"name": f"{body.name} surface", "pbrMetallicRoughness": surface}


def _build_file(document: JsonObject, binary: bytes) -> bytes:
    text = json.dumps(document, separators=(",", ":"), allow_nan=False).encode()
    text += b" " * (-len(text) % 4)
    chunks = b"".join(
        struct.pack("<II", len(data), kind) + data
        for data, kind in ((text, _JSON_CHUNK), (binary, _BINARY_CHUNK))
    )
    return struct.pack("<III", _GLB_MAGIC, 2, 12 + len(chunks)) + chunks


def build_rotation(degrees: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the rotation about x, then y, then z, as a quaternion."""
    sines = np.sin(np.radians(degrees) / 2)
    cosines = np.cos(np.radians(degrees) / 2)
    (sx, sy, sz), (cx, cy, cz) = sines.tolist(), cosines.tolist()
    return (
        sx * cy * cz - cx * sy * sz,
        cx * sy * cz + sx * cy * sz,
        cx * cy * sz - sx * sy * cz,
        cx * cy * cz + sx * sy * sz,
    )


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
_DEFAULT_COLOUR: Final = "#0072b2"
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
    """Return the requested bodies. Raises `ToolRefused` if there are none."""
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
    """Parse `a red box 2 x 1 x 1`. Several bodies are placed side by side."""
    found: list[JsonObject] = []
    for match in _SHAPE_PATTERN.finditer(text[:4000].replace(" and ", " ;and ")):
        part: dict[str, Json] = {"shape": _SHAPE_NAMES[match["shape"].lower()]}
        if match["colour"]:
            part["color"] = match["colour"].lower()
        for measure in _MEASURE_PATTERN.finditer(match["rest"]):
            part[measure["name"].lower()] = float(measure["value"])
        if sizes := _DIMENSIONS_PATTERN.search(match["rest"]):
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
        colour=_parse_colour(str(part.get("color", part.get("colour", _DEFAULT_COLOUR)))),
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
        return _check_length(x), _check_length(y), _check_length(z)
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
    return default if found is None else _check_length(found)


def _check_length(length: float) -> float:
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
    """Convert a colour name or `#rrggbb` to linear RGB for glTF."""
    text = _COLOUR_VALUES.get(colour.strip().lower(), colour.strip())
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        text = _DEFAULT_COLOUR
    red, green, blue = (round((int(text[at : at + 2], 16) / 255) ** 2.2, 4) for at in (1, 3, 5))
    return red, green, blue
