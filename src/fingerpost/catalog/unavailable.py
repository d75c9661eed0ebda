"""Why a known tool cannot be found or called now, and how to fix it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fingerpost.catalog.tool_names import build_tool_key
from fingerpost.frozen import frozen
from fingerpost.records import DroppedTool, Effect, Quarantined, ServerState, ServerStatus, Severity, ToolCard

_ENABLE_HINT: Final = "Switch it on in the console of `fingerpost serve`, under {page}."
_STATE_REASONS: Final = {
    ServerState.DOWN: "is down",
    ServerState.CONNECTING: "is still connecting",
    ServerState.IDLE: "is not connected yet",
    ServerState.DISABLED: "is disabled in the configuration",
}


@frozen
class UnavailableTool:
    """Why a tool is unavailable. `reason` is part of a sentence, `fix` is a full sentence."""

    tool: str  # its key, or the requested name if only its server is known
    server: str
    reason: str
    fix: str
    effects: frozenset[Effect] = frozenset(Effect)  # all effects if the definition is unknown

    @property
    def message(self) -> str:
        """The error message for the caller."""
        return f"{self.tool} is not available: {self.reason}"


def build_quarantined(card: ToolCard, held: Quarantined | None) -> UnavailableTool:
    """Build the reason for a tool that is new or changed, or whose server is, and that needs acceptance."""
    key, server, show, accept = card.key, card.server, "`fingerpost pins diff", "`fingerpost pins accept"
    if held is not None and held.card.suspicious:
        return build_suspicious(held)
    if held is None or not held.new:
        fix = f"Show the change with {show} {key}`, then accept it with {accept} {key}`."
        return _build(card, "its definition changed since it was first seen", fix)
    if held.reviewed:
        reason = f"{server} is new, or its entry changed, and its tools wait for review"
        fix = f"Show them with {show} {server}`, then accept them with {accept} {server}`."
        return _build(card, reason, fix)
    fix = f"Show it with {show} {key}`, then accept it with {accept} {key}`"
    fix += f", or everything of its server with {accept} {server}`."
    return _build(card, f"it is new on {server}, which did not have it before", fix)


def build_suspicious(held: Quarantined) -> UnavailableTool:
    """Build the reason for a tool whose definition has serious findings and needs acceptance."""
    card = held.card
    finding = next(found for found in card.findings if found.severity is Severity.SERIOUS)
    changed = not held.new and held.pin.fingerprint != card.fingerprint
    return _build(
        card,
        f"its definition {'changed since it was first seen and ' if changed else ''}{finding.reason}",
        f"Show what was found with `fingerpost scan {card.key}`. If the definition is harmless, accept it "
        f"with `fingerpost pins accept {card.key}`.",
    )


def describe_quarantine(entries: Sequence[Quarantined]) -> str:
    """Return why these tools of one server are hidden, or an empty text."""
    suspicious = sum(entry.card.suspicious for entry in entries)
    entries = [entry for entry in entries if not entry.card.suspicious]
    changed = sum(not entry.new for entry in entries)
    reviewed = sum(entry.new and entry.reviewed for entry in entries)
    new = len(entries) - changed - reviewed
    parts = (
        (suspicious, "hidden: the definition is suspicious"),
        (changed, "hidden: the definition changed, the server's entry did not"),
        (new, "hidden: new on a known server"),
        (reviewed, "waiting for review: the server is new, or its entry changed"),
    )
    return "; ".join(f"{count} {'tool' if count == 1 else 'tools'} {why}" for count, why in parts if count)


def build_disabled_by_settings(card: ToolCard, pattern: str) -> UnavailableTool:
    """Build the reason for a tool disabled in the settings by the entry with this pattern."""
    return _build(
        card,
        f"it is switched off in the settings: [[tools]] with match = {pattern!r} says enabled = false",
        "Remove that line, or set enabled = true for this tool in a later entry.",
    )


def build_disabled(card: ToolCard, reason: str, *, by_server: bool) -> UnavailableTool:
    """Build the reason for a tool that was disabled at run time, directly or with its server."""
    return _build(card, reason, _ENABLE_HINT.format(page="Servers" if by_server else "Tools"))


def build_refused(drop: DroppedTool) -> UnavailableTool:
    """Build the reason for a tool with an invalid definition."""
    return UnavailableTool(
        tool=build_tool_key(drop.server, drop.name),
        server=drop.server,
        reason=f"it cannot be used: {drop.reason}",
        fix="Report it to the server's author; every other tool of the server works.",
    )


def build_server_unavailable(tool: str, status: ServerStatus) -> UnavailableTool | None:
    """Build the reason for a tool whose server cannot list its tools. Return None if it can."""
    away = "lists no tools" if status.lists_nothing else _STATE_REASONS.get(status.state)
    if away is None:
        return None
    if status.state is ServerState.DISABLED and status.reason is not None:
        reason = f"its server {status.name} is {status.reason}"
        fix = _ENABLE_HINT.format(page="Servers")
    else:
        reason = f"its server {status.name} {away}" + (f": {status.reason}" if status.reason else "")
        fix = _build_fix(status)
    return UnavailableTool(tool=tool, server=status.name, reason=reason, fix=fix)


def _build_fix(status: ServerStatus) -> str:
    match status.state:
        case ServerState.DISABLED:
            switch = '"disabled": true (in fingerpost.toml: enabled = false)'
            return f"Remove {switch} from the entry of {status.name}."
        case ServerState.DOWN:
            hint = f"{status.hint[:1].upper()}{status.hint[1:]}. " if status.hint else ""
            return f"{hint}`fingerpost doctor` says more."
        case _:
            return "Try again in a moment; `fingerpost servers` shows its state."


def _build(card: ToolCard, reason: str, fix: str) -> UnavailableTool:
    return UnavailableTool(
        tool=card.key, server=card.server, reason=reason, fix=fix, effects=frozenset(card.effects)
    )
