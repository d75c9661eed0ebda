"""`fingerpost feedback`, `learned` and `prefer`: record, show and forget what was learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.commands import KINDS
from fingerpost.surfaces.cli.common import connect_servers, match_id, run_on_router, use_router
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import (
    clean_text,
    cut_sentence,
    format_count,
    print_json,
    print_lines,
    print_table,
)
from fingerpost.surfaces.cli.terminal_input import get_person
from fingerpost.surfaces.cli.trace import list_recent_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fingerpost.records import Effort, Feedback, Learned, LearnedCorrection
    from fingerpost.router import Router


VERDICTS = ("good", "bad")


def record_feedback(*, words: tuple[str, ...], common: CommonOptions, **options: Any) -> int:
    """Say whether a request got the right tool."""
    packet_id, verdict = _parse_words(words, last=options["last"])
    by = get_person()

    async def work(router: Router) -> int:
        if options["should_have_used"] or options["tool"]:
            await connect_servers(router, wait=options["wait"])
        if packet_id is not None:
            request_id = match_id(packet_id, await list_recent_ids(router.store))
        else:
            request_id = await router.learning.find_latest_request(caller=by)
        if request_id is None:
            click.echo("You have made no request yet.", err=True)
            return 1
        feedback = await router.feedback(
            request_id,
            verdict,
            by=by,
            tool=options["tool"],
            should_have=options["should_have_used"],
            comment=options["comment"],
        )
        if common.as_json:
            print_json(to_plain(feedback))
        else:
            print_lines(await describe_feedback(router, feedback))
        return 0

    return run_on_router(common, work, need_servers=False)


def _parse_words(words: tuple[str, ...], *, last: bool) -> tuple[str | None, str]:
    """Return the packet (None for the latest) and the verdict. Raises `UsageError`."""
    wanted = 1 if last else 2
    if len(words) != wanted or words[-1] not in VERDICTS:
        how = "--last good|bad" if last else "PACKET good|bad, or --last good|bad"
        raise click.UsageError(f"usage: fingerpost feedback {how}")
    return (None if last else words[0]), words[-1]


async def describe_feedback(router: Router, feedback: Feedback) -> list[str]:
    """Return lines that say what was recorded and whether it counts."""
    about = f" of {clean_text(feedback.tool)}" if feedback.tool else ""
    right = f"; should have used {clean_text(feedback.should_have)}" if feedback.should_have else ""
    lines = [f"kept: {feedback.verdict.value}{about}{right}"]
    if feedback.tool is None and feedback.should_have is None:
        used = await router.learning.find_used_tools(feedback.packet_id)
        lines.append(_explain_no_tool(feedback.verdict.value, used))
    if not router.settings.flags.learn_from_feedback:
        lines.append(
            "It is stored but not used yet: flags.learn_from_feedback is off. "
            "`fingerpost eval own --compare` says whether it would help."
        )
    return lines


def _explain_no_tool(verdict: str, used: Sequence[str]) -> str:
    """Return why the feedback is about no tool."""
    if used:
        return "Several tools were used, so the feedback applies to none of them; name one with --tool."
    if verdict == "good":
        return "No tool was used, and that was right: the feedback applies to no tool."
    return "No tool was used, so the feedback applies to none; name the right one with --should-have-used."


MAX_SHOWN_ROWS = 20


def show_learned(*, what: tuple[str, ...], common: CommonOptions, **options: Any) -> int:
    """Show what was learned from use and feedback, which of it counts, and why."""
    if what and not options["reset"]:
        raise click.UsageError("name what to forget together with --reset")

    async def forget(router: Router) -> int:
        gone = await router.learning.forget(*what, by=get_person(), person=options["person"])
        if common.as_json:
            print_json({"forgotten": list(what or KINDS), "entries": gone})
        else:
            click.echo(f"forgotten: {', '.join(what or KINDS)} ({gone:,} recorded)")
        return 0

    async def show(router: Router) -> int:
        if router.servers.statuses and not common.as_json:
            await connect_servers(router, wait=options["wait"])  # categories come from the tools
        found = await router.learning.build_overview(person=options["person"])
        if common.as_json:
            print_json(to_plain(found))
        else:
            print_lines(_list_overview(found))
            _print_tables(found)
        return 0

    return run_on_router(common, forget if options["reset"] else show, need_servers=False)


def _list_overview(found: Learned) -> Iterator[str]:
    on = [name for name, is_on in found.flags.items() if is_on]
    off = [name for name, is_on in found.flags.items() if not is_on]
    yield f"Learning from use:  {'on: ' + ', '.join(on) if on else 'off'}"
    if off:
        yield f"Off:                {', '.join(off)}"
    check = found.check
    if check is None:
        yield "Checked:            not yet; `fingerpost eval own --compare` says whether feedback would help"
    else:
        yield f"Checked:            {check.at:%Y-%m-%d %H:%M}, {check.verdict}: {check.reason}"
    count = sum(one.times for one in found.corrections)
    yield f"Feedback received:  {count}"
    yield f"Server choices:     remembered for {format_count(found.decisions, 'request')}"
    for moved in found.thresholds:
        yield f"Threshold:          {moved.name} {moved.base:.2f} → {moved.value:.2f}, {moved.reason}"


def _print_tables(found: Learned) -> None:
    if found.corrections:
        print_table(
            "corrections",
            ("right", "not", "times", "by", "for"),
            (
                (
                    one.right or "",
                    one.wrong or "",
                    str(one.times),
                    ", ".join(one.by) or "others",
                    Text("; ".join(cut_sentence(text, 60) for text in one.requests) or _format_unseen(one)),
                )
                for one in found.corrections[:MAX_SHOWN_ROWS]
            ),
        )
    if found.preferences:
        print_table(
            "preferences",
            ("person", "takes", "for", "rather than", "uses"),
            (
                (one.person, one.tool, one.category, ", ".join(one.over), f"{one.weight:.1f}")
                for one in found.preferences[:MAX_SHOWN_ROWS]
            ),
        )
    if found.uses:
        uses = found.uses[:MAX_SHOWN_ROWS]
        print_table(
            "outcomes",
            ("tool", "worked", "failed"),
            ((use.tool, str(use.worked), str(use.failed)) for use in uses),
        )


def _format_unseen(one: LearnedCorrection) -> str:
    return "(hidden: another person's text)" if one.times else ""


@use_router(need_servers=False)
async def set_preference(router: Router, *, what: str | None, common: CommonOptions) -> int:
    """Set or show the preferred effort of answers. `usual` removes the preference."""
    person = get_person()
    effort = await update_preference(router, person, what)
    if common.as_json:
        print_json({"caller": person, "effort": effort})
    else:
        click.echo(format_preference(person, effort))
    return 0


async def update_preference(router: Router, person: str, what: str | None) -> Effort | None:
    """Store the preference if given, and return the current one."""
    if what is not None:
        await router.prefer(person, None if what == "usual" else what)
    return router.profiles.efforts.get(person)


def format_preference(person: str, effort: Effort | None) -> str:
    return f"{person} gets {effort or 'the usual'} answers"
