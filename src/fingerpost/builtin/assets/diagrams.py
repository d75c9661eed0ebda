"""Flow and sequence diagrams: parsed from data or Mermaid-like text, laid out in layers, and drawn."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Sequence as Items
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal, cast

from fingerpost.builtin.assets.pictures import (
    AXIS_COLOUR,
    INK_COLOUR,
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

    @property
    def summary(self) -> str:
        return f"a flowchart of {len(self.nodes)} boxes and {len(self.edges)} arrows"


@frozen
class SequenceDiagram:
    """Messages between participants, in order."""

    participants: tuple[DiagramNode, ...]
    messages: tuple[DiagramEdge, ...]
    title: str = ""

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
    for _ in nodes:
        changed = False
        for start, end in links:
            if layer[end] <= layer[start]:
                layer[end], changed = layer[start] + 1, True
        if not changed:
            break
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
        return sum(known) / len(known) if known else float(at)

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
            preferred = {
                name: sum(across[other] for other in near[name]) / len(near[name])
                if near.get(name)
                else across[name]
                for name in row
            }
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
        while (
            blocks
            and _find_start(blocks[-1][1]) + sum(map(width, blocks[-1][0])) > _find_start(starts) - 1e-9
        ):
            before, earlier = blocks.pop()
            taken = sum(map(width, before))
            names, starts = [*before, *names], [*earlier, *(start - taken for start in starts)]
        blocks.append((names, starts))
    found: dict[NodeName, float] = {}
    for names, starts in blocks:
        left = _find_start(starts)
        for name in names:
            found[name] = left + width(name) / 2
            left += width(name)
    return found


def _find_start(preferred: Sequence[float]) -> float:
    return sum(preferred) / len(preferred)


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
        message = "There is nothing to draw a diagram from."
        raise ToolRefused(message, hint=DIAGRAM_HINT)
    return replace(_check_diagram(found), title=_format_text(title))


def _check_diagram(diagram: FlowDiagram | SequenceDiagram) -> FlowDiagram | SequenceDiagram:
    if isinstance(diagram, FlowDiagram):
        fits = len(diagram.nodes) <= MAX_NODES and len(diagram.edges) <= MAX_EDGES
        most = f"{MAX_NODES} boxes and {MAX_EDGES} arrows"
    else:
        fits = len(diagram.participants) <= MAX_PARTICIPANTS and len(diagram.messages) <= MAX_MESSAGES
        most = f"{MAX_PARTICIPANTS} participants and {MAX_MESSAGES} messages"
    if not fits:
        message = f"A diagram has at most {most}."
        raise ToolRefused(message, hint="Draw a part of it, or several.")
    return diagram


def _parse_data(data: Json) -> FlowDiagram | SequenceDiagram | None:
    if not isinstance(data, Mapping):
        return _parse_flow_data((), data)
    messages = data.get("messages")
    if isinstance(messages, list | tuple):
        return _parse_sequence_data(data.get("participants"), messages)
    return _parse_flow_data(
        data.get("nodes"), data.get("edges", data.get("links")), str(data.get("direction", ""))
    )


def _parse_flow_data(nodes: Json, edges: Json, direction: str = "") -> FlowDiagram | None:
    known: dict[str, DiagramNode] = {}
    for item in _get_items(nodes):
        key, text, shape = _get_fields(item, ("id", "key", "name"), ("text", "label", "name"), ("shape",))
        if key:
            known[key] = DiagramNode(key=key, text=text or key, shape=_SHAPE_BY_NAME.get(shape, "box"))
    made: list[DiagramEdge] = []
    for item in _get_items(edges):
        start, end, label = _get_fields(
            item, ("from", "start", "source"), ("to", "end", "target"), ("label", "text")
        )
        if start and end:
            made.append(DiagramEdge(start=start, end=end, label=label))
            for key in (start, end):
                known.setdefault(key, DiagramNode(key=key, text=key))
    way: FlowDirection = "right" if direction.lower() in ("right", "lr", "rl", "horizontal") else "down"
    return FlowDiagram(nodes=tuple(known.values()), edges=tuple(made), direction=way) if known else None


def _parse_sequence_data(participants: Json, messages: Json) -> SequenceDiagram | None:
    names = {
        _format_text(item): DiagramNode(key=_format_text(item), text=_format_text(item))
        for item in _get_items(participants)
        if _format_text(item)
    }
    made: list[DiagramEdge] = []
    for item in _get_items(messages):
        start, end, label = _get_fields(item, ("from", "start"), ("to", "end"), ("text", "label", "message"))
        if start and end:
            made.append(DiagramEdge(start=start, end=end, label=label))
            for key in (start, end):
                names.setdefault(key, DiagramNode(key=key, text=key))
    return SequenceDiagram(participants=tuple(names.values()), messages=tuple(made)) if made else None


def _get_fields(item: Json, *names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the first existing field of each group of names, or the items of a list by position."""
    if isinstance(item, Mapping):
        return tuple(
            next((_format_text(item[name]) for name in group if item.get(name) is not None), "")
            for group in names
        )
    cells = (
        [_format_text(cell) for cell in cast("Items[Json]", item)]
        if isinstance(item, list | tuple)
        else [_format_text(item)]
    )
    return tuple(cells[at] if at < len(cells) else "" for at in range(len(names)))


