"""Markdown taken apart: sections by headings, code kept whole, links and tags where they are no code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final
from urllib.parse import unquote

from fingerpost.builtin.knowledge.blocks import MAX_PASSAGES, TextBlock, pack_passages, split_paragraphs
from fingerpost.builtin.knowledge.front import normalize_tags, read_front_matter
from fingerpost.builtin.knowledge.records import NoteHeading, NoteReference, ParsedNote
from fingerpost.builtin.passages import TextPassage
from fingerpost.frozen import frozen

MAX_LINE_LENGTH: Final = 4000  # of which links and tags are looked for
MAX_HEADING_LENGTH: Final = 200
MAX_REFERENCES: Final = 2000
MAX_TAGS: Final = 100
HEADING_SEPARATOR: Final = " › "

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})\s*$")
_CODE = re.compile(r"`[^`\n]{1,500}`")
_BY_NAME = re.compile(r"\[\[([^\[\]|#\n]{1,200})(?:#[^\[\]|\n]{0,200})?(?:\|[^\[\]\n]{0,200})?\]\]")
_BY_PATH = re.compile(r"\]\(\s{0,3}(?:<([^<>\n]{1,500})>|([^()<>\s]{1,500}))")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,20}:")
_TAG = re.compile(r"(?<![\w/#&.\-(])#([^\W\d_][\w/-]{0,60})")


def parse_markdown(path: str, text: str, name: str) -> ParsedNote:
    """A note; `name` is its title where it has none of its own."""
    lines = text.split("\n")
    front = read_front_matter(lines)
    found = _MarkdownFindings()
    sections = list(_split_sections(lines, front.lines, found))
    first = found.headings[0] if found.headings and found.headings[0].level == 1 else None
    title = front.title or (first.text if first is not None else "") or name
    passages = islice(_build_markdown_passages(path, title, sections), MAX_PASSAGES)
    return ParsedNote(
        title=title,
        front=front,
        tags=normalize_tags((*front.tags, *found.tags[:MAX_TAGS])),
        headings=tuple(found.headings),
        references=tuple(found.references[:MAX_REFERENCES]),
        passages=tuple(passages),
        lines=len(lines),
    )


@dataclass(slots=True)
class _MarkdownFindings:
    """What comes up on the way."""

    headings: list[NoteHeading] = field(default_factory=list[NoteHeading])
    references: list[NoteReference] = field(default_factory=list[NoteReference])
    tags: list[str] = field(default_factory=list[str])

    def read_line(self, number: int, line: str) -> None:
        """The links and tags of a line that is no code."""
        line = _CODE.sub(" ", line[:MAX_LINE_LENGTH])
        for match in _BY_NAME.finditer(line):
            self.references.append(NoteReference(target=match[1].strip(), line=number, by_name=True))
        for match in _BY_PATH.finditer(line):
            target = unquote((match[1] or match[2]).partition("#")[0])
            if target and not _SCHEME.match(target):
                self.references.append(NoteReference(target=target, line=number, by_name=False))
        self.tags += _TAG.findall(line)


@frozen(kw_only=False)
class _MarkdownSection:
    """What stands under one heading, up to the next one of any level."""

    heading: NoteHeading | None
    blocks: tuple[TextBlock, ...]


def _split_sections(lines: Sequence[str], start: int, found: _MarkdownFindings) -> Iterator[_MarkdownSection]:
    heading: NoteHeading | None = None
    blocks: list[TextBlock] = []
    held: list[str] = []  # lines of a paragraph not yet ended
    place = start

    def keep(before: int) -> None:
        """The paragraph whose last line is the one before `before` has ended."""
        blocks.extend(split_paragraphs(held, before - len(held)))
        held.clear()

    while place < len(lines):
        line, number = lines[place], place + 1
        if (fence := _FENCE.match(line)) is not None:
            keep(number)
            end = _find_code_end(lines, place, fence[1])
            blocks.append(TextBlock(number, end, "\n".join(lines[place:end])))
            place = end
            continue
        if (made := _read_heading(line, number, held)) is not None:
            if made.line != number:
                held.pop()  # the words above the underline are no paragraph
            keep(made.line)
            yield _MarkdownSection(heading, tuple(blocks))
            heading, blocks = made, []
            found.headings.append(made)
        else:
            found.read_line(number, line)
            held.append(line)
        place += 1
    keep(len(lines) + 1)
    yield _MarkdownSection(heading, tuple(blocks))


def _read_heading(line: str, number: int, held: Sequence[str]) -> NoteHeading | None:
    """`# words`, or words underlined with `=` or `-`."""
    if (marks := _HEADING.match(line)) is not None:
        return NoteHeading(level=len(marks[1]), text=_strip_marks(line[marks.end() :]), line=number)
    if not held or not held[-1].strip() or (len(held) > 1 and held[-2].strip()):
        return None  # an underline has just one line above it
    if (under := _UNDERLINE.match(line[:MAX_LINE_LENGTH])) is not None:
        return NoteHeading(level=1 if under[1][0] == "=" else 2, text=_strip_marks(held[-1]), line=number - 1)
    return None


def _strip_marks(words: str) -> str:
    words = words.strip()
    closed = words.rstrip("#")
    words = closed if closed != words and closed.endswith((" ", "\t")) else words
    return " ".join(words.split())[:MAX_HEADING_LENGTH]


def _find_code_end(lines: Sequence[str], place: int, fence: str) -> int:
    """The number of the line that ends the code which begins at this place; the last one where none does."""
    for at in range(place + 1, len(lines)):
        match = _FENCE.match(lines[at])
        if match is not None and match[1].startswith(fence) and not lines[at].strip(" \t`~"):
            return at + 1
    return len(lines)


def _build_markdown_passages(
    path: str, title: str, sections: Sequence[_MarkdownSection]
) -> Iterator[TextPassage]:
    above: dict[int, str] = {}
    for section in sections:
        if section.heading is not None:
            level = section.heading.level
            above = {other: words for other, words in above.items() if other < level}
            above[level] = section.heading.text
        under = [words for words in above.values() if words and words != title]
        yield from pack_passages(path, HEADING_SEPARATOR.join((title, *under)), section.blocks)
