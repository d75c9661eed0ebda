"""`fingerpost approvals`: the calls that wait for a person, and that person's word on each."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
import click

from fingerpost.call.approvals import Approvals, Settled, why_only_once
from fingerpost.catalog.names import visible_json
from fingerpost.records import Decision, utc_now
from fingerpost.records.codec import to_plain
from fingerpost.redaction import scrub_json, secret_paths
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run, with_store
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.pairs import read_pairs
from fingerpost.surfaces.cli.permission import show_pending
from fingerpost.surfaces.cli.screen import count, output, plain, print_json, print_lines, table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from fingerpost.records import Pending
    from fingerpost.settings import Settings
    from fingerpost.store import Store

R = TypeVar("R")

NOT_WAITING = 1


def list_approvals(*, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Approve, edit or reject calls that wait for you."""
    waiting = _ask_store(config, servers, lambda kept: kept.waiting())
    _show_list(waiting, as_json=as_json)
    return 0


def show_approval(*, pending_id: str, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Show everything about one call that waits, or waited."""
    pending = _ask_store(config, servers, lambda kept: kept.get(pending_id))
    if pending is None:
        return _unknown(pending_id)
    _show_one(pending, as_json=as_json)
    return 0


def approve_call(
    *,
    pending_id: str,
    for_conversation: bool,
    seen: bool,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
) -> int:
    """Let a waiting call run: exactly as it is, once."""
    by = _person()
    notes: list[str] = []

    async def settle(kept: Approvals, pending: Pending) -> Settled:
        await _check_read(pending, seen=seen)
        why = why_only_once(pending) if for_conversation else None
        if why is not None:
            notes.append(f"It is approved for this one call: {why}.")
        scope = "conversation" if for_conversation and why is None else "once"
        return await kept.settle(pending_id, Decision.APPROVED, by=by, scope=scope)

    async def work(kept: Approvals) -> Settled | None:
        return await _settle(kept, pending_id, lambda pending: settle(kept, pending))

    settled = _ask_store(config, servers, work)
    for note in notes if settled is not None and settled.stood else ():
        click.echo(plain(note), err=True)
    return _report(pending_id, settled, as_json=as_json)


def reject_call(
    *, pending_id: str, reason: str | None, config: Path | None, servers: Path | None, as_json: bool
) -> int:
    """Refuse a waiting call, and say why."""
    by = _person()

    async def work(kept: Approvals) -> Settled | None:
        return await _settle(
            kept, pending_id, lambda _: kept.settle(pending_id, Decision.REJECTED, by=by, reason=reason)
        )

    return _report(pending_id, _ask_store(config, servers, work), as_json=as_json)


def edit_call(
    *,
    pending_id: str,
    changes: tuple[str, ...],
    seen: bool,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
) -> int:
    """Change arguments of a waiting call, then let it run once."""
    changed = read_pairs(changes)
    loaded = read_settings(Asked(config, servers, as_json))
    by = _person()

    async def work() -> Settled | None:
        async with open_router(loaded) as router:
            kept = router.calls.approvals

            async def settle(pending: Pending) -> Settled:
                kept_as_asked = {
                    name: value for name, value in pending.arguments.items() if name not in changed
                }
                await _check_read(replace(pending, arguments=kept_as_asked), seen=seen)
                await connect(router, pending.tool.partition("/")[0])
                edited = await router.calls.edited(pending, {**pending.arguments, **changed})
                return await kept.settle(pending_id, Decision.APPROVED, by=by, edited=edited)

            settled = await _settle(kept, pending_id, settle)
            await router.store.journal.flush()
            return settled

    return _report(pending_id, run(work), as_json=as_json)


def _ask_store(
    config: Path | None, servers: Path | None, work: Callable[[Approvals], Coroutine[Any, Any, R]]
) -> R:
    """What `work` finds or does on the store alone: deciding needs no server."""

    async def ask(store: Store, settings: Settings) -> R:
        found = await work(Approvals(store, events=store.journal, settings=settings.call))
        await store.journal.flush()
        return found

    return with_store(config, servers, ask)


async def _settle(
    kept: Approvals, pending_id: str, settle: Callable[[Pending], Awaitable[Settled]]
) -> Settled | None:
    """Decide the call if it still waits; say how it stands in any case. None: there is none."""
    pending = await kept.get(pending_id)
    if pending is None:
        return None
    if pending.decision is not Decision.WAITING:
        return Settled(standing=pending, stood=False)
    return await settle(pending)


def _person() -> str:
    return getuser()


def _unknown(pending_id: str) -> int:
    message = f"No call waits, or waited, as {pending_id}. `fingerpost approvals` lists them."
    click.echo(repeatable(message), err=True)
    return NOT_WAITING


def _report(pending_id: str, settled: Settled | None, *, as_json: bool) -> int:
    """Say what stands, which is not what was wanted when somebody, or the clock, was faster."""
    if settled is None:
        return _unknown(pending_id)
    standing, mine = settled.standing, settled.stood
    if as_json:
        print_json(_plain(standing))
    elif standing.decision is Decision.EXPIRED:
        click.echo(f"Too late: {standing.pending_id} expired at {standing.expires:%H:%M} UTC.", err=True)
    else:
        words = f"{plain(standing.tool)} is {standing.decision} by {plain(standing.decided_by or 'somebody')}"
        why = f": {plain(standing.decision_reason)}" if standing.decision_reason else ""
        click.echo(f"{words}{why}" if mine else f"Decided before: {words}{why}", err=not mine)
        if mine and standing.edited_arguments is not None:
            click.echo(f"It runs with {_arguments(standing.edited_arguments)}")
    return 0 if mine else NOT_WAITING


def _is_hidden(pending: Pending) -> bool:
    """Whether the list does not show all of what would run."""
    shown, whole = _arguments(pending.arguments), _arguments(pending.arguments, exact=True)
    return shown != whole or _shortened(shown) != shown


async def _check_read(pending: Pending, *, seen: bool) -> None:
    """Leave, deciding nothing, where the person has not read all of what would run and does not want to."""
    if not seen and _is_hidden(pending) and not await _has_read(pending):
        raise click.exceptions.Exit(NOT_WAITING)


async def _has_read(pending: Pending) -> bool:
    """Show the exact call to the person at this terminal; whether they want it run."""
    if not sys.stdin.isatty():
        message = (
            "Nothing was approved: the list does not show all of this call. Read it with `fingerpost "
            f"approvals show {pending.pending_id}`, then say it again with --seen."
        )
        click.echo(repeatable(message), err=True)
        return False

    show_pending(pending, whole=True)
    return await anyio.to_thread.run_sync(lambda: click.confirm("Run exactly this?", err=True))


def _plain(pending: Pending, *, exact: bool = False) -> dict[str, Any]:
    """The call for programs, its secrets masked: a list on a screen or in a log is no place for them.

    `exact`: one call that is looked at to decide about it, as it would run.
    """
    whole: Any = to_plain(pending)
    masked: Any = scrub_json(whole)
    return {**masked, "arguments": whole["arguments"]} if exact else masked


def _show_list(waiting: list[Pending], *, as_json: bool) -> None:
    if as_json:
        print_json([_plain(pending) for pending in waiting])
        return
    if not waiting:
        click.echo("Nothing waits for you.")
        return
    title = f"{count(len(waiting), 'call')} waiting"
    me = _person()
    others = any(pending.caller != me for pending in waiting)
    columns = ("id", "tool", "effect", "arguments", "why", *(["asked by"] if others else []), "expires in")
    made = table(title, *columns)
    for pending in waiting:
        asked_by = "you" if pending.caller == me else _asked_by(pending)
        made.add_row(
            pending.pending_id,
            plain(pending.operation),
            pending.effect,
            _shortened(_arguments(pending.arguments)),
            plain(pending.reason),
            *([asked_by] if others else []),
            _left(pending),
        )
    output().print(made)
    onward = "Decide with `fingerpost approvals approve ID` or `fingerpost approvals reject ID`."
    click.echo(repeatable(onward))


def _asked_by(pending: Pending) -> str:
    return plain(pending.caller or "somebody without a name")


def _show_one(pending: Pending, *, as_json: bool) -> None:
    waits = pending.decision is Decision.WAITING  # what is decided is shown as in a list
    if as_json:
        print_json(_plain(pending, exact=waits))
        return
    lines = {
        "id": pending.pending_id,
        "tool": plain(pending.tool),
        "operation": plain(pending.operation),
        "effect": str(pending.effect),
        "arguments": _arguments(pending.arguments, exact=waits),
        "look secret": ", ".join(plain(path) for path in secret_paths(pending.arguments)) or "none",
        "why": plain(pending.reason),
        "asked by": _asked_by(pending),
        "conversation": plain(pending.conversation or "none"),
        "asked at": f"{pending.created:%Y-%m-%d %H:%M:%S} UTC",
        "state": str(pending.decision),
    }
    if waits:
        lines["expires in"] = _left(pending)
    if pending.decided_by is not None:
        lines["decided by"] = plain(pending.decided_by)
    if pending.decision_reason is not None:
        lines["because"] = plain(pending.decision_reason)
    if pending.edited_arguments is not None:
        lines["edited to"] = _arguments(pending.edited_arguments)
    print_lines([f"{name + ':':<14}{value}" for name, value in lines.items()])


def _arguments(arguments: object, *, exact: bool = False) -> str:
    """As JSON on one line, in which everything unseen stands as an escape; secrets masked unless `exact`."""
    shown = arguments if exact else scrub_json(arguments)
    return visible_json(json.dumps(shown, ensure_ascii=False, default=str))


def _shortened(text: str, limit: int = 200) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _left(pending: Pending) -> str:
    seconds = max(0, round((pending.expires - utc_now()).total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