def _get_items(value: Json) -> Items[Json]:
    return value[:1000] if isinstance(value, list | tuple) else ()


def _format_text(value: Json) -> str:
    if not isinstance(value, str | int | float):
        return ""
    plain = re.sub(r"<br\s*/?>", " ", str(value), flags=re.IGNORECASE)
    return " ".join(plain.split()).strip("\"'")[:MAX_NODE_LABEL_LENGTH]


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
            dashed = match["line"].startswith("--")
            messages.append(
                DiagramEdge(start=start, end=end, label=_format_text(match["text"]), dashed=dashed)
            )
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
            edges.append(
                DiagramEdge(start=before, end=key, label=_format_text(label), dashed=dashed, arrow=arrow)
            )
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
        nodes[key] = DiagramNode(
            key=key, text=text or key, shape=_SHAPE_BY_NAME[bracketed[0]] if bracketed else "box"
        )
    return key


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
        if node.shape == "diamond":  # the corners of a diamond hold no text
            return cls(node, lines, width * 1.35 + 16, height * 1.5 + 10)
        return cls(node, lines, max(56.0, width), height)


def draw_flow(flow: FlowDiagram) -> Picture:
    """Draw the diagram. Its size depends on its content."""
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
    """Return the centre of every node. Layers with edge labels between them have more space."""
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
    """Return the line from the border of one box to the border of the other."""
    first, last = boxes[edge.start], boxes[edge.end]
    if edge.start == edge.end:
        x, y = points[0]
        side, up = x + first.width / 2, first.height / 4
        return ((side, y - up), (side + 24, y - up), (side + 24, y + up), (side, y + up))
    start = _find_border_point(first, points[0], points[1], right=right)
    end = _find_border_point(last, points[-1], points[-2], right=right)
    return (start, *points[1:-1], end)


def _find_border_point(node_box: _NodeBox, middle: Point, towards: Point, *, right: bool) -> Point:
    """Return where a line to `towards` leaves the box: on the side of the next layer."""
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
    """Build the head of an arrow that comes from `before`."""
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


_SEQUENCE_PADDING: Final = 24.0
_HEAD_HEIGHT: Final = 40.0
_MESSAGE_STEP: Final = 46.0
_SEQUENCE_TEXT_SIZE: Final = 13.0
_SEQUENCE_TITLE_SIZE: Final = 18.0
_MESSAGE_TEXT_SIZE: Final = 12.0


