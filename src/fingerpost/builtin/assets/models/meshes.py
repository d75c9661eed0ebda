"""Bodies as triangles, each corner with the direction its surface faces. Y is up, sizes are in metres."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen

FloatArray = NDArray[np.float32]
SEGMENTS: Final = 48  # parts of a full turn


@frozen(kw_only=False)
class Mesh:
    """Corners, where their surface faces, and three of them to a triangle, seen from outside leftwards."""

    positions: FloatArray
    normals: FloatArray
    triangles: NDArray[np.uint32]


def build_cuboid(width: float, height: float, depth: float) -> Mesh:
    """A box."""
    positions: list[FloatArray] = []
    normals: list[FloatArray] = []
    half = np.asarray([width, height, depth], np.float32) / 2
    for axis in range(3):
        for side in (-1.0, 1.0):
            normal = np.zeros(3, np.float32)
            normal[axis] = side
            one, other = np.roll(np.eye(3, dtype=np.float32), axis, axis=1)[1:]
            one = one * side  # so that all six are seen from outside
            corners = [normal - one - other, normal + one - other, normal + one + other, normal - one + other]
            positions += [corner * half for corner in corners]
            normals += [normal] * 4
    faces = np.asarray([[0, 1, 2], [0, 2, 3]], np.uint32)
    triangles = np.concatenate([faces + 4 * face for face in range(6)])
    return Mesh(np.stack(positions), np.stack(normals), triangles)


def build_revolved(profile: Sequence[tuple[float, float]], slopes: Sequence[tuple[float, float]]) -> Mesh:
    """What a line makes that goes round the upright axis: points (radius, height), and where each faces."""
    angles = np.linspace(0, 2 * np.pi, SEGMENTS + 1, dtype=np.float32)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    radii, heights = np.asarray(profile, np.float32).T
    outward, upward = np.asarray(slopes, np.float32).T
    positions = _build_rings(around, radii, heights)
    normals = _build_rings(around, outward, upward)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.float32(1e-9))
    return Mesh(positions, normals, _build_strips(len(profile), SEGMENTS + 1))


def _build_rings(around: FloatArray, radii: FloatArray, heights: FloatArray) -> FloatArray:
    """Points of all rings, one ring after another."""
    made = np.empty((len(radii), len(around), 3), np.float32)
    made[..., 0] = radii[:, None] * around[None, :, 0]
    made[..., 1] = heights[:, None]
    made[..., 2] = -radii[:, None] * around[None, :, 1]
    return made.reshape(-1, 3)


def _build_strips(rings: int, size: int) -> NDArray[np.uint32]:
    """Two triangles for each field between neighbouring rings."""
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
    """A cylinder, a cone, or what is between: closed below and above."""
    half = height / 2
    profile = [(0.0, -half), (below, -half), (below, -half), (above, half), (above, half), (0.0, half)]
    side = (height, below - above)
    slopes = [(0.0, -1.0), (0.0, -1.0), side, side, (0.0, 1.0), (0.0, 1.0)]
    return build_revolved(profile, slopes)


def build_torus(radius: float, tube: float) -> Mesh:
    """A torus, lying."""
    turns = np.linspace(-np.pi, np.pi, SEGMENTS // 2 + 1)
    slopes = [(float(np.cos(turn)), float(np.sin(turn))) for turn in turns]
    return build_revolved([(radius + tube * out, tube * up) for out, up in slopes], slopes)


def drop_empty_triangles(mesh: Mesh) -> Mesh:
    """Without triangles that have no area: where a ring is a point, half of them have none."""
    corners = mesh.positions[mesh.triangles]
    sides = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    area = np.linalg.norm(sides, axis=1)
    return Mesh(mesh.positions, mesh.normals, mesh.triangles[area > area.max() * 1e-7])
