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

from fingerpost.catalog import Snapshot, escape_invisible_except
from fingerpost.records import ToolCard
from fingerpost.redaction import scrub

MAX_OFFERED_NAME_LENGTH: Final = 200
_MAX_SUGGESTED_NAMES: Final = 8
# Some models put the name space of their own prompt before the name.
_OFFERED_PREFIX: Final = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_NAME_QUOTES: Final = " \t\r\n`'\"“”*"
_NO_TOOL_NAMES: Final = frozenset({"", "none", "null", "nil", "no tool", "no_tool", "nothing", "n/a", "-"})


class OfferedTools:
    """Finds the tool a name means among those offered."""

    def __init__(self, cards: Iterable[ToolCard]) -> None:
        self._snapshot = Snapshot(cards=tuple(cards))
        self._plain: dict[str, set[str]] = {}
        for card in self.cards:
            for form in (card.key, card.exposed_name, card.name):
                self._plain.setdefault(_fold_tool_name(form), set()).add(card.key)

    @property
    def cards(self) -> tuple[ToolCard, ...]:
        """Sorted by key: the same tools are always told in the same order."""
        return self._snapshot.cards

    def find(self, name: str) -> ToolCard | None:
        """The one tool that is meant, or None."""
        if len(name) > MAX_OFFERED_NAME_LENGTH:
            return None
        bare = name.strip(_NAME_QUOTES)
        for written in dict.fromkeys((name, bare, _OFFERED_PREFIX.sub("", bare))):
            found = self._snapshot.find(written) or self._find_similar(written)
            if found is not None:
                return found
        return None

    def _find_similar(self, name: str) -> ToolCard | None:
        plain = _fold_tool_name(name)
        alike = self._plain.get(plain, ()) if plain else ()
        return self._snapshot.get(next(iter(alike))) if len(alike) == 1 else None

    def is_no_tool(self, name: str) -> bool:
        """Whether this says that no tool is wanted."""
        return name[:MAX_OFFERED_NAME_LENGTH].strip(_NAME_QUOTES).casefold() in _NO_TOOL_NAMES

    def describe_unknown(self, name: str) -> str:
        """What is wrong with a name that means no tool, and which ones are near."""
        shown = scrub(escape_invisible_except(name[:80])) + ("…" if len(name) > 80 else "")
        near = [self._snapshot.get(key) for key in self._snapshot.near(name)] if name else []
        names = [card.exposed_name for card in near if card is not None]
        listed = names or [card.exposed_name for card in self.cards[:_MAX_SUGGESTED_NAMES]]
        which = f"near is {', '.join(listed)}" if names else f"there is {', '.join(listed) or 'none'}"
        return f'no tool called "{shown}" was offered; {which}'


def _fold_tool_name(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name[:MAX_OFFERED_NAME_LENGTH]).casefold()
    return "".join(character for character in folded if character.isalnum())
