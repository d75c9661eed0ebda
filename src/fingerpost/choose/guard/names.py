"""The real tools, by every name a model may write for them."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Final

from fingerpost.choose.guard.vocabulary import split_words
from fingerpost.records import ToolCard

MAX_WRITTEN_NAME_LENGTH: Final = 160
_IGNORED_CHARACTERS: Final = re.compile(r"[\W_]+")
# Name spaces models put before a name, and the counter some put behind it.
_NAME_DECORATION: Final = re.compile(
    r"\A(?:functions?|tools?|default_api|api|mcp|client|multi_tool_use)(?:\.|__|/|:)+|(?::\d+|\.call"
    r"|\(\s*\))\Z",
    re.IGNORECASE,
)
_NAMESPACES: Final = ("function", "functions", "tools", "defaultapi", "api", "mcp", "client", "multitooluse")
_TOOL_NAMESPACE: Final = re.compile(r"(?:functions?|tools|default_api|multi_tool_use)(?:\.|__)(?=\w)")
_ACTION_NAME: Final = re.compile(r"[a-z]+(?:_\w{2,80}|[A-Z]\w{2,80})")
_NAME_PART: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")
_ACTION_VERBS: Final = split_words(
    "get make create search find send read write fetch query lookup look add delete remove update play turn"
    " ask execute browse apply replace generate calculate compute convert translate brew cook compose"
    " summarise summarize analyse analyze navigate reserve cancel submit notify insert append rename verify"
    " validate transcribe extract consult perform locate recommend inspect publish subscribe describe"
    " activate dispatch prepare assign recall remember save retrieve attempt invoke track sum"
)
# Also nouns: a record may begin with them (`order_status`, `store_hours`).
_VERB_OR_NOUN: Final = split_words(
    "set list run call check open close show book order schedule use store load start stop web"
)
_ACTOR_WORDS: Final = split_words(
    "tool helper agent search lookup query finder retriever fetcher assistant function get fetch find send"
)
_OUTCOME_WORDS: Final = split_words(
    "result results status state response responses data details settings options count total history log url"
)
_AGENT_NOUN: Final = re.compile(r"[a-z]{3,}(?:er|or)|check|update|off|on|call")
_NAME_SEPARATOR: Final = re.compile(r"\.|/|::?|__")
_INNER_CAPITAL: Final = re.compile(r"[a-zא-ת][A-Z0-9]|[_\-./]|\d[A-Za-z]")
_recent_indexes: deque[tuple[tuple[ToolCard, ...], WrittenToolNames]] = deque(maxlen=4)


class WrittenToolNames:
    """Which real tool a written name means."""

    def __init__(self, tools: Iterable[ToolCard]) -> None:
        self._keys: dict[str, str | None] = {}  # None: several tools are called so
        for card in tools:
            for name in {card.key, card.exposed_name, card.name}:
                plain = _fold_name(name)
                if plain:
                    same = self._keys.setdefault(plain, card.key) == card.key
                    self._keys[plain] = card.key if same else None
        self._spelled = sorted(self._keys)

    def with_other_names(self, names: Iterable[str]) -> WrittenToolNames:
        """The same with tools of somebody else's, each known by its name alone, which goes before all."""
        found = WrittenToolNames(())
        found._keys = {**self._keys, **{_fold_name(name): name for name in names if _fold_name(name)}}
        found._spelled = sorted(found._keys)
        return found

    def is_known(self, written: str) -> bool:
        """Whether a real tool is called so, or nearly so."""
        return any(plain in self._keys for plain in _list_readings(written))

    def get_key(self, written: str) -> str | None:
        """The key of the one tool that is meant."""
        for plain in _list_readings(written):
            if plain in self._keys:
                return self._keys[plain]
        return None

    def is_known_from_start(self, written: str) -> bool:
        """Whether a real tool is called so, and its name could be told from its first letters on."""
        return self.is_known(written) and self.is_prefix(_NAME_SEPARATOR.split(written.strip(), 1)[0])

    def is_prefix(self, written: str) -> bool:
        """Whether some name begins like this: what is being written may become it."""
        plain = _fold_name(written)
        if _NAME_SEPARATOR.search(written) or any(space.startswith(plain) for space in _NAMESPACES):
            return True
        at = bisect_left(self._spelled, plain)
        return at < len(self._spelled) and self._spelled[at].startswith(plain)


def get_written_names(tools: Iterable[ToolCard]) -> WrittenToolNames:
    """The names of these tools; those of the last few catalogs are kept, for every answer needs them."""
    cards = tools if isinstance(tools, tuple) else tuple(tools)
    for known, names in tuple(_recent_indexes):
        if known is cards:
            return names
    names = WrittenToolNames(cards)
    _recent_indexes.append((cards, names))
    return names


def is_distinctive(name: str) -> bool:
    """Whether a name is nobody's ordinary word: `get_weather` is not, `search` is."""
    return len(name) >= 5 and _INNER_CAPITAL.search(name) is not None


def is_tool_like(name: str) -> bool:
    """Whether a name that no real tool has is a tool's all the same: it says what it does, or"
    " its name space."""
    return is_namespaced(name) or has_action_name(name) is not False


def has_action_name(name: str) -> bool | None:
    """Whether a name says what is done or what does it (`find_flight`, `memory_helper`); None: it may."""
    own = _NAME_SEPARATOR.split(name)[-1]
    if _ACTION_NAME.fullmatch(own) is None:
        return False
    parts = [part.casefold() for part in _NAME_PART.findall(own)]
    if len(parts) < 2:
        return False
    first, last = parts[0], parts[-1]
    if last in _ACTOR_WORDS or (
        first in _ACTION_VERBS and (last not in _OUTCOME_WORDS or first not in _ACTOR_WORDS)
    ):
        return True
    return None if first in _ACTION_VERBS or first in _VERB_OR_NOUN or _AGENT_NOUN.fullmatch(last) else False


def is_namespaced(name: str) -> bool:
    """Whether a name stands in a name space that models are given for tools: it is a tool's, known or not."""
    return _TOOL_NAMESPACE.match(name) is not None


def _list_readings(written: str) -> Iterable[str]:
    """What may be meant, likeliest first: the whole, without name spaces, its last part."""
    name = written.strip(" \t\n`*\"'")
    if not name or len(name) > MAX_WRITTEN_NAME_LENGTH:
        return
    yield _fold_name(name)
    bare = _NAME_DECORATION.sub("", _NAME_DECORATION.sub("", name))
    yield _fold_name(bare)
    parts = [part for part in _NAME_SEPARATOR.split(bare) if part]
    if len(parts) > 1:
        yield _fold_name(parts[-1])


def _fold_name(name: str) -> str:
    return _IGNORED_CHARACTERS.sub("", name).casefold()
