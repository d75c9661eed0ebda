"""From the name a model wrote in a call to the offered tool it means.

Beside the names `Offered` knows, models put a prefix of their own before the name, or
the operation of a consolidated tool behind it. Only what was offered can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fingerpost.choose.offered import LONGEST_NAME, Offered
from fingerpost.records import ToolCall, ToolCard

_PREFIX = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_SEPARATORS: Final = (".", "/", "::", ":")


def without_prefix(name: str) -> str:
    """The name without what some models put before it."""
    return _PREFIX.sub("", name.strip())


def meant(call: ToolCall, cards: Sequence[ToolCard], *, own: Collection[str] = ()) -> ToolCall | str:
    """The call under the key of the offered tool it means; a text says that none is.

    `own` are names that need no card: tools of Fingerpost itself.
    """
    offered = Offered(cards)
    name = call.name.strip()[: LONGEST_NAME + 1]
    plain = _PREFIX.sub("", name)
    for written in dict.fromkeys((name, plain)):
        if written in own:
            return ToolCall(name=written, arguments=call.arguments, reference=call.reference)
        if (key := _key(written, offered)) is not None:
            return ToolCall(name=key, arguments=call.arguments, reference=call.reference)
    return offered.unknown(plain)


def _key(name: str, offered: Offered) -> str | None:
    """The key; with the operation behind it, as the call path reads it, where the name carries one."""
    if (card := offered.find(name)) is not None:
        return card.key
    for separator in _SEPARATORS:
        base, _, operation = name.rpartition(separator)
        card = offered.find(base) if base and operation else None
        if card is not None and _takes_operation(card):
            return f"{card.key}.{operation}"
    return None


def _takes_operation(card: ToolCard) -> bool:
    schema = card.definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return isinstance(properties, Mapping) and "operation" in properties
