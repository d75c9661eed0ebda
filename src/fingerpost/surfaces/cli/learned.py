"""`fingerpost learned`: what was learned from use and feedback, and forgetting it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fingerpost.surfaces.cli.options import house_options, wait_option

if TYPE_CHECKING:
    from fingerpost.records import Learned, LearnedCorrection

KINDS = ("corrections", "outcomes", "preferences", "decisions", "thresholds")
SHOWN = 20


@click.command()
@click.argument("what", nargs=-1, type=click.Choice(KINDS))
@click.option("--reset", is_flag=True, help="Forget WHAT, or everything that was learned.")
@click.option("--person", metavar="NAME", help="Only what this person said and is used to.")
@house_options
@wait_option
def learned(what: tuple[str, ...], **options: Any) -> int:
    """Show what was learned from use and feedback, which of it counts, and why.

    With --reset it is forgotten: corrections (what people said), outcomes (what worked for which
    request), preferences (what one person is used to), decisions (servers remembered for a request) or
    thresholds (settings that moved).

    \b
    Examples:
      fingerpost learned
      fingerpost learned --reset corrections
      fingerpost learned --reset preferences --person dana
    """
    from fingerpost.surfaces.cli.house import Asked, any_router, connect, read_settings, run
    from fingerpost.surfaces.cli.person import person

    if what and not options["reset"]:
        message = "name what to forget together with --reset"
        raise click.UsageError(message)
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> int:
        async with any_router(loaded) as router:
            if options["reset"]:
                gone = await router.learning.forget(*what, by=person(), person=options["person"])
                _show_reset(what, gone, as_json=options["as_json"])
                return 0
            if loaded.specs and not options["as_json"]:
                await connect(router, wait=options["wait"])  # categories are the tools' own
            show(await router.learning.learned(person=options["person"]), as_json=options["as_json"])
            return 0

    return run(work)


def _show_reset(what: tuple[str, ...], gone: int, *, as_json: bool) -> None:
    from fingerpost.surfaces.cli.screen import print_json, print_lines

    if as_json:
        print_json({"forgotten": list(what or KINDS), "entries": gone})
        return
    print_lines([f"forgotten: {', '.join(what or KINDS)} ({gone:,} recorded)"])


def show(found: Learned, *, as_json: bool) -> None:
    """Everything, with what of it counts."""
    from fingerpost.records.codec import to_plain
    from fingerpost.surfaces.cli.screen import output, print_json, print_lines

    if as_json:
        print_json(to_plain(found))
        return
    print_lines(list(_overview(found)))
    screen = output()
    for made in _tables(found):
        screen.print(made)


def _overview(found: Learned) -> Iterator[str]:
    from fingerpost.surfaces.cli.screen import count

    on = [name for name, is_on in found.flags.items() if is_on]
    off = [name for name, is_on in found.flags.items() if not is_on]
    yield f"counts:          {', '.join(on) or 'nothing'}"
    if off:
        yield f"does not count:  {', '.join(off)}"
    check = found.check
    if check is None:
        yield "checked:         not yet; `fingerpost eval own --compare` says whether feedback would help"
    else:
        yield f"checked:         {check.at:%Y-%m-%d %H:%M}, {check.verdict}: {check.reason}"
    said = sum(one.times for one in found.corrections)
    yield f"people said:     {count(said, 'thing')} about tools"
    yield f"decisions:       remembered for {count(found.decisions, 'request')}"
    for moved in found.thresholds:
        yield f"threshold:       {moved.name} {moved.base:.2f} → {moved.value:.2f}, {moved.reason}"


def _tables(found: Learned) -> Iterator[Any]:
    from fingerpost.surfaces.cli.screen import first_sentence, plain, table

    if found.corrections:
        made = table("corrections", "right", "not", "times", "by", "for")
        for one in found.corrections[:SHOWN]:
            words = "; ".join(first_sentence(text, 60) for text in one.requests)
            names = plain(", ".join(one.by)) or "others"
            made.add_row(_name(one.right), _name(one.wrong), str(one.times), names, words or _unseen(one))
        yield made
    if found.preferences:
        made = table("preferences", "person", "takes", "for", "rather than", "uses")
        for habit in found.preferences[:SHOWN]:
            over = ", ".join(plain(tool) for tool in habit.over)
            uses = f"{habit.weight:.1f}"
            made.add_row(plain(habit.person), plain(habit.tool), plain(habit.category), over, uses)
        yield made
    if found.uses:
        made = table("outcomes", "tool", "worked", "failed")
        for use in found.uses[:SHOWN]:
            made.add_row(plain(use.tool), str(use.worked), str(use.failed))
        yield made


def _name(tool: str | None) -> str:
    from fingerpost.surfaces.cli.screen import plain

    return "" if tool is None else plain(tool)


def _unseen(one: LearnedCorrection) -> str:
    return "(words of others)" if one.times else ""
