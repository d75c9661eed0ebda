"""`fingerpost call` calls a tool; `fingerpost result` reads the rest of a long result."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from anyio.to_thread import run_sync
from rich.text import Text

from fingerpost.call.digest import ResultStore, escape_invisible
from fingerpost.call.outcomes import build_cached_note, build_guidance, explain_to_person, get_failure_reason
from fingerpost.catalog import escape_invisible_except
from fingerpost.events import CallProgressed
from fingerpost.llm.content import read_arguments
from fingerpost.records import CallContext, Decision, ToolCall, create_id
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.approvals import CallChoice, find_call, show_pending
from fingerpost.surfaces.cli.common import connect_servers, match_id, read_pairs, run_on_router, run_on_store
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, get_error_output, print_dim, print_error, print_json
from fingerpost.surfaces.cli.streams import style_text
from fingerpost.surfaces.cli.terminal_input import confirm, get_person, refuse_tools
from fingerpost.surfaces.cli.trace import list_recent_handles

if TYPE_CHECKING:
    from fingerpost.call.digest import ResultPage
    from fingerpost.records import Outcome
    from fingerpost.router import Router
    from fingerpost.settings import Settings
    from fingerpost.store import Store


EXIT_WAITING = 4


def call_tool(
    *,
    name: str | None,
    arguments: tuple[str, ...],
    whole: str | None,
    resume: str | None,
    common: CommonOptions,
    **options: Any,
) -> int:
    """Call the tool NAME, or run the approved call `resume`."""
    given = read_arguments(whole)
    if isinstance(given, str):
        raise click.BadParameter(given, param_hint="--args")
    if arguments and arguments[0].lstrip().startswith("{"):
        message = f"a JSON object is given with an option: --args {shlex.quote(arguments[0])}"
        raise click.BadParameter(message, param_hint="KEY=VALUE")
    if (name is None) == (resume is None):
        raise click.UsageError("name a tool, or an approved call with --resume ID")
    tool_call = ToolCall(name=name or "", arguments={**given, **read_pairs(arguments)})
    base_context = CallContext(
        call_id=create_id("cal"),
        conversation=options["conversation"],
        caller=get_person(),
        working_directory=str(Path.cwd()),
        seconds=options["timeout"],
        tokens_left=None if options["tokens"] is None else 4 * options["tokens"],
        dry_run=options["dry_run"],
        fallback=not options["no_fallback"],
        idempotency_key=options["idempotency_key"],
    )

    async def work(router: Router) -> int:
        profile = router.profiles.resolve_profile(options["profile"], caller=base_context.caller)
        context = replace(base_context, profile=profile)
        if resume is not None:
            outcome = await _resume_call(router, resume, context)
        else:
            outcome = await _connect_and_call(
                router, tool_call, context, yes=options["yes"], quiet=common.as_json
            )
        await router.store.journal.flush()
        if common.as_json:
            print_json(to_plain(outcome))
        else:
            _show_outcome(outcome, technical=options["technical"])
        return 0 if outcome.success else EXIT_WAITING if outcome.pending_id else 1

    return run_on_router(common, work)


async def _resume_call(router: Router, given: str, context: CallContext) -> Outcome:
    """Run a call that waited for approval and was approved."""
    approvals = router.calls.approvals
    pending = (await find_call(router.store, approvals, CallChoice(given, last=False))).pending
    await connect_servers(router, pending.tool.partition("/")[0], wait=10.0)
    return await router.calls.resume(pending.pending_id, context)


async def _connect_and_call(
    router: Router, tool_call: ToolCall, context: CallContext, *, yes: bool, quiet: bool
) -> Outcome:
    owner = next(
        (s.name for s in router.servers.statuses if tool_call.name.startswith((f"{s.name}/", f"{s.name}__"))),
        None,
    )
    await connect_servers(router, owner, wait=10.0)
    outcome = await _call_with_progress(router, tool_call, context, quiet=quiet)
    if outcome.pending_id is None or not (yes or (sys.stdin.isatty() and not quiet)):
        return outcome
    return await _ask_and_resume(router, outcome, context, yes=yes)


async def _call_with_progress(
    router: Router, tool_call: ToolCall, context: CallContext, *, quiet: bool
) -> Outcome:
    """Show on stderr what the tool is doing while a person waits."""
    screen = get_error_output()
    if quiet or not screen.is_terminal:
        return await router.calls.call(tool_call, context)
    with router.live.subscribe() as changes, screen.status("") as status:
        outcomes: list[Outcome] = []
        async with anyio.create_task_group() as group:

            async def show() -> None:
                async for event in changes:
                    if isinstance(event, CallProgressed) and event.call_id == context.call_id:
                        status.update(Text(clean_text(event.summary())))

            group.start_soon(show)
            outcomes.append(await router.calls.call(tool_call, context))
            group.cancel_scope.cancel()
    return outcomes[0]


async def _ask_and_resume(router: Router, outcome: Outcome, context: CallContext, *, yes: bool) -> Outcome:
    assert outcome.pending_id is not None
    await run_sync(refuse_tools)
    pending = await router.calls.approvals.get(outcome.pending_id)
    if not yes and pending is not None:
        show_pending(pending)
    agreed = yes or await run_sync(lambda: confirm("Run it?", err=True))
    decision = Decision.APPROVED if agreed else Decision.REJECTED
    await router.calls.decide(outcome.pending_id, decision, by=context.caller or get_person())
    return await router.calls.resume(outcome.pending_id, context)


def _show_outcome(outcome: Outcome, *, technical: bool) -> None:
    for repair in outcome.repairs:
        values = (
            json.dumps(value, ensure_ascii=False, default=str) for value in (repair.before, repair.after)
        )
        change = " → ".join(clean_text(value)[:60] for value in values)
        text = f"repaired {clean_text(repair.path)} ({repair.kind}): {change}"
        click.echo(style_text(text, fg="yellow"), err=True)
    for note in _collect_notes(outcome):
        click.echo(style_text(clean_text(note), fg="yellow"), err=True)
    if outcome.success:
        click.echo(_make_readable(outcome.content))
    else:
        _show_failure(outcome, technical=technical)
    print_dim(f"trace {outcome.call_id}")


def _collect_notes(outcome: Outcome) -> list[str]:
    """Return notes about a cached, replayed or fallback result."""
    notes = [build_cached_note(outcome)] if build_cached_note(outcome) else []
    if (other := outcome.metadata.get("answered_by")) is not None:
        asked = outcome.attempts[0].tool if outcome.attempts else "the tool that was called"
        notes.append(f"{asked} did not answer; this is the answer of {other}")
    match outcome.metadata.get("replayed"):
        case {"call_id": str(first), "at": str(at)}:
            notes.append(f"not run again: this is the result of {first}, made at {at} under the same key")
        case _:
            pass
    return notes


def _show_failure(outcome: Outcome, *, technical: bool) -> None:
    """Print what failed, what was tried and what to do; details if `technical`."""
    assert outcome.error is not None
    explanation = explain_to_person(outcome)
    if explanation:
        print_error(clean_text(explanation), label=str(outcome.error))
    help_ = build_guidance(
        outcome.attempts,
        outcome.error,
        tool=outcome.tool,
        detail=outcome.detail or ("" if explanation else outcome.content),
        fix=_format_fix(outcome),
        reason=get_failure_reason(outcome),
    )
    if explanation:  # printed above
        help_ = replace(help_, summary="")
    click.echo(_make_readable(repeat_options(help_.render(technical=technical))), err=True)


def _format_fix(outcome: Outcome) -> str:
    """Return what to do about this failure, or an empty text."""
    if outcome.pending_id is not None:
        return (
            f"Approve it with `fingerpost approvals approve {outcome.pending_id}`, "
            f"then run it with `fingerpost call --resume {outcome.pending_id}`."
        )
    return str(outcome.metadata.get("fix", ""))


def _make_readable(text: str) -> str:
    """Return `text` with control characters made visible; line breaks and backslashes are kept."""
    return escape_invisible_except(text, keep="\n\t\\")


_MAX_SEARCHED_PARTS = 20  # parts searched for the first file


def show_result(
    *,
    given: str | None,
    last: bool,
    page: int,
    tokens: int,
    part: int | None,
    output: Path | None,
    common: CommonOptions,
) -> int:
    """Show the full result of a call whose digest left something out. Without a handle, of the latest."""
    if last and given is not None:
        raise click.UsageError("give a handle or --last, not both")
    if part is not None and output is None:
        raise click.UsageError("--part needs --out: the file to write it to")

    async def work(store: Store, settings: Settings) -> int:
        results = ResultStore(store.cache, keep_seconds=settings.digest.keep_seconds)
        recent = await list_recent_handles(store)
        if given is None and not recent:
            return _report_missing("no result was cut recently")
        handle = recent[0] if given is None else match_id(given, recent)
        if output is not None:
            return await _write_part(results, handle, part or await _find_first_file(results, handle), output)
        found = await results.read_page(handle, page=page, tokens=tokens)
        if found is None:
            return _report_missing(f"there is no page {page} of {handle}")
        if common.as_json:
            print_json(to_plain(found))
        else:
            _show_page(found)
        return 0

    return run_on_store(common, work)


async def _find_first_file(results: ResultStore, handle: str) -> int:
    """Return the number of the first part that is not text, else 1."""
    for part in range(1, _MAX_SEARCHED_PARTS + 1):
        found = await results.read_part(handle, part)
        if found is None:
            break
        if found[0] != "text/plain":
            return part
    return 1


async def _write_part(results: ResultStore, handle: str, part: int, output: Path) -> int:
    found = await results.read_part(handle, part)
    if found is None:
        return _report_missing(f"there is no part {part} of {handle}")
    kind, data = found
    await anyio.Path(output).write_bytes(data)
    click.echo(f"{output}: {len(data):,} bytes of {clean_text(kind)}", err=True)
    return 0


def _show_page(found: ResultPage) -> None:
    click.echo(escape_invisible(found.text.replace("\r\n", "\n")).replace("\r", "\\x0d"))
    more = f"; next: fingerpost result {found.handle} --page {found.page + 1}"
    click.echo(f"page {found.page} of {found.pages}" + (more if found.page < found.pages else ""), err=True)
    for reference in found.references if found.page == 1 else ():
        click.echo(f"stored separately: {clean_text(reference)}", err=True)


def _report_missing(what: str) -> int:
    fix = "results are kept for a limited time; repeat the call"
    print_error(clean_text(what), fix, label="nothing found")
    return 1
