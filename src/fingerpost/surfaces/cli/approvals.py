"""`fingerpost approvals`, and asking a person about a call that waits for approval."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import anyio.to_thread
import click

from fingerpost.call.approvals import (
    CallApprovals,
    DecisionResult,
    describe_effect,
    describe_widened,
    explain_once_only,
    is_uncertain_read,
)
from fingerpost.catalog import escape_invisible_except
from fingerpost.catalog.tool_names import escape_invisible_json
from fingerpost.errors import CallError
from fingerpost.policy.flow import list_origins
from fingerpost.records import Decision, Pending, utc_now
from fingerpost.records.codec import to_plain
from fingerpost.redaction import find_secret_paths, scrub_json
from fingerpost.surfaces.cli.common import (
    MIN_ID_PART_LENGTH,
    connect_servers,
    match_id,
    read_pairs,
    run_on_router,
    run_on_store,
)
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, format_count, print_json, print_lines, shorten
from fingerpost.surfaces.cli.streams import style_text
from fingerpost.surfaces.cli.terminal_input import (
    ask_line,
    confirm,
    discard_typed_ahead,
    get_person,
    refuse_tools,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from fingerpost.records import Approval, ToolCard
    from fingerpost.router import Router
    from fingerpost.settings import Settings
    from fingerpost.store import Store


MAX_VALUE_LENGTH: Final = 2_000
MAX_LISTED_LENGTH: Final = 200
UNNAMED: Final = "unnamed caller"
MAX_TRIES: Final = 5  # invalid answers

_LISTED_CACHE: Final = "approvals_listed"  # of each person: the ids in the list they saw last
_LISTED_SECONDS: Final = 3600.0
_MAX_RECENT: Final = 200  # calls among which a part of an id is looked for


def show_pending(pending: Pending, *, whole: bool = False) -> None:
    """Print the call to decide about to stderr."""
    for line in format_pending(pending, whole=whole):
        click.echo(line, err=True)


def format_pending(pending: Pending, *, whole: bool = False) -> Iterator[str]:
    """Yield the call exactly as it would run, one line per argument; `whole` does not cut long values.

    Nothing is masked for the person who decides: what looks like a secret is marked.
    """
    tool = style_text(clean_text(pending.operation), bold=True)
    yield f"{tool} needs your approval: {describe_effect(pending)}"
    masked: Any = scrub_json(pending.arguments)
    width = max((len(name) for name in pending.arguments), default=0)
    for name, value in pending.arguments.items():
        mark = "" if masked[name] == value else "  (looks like a secret)"
        shown = _spell_out(value)
        if not whole and len(shown) > MAX_VALUE_LENGTH:
            shown = f"{shown[:MAX_VALUE_LENGTH]}… ({len(shown):,} characters)"
        yield f"  {escape_invisible_except(name):<{width}}  {shown}{mark}"
    if not pending.arguments:
        yield "  (no arguments)"
    yield style_text(f"  because: {clean_text(pending.reason)}", dim=True)
    for line in list_origins(pending):
        yield style_text(f"    {clean_text(line)}", dim=True)


def _spell_out(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return escape_invisible_except(text)  # also line breaks: one line of the question is one argument


def ask_permission(
    pending: Pending, *, by: str, card: ToolCard | None, mark_read_only: Callable[[], object]
) -> Approval | None:
    """Ask the person and return the decision, or None if there was no answer. The call then keeps waiting.

    `mark_read_only` records the person's word that the tool only reads. It is offered only if the call is
    asked about for that reason.
    """
    refuse_tools()
    show_pending(pending)
    wide = explain_once_only(pending) is None
    if wide:
        covered = escape_invisible_except(describe_widened(pending))
        click.echo(style_text(f"  for this conversation: also {covered}, for a while", dim=True), err=True)
    uncertain = is_uncertain_read(pending, card)
    choices = "[y]es, " + ("yes for this [c]onversation, " if wide else "")
    choices += "yes and do not ask again: it only [r]eads, " if uncertain else ""
    choices += "[e]dit, [n]o"
    is_cut = any(len(_spell_out(value)) > MAX_VALUE_LENGTH for value in pending.arguments.values())
    choices += ", [s]how all of it: " if is_cut else ": "
    for _ in range(MAX_TRIES):
        line = ask_line(f"Run it? {choices}")
        if line is None:
            return None
        answer = line.strip().lower()
        if answer in ("s", "show"):
            show_pending(pending, whole=True)
            continue
        if uncertain and answer in ("r", "reads"):
            mark_read_only()
            return pending.approve(by=by)
        approval = _read_decision(answer, pending, by=by, wide=wide, card=card)
        if approval is not None:
            return approval
    return None


def _read_decision(
    answer: str, pending: Pending, *, by: str, wide: bool, card: ToolCard | None
) -> Approval | None:
    match answer:
        case "y" | "yes":
            return pending.approve(by=by)
        case "c" | "conversation" if wide:
            return pending.approve(by=by, for_conversation=True)
        case "n" | "no":
            return pending.reject(
                by=by,
                reason=(ask_line("Why not? (may be empty) ", keep_typed_ahead=True) or "").strip() or None,
            )
        case "e" | "edit":
            return _edit_arguments(pending, by=by, card=card)
        case _:
            return None


def _edit_arguments(pending: Pending, *, by: str, card: ToolCard | None) -> Approval | None:
    """Ask for changed arguments. Return the approval, or None if nothing was changed."""
    discard_typed_ahead()
    click.echo("Change arguments with KEY=VALUE or KEY:=JSON; an empty line runs it.", err=True)
    changed: dict[str, Any] = {}
    while line := (ask_line("  ", keep_typed_ahead=True) or "").strip():
        try:
            given = read_pairs([line])
            _check_changes(pending, given, card)
            changed |= given
        except click.BadParameter as wrong:
            click.echo(f"  {wrong.message}", err=True)
    return approve_edited(pending, changed, by=by, card=card) if changed else None


def _check_changes(pending: Pending, changed: Mapping[str, Any], card: ToolCard | None) -> None:
    """Raise `BadParameter` if the tool does not know a changed argument."""
    # Loads the MCP library; only editing a call needs it.
    from fingerpost.call.build import check_argument_names

    if card is not None:
        try:
            check_argument_names(card, pending, changed)
        except CallError as wrong:
            raise click.BadParameter(str(wrong), param_hint="KEY=VALUE") from wrong


def approve_edited(
    pending: Pending, changed: Mapping[str, Any], *, by: str, card: ToolCard | None
) -> Approval:
    """Return an approval of the call with these arguments changed."""
    _check_changes(pending, changed, card)
    return pending.approve(by=by, arguments={**pending.arguments, **changed})


R = TypeVar("R")

EXIT_NOT_DECIDED = 1


class CallChoice(NamedTuple):
    """The call a person means: by its id or a part of it, its number in the list, or the newest one."""

    given: str | None
    last: bool


class FoundCall(NamedTuple):
    """The call that was meant. `is_known` is False if the person may not have seen which one that is."""

    pending: Pending
    is_known: bool


async def find_call(store: Store, approvals: CallApprovals, choice: CallChoice) -> FoundCall:
    """Return the call that the person means. Raises `CallError` if there is none."""
    given, person = choice.given, get_person()
    waiting = await approvals.list_waiting()
    if choice.last:
        mine = [pending for pending in waiting if pending.caller in (None, person)]
        if not mine:
            message = "no call of yours waits for approval"
            raise CallError(message, hint="`fingerpost approvals` lists calls of other people")
        return FoundCall(mine[-1], is_known=False)
    if given is None:
        if len(waiting) == 1:
            return FoundCall(waiting[0], is_known=False)
        message = f"{len(waiting) or 'no'} calls wait for approval"
        raise CallError(message, hint="`fingerpost approvals` lists them; name one by its number or id")
    if given.isdecimal() and len(given) < MIN_ID_PART_LENGTH:
        return await _find_numbered(store, approvals, int(given), waiting)
    recent = [pending.pending_id for pending in await store.approvals.list_recent(limit=_MAX_RECENT)]
    pending = await approvals.get(match_id(given, recent))
    if pending is None:
        message = f"there is no call with the id {given}"
        raise CallError(message, hint="`fingerpost approvals` lists the waiting calls")
    return FoundCall(pending, is_known=True)


async def _find_numbered(
    store: Store, approvals: CallApprovals, number: int, waiting: list[Pending]
) -> FoundCall:
    """Return the call with this number in the list that the person saw last, else in the current list."""
    listed = await store.cache.get(_LISTED_CACHE, get_person())
    ids = [pending.pending_id for pending in waiting] if listed is None else listed.decode().split()
    pending = await approvals.get(ids[number - 1]) if 1 <= number <= len(ids) else None
    if pending is None:
        message = f"there is no call number {number}"
        raise CallError(message, hint="`fingerpost approvals` lists the waiting calls")
    return FoundCall(pending, is_known=listed is not None)


def list_approvals(*, common: CommonOptions) -> int:
    """List the calls that wait for approval."""

    async def work(store: Store, approvals: CallApprovals) -> list[Pending]:
        waiting = await approvals.list_waiting()
        if not common.as_json:
            ids = " ".join(pending.pending_id for pending in waiting)
            await store.cache.put(_LISTED_CACHE, get_person(), ids.encode(), ttl=_LISTED_SECONDS)
        return waiting

    waiting = _run_on_approvals(common, work)
    if common.as_json:
        print_json([_convert_pending(pending) for pending in waiting])
    elif not waiting:
        click.echo("No call waits for approval.")
    else:
        _show_list(waiting)
    return 0


def show_approval(*, pending_id: str | None, last: bool, common: CommonOptions) -> int:
    """Show everything about one call that waits, or waited."""
    found = _run_on_approvals(
        common, lambda store, approvals: find_call(store, approvals, CallChoice(pending_id, last))
    )
    pending = found.pending
    if common.as_json:
        print_json(_convert_pending(pending, exact=pending.decision is Decision.WAITING))
    else:
        _show_details(pending)
    return 0


def approve_call(
    *,
    pending_id: str | None,
    last: bool,
    for_conversation: bool,
    only_reads: bool,
    seen: bool,
    common: CommonOptions,
) -> int:
    """Let a waiting call run: exactly as it is, once."""
    choice = CallChoice(pending_id, last)
    if only_reads:
        return _approve_read(choice, seen=seen, common=common)
    by = get_person()
    notes: list[str] = []

    async def work(store: Store, approvals: CallApprovals) -> DecisionResult:
        async def settle(found: FoundCall) -> DecisionResult:
            await _check_read(found, seen=seen)
            why = explain_once_only(found.pending) if for_conversation else None
            if why is not None:
                notes.append(f"Approved for this one call only: {why}.")
            scope = "conversation" if for_conversation and why is None else "once"
            return await approvals.settle_decision(
                found.pending.pending_id, Decision.APPROVED, by=by, scope=scope
            )

        return await _settle_waiting(store, approvals, choice, settle)

    settled = _run_on_approvals(common, work)
    for note in notes if settled.counted else ():
        click.echo(clean_text(note), err=True)
    return _report_decision(settled, as_json=common.as_json)


def _approve_read(choice: CallChoice, *, seen: bool, common: CommonOptions) -> int:
    """Approve a call and record that its tool only reads."""
    by = get_person()
    marked: list[str] = []

    async def settle(router: Router, found: FoundCall) -> DecisionResult:
        await _check_read(found, seen=seen)
        pending = found.pending
        await connect_servers(router, pending.tool.partition("/")[0])
        card = router.tools.get(pending.tool)
        if card is None or not is_uncertain_read(pending, card):
            message = f"{pending.tool} needs approval for another reason, or its definition has changed"
            raise CallError(message, hint="approve the call without --only-reads")
        settled = await router.calls.approvals.settle_decision(pending.pending_id, Decision.APPROVED, by=by)
        if settled.counted:
            await router.say_only_reads(card.key, by=by, fingerprint=card.fingerprint)
            marked.append(f"{clean_text(card.key)} is marked as read-only and needs no approval from now on.")
        return settled

    settled = _run_on_router(common, choice, settle)
    code = _report_decision(settled, as_json=common.as_json)
    print_lines(() if common.as_json else marked)
    return code


def reject_call(*, pending_id: str | None, last: bool, reason: str | None, common: CommonOptions) -> int:
    """Refuse a waiting call, and say why."""
    by = get_person()

    async def work(store: Store, approvals: CallApprovals) -> DecisionResult:
        return await _settle_waiting(
            store,
            approvals,
            CallChoice(pending_id, last),
            lambda found: approvals.settle_decision(
                found.pending.pending_id, Decision.REJECTED, by=by, reason=reason
            ),
        )

    return _report_decision(_run_on_approvals(common, work), as_json=common.as_json)


def edit_call(*, words: tuple[str, ...], last: bool, seen: bool, common: CommonOptions) -> int:
    """Change arguments of a waiting call, then let it run once."""
    pending_id = words[0] if "=" not in words[0] else None
    changes = words[1:] if pending_id is not None else words
    if not changes:
        raise click.UsageError("say what to change: KEY=VALUE or KEY:=JSON")
    changed = read_pairs(changes)
    by = get_person()

    async def settle(router: Router, found: FoundCall) -> DecisionResult:
        pending = found.pending
        unchanged = {name: value for name, value in pending.arguments.items() if name not in changed}
        await _check_read(FoundCall(replace(pending, arguments=unchanged), found.is_known), seen=seen)
        await connect_servers(router, pending.tool.partition("/")[0])
        edited = await router.calls.build_edited_call(pending, {**pending.arguments, **changed})
        return await router.calls.approvals.settle_decision(
            pending.pending_id, Decision.APPROVED, by=by, edited=edited
        )

    return _report_decision(
        _run_on_router(common, CallChoice(pending_id, last), settle), as_json=common.as_json
    )


def _run_on_router(
    common: CommonOptions,
    choice: CallChoice,
    settle: Callable[[Router, FoundCall], Awaitable[DecisionResult]],
) -> DecisionResult:
    """Settle the call if it still waits, with a router whose servers can be asked about its tool."""

    async def work(router: Router) -> DecisionResult:
        approvals = router.calls.approvals
        settled = await _settle_waiting(router.store, approvals, choice, lambda found: settle(router, found))
        await router.store.journal.flush()
        return settled

    return run_on_router(common, work)


def _run_on_approvals(
    common: CommonOptions, work: Callable[[Store, CallApprovals], Coroutine[Any, Any, R]]
) -> R:
    """Run `work` on the approvals in the store, without connecting servers."""

    async def ask(store: Store, settings: Settings) -> R:
        found = await work(store, CallApprovals(store, events=store.journal, settings=settings.call))
        await store.journal.flush()
        return found

    return run_on_store(common, ask)


async def _settle_waiting(
    store: Store,
    approvals: CallApprovals,
    choice: CallChoice,
    settle: Callable[[FoundCall], Awaitable[DecisionResult]],
) -> DecisionResult:
    """Settle the call if it still waits, and return its state."""
    found = await find_call(store, approvals, choice)
    if found.pending.decision is not Decision.WAITING:
        return DecisionResult(pending=found.pending, counted=False)
    return await settle(found)


def _report_decision(settled: DecisionResult, *, as_json: bool) -> int:
    """Print the decision that holds, which may be an earlier one. Return the exit code."""
    decided_call, counted = settled.pending, settled.counted
    if as_json:
        print_json(_convert_pending(decided_call))
    elif decided_call.decision is Decision.EXPIRED:
        click.echo(
            f"Too late: {decided_call.pending_id} expired at {decided_call.expires:%H:%M} UTC. "
            "Make the request again.",
            err=True,
        )
    else:
        by = clean_text(decided_call.decided_by or UNNAMED)
        words = f"{clean_text(decided_call.tool)} was {decided_call.decision} by {by}"
        why = f": {clean_text(decided_call.decision_reason)}" if decided_call.decision_reason else ""
        click.echo(f"{words}{why}" if counted else f"Already decided: {words}{why}", err=not counted)
        if counted and decided_call.edited_arguments is not None:
            click.echo(f"New arguments: {_format_arguments(decided_call.edited_arguments)}")
        if counted and decided_call.decision is Decision.APPROVED:
            click.echo(_format_next_step(decided_call))
    return 0 if counted else EXIT_NOT_DECIDED


def _format_next_step(pending: Pending) -> str:
    """Return what runs the approved call."""
    if pending.packets:
        return repeat_options(f"Next: `fingerpost ask --resume {pending.pending_id}`")
    if pending.caller == get_person():
        return repeat_options(f"Next: `fingerpost call --resume {pending.pending_id}`")
    return "Next: repeat the call in the program that made it. It runs once."


def _is_partly_hidden(pending: Pending) -> bool:
    """Return whether the list does not show all of the call."""
    shown, whole = _format_arguments(pending.arguments), _format_arguments(pending.arguments, exact=True)
    return shown != whole or len(shown) > MAX_LISTED_LENGTH


async def _check_read(found: FoundCall, *, seen: bool) -> None:
    """Raise `Exit` if the person may not have read the exact call, and does not confirm it."""
    if seen or (found.is_known and not _is_partly_hidden(found.pending)):
        return
    if not await _confirm_read(found):
        raise click.exceptions.Exit(EXIT_NOT_DECIDED)


async def _confirm_read(found: FoundCall) -> bool:
    """Show the exact call and return whether the person confirms it."""
    pending = found.pending
    if not sys.stdin.isatty():
        why = "the list does not show all of this call" if found.is_known else "the call was not named"
        message = (
            f"Not approved: {why}. Read it with `fingerpost approvals show {pending.pending_id}`, "
            f"then approve it with `fingerpost approvals approve {pending.pending_id} --seen`."
        )
        click.echo(repeat_options(message), err=True)
        return False

    show_pending(pending, whole=True)
    return await anyio.to_thread.run_sync(lambda: confirm("Approve this call?", err=True))


def _convert_pending(pending: Pending, *, exact: bool = False) -> dict[str, Any]:
    """Return the call as JSON with its secrets masked.

    `exact`: one call that is looked at to decide about it, as it would run.
    """
    whole: Any = to_plain(pending)
    masked: Any = scrub_json(whole)
    return {**masked, "arguments": whole["arguments"]} if exact else masked


def _show_list(waiting: list[Pending]) -> None:
    me = get_person()
    others = any(pending.caller != me for pending in waiting)
    verb = "waits" if len(waiting) == 1 else "wait"
    click.echo(f"{format_count(len(waiting), 'call')} {verb} for approval")
    for number, pending in enumerate(waiting, start=1):
        caller = "you" if pending.caller == me else clean_text(pending.caller or UNNAMED)
        asked = f", asked by {caller}" if others else ""
        tool = style_text(clean_text(pending.operation), bold=True)
        facts = f"{pending.effect}, expires in {_format_time_left(pending)}{asked}"
        indent = " " * (len(str(number)) + 2)
        print_lines(
            [
                "",
                f"{number}. {tool}  {facts}",
                f"{indent}{shorten(_format_arguments(pending.arguments), MAX_LISTED_LENGTH)}",
                style_text(f"{indent}because: {clean_text(pending.reason)}", dim=True),
                style_text(f"{indent}{pending.pending_id}", dim=True),
            ]
        )
    click.echo()
    click.echo(repeat_options("Next: `fingerpost approvals approve 1` or `fingerpost approvals reject 1`"))


def _show_details(pending: Pending) -> None:
    waits = pending.decision is Decision.WAITING  # decided calls are shown as in the list
    lines = {
        "id": pending.pending_id,
        "tool": clean_text(pending.tool),
        "operation": clean_text(pending.operation),
        "effect": str(pending.effect),
        "arguments": _format_arguments(pending.arguments, exact=waits),
        "look secret": ", ".join(clean_text(path) for path in find_secret_paths(pending.arguments)) or "none",
        "why": clean_text(pending.reason),
        "asked by": clean_text(pending.caller or UNNAMED),
        "conversation": clean_text(pending.conversation or "none"),
        "asked at": f"{pending.created:%Y-%m-%d %H:%M:%S} UTC",
        "state": str(pending.decision),
    }
    if waits:
        lines["expires in"] = _format_time_left(pending)
    if pending.decided_by is not None:
        lines["decided by"] = clean_text(pending.decided_by)
    if pending.decision_reason is not None:
        lines["because"] = clean_text(pending.decision_reason)
    if pending.edited_arguments is not None:
        lines["edited to"] = _format_arguments(pending.edited_arguments)
    if pending.origins:
        lines["values"] = "; ".join(clean_text(line) for line in list_origins(pending))
    print_lines([f"{name + ':':<14}{value}" for name, value in lines.items()])


def _format_arguments(arguments: object, *, exact: bool = False) -> str:
    """Return JSON on one line, invisible characters escaped and secrets masked unless `exact`."""
    shown = arguments if exact else scrub_json(arguments)
    return escape_invisible_json(json.dumps(shown, ensure_ascii=False, default=str))


def _format_time_left(pending: Pending) -> str:
    seconds = max(0, round((pending.expires - utc_now()).total_seconds()))
    return f"{seconds} s" if seconds < 120 else f"{seconds // 60} min"
