"""Server names as people and models write them, and the servers they mean.

A wrong guess costs little here: it keeps a server that could have stayed behind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from fingerpost.catalog import escape_invisible_except

MAX_SERVER_NAME_LENGTH: Final = 200
MAX_SEARCHED_TEXT_LENGTH: Final = 20_000
_MIN_LENGTH_IN_TEXT: Final = 3  # a server called "a" is not meant by every article
_MIN_LENGTH_TO_GUESS: Final = 4
_MIN_NAME_SIMILARITY: Final = 0.82

_SERVER_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL_BOUNDARY: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NAME_REMARK: Final = re.compile(r"\s*(?:[(:–—=]|\s-\s).*", re.DOTALL)
_SERVER_AFFIXES: Final = frozenset({"mcp", "server", "servers", "the"})


class ServerNames:
    """The names of the servers there are."""

    def __init__(self, servers: Iterable[str]) -> None:
        self._servers = tuple(dict.fromkeys(servers))
        self._exact = {escape_invisible_except(server): server for server in self._servers} | {
            server: server for server in self._servers
        }
        self._squeezed: dict[str, str] = {}
        self._short: dict[str, str] = {}
        for server in self._servers:
            self._squeezed.setdefault(_remove_separators(server), server)
            self._short.setdefault(_remove_affixes(server), server)

    def resolve(self, written: str) -> str | None:
        """The server meant by a name on its own, spelt nearly right; None when there is no such server."""
        whole = written.strip().strip("\"'`*_.,;[](){}<> ")[:MAX_SERVER_NAME_LENGTH]
        for name in dict.fromkeys(
            (written.strip()[:MAX_SERVER_NAME_LENGTH], whole, _NAME_REMARK.sub("", whole))
        ):
            found = self._exact.get(name) or self._find_similar(name)
            if found is not None:
                return found
        return None

    def _find_similar(self, name: str) -> str | None:
        squeezed = _remove_separators(name)
        if not squeezed:
            return None
        found = self._squeezed.get(squeezed) or self._short.get(_remove_affixes(name))
        if found is None and len(squeezed) >= _MIN_LENGTH_TO_GUESS:
            near = difflib.get_close_matches(squeezed, self._squeezed, n=1, cutoff=_MIN_NAME_SIMILARITY)
            found = self._squeezed[near[0]] if near else None
        return found

    def find_in_text(self, text: str) -> tuple[str, ...]:
        """The servers whose name stands somewhere in running text, as words of its own."""
        spoken = f" {' '.join(_split_words(text[:MAX_SEARCHED_TEXT_LENGTH]))} "
        return tuple(
            server
            for server in self._servers
            if len(name := " ".join(_split_words(server))) >= _MIN_LENGTH_IN_TEXT and f" {name} " in spoken
        )


def _split_words(text: str) -> list[str]:
    return [word.casefold() for word in _SERVER_WORD.findall(_CAMEL_BOUNDARY.sub(" ", text))]


def _remove_separators(text: str) -> str:
    return "".join(_split_words(text))


def _remove_affixes(text: str) -> str:
    """Without what says only that it is a server."""
    words = _split_words(text)
    return "".join(word for word in words if word not in _SERVER_AFFIXES) or "".join(words)
