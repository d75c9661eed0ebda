"""A diagram out of data, or out of text in the manner of Mermaid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Final, cast

from fingerpost.builtin.assets.diagrams.records import (
    MAX_EDGES,
    MAX_MESSAGES,
    MAX_NODES,
    MAX_PARTICIPANTS,
    DiagramEdge,
    DiagramNode,
    FlowDiagram,
    FlowDirection,
    NodeShape,
    SequenceDiagram,
)
from fingerpost.builtin.kit import ToolRefused
from fingerpost.records import Json

MAX_DIAGRAM_TEXT: Final = 50_000
MAX_NODE_LABEL: Final = 120
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
_IGNORED_LINES: Final = re.compile(
    r"^\s*(?:%%|subgraph|end\b|style\b|classDef\b|class\b|click\b|linkStyle|note\b|activate|deactivate|"
    r"autonumber|loop\b|alt\b|else\b|opt\b|par\b|title\b|```)",
    re.IGNORECASE,
)
_SHAPE_BY_BRACKET: Final[Mapping[str, NodeShape]] = {"box": "box", "round": "round", "diamond": "diamond"}


def parse_diagram(data: Json, prompt: str, title: str = "") -> FlowDiagram | SequenceDiagram:
    """The diagram that is wanted. Raises `ToolRefused` where there is nothing to draw."""
    found = _parse_data(data) if isinstance(data, Mapping | list | tuple) and data else None
    if found is None:
        text = (data if isinstance(data, str) and data.strip() else prompt)[:MAX_DIAGRAM_TEXT]
        found = _parse_text(text, wants_sequence="sequence" in f"{prompt} {text[:200]}".lower())
    if found is None:
        message = "There is nothing to draw a diagram from."
        raise ToolRefused(message, hint=DIAGRAM_HINT)
    return replace(_check_diagram(found), title=_format_text(title))


def _check_diagram(diagram: FlowDiagram | SequenceDiagram) -> FlowDiagram | SequenceDiagram:
    if isinstance(diagram, FlowDiagram):
        few = len(diagram.nodes) <= MAX_NODES and len(diagram.edges) <= MAX_EDGES
        most = f"{MAX_NODES} boxes and {MAX_EDGES} arrows"
    else:
        few = len(diagram.participants) <= MAX_PARTICIPANTS and len(diagram.messages) <= MAX_MESSAGES
        most = f"{MAX_PARTICIPANTS} participants and {MAX_MESSAGES} messages"
    if not few:
        message = f"A diagram has at most {most}."
        raise ToolRefused(message, hint="Draw a part of it, or several.")
    return diagram


# -- data -------------------------------------------------------------------------------------------


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
            known[key] = DiagramNode(key=key, text=text or key, shape=_SHAPE_BY_BRACKET.get(shape, "box"))
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
    """The first of each group of names that is there; of a list, by place."""
    if isinstance(item, Mapping):
        return tuple(
            next((_format_text(item[name]) for name in group if item.get(name) is not None), "")
            for group in names
        )
    places = (
        [_format_text(cell) for cell in cast("Items[Json]", item)]
        if isinstance(item, list | tuple)
        else [_format_text(item)]
    )
    return tuple(places[at] if at < len(places) else "" for at in range(len(names)))


def _get_items(value: Json) -> Items[Json]:
    return value[:1000] if isinstance(value, list | tuple) else ()


def _format_text(value: Json) -> str:
    if not isinstance(value, str | int | float):
        return ""
    plain = re.sub(r"<br\s*/?>", " ", str(value), flags=re.IGNORECASE)
    return " ".join(plain.split()).strip("\"'")[:MAX_NODE_LABEL]


# -- text -------------------------------------------------------------------------------------------


def _parse_text(text: str, *, wants_sequence: bool) -> FlowDiagram | SequenceDiagram | None:
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]  # runs of spaces take long
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
        elif _IGNORED_LINES.match(line):
            continue
        elif said := _MESSAGE_PATTERN.match(_strip_introduction(line)):
            start, end = _format_text(said["start"]), _format_text(said["end"])
            for key in (start, end):
                names.setdefault(key, DiagramNode(key=key, text=key))
            dashed = said["line"].startswith("--")
            messages.append(
                DiagramEdge(start=start, end=end, label=_format_text(said["text"]), dashed=dashed)
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
        if not line.strip() or _IGNORED_LINES.match(line) or not _ARROW_PATTERN.search(line):
            continue
        _parse_chain(_strip_introduction(line), nodes, edges)
    return FlowDiagram(nodes=tuple(nodes.values()), edges=tuple(edges), direction=way) if edges else None


def _strip_introduction(line: str) -> str:
    """Without the words before a chain: `a flowchart of the build: checkout -> test`."""
    head, colon, rest = line.partition(":")
    introduces = colon and not _ARROW_PATTERN.search(head) and _ARROW_PATTERN.search(rest)
    return rest.strip() if introduces else line.strip()


def _parse_chain(line: str, nodes: dict[str, DiagramNode], edges: list[DiagramEdge]) -> None:
    """`A --> B -- no --> C: text`: every arrow is an edge from the one before it."""
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
    """The node this names, with the words and the shape it was first given."""
    match = _NODE_PATTERN.match(part.strip())
    if match is None:
        return None
    told = next(((name, match[name]) for name in _SHAPE_BY_BRACKET if match[name]), None)
    text = _format_text(told[1]) if told else ""
    key = _format_text(match["key"]) or text
    if not key:
        return None
    known = nodes.get(key)
    if known is None or (told is not None and known.text == known.key):
        nodes[key] = DiagramNode(
            key=key, text=text or key, shape=_SHAPE_BY_BRACKET[told[0]] if told else "box"
        )
    return key
