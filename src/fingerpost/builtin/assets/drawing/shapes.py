"""A picture as a list of shapes: the same for every way to write it down. Sizes are in pixels."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from fingerpost.frozen import frozen

Point: TypeAlias = tuple[float, float]
TextAnchor = Literal["start", "middle", "end"]

INK_COLOUR: Final = "#1f2933"
SOFT_COLOUR: Final = "#52606d"
FAINT_COLOUR: Final = "#e4e7eb"
AXIS_COLOUR: Final = "#9aa5b1"
PAPER_COLOUR: Final = "#ffffff"
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
PALETTE: Final = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7a5195", "#8c8c00",
)  # fmt: skip


@frozen
class OutlineShape:
    """A filled outline. `corner` rounds it where it is a rectangle."""

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
    """One line of text; `at` is on its baseline. Turned: read from below to above."""

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
    """All of it, from back to front."""

    width: float
    height: float
    title: str
    marks: tuple[PictureMark, ...]


def build_box(left: float, top: float, width: float, height: float) -> tuple[Point, ...]:
    return ((left, top), (left + width, top), (left + width, top + height), (left, top + height))


_NARROW_LETTERS: Final = frozenset("iljtfrI.,:;|!'`()[]{} -/\\")
_WIDE_LETTERS: Final = frozenset("mwMW@%—…")


def estimate_width(text: str, size: float) -> float:
    """About how wide a line of a sans-serif font is: rather too much than too little."""
    return size * sum(_get_advance(letter) for letter in text)


def _get_advance(letter: str) -> float:
    if letter in _NARROW_LETTERS:
        return 0.34
    if letter in _WIDE_LETTERS:
        return 0.92
    if ord(letter) >= 0x1100:  # scripts whose letters fill a square
        return 1.05
    return 0.7 if letter.isupper() else 0.58


def shorten_text(text: str, size: float, width: float) -> str:
    """As much of it as fits into `room`."""
    if estimate_width(text, size) <= width:
        return text
    while text and estimate_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrap_text(text: str, size: float, width: float, limit: int) -> tuple[str, ...]:
    """The text broken between words into at most `most` lines, the last cut where it does not end."""
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
