"""Where boxes go: in layers along the arrows, ordered so that few arrows cross.

The usual four steps: turn arrows that lead back, give every node a layer, order the layers
by the neighbours of their nodes, and move nodes towards those neighbours as far as there is room.
An arrow over several layers gets a place in each, so that it leads around the boxes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from fingerpost.frozen import frozen

_ORDERING_SWEEPS: Final = 8

NodeName = str
NodeLink = tuple[NodeName, NodeName]


@frozen
class DiagramLayout:
    """Layer and place across for every node; and what each edge passes, its ends included."""

    layer: Mapping[NodeName, int]
    across: Mapping[NodeName, float]
    paths: tuple[tuple[NodeName, ...], ...]  # in the order of the edges


def compute_layout(
    nodes: Sequence[NodeName], edges: Sequence[NodeLink], get_width: Callable[[NodeName], float]
) -> DiagramLayout:
    """`room` says how much of its layer a node takes, its distance to the next included."""
    layer = _assign_layers(nodes, _remove_cycles(nodes, edges))
    paths, places = _build_paths(edges, layer)
    links = [link for path in paths for link in pairwise(path)]
    rows = _order_rows(places, links)

    def width(name: NodeName) -> float:
        return get_width(name) if name in layer else 26.0

    across = _place_nodes(rows, links, width)
    layers = {name: number for number, row in enumerate(rows) for name in row}
    return DiagramLayout(layer=layers, across=across, paths=tuple(paths))


def _remove_cycles(nodes: Sequence[NodeName], edges: Sequence[NodeLink]) -> list[NodeLink]:
    """The edges, those that lead back turned round; loops at one node left out."""
    following: dict[NodeName, list[NodeName]] = defaultdict(list)
    for start, end in edges:
        if start != end:
            following[start].append(end)
    state: dict[NodeName, int] = {}  # 1 on the way, 2 done
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
    """Every node behind all that lead to it."""
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
    """What every edge passes, and who is in which layer."""
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
    """Each layer by the mean place of its neighbours in the one before, down and up again."""
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
    """The middle of every node across its layer."""
    near, across = _build_neighbours(links), dict[NodeName, float]()
    for row in rows:
        left = -sum(width(name) for name in row) / 2
        for name in row:
            across[name] = left + width(name) / 2
            left += width(name)
    for sweep in range(_ORDERING_SWEEPS * 2):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wished = {
                name: sum(across[other] for other in near[name]) / len(near[name])
                if near.get(name)
                else across[name]
                for name in row
            }
            across.update(_spread_row(row, wished, width))
    return across


def _spread_row(
    row: Sequence[NodeName], preferred: Mapping[NodeName, float], width: Callable[[NodeName], float]
) -> dict[NodeName, float]:
    """As near to what is wished as the order and the room of each allow.

    Neighbours that would overlap become one block, which stands where its members would on average.
    """
    blocks: list[
        tuple[list[NodeName], list[float]]
    ] = []  # the names, and what each wishes of the block's start
    for name in row:
        names, wishes = [name], [preferred[name] - width(name) / 2]
        while (
            blocks
            and _find_start(blocks[-1][1]) + sum(map(width, blocks[-1][0])) > _find_start(wishes) - 1e-9
        ):
            before, earlier = blocks.pop()
            taken = sum(map(width, before))
            names, wishes = [*before, *names], [*earlier, *(wish - taken for wish in wishes)]
        blocks.append((names, wishes))
    found: dict[NodeName, float] = {}
    for names, wishes in blocks:
        left = _find_start(wishes)
        for name in names:
            found[name] = left + width(name) / 2
            left += width(name)
    return found


def _find_start(preferred: Sequence[float]) -> float:
    return sum(preferred) / len(preferred)
