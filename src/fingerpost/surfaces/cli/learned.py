"""`fingerpost learned`: what was learned from use and feedback, and forgetting it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.commands import KINDS
from fingerpost.surfaces.cli.house import Asked, any_router, connect, read_settings, run
from fingerpost.surfaces.cli.person import person
from fingerpost.surfaces.cli.screen import (
    count,
    first_sentence,
    output,
    plain,
    print_json,
    print_lines,
    table,
)

if TYPE_CHECKING:
    from fingerpost.records import Learned, LearnedCorrection

SHOWN = 20


def show_learned(*, what: tuple[str, ...], **options: Any) -> int:
    """Show what was learned from use and feedback, which of it counts, and why."""
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
    if as_json:
        print_json({"forgotten": list(what or KINDS), "entries": gone})
        return
    print_lines([f"forgotten: {', '.join(what or KINDS)} ({gone:,} recorded)"])


def show(found: Learned, *, as_json: bool) -> None:
    """Everything, with what of it counts."""
    if as_json:
        print_json(to_plain(found))
        return
    print_lines(list(_overview(found)))
    screen = output()
    for made in _tables(found):
        screen.print(made)


def _overview(found: Learned) -> Iterator[str]:
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
    return "" if tool is None else plain(tool)


def _unseen(one: LearnedCorrection) -> str:
    return "(words of others)" if one.times else ""
