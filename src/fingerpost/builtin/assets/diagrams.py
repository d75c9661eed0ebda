"""Flow and sequence diagrams: parsed from data or Mermaid-like text, laid out in layers, and drawn."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import pairwise
from statistics import fmean
from typing import ClassVar, Final, Literal, cast

from fingerpost.builtin.assets.pictures import (
    AXIS_COLOUR,
    INK_COLOUR,
    PAPER_COLOUR,
    SOFT_COLOUR,
    TITLE_SIZE,
    Axes,
    Figure,
    Point,
    clean_text,
    estimate_width,
    load_library,
    open_canvas,
    open_figure,
    render_figure,
    shorten_text,
    wrap_text,
)
from fingerpost.builtin.toolkit import ToolRefused
from fingerpost.frozen import frozen
from fingerpost.records import Json

NodeShape = Literal["box", "round", "diamond"]
FlowDirection = Literal["down", "right"]
MAX_NODES: Final = 80
MAX_EDGES: Final = 160
MAX_PARTICIPANTS: Final = 12
MAX_MESSAGES: Final = 60


@frozen
class DiagramNode:
    """A box with text."""

    key: str
    text: str
    shape: NodeShape = "box"


@frozen
class DiagramEdge:
    """An arrow between two nodes."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False
    arrow: bool = True


@frozen
class FlowDiagram:
    """Boxes and arrows."""

    nodes: tuple[DiagramNode, ...]
    edges: tuple[DiagramEdge, ...]
    direction: FlowDirection = "down"
    title: str = ""
    kind: ClassVar = "Flowchart"

    @property
    def summary(self) -> str:
        return f"a flowchart of {len(self.nodes)} boxes and {len(self.edges)} arrows"


@frozen
class SequenceDiagram:
    """Messages between participants, in order."""

    participants: tuple[DiagramNode, ...]
    messages: tuple[DiagramEdge, ...]
    title: str = ""
    kind: ClassVar = "Sequence diagram"

    @property
    def summary(self) -> str:
        many = f"{len(self.messages)} messages between {len(self.participants)} participants"
        return f"a sequence diagram of {many}"


_ORDERING_SWEEPS: Final = 8

NodeName = str
NodeLink = tuple[NodeName, NodeName]


@frozen
class DiagramLayout:
    """The layer and position of every node, and the nodes that each edge passes, including its ends."""

    layer: Mapping[NodeName, int]
    across: Mapping[NodeName, float]
    paths: tuple[tuple[NodeName, ...], ...]  # in the order of the edges


def compute_layout(
    nodes: Sequence[NodeName], edges: Sequence[NodeLink], get_width: Callable[[NodeName], float]
) -> DiagramLayout:
    """Compute the layout. `get_width` returns the width of a node, including the gap to the next."""
    layer = _assign_layers(nodes, _remove_cycles(nodes, edges))
    paths, unordered_rows = _build_paths(edges, layer)
    links = [link for path in paths for link in pairwise(path)]
    rows = _order_rows(unordered_rows, links)

    def width(name: NodeName) -> float:
        return get_width(name) if name in layer else 26.0

    across = _place_nodes(rows, links, width)
    layers = {name: number for number, row in enumerate(rows) for name in row}
    return DiagramLayout(layer=layers, across=across, paths=tuple(paths))


