"""The tools a model was offered, by every name it may give them.

A name counts when it is one tool's and no other's: the exposed name, the key, the bare
name, or one of these written with other capitals and separators. Anything else is not
a tool, however near it comes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

from fingerpost.catalog import Snapshot, visible
from fingerpost.records import ToolCard
from fingerpost.redaction import scrub

LONGEST_NAME: Final = 200
_NAMED_AT_MOST: Final = 8
# Some models put the name space of their own prompt before the name.
_PREFIX: Final = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_QUOTES: Final = " \t\r\n`'\"“”*"
_NONE: Final = frozenset({"", "none", "null", "nil", "no tool", "no_tool", "nothing", "n/a", "-"})


class Offered:
    """Finds the tool a name means among those offered."""

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self._snapshot = Snapshot(cards=tuple(cards))
        self._plain: dict[str, set[str]] = {}
        for card in self.cards:
            for form in (card.key, card.exposed_name, card.name):
                self._plain.setdefault(_plain(form), set()).add(card.key)

    @property
    def cards(self) -> tuple[ToolCard, ...]:
        """Sorted by key: the same tools are always told in the same order."""
        return self._snapshot.cards

    def find(self, name: str) -> ToolCard | None:
        """The one tool that is meant, or None."""
        if len(name) > LONGEST_NAME:
            return None
        bare = name.strip(_QUOTES)
        for written in dict.fromkeys((name, bare, _PREFIX.sub("", bare))):
            found = self._snapshot.find(written) or self._alike(written)
            if found is not None:
                return found
        return None

    def _alike(self, name: str) -> ToolCard | None:
        plain = _plain(name)
        alike = self._plain.get(plain, ()) if plain else ()
        return self._snapshot.get(next(iter(alike))) if len(alike) == 1 else None

    def is_none(self, name: str) -> bool:
        """Whether this says that no tool is wanted."""
        return name[:LONGEST_NAME].strip(_QUOTES).casefold() in _NONE

    def unknown(self, name: str) -> str:
        """What is wrong with a name that means no tool, and which ones are near."""
        shown = scrub(visible(name[:80])) + ("…" if len(name) > 80 else "")
        near = [self._snapshot.get(key) for key in self._snapshot.near(name)] if name else []
        names = [card.exposed_name for card in near if card is not None]
        listed = names or [card.exposed_name for card in self.cards[:_NAMED_AT_MOST]]
        which = f"near is {', '.join(listed)}" if names else f"there is {', '.join(listed) or 'none'}"
        return f'no tool called "{shown}" was offered; {which}'


def _plain(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name[:LONGEST_NAME]).casefold()
    return "".join(character for character in folded if character.isalnum())
