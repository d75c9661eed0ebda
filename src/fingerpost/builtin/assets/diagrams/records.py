"""What a diagram shows."""

from __future__ import annotations

from typing import Final, Literal

from fingerpost.frozen import frozen

NodeShape = Literal["box", "round", "diamond"]
Direction = Literal["down", "right"]
MOST_NODES: Final = 80
MOST_EDGES: Final = 160
MOST_PARTICIPANTS: Final = 12
MOST_MESSAGES: Final = 60


@frozen
class Node:
    """A box with words in it."""

    key: str
    text: str
    shape: NodeShape = "box"


@frozen
class Edge:
    """From one to another."""

    start: str
    end: str
    label: str = ""
    dashed: bool = False
    arrow: bool = True


@frozen
class Flow:
    """Boxes and arrows."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    direction: Direction = "down"
    title: str = ""

    @property
    def about(self) -> str:
        return f"a flowchart of {len(self.nodes)} boxes and {len(self.edges)} arrows"


@frozen
class Sequence:
    """Who says what to whom, one after another."""

    participants: tuple[Node, ...]
    messages: tuple[Edge, ...]
    title: str = ""

    @property
    def about(self) -> str:
        many = f"{len(self.messages)} messages between {len(self.participants)} participants"
        return f"a sequence diagram of {many}"
