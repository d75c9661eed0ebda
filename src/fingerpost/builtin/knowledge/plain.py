"""Text without marks of its own: paragraphs, and words that are underlined as headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from fingerpost.builtin.knowledge.blocks import MAX_PASSAGES, pack_passages, split_paragraphs
from fingerpost.builtin.knowledge.markdown import HEADING_SEPARATOR, MAX_HEADING_LENGTH
from fingerpost.builtin.knowledge.records import NoteHeading, ParsedNote
from fingerpost.builtin.passages import TextPassage

_PLAIN_UNDERLINE = re.compile(r"([=\-~^\"'`#*+_.:])\1{2,200}\s*$")
MAX_UNDERLINED_LENGTH: Final = 120


def parse_plain(path: str, text: str, name: str) -> ParsedNote:
    """A text file. It is called after its file."""
    lines = text.split("\n")
    headings = tuple(_find_headings(lines))
    return ParsedNote(
        title=name,
        headings=headings,
        passages=tuple(islice(_build_plain_passages(path, name, lines, headings), MAX_PASSAGES)),
        lines=len(lines),
    )


def _find_headings(lines: Sequence[str]) -> Iterator[NoteHeading]:
    """As reStructuredText has them: the first kind of underline is the highest level, and so on."""
    levels: dict[str, int] = {}
    for place in range(1, len(lines)):
        words = lines[place - 1].rstrip()
        under = _PLAIN_UNDERLINE.match(lines[place][:MAX_UNDERLINED_LENGTH])
        alone = (
            place < 2
            or not lines[place - 2].strip()
            or _PLAIN_UNDERLINE.match(lines[place - 2][:MAX_UNDERLINED_LENGTH])
        )
        if under is None or not alone or not any(map(str.isalnum, words)) or words[:1].isspace():
            continue
        if len(lines[place].rstrip()) >= min(len(words), MAX_UNDERLINED_LENGTH):
            level = levels.setdefault(under[1], len(levels) + 1)
            yield NoteHeading(level=level, text=words.strip()[:MAX_HEADING_LENGTH], line=place)


def _build_plain_passages(
    path: str, title: str, lines: Sequence[str], headings: Sequence[NoteHeading]
) -> Iterator[TextPassage]:
    yield from pack_passages(
        path, title, split_paragraphs(lines[: headings[0].line - 1 if headings else len(lines)])
    )
    above: dict[int, str] = {}
    ends = [heading.line - 1 for heading in headings[1:]] + [len(lines)]
    for heading, end in zip(headings, ends[: len(headings)], strict=True):
        above = {level: words for level, words in above.items() if level < heading.level}
        above[heading.level] = heading.text
        start = heading.line + 1  # behind the underline
        yield from pack_passages(
            path,
            HEADING_SEPARATOR.join((title, *above.values())),
            split_paragraphs(lines[start:end], start + 1),
        )
