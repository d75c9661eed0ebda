"""Trims long text to its beginning, its end and relevant passages. Converts web pages to text."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from fingerpost.call.digest.tokens import clip_to_tokens, count_tokens, count_tokens_within, estimate_tokens
from fingerpost.catalog.words import STOP_WORDS, parse_word_set, split_words, take_distinct, to_singular
from fingerpost.frozen import frozen
from fingerpost.regex import prepare_re

MAX_STEMS: Final = 16
_MIN_WORD_LENGTH: Final = 2

_HEBREW_PREFIXES: Final = "הובלמשכ"
_HEBREW_STOP_WORDS: Final = parse_word_set(
    "של את על עם זה זו זאת מה מי איך כמה הוא היא הם אני אתה לי לך יש אין כל או גם לא כן אם אל אבל רק עוד "
    "איפה מתי למה איזה בבקשה תן תני אפשר"
)
_REQUEST_WORDS: Final = (
    STOP_WORDS | _HEBREW_STOP_WORDS | parse_word_set("me my find show tell give please are did")
)


def extract_stems(request: str) -> tuple[str, ...]:
    """Return the significant words of a request, shortened to their stems."""
    lowered = request.lower()
    words = [word for word in split_words(request) if len(word) >= _MIN_WORD_LENGTH or word.isdigit()]
    significant = [word for word in words if word not in _REQUEST_WORDS] or words
    # Adjacent words weigh more together: `order 4711` is a specific order.
    pairs = [
        f"{one} {to_singular(other)}" for one, other in pairwise(significant) if f"{one} {other}" in lowered
    ]
    return take_distinct([*map(_shorten_word, significant), *pairs], MAX_STEMS)


def _shorten_word(word: str) -> str:
    if word[0] in _HEBREW_PREFIXES and len(word) > 3:
        return word[1:]
    plain = to_singular(word)
    for ending in ("ing", "ed"):
        if len(plain) - len(ending) >= 4 and plain.endswith(ending):
            return plain.removesuffix(ending)
    return plain


def score_texts(texts: Sequence[str], stems: Sequence[str]) -> list[float]:
    """Score how relevant each text is to the request. Words found in few texts weigh more."""
    found = [[stem in text for text in texts] for stem in stems]
    weights = [math.log1p(len(texts) / (1 + sum(hits))) if any(hits) else 0.0 for hits in found]
    return [
        sum(weight for weight, hits in zip(weights, found, strict=True) if hits[index])
        for index in range(len(texts))
    ]


MAX_PAGE_LENGTH: Final = 2_000_000  # characters of a page; the rest is rarely text

_TAG = prepare_re(r"<(?:/?([a-zA-Z][a-zA-Z0-9]*)|[!?])")  # a bare `<`, as in `a < b`, is no tag
_HIDDEN_ELEMENTS: Final = frozenset({"script", "style", "noscript", "template", "svg", "head", "iframe"})
_BLOCK_ELEMENTS: Final = parse_word_set(
    "p div section article main header footer nav aside ul ol table tr br hr form blockquote pre "
    "h1 h2 h3 h4 h5 h6 li dt dd figure figcaption option"
)
_ELEMENT_PREFIXES: Final = {
    "li": "\n- ",
    "td": " | ",
    "th": " | ",
    "h1": "\n# ",
    "h2": "\n## ",
    "h3": "\n### ",
    "h4": "\n#### ",
}
_BLANKS = prepare_re(r"[ \t\r\f\v]+")
_BLANK_LINES = prepare_re(r"\n[ \t]*(?:\n[ \t]*)+")


def extract_page_text(page: str) -> str:
    """Return the text of a web page without markup."""
    page = page[:MAX_PAGE_LENGTH]
    texts: list[str] = []
    at = 0
    while (tag := _TAG.search(page, at)) is not None:
        texts.append(page[at : tag.start()])
        at = _skip_tag(page, tag, texts)
        if at < 0:
            break
    else:
        texts.append(page[at:])
    flowing = _BLANKS.sub(" ", html.unescape("".join(texts)))
    return _BLANK_LINES.sub("\n", flowing).strip()


def _skip_tag(page: str, tag: re.Match[str], texts: list[str]) -> int:
    """Return the position after this tag, or a negative number if the page ends inside it."""
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
    if name in _ELEMENT_PREFIXES and not closing:
        return _ELEMENT_PREFIXES[name]
    return "\n" if name in _BLOCK_ELEMENTS else ""


def _skip_element(page: str, at: int, name: str) -> int:
    """Return the position after an element with invisible content."""
    closing = re.compile(rf"</{name}\s*>", re.IGNORECASE).search(page, at)
    return closing.end() if closing is not None else -1


MAX_WHOLE_LENGTH: Final = 300_000  # characters that are split and scored completely
_MAX_LINES: Final = 8_000
_EDGE_LENGTH: Final = 60_000  # characters kept of the beginning and the end of longer text
_WINDOW_SIZE: Final = 400  # characters kept on each side of a found word
_MAX_HITS: Final = 40
_MAX_PIECE_LENGTH: Final = 500
_MIN_PIECE_LENGTH: Final = 80

_SENTENCE_END = prepare_re(r"[.!?;:…]\s|\s")
_ERROR_WORD = prepare_re(r"\b(?:error|fatal|critical|exception|traceback|panic|failed|failure)\b")
_ERROR_WORD_SCORE: Final = 0.5


@frozen(kw_only=False)
class TextSpan:
    """A range of the text."""

    start: int
    end: int


@frozen
class TrimmedText:
    """The kept text, and descriptions of what was removed."""

    text: str
    dropped: tuple[str, ...] = ()


@frozen
class TrimStyle:
    """How a kind of text is trimmed."""

    noun: str = "lines"
    pinned: int = 0  # first pieces that are always kept: the header of a table
    context: int = 1  # neighbours kept with a found piece
    alarms: bool = False  # keep error lines even if not requested


LINE_STYLE: Final = TrimStyle()
LOG_STYLE: Final = TrimStyle(alarms=True)


def trim_text(
    text: str, budget: int, stems: Sequence[str] = (), style: TrimStyle = LINE_STYLE
) -> TrimmedText:
    """Return `text` within `budget` tokens, unchanged if it fits."""
    if count_tokens_within(text, budget) <= budget:
        return TrimmedText(text=text)
    longest = min(_MAX_PIECE_LENGTH, max(_MIN_PIECE_LENGTH, budget // 2))
    pieces = list(_split_pieces(text, find_windows(text, stems), longest))
    kept = _PieceChoice(text, pieces, budget, style).choose(stems)
    if not kept:
        beginning = clip_to_tokens(text, int(max(0, budget - _estimate_marker_tokens(text, style))))
        left_out = len(text) - len(beginning)
        marker = f"… {left_out:,} characters left out …"
        shown = f"{beginning}{marker}"
        return TrimmedText(
            text=shown if count_tokens(shown) <= budget else clip_to_tokens(text, budget),
            dropped=(f"{left_out:,} of {len(text):,} characters",),
        )
    return _render_pieces(text, [pieces[index] for index in kept], style)


def find_windows(text: str, stems: Sequence[str]) -> list[TextSpan]:
    """Return the ranges of `text` to split: all of it, unless it is very long."""
    if len(text) <= MAX_WHOLE_LENGTH and text.count("\n") <= _MAX_LINES:
        return [TextSpan(0, len(text))]
    found = [TextSpan(0, _find_line_start(text, min(_EDGE_LENGTH, len(text) // 2)))]
    found += [
        TextSpan(_find_line_start(text, at - _WINDOW_SIZE), _find_line_end(text, at + _WINDOW_SIZE))
        for at in _find_hits(text, stems)
    ]
    found.append(TextSpan(_find_line_start(text, max(len(text) - _EDGE_LENGTH, len(text) // 2)), len(text)))
    merged: list[TextSpan] = []
    for piece in sorted(found, key=lambda one: one.start):
        if merged and piece.start <= merged[-1].end:
            merged[-1] = TextSpan(merged[-1].start, max(merged[-1].end, piece.end))
        else:
            merged.append(piece)
    return merged


def _find_hits(text: str, stems: Sequence[str]) -> Iterator[int]:
    """Yield the positions of the words. `str.find` reads a gigabyte per second."""
    for stem in stems:
        for form in dict.fromkeys((stem, stem.capitalize(), stem.upper())):
            at = -1
            for _ in range(_MAX_HITS):
                at = text.find(form, at + 1 + _WINDOW_SIZE if at >= 0 else 0)
                if at < 0:
                    break
                yield at


def _find_line_start(text: str, at: int) -> int:
    """Return the start of the line that contains `at`, or `at` if that is far away."""
    at = max(0, at)
    found = text.rfind("\n", max(0, at - _MAX_PIECE_LENGTH), at) + 1
    return found or (0 if at <= _MAX_PIECE_LENGTH else at)


def _find_line_end(text: str, at: int) -> int:
    at = min(at, len(text))
    found = text.find("\n", at, at + _MAX_PIECE_LENGTH) + 1
    return found or min(len(text), at)


def _split_pieces(text: str, spans: Sequence[TextSpan], max_length: int) -> Iterator[TextSpan]:
    """Split into lines. Longer lines are split at sentences."""
    for span in spans:
        start = span.start
        while start < span.end:
            end = text.find("\n", start, span.end) + 1 or span.end
            if end - start > _MAX_PIECE_LENGTH:  # shorter lines stay whole: half a line of code is useless
                end = _find_sentence_end(text, start, start + max_length)
            yield TextSpan(start, end)
            start = end


def _find_sentence_end(text: str, start: int, limit: int) -> int:
    """Return where to break a very long line: after a sentence, else after a word, else anywhere."""
    best, at_space = 0, 0
    for match in _SENTENCE_END.finditer(text, (start + limit) // 2, limit):
        at_space = match.end()
        if len(match.group()) > 1:
            best = match.end()
    return best or at_space or limit


class _PieceChoice:
    """Chooses the pieces to keep within the budget."""

    def __init__(self, text: str, pieces: Sequence[TextSpan], budget: int, style: TrimStyle) -> None:
        self._text = text
        self._pieces = pieces
        self._style = style
        self._marker_tokens = _estimate_marker_tokens(text, style)
        self._left = budget - self._marker_tokens
        self._kept: set[int] = set()

    def choose(self, stems: Sequence[str]) -> list[int]:
        near = self._rank_nearest(stems)
        pinned = range(min(self._style.pinned, len(self._pieces)))
        if not all(self._take(index) for index in pinned):
            return []
        total = self._left
        beginning = range(len(pinned), len(self._pieces))
        end = range(len(self._pieces) - 1, len(pinned) - 1, -1)
        self._take_near(near[:1], total * 0.85)
        self._take_near(near[1:], self._left - total * 0.5)
        self._take_run(beginning, total * (0.3 if near else 0.6))
        self._take_run(end, total * (0.2 if near else 0.4))
        self._take_run(beginning, self._left)
        self._take_run(end, self._left)
        return sorted(self._kept) if len(self._kept) > len(pinned) or len(pinned) else []

    def _rank_nearest(self, stems: Sequence[str]) -> list[int]:
        if not stems and not self._style.alarms:
            return []
        small = [self._text[piece.start : piece.end].lower() for piece in self._pieces]
        nearness = score_texts(small, stems)
        if self._style.alarms:
            nearness = [
                score + (_ERROR_WORD_SCORE if _ERROR_WORD.search(line) else 0.0)
                for score, line in zip(nearness, small, strict=True)
            ]
        return sorted(
            (index for index, score in enumerate(nearness) if score > 0),
            key=lambda index: (-nearness[index], index),
        )

    def _take_run(self, indexes: range, share: float) -> None:
        """Keep consecutive pieces while the share of the budget lasts."""
        floor = max(0.0, self._left - share)
        for index in indexes:
            if index not in self._kept and (not self._take(index, floor=floor)):
                return

    def _take_near(self, near: Sequence[int], share: float) -> None:
        floor = max(0.0, self._left - share)
        reach = self._style.context
        refused = 0
        for index in near:
            if index in self._kept:
                continue
            if not self._take(index, floor=floor):
                refused += 1
                if refused > 20:  # the share is used up; further search would find too little
                    return
                continue
            for beside in range(index - reach, index + reach + 1):
                if 0 <= beside < len(self._pieces) and beside not in self._kept:
                    self._take(beside, floor=floor)

    def _take(self, index: int, *, floor: float = 0.0) -> bool:
        piece = self._pieces[index]
        beside = self._is_adjacent(index - 1, index) + self._is_adjacent(index, index + 1)
        cost = estimate_tokens(self._text[piece.start : piece.end]) + self._marker_tokens * (1 - beside)
        if self._left - cost < floor:
            return False
        self._left -= cost
        self._kept.add(index)
        return True

    def _is_adjacent(self, first: int, second: int) -> bool:
        """Return whether one of the two is kept and they are adjacent in the text.

        The beginning and end of the text count as kept: there is no gap before the first piece.
        """
        ends = self._pieces[first].end if first >= 0 else 0
        begins = self._pieces[second].start if second < len(self._pieces) else len(self._text)
        beside = not {first, second}.isdisjoint(self._kept) or first < 0 or second == len(self._pieces)
        return beside and ends == begins


def _estimate_marker_tokens(text: str, style: TrimStyle) -> float:
    longest = max("characters", style.noun, key=len)
    return estimate_tokens(f" … {len(text):,} {longest} left out … \n")


def _render_pieces(text: str, kept: Sequence[TextSpan], style: TrimStyle) -> TrimmedText:
    shown: list[str] = []
    missing = 0
    cut_lines = 0
    edges = [TextSpan(0, 0), *kept, TextSpan(len(text), len(text))]
    for before, after in pairwise(edges):
        if before.end < after.start:
            lines = text.count("\n", before.end, after.start)
            whole = before.end == 0 or text[before.end - 1] == "\n"
            lines += whole and after.start == len(text) and text[-1] != "\n"
            missing += after.start - before.end
            cut_lines += lines
            amount = (
                f"{lines:,} {style.noun}" if lines and whole else f"{after.start - before.end:,} characters"
            )
            shown.append(("" if whole else " ") + f"… {amount} left out …" + ("\n" if whole else " "))
        shown.append(text[after.start : after.end])
    if not missing:
        return TrimmedText(text=text)
    total = text.count("\n") + (not text.endswith("\n")) - style.pinned
    what = (
        f"{cut_lines:,} of {total:,} {style.noun}"
        if cut_lines
        else f"{missing:,} of {len(text):,} characters"
    )
    return TrimmedText(text="".join(shown).rstrip("\n"), dropped=(what,))
