"""Boxes and arrows as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fingerpost.builtin.assets.diagrams.layers import Layout, laid_out
from fingerpost.builtin.assets.diagrams.records import Edge, Flow, Node
from fingerpost.builtin.assets.drawing.shapes import (
    PAPER,
    SOFT,
    Mark,
    Picture,
    Point,
    Shape,
    Stroke,
    Words,
    box,
    in_lines,
    shortened,
    width_of,
)
from fingerpost.frozen import frozen

_SIZE: Final = 13.0
_LINE: Final = 17.0
_WIDEST: Final = 170.0
_PAD: Final = 24.0
_TITLE: Final = 18.0
_LABEL: Final = 11.5
_FILLS: Final = {"box": "#e8f1f8", "round": "#e6f4ef", "diamond": "#fdf3e0"}
_RIMS: Final = {"box": "#0072b2", "round": "#009e73", "diamond": "#b97f00"}


@frozen(kw_only=False)
class _Box:
    node: Node
    lines: tuple[str, ...]
    width: float
    height: float

    @classmethod
    def of(cls, node: Node) -> _Box:
        lines = in_lines(node.text, _SIZE, _WIDEST, 4) or ("",)
        width = max(width_of(line, _SIZE) for line in lines) + 28
        height = _LINE * len(lines) + 20
        if node.shape == "diamond":  # its corners hold no words
            return cls(node, lines, width * 1.35 + 16, height * 1.5 + 10)
        return cls(node, lines, max(56.0, width), height)


def draw_flow(flow: Flow) -> Picture:
    """The whole diagram, as large as it has to be."""
    boxes = {node.key: _Box.of(node) for node in flow.nodes}
    right = flow.direction == "right"
    edges = [(edge.start, edge.end) for edge in flow.edges]
    layout = laid_out(
        [node.key for node in flow.nodes],
        edges,
        lambda key: (boxes[key].height if right else boxes[key].width) + 30,
    )
    points = _points(layout, boxes, flow, right=right)
    lefts = [x - (boxes[name].width / 2 if name in boxes else 0) for name, (x, _) in points.items()]
    rights = [x + (boxes[name].width / 2 if name in boxes else 0) for name, (x, _) in points.items()]
    tops = [y - (boxes[name].height / 2 if name in boxes else 0) for name, (_, y) in points.items()]
    bottoms = [y + (boxes[name].height / 2 if name in boxes else 0) for name, (_, y) in points.items()]
    loops = 40 if any(start == end for start, end in edges) else 0
    above = 36.0 if flow.title else 0.0
    shift = (_PAD - min(lefts), _PAD + above - min(tops))
    placed = {name: (x + shift[0], y + shift[1]) for name, (x, y) in points.items()}
    width = max(max(rights) - min(lefts) + 2 * _PAD + loops, 200.0)
    height = max(bottoms) - min(tops) + 2 * _PAD + above
    marks: list[Mark] = []
    if flow.title:
        title = shortened(flow.title, _TITLE, width - 2 * _PAD)
        marks.append(Words(text=title, at=(_PAD, _PAD + 8), size=_TITLE, bold=True))
    lines: list[Mark] = []
    labels: list[Mark] = []
    for edge, path in zip(flow.edges, layout.paths, strict=True):
        line = _line(edge, [placed[name] for name in path], boxes, right=right)
        lines += _arrow(line, edge)
        labels += _label(line, edge)
    marks += [*lines, *labels]
    for name, spot in placed.items():
        if name in boxes:
            marks += _drawn(boxes[name], spot)
    return Picture(width=width, height=height, title=flow.title or "Flowchart", marks=tuple(marks))


def _points(layout: Layout, boxes: Mapping[str, _Box], flow: Flow, *, right: bool) -> dict[str, Point]:
    """The middle of everything: layers one after another, with more room where words stand between."""
    depth: dict[int, float] = {}
    for name, number in layout.layer.items():
        size = 0.0 if name not in boxes else (boxes[name].width if right else boxes[name].height)
        depth[number] = max(depth.get(number, 0.0), size)
    longest = max((width_of(edge.label[:24], _LABEL) for edge in flow.edges), default=0.0)
    gap = (44 + longest if right else 62.0) if longest else (56.0 if right else 46.0)
    middles: dict[int, float] = {}
    at = 0.0
    for number in range(max(depth) + 1):
        size = depth.get(number, 0.0)
        middles[number] = at + size / 2
        at += size + gap
    found: dict[str, Point] = {}
    for name, number in layout.layer.items():
        along, across = middles[number], layout.across[name]
        found[name] = (along, across) if right else (across, along)
    return found


def _line(
    edge: Edge, points: Sequence[Point], boxes: Mapping[str, _Box], *, right: bool
) -> tuple[Point, ...]:
    """From the rim of one box to the rim of the other."""
    first, last = boxes[edge.start], boxes[edge.end]
    if edge.start == edge.end:
        x, y = points[0]
        side, up = x + first.width / 2, first.height / 4
        return ((side, y - up), (side + 24, y - up), (side + 24, y + up), (side, y + up))
    start = _rim(first, points[0], points[1], right=right)
    end = _rim(last, points[-1], points[-2], right=right)
    return (start, *points[1:-1], end)


def _rim(held: _Box, middle: Point, towards: Point, *, right: bool) -> Point:
    """Where a line to `towards` leaves the box: on the side that faces the next layer."""
    x, y = middle
    if right:
        side = math.copysign(held.width / 2, towards[0] - x)
        room = 0.0 if held.node.shape == "diamond" else held.height / 2 - 8
        return (x + side, y + max(-room, min(room, (towards[1] - y) * 0.25)))
    side = math.copysign(held.height / 2, towards[1] - y)
    room = 0.0 if held.node.shape == "diamond" else held.width / 2 - 14
    return (x + max(-room, min(room, (towards[0] - x) * 0.25)), y + side)


def _arrow(line: Sequence[Point], edge: Edge) -> Iterator[Mark]:
    yield Stroke(points=tuple(line), colour=SOFT, width=1.6, dashed=edge.dashed)
    if edge.arrow:
        yield head_at(line[-2], line[-1], SOFT)


def head_at(before: Point, tip: Point, colour: str) -> Shape:
    """The head of an arrow that comes from `before`."""
    angle = math.atan2(tip[1] - before[1], tip[0] - before[0])
    wings = [
        (tip[0] - 10 * math.cos(angle + turn), tip[1] - 10 * math.sin(angle + turn)) for turn in (0.42, -0.42)
    ]
    return Shape(points=(tip, wings[0], wings[1]), fill=colour)


def _label(line: Sequence[Point], edge: Edge) -> Iterator[Mark]:
    if not edge.label:
        return
    text = shortened(edge.label, _LABEL, 170)
    (ax, ay), (bx, by) = line[0], line[1]
    share = 0.45 if len(line) == 2 else 0.6
    x, y = ax + (bx - ax) * share, ay + (by - ay) * share
    wide = width_of(text, _LABEL) + 8
    yield Shape(points=box(x - wide / 2, y - 9, wide, 18), fill=PAPER, corner=3)
    yield Words(text=text, at=(x, y + 4), size=_LABEL, colour=SOFT, anchor="middle")


def _drawn(held: _Box, middle: Point) -> Iterator[Mark]:
    x, y = middle
    wide, high, shape = held.width, held.height, held.node.shape
    if shape == "diamond":
        corners = ((x, y - high / 2), (x + wide / 2, y), (x, y + high / 2), (x - wide / 2, y))
        yield Shape(points=corners, fill=_FILLS[shape], stroke=_RIMS[shape], width=1.6)
    else:
        corner = high / 2 if shape == "round" else 6.0
        rim = box(x - wide / 2, y - high / 2, wide, high)
        yield Shape(points=rim, fill=_FILLS[shape], stroke=_RIMS[shape], width=1.6, corner=corner)
    top = y - _LINE * (len(held.lines) - 1) / 2 + 4.5
    for number, line in enumerate(held.lines):
        yield Words(text=line, at=(x, top + _LINE * number), size=_SIZE, anchor="middle")
