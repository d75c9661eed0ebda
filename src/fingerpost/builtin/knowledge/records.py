"""A note, and what is known of it without its text."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from fingerpost.builtin.passages import TextPassage
from fingerpost.frozen import frozen

NoteKind: TypeAlias = Literal["markdown", "text", "pdf"]


@frozen(kw_only=False)
class FileStamp:
    """By which a changed file is known without reading it."""

    size: int
    modified_ns: int
    inode: int


@frozen
class NoteHeading:
    """A heading of a note."""

    level: int
    text: str
    line: int  # from 1


@frozen
class NoteReference:
    """A link as it is written: where it leads is found out when all notes are known."""

    target: str
    line: int
    by_name: bool  # `[[Name]]`, not a path


@frozen
class FrontMatter:
    """What the front matter of a note says; empty where it has none."""

    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    date: str = ""
    lines: int = 0  # how many it takes, its fences included


@frozen
class ParsedNote:
    """A note, taken apart."""

    title: str
    front: FrontMatter = field(default_factory=FrontMatter)
    tags: tuple[str, ...] = ()
    headings: tuple[NoteHeading, ...] = ()
    references: tuple[NoteReference, ...] = ()
    passages: tuple[TextPassage, ...] = ()
    lines: int = 0


@frozen
class KnowledgeNote:
    """What is known of one file of the folder."""

    path: str  # relative to the folder, with `/`
    kind: NoteKind
    stamp: FileStamp
    title: str
    front: FrontMatter = field(default_factory=FrontMatter)
    tags: tuple[str, ...] = ()
    headings: tuple[NoteHeading, ...] = ()
    references: tuple[NoteReference, ...] = ()
    lines: int = 0
    pages: tuple[str, ...] = ()  # of a PDF: its text cannot be read again as quickly
    problem: str = ""  # why (a part of) it cannot be found

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def stem(self) -> str:
        name = self.path.rpartition("/")[2]
        return name.rpartition(".")[0] or name
