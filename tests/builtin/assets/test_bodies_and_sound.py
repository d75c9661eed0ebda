"""3D models and tones, read back with independent parsers."""

from __future__ import annotations

import io
import json
import struct
import wave
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fingerpost.builtin.assets.bodies import parse_bodies, render_glb
from fingerpost.builtin.assets.sound import parse_tune, render_wav
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.records import Json
from fingerpost.settings import Settings
from tests.builtin.assets.test_pictures import json_values
from tests.kit.assets import maker, order_asset, place_order
from tests.requirements import proves

COMPONENTS = {5125: np.dtype("<u4"), 5126: np.dtype("<f4")}
WIDTHS = {"SCALAR": 1, "VEC3": 3}


class Glb:
    """A binary glTF, taken apart as the specification says; whatever is wrong fails."""

    def __init__(self, data: bytes) -> None:
        magic, version, length = struct.unpack("<4sII", data[:12])
        assert (magic, version, length) == (b"glTF", 2, len(data))
        size, kind = struct.unpack("<I4s", data[12:20])
        assert kind == b"JSON" and size % 4 == 0
        self.document: dict[str, Any] = json.loads(data[20 : 20 + size])
        rest = data[20 + size :]
        binary_size, kind = struct.unpack("<I4s", rest[:8])
        assert kind == b"BIN\0" and binary_size % 4 == 0 and binary_size == len(rest) - 8
        self.binary = rest[8:]
        assert self.document["asset"]["version"] == "2.0"
        assert self.document["buffers"] == [{"byteLength": len(self.binary)}]

    def values(self, number: int) -> NDArray[Any]:
        accessor = self.document["accessors"][number]
        view = self.document["bufferViews"][accessor["bufferView"]]
        dtype, width = COMPONENTS[accessor["componentType"]], WIDTHS[accessor["type"]]
        size = accessor["count"] * width * dtype.itemsize
        assert view["byteOffset"] % 4 == 0 and size == view["byteLength"]
        assert view["byteOffset"] + size <= len(self.binary)
        found = np.frombuffer(self.binary, dtype, accessor["count"] * width, view["byteOffset"])
        shaped = found.reshape(-1, width) if width > 1 else found
        if "min" in accessor:
            assert np.atleast_1d(shaped.min(axis=0)).tolist() == accessor["min"]
            assert np.atleast_1d(shaped.max(axis=0)).tolist() == accessor["max"]
        return shaped

    @property
    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that have a mesh."""
        return [node for node in self.document["nodes"] if "mesh" in node]

    def check(self) -> None:
        """Every mesh: bounds, indices, unit normals, all triangles seen from outside."""
        for node in self.nodes:
            (part,) = self.document["meshes"][node["mesh"]]["primitives"]
            positions, normals = (self.values(part["attributes"][name]) for name in ("POSITION", "NORMAL"))
            corners = self.values(part["indices"]).reshape(-1, 3)
            assert "min" in self.document["accessors"][part["attributes"]["POSITION"]]
            assert corners.max() < len(positions) == len(normals)
            assert np.allclose(np.linalg.norm(normals, axis=1), 1, atol=1e-4)
            assert part["material"] < len(self.document["materials"])
            a, b, c = (positions[corners[:, at]].astype(float) for at in range(3))
            faces = np.cross(b - a, c - a)
            assert (np.linalg.norm(faces, axis=1) > 0).all()
            meant = normals[corners].mean(axis=1)
            assert ((faces * meant).sum(axis=1) > 0).all()
            matrix = np.reshape(node.get("matrix", np.eye(4)), (4, 4))[:3, :3]
            assert np.linalg.det(matrix) == pytest.approx(1)

    def size(self, node: int = 0) -> list[float]:
        part = self.document["meshes"][self.nodes[node]["mesh"]]["primitives"][0]
        accessor = self.document["accessors"][part["attributes"]["POSITION"]]
        spans = zip(accessor["min"], accessor["max"], strict=True)
        return [round(high - low, 4) for low, high in spans]


@pytest.mark.slow
@proves("B3", "U13")
async def test_3d_models_are_valid_gltf(settings: Settings):
    parts = [
        {"shape": "box", "size": [2, 1, 3], "position": [0, 0.5, 0], "color": "#d55e00", "name": "base"},
        {"shape": "sphere", "radius": 0.5, "position": [0, 2, 0]},
        {"shape": "cylinder", "radius": 0.25, "height": 4, "rotation": [90, 0, 45]},
        {"shape": "cone", "radius": 1, "height": 2},
        {"shape": "torus", "radius": 2, "tube": 0.25},
    ]
    async with maker(settings) as router:
        model = await order_asset(router, kind="model3d", data=parts, title="Bits")
        words = await order_asset(router, prompt="a 3D model of a red cylinder, radius 1, height 3")
    assert (model.media_type, model.name) == ("model/gltf-binary", "bits.glb")
    glb = Glb(model.data)
    glb.check()
    assert glb.nodes[0]["name"] == "base"
    assert [glb.size(at) for at in range(5)] == [
        [2, 1, 3], [1, 1, 1], [0.5, 4, 0.5], [2, 2, 2], [4.5, 0.5, 4.5]
    ]  # fmt: skip
    red = Glb(words.data)
    red.check()
    assert red.size() == [2, 3, 2]
    colour = red.document["materials"][0]["pbrMetallicRoughness"]["baseColorFactor"]
    assert colour[0] > 4 * colour[1] and colour[0] > 4 * colour[2]


@given(json_values, st.text(max_size=60))
def test_any_data_becomes_bodies_or_is_refused(data: Json, prompt: str):
    try:
        bodies = parse_bodies(data, prompt)
    except ToolRefused:
        return
    Glb(render_glb(bodies, "x")).check()


lengths = st.floats(0.001, 10_000)
parts = st.fixed_dictionaries(
    {"shape": st.sampled_from(["box", "sphere", "cylinder", "cone", "torus"])},
    optional=dict.fromkeys(("radius", "height", "tube", "width", "depth", "size", "top"), lengths),
)


@given(st.lists(parts, min_size=1, max_size=3))
def test_bodies_of_any_size_are_valid(wanted: list[dict[str, Any]]):
    try:
        bodies = parse_bodies(wanted, "")
    except ToolRefused:
        return
    Glb(render_glb(bodies, "x")).check()


def read_wav(data: bytes) -> tuple[float, NDArray[np.float64]]:
    """Seconds and samples of a WAV."""
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 44_100)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32767
    return len(samples) / 44_100, samples


def loudest(samples: NDArray[np.float64], many: int = 1) -> list[int]:
    """The loudest frequencies."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    found: list[int] = []
    for _ in range(many):
        at = int(spectrum.argmax())
        found.append(round(at * 44_100 / len(samples)))
        spectrum[max(0, at - 20) : at + 20] = 0
    return sorted(found)


