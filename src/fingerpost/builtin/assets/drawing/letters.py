"""Letters as strokes, for pictures made of pixels: plain forms of our own on a grid of 4 by 8.

Each stroke is a run of points `xy`; 2 is the baseline, 6 the height of small letters, 8 of capitals.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final

from fingerpost.builtin.assets.drawing.shapes import Point, estimate_width

_GRID_UNIT: Final = 0.118  # of the font's size, to one step of the grid
_LETTER_WIDTH: Final = 0.76  # of a letter's room; the rest is left and right of it
_BASELINE: Final = 2

_LETTER_FORMS: Final[Mapping[str, str]] = {
    "A": "022842 1434", "B": "02083847463505 3544433202", "C": "4738180703123243", "D": "02082847432202",
    "E": "48080242 0535", "F": "480802 0535", "G": "47381807031232434525", "H": "0208 4248 0545",
    "I": "1232 1838 2228", "J": "4843321203", "K": "0208 4804 1542", "L": "080242", "M": "0208254842",
    "N": "02084248", "O": "180703123243473818", "P": "02083847463505", "Q": "180703123243473818 2442",
    "R": "02083847463505 2542", "S": "473818070615354443321203", "T": "0848 2228", "U": "080312324348",
    "V": "082248", "W": "0812253248", "X": "0842 0248", "Y": "082548 2522", "Z": "08480242",
    "a": "16364542 441403123243", "b": "0802 0516364543321203", "c": "4536160503123243",
    "d": "4842 4536160503123243", "e": "044445361605031232", "f": "12172838 0636",
    "g": "46413010 4536160503123243", "h": "0802 0516364542", "i": "2226 2828", "j": "26211000 2828",
    "k": "0802 3603 1432", "l": "282332", "m": "0206 05162522 25364542", "n": "0206 0516364542",
    "o": "160503123243453616", "p": "0006 0516364543321203", "q": "4046 4536160503123243",
    "r": "0206 051636", "s": "45361605143443321203", "t": "18132232 0636", "u": "0603123243 4246",
    "v": "062246", "w": "0612243246", "x": "0246 0642", "y": "0622 461000", "z": "06460242",
    "0": "180703123243473818", "1": "172822 1232", "2": "07183847460242",
    "3": "07183847463515 354443321203", "4": "32380444", "5": "480805354443321203",
    "6": "473818070312324344351504", "7": "084812", "8": "15060718384746351504031232434435",
    "9": "031232434738180706153546", ".": "2222", ",": "232211", ":": "2323 2626", ";": "2626 232211",
    "!": "2824 2222", "?": "071838474624 2222", "-": "1535", "–": "0545", "—": "0545", "_": "0141",
    "+": "0545 2327", "=": "0444 0646", "/": "0248", "\\": "0842", "(": "38171332", "[": "38181232",
    ")": "18373312", "]": "18383212", "{": "382726152423 2332", "}": "182726352423 2312", "<": "460543",
    ">": "064503", "|": "2128", "*": "2327 0644 0446", "%": "0248 0708181707 3233434232",
    "#": "1218 3238 0444 0646",
    "&": "42071827360403122244", "'": "2826", '"': "1816 3836", "^": "062846", "~": "0516253445",
    "@": "42120307183845341425", "$": "473818070615354443321203 2128", "`": "1827", "…": "0202 2222 4242",
    "’": "2826", "°": "1827281718", "€": "473818070312 1232 3243 0535 0434", "£": "4738281712 0242 0535",
    "×": "0347 0743", "·": "2525", "→": "0545 274523", "µ": "0006 0312324246",
}  # fmt: skip


def build_strokes(text: str, size: float) -> tuple[list[list[Point]], float]:
    """The strokes of a line of text, its baseline at 0 and y growing downwards, and its width."""
    unit, left = _GRID_UNIT * size, 0.0
    strokes: list[list[Point]] = []
    for letter in text:
        advance = estimate_width(letter, size)
        runs = [
            [(int(run[at]), int(run[at + 1])) for at in range(0, len(run), 2)]
            for run in _get_form(letter).split()
        ]
        columns = [x for run in runs for x, _ in run] or [0]
        first, ink = min(columns), (max(columns) - min(columns)) * unit
        squeeze = advance * _LETTER_WIDTH / ink if ink > 2 * unit else 1.0
        bearing = (advance - ink * squeeze) / 2
        strokes += [
            [(left + bearing + (x - first) * unit * squeeze, -(y - _BASELINE) * unit) for x, y in run]
            for run in runs
        ]
        left += advance
    return strokes, left


def _get_form(letter: str) -> str:
    if letter.isspace():
        return ""
    if letter not in _LETTER_FORMS:
        letter = unicodedata.normalize("NFKD", letter)[0]  # without its accent
    return _LETTER_FORMS.get(letter, "0208484202")  # a box for what we have no form for


def can_draw_text(text: str) -> bool:
    """Whether every letter has a form."""
    return all(
        letter.isspace()
        or letter in _LETTER_FORMS
        or unicodedata.normalize("NFKD", letter)[0] in _LETTER_FORMS
        for letter in text
    )
