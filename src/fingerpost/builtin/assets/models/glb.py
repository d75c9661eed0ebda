"""Bodies as one binary glTF 2.0 file."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from fingerpost.builtin.assets.models.meshes import Mesh
from fingerpost.frozen import frozen
from fingerpost.records import Json, JsonObject

_GLB_MAGIC: Final = 0x46546C67
_JSON_CHUNK: Final = 0x4E4F534A
_BINARY_CHUNK: Final = 0x004E4942
_FLOAT_TYPE: Final = 5126
_UINT_TYPE: Final = 5125
_ARRAY_BUFFER: Final = 34962
_ELEMENT_BUFFER: Final = 34963


@frozen
class SolidBody:
    """A mesh in its place and colour."""

    name: str
    mesh: Mesh
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 1.0)  # a quaternion, x y z w
    colour: tuple[float, float, float] = (0.0, 0.17, 0.45)  # linear red, green, blue


def render_glb(bodies: Sequence[SolidBody], title: str) -> bytes:
    """The whole file."""
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
    """Turns about x, then y, then z, as a quaternion."""
    sines = np.sin(np.radians(degrees) / 2)
    cosines = np.cos(np.radians(degrees) / 2)
    (sx, sy, sz), (cx, cy, cz) = sines.tolist(), cosines.tolist()
    return (
        sx * cy * cz - cx * sy * sz,
        cx * sy * cz + sx * cy * sz,
        cx * cy * sz - sx * sy * cz,
        cx * cy * cz + sx * sy * sz,
    )
