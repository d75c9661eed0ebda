"""Small things every resource uses: bounds of what is sent, the parts of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

from pydantic import Field

MOST: Final = 500  # items of one page
LONGEST_TEXT: Final = 200
LONGEST_REASON: Final = 500
LARGEST_NUMBER: Final = 2**63 - 1  # a database can count to

T = TypeVar("T")

Limit = Annotated[int, Field(ge=1, le=MOST, description="How many items at most")]
Text = Annotated[
    str, Field(max_length=LONGEST_TEXT, description="Words that must all occur, in any order and case")
]
Name = Annotated[str, Field(max_length=2000)]
Cursor = Annotated[str, Field(max_length=4000, description="The `next` of the page before")]
Number = Annotated[int, Field(ge=0, le=LARGEST_NUMBER, description="The `next` of the page before")]
Reason = Annotated[str, Field(max_length=LONGEST_REASON, description="Why, for those who wonder later")]


def page_of(items: Sequence[T], limit: int) -> tuple[tuple[T, ...], T | None]:
    """The first so many, and the last of them where more follow."""
    page = tuple(items[:limit])
    return page, page[-1] if len(items) > limit else None


def holds(words: Sequence[str], text: str) -> bool:
    """Whether every word (in small letters) occurs."""
    folded = text.casefold()
    return all(word in folded for word in words)
