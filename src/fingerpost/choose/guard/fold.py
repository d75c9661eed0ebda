"""A plain view of foreign text: the same words without disguise.

`＜｜tool▁call｜＞`, `&lt;tool_call&gt;` and a marker with an invisible character inside all
mean the plain form, so that is what is searched. What is shown is always the text as
it was written: the view knows which piece of the original each of its characters is.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Final

INVISIBLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e007f"
)
_WIDE_CHARACTERS: Final = {ord("！") + offset: ord("!") + offset for offset in range(94)}
_LOOKALIKES: Final = str.maketrans("▁│┃∣❘ǀ⏐‹›〈〉⟨⟩❮❯【】", "_||||||<><><><>[]")
_FOLD_TABLE: Final = {**_WIDE_CHARACTERS, **_LOOKALIKES}
_ENTITIES: Final = {"lt": "<", "gt": ">", "quot": '"', "apos": "'", "vert": "|", "lbrace": "{", "rbrace": "}"}
_ENTITY_CODES: Final = {60: "<", 62: ">", 124: "|", 34: '"', 39: "'"}
_DISGUISED_CHARACTER: Final = re.compile(
    rf"[{INVISIBLE}]+"
    r"|&(?:amp;)?(?:(?P<name>lt|gt|quot|apos|vert|lbrace|rbrace)|#0{0,4}(?P<ten>60|62|124|34|39)"
    r"|#x0{0,4}(?P<hex>3c|3e|7c|22|27));|\\u00(?P<escape>3c|3e|7c)",
    re.IGNORECASE,
)
# The beginning of a disguise that may go on in the next piece.
_UNFINISHED_ENTITY: Final = re.compile(
    r"(?:&(?:amp;)?(?:[a-z]{0,6}|#x?[0-9a-f]{0,6})|\\(?:u[0-9a-f]{0,3})?)\Z", re.IGNORECASE
)


class FoldedText:
    """Text that arrives in pieces, its plain view, and the way back from the view to the text."""

    def __init__(self) -> None:
        self.text = ""  # the view
        self._raw = ""
        self._late = ""  # the start of what may be a disguise, seen once it is complete
        # Where the view and the text part: at this place of the view the text behind it ends
        # here, and the text before it begins there.
        self._places: list[int] = []
        self._ends: list[int] = []
        self._starts: list[int] = []

    def append(self, piece: str, *, final: bool = False) -> None:
        fresh = self._late + piece
        self._late = ""
        unfinished = None if final else _UNFINISHED_ENTITY.search(fresh, max(0, len(fresh) - 16))
        if unfinished is not None:
            self._late = fresh[unfinished.start() :]
            fresh = fresh[: unfinished.start()]
        self._append_folded(fresh)

    def _append_folded(self, fresh: str) -> None:
        base = len(self._raw)
        parts: list[str] = []
        length, at = len(self.text), 0
        for found in _DISGUISED_CHARACTER.finditer(fresh):
            plain = _unfold_match(found)
            parts.append(fresh[at : found.start()])
            length += found.start() - at
            start = base + found.end() if not plain else base + found.start()
            self._split_mapping(length, base + found.start(), start)
            parts.append(plain)
            length += len(plain)
            if plain:
                self._split_mapping(length, base + found.end(), base + found.end())
            at = found.end()
        parts.append(fresh[at:])
        self._raw += fresh
        self.text += "".join(parts).translate(_FOLD_TABLE)

    def _split_mapping(self, place: int, end: int, start: int) -> None:
        if self._places and self._places[-1] == place:
            self._starts[-1] = start
            return
        self._places.append(place)
        self._ends.append(end)
        self._starts.append(start)

    def get_text_start(self, place: int) -> int:
        """Where in the text the character at this place of the view begins."""
        index = bisect_right(self._places, place) - 1
        return place if index < 0 else self._starts[index] + place - self._places[index]

    def get_text_end(self, place: int) -> int:
        """Where in the text the character before this place of the view ends."""
        index = bisect_left(self._places, place)
        if index < len(self._places) and self._places[index] == place:
            return self._ends[index]
        return self.get_text_start(place)

    def get_raw(self, start: int, end: int) -> str:
        """The text between two places of the text (not of the view)."""
        return self._raw[start:end]

    def discard_before(self, place: int) -> int:
        """Let go of the view before `place`; gives how much of the text went with it."""
        gone = self.get_text_end(place)
        first = bisect_left(self._places, place)
        self._places = [one - place for one in self._places[first:]]
        self._ends = [one - gone for one in self._ends[first:]]
        self._starts = [one - gone for one in self._starts[first:]]
        self.text = self.text[place:]
        self._raw = self._raw[gone:]
        return gone


def _unfold_match(found: re.Match[str]) -> str:
    """The plain character behind a disguise; nothing for an invisible one."""
    if name := found["name"]:
        return _ENTITIES[name.lower()]
    if ten := found["ten"]:
        return _ENTITY_CODES[int(ten)]
    code = found["hex"] or found["escape"]
    return _ENTITY_CODES[int(code, 16)] if code else ""