def _remove_cycles(nodes: Sequence[NodeName], edges: Sequence[NodeLink]) -> list[NodeLink]:
    """Return the edges with backward edges reversed and self-loops removed."""
    following: dict[NodeName, list[NodeName]] = defaultdict(list)
    for start, end in edges:
        if start != end:
            following[start].append(end)
    state: dict[NodeName, int] = {}  # 1: in progress, 2: done
    links: list[NodeLink] = []
    for root in nodes:
        stack = [(root, iter(following[root]))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            node, rest = stack[-1]
            target = next(rest, None)
            if target is None:
                state[node] = 2
                stack.pop()
            elif state.get(target) == 1:
                links.append((target, node))
            else:
                links.append((node, target))
                if target not in state:
                    state[target] = 1
                    stack.append((target, iter(following[target])))
    return links


def _assign_layers(nodes: Sequence[NodeName], links: Sequence[NodeLink]) -> dict[NodeName, int]:
    """Assign each node to a layer after all of its predecessors."""
    layer = dict.fromkeys(nodes, 0)
    before: dict[NodeName, set[NodeName]] = {node: set() for node in nodes}
    for start, end in links:
        before[end].add(start)
    for node in TopologicalSorter(before).static_order():
        layer[node] = max((layer[start] + 1 for start in before[node]), default=0)
    return layer


def _build_paths(
    edges: Sequence[NodeLink], layer: Mapping[NodeName, int]
) -> tuple[list[tuple[NodeName, ...]], list[list[NodeName]]]:
    """Return the nodes that every edge passes, and the nodes of each layer."""
    rows: list[list[NodeName]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for name, number in layer.items():
        rows[number].append(name)
    paths: list[tuple[NodeName, ...]] = []
    for number, (start, end) in enumerate(edges):
        step = 1 if layer[end] > layer[start] else -1
        passed = range(layer[start] + step, layer[end], step) if start != end else ()
        between = tuple(f"\0{number}/{at}" for at in passed)
        for name, at in zip(between, passed, strict=True):
            rows[at].append(name)
        paths.append((start, *between, end))
    return paths, rows


def _build_neighbours(links: Sequence[NodeLink]) -> dict[NodeName, list[NodeName]]:
    found: dict[NodeName, list[NodeName]] = defaultdict(list)
    for start, end in links:
        if start != end:
            found[start].append(end)
            found[end].append(start)
    return found


def _order_rows(rows: list[list[NodeName]], links: Sequence[NodeLink]) -> list[list[NodeName]]:
    """Order each layer by the mean position of neighbours in the previous layer, downwards and upwards."""
    near = _build_neighbours(links)
    best, fewest = [list(row) for row in rows], _count_crossings(rows, links)
    for sweep in range(_ORDERING_SWEEPS):
        numbers = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for number in numbers:
            fixed = rows[number - 1] if sweep % 2 == 0 else rows[number + 1]
            places = {name: float(at) for at, name in enumerate(fixed)}
            rows[number] = _sort_by_means(rows[number], near, places)
        if (crossed := _count_crossings(rows, links)) < fewest:
            best, fewest = [list(row) for row in rows], crossed
    return best


def _sort_by_means(
    row: list[NodeName], near: Mapping[NodeName, list[NodeName]], places: Mapping[NodeName, float]
) -> list[NodeName]:
    def mean(at: int, name: NodeName) -> float:
        known = [places[other] for other in near.get(name, ()) if other in places]
        return fmean(known) if known else float(at)

    means = {name: mean(at, name) for at, name in enumerate(row)}
    return sorted(row, key=lambda name: means[name])


def _count_crossings(rows: Sequence[Sequence[NodeName]], links: Sequence[NodeLink]) -> int:
    place = {name: (number, at) for number, row in enumerate(rows) for at, name in enumerate(row)}
    by_layer: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for one, other in links:
        (number, at), (next_number, next_at) = sorted((place[one], place[other]))
        if next_number == number + 1:
            by_layer[number].append((at, next_at))
    return sum(
        (a - c) * (b - d) < 0
        for pairs in by_layer.values()
        for number, (a, b) in enumerate(pairs)
        for c, d in pairs[number + 1 :]
    )


def _place_nodes(
    rows: Sequence[Sequence[NodeName]], links: Sequence[NodeLink], width: Callable[[NodeName], float]
) -> dict[NodeName, float]:
    """Return the centre of every node across its layer."""
    near, across = _build_neighbours(links), dict[NodeName, float]()
    for row in rows:
        left = -sum(width(name) for name in row) / 2
        for name in row:
            across[name] = left + width(name) / 2
            left += width(name)
    for sweep in range(_ORDERING_SWEEPS * 2):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            others = {name: [across[other] for other in near.get(name, ())] for name in row}
            preferred = {name: fmean(others[name] or [across[name]]) for name in row}
            across.update(_spread_row(row, preferred, width))
    return across


def _spread_row(
    row: Sequence[NodeName], preferred: Mapping[NodeName, float], width: Callable[[NodeName], float]
) -> dict[NodeName, float]:
    """Place nodes as close to the preferred positions as order and widths allow.

    Overlapping neighbours form one block, which is placed at the average of its members' positions.
    """
    blocks: list[tuple[list[NodeName], list[float]]] = []  # the names, and the block start that each prefers
    for name in row:
        names, starts = [name], [preferred[name] - width(name) / 2]
        while blocks and fmean(blocks[-1][1]) + sum(map(width, blocks[-1][0])) > fmean(starts) - 1e-9:
            before, earlier = blocks.pop()
            taken = sum(map(width, before))
            names, starts = [*before, *names], [*earlier, *(start - taken for start in starts)]
        blocks.append((names, starts))
    found: dict[NodeName, float] = {}
    for names, starts in blocks:
        left = fmean(starts)
        for name in names:
            found[name] = left + width(name) / 2
            left += width(name)
    return found


MAX_DIAGRAM_TEXT_LENGTH: Final = 50_000
MAX_NODE_LABEL_LENGTH: Final = 120
DIAGRAM_HINT: Final = (
    "Write lines such as `A[Start] --> B{Ready?}` and `B -->|yes| C[Go]`, for a sequence "
    "`Ann ->> Bob: Hello`, or give data: "
    '{"edges": [["a", "b", "label"]]} or {"messages": [["a", "b", "text"]]}.'
)
_ARROW_PATTERN: Final = re.compile(
    r"\s*(?:--\s*(?P<inside>[^-=|>\n]{1,60}?)\s*(?:-->|---)|"
    r"(?P<line>-{1,3}\.?-*>{1,2}|-\.->|={1,2}>|→|⇒|---))(?:\s*\|(?P<label>[^|\n]{0,120})\|)?\s*"
)
_NODE_PATTERN: Final = re.compile(
    r"^(?P<key>[^\[\](){}|]{0,120}?)\s*(?:\[\(?(?P<box>[^\]]{1,300}?)\)?\]|\(+\[?(?P<round>[^)]{1,300}?)\]?\)+|"
    r"\{+(?P<diamond>[^}]{1,300})\}+)?\s*;?$"
)
_HEADER_PATTERN: Final = re.compile(r"^\s*(?:graph|flowchart)\s+(TD|TB|BT|LR|RL)\b\s*;?", re.IGNORECASE)
_MESSAGE_PATTERN: Final = re.compile(
    r"^\s*(?P<start>[^\n:>-]{1,80}?)\s*(?P<line>--?>{1,2}|--?[x)]|→)\s*[+-]?(?P<end>[^:\n>]{1,80}?)\s*:\s*(?P<text>.{0,300})$"
)
_PARTICIPANT_PATTERN: Final = re.compile(
    r"^\s*(?:participant|actor)\s+(?P<key>[^\n]{1,80}?)(?:\s+as\s+(?P<text>[^\n]{1,120}))?\s*$", re.IGNORECASE
)
_IGNORED_LINE_PATTERN: Final = re.compile(
    r"^\s*(?:%%|subgraph|end\b|style\b|classDef\b|class\b|click\b|linkStyle|note\b|activate|deactivate|"
    r"autonumber|loop\b|alt\b|else\b|opt\b|par\b|title\b|```)",
    re.IGNORECASE,
)
_SHAPE_BY_NAME: Final[Mapping[str, NodeShape]] = {"box": "box", "round": "round", "diamond": "diamond"}


def parse_diagram(data: Json, prompt: str, title: str = "") -> FlowDiagram | SequenceDiagram:
    """Return the requested diagram. Raises `ToolRefused` if there is nothing to draw."""
    found = _parse_data(data) if isinstance(data, Mapping | list | tuple) and data else None
    if found is None:
        text = (data if isinstance(data, str) and data.strip() else prompt)[:MAX_DIAGRAM_TEXT_LENGTH]
        found = _parse_text(text, wants_sequence="sequence" in f"{prompt} {text[:200]}".lower())
    if found is None:
        raise ToolRefused("There is nothing to draw a diagram from.", hint=DIAGRAM_HINT)
    if isinstance(found, FlowDiagram):
        fits = len(found.nodes) <= MAX_NODES and len(found.edges) <= MAX_EDGES
        most = f"{MAX_NODES} boxes and {MAX_EDGES} arrows"
    else:
        fits = len(found.participants) <= MAX_PARTICIPANTS and len(found.messages) <= MAX_MESSAGES
        most = f"{MAX_PARTICIPANTS} participants and {MAX_MESSAGES} messages"
    if not fits:
        raise ToolRefused(f"A diagram has at most {most}.", hint="Draw a part of it, or several.")
    return replace(found, title=_format_text(title))


def _parse_data(data: Json) -> FlowDiagram | SequenceDiagram | None:
    if not isinstance(data, Mapping):
        return _parse_flow_data((), data)
    messages = data.get("messages")
    if isinstance(messages, list | tuple):
        keys = filter(None, map(_format_text, _get_items(data.get("participants"))))
        names = {key: DiagramNode(key=key, text=key) for key in keys}
        made = _parse_edges(messages, names)
        return SequenceDiagram(participants=tuple(names.values()), messages=tuple(made)) if made else None
    edges = data.get("edges", data.get("links"))
    return _parse_flow_data(data.get("nodes"), edges, str(data.get("direction", "")))


def _parse_flow_data(nodes: Json, edges: Json, direction: str = "") -> FlowDiagram | None:
    known: dict[str, DiagramNode] = {}
    for item in _get_items(nodes):
        key, text, shape = _get_fields(item, ("id", "key", "name"), ("text", "label", "name"), ("shape",))
        if key:
            known[key] = DiagramNode(key=key, text=text or key, shape=_SHAPE_BY_NAME.get(shape, "box"))
    made = _parse_edges(edges, known)
    way: FlowDirection = "right" if direction.lower() in ("right", "lr", "rl", "horizontal") else "down"
    return FlowDiagram(nodes=tuple(known.values()), edges=tuple(made), direction=way) if known else None


def _parse_edges(edges: Json, nodes: dict[str, DiagramNode]) -> list[DiagramEdge]:
    """Return the edges. Nodes that only they name are added."""
    made: list[DiagramEdge] = []
    for item in _get_items(edges):
        start, end, label = _get_fields(
            item, ("from", "start", "source"), ("to", "end", "target"), ("label", "text", "message")
        )
        if start and end:
            made.append(DiagramEdge(start=start, end=end, label=label))
            for key in (start, end):
                nodes.setdefault(key, DiagramNode(key=key, text=key))
    return made


def _get_fields(item: Json, *names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first existing field of each group of names, or the items of a list by position."""
    if isinstance(item, Mapping):
        found = (next((item[name] for name in group if item.get(name) is not None), "") for group in names)
        return tuple(map(_format_text, found))
    cells = cast("Sequence[Json]", item) if isinstance(item, list | tuple) else [item]
    return tuple(_format_text(cells[at]) if at < len(cells) else "" for at in range(len(names)))


def _get_items(value: Json) -> Sequence[Json]:
    return value[:1000] if isinstance(value, list | tuple) else ()


def _format_text(value: Json) -> str:
    if not isinstance(value, str | int | float):
        return ""
    plain = re.sub(r"<br\s*/?>", " ", str(value), flags=re.IGNORECASE)
    return clean_text(plain, MAX_NODE_LABEL_LENGTH).strip("\"'")


def _parse_text(text: str, *, wants_sequence: bool) -> FlowDiagram | SequenceDiagram | None:
    # Long runs of spaces make the patterns slow.
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]
    if wants_sequence or any("->>" in line for line in lines):
        found = _parse_sequence_lines(lines)
        if found is not None:
            return found
    return _parse_flow_lines(lines)


def _parse_sequence_lines(lines: Iterable[str]) -> SequenceDiagram | None:
    names: dict[str, DiagramNode] = {}
    messages: list[DiagramEdge] = []
    for line in lines:
        if named := _PARTICIPANT_PATTERN.match(line):
            key = _format_text(named["key"])
            names[key] = DiagramNode(key=key, text=_format_text(named["text"]) or key)
        elif _IGNORED_LINE_PATTERN.match(line):
            continue
        elif match := _MESSAGE_PATTERN.match(_strip_introduction(line)):
            start, end = _format_text(match["start"]), _format_text(match["end"])
            for key in (start, end):
                names.setdefault(key, DiagramNode(key=key, text=key))
            label, dashed = _format_text(match["text"]), match["line"].startswith("--")
            messages.append(DiagramEdge(start=start, end=end, label=label, dashed=dashed))
    return SequenceDiagram(participants=tuple(names.values()), messages=tuple(messages)) if messages else None


def _parse_flow_lines(lines: Iterable[str]) -> FlowDiagram | None:
    nodes: dict[str, DiagramNode] = {}
    edges: list[DiagramEdge] = []
    way: FlowDirection = "down"
    for line in (part for whole in lines for part in whole.split(";")):
        if header := _HEADER_PATTERN.match(line):
            way = "right" if header[1].upper() in ("LR", "RL") else "down"
            line = line[header.end() :]
        if not line.strip() or _IGNORED_LINE_PATTERN.match(line) or not _ARROW_PATTERN.search(line):
            continue
        _parse_chain(_strip_introduction(line), nodes, edges)
    return FlowDiagram(nodes=tuple(nodes.values()), edges=tuple(edges), direction=way) if edges else None


def _strip_introduction(line: str) -> str:
    """Remove the words before a chain: `a flowchart of the build: checkout -> test`."""
    head, colon, rest = line.partition(":")
    introduces = colon and not _ARROW_PATTERN.search(head) and _ARROW_PATTERN.search(rest)
    return rest.strip() if introduces else line.strip()


def _parse_chain(line: str, nodes: dict[str, DiagramNode], edges: list[DiagramEdge]) -> None:
    """Parse `A --> B -- no --> C: text`: every arrow is an edge from the previous node."""
    before: str | None = None
    label, dashed, arrow = "", False, True
    at = 0
    for match in (*_ARROW_PATTERN.finditer(line), None):
        part = line[at : match.start() if match else len(line)]
        if match is None and before is not None and ":" in part and not label:
            part, _, label = part.partition(":")
        key = _parse_node(part, nodes)
        if key is not None and before is not None:
            text = _format_text(label)
            edges.append(DiagramEdge(start=before, end=key, label=text, dashed=dashed, arrow=arrow))
        before = key
        if match is not None:
            label = match["label"] or match["inside"] or ""
            dashed, arrow = "." in (match["line"] or ""), match[0].strip() != "---"
            at = match.end()


def _parse_node(part: str, nodes: dict[str, DiagramNode]) -> str | None:
    """Return the node that this text names. Its first text and shape are kept."""
    match = _NODE_PATTERN.match(part.strip())
    if match is None:
        return None
    bracketed = next(((name, match[name]) for name in _SHAPE_BY_NAME if match[name]), None)
    text = _format_text(bracketed[1]) if bracketed else ""
    key = _format_text(match["key"]) or text
    if not key:
        return None
    known = nodes.get(key)
    if known is None or (bracketed is not None and known.text == known.key):
        shape = _SHAPE_BY_NAME[bracketed[0]] if bracketed else "box"
        nodes[key] = DiagramNode(key=key, text=text or key, shape=shape)
    return key


_PADDING: Final = 24.0
_TITLE_HEIGHT: Final = 36.0
_NODE_TEXT_SIZE: Final = 13.0
_EDGE_TEXT_SIZE: Final = 12.0
_LINE_HEIGHT: Final = 17.0
_MAX_BOX_WIDTH: Final = 190.0
_FILL_COLOURS: Final = {"box": "#e8f1f8", "round": "#e6f4ef", "diamond": "#fdf3e0"}
_BORDER_COLOURS: Final = {"box": "#0072b2", "round": "#009e73", "diamond": "#b97f00"}


def draw_diagram(diagram: FlowDiagram | SequenceDiagram, file_format: str = "svg") -> bytes:
    """Draw the diagram. Its size depends on its content. This is slow: call it in a thread."""
    if isinstance(diagram, FlowDiagram):
        placed = place_flow(diagram)
        with _open_diagram(placed.width, placed.height, diagram.title) as (figure, axes):
            for edge, line in zip(diagram.edges, placed.paths, strict=True):
                _draw_arrow(axes, line, edge, SOFT_COLOUR)
                _draw_edge_label(axes, line, edge.label)
            for box, centre in placed.boxes.values():
                _draw_box(axes, box, centre)
            return render_figure(figure, file_format, diagram.title or diagram.kind)
    return _draw_sequence(diagram, file_format)


@contextmanager
def _open_diagram(width: float, height: float, title: str) -> Generator[tuple[Figure, Axes]]:
    """Return a figure with its axes, which have the title and the padding. Render it inside."""
    with open_figure(width, height) as figure:
        axes = open_canvas(figure)
        if title:
            text = shorten_text(title, TITLE_SIZE, width - 2 * _PADDING)
            axes.text(_PADDING, _PADDING + 8, text, size=TITLE_SIZE, weight="bold")
        yield figure, axes


@frozen(kw_only=False)
class NodeBox:
    """A node with its lines of text and its size. Without text, it is a point of an edge."""

    shape: NodeShape = "box"
    lines: Sequence[str] = ()
    width: float = 0.0
    height: float = 0.0

    @classmethod
    def build(cls, node: DiagramNode) -> NodeBox:
        lines = wrap_text(node.text, _NODE_TEXT_SIZE, _MAX_BOX_WIDTH, 4) or [""]
        width = max(estimate_width(line, _NODE_TEXT_SIZE) for line in lines) + 28
        height = _LINE_HEIGHT * len(lines) + 20
        if node.shape == "diamond":  # the corners of a diamond hold no text
            return cls(node.shape, lines, width * 1.35 + 16, height * 1.5 + 10)
        return cls(node.shape, lines, max(56.0, width), height)


@frozen
class PlacedFlow:
    """The boxes of a flowchart with their centres, the points of each edge, and the size of the whole."""

    boxes: Mapping[str, tuple[NodeBox, Point]]
    paths: tuple[tuple[Point, ...], ...]  # in the order of the edges
    width: float
    height: float


def place_flow(flow: FlowDiagram) -> PlacedFlow:
    """Compute where everything is drawn."""
    boxes = {node.key: NodeBox.build(node) for node in flow.nodes}
    right = flow.direction == "right"
    edges = [(edge.start, edge.end) for edge in flow.edges]
    widths = {key: (box.height if right else box.width) + 30 for key, box in boxes.items()}
    layout = compute_layout(list(boxes), edges, widths.__getitem__)
    points = _compute_centres(layout, boxes, flow, right=right)
    sized = [(boxes.get(name, NodeBox()), x, y) for name, (x, y) in points.items()]
    left = min(x - box.width / 2 for box, x, _ in sized) - _PADDING
    top = min(y - box.height / 2 for box, _, y in sized) - _PADDING - (_TITLE_HEIGHT if flow.title else 0)
    loops = 40 if any(start == end for start, end in edges) else 0
    placed = {name: (x - left, y - top) for name, (x, y) in points.items()}
    return PlacedFlow(
        boxes={name: (box, placed[name]) for name, box in boxes.items()},
        paths=tuple(
            _build_edge_line(edge, [placed[name] for name in path], boxes, right=right)
            for edge, path in zip(flow.edges, layout.paths, strict=True)
        ),
        width=max(max(x + box.width / 2 for box, x, _ in sized) - left + _PADDING + loops, 200.0),
        height=max(y + box.height / 2 for box, _, y in sized) - top + _PADDING,
    )


def _compute_centres(
    layout: DiagramLayout, boxes: Mapping[str, NodeBox], flow: FlowDiagram, *, right: bool
) -> dict[str, Point]:
    """Return the centre of every node. Layers with edge labels between them have more space."""
    depth: dict[int, float] = defaultdict(float)
    for name, number in layout.layer.items():
        box = boxes.get(name, NodeBox())
        depth[number] = max(depth[number], box.width if right else box.height)
    longest = max((estimate_width(edge.label[:24], _EDGE_TEXT_SIZE) for edge in flow.edges), default=0.0)
    gap = (44 + longest if right else 62.0) if longest else (56.0 if right else 46.0)
    middles: dict[int, float] = {}
    at = 0.0
    for number in range(max(depth) + 1):
        middles[number] = at + depth[number] / 2
        at += depth[number] + gap
    return {
        name: (middles[number], layout.across[name]) if right else (layout.across[name], middles[number])
        for name, number in layout.layer.items()
    }


def _build_edge_line(
    edge: DiagramEdge, points: Sequence[Point], boxes: Mapping[str, NodeBox], *, right: bool
) -> tuple[Point, ...]:
    """Return the line from the border of one box to the border of the other."""
    first, last = boxes[edge.start], boxes[edge.end]
    if edge.start == edge.end:
        x, y = points[0]
        side, up = x + first.width / 2, first.height / 4
        return ((side, y - up), (side + 24, y - up), (side + 24, y + up), (side, y + up))
    start = _find_border_point(first, points[0], points[1], right=right)
    end = _find_border_point(last, points[-1], points[-2], right=right)
    return (start, *points[1:-1], end)


def _find_border_point(box: NodeBox, middle: Point, towards: Point, *, right: bool) -> Point:
    """Return where a line to `towards` leaves the box: on the side of the next layer."""
    along, across = (0, 1) if right else (1, 0)
    sizes = (box.width, box.height)
    room = 0.0 if box.shape == "diamond" else sizes[across] / 2 - 8
    point = [0.0, 0.0]
    point[along] = middle[along] + math.copysign(sizes[along] / 2, towards[along] - middle[along])
    shift = (towards[across] - middle[across]) * 0.25
    point[across] = middle[across] + max(-room, min(room, shift))
    return point[0], point[1]


def _draw_arrow(axes: Axes, line: Sequence[Point], edge: DiagramEdge, colour: str) -> None:
    patches, paths = load_library("matplotlib.patches"), load_library("matplotlib.path")
    axes.add_patch(
        patches.FancyArrowPatch(
            path=paths.Path(line),
            arrowstyle="-|>" if edge.arrow else "-",
            mutation_scale=14,
            color=colour,
            fill=edge.arrow,
            linewidth=1.6,
            linestyle=(0, (3, 2.5)) if edge.dashed else "solid",
        )
    )


def _draw_edge_label(axes: Axes, line: Sequence[Point], label: str) -> None:
    if not label:
        return
    (ax, ay), (bx, by) = line[0], line[1]
    share = 0.45 if len(line) == 2 else 0.6
    shown, x, y = shorten_text(label, _EDGE_TEXT_SIZE, 170), ax + (bx - ax) * share, ay + (by - ay) * share
    style = {"size": _EDGE_TEXT_SIZE, "color": SOFT_COLOUR, "ha": "center", "va": "center"}
    axes.text(x, y, shown, bbox={"facecolor": PAPER_COLOUR, "edgecolor": "none", "pad": 2}, **style)


def _draw_box(axes: Axes, box: NodeBox, middle: Point, weight: str = "normal") -> None:
    patches = load_library("matplotlib.patches")
    (x, y), wide, high = middle, box.width, box.height
    paint = {"facecolor": _FILL_COLOURS[box.shape], "edgecolor": _BORDER_COLOURS[box.shape], "linewidth": 1.6}
    if box.shape == "diamond":
        corners = ((x, y - high / 2), (x + wide / 2, y), (x, y + high / 2), (x - wide / 2, y))
        axes.add_patch(patches.Polygon(corners, **paint))
    else:
        corner = min(wide, high) / 2 if box.shape == "round" else 6.0
        style = patches.BoxStyle.Round(pad=0, rounding_size=corner)
        start = (x - wide / 2, y - high / 2)
        axes.add_patch(patches.FancyBboxPatch(start, wide, high, boxstyle=style, **paint))
    for number, line in enumerate(box.lines):
        middle_y = y + _LINE_HEIGHT * (number - (len(box.lines) - 1) / 2)
        axes.text(x, middle_y, line, size=_NODE_TEXT_SIZE, weight=weight, ha="center", va="center_baseline")


_HEAD_HEIGHT: Final = 40.0
_MESSAGE_STEP: Final = 46.0


def _draw_sequence(sequence: SequenceDiagram, file_format: str) -> bytes:
    """Draw participants side by side, time downwards."""
    names = [node.key for node in sequence.participants]
    widths = [min(190.0, estimate_width(node.text, _NODE_TEXT_SIZE) + 32) for node in sequence.participants]
    places = _compute_columns(sequence, names, widths)
    top = _PADDING + (_TITLE_HEIGHT if sequence.title else 0.0)
    ends = top + _HEAD_HEIGHT + 26 + _MESSAGE_STEP * len(sequence.messages)
    own = [message.label for message in sequence.messages if message.start == message.end]
    beyond = max((estimate_width(label, _EDGE_TEXT_SIZE) + 40 for label in own), default=0.0)
    width = max(places[-1] + max(widths[-1] / 2, beyond) + _PADDING, 240.0)
    with _open_diagram(width, ends + _PADDING, sequence.title) as (figure, axes):
        for node, x, wide in zip(sequence.participants, places, widths, strict=True):
            dashes = (0, (5, 4))
            axes.plot((x, x), (top + _HEAD_HEIGHT, ends), color=AXIS_COLOUR, linewidth=1.2, linestyle=dashes)
            box = NodeBox("box", [shorten_text(node.text, _NODE_TEXT_SIZE, wide - 16)], wide, _HEAD_HEIGHT)
            _draw_box(axes, box, (x, top + _HEAD_HEIGHT / 2), "bold")
        at = dict(zip(names, places, strict=True))
        for number, message in enumerate(sequence.messages):
            y = top + _HEAD_HEIGHT + 40 + _MESSAGE_STEP * number
            _draw_message(axes, message, at[message.start], at[message.end], y)
        return render_figure(figure, file_format, sequence.title or sequence.kind)


def _compute_columns(sequence: SequenceDiagram, names: list[str], widths: list[float]) -> list[float]:
    """Return the columns, far enough apart for the messages between neighbours."""
    places = [_PADDING + widths[0] / 2]
    for number in range(1, len(names)):
        pair = {names[number - 1], names[number]}
        label_widths = [
            estimate_width(message.label, _EDGE_TEXT_SIZE) + (40 if message.start == message.end else 0)
            for message in sequence.messages
            if {message.start, message.end} == pair or message.start == message.end == names[number - 1]
        ]
        room = min(260.0, max(label_widths, default=0.0)) + 34
        places.append(places[-1] + max((widths[number - 1] + widths[number]) / 2 + 30, room))
    return places


def _draw_message(axes: Axes, message: DiagramEdge, start: float, end: float, y: float) -> None:
    if start == end:
        loop = ((start, y - 8), (start + 28, y - 8), (start + 28, y + 10), (start + 2, y + 10))
        _draw_arrow(axes, loop, message, INK_COLOUR)
        axes.text(start + 36, y + 5, message.label[:60], size=_EDGE_TEXT_SIZE)
        return
    _draw_arrow(axes, ((start, y), (end, y)), message, INK_COLOUR)
    label = shorten_text(message.label, _EDGE_TEXT_SIZE, abs(end - start) - 20)
    axes.text((start + end) / 2, y - 7, label, size=_EDGE_TEXT_SIZE, ha="center")
