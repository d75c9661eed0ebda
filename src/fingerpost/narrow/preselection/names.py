"""Server names as people and models write them, and the servers they mean.

A wrong guess costs little here: it keeps a server that could have stayed behind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

from fingerpost.catalog import visible

LONGEST_NAME: Final = 200
LONGEST_TEXT: Final = 20_000
_LEAST_IN_TEXT: Final = 3  # a server called "a" is not meant by every article
_LEAST_TO_GUESS: Final = 4
_LIKENESS: Final = 0.82

_WORD: Final = re.compile(r"[^\W_]+")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_REMARK: Final = re.compile(r"\s*(?:[(:–—=]|\s-\s).*", re.DOTALL)
_AFFIXES: Final = frozenset({"mcp", "server", "servers", "the"})


class ServerNames:
    """The names of the servers there are."""

    def __init__(self, servers: Iterable[str]) -> None:
        self._servers = tuple(dict.fromkeys(servers))
        self._exact = {visible(server): server for server in self._servers} | {
            server: server for server in self._servers
        }
        self._squeezed: dict[str, str] = {}
        self._short: dict[str, str] = {}
        for server in self._servers:
            self._squeezed.setdefault(_squeeze(server), server)
            self._short.setdefault(_shorten(server), server)

    def meant(self, written: str) -> str | None:
        """The server meant by a name on its own, spelt nearly right; None when there is no such server."""
        whole = written.strip().strip("\"'`*_.,;[](){}<> ")[:LONGEST_NAME]
        for name in dict.fromkeys((written.strip()[:LONGEST_NAME], whole, _REMARK.sub("", whole))):
            found = self._exact.get(name) or self._alike(name)
            if found is not None:
                return found
        return None

    def _alike(self, name: str) -> str | None:
        squeezed = _squeeze(name)
        if not squeezed:
            return None
        found = self._squeezed.get(squeezed) or self._short.get(_shorten(name))
        if found is None and len(squeezed) >= _LEAST_TO_GUESS:
            near = difflib.get_close_matches(squeezed, self._squeezed, n=1, cutoff=_LIKENESS)
            found = self._squeezed[near[0]] if near else None
        return found

    def in_text(self, text: str) -> tuple[str, ...]:
        """The servers whose name stands somewhere in running text, as words of its own."""
        spoken = f" {' '.join(_words(text[:LONGEST_TEXT]))} "
        return tuple(
            server
            for server in self._servers
            if len(name := " ".join(_words(server))) >= _LEAST_IN_TEXT and f" {name} " in spoken
        )


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(_CAMEL.sub(" ", text))]


def _squeeze(text: str) -> str:
    return "".join(_words(text))


def _shorten(text: str) -> str:
    """Without what says only that it is a server."""
    words = _words(text)
    return "".join(word for word in words if word not in _AFFIXES) or "".join(words)
