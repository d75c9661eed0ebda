"""What a diagram shows."""

from __future__ import annotations

from typing import Final, Literal

from fingerpost.frozen import frozen

NodeShape = Literal["box", "round", "diamond"]
FlowDirection = Literal["down", "right"]
MAX_NODES: Final = 80
MAX_EDGES: Final = 160
MAX_PARTICIPANTS: Final = 12
MAX_MESSAGES: Final = 60


@frozen
class DiagramNode:
    """A box with words in it."""

    key: str
    text: str
    shape: NodeShape = "box"


@frozen
class DiagramEdge:
    """From one to another."""

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
    """Who says what to whom, one after another."""

    participants: tuple[DiagramNode, ...]
    messages: tuple[DiagramEdge, ...]
    title: str = ""

    @property
    def summary(self) -> str:
        many = f"{len(self.messages)} messages between {len(self.participants)} participants"
        return f"a sequence diagram of {many}"
