"""What `describe_tool` answers: everything that is known of one tool, within a budget."""

from __future__ import annotations

import json
from typing import Final

from fingerpost.call.arguments.signature import format_signature
from fingerpost.call.digest import clip_to_tokens, count_tokens, escape_invisible
from fingerpost.call.digest.tree import trim_json
from fingerpost.records import Json, JsonObject, ToolCard

_DATA: Final = ("inputSchema", "outputSchema", "annotations")
_DESCRIPTION_SHARE: Final = 3  # at most one part in so many goes to the description


def render_description(card: ToolCard, *, budget: int) -> str:
    """The tool, for a model that is about to call it. Its description is its server's own text."""
    head = (
        f"{escape_invisible(format_signature(card))}\nserver: {escape_invisible(card.server)}; "
        f"effect: {card.effect.value.value}"
    )
    if card.doubt:
        head += f" (not certain: {escape_invisible(card.doubt)}; a person is asked before it runs)"
    title = card.definition.get("title")
    if isinstance(title, str) and title:
        head += f"\ntitle: {clip_to_tokens(escape_invisible(title), 40)}"
    description = escape_invisible(card.description)
    room = budget - count_tokens(head) - 10
    if count_tokens(description) > room // _DESCRIPTION_SHARE:
        data = _render_card(card, room)
        description = clip_to_tokens(description, max(room - count_tokens(data), room // _DESCRIPTION_SHARE))
    data = _render_card(card, room - count_tokens(description))
    return f"{head}\n\n{description or '(its server gives no description)'}\n\n{data}"


def _render_card(card: ToolCard, room: int) -> str:
    data: dict[str, Json] = {part: card.definition[part] for part in _DATA if card.definition.get(part)}
    whole = _format_json(data)
    if count_tokens(whole) <= room:
        return whole
    cut, dropped = trim_json(data, max(room - 40, 20), ())
    note = f"\n(cut to fit: {'; '.join(dropped[:3]) or 'its end'})"
    return clip_to_tokens(_format_json(cut), room - count_tokens(note)) + note


def _format_json(data: Json | JsonObject) -> str:
    return escape_invisible(json.dumps(data, ensure_ascii=False, default=dict))
