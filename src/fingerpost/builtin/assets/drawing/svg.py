"""A picture as SVG. Every text is escaped; there is nothing in it that could run or load anything."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from fingerpost.builtin.assets.drawing.shapes import PAPER, Dot, Mark, Picture, Point, Shape, Stroke, Words

_FONT: Final = "Helvetica Neue, Helvetica, Arial, Noto Sans, sans-serif"
_NOT_XML: Final = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_svg(picture: Picture) -> bytes:
    """A whole document."""
    width, height = _number(picture.width), _number(picture.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label={_quoted(picture.title)} '
        f'font-family="{_FONT}">'
    )
    lines = [head, f"<title>{_text(picture.title)}</title>"]
    lines.append(f'<rect width="{width}" height="{height}" fill="{PAPER}"/>')
    lines += [_mark(mark) for mark in picture.marks]
    lines.append("</svg>\n")
    return "\n".join(lines).encode()


def _mark(mark: Mark) -> str:
    if isinstance(mark, Words):
        return _words(mark)
    if isinstance(mark, Dot):
        x, y = mark.centre
        return f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(mark.radius)}" fill="{mark.fill}"/>'
    if isinstance(mark, Stroke):
        dashes = ' stroke-dasharray="5 4"' if mark.dashed else ""
        return (
            f'<polyline points="{_points(mark.points)}" fill="none" stroke="{mark.colour}" '
            f'stroke-width="{_number(mark.width)}" stroke-linejoin="round" stroke-linecap="round"{dashes}/>'
        )
    return _shape(mark)


def _shape(mark: Shape) -> str:
    paint = f'fill="{mark.fill or "none"}"'
    if mark.stroke:
        paint += f' stroke="{mark.stroke}" stroke-width="{_number(mark.width)}"'
    if mark.corner:
        (left, top), _, (right, bottom), _ = mark.points
        size = f'width="{_number(right - left)}" height="{_number(bottom - top)}"'
        return f'<rect x="{_number(left)}" y="{_number(top)}" {size} rx="{_number(mark.corner)}" {paint}/>'
    return f'<polygon points="{_points(mark.points)}" {paint} stroke-linejoin="round"/>'


def _words(mark: Words) -> str:
    x, y = _number(mark.at[0]), _number(mark.at[1])
    anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
    weight = ' font-weight="600"' if mark.bold else ""
    turn = f' transform="rotate(-90 {x} {y})"' if mark.turned else ""
    return (
        f'<text x="{x}" y="{y}" font-size="{_number(mark.size)}" fill="{mark.colour}"'
        f"{anchor}{weight}{turn}>{_text(mark.text)}</text>"
    )


def _points(points: tuple[Point, ...]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{round(value, 2):g}" if abs(value) < 100_000 else str(round(value))


def _text(text: str) -> str:
    return escape(_NOT_XML.sub("", text))


def _quoted(text: str) -> str:
    return quoteattr(_NOT_XML.sub("", text))
