"""A piece of a text, and how well one answers a query."""

from __future__ import annotations

from fingerpost.frozen import frozen


@frozen
class TextPassage:
    """A piece of a text that can be found."""

    source: str  # whose piece it is: a path, the id of a memory
    text: str
    heading: str = ""  # what stands above it: counts for finding, like the text
    first_line: int = 0  # where it stands, where lines are counted; from 1
    last_line: int = 0
    page: int = 0  # where pages are counted instead; from 1


@frozen
class PassageHit:
    """A passage that was found. Scores are comparable within one search."""

    passage: TextPassage
    score: float
    words: float  # by the words it shares with the query
    meaning: float | None = None  # by what it says; None: not known yet
