"""Pictures as lists of shapes, rendered as PNG and SVG. Text in SVG is escaped, so it cannot run or load
anything.
"""

from __future__ import annotations

import re
import struct
import unicodedata
import zlib
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, Literal, TypeAlias
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from numpy.typing import NDArray

from fingerpost.frozen import frozen

Point: TypeAlias = tuple[float, float]
TextAnchor = Literal["start", "middle", "end"]

INK_COLOUR: Final = "#1f2933"
SOFT_COLOUR: Final = "#52606d"
FAINT_COLOUR: Final = "#e4e7eb"
AXIS_COLOUR: Final = "#9aa5b1"
PAPER_COLOUR: Final = "#ffffff"
# The Okabe-Ito palette, which is suitable for all kinds of colour vision.
PALETTE: Final = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7a5195", "#8c8c00",
)  # fmt: skip


@frozen
class OutlineShape:
    """A filled outline. `corner` is the corner radius of a rectangle."""

    points: tuple[Point, ...]
    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0
    corner: float = 0.0


@frozen
class LineStroke:
    """A line through points."""

    points: tuple[Point, ...]
    colour: str = INK_COLOUR
    width: float = 1.0
    dashed: bool = False


@frozen
class CircleDot:
    """A filled circle."""

    centre: Point
    radius: float
    fill: str


@frozen
class TextLine:
    """One line of text; `at` is on its baseline. Rotated text reads upwards."""

    text: str
    at: Point
    size: float = 12.0
    colour: str = INK_COLOUR
    anchor: TextAnchor = "start"
    bold: bool = False
    turned: bool = False


PictureMark: TypeAlias = OutlineShape | LineStroke | CircleDot | TextLine


@frozen
class Picture:
    """A picture: its marks from back to front."""

    width: float
    height: float
    title: str
    marks: tuple[PictureMark, ...]


def build_box(left: float, top: float, width: float, height: float) -> tuple[Point, ...]:
    return ((left, top), (left + width, top), (left + width, top + height), (left, top + height))


_NARROW_LETTERS: Final = frozenset("iljtfrI.,:;|!'`()[]{} -/\\")
_WIDE_LETTERS: Final = frozenset("mwMW@%—…")


def estimate_width(text: str, size: float) -> float:
    """Estimate the width of a line in a sans-serif font, rather too wide than too narrow."""
    return size * sum(_get_advance(letter) for letter in text)


def _get_advance(letter: str) -> float:
    if letter in _NARROW_LETTERS:
        return 0.34
    if letter in _WIDE_LETTERS:
        return 0.92
    if ord(letter) >= 0x1100:  # scripts with full-width letters
        return 1.05
    return 0.7 if letter.isupper() else 0.58


