"""From lines to passages: paragraphs are kept together as long as they fit, and cut where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from fingerpost.builtin.passages import Passage
from fingerpost.frozen import frozen

TARGET: Final = 700  # characters, above which no further paragraph is added
LARGEST: Final = 1400  # of one passage; code is kept whole up to this
MOST_PASSAGES: Final = 5000  # of one note


@frozen(kw_only=False)
class Block:
    """Lines that belong together: a paragraph, a list, a piece of code. Lines count from 1."""

    first: int
    last: int
    text: str


def paragraphs(lines: Sequence[str], start: int = 1) -> Iterator[Block]:
    """Runs of lines between empty ones; `start` is the number of the first line."""
    held: list[str] = []
    for number, line in enumerate((*lines, ""), start=start):
        if line.strip():
            held.append(line)
        elif held:
            yield Block(number - len(held), number - 1, "\n".join(held))
            held = []


def pack(source: str, heading: str, blocks: Iterable[Block]) -> Iterator[Passage]:
    """The blocks of one section as passages, none larger than it may be."""
    held: list[Block] = []
    size = 0
    for block in (piece for whole in blocks for piece in _cut(whole)):
        if held and size + len(block.text) > TARGET:
            yield _passage(source, heading, held)
            held, size = [], 0
        held.append(block)
        size += len(block.text)
    if held:
        yield _passage(source, heading, held)


def _passage(source: str, heading: str, blocks: Sequence[Block]) -> Passage:
    return Passage(
        source=source,
        heading=heading,
        text="\n\n".join(block.text for block in blocks),
        first_line=blocks[0].first,
        last_line=blocks[-1].last,
    )


def _cut(block: Block) -> Iterator[Block]:
    """A block too large in pieces: between lines, and within a line where it alone is too long."""
    if len(block.text) <= LARGEST:
        yield block
        return
    held: list[tuple[int, str]] = []
    size = 0
    for number, line in enumerate(block.text.split("\n"), start=block.first):
        for piece in _slices(line):
            if held and size + len(piece) > TARGET:
                yield _joined(held)
                held, size = [], 0
            held.append((number, piece))
            size += len(piece)
    if held:
        yield _joined(held)


def _joined(held: Sequence[tuple[int, str]]) -> Block:
    return Block(held[0][0], held[-1][0], "\n".join(piece for _, piece in held))


def _slices(line: str) -> Iterator[str]:
    """A line in pieces: behind a sentence, else between words, else anywhere."""
    while len(line) > LARGEST:
        sentence = line.rfind(". ", TARGET // 2, TARGET) + 1
        at = sentence or max(line.rfind(" ", TARGET // 2, TARGET), 0) or TARGET
        yield line[:at]
        line = line[at:].lstrip()
    yield line
