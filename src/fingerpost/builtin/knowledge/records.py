"""A note, and what is known of it without its text."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, TypeAlias

from fingerpost.builtin.passages import Passage
from fingerpost.frozen import frozen

Kind: TypeAlias = Literal["markdown", "text", "pdf"]


@frozen(kw_only=False)
class Stamp:
    """By which a changed file is known without reading it."""

    size: int
    modified_ns: int
    inode: int


@frozen
class Heading:
    """A heading of a note."""

    level: int
    text: str
    line: int  # from 1


@frozen
class Reference:
    """A link as it is written: where it leads is found out when all notes are known."""

    target: str
    line: int
    by_name: bool  # `[[Name]]`, not a path


@frozen
class Front:
    """What the front matter of a note says; empty where it has none."""

    title: str = ""
    description: str = ""
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    date: str = ""
    lines: int = 0  # how many it takes, its fences included


@frozen
class Parsed:
    """A note, taken apart."""

    title: str
    front: Front = field(default_factory=Front)
    tags: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = ()
    references: tuple[Reference, ...] = ()
    passages: tuple[Passage, ...] = ()
    lines: int = 0


@frozen
class Note:
    """What is known of one file of the folder."""

    path: str  # relative to the folder, with `/`
    kind: Kind
    stamp: Stamp
    title: str
    front: Front = field(default_factory=Front)
    tags: tuple[str, ...] = ()
    headings: tuple[Heading, ...] = ()
    references: tuple[Reference, ...] = ()
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
