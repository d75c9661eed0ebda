"""A picture as PNG: painted here, each edge by how much of a pixel it covers."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fingerpost.builtin.assets.drawing.letters import build_strokes
from fingerpost.builtin.assets.drawing.shapes import (
    CircleDot,
    LineStroke,
    OutlineShape,
    Picture,
    PictureMark,
    Point,
    TextLine,
)
from fingerpost.frozen import frozen

PNG_SCALE: Final = 2.0  # pixels to one of the picture's: sharp on screens of today
_PEN_WIDTH: Final = 0.085  # of the font's size
_BOLD_PEN_WIDTH: Final = 0.13
_DASH_LENGTH: Final = (5.0, 4.0)

_MAX_DISTANCE: Final = 1e6

PixelArray = NDArray[np.float32]


@frozen(kw_only=False)
class _PixelWindow:
    """Some pixels of a canvas."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def middles(self) -> tuple[PixelArray, PixelArray]:
        """Where the middles of its pixels are: a row of x, a column of y."""
        x = np.arange(self.left, self.right, dtype=np.float32) + np.float32(0.5)
        y = np.arange(self.top, self.bottom, dtype=np.float32) + np.float32(0.5)
        return x[None, :], y[:, None]

    def crop(self, low: PixelArray, high: PixelArray, margin: float) -> _PixelWindow:
        """The part of it around these corners."""
        return _PixelWindow(
            max(self.left, min(self.right, int(low[0] - margin))),
            max(self.top, min(self.bottom, int(low[1] - margin))),
            min(self.right, max(self.left, int(high[0] + margin) + 1)),
            min(self.bottom, max(self.top, int(high[1] + margin) + 1)),
        )


def render_png(picture: Picture) -> bytes:
    """A whole file. Takes a while: for a thread."""
    canvas = _PixelCanvas(picture.width, picture.height)
    for mark in picture.marks:
        canvas.paint_mark(mark)
    return encode_png(np.clip(canvas.pixels * 255 + 0.5, 0, 255).astype(np.uint8))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Rows of RGB as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 3)], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_build_chunk(kind, data) for kind, data in chunks)


def _build_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


class _PixelCanvas:
    def __init__(self, width: float, height: float) -> None:
        self.pixels: PixelArray = np.ones(
            (round(height * PNG_SCALE), round(width * PNG_SCALE), 3), np.float32
        )

    def paint_mark(self, mark: PictureMark) -> None:
        if isinstance(mark, TextLine):
            self._paint_text(mark)
        elif isinstance(mark, CircleDot):
            self._paint_line((mark.centre, mark.centre), 2 * mark.radius, mark.fill)
        elif isinstance(mark, LineStroke):
            for run in _split_dashes(mark.points) if mark.dashed else (mark.points,):
                self._paint_line(run, mark.width, mark.colour)
        else:
            self._paint_shape(mark)

    def _paint_shape(self, mark: OutlineShape) -> None:
        points = _round_corners(mark.points, mark.corner) if mark.corner else mark.points
        if mark.fill:
            self._paint_outline(points, mark.fill)
        if mark.stroke:
            self._paint_line((*points, points[0]), mark.width, mark.stroke)

    def _paint_text(self, mark: TextLine) -> None:
        strokes, width = build_strokes(mark.text, mark.size)
        shift = {"start": 0.0, "middle": width / 2, "end": width}[mark.anchor]
        pen = mark.size * (_BOLD_PEN_WIDTH if mark.bold else _PEN_WIDTH)
        left, top = mark.at
        for stroke in strokes:
            placed = [(x - shift, y) for x, y in stroke]
            if mark.turned:
                placed = [(y, -x) for x, y in placed]
            self._paint_line(tuple((left + x, top + y) for x, y in placed), pen, mark.colour)

    def _paint_line(self, points: tuple[Point, ...], width: float, colour: str) -> None:
        """Through all points, with round ends; where parts overlap it is painted once."""
        half = width * PNG_SCALE / 2
        corners = np.asarray(points, np.float32) * PNG_SCALE
        window = self._find_window(corners, half + 1)
        if window is not None:
            nearest = _compute_distances(window, pairwise(corners), half + 1)
            self._blend_colour(window, np.clip(half - nearest + np.float32(0.5), 0, 1), colour)

    def _paint_outline(self, points: tuple[Point, ...], colour: str) -> None:
        corners = np.asarray(points, np.float32) * PNG_SCALE
        window = self._find_window(corners, 1)
        if window is None:
            return
        edges = tuple(zip(corners, np.roll(corners, -1, axis=0), strict=True))
        nearest, inside = _compute_distances(window, edges, 1), _find_inside(window, edges)
        self._blend_colour(
            window, np.clip(np.where(inside, nearest, -nearest) + np.float32(0.5), 0, 1), colour
        )

    def _find_window(self, corners: PixelArray, margin: float) -> _PixelWindow | None:
        """The pixels that may be touched."""
        height, width, _ = self.pixels.shape
        left, top = np.maximum(np.floor(corners.min(axis=0) - margin), 0).astype(int)
        right, bottom = np.minimum(np.ceil(corners.max(axis=0) + margin), (width, height)).astype(int)
        return (
            None
            if left >= right or top >= bottom
            else _PixelWindow(int(left), int(top), int(right), int(bottom))
        )

    def _blend_colour(self, window: _PixelWindow, coverage: PixelArray, colour: str) -> None:
        paint = np.asarray([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)], np.float32)
        part = self.pixels[window.top : window.bottom, window.left : window.right]
        part += (paint - part) * coverage[..., None]


