"""A call that waits for a person, as a message: exactly what would run, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.records import Decision, Effect, Pending
from fingerpost.redaction import find_secret_paths
from fingerpost.surfaces.discord.inert import escape_line, format_json_value
from fingerpost.surfaces.discord.outgoing import OutgoingFile
from fingerpost.surfaces.discord.people import CALLER_PREFIX

MAX_ARGUMENTS_SHOWN: Final = 900  # characters of the arguments in the message; longer ones come as a file
_MAX_NAME_LENGTH: Final = 80
_MAX_REASON_SHOWN: Final = 120  # of these every character may be escaped; together they fit into a message
_MAX_ARGUMENTS_FILE: Final = 1024 * 1024
_EFFECT_PHRASES: Final[Mapping[Effect, str]] = {
    Effect.READ: "reads",
    Effect.WRITE: "changes things",
    Effect.DESTROY: "destroys things",
}


def render_approval(pending: Pending) -> tuple[str, tuple[OutgoingFile, ...]]:
    """The message, and a file where the arguments are too long for it."""
    arguments, enclosed = _render_arguments(pending, exact=False)
    lines = [
        (
            f"**{escape_line(pending.operation, _MAX_NAME_LENGTH)}** waits for approval: "
            f"it {_EFFECT_PHRASES[pending.effect]}."
        ),
        f"```json\n{arguments}\n```",
        f"-# Because: {escape_line(pending.reason, _MAX_REASON_SHOWN)}",
        f"-# Asked for by {format_person(pending.caller)}. Until <t:{int(pending.expires.timestamp())}:t>.",
    ]
    return "\n".join(lines), enclosed


def needs_private_view(pending: Pending) -> bool:
    """Whether the channel does not see all of what would run: a part looks secret, or it is too long."""
    _, enclosed = _render_arguments(pending, exact=True)
    return bool(find_secret_paths(pending.arguments)) or any(
        len(each.data) > _MAX_ARGUMENTS_FILE for each in enclosed
    )


def render_exact_call(pending: Pending) -> tuple[str, tuple[OutgoingFile, ...]] | None:
    """What would run, nothing masked, for the one person who is about to approve it.

    None where it is too long for Discord: nobody approves here what they cannot read here.
    """
    arguments, enclosed = _render_arguments(pending, exact=True)
    if any(len(each.data) > _MAX_ARGUMENTS_FILE for each in enclosed):
        return None
    words = (
        f"**{escape_line(pending.operation, _MAX_NAME_LENGTH)}** "
        f"{_EFFECT_PHRASES[pending.effect]}. Run exactly this?"
    )
    secret = bool(find_secret_paths(pending.arguments))
    note = "-# A part of it looks like a secret: the channel does not see it.\n" if secret else ""
    return f"{words}\n{note}```json\n{arguments}\n```", enclosed


def _render_arguments(pending: Pending, *, exact: bool) -> tuple[str, tuple[OutgoingFile, ...]]:
    arguments = format_json_value(pending.arguments, exact=exact)
    enclosed: tuple[OutgoingFile, ...] = ()
    if len(arguments) > MAX_ARGUMENTS_SHOWN or len(pending.operation) > _MAX_NAME_LENGTH:
        whole = {"tool": pending.tool, "operation": pending.operation, "arguments": pending.arguments}
        data = format_json_value(whole, exact=exact).encode("utf-8", "replace")
        enclosed = (OutgoingFile("call.json", data if exact else data[:_MAX_ARGUMENTS_FILE]),)
    if len(arguments) > MAX_ARGUMENTS_SHOWN:
        arguments = (
            f"{arguments[:MAX_ARGUMENTS_SHOWN]}\n… {len(arguments):,} characters in all: see call.json"
        )
    return arguments, enclosed


def render_decided(pending: Pending) -> str:
    """The same after somebody's word, or when its time is over."""
    said, _ = render_approval(pending)
    return f"{said.rpartition(chr(10))[0]}\n{describe_decision(pending)}"


def describe_decision(pending: Pending) -> str:
    """Who decided what."""
    if pending.decision is Decision.EXPIRED:
        return "**Expired**: nobody decided in time. It was not run."
    reason = (
        f": {escape_line(pending.decision_reason, _MAX_REASON_SHOWN)}" if pending.decision_reason else "."
    )
    edited = " with other arguments" if pending.edited_arguments is not None else ""
    return f"**{pending.decision.capitalize()}**{edited} by {format_person(pending.decided_by)}{reason}"


def format_person(name: str | None) -> str:
    """Somebody on Discord by a mention that calls nobody; others by the name they have in this house."""
    number = (name or "").removeprefix(CALLER_PREFIX)
    if name is not None and name.startswith(CALLER_PREFIX) and number.isascii() and number.isdigit():
        return f"<@{number}>"
    return escape_line(name or "somebody", 60)
