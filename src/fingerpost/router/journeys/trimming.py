"""An answer that comes in pieces, without the white space around the whole: as it is when it comes whole."""

from __future__ import annotations

from fingerpost.llm import OnText


class StripStream:
    """Passes pieces on. White space waits for what comes behind it, and goes where nothing does."""

    def __init__(self, on_text: OnText) -> None:
        self._say = on_text
        self._held: list[str] = []
        self._begun = False

    def __call__(self, piece: str) -> None:
        piece = piece if self._begun else piece.lstrip()
        kept = piece.rstrip()
        if not kept:
            self._held.append(piece)
            return
        self._say(f"{''.join(self._held)}{kept}")
        self._held = [piece[len(kept) :]]
        self._begun = True
