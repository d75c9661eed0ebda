"""What a diagram shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

NodeShape = Literal["box", "round", "diamond"]
Direction = Literal["down", "right"]
MOST_NODES: Final = 80
MOST_EDGES: Final = 160
MOST_PARTICIPANTS: Final = 12
MOST_MESSAGES: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A box with words in it."""

    key: str
    text: str
    shape: NodeShape = "box"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """From one to another."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False
    arrow: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Boxes and arrows."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    direction: Direction = "down"
    title: str = ""

    @property
    def about(self) -> str:
        return f"a flowchart of {len(self.nodes)} boxes and {len(self.edges)} arrows"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """Who says what to whom, one after another."""

    participants: tuple[Node, ...]
    messages: tuple[Edge, ...]
    title: str = ""

    @property
    def about(self) -> str:
        many = f"{len(self.messages)} messages between {len(self.participants)} participants"
        return f"a sequence diagram of {many}"