def draw_sequence(sequence: SequenceDiagram) -> Picture:
    """Draw the diagram: participants side by side, time downwards."""
    names = [node.key for node in sequence.participants]
    widths = [
        min(170.0, estimate_width(node.text, _SEQUENCE_TEXT_SIZE) + 32) for node in sequence.participants
    ]
    places = _compute_columns(sequence, names, widths)
    above = 36.0 if sequence.title else 0.0
    top = _SEQUENCE_PADDING + above
    ends = top + _HEAD_HEIGHT + 26 + _MESSAGE_STEP * len(sequence.messages)
    own = [message for message in sequence.messages if message.start == message.end]
    beyond = (
        max((estimate_width(message.label, _MESSAGE_TEXT_SIZE) for message in own), default=0.0) + 40
        if own
        else 0.0
    )
    width = max(places[-1] + max(widths[-1] / 2, beyond) + _SEQUENCE_PADDING, 240.0)
    marks: list[PictureMark] = []
    if sequence.title:
        title = shorten_text(sequence.title, _SEQUENCE_TITLE_SIZE, width - 2 * _SEQUENCE_PADDING)
        marks.append(
            TextLine(
                text=title,
                at=(_SEQUENCE_PADDING, _SEQUENCE_PADDING + 8),
                size=_SEQUENCE_TITLE_SIZE,
                bold=True,
            )
        )
    for node, x, wide in zip(sequence.participants, places, widths, strict=True):
        marks.append(
            LineStroke(
                points=((x, top + _HEAD_HEIGHT), (x, ends)), colour=AXIS_COLOUR, width=1.2, dashed=True
            )
        )
        rim = build_box(x - wide / 2, top, wide, _HEAD_HEIGHT)
        marks.append(OutlineShape(points=rim, fill="#e8f1f8", stroke="#0072b2", width=1.6, corner=6))
        text = shorten_text(node.text, _SEQUENCE_TEXT_SIZE, wide - 16)
        marks.append(
            TextLine(
                text=text,
                at=(x, top + _HEAD_HEIGHT / 2 + 4.5),
                size=_SEQUENCE_TEXT_SIZE,
                anchor="middle",
                bold=True,
            )
        )
    at = dict(zip(names, places, strict=True))
    for number, message in enumerate(sequence.messages):
        y = top + _HEAD_HEIGHT + 40 + _MESSAGE_STEP * number
        marks += _draw_message(message, at[message.start], at[message.end], y)
    return Picture(
        width=width,
        height=ends + _SEQUENCE_PADDING,
        title=sequence.title or "Sequence diagram",
        marks=tuple(marks),
    )


def _compute_columns(sequence: SequenceDiagram, names: list[str], widths: list[float]) -> list[float]:
    """Return the columns, far enough apart for the messages between neighbours."""
    places = [_SEQUENCE_PADDING + widths[0] / 2]
    for number in range(1, len(names)):
        pair = {names[number - 1], names[number]}
        label_widths = [
            estimate_width(message.label, _MESSAGE_TEXT_SIZE) + (40 if message.start == message.end else 0)
            for message in sequence.messages
            if {message.start, message.end} == pair or message.start == message.end == names[number - 1]
        ]
        room = max(
            (widths[number - 1] + widths[number]) / 2 + 30, min(260.0, max(label_widths, default=0.0)) + 34
        )
        places.append(places[-1] + room)
    return places


def _draw_message(message: DiagramEdge, start: float, end: float, y: float) -> Iterator[PictureMark]:
    if start == end:
        loop = ((start, y - 8), (start + 28, y - 8), (start + 28, y + 10), (start + 2, y + 10))
        yield LineStroke(points=loop, colour=INK_COLOUR, width=1.6, dashed=message.dashed)
        yield build_arrow_head(loop[-2], loop[-1], INK_COLOUR)
        yield TextLine(text=message.label[:60], at=(start + 36, y + 5), size=_MESSAGE_TEXT_SIZE)
        return
    yield LineStroke(points=((start, y), (end, y)), colour=INK_COLOUR, width=1.6, dashed=message.dashed)
    yield build_arrow_head((start, y), (end, y), INK_COLOUR)
    for line in wrap_text(message.label, _MESSAGE_TEXT_SIZE, abs(end - start) - 20, 1):
        yield TextLine(text=line, at=((start + end) / 2, y - 7), size=_MESSAGE_TEXT_SIZE, anchor="middle")
