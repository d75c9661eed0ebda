"""Buttons under a call that waits. They carry its id and nothing else, so they outlive this process."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, Protocol, Self, cast

import discord

Act = Literal["approve", "reject", "confirm"]
Interaction = discord.Interaction[Any]

_TEMPLATE: Final = r"fingerpost:(?P<act>approve|reject|confirm):(?P<id>apr_[0-9a-f]{32})"
_LABELS: Final[dict[str, tuple[str, discord.ButtonStyle]]] = {
    "approve": ("Approve", discord.ButtonStyle.success),
    "reject": ("Reject", discord.ButtonStyle.secondary),
    "confirm": ("Yes, run it", discord.ButtonStyle.danger),
}


class HearsPresses(Protocol):
    """A client that knows what to do about a press."""

    pressed: Callable[[Interaction, Act, str], Awaitable[None]]


class DecisionButton(discord.ui.DynamicItem["discord.ui.Button[Any]"], template=_TEMPLATE):
    """One of the three."""

    def __init__(self, act: Act, pending_id: str, *, disabled: bool = False) -> None:
        label, style = _LABELS[act]
        super().__init__(
            discord.ui.Button(
                label=label, style=style, disabled=disabled, custom_id=f"fingerpost:{act}:{pending_id}"
            )
        )
        self._act: Act = act
        self._pending_id = pending_id

    @classmethod
    async def from_custom_id(
        cls, interaction: Interaction, item: discord.ui.Item[Any], match: re.Match[str], /
    ) -> Self:
        return cls(cast("Act", match["act"]), match["id"])

    async def callback(self, interaction: Interaction) -> None:
        client = cast("HearsPresses", interaction.client)
        await client.pressed(interaction, self._act, self._pending_id)


def buttons(*acts: Act, pending_id: str, disabled: bool = False) -> discord.ui.View:
    """These buttons in a row."""
    view = discord.ui.View(timeout=None)
    for act in acts:
        view.add_item(DecisionButton(act, pending_id, disabled=disabled))
    return view
