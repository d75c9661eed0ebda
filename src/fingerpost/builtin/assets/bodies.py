"""Simple 3D bodies: parsed from parts or text, built and written as binary glTF by trimesh."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast

import numpy as np

from fingerpost.builtin.assets.pictures import load_library
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

SEGMENTS: Final = 48  # of a full turn


@frozen
class SolidBody:
    """A shape with its measures, position and colour."""

    name: str
    shape: str
    measures: JsonObject
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[float, float, float] = (0.0, 0.0, 0.0)  # degrees about x, then y, then z
    colour: tuple[float, float, float] = (0.0, 0.17, 0.45)  # linear red, green, blue


def render_glb(bodies: Sequence[SolidBody], title: str) -> bytes:
    """Return the glTF file. Raises `ToolRefused` if trimesh is not installed."""
    trimesh = load_library("trimesh")
    scene = trimesh.Scene()
    for number, body in enumerate(bodies):
        mesh = _build_mesh(body.shape, body.measures, trimesh.creation)
        _set_normals(mesh)
        mesh.visual = trimesh.visual.TextureVisuals(
            material=trimesh.visual.material.PBRMaterial(
                name=f"{body.name} surface",
                baseColorFactor=[*body.colour, 1.0],
                metallicFactor=0.0,
                roughnessFactor=0.7,
            )
        )
        place = trimesh.transformations.euler_matrix(*np.radians(body.rotation), axes="sxyz")
        place[:3, 3] = body.position
        scene.add_geometry(mesh, node_name=f"node {number}", geom_name=str(number), transform=place)

    def set_names(tree: dict[str, Any]) -> None:
        """Give nodes and meshes the names of the bodies. Within trimesh, names are unique."""
        tree["asset"]["generator"] = "Fingerpost"
        tree["scenes"][0]["name"] = title
        for node in tree["nodes"]:
            if "mesh" in node:
                mesh = tree["meshes"][node["mesh"]]
                node["name"] = mesh["name"] = bodies[int(mesh["name"])].name

    exported = trimesh.exchange.gltf.export_glb(scene, include_normals=True, tree_postprocessor=set_names)
    return cast("bytes", exported)


def _build_mesh(shape: str, part: JsonObject, creation: Any) -> Any:
    if shape == "box":
        box = creation.box(extents=_parse_sizes(part))
        box.unmerge_vertices()  # so that its edges are sharp
        return box
    radius = _parse_radius(part, 0.5)
    if shape == "sphere":
        return _revolve([_build_arc(0.0, radius, math.pi)], creation)
    if shape == "torus":
        tube = min(max(_parse_length(part, "tube", radius * 0.3), radius * 1e-4), radius)
        return _revolve([_build_arc(radius, tube, 2 * math.pi)], creation)
    half = _parse_length(part, "height", 1.0) / 2
    top = 0.0 if shape == "cone" else _parse_length(part, "top", radius)
    corners = [(0.0, -half), (radius, -half), (top, half), (0.0, half)]
    return _revolve([[one, other] for one, other in pairwise(corners) if one != other], creation)


def _set_normals(mesh: Any) -> None:
    """Set each vertex's normal to the mean of the faces around it; trimesh would need scipy for that. Faces
    that have no area in the file's 32-bit numbers are removed.
    """
    corners = mesh.vertices.astype(np.float32).astype(float)[mesh.faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    areas = np.linalg.norm(across, axis=1)
    kept = areas > 0
    mesh.update_faces(kept)
    normals = np.zeros(mesh.vertices.shape)
    np.add.at(normals, mesh.faces.ravel(), np.repeat(across[kept] / areas[kept, None], 3, axis=0))
    lengths = np.linalg.norm(normals, axis=1)
    used = lengths > 0
    normals[used] /= lengths[used, None]
    normals[~used] = (0, 1, 0)  # no face is there
    mesh.vertex_normals = normals


def _build_arc(radius: float, tube: float, turn: float) -> list[tuple[float, float]]:
    """Return the points (radius, height) of an arc that is symmetric about the horizontal axis."""
    angles = np.linspace(-turn / 2, turn / 2, SEGMENTS // 2 + 1)
    arc = [(max(0.0, radius + tube * math.cos(angle)), tube * math.sin(angle)) for angle in angles]
    if radius == 0:
        arc[0], arc[-1] = (0.0, -tube), (0.0, tube)
    return arc


def _revolve(profiles: Sequence[Sequence[tuple[float, float]]], creation: Any) -> Any:
    """Build a body from surfaces of revolution about the vertical axis. Edges between profiles are sharp."""
    surfaces: list[Any] = []
    for profile in profiles:
        points = np.asarray(profile)
        sizes = np.abs(points).max(axis=0)
        # Of the size 1 first: trimesh leaves out small triangles.
        surfaces.append(creation.revolve(points / sizes, sections=SEGMENTS))
        surfaces[-1].apply_scale((sizes[0], sizes[0], sizes[1]))
    mesh: Any = sum(surfaces[1:], surfaces[0])
    mesh.apply_transform([[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0], [0, 0, 0, 1]])  # z upwards to y upwards
    return mesh


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
    rf"(?:(?P<colour>{'|'.join(_COLOUR_VALUES)})\s+)?(?:\w+\s+)?"
    rf"\b(?P<shape>{'|'.join(_SHAPE_NAMES)})s?\b(?P<rest>[^;\n]*)",
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
        raise ToolRefused("There is no body to make.", hint=BODY_HINT)
    if len(parts) > MAX_PARTS:
        message = f"A model has at most {MAX_PARTS} parts, and this has {len(parts)}."
        raise ToolRefused(message, hint="Make several models.")
    return tuple(_build_body(number, part) for number, part in enumerate(parts, 1))


def _parse_parts(data: Json) -> Sequence[JsonObject]:
    if isinstance(data, Mapping):
        inner = data.get("parts", data.get("shapes"))
        if isinstance(inner, list | tuple):
            return _parse_parts(inner)
        return (data,) if "shape" in data else ()
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
        if part["shape"] == "box":
            half = max(_parse_sizes(part)[0], _parse_radius(part, 0.0))
        else:
            tube = _parse_length(part, "tube", 0.2) if part["shape"] == "torus" else 0.0
            half = _parse_radius(part, 0.5) + tube
        made.append({**part, "position": [left + half, 0, 0]})
        left += 2 * half + 0.5
    return made


def _build_body(number: int, part: JsonObject) -> SolidBody:
    shape = _SHAPE_NAMES.get(str(part.get("shape", "")).lower())
    if shape is None:
        raise ToolRefused(f"Part {number} has no shape we know.", hint=BODY_HINT)
    return SolidBody(
        name=str(part.get("name") or f"{shape} {number}")[:60],
        shape=shape,
        measures=part,
        position=_parse_vector(part.get("position"), 0.0),
        rotation=_parse_vector(part.get("rotation"), 0.0),
        colour=_parse_colour(str(part.get("color", part.get("colour", _DEFAULT_COLOUR)))),
    )


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
