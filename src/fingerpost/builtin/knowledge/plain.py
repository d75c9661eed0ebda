"""Text without marks of its own: paragraphs, and words that are underlined as headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from fingerpost.builtin.knowledge.blocks import MOST_PASSAGES, pack, paragraphs
from fingerpost.builtin.knowledge.markdown import BETWEEN, LONGEST_HEADING
from fingerpost.builtin.knowledge.records import Heading, Parsed
from fingerpost.builtin.passages import Passage

_UNDERLINE = re.compile(r"([=\-~^\"'`#*+_.:])\1{2,200}\s*$")
LONGEST_UNDERLINED: Final = 120


def parse_plain(path: str, text: str, name: str) -> Parsed:
    """A text file. It is called after its file."""
    lines = text.split("\n")
    headings = tuple(_headings(lines))
    return Parsed(
        title=name,
        headings=headings,
        passages=tuple(islice(_passages(path, name, lines, headings), MOST_PASSAGES)),
        lines=len(lines),
    )


def _headings(lines: Sequence[str]) -> Iterator[Heading]:
    """As reStructuredText has them: the first kind of underline is the highest level, and so on."""
    levels: dict[str, int] = {}
    for place in range(1, len(lines)):
        words = lines[place - 1].rstrip()
        under = _UNDERLINE.match(lines[place][:LONGEST_UNDERLINED])
        alone = (
            place < 2
            or not lines[place - 2].strip()
            or _UNDERLINE.match(lines[place - 2][:LONGEST_UNDERLINED])
        )
        if under is None or not alone or not any(map(str.isalnum, words)) or words[:1].isspace():
            continue
        if len(lines[place].rstrip()) >= min(len(words), LONGEST_UNDERLINED):
            level = levels.setdefault(under[1], len(levels) + 1)
            yield Heading(level=level, text=words.strip()[:LONGEST_HEADING], line=place)


def _passages(path: str, title: str, lines: Sequence[str], headings: Sequence[Heading]) -> Iterator[Passage]:
    yield from pack(path, title, paragraphs(lines[: headings[0].line - 1 if headings else len(lines)]))
    above: dict[int, str] = {}
    ends = [heading.line - 1 for heading in headings[1:]] + [len(lines)]
    for heading, end in zip(headings, ends[: len(headings)], strict=True):
        above = {level: words for level, words in above.items() if level < heading.level}
        above[heading.level] = heading.text
        start = heading.line + 1  # behind the underline
        yield from pack(path, BETWEEN.join((title, *above.values())), paragraphs(lines[start:end], start + 1))
