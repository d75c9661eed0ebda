"""What `describe_tool` answers: everything that is known of one tool, within a budget."""

from __future__ import annotations

import json
from typing import Final

from fingerpost.call.arguments.signature import signature
from fingerpost.call.digest import clip, count_tokens, shown
from fingerpost.call.digest.tree import trim_tree
from fingerpost.records import Json, JsonObject, ToolCard

_DATA: Final = ("inputSchema", "outputSchema", "annotations")
_SHARE: Final = 3  # at most one part in so many goes to the description


def described(card: ToolCard, *, budget: int) -> str:
    """The tool, for a model that is about to call it. Its description is its server's own text."""
    head = f"{shown(signature(card))}\nserver: {shown(card.server)}; effect: {card.effect.value.value}"
    if card.doubt:
        head += f" (not certain: {shown(card.doubt)}; a person is asked before it runs)"
    title = card.definition.get("title")
    if isinstance(title, str) and title:
        head += f"\ntitle: {clip(shown(title), 40)}"
    description = shown(card.description)
    room = budget - count_tokens(head) - 10
    if count_tokens(description) > room // _SHARE:
        data = _written(card, room)
        description = clip(description, max(room - count_tokens(data), room // _SHARE))
    data = _written(card, room - count_tokens(description))
    return f"{head}\n\n{description or '(its server gives no description)'}\n\n{data}"


def _written(card: ToolCard, room: int) -> str:
    data: dict[str, Json] = {part: card.definition[part] for part in _DATA if card.definition.get(part)}
    whole = _dumped(data)
    if count_tokens(whole) <= room:
        return whole
    cut, dropped = trim_tree(data, max(room - 40, 20), ())
    note = f"\n(cut to fit: {'; '.join(dropped[:3]) or 'its end'})"
    return clip(_dumped(cut), room - count_tokens(note)) + note


def _dumped(data: Json | JsonObject) -> str:
    return shown(json.dumps(data, ensure_ascii=False, default=dict))
