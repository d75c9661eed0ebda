"""A call that waits for a person: exactly what would run, and the person's word on it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from fingerpost.call.approvals import describe_widened, why_only_once
from fingerpost.call.making import check_names
from fingerpost.catalog import visible
from fingerpost.errors import CallError
from fingerpost.redaction import scrub_json
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.pairs import read_pairs
from fingerpost.surfaces.cli.person import ask_line, refuse_tools
from fingerpost.surfaces.cli.screen import plain
from fingerpost.surfaces.cli.typed_ahead import forget_typed_ahead

if TYPE_CHECKING:
    from fingerpost.records import Approval, Pending, ToolCard

LONGEST_VALUE: Final = 2_000
MOST_TRIES: Final = 5  # answers that are none of the four

_DOES: Final = {"read": "reads", "write": "changes things", "destroy": "destroys things"}


def show_pending(pending: Pending, *, whole: bool = False) -> None:
    """Everything the decision is about, on stderr."""
    for line in pending_lines(pending, whole=whole):
        click.echo(line, err=True)


def pending_lines(pending: Pending, *, whole: bool = False) -> Iterator[str]:
    """The call exactly as it would run, one line per argument; `whole`: long values too.

    Nothing is masked for the person who decides: what looks like a secret is marked.
    """
    tool = styled(plain(pending.operation), bold=True)
    yield f"{tool} waits for you: it {_DOES.get(pending.effect.value, pending.effect.value)}"
    masked: Any = scrub_json(pending.arguments)
    width = max((len(name) for name in pending.arguments), default=0)
    for name, value in pending.arguments.items():
        mark = "" if masked[name] == value else "  (looks like a secret)"
        yield f"  {visible(name):<{width}}  {_value(value, whole=whole)}{mark}"
    if not pending.arguments:
        yield "  (no arguments)"
    yield styled(f"  because: {plain(pending.reason)}", dim=True)


def _value(value: object, *, whole: bool) -> str:
    shown = _spelled_out(value)
    if whole or len(shown) <= LONGEST_VALUE:
        return shown
    return f"{shown[:LONGEST_VALUE]}… ({len(shown):,} characters)"


def _spelled_out(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return visible(text)  # a line break is written out: each line of the question is one argument, no more


def _is_cut(pending: Pending) -> bool:
    return any(len(_spelled_out(value)) > LONGEST_VALUE for value in pending.arguments.values())


def ask_permission(pending: Pending, *, by: str, card: ToolCard | None) -> Approval | None:
    """The person's word; None when they leave without one, and the call goes on waiting."""
    refuse_tools()
    show_pending(pending)
    wide = why_only_once(pending) is None
    if wide:
        covered = visible(describe_widened(pending))
        click.echo(styled(f"  for this conversation: also {covered}, for a while", dim=True), err=True)
    choices = "[y]es, " + ("yes for this [c]onversation, " if wide else "") + "[e]dit, [n]o"
    choices += ", [s]how all of it: " if _is_cut(pending) else ": "
    for _ in range(MOST_TRIES):
        said = ask_line(f"Run it? {choices}")
        if said is None:
            return None
        if said.strip().lower() in ("s", "show"):
            show_pending(pending, whole=True)
            continue
        approval = _understood(said.strip().lower(), pending, by=by, wide=wide, card=card)
        if approval is not None:
            return approval
    return None


def _understood(
    said: str, pending: Pending, *, by: str, wide: bool, card: ToolCard | None
) -> Approval | None:
    match said:
        case "y" | "yes":
            return pending.approve(by=by)
        case "c" | "conversation" if wide:
            return pending.approve(by=by, for_conversation=True)
        case "n" | "no":
            return pending.reject(
                by=by, reason=(ask_line("Why not? (may be empty) ", goes_on=True) or "").strip() or None
            )
        case "e" | "edit":
            return _edited(pending, by=by, card=card)
        case _:
            return None


def _edited(pending: Pending, *, by: str, card: ToolCard | None) -> Approval | None:
    """The call with other arguments; None when nothing was changed."""
    forget_typed_ahead()
    click.echo("Change arguments with KEY=VALUE or KEY:=JSON; an empty line runs it.", err=True)
    changed: dict[str, Any] = {}
    while line := (ask_line("  ", goes_on=True) or "").strip():
        try:
            given = read_pairs([line])
            _check(pending, given, card)
            changed |= given
        except click.BadParameter as wrong:
            click.echo(f"  {wrong.message}", err=True)
    return edited(pending, changed, by=by, card=card) if changed else None


def _check(pending: Pending, changed: Mapping[str, Any], card: ToolCard | None) -> None:
    """Said while it is being written, not when all of it is decided."""
    if card is not None:
        try:
            check_names(card, pending, changed)
        except CallError as wrong:
            raise click.BadParameter(str(wrong), param_hint="KEY=VALUE") from wrong


def edited(pending: Pending, changed: Mapping[str, Any], *, by: str, card: ToolCard | None) -> Approval:
    """Leave for the call with these arguments changed."""
    _check(pending, changed, card)
    return pending.approve(by=by, arguments={**pending.arguments, **changed})