def _compute_distances(
    window: _PixelWindow, edges: Iterable[tuple[PixelArray, PixelArray]], max_distance: float
) -> PixelArray:
    """How far each pixel is from the nearest edge. Beyond `reach` nobody wants to know: it is far."""
    nearest = np.full((window.bottom - window.top, window.right - window.left), _MAX_DISTANCE, np.float32)
    for start, end in edges:
        both = np.stack([start, end])
        near = window.crop(both.min(axis=0), both.max(axis=0), max_distance)
        (ax, ay), (dx, dy) = start, end - start
        x, y = near.middles
        length = float(dx * dx + dy * dy)
        along = np.clip(((x - ax) * dx + (y - ay) * dy) / length, 0, 1) if length else np.float32(0)
        rows = slice(near.top - window.top, near.bottom - window.top)
        columns = slice(near.left - window.left, near.right - window.left)
        part = nearest[rows, columns]
        np.minimum(part, np.hypot(x - ax - along * dx, y - ay - along * dy), out=part)
    return nearest


def _find_inside(window: _PixelWindow, edges: Iterable[tuple[PixelArray, PixelArray]]) -> NDArray[np.bool_]:
    """Which pixels an outline holds: those with an odd number of edges to their right."""
    x, y = window.middles
    inside = np.zeros((y.shape[0], x.shape[1]), bool)
    for (ax, ay), (bx, by) in edges:
        if ay != by:
            crossed = (ay > y) != (by > y)
            inside ^= crossed & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return inside


def _round_corners(points: tuple[Point, ...], corner: float) -> tuple[Point, ...]:
    """A rectangle with its corners rounded off."""
    (left, top), _, (right, bottom), _ = points
    corner = min(corner, (right - left) / 2, (bottom - top) / 2)
    found: list[Point] = []
    middles = ((right - corner, top + corner, -90), (right - corner, bottom - corner, 0),
               (left + corner, bottom - corner, 90), (left + corner, top + corner, 180))  # fmt: skip
    for x, y, start in middles:
        for step in range(9):
            angle = np.radians(start + step * 90 / 8)
            found.append((float(x + corner * np.cos(angle)), float(y + corner * np.sin(angle))))
    return tuple(found)


def _split_dashes(points: tuple[Point, ...]) -> list[tuple[Point, Point]]:
    """The dashes of a line, each by itself."""
    found: list[tuple[Point, Point]] = []
    dash, gap = _DASH_LENGTH
    for (ax, ay), (bx, by) in pairwise(points):
        length = float(np.hypot(bx - ax, by - ay))
        at = 0.0
        while at < length:
            end = min(length, at + dash)
            found.append(
                (
                    (ax + (bx - ax) * at / length, ay + (by - ay) * at / length),
                    (ax + (bx - ax) * end / length, ay + (by - ay) * end / length),
                )
            )
            at += dash + gap
    return found
