"""A call that waits for a person, as a message: exactly what would run, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fingerpost.records import Decision, Effect, Pending
from fingerpost.redaction import secret_paths
from fingerpost.surfaces.discord.inert import plain, written
from fingerpost.surfaces.discord.outgoing import Enclosed
from fingerpost.surfaces.discord.people import PREFIX

SHOWN: Final = 900  # characters of the arguments in the message; longer ones come as a file
_NAME: Final = 80
_REASON: Final = 120  # of these every character may be escaped; together they fit into a message
_FILE_BYTES: Final = 1024 * 1024
_DOES: Final[Mapping[Effect, str]] = {
    Effect.READ: "reads",
    Effect.WRITE: "changes things",
    Effect.DESTROY: "destroys things",
}


def asked(pending: Pending) -> tuple[str, tuple[Enclosed, ...]]:
    """The message, and a file where the arguments are too long for it."""
    arguments, enclosed = _arguments(pending, exact=False)
    lines = [
        f"**{plain(pending.operation, _NAME)}** waits for approval: it {_DOES[pending.effect]}.",
        f"```json\n{arguments}\n```",
        f"-# Because: {plain(pending.reason, _REASON)}",
        f"-# Asked for by {who(pending.caller)}. Until <t:{int(pending.expires.timestamp())}:t>.",
    ]
    return "\n".join(lines), enclosed


def needs_look(pending: Pending) -> bool:
    """Whether the channel does not see all of what would run: a part looks secret, or it is too long."""
    _, enclosed = _arguments(pending, exact=True)
    return bool(secret_paths(pending.arguments)) or any(len(each.data) > _FILE_BYTES for each in enclosed)


def exactly(pending: Pending) -> tuple[str, tuple[Enclosed, ...]] | None:
    """What would run, nothing masked, for the one person who is about to approve it.

    None where it is too long for Discord: nobody approves here what they cannot read here.
    """
    arguments, enclosed = _arguments(pending, exact=True)
    if any(len(each.data) > _FILE_BYTES for each in enclosed):
        return None
    words = f"**{plain(pending.operation, _NAME)}** {_DOES[pending.effect]}. Run exactly this?"
    secret = bool(secret_paths(pending.arguments))
    note = "-# A part of it looks like a secret: the channel does not see it.\n" if secret else ""
    return f"{words}\n{note}```json\n{arguments}\n```", enclosed


def _arguments(pending: Pending, *, exact: bool) -> tuple[str, tuple[Enclosed, ...]]:
    arguments = written(pending.arguments, exact=exact)
    enclosed: tuple[Enclosed, ...] = ()
    if len(arguments) > SHOWN or len(pending.operation) > _NAME:
        whole = {"tool": pending.tool, "operation": pending.operation, "arguments": pending.arguments}
        data = written(whole, exact=exact).encode("utf-8", "replace")
        enclosed = (Enclosed("call.json", data if exact else data[:_FILE_BYTES]),)
    if len(arguments) > SHOWN:
        arguments = f"{arguments[:SHOWN]}\n… {len(arguments):,} characters in all: see call.json"
    return arguments, enclosed


def decided(pending: Pending) -> str:
    """The same after somebody's word, or when its time is over."""
    said, _ = asked(pending)
    return f"{said.rpartition(chr(10))[0]}\n{verdict(pending)}"


def verdict(pending: Pending) -> str:
    """Who decided what."""
    if pending.decision is Decision.EXPIRED:
        return "**Expired**: nobody decided in time. It was not run."
    reason = f": {plain(pending.decision_reason, _REASON)}" if pending.decision_reason else "."
    edited = " with other arguments" if pending.edited_arguments is not None else ""
    return f"**{pending.decision.capitalize()}**{edited} by {who(pending.decided_by)}{reason}"


def who(name: str | None) -> str:
    """Somebody on Discord by a mention that calls nobody; others by the name they have in this house."""
    number = (name or "").removeprefix(PREFIX)
    if name is not None and name.startswith(PREFIX) and number.isascii() and number.isdigit():
        return f"<@{number}>"
    return plain(name or "somebody", 60)
