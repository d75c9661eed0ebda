"""A picture as SVG. Every text is escaped; there is nothing in it that could run or load anything."""

from __future__ import annotations

import re
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from fingerpost.builtin.assets.drawing.shapes import (
    PAPER_COLOUR,
    CircleDot,
    LineStroke,
    OutlineShape,
    Picture,
    PictureMark,
    Point,
    TextLine,
)

_FONT_FAMILY: Final = "Helvetica Neue, Helvetica, Arial, Noto Sans, sans-serif"
_NOT_XML_PATTERN: Final = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_svg(picture: Picture) -> bytes:
    """A whole document."""
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
