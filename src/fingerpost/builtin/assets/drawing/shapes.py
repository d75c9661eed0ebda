"""A picture as a list of shapes: the same for every way to write it down. Sizes are in pixels."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from fingerpost.frozen import frozen

Point: TypeAlias = tuple[float, float]
Anchor = Literal["start", "middle", "end"]

INK: Final = "#1f2933"
SOFT: Final = "#52606d"
FAINT: Final = "#e4e7eb"
AXIS: Final = "#9aa5b1"
PAPER: Final = "#ffffff"
# Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
PALETTE: Final = (
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7a5195", "#8c8c00",
)  # fmt: skip


@frozen
class Shape:
    """A filled outline. `corner` rounds it where it is a rectangle."""

    points: tuple[Point, ...]
    fill: str | None = None
    stroke: str | None = None
    width: float = 1.0
    corner: float = 0.0


@frozen
class Stroke:
    """A line through points."""

    points: tuple[Point, ...]
    colour: str = INK
    width: float = 1.0
    dashed: bool = False


@frozen
class Dot:
    """A filled circle."""

    centre: Point
    radius: float
    fill: str


@frozen
class Words:
    """One line of text; `at` is on its baseline. Turned: read from below to above."""

    text: str
    at: Point
    size: float = 12.0
    colour: str = INK
    anchor: Anchor = "start"
    bold: bool = False
    turned: bool = False


Mark: TypeAlias = Shape | Stroke | Dot | Words


@frozen
class Picture:
    """All of it, from back to front."""

    width: float
    height: float
    title: str
    marks: tuple[Mark, ...]


def box(left: float, top: float, width: float, height: float) -> tuple[Point, ...]:
    return ((left, top), (left + width, top), (left + width, top + height), (left, top + height))


_NARROW: Final = frozenset("iljtfrI.,:;|!'`()[]{} -/\\")
_WIDE: Final = frozenset("mwMW@%—…")


def width_of(text: str, size: float) -> float:
    """About how wide a line of a sans-serif font is: rather too much than too little."""
    return size * sum(_advance(letter) for letter in text)


def _advance(letter: str) -> float:
    if letter in _NARROW:
        return 0.34
    if letter in _WIDE:
        return 0.92
    if ord(letter) >= 0x1100:  # scripts whose letters fill a square
        return 1.05
    return 0.7 if letter.isupper() else 0.58


def shortened(text: str, size: float, room: float) -> str:
    """As much of it as fits into `room`."""
    if width_of(text, size) <= room:
        return text
    while text and width_of(f"{text}…", size) > room:
        text = text[:-1]
    return f"{text.rstrip()}…"


def in_lines(text: str, size: float, room: float, most: int) -> tuple[str, ...]:
    """The text broken between words into at most `most` lines, the last cut where it does not end."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, size) <= room:
            lines[-1] = longer
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return tuple(shortened(line, size, room) for line in lines)
