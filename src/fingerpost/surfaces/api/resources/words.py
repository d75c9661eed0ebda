"""Small things every resource uses: bounds of what is sent, the parts of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

from pydantic import Field

MAX_PAGE_ITEMS: Final = 500  # items of one page
MAX_SEARCH_LENGTH: Final = 200
MAX_REASON_LENGTH: Final = 500
MAX_ROW_NUMBER: Final = 2**63 - 1  # a database can count to

PageItem = TypeVar("PageItem")

PageLimit = Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS, description="How many items at most")]
SearchText = Annotated[
    str, Field(max_length=MAX_SEARCH_LENGTH, description="Words that must all occur, in any order and case")
]
NameText = Annotated[str, Field(max_length=2000)]
PageCursor = Annotated[str, Field(max_length=4000, description="The `next` of the page before")]
RowNumber = Annotated[int, Field(ge=0, le=MAX_ROW_NUMBER, description="The `next` of the page before")]
ReasonText = Annotated[
    str, Field(max_length=MAX_REASON_LENGTH, description="Why, for those who wonder later")
]


def split_page(items: Sequence[PageItem], limit: int) -> tuple[tuple[PageItem, ...], PageItem | None]:
    """The first so many, and the last of them where more follow."""
    page = tuple(items[:limit])
    return page, page[-1] if len(items) > limit else None


def contains_all(words: Sequence[str], text: str) -> bool:
    """Whether every word (in small letters) occurs."""
    folded = text.casefold()
    return all(word in folded for word in words)
