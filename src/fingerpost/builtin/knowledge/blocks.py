"""From lines to passages: paragraphs are kept together as long as they fit, and cut where they do not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from fingerpost.builtin.passages import TextPassage
from fingerpost.frozen import frozen

TARGET_LENGTH: Final = 700  # characters, above which no further paragraph is added
MAX_PASSAGE_LENGTH: Final = 1400  # of one passage; code is kept whole up to this
MAX_PASSAGES: Final = 5000  # of one note


@frozen(kw_only=False)
class TextBlock:
    """Lines that belong together: a paragraph, a list, a piece of code. Lines count from 1."""

    first: int
    last: int
    text: str


def split_paragraphs(lines: Sequence[str], start: int = 1) -> Iterator[TextBlock]:
    """Runs of lines between empty ones; `start` is the number of the first line."""
    held: list[str] = []
    for number, line in enumerate((*lines, ""), start=start):
        if line.strip():
            held.append(line)
        elif held:
            yield TextBlock(number - len(held), number - 1, "\n".join(held))
            held = []


def pack_passages(source: str, heading: str, blocks: Iterable[TextBlock]) -> Iterator[TextPassage]:
    """The blocks of one section as passages, none larger than it may be."""
    held: list[TextBlock] = []
    size = 0
    for block in (piece for whole in blocks for piece in _split_block(whole)):
        if held and size + len(block.text) > TARGET_LENGTH:
            yield _build_passage(source, heading, held)
            held, size = [], 0
        held.append(block)
        size += len(block.text)
    if held:
        yield _build_passage(source, heading, held)


def _build_passage(source: str, heading: str, blocks: Sequence[TextBlock]) -> TextPassage:
    return TextPassage(
        source=source,
        heading=heading,
        text="\n\n".join(block.text for block in blocks),
        first_line=blocks[0].first,
        last_line=blocks[-1].last,
    )


def _split_block(block: TextBlock) -> Iterator[TextBlock]:
    """A block too large in pieces: between lines, and within a line where it alone is too long."""
    if len(block.text) <= MAX_PASSAGE_LENGTH:
        yield block
        return
    held: list[tuple[int, str]] = []
    size = 0
    for number, line in enumerate(block.text.split("\n"), start=block.first):
        for piece in _split_line(line):
            if held and size + len(piece) > TARGET_LENGTH:
                yield _join_lines(held)
                held, size = [], 0
            held.append((number, piece))
            size += len(piece)
    if held:
        yield _join_lines(held)


def _join_lines(held: Sequence[tuple[int, str]]) -> TextBlock:
    return TextBlock(held[0][0], held[-1][0], "\n".join(piece for _, piece in held))


def _split_line(line: str) -> Iterator[str]:
    """A line in pieces: behind a sentence, else between words, else anywhere."""
    while len(line) > MAX_PASSAGE_LENGTH:
        sentence = line.rfind(". ", TARGET_LENGTH // 2, TARGET_LENGTH) + 1
        at = sentence or max(line.rfind(" ", TARGET_LENGTH // 2, TARGET_LENGTH), 0) or TARGET_LENGTH
        yield line[:at]
        line = line[at:].lstrip()
    yield line
