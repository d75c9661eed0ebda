"""A diagram out of data, or out of text in the manner of Mermaid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Items
from dataclasses import replace
from typing import Final, cast

from fingerpost.builtin.assets.diagrams.records import (
    MOST_EDGES,
    MOST_MESSAGES,
    MOST_NODES,
    MOST_PARTICIPANTS,
    Direction,
    Edge,
    Flow,
    Node,
    NodeShape,
    Sequence,
)
from fingerpost.builtin.kit import ToolRefused
from fingerpost.records import Json

LONGEST_TEXT: Final = 50_000
LONGEST_LABEL: Final = 120
HOW: Final = (
    "Write lines such as `A[Start] --> B{Ready?}` and `B -->|yes| C[Go]`, for a sequence "
    "`Ann ->> Bob: Hello`, or give data: "
    '{"edges": [["a", "b", "label"]]} or {"messages": [["a", "b", "text"]]}.'
)
_ARROW: Final = re.compile(
    r"\s*(?:--\s*(?P<inside>[^-=|>\n]{1,60}?)\s*(?:-->|---)|"
    r"(?P<line>-{1,3}\.?-*>{1,2}|-\.->|={1,2}>|→|⇒|---))(?:\s*\|(?P<label>[^|\n]{0,120})\|)?\s*"
)
_NODE: Final = re.compile(
    r"^(?P<key>[^\[\](){}|]{0,120}?)\s*(?:\[\(?(?P<box>[^\]]{1,300}?)\)?\]|\(+\[?(?P<round>[^)]{1,300}?)\]?\)+|"
    r"\{+(?P<diamond>[^}]{1,300})\}+)?\s*;?$"
)
_HEADER: Final = re.compile(r"^\s*(?:graph|flowchart)\s+(TD|TB|BT|LR|RL)\b\s*;?", re.IGNORECASE)
_MESSAGE: Final = re.compile(
    r"^\s*(?P<start>[^\n:>-]{1,80}?)\s*(?P<line>--?>{1,2}|--?[x)]|→)\s*[+-]?(?P<end>[^:\n>]{1,80}?)\s*:\s*(?P<text>.{0,300})$"
)
_PARTICIPANT: Final = re.compile(
    r"^\s*(?:participant|actor)\s+(?P<key>[^\n]{1,80}?)(?:\s+as\s+(?P<text>[^\n]{1,120}))?\s*$", re.IGNORECASE
)
_PASSED_OVER: Final = re.compile(
    r"^\s*(?:%%|subgraph|end\b|style\b|classDef\b|class\b|click\b|linkStyle|note\b|activate|deactivate|"
    r"autonumber|loop\b|alt\b|else\b|opt\b|par\b|title\b|```)",
    re.IGNORECASE,
)
_SHAPES: Final[Mapping[str, NodeShape]] = {"box": "box", "round": "round", "diamond": "diamond"}


def read_diagram(data: Json, prompt: str, title: str = "") -> Flow | Sequence:
    """The diagram that is wanted. Raises `ToolRefused` where there is nothing to draw."""
    found = _of_data(data) if isinstance(data, Mapping | list | tuple) and data else None
    if found is None:
        text = (data if isinstance(data, str) and data.strip() else prompt)[:LONGEST_TEXT]
        found = _of_text(text, wants_sequence="sequence" in f"{prompt} {text[:200]}".lower())
    if found is None:
        message = "There is nothing to draw a diagram from."
        raise ToolRefused(message, hint=HOW)
    return replace(_checked(found), title=_text(title))


def _checked(found: Flow | Sequence) -> Flow | Sequence:
    if isinstance(found, Flow):
        few = len(found.nodes) <= MOST_NODES and len(found.edges) <= MOST_EDGES
        most = f"{MOST_NODES} boxes and {MOST_EDGES} arrows"
    else:
        few = len(found.participants) <= MOST_PARTICIPANTS and len(found.messages) <= MOST_MESSAGES
        most = f"{MOST_PARTICIPANTS} participants and {MOST_MESSAGES} messages"
    if not few:
        message = f"A diagram has at most {most}."
        raise ToolRefused(message, hint="Draw a part of it, or several.")
    return found


# -- data -------------------------------------------------------------------------------------------


def _of_data(data: Json) -> Flow | Sequence | None:
    if not isinstance(data, Mapping):
        return _flow((), data)
    messages = data.get("messages")
    if isinstance(messages, list | tuple):
        return _sequence_of(data.get("participants"), messages)
    return _flow(data.get("nodes"), data.get("edges", data.get("links")), str(data.get("direction", "")))


def _flow(nodes: Json, edges: Json, direction: str = "") -> Flow | None:
    known: dict[str, Node] = {}
    for item in _items(nodes):
        key, text, shape = _fields(item, ("id", "key", "name"), ("text", "label", "name"), ("shape",))
        if key:
            known[key] = Node(key=key, text=text or key, shape=_SHAPES.get(shape, "box"))
    made: list[Edge] = []
    for item in _items(edges):
        start, end, label = _fields(
            item, ("from", "start", "source"), ("to", "end", "target"), ("label", "text")
        )
        if start and end:
            made.append(Edge(start=start, end=end, label=label))
            for key in (start, end):
                known.setdefault(key, Node(key=key, text=key))
    way: Direction = "right" if direction.lower() in ("right", "lr", "rl", "horizontal") else "down"
    return Flow(nodes=tuple(known.values()), edges=tuple(made), direction=way) if known else None


def _sequence_of(participants: Json, messages: Json) -> Sequence | None:
    names = {
        _text(item): Node(key=_text(item), text=_text(item)) for item in _items(participants) if _text(item)
    }
    made: list[Edge] = []
    for item in _items(messages):
        start, end, label = _fields(item, ("from", "start"), ("to", "end"), ("text", "label", "message"))
        if start and end:
            made.append(Edge(start=start, end=end, label=label))
            for key in (start, end):
                names.setdefault(key, Node(key=key, text=key))
    return Sequence(participants=tuple(names.values()), messages=tuple(made)) if made else None


def _fields(item: Json, *names: tuple[str, ...]) -> tuple[str, ...]:
    """The first of each group of names that is there; of a list, by place."""
    if isinstance(item, Mapping):
        return tuple(
            next((_text(item[name]) for name in group if item.get(name) is not None), "") for group in names
        )
    places = (
        [_text(cell) for cell in cast("Items[Json]", item)]
        if isinstance(item, list | tuple)
        else [_text(item)]
    )
    return tuple(places[at] if at < len(places) else "" for at in range(len(names)))


def _items(value: Json) -> Items[Json]:
    return value[:1000] if isinstance(value, list | tuple) else ()


def _text(value: Json) -> str:
    if not isinstance(value, str | int | float):
        return ""
    plain = re.sub(r"<br\s*/?>", " ", str(value), flags=re.IGNORECASE)
    return " ".join(plain.split()).strip("\"'")[:LONGEST_LABEL]


# -- text -------------------------------------------------------------------------------------------


def _of_text(text: str, *, wants_sequence: bool) -> Flow | Sequence | None:
    lines = [" ".join(line.split()) for line in text.split("\n") if line.strip()]  # runs of spaces take long
    if wants_sequence or any("->>" in line for line in lines):
        found = _sequence(lines)
        if found is not None:
            return found
    return _flow_of(lines)


def _sequence(lines: Iterable[str]) -> Sequence | None:
    names: dict[str, Node] = {}
    messages: list[Edge] = []
    for line in lines:
        if named := _PARTICIPANT.match(line):
            key = _text(named["key"])
            names[key] = Node(key=key, text=_text(named["text"]) or key)
        elif _PASSED_OVER.match(line):
            continue
        elif said := _MESSAGE.match(_last_sentence(line)):
            start, end = _text(said["start"]), _text(said["end"])
            for key in (start, end):
                names.setdefault(key, Node(key=key, text=key))
            dashed = said["line"].startswith("--")
            messages.append(Edge(start=start, end=end, label=_text(said["text"]), dashed=dashed))
    return Sequence(participants=tuple(names.values()), messages=tuple(messages)) if messages else None


def _flow_of(lines: Iterable[str]) -> Flow | None:
    nodes: dict[str, Node] = {}
    edges: list[Edge] = []
    way: Direction = "down"
    for line in (part for whole in lines for part in whole.split(";")):
        if header := _HEADER.match(line):
            way = "right" if header[1].upper() in ("LR", "RL") else "down"
            line = line[header.end() :]
        if not line.strip() or _PASSED_OVER.match(line) or not _ARROW.search(line):
            continue
        _chain(_last_sentence(line), nodes, edges)
    return Flow(nodes=tuple(nodes.values()), edges=tuple(edges), direction=way) if edges else None


def _last_sentence(line: str) -> str:
    """Without the words before a chain: `a flowchart of the build: checkout -> test`."""
    head, colon, rest = line.partition(":")
    introduces = colon and not _ARROW.search(head) and _ARROW.search(rest)
    return rest.strip() if introduces else line.strip()


def _chain(line: str, nodes: dict[str, Node], edges: list[Edge]) -> None:
    """`A --> B -- no --> C: text`: every arrow is an edge from the one before it."""
    before: str | None = None
    label, dashed, arrow = "", False, True
    at = 0
    for match in (*_ARROW.finditer(line), None):
        part = line[at : match.start() if match else len(line)]
        if match is None and before is not None and ":" in part and not label:
            part, _, label = part.partition(":")
        key = _met(part, nodes)
        if key is not None and before is not None:
            edges.append(Edge(start=before, end=key, label=_text(label), dashed=dashed, arrow=arrow))
        before = key
        if match is not None:
            label = match["label"] or match["inside"] or ""
            dashed, arrow = "." in (match["line"] or ""), match[0].strip() != "---"
            at = match.end()


def _met(part: str, nodes: dict[str, Node]) -> str | None:
    """The node this names, with the words and the shape it was first given."""
    match = _NODE.match(part.strip())
    if match is None:
        return None
    told = next(((name, match[name]) for name in _SHAPES if match[name]), None)
    text = _text(told[1]) if told else ""
    key = _text(match["key"]) or text
    if not key:
        return None
    known = nodes.get(key)
    if known is None or (told is not None and known.text == known.key):
        nodes[key] = Node(key=key, text=text or key, shape=_SHAPES[told[0]] if told else "box")
    return key
