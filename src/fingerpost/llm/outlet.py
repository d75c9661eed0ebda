"""Text handed over cannot be taken back; this remembers whether there was any."""

from __future__ import annotations

from fingerpost.llm.base import OnText


class TextRelay:
    """Passes text on. `used` from the first piece."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.used = False

    def __call__(self, text: str) -> None:
        self.used = True
        self._on_text(text)
