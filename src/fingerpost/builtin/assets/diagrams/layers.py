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

_SWEEPS: Final = 8

Name = str
Link = tuple[Name, Name]


@frozen
class Layout:
    """Layer and place across for every node; and what each edge passes, its ends included."""

    layer: Mapping[Name, int]
    across: Mapping[Name, float]
    paths: tuple[tuple[Name, ...], ...]  # in the order of the edges


def laid_out(nodes: Sequence[Name], edges: Sequence[Link], room: Callable[[Name], float]) -> Layout:
    """`room` says how much of its layer a node takes, its distance to the next included."""
    layer = _layers(nodes, _without_cycles(nodes, edges))
    paths, places = _paths(edges, layer)
    links = [link for path in paths for link in pairwise(path)]
    rows = _ordered(places, links)

    def width(name: Name) -> float:
        return room(name) if name in layer else 26.0

    across = _placed(rows, links, width)
    layers = {name: number for number, row in enumerate(rows) for name in row}
    return Layout(layer=layers, across=across, paths=tuple(paths))


def _without_cycles(nodes: Sequence[Name], edges: Sequence[Link]) -> list[Link]:
    """The edges, those that lead back turned round; loops at one node left out."""
    following: dict[Name, list[Name]] = defaultdict(list)
    for start, end in edges:
        if start != end:
            following[start].append(end)
    state: dict[Name, int] = {}  # 1 on the way, 2 done
    links: list[Link] = []
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


def _layers(nodes: Sequence[Name], links: Sequence[Link]) -> dict[Name, int]:
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


def _paths(
    edges: Sequence[Link], layer: Mapping[Name, int]
) -> tuple[list[tuple[Name, ...]], list[list[Name]]]:
    """What every edge passes, and who is in which layer."""
    rows: list[list[Name]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for name, number in layer.items():
        rows[number].append(name)
    paths: list[tuple[Name, ...]] = []
    for number, (start, end) in enumerate(edges):
        step = 1 if layer[end] > layer[start] else -1
        passed = range(layer[start] + step, layer[end], step) if start != end else ()
        between = tuple(f"\0{number}/{at}" for at in passed)
        for name, at in zip(between, passed, strict=True):
            rows[at].append(name)
        paths.append((start, *between, end))
    return paths, rows


def _neighbours(links: Sequence[Link]) -> dict[Name, list[Name]]:
    found: dict[Name, list[Name]] = defaultdict(list)
    for start, end in links:
        if start != end:
            found[start].append(end)
            found[end].append(start)
    return found


def _ordered(rows: list[list[Name]], links: Sequence[Link]) -> list[list[Name]]:
    """Each layer by the mean place of its neighbours in the one before, down and up again."""
    near = _neighbours(links)
    best, fewest = [list(row) for row in rows], _crossings(rows, links)
    for sweep in range(_SWEEPS):
        numbers = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for number in numbers:
            fixed = rows[number - 1] if sweep % 2 == 0 else rows[number + 1]
            places = {name: float(at) for at, name in enumerate(fixed)}
            rows[number] = _by_means(rows[number], near, places)
        if (crossed := _crossings(rows, links)) < fewest:
            best, fewest = [list(row) for row in rows], crossed
    return best


def _by_means(row: list[Name], near: Mapping[Name, list[Name]], places: Mapping[Name, float]) -> list[Name]:
    def mean(at: int, name: Name) -> float:
        known = [places[other] for other in near.get(name, ()) if other in places]
        return sum(known) / len(known) if known else float(at)

    means = {name: mean(at, name) for at, name in enumerate(row)}
    return sorted(row, key=lambda name: means[name])


def _crossings(rows: Sequence[Sequence[Name]], links: Sequence[Link]) -> int:
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


def _placed(
    rows: Sequence[Sequence[Name]], links: Sequence[Link], width: Callable[[Name], float]
) -> dict[Name, float]:
    """The middle of every node across its layer."""
    near, across = _neighbours(links), dict[Name, float]()
    for row in rows:
        left = -sum(width(name) for name in row) / 2
        for name in row:
            across[name] = left + width(name) / 2
            left += width(name)
    for sweep in range(_SWEEPS * 2):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wished = {
                name: sum(across[other] for other in near[name]) / len(near[name])
                if near.get(name)
                else across[name]
                for name in row
            }
            across.update(_apart(row, wished, width))
    return across


def _apart(
    row: Sequence[Name], wished: Mapping[Name, float], width: Callable[[Name], float]
) -> dict[Name, float]:
    """As near to what is wished as the order and the room of each allow.

    Neighbours that would overlap become one block, which stands where its members would on average.
    """
    blocks: list[tuple[list[Name], list[float]]] = []  # the names, and what each wishes of the block's start
    for name in row:
        names, wishes = [name], [wished[name] - width(name) / 2]
        while blocks and _start(blocks[-1][1]) + sum(map(width, blocks[-1][0])) > _start(wishes) - 1e-9:
            before, earlier = blocks.pop()
            taken = sum(map(width, before))
            names, wishes = [*before, *names], [*earlier, *(wish - taken for wish in wishes)]
        blocks.append((names, wishes))
    found: dict[Name, float] = {}
    for names, wishes in blocks:
        left = _start(wishes)
        for name in names:
            found[name] = left + width(name) / 2
            left += width(name)
    return found


def _start(wishes: Sequence[float]) -> float:
    return sum(wishes) / len(wishes)
