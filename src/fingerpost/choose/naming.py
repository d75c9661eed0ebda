"""From the name a model wrote in a call to the offered tool it means.

Beside the names `OfferedTools` knows, models put a prefix of their own before the name, or
the operation of a consolidated tool behind it. Only what was offered can be meant.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from fingerpost.choose.offered import MAX_OFFERED_NAME_LENGTH, OfferedTools
from fingerpost.records import ToolCall, ToolCard

_CALL_PREFIX = re.compile(r"\A(?:functions?|tools?|mcp)(?:\.|__|/|:)", re.IGNORECASE)
_OPERATION_SEPARATORS: Final = (".", "/", "::", ":")


def remove_name_prefix(name: str) -> str:
    """The name without what some models put before it."""
    return _CALL_PREFIX.sub("", name.strip())


def resolve_call(
    call: ToolCall, cards: Sequence[ToolCard], *, own_names: Collection[str] = ()
) -> ToolCall | str:
    """The call under the key of the offered tool it means; a text says that none is.

    `own` are names that need no card: tools of Fingerpost itself.
    """
    offered = OfferedTools(cards)
    name = call.name.strip()[: MAX_OFFERED_NAME_LENGTH + 1]
    plain = _CALL_PREFIX.sub("", name)
    for written in dict.fromkeys((name, plain)):
        if written in own_names:
            return ToolCall(name=written, arguments=call.arguments, reference=call.reference)
        if (key := _find_key(written, offered)) is not None:
            return ToolCall(name=key, arguments=call.arguments, reference=call.reference)
    return offered.describe_unknown(plain)


def _find_key(name: str, index: OfferedTools) -> str | None:
    """The key; with the operation behind it, as the call path reads it, where the name carries one."""
    if (card := index.find(name)) is not None:
        return card.key
    for separator in _OPERATION_SEPARATORS:
        base, _, operation = name.rpartition(separator)
        card = index.find(base) if base and operation else None
        if card is not None and _has_operation_parameter(card):
            return f"{card.key}.{operation}"
    return None


def _has_operation_parameter(card: ToolCard) -> bool:
    schema = card.definition.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return isinstance(properties, Mapping) and "operation" in properties
