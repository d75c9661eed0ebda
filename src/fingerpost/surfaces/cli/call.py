"""`fingerpost call`: one call through the whole path, with progress, approval and the journey's id."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from getpass import getuser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from anyio.to_thread import run_sync
from rich.text import Text

from fingerpost.call.guidance import guidance, words_for_people
from fingerpost.call.reply import cached_note
from fingerpost.catalog import visible
from fingerpost.events import CallProgressed
from fingerpost.llm.tool_calls import read_arguments
from fingerpost.records import CallContext, Decision, ToolCall, new_id
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.pairs import read_pairs
from fingerpost.surfaces.cli.person import confirmed, refuse_tools
from fingerpost.surfaces.cli.screen import errors_to, plain, print_json

if TYPE_CHECKING:
    from fingerpost.records import Outcome
    from fingerpost.router import Router

WAITING = 4


def call_tool(*, name: str, arguments: tuple[str, ...], whole: str | None, **options: Any) -> int:
    """Call the tool NAME."""
    wish = ToolCall(name=name, arguments=_arguments(arguments, whole))
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))
    asked = CallContext(
        call_id=new_id("cal"),
        conversation=options["conversation"],
        caller=_person(),
        working_directory=str(Path.cwd()),
        seconds=options["timeout"],
        tokens_left=None if options["tokens"] is None else 4 * options["tokens"],
        dry_run=options["dry_run"],
        fallback=not options["no_fallback"],
        idempotency_key=options["idempotency_key"],
    )

    async def work() -> int:
        async with open_router(loaded) as router:
            meant = router.profiles.meant(options["profile"], caller=asked.caller)
            context = replace(asked, profile=meant)
            outcome = await _run(router, wish, context, yes=options["yes"], quiet=options["as_json"])
            await router.store.journal.flush()
            _show(outcome, as_json=options["as_json"], technical=options["technical"])
            return 0 if outcome.success else WAITING if outcome.pending_id else 1

    return run(work)


def _arguments(pairs: tuple[str, ...], whole: str | None) -> dict[str, Any]:
    given = read_arguments(whole)
    if isinstance(given, str):
        raise click.BadParameter(given, param_hint="--args")
    return {**given, **read_pairs(pairs)}


def _person() -> str:
    return getuser()


async def _run(router: Router, wish: ToolCall, context: CallContext, *, yes: bool, quiet: bool) -> Outcome:
    owner = next(
        (s.name for s in router.servers.statuses if wish.name.startswith((f"{s.name}/", f"{s.name}__"))), None
    )
    await connect(router, *([owner] if owner else []), wait=10.0)
    outcome = await _with_progress(router, wish, context, quiet=quiet)
    if outcome.pending_id is None or not (yes or (sys.stdin.isatty() and not quiet)):
        return outcome
    return await _ask(router, outcome, context, yes=yes)


async def _with_progress(router: Router, wish: ToolCall, context: CallContext, *, quiet: bool) -> Outcome:
    """Show on stderr what the tool is doing while a person waits."""
    screen = errors_to()
    if quiet or not screen.is_terminal:
        return await router.calls.call(wish, context)
    with router.live.subscribe() as changes, screen.status("") as status:
        outcomes: list[Outcome] = []
        async with anyio.create_task_group() as group:

            async def show() -> None:
                async for event in changes:
                    if isinstance(event, CallProgressed) and event.call_id == context.call_id:
                        status.update(Text(plain(event.summary())))

            group.start_soon(show)
            outcomes.append(await router.calls.call(wish, context))
            group.cancel_scope.cancel()
    return outcomes[0]


async def _ask(router: Router, outcome: Outcome, context: CallContext, *, yes: bool) -> Outcome:
    assert outcome.pending_id is not None
    click.echo(plain(outcome.content), err=True)
    await run_sync(refuse_tools)
    agreed = yes or await run_sync(lambda: confirmed("Run it?", err=True))
    decision = Decision.APPROVED if agreed else Decision.REJECTED
    await router.calls.decide(outcome.pending_id, decision, by=context.caller or "somebody")
    return await router.calls.resume(outcome.pending_id, context)


def _show(outcome: Outcome, *, as_json: bool, technical: bool) -> None:
    if as_json:
        print_json(to_plain(outcome))
        return
    for repair in outcome.repairs:
        click.echo(_repair_line(repair.path, repair.kind, repair.before, repair.after), err=True)
    for note in _notes(outcome):
        click.echo(styled(plain(note), fg="yellow"), err=True)
    if outcome.success:
        click.echo(_readable(outcome.content))
    else:
        _show_failure(outcome, technical=technical)
    click.echo(styled(f"trace {outcome.call_id}", dim=True), err=True)


def _notes(outcome: Outcome) -> list[str]:
    """What else has to be said of a result: that it is not of this very call."""
    notes = [cached_note(outcome)] if cached_note(outcome) else []
    if (other := outcome.metadata.get("answered_by")) is not None:
        asked = outcome.attempts[0].tool if outcome.attempts else "the tool that was called"
        notes.append(f"{asked} gave no answer; this is the answer of {other}")
    match outcome.metadata.get("replayed"):
        case {"call_id": str(first), "at": str(at)}:
            notes.append(f"not run again: this is the result of {first}, made at {at} under the same key")
        case _:
            pass
    return notes


def _show_failure(outcome: Outcome, *, technical: bool) -> None:
    """What happened, what was tried, what the person can do; the technical truth when they ask."""
    assert outcome.error is not None
    said = words_for_people(outcome)
    if said:
        click.echo(styled(f"{outcome.error}: ", fg="red", bold=True) + plain(said), err=True)
    help_ = guidance(
        outcome.attempts,
        outcome.error,
        tool=outcome.tool,
        detail=outcome.detail or ("" if said else outcome.content),
        fix=_onward(outcome),
    )
    click.echo(_readable(repeatable(help_.text(technical=technical))), err=True)


def _onward(outcome: Outcome) -> str:
    """What helps in just this case, where that is known."""
    if outcome.pending_id is not None:
        return (
            f"Approve it with `fingerpost approvals approve {outcome.pending_id}`, "
            "then make the same call again: it runs once."
        )
    return str(outcome.metadata.get("fix", ""))


def _repair_line(path: str, kind: str, before: object, after: object) -> str:
    shown = [plain(json.dumps(value, ensure_ascii=False, default=str))[:60] for value in (before, after)]
    return styled(f"repaired {plain(path)} ({kind}): {shown[0]} → {shown[1]}", fg="yellow")


def _readable(text: str) -> str:
    """A result for the terminal: its lines stay, control characters do not."""
    return visible(text, keep="\n\t")
