"""Buttons under a call that waits, and the form that asks for the reason of a no.

They carry the call's id and nothing else, so they outlive this process.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, Self, cast

import discord

ButtonAction = Literal["approve", "reject", "confirm"]
Interaction = discord.Interaction[Any]

_CUSTOM_ID_PATTERN: Final = r"fingerpost:(?P<act>approve|reject|confirm):(?P<id>apr_[0-9a-f]{32})"
_FORM_ID_PREFIX: Final = re.compile(r"fingerpost:reason:(?P<id>apr_[0-9a-f]{32})")
_REASON_FIELD_ID: Final = "reason"
MAX_REASON_LENGTH: Final = 500
FORM_TIMEOUT_S: Final = (
    900.0  # for which the library remembers an open form; who hears it does not depend on that
)
_BUTTON_LABELS: Final[dict[str, tuple[str, discord.ButtonStyle]]] = {
    "approve": ("Approve", discord.ButtonStyle.success),
    "reject": ("Reject", discord.ButtonStyle.secondary),
    "confirm": ("Yes, run it", discord.ButtonStyle.danger),
}


class ButtonHandler(Protocol):
    """A client that knows what to do about a press."""

    handle_press: Callable[[Interaction, ButtonAction, str], Awaitable[None]]


class DecisionButton(discord.ui.DynamicItem["discord.ui.Button[Any]"], template=_CUSTOM_ID_PATTERN):
    """One of the three."""

    def __init__(self, action: ButtonAction, pending_id: str, *, disabled: bool = False) -> None:
        label, style = _BUTTON_LABELS[action]
        super().__init__(
            discord.ui.Button(
                label=label, style=style, disabled=disabled, custom_id=f"fingerpost:{action}:{pending_id}"
            )
        )
        self._act: ButtonAction = action
        self._pending_id = pending_id

    @classmethod
    async def from_custom_id(
        cls, interaction: Interaction, item: discord.ui.Item[Any], match: re.Match[str], /
    ) -> Self:
        return cls(cast("ButtonAction", match["act"]), match["id"])

    async def callback(self, interaction: Interaction) -> None:
        client = cast("ButtonHandler", interaction.client)
        await client.handle_press(interaction, self._act, self._pending_id)


def build_buttons(*acts: ButtonAction, pending_id: str, disabled: bool = False) -> discord.ui.View:
    """These buttons in a row."""
    view = discord.ui.View(timeout=None)
    for act in acts:
        view.add_item(DecisionButton(act, pending_id, disabled=disabled))
    return view


def build_reason_form(pending_id: str) -> discord.ui.Modal:
    """Asks why a call is rejected; nothing has to be said."""
    form = discord.ui.Modal(
        title="Reject this call", custom_id=f"fingerpost:reason:{pending_id}", timeout=FORM_TIMEOUT_S
    )
    field: discord.ui.TextInput[Any] = discord.ui.TextInput(
        custom_id=_REASON_FIELD_ID,
        style=discord.TextStyle.paragraph,
        required=False,
        max_length=MAX_REASON_LENGTH,
        placeholder="The model is told, and answers accordingly.",
    )
    form.add_item(discord.ui.Label(text="Why not? (optional)", component=field))
    return form


def parse_form(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """The id of the call and the reason that stand in a submitted form; None where it is none of ours."""
    found = _FORM_ID_PREFIX.fullmatch(str(data.get("custom_id")))
    return None if found is None else (found["id"], _get_value(data.get("components") or ()))


def _get_value(components: Sequence[Mapping[str, Any]]) -> str:
    for component in components:
        if component.get("custom_id") == _REASON_FIELD_ID:
            return " ".join(str(component.get("value") or "").split())[:MAX_REASON_LENGTH]
        inner = [component["component"]] if "component" in component else component.get("components") or ()
        if value := _get_value(inner):
            return value
    return ""