def shorten_text(text: str, size: float, width: float) -> str:
    """Return the part of the text that fits into `width`."""
    if estimate_width(text, size) <= width:
        return text
    while text and estimate_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrap_text(text: str, size: float, width: float, limit: int) -> tuple[str, ...]:
    """Wrap the text at words into at most `limit` lines. The last line is shortened if text remains."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and estimate_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > limit:
        lines = [*lines[: limit - 1], " ".join(lines[limit - 1 :])]
    return tuple(shorten_text(line, size, width) for line in lines)


_GRID_UNIT: Final = 0.118  # of the font size, per grid step
_LETTER_WIDTH_SHARE: Final = 0.76  # of a letter's advance width; the rest is spacing
_BASELINE: Final = 2

_LETTER_FORMS: Final[Mapping[str, str]] = {
    "A": "022842 1434", "B": "02083847463505 3544433202", "C": "4738180703123243", "D": "02082847432202",
    "E": "48080242 0535", "F": "480802 0535", "G": "47381807031232434525", "H": "0208 4248 0545",
    "I": "1232 1838 2228", "J": "4843321203", "K": "0208 4804 1542", "L": "080242", "M": "0208254842",
    "N": "02084248", "O": "180703123243473818", "P": "02083847463505", "Q": "180703123243473818 2442",
    "R": "02083847463505 2542", "S": "473818070615354443321203", "T": "0848 2228", "U": "080312324348",
    "V": "082248", "W": "0812253248", "X": "0842 0248", "Y": "082548 2522", "Z": "08480242",
    "a": "16364542 441403123243", "b": "0802 0516364543321203", "c": "4536160503123243",
    "d": "4842 4536160503123243", "e": "044445361605031232", "f": "12172838 0636",
    "g": "46413010 4536160503123243", "h": "0802 0516364542", "i": "2226 2828", "j": "26211000 2828",
    "k": "0802 3603 1432", "l": "282332", "m": "0206 05162522 25364542", "n": "0206 0516364542",
    "o": "160503123243453616", "p": "0006 0516364543321203", "q": "4046 4536160503123243",
    "r": "0206 051636", "s": "45361605143443321203", "t": "18132232 0636", "u": "0603123243 4246",
    "v": "062246", "w": "0612243246", "x": "0246 0642", "y": "0622 461000", "z": "06460242",
    "0": "180703123243473818", "1": "172822 1232", "2": "07183847460242",
    "3": "07183847463515 354443321203", "4": "32380444", "5": "480805354443321203",
    "6": "473818070312324344351504", "7": "084812", "8": "15060718384746351504031232434435",
    "9": "031232434738180706153546", ".": "2222", ",": "232211", ":": "2323 2626", ";": "2626 232211",
    "!": "2824 2222", "?": "071838474624 2222", "-": "1535", "–": "0545", "—": "0545", "_": "0141",
    "+": "0545 2327", "=": "0444 0646", "/": "0248", "\\": "0842", "(": "38171332", "[": "38181232",
    ")": "18373312", "]": "18383212", "{": "382726152423 2332", "}": "182726352423 2312", "<": "460543",
    ">": "064503", "|": "2128", "*": "2327 0644 0446", "%": "0248 0708181707 3233434232",
    "#": "1218 3238 0444 0646",
    "&": "42071827360403122244", "'": "2826", '"': "1816 3836", "^": "062846", "~": "0516253445",
    "@": "42120307183845341425", "$": "473818070615354443321203 2128", "`": "1827", "…": "0202 2222 4242",
    "’": "2826", "°": "1827281718", "€": "473818070312 1232 3243 0535 0434", "£": "4738281712 0242 0535",
    "×": "0347 0743", "·": "2525", "→": "0545 274523", "µ": "0006 0312324246",
}  # fmt: skip


def build_strokes(text: str, size: float) -> tuple[list[list[Point]], float]:
    """Return the strokes of a line of text, with baseline 0 and y downwards, and its width."""
    unit, left = _GRID_UNIT * size, 0.0
    strokes: list[list[Point]] = []
    for letter in text:
        advance = estimate_width(letter, size)
        runs = [
            [(int(run[at]), int(run[at + 1])) for at in range(0, len(run), 2)]
            for run in _get_form(letter).split()
        ]
        columns = [x for run in runs for x, _ in run] or [0]
        first, ink = min(columns), (max(columns) - min(columns)) * unit
        squeeze = advance * _LETTER_WIDTH_SHARE / ink if ink > 2 * unit else 1.0
        bearing = (advance - ink * squeeze) / 2
        strokes += [
            [(left + bearing + (x - first) * unit * squeeze, -(y - _BASELINE) * unit) for x, y in run]
            for run in runs
        ]
        left += advance
    return strokes, left


def _get_form(letter: str) -> str:
    if letter.isspace():
        return ""
    if letter not in _LETTER_FORMS:
        letter = unicodedata.normalize("NFKD", letter)[0]  # without accents
    return _LETTER_FORMS.get(letter, "0208484202")  # a box for missing glyphs


def can_draw_text(text: str) -> bool:
    """Return whether every letter has a glyph."""
    return all(
        letter.isspace()
        or letter in _LETTER_FORMS
        or unicodedata.normalize("NFKD", letter)[0] in _LETTER_FORMS
        for letter in text
    )


PNG_SCALE: Final = 2.0  # pixels per picture unit, for high-density screens
_PEN_WIDTH: Final = 0.085  # of the font size
_BOLD_PEN_WIDTH: Final = 0.13
_DASH_AND_GAP: Final = (5.0, 4.0)

_INITIAL_DISTANCE: Final = 1e6

PixelArray = NDArray[np.float32]


@frozen(kw_only=False)
class _PixelWindow:
    """A rectangle of pixels of a canvas."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def middles(self) -> tuple[PixelArray, PixelArray]:
        """The centres of the pixels: a row of x and a column of y."""
        x = np.arange(self.left, self.right, dtype=np.float32) + np.float32(0.5)
        y = np.arange(self.top, self.bottom, dtype=np.float32) + np.float32(0.5)
        return x[None, :], y[:, None]

    def crop(self, low: PixelArray, high: PixelArray, margin: float) -> _PixelWindow:
        """Return the part around these corners."""
        return _PixelWindow(
            max(self.left, min(self.right, int(low[0] - margin))),
            max(self.top, min(self.bottom, int(low[1] - margin))),
            min(self.right, max(self.left, int(high[0] + margin) + 1)),
            min(self.bottom, max(self.top, int(high[1] + margin) + 1)),
        )


