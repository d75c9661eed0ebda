"""A web page as the text a person would read.

One pass that only ever looks forward: pages come from strangers, and neither an
unclosed tag nor a million of them may cost more than their length.
"""

from __future__ import annotations

import html
import re
from typing import Final

from fingerpost.catalog.words import parse_word_set

MAX_PAGE_LENGTH: Final = 2_000_000  # characters of a page; what is beyond is rarely text

_TAG = re.compile(r"<(?:/?([a-zA-Z][a-zA-Z0-9]*)|[!?])")  # a bare sign, as in `a < b`, is none
_HIDDEN_ELEMENTS: Final = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe"})
_BLOCKS: Final = parse_word_set(
    "p div section article main header footer nav aside ul ol table tr br hr form blockquote pre "
    "h1 h2 h3 h4 h5 h6 li dt dd figure figcaption option"
)
_OPENINGS: Final = {
    "li": "\n- ",
    "td": " | ",
    "th": " | ",
    "h1": "\n# ",
    "h2": "\n## ",
    "h3": "\n### ",
    "h4": "\n#### ",
}
_BLANKS = re.compile(r"[ \t\r\f\v]+")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


def extract_page_text(page: str) -> str:
    """What the page says, without its markup."""
    page = page[:MAX_PAGE_LENGTH]
    said: list[str] = []
    at = 0
    while (tag := _TAG.search(page, at)) is not None:
        said.append(page[at : tag.start()])
        at = _skip_tag(page, tag, said)
        if at < 0:
            break
    else:
        said.append(page[at:])
    flowing = _BLANKS.sub(" ", html.unescape("".join(said)))
    return _BLANK_LINES.sub("\n", flowing).strip()


def _skip_tag(page: str, tag: re.Match[str], texts: list[str]) -> int:
    """Where reading goes on after this tag; negative when the page ends inside it."""
    if page.startswith("<!--", tag.start()):
        end = page.find("-->", tag.end())
        return end + 3 if end >= 0 else -1
    end = page.find(">", tag.end())
    if end < 0:
        return -1
    if tag[1]:
        name, closing = tag[1].lower(), page[tag.start() + 1] == "/"
        if name in _HIDDEN_ELEMENTS and not closing and page[end - 1] != "/":
            return _skip_element(page, end + 1, name)
        texts.append(_choose_spacing(name, closing=closing))
    return end + 1


def _choose_spacing(name: str, *, closing: bool) -> str:
    if name in _OPENINGS and not closing:
        return _OPENINGS[name]
    return "\n" if name in _BLOCKS else ""


def _skip_element(page: str, at: int, name: str) -> int:
    """Past the end of an element whose content nobody sees."""
    closing = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(page, at)
    return closing.end() if closing is not None else -1