@proves("B3", "U13")
async def test_tones_sound_as_they_should(settings: Settings):
    async with maker(settings) as router:
        tone = await order_asset(router, kind="audio", prompt="a tone of 880 Hz for 2 seconds")
        chord = await order_asset(router, kind="audio", prompt="an A minor chord")
        tune = await order_asset(router, kind="audio", data={"notes": "C4 E4 G4/2 -", "bpm": 120})
    seconds, samples = read_wav(tone.data)
    assert (tone.media_type, seconds, loudest(samples)) == ("audio/wav", 2.0, [880])
    assert loudest(read_wav(chord.data)[1], 3) == pytest.approx([440, 523, 659], abs=1)
    seconds, samples = read_wav(tune.data)
    beat = 22_050
    assert seconds == 2.5
    assert [loudest(samples[at * beat : (at + 1) * beat]) for at in range(3)] == [
        pytest.approx([hertz], abs=2) for hertz in (262, 330, 392)
    ]
    assert not samples[-beat:].any() and np.abs(samples).max() <= 0.81


@proves("U13")
async def test_what_cannot_sound_is_said(settings: Settings):
    async with maker(settings) as router:
        for order, why in (
            ({"kind": "audio", "prompt": "something sad"}, "C4 E4"),
            ({"kind": "audio", "prompt": "a tone of 90000 Hz"}, "16,000 Hz"),
            ({"kind": "audio", "data": {"notes": [{"hz": 440, "seconds": 5000}]}}, "at most 120 s"),
        ):
            outcome = await place_order(router, **order)
            assert not outcome.success and why in outcome.content, outcome.content


@given(
    json_values | st.lists(st.sampled_from(["C4", "D#5", "A4+C5", "-", "x", "G2/3", "/", "E9"])),
    st.text(max_size=60),
)
def test_any_data_becomes_a_tune_or_is_refused(data: Json, prompt: str):
    try:
        tune = parse_tune(data, prompt)
    except ToolRefused:
        return
    seconds, _ = read_wav(render_wav(tune))
    assert seconds == pytest.approx(tune.seconds, abs=len(tune.tones) / 22_050)