def render_png(picture: Picture) -> bytes:
    """Return the PNG file. This is slow: call it in a thread."""
    canvas = _PixelCanvas(picture.width, picture.height)
    for mark in picture.marks:
        canvas.paint_mark(mark)
    return encode_png(np.clip(canvas.pixels * 255 + 0.5, 0, 255).astype(np.uint8))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode rows of RGB as a PNG file."""
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
            self._paint_fill(points, mark.fill)
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
        """Paint a line through all points with round ends. Overlaps are painted once."""
        half = width * PNG_SCALE / 2
        corners = np.asarray(points, np.float32) * PNG_SCALE
        window = self._find_window(corners, half + 1)
        if window is not None:
            nearest = _compute_distances(window, pairwise(corners), half + 1)
            self._blend_colour(window, np.clip(half - nearest + np.float32(0.5), 0, 1), colour)

    def _paint_fill(self, points: tuple[Point, ...], colour: str) -> None:
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
        """Return the pixels that may be affected."""
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
    """Return the distance of each pixel to the nearest edge. Beyond `max_distance` it is not exact."""
    nearest = np.full((window.bottom - window.top, window.right - window.left), _INITIAL_DISTANCE, np.float32)
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
    """Return which pixels are inside an outline: those with an odd number of edges to their right."""
    x, y = window.middles
    inside = np.zeros((y.shape[0], x.shape[1]), bool)
    for (ax, ay), (bx, by) in edges:
        if ay != by:
            crossed = (ay > y) != (by > y)
            inside ^= crossed & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return inside


def _round_corners(points: tuple[Point, ...], corner: float) -> tuple[Point, ...]:
    """Return a rectangle with rounded corners."""
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
    """Return the dashes of a line."""
    found: list[tuple[Point, Point]] = []
    dash, gap = _DASH_AND_GAP
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


_FONT_FAMILY: Final = "Helvetica Neue, Helvetica, Arial, Noto Sans, sans-serif"
_NOT_XML_PATTERN: Final = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_svg(picture: Picture) -> bytes:
    """Return the SVG document."""
    width, height = _format_number(picture.width), _format_number(picture.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={_quote_attribute(picture.title)} '
        f'font-family="{_FONT_FAMILY}">'
    )
    lines = [head, f"<title>{_escape_text(picture.title)}</title>"]
    lines.append(f'<rect width="{width}" height="{height}" fill="{PAPER_COLOUR}"/>')
    lines += [_render_mark(mark) for mark in picture.marks]
    lines.append("</svg>\n")
    return "\n".join(lines).encode()


def _render_mark(mark: PictureMark) -> str:
    if isinstance(mark, TextLine):
        return _render_text(mark)
    if isinstance(mark, CircleDot):
        x, y = mark.centre
        return (
            f'<circle cx="{_format_number(x)}" cy="{_format_number(y)}" '
            f'r="{_format_number(mark.radius)}" fill="{mark.fill}"/>'
        )
    if isinstance(mark, LineStroke):
        dashes = ' stroke-dasharray="5 4"' if mark.dashed else ""
        return (
            f'<polyline points="{_format_points(mark.points)}" fill="none" stroke="{mark.colour}" '
            f'stroke-width="{_format_number(mark.width)}" stroke-linejoin="round" '
            f'stroke-linecap="round"{dashes}/>'
        )
    return _render_shape(mark)


def _render_shape(mark: OutlineShape) -> str:
    paint = f'fill="{mark.fill or "none"}"'
    if mark.stroke:
        paint += f' stroke="{mark.stroke}" stroke-width="{_format_number(mark.width)}"'
    if mark.corner:
        (left, top), _, (right, bottom), _ = mark.points
        size = f'width="{_format_number(right - left)}" height="{_format_number(bottom - top)}"'
        return (
            f'<rect x="{_format_number(left)}" y="{_format_number(top)}" {size} '
            f'rx="{_format_number(mark.corner)}" {paint}/>'
        )
    return f'<polygon points="{_format_points(mark.points)}" {paint} stroke-linejoin="round"/>'


def _render_text(mark: TextLine) -> str:
    x, y = _format_number(mark.at[0]), _format_number(mark.at[1])
    anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
    weight = ' font-weight="600"' if mark.bold else ""
    turn = f' transform="rotate(-90 {x} {y})"' if mark.turned else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{_format_number(mark.size)}" fill="{mark.colour}"'
        f"{anchor}{weight}{turn}>{_escape_text(mark.text)}</text>"
    )


def _format_points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{_format_number(x)},{_format_number(y)}" for x, y in points)


def _format_number(value: float) -> str:
    return f"{round(value, 2):g}" if abs(value) < 100_000 else str(round(value))


def _escape_text(text: str) -> str:
    return escape(_NOT_XML_PATTERN.sub("", text))


def _quote_attribute(text: str) -> str:
    return quoteattr(_NOT_XML_PATTERN.sub("", text))
