"""Boxes and arrows as a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fingerpost.builtin.assets.diagrams.layers import DiagramLayout, compute_layout
from fingerpost.builtin.assets.diagrams.records import DiagramEdge, DiagramNode, FlowDiagram
from fingerpost.builtin.assets.drawing.shapes import (
    PAPER_COLOUR,
    SOFT_COLOUR,
    LineStroke,
    OutlineShape,
    Picture,
    PictureMark,
    Point,
    TextLine,
    build_box,
    estimate_width,
    shorten_text,
    wrap_text,
)
from fingerpost.frozen import frozen

_NODE_TEXT_SIZE: Final = 13.0
_LINE_HEIGHT: Final = 17.0
_MAX_BOX_WIDTH: Final = 170.0
_FLOW_PADDING: Final = 24.0
_FLOW_TITLE_SIZE: Final = 18.0
_EDGE_TEXT_SIZE: Final = 11.5
_FILL_COLOURS: Final = {"box": "#e8f1f8", "round": "#e6f4ef", "diamond": "#fdf3e0"}
_BORDER_COLOURS: Final = {"box": "#0072b2", "round": "#009e73", "diamond": "#b97f00"}


@frozen(kw_only=False)
class _NodeBox:
    node: DiagramNode
    lines: tuple[str, ...]
    width: float
    height: float

    @classmethod
    def build(cls, node: DiagramNode) -> _NodeBox:
        lines = wrap_text(node.text, _NODE_TEXT_SIZE, _MAX_BOX_WIDTH, 4) or ("",)
        width = max(estimate_width(line, _NODE_TEXT_SIZE) for line in lines) + 28
        height = _LINE_HEIGHT * len(lines) + 20
        if node.shape == "diamond":  # its corners hold no words
            return cls(node, lines, width * 1.35 + 16, height * 1.5 + 10)
        return cls(node, lines, max(56.0, width), height)


def draw_flow(flow: FlowDiagram) -> Picture:
    """The whole diagram, as large as it has to be."""
    boxes = {node.key: _NodeBox.build(node) for node in flow.nodes}
    right = flow.direction == "right"
    edges = [(edge.start, edge.end) for edge in flow.edges]
    layout = compute_layout(
        [node.key for node in flow.nodes],
        edges,
        lambda key: (boxes[key].height if right else boxes[key].width) + 30,
    )
    points = _compute_centres(layout, boxes, flow, right=right)
    lefts = [x - (boxes[name].width / 2 if name in boxes else 0) for name, (x, _) in points.items()]
    rights = [x + (boxes[name].width / 2 if name in boxes else 0) for name, (x, _) in points.items()]
    tops = [y - (boxes[name].height / 2 if name in boxes else 0) for name, (_, y) in points.items()]
    bottoms = [y + (boxes[name].height / 2 if name in boxes else 0) for name, (_, y) in points.items()]
    loops = 40 if any(start == end for start, end in edges) else 0
    above = 36.0 if flow.title else 0.0
    shift = (_FLOW_PADDING - min(lefts), _FLOW_PADDING + above - min(tops))
    placed = {name: (x + shift[0], y + shift[1]) for name, (x, y) in points.items()}
    width = max(max(rights) - min(lefts) + 2 * _FLOW_PADDING + loops, 200.0)
    height = max(bottoms) - min(tops) + 2 * _FLOW_PADDING + above
    marks: list[PictureMark] = []
    if flow.title:
        title = shorten_text(flow.title, _FLOW_TITLE_SIZE, width - 2 * _FLOW_PADDING)
        marks.append(
            TextLine(text=title, at=(_FLOW_PADDING, _FLOW_PADDING + 8), size=_FLOW_TITLE_SIZE, bold=True)
        )
    lines: list[PictureMark] = []
    labels: list[PictureMark] = []
    for edge, path in zip(flow.edges, layout.paths, strict=True):
        line = _build_edge_line(edge, [placed[name] for name in path], boxes, right=right)
        lines += _draw_arrow(line, edge)
        labels += _draw_edge_label(line, edge)
    marks += [*lines, *labels]
    for name, spot in placed.items():
        if name in boxes:
            marks += _draw_box(boxes[name], spot)
    return Picture(width=width, height=height, title=flow.title or "Flowchart", marks=tuple(marks))


def _compute_centres(
    layout: DiagramLayout, boxes: Mapping[str, _NodeBox], flow: FlowDiagram, *, right: bool
) -> dict[str, Point]:
    """The middle of everything: layers one after another, with more room where words stand between."""
    depth: dict[int, float] = {}
    for name, number in layout.layer.items():
        size = 0.0 if name not in boxes else (boxes[name].width if right else boxes[name].height)
        depth[number] = max(depth.get(number, 0.0), size)
    longest = max((estimate_width(edge.label[:24], _EDGE_TEXT_SIZE) for edge in flow.edges), default=0.0)
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


def _build_edge_line(
    edge: DiagramEdge, points: Sequence[Point], boxes: Mapping[str, _NodeBox], *, right: bool
) -> tuple[Point, ...]:
    """From the rim of one box to the rim of the other."""
    first, last = boxes[edge.start], boxes[edge.end]
    if edge.start == edge.end:
        x, y = points[0]
        side, up = x + first.width / 2, first.height / 4
        return ((side, y - up), (side + 24, y - up), (side + 24, y + up), (side, y + up))
    start = _find_border_point(first, points[0], points[1], right=right)
    end = _find_border_point(last, points[-1], points[-2], right=right)
    return (start, *points[1:-1], end)


def _find_border_point(node_box: _NodeBox, middle: Point, towards: Point, *, right: bool) -> Point:
    """Where a line to `towards` leaves the box: on the side that faces the next layer."""
    x, y = middle
    if right:
        side = math.copysign(node_box.width / 2, towards[0] - x)
        room = 0.0 if node_box.node.shape == "diamond" else node_box.height / 2 - 8
        return (x + side, y + max(-room, min(room, (towards[1] - y) * 0.25)))
    side = math.copysign(node_box.height / 2, towards[1] - y)
    room = 0.0 if node_box.node.shape == "diamond" else node_box.width / 2 - 14
    return (x + max(-room, min(room, (towards[0] - x) * 0.25)), y + side)


def _draw_arrow(line: Sequence[Point], edge: DiagramEdge) -> Iterator[PictureMark]:
    yield LineStroke(points=tuple(line), colour=SOFT_COLOUR, width=1.6, dashed=edge.dashed)
    if edge.arrow:
        yield build_arrow_head(line[-2], line[-1], SOFT_COLOUR)


def build_arrow_head(before: Point, tip: Point, colour: str) -> OutlineShape:
    """The head of an arrow that comes from `before`."""
    angle = math.atan2(tip[1] - before[1], tip[0] - before[0])
    wings = [
        (tip[0] - 10 * math.cos(angle + turn), tip[1] - 10 * math.sin(angle + turn)) for turn in (0.42, -0.42)
    ]
    return OutlineShape(points=(tip, wings[0], wings[1]), fill=colour)


def _draw_edge_label(line: Sequence[Point], edge: DiagramEdge) -> Iterator[PictureMark]:
    if not edge.label:
        return
    text = shorten_text(edge.label, _EDGE_TEXT_SIZE, 170)
    (ax, ay), (bx, by) = line[0], line[1]
    share = 0.45 if len(line) == 2 else 0.6
    x, y = ax + (bx - ax) * share, ay + (by - ay) * share
    wide = estimate_width(text, _EDGE_TEXT_SIZE) + 8
    yield OutlineShape(points=build_box(x - wide / 2, y - 9, wide, 18), fill=PAPER_COLOUR, corner=3)
    yield TextLine(text=text, at=(x, y + 4), size=_EDGE_TEXT_SIZE, colour=SOFT_COLOUR, anchor="middle")


def _draw_box(node_box: _NodeBox, middle: Point) -> Iterator[PictureMark]:
    x, y = middle
    wide, high, shape = node_box.width, node_box.height, node_box.node.shape
    if shape == "diamond":
        corners = ((x, y - high / 2), (x + wide / 2, y), (x, y + high / 2), (x - wide / 2, y))
        yield OutlineShape(
            points=corners, fill=_FILL_COLOURS[shape], stroke=_BORDER_COLOURS[shape], width=1.6
        )
    else:
        corner = high / 2 if shape == "round" else 6.0
        rim = build_box(x - wide / 2, y - high / 2, wide, high)
        yield OutlineShape(
            points=rim, fill=_FILL_COLOURS[shape], stroke=_BORDER_COLOURS[shape], width=1.6, corner=corner
        )
    top = y - _LINE_HEIGHT * (len(node_box.lines) - 1) / 2 + 4.5
    for number, line in enumerate(node_box.lines):
        yield TextLine(text=line, at=(x, top + _LINE_HEIGHT * number), size=_NODE_TEXT_SIZE, anchor="middle")
