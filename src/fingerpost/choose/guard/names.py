"""The real tools, by every name a model may write for them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Final

from fingerpost.choose.guard.vocabulary import words
from fingerpost.records import ToolCard

LONGEST_NAME: Final = 160
_IGNORED: Final = re.compile(r"[\W_]+")
# Name spaces models put before a name, and the counter some put behind it.
_AROUND: Final = re.compile(
    r"\A(?:functions?|tools?|default_api|api|mcp|client|multi_tool_use)(?:\.|__|/|:)+|(?::\d+|\.call"
    r"|\(\s*\))\Z",
    re.IGNORECASE,
)
_NAME_SPACES: Final = ("function", "functions", "tools", "defaultapi", "api", "mcp", "client", "multitooluse")
_TOOL_SPACE: Final = re.compile(r"(?:functions?|tools|default_api|multi_tool_use)(?:\.|__)(?=\w)")
_ACTING_NAME: Final = re.compile(r"[a-z]+(?:_\w{2,80}|[A-Z]\w{2,80})")
_PART: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_VERBS: Final = words(
    "get make create search find send read write fetch query lookup look add delete remove update play turn"
    " ask execute browse apply replace generate calculate compute convert translate brew cook compose"
    " summarise summarize analyse analyze navigate reserve cancel submit notify insert append rename verify"
    " validate transcribe extract consult perform locate recommend inspect publish subscribe describe"
    " activate dispatch prepare assign recall remember save retrieve attempt invoke track sum"
)
# Also nouns: a record may begin with them (`order_status`, `store_hours`).
_NOUNS_TOO: Final = words(
    "set list run call check open close show book order schedule use store load start stop web"
)
_ACTORS: Final = words(
    "tool helper agent search lookup query finder retriever fetcher assistant function get fetch find send"
)
_OUTCOMES: Final = words(
    "result results status state response responses data details settings options count total history log url"
)
_AGENT: Final = re.compile(r"[a-z]{3,}(?:er|or)|check|update|off|on|call")
_SEPARATOR: Final = re.compile(r"\.|/|::?|__")
_INNER_CAPITAL: Final = re.compile(r"[a-zא-ת][A-Z0-9]|[_\-./]|\d[A-Za-z]")
_recent: deque[tuple[tuple[ToolCard, ...], Names]] = deque(maxlen=4)


class Names:
    """Which real tool a written name means."""

    def __init__(self, tools: Iterable[ToolCard]) -> None:
        self._keys: dict[str, str | None] = {}  # None: several tools are called so
        for card in tools:
            for name in {card.key, card.exposed_name, card.name}:
                plain = _plain(name)
                if plain:
                    same = self._keys.setdefault(plain, card.key) == card.key
                    self._keys[plain] = card.key if same else None
        self._spelled = sorted(self._keys)

    def beside(self, others: Iterable[str]) -> Names:
        """The same with tools of somebody else's, each known by its name alone, which goes before all."""
        found = Names(())
        found._keys = {**self._keys, **{_plain(name): name for name in others if _plain(name)}}
        found._spelled = sorted(found._keys)
        return found

    def knows(self, written: str) -> bool:
        """Whether a real tool is called so, or nearly so."""
        return any(plain in self._keys for plain in _readings(written))

    def key(self, written: str) -> str | None:
        """The key of the one tool that is meant."""
        for plain in _readings(written):
            if plain in self._keys:
                return self._keys[plain]
        return None

    def foreseen(self, written: str) -> bool:
        """Whether a real tool is called so, and its name could be told from its first letters on."""
        return self.knows(written) and self.begins(_SEPARATOR.split(written.strip(), 1)[0])

    def begins(self, written: str) -> bool:
        """Whether some name begins like this: what is being written may become it."""
        plain = _plain(written)
        if _SEPARATOR.search(written) or any(space.startswith(plain) for space in _NAME_SPACES):
            return True
        at = bisect_left(self._spelled, plain)
        return at < len(self._spelled) and self._spelled[at].startswith(plain)


def names_of(tools: Iterable[ToolCard]) -> Names:
    """The names of these tools; those of the last few catalogs are kept, for every answer needs them."""
    cards = tools if isinstance(tools, tuple) else tuple(tools)
    for known, names in tuple(_recent):
        if known is cards:
            return names
    names = Names(cards)
    _recent.append((cards, names))
    return names


def distinctive(name: str) -> bool:
    """Whether a name is nobody's ordinary word: `get_weather` is not, `search` is."""
    return len(name) >= 5 and _INNER_CAPITAL.search(name) is not None


def is_invented(name: str) -> bool:
    """Whether a name that no real tool has is a tool's all the same: it says what it does, or"
    " its name space."""
    return is_namespaced(name) or names_action(name) is not False


def names_action(name: str) -> bool | None:
    """Whether a name says what is done or what does it (`find_flight`, `memory_helper`); None: it may."""
    own = _SEPARATOR.split(name)[-1]
    if _ACTING_NAME.fullmatch(own) is None:
        return False
    parts = [part.casefold() for part in _PART.findall(own)]
    if len(parts) < 2:
        return False
    first, last = parts[0], parts[-1]
    if last in _ACTORS or (first in _VERBS and (last not in _OUTCOMES or first not in _ACTORS)):
        return True
    return None if first in _VERBS or first in _NOUNS_TOO or _AGENT.fullmatch(last) else False


def is_namespaced(name: str) -> bool:
    """Whether a name stands in a name space that models are given for tools: it is a tool's, known or not."""
    return _TOOL_SPACE.match(name) is not None


def _readings(written: str) -> Iterable[str]:
    """What may be meant, likeliest first: the whole, without name spaces, its last part."""
    name = written.strip(" \t\n`*\"'")
    if not name or len(name) > LONGEST_NAME:
        return
    yield _plain(name)
    bare = _AROUND.sub("", _AROUND.sub("", name))
    yield _plain(bare)
    parts = [part for part in _SEPARATOR.split(bare) if part]
    if len(parts) > 1:
        yield _plain(parts[-1])


def _plain(name: str) -> str:
    return _IGNORED.sub("", name).casefold()
