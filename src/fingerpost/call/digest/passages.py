"""Long text cut down to its beginning, its end and the passages nearest the request.

Text is handled as *pieces*: lines, rows, or sentences where a line is very long.
Which pieces stay is decided by their price and their nearness; what is between
them becomes a marker that says how much is missing. Prices of pieces add up to
at least the price of the text made from them (see `tokens`), so the budget holds
without measuring the outcome.

Very long text is not split as a whole: its beginning, its end and the
surroundings of the request's words are (`windows`), the rest is only searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from fingerpost.call.digest.relevance import scores
from fingerpost.call.digest.tokens import clip, count_tokens, price, tokens_against
from fingerpost.frozen import frozen

WHOLE_UP_TO: Final = 300_000  # characters that are split and scored completely
_MOST_LINES: Final = 8_000
_EDGE: Final = 60_000  # of longer text, this much of the beginning and of the end
_AROUND: Final = 400  # and this much on each side of a found word
_MOST_HITS: Final = 40
_LONGEST_PIECE: Final = 500
_SHORTEST_PIECE: Final = 80

_SENTENCE_END = re.compile(r"[.!?;:…]\s|\s")
_ALARM = re.compile(r"\b(?:error|fatal|critical|exception|traceback|panic|failed|failure)\b")
_ALARM_SCORE: Final = 0.5


@frozen(kw_only=False)
class Piece:
    """A stretch of the text."""

    start: int
    end: int


@frozen
class Trimmed:
    """What is left of a part, and what was left out, in plain words."""

    text: str
    dropped: tuple[str, ...] = ()


@frozen
class Manner:
    """How a kind of text is cut."""

    noun: str = "lines"
    pinned: int = 0  # pieces at the beginning that always stay: the header of a table
    context: int = 1  # neighbours that come along with a found piece
    alarms: bool = False  # without being asked for, errors are worth keeping


LINES: Final = Manner()
LOG: Final = Manner(alarms=True)


def trim_text(text: str, budget: int, looked_for: Sequence[str] = (), manner: Manner = LINES) -> Trimmed:
    """`text` within `budget` tokens; unchanged when it fits."""
    if tokens_against(text, budget) <= budget:
        return Trimmed(text=text)
    longest = min(_LONGEST_PIECE, max(_SHORTEST_PIECE, budget // 2))
    pieces = list(_pieces(text, windows(text, looked_for), longest))
    kept = _Choice(text, pieces, budget, manner).choose(looked_for)
    if not kept:
        beginning = clip(text, int(max(0, budget - _marker_price(text, manner))))
        left_out = len(text) - len(beginning)
        marker = f"… {left_out:,} characters left out …"
        shown = f"{beginning}{marker}"
        return Trimmed(
            text=shown if count_tokens(shown) <= budget else clip(text, budget),
            dropped=(f"{left_out:,} of {len(text):,} characters",),
        )
    return _render(text, [pieces[index] for index in kept], manner)


def windows(text: str, looked_for: Sequence[str]) -> list[Piece]:
    """The stretches of `text` worth splitting: all of it, unless it is very long."""
    if len(text) <= WHOLE_UP_TO and text.count("\n") <= _MOST_LINES:
        return [Piece(0, len(text))]
    found = [Piece(0, _line_start(text, min(_EDGE, len(text) // 2)))]
    found += [
        Piece(_line_start(text, at - _AROUND), _line_end(text, at + _AROUND))
        for at in _hits(text, looked_for)
    ]
    found.append(Piece(_line_start(text, max(len(text) - _EDGE, len(text) // 2)), len(text)))
    merged: list[Piece] = []
    for piece in sorted(found, key=lambda one: one.start):
        if merged and piece.start <= merged[-1].end:
            merged[-1] = Piece(merged[-1].start, max(merged[-1].end, piece.end))
        else:
            merged.append(piece)
    return merged


def _hits(text: str, looked_for: Sequence[str]) -> Iterator[int]:
    """Where the words stand. Plain finding, because it reads a gigabyte in a second."""
    for stem in looked_for:
        for form in dict.fromkeys((stem, stem.capitalize(), stem.upper())):
            at = -1
            for _ in range(_MOST_HITS):
                at = text.find(form, at + 1 + _AROUND if at >= 0 else 0)
                if at < 0:
                    break
                yield at


def _line_start(text: str, at: int) -> int:
    """The beginning of the line that holds `at`, or `at` itself when that is far away."""
    at = max(0, at)
    found = text.rfind("\n", max(0, at - _LONGEST_PIECE), at) + 1
    return found or (0 if at <= _LONGEST_PIECE else at)


def _line_end(text: str, at: int) -> int:
    at = min(at, len(text))
    found = text.find("\n", at, at + _LONGEST_PIECE) + 1
    return found or min(len(text), at)


def _pieces(text: str, stretches: Sequence[Piece], longest: int) -> Iterator[Piece]:
    """Lines; those longer than a piece may be at sentences."""
    for stretch in stretches:
        start = stretch.start
        while start < stretch.end:
            end = text.find("\n", start, stretch.end) + 1 or stretch.end
            if end - start > _LONGEST_PIECE:  # shorter lines stay whole: half a line of code is none
                end = _sentence_end(text, start, start + longest)
            yield Piece(start, end)
            start = end


def _sentence_end(text: str, start: int, limit: int) -> int:
    """A good place to break a very long line: after a sentence, else after a word, else anywhere."""
    best, at_space = 0, 0
    for match in _SENTENCE_END.finditer(text, (start + limit) // 2, limit):
        at_space = match.end()
        if len(match.group()) > 1:
            best = match.end()
    return best or at_space or limit


class _Choice:
    """Which pieces stay, within the budget."""

    def __init__(self, text: str, pieces: Sequence[Piece], budget: int, manner: Manner) -> None:
        self._text = text
        self._pieces = pieces
        self._manner = manner
        self._marker = _marker_price(text, manner)
        self._left = budget - self._marker
        self._kept: set[int] = set()

    def choose(self, looked_for: Sequence[str]) -> list[int]:
        near = self._nearest(looked_for)
        pinned = range(min(self._manner.pinned, len(self._pieces)))
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

    def _nearest(self, looked_for: Sequence[str]) -> list[int]:
        if not looked_for and not self._manner.alarms:
            return []
        small = [self._text[piece.start : piece.end].lower() for piece in self._pieces]
        nearness = scores(small, looked_for)
        if self._manner.alarms:
            nearness = [
                score + (_ALARM_SCORE if _ALARM.search(line) else 0.0)
                for score, line in zip(nearness, small, strict=True)
            ]
        return sorted(
            (index for index, score in enumerate(nearness) if score > 0),
            key=lambda index: (-nearness[index], index),
        )

    def _take_run(self, indexes: range, share: float) -> None:
        """Take pieces one after the other while the share lasts."""
        floor = max(0.0, self._left - share)
        for index in indexes:
            if index not in self._kept and (not self._take(index, floor=floor)):
                return

    def _take_near(self, near: Sequence[int], share: float) -> None:
        floor = max(0.0, self._left - share)
        reach = self._manner.context
        refused = 0
        for index in near:
            if index in self._kept:
                continue
            if not self._take(index, floor=floor):
                refused += 1
                if refused > 20:  # the share is used up; what is still small enough is not worth the search
                    return
                continue
            for beside in range(index - reach, index + reach + 1):
                if 0 <= beside < len(self._pieces) and beside not in self._kept:
                    self._take(beside, floor=floor)

    def _take(self, index: int, *, floor: float = 0.0) -> bool:
        piece = self._pieces[index]
        beside = self._touches(index - 1, index) + self._touches(index, index + 1)
        cost = price(self._text[piece.start : piece.end]) + self._marker * (1 - beside)
        if self._left - cost < floor:
            return False
        self._left -= cost
        self._kept.add(index)
        return True

    def _touches(self, first: int, second: int) -> bool:
        """Whether one of the two is already kept, and they stand side by side in the text.

        Beginning and end of the text count as kept: there is no gap before the first piece.
        """
        ends = self._pieces[first].end if first >= 0 else 0
        begins = self._pieces[second].start if second < len(self._pieces) else len(self._text)
        beside = not {first, second}.isdisjoint(self._kept) or first < 0 or second == len(self._pieces)
        return beside and ends == begins


def _marker_price(text: str, manner: Manner) -> float:
    longest = max("characters", manner.noun, key=len)
    return price(f" … {len(text):,} {longest} left out … \n")


def _render(text: str, kept: Sequence[Piece], manner: Manner) -> Trimmed:
    shown: list[str] = []
    missing = 0
    cut_lines = 0
    edges = [Piece(0, 0), *kept, Piece(len(text), len(text))]
    for before, after in pairwise(edges):
        if before.end < after.start:
            lines = text.count("\n", before.end, after.start)
            whole = before.end == 0 or text[before.end - 1] == "\n"
            lines += whole and after.start == len(text) and text[-1] != "\n"
            missing += after.start - before.end
            cut_lines += lines
            amount = (
                f"{lines:,} {manner.noun}" if lines and whole else f"{after.start - before.end:,} characters"
            )
            shown.append(("" if whole else " ") + f"… {amount} left out …" + ("\n" if whole else " "))
        shown.append(text[after.start : after.end])
    if not missing:
        return Trimmed(text=text)
    total = text.count("\n") + (not text.endswith("\n")) - manner.pinned
    what = (
        f"{cut_lines:,} of {total:,} {manner.noun}"
        if cut_lines
        else f"{missing:,} of {len(text):,} characters"
    )
    return Trimmed(text="".join(shown).rstrip("\n"), dropped=(what,))
