"""`fingerpost feedback`: say whether a request got the right tool, and which one it should have got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.house import Asked, any_router, connect, read_settings, run
from fingerpost.surfaces.cli.person import person
from fingerpost.surfaces.cli.screen import plain, print_json, print_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fingerpost.records import Feedback
    from fingerpost.router import Router

VERDICTS = ("good", "bad")


def record_feedback(*, words: tuple[str, ...], **options: Any) -> int:
    """Say whether a request got the right tool."""
    packet_id, verdict = _meant(words, last=options["last"])
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))
    by = person()

    async def work() -> int:
        async with any_router(loaded) as router:
            if options["should_have_used"] or options["tool"]:
                await connect(router, wait=options["wait"])
            about = packet_id or await router.learning.latest(caller=by)
            if about is None:
                click.echo("You have asked nothing yet.", err=True)
                return 1
            said = await router.feedback(
                about,
                verdict,
                by=by,
                tool=options["tool"],
                should_have=options["should_have_used"],
                comment=options["comment"],
            )
            await _show(router, said, as_json=options["as_json"])
            return 0

    return run(work)


def _meant(words: tuple[str, ...], *, last: bool) -> tuple[str | None, str]:
    """The packet and the verdict; None: the latest."""
    wanted = 1 if last else 2
    if len(words) != wanted or words[-1] not in VERDICTS:
        how = "--last good|bad" if last else "PACKET good|bad, or --last good|bad"
        message = f"say it as: fingerpost feedback {how}"
        raise click.UsageError(message)
    return (None if last else words[0]), words[-1]


async def _show(router: Router, said: Feedback, *, as_json: bool) -> None:
    if as_json:
        print_json(to_plain(said))
        return
    print_lines(await kept(router, said))


async def kept(router: Router, said: Feedback) -> list[str]:
    """The lines that say what was kept."""
    used = await router.learning.used(said.packet_id)
    return told(said, used=used, counts=router.settings.flags.learn_from_feedback)


def told(said: Feedback, *, used: Sequence[str], counts: bool) -> list[str]:
    """What was kept of a request that used these tools, and whether it counts."""
    about = f" of {plain(said.tool)}" if said.tool else ""
    right = f"; should have used {plain(said.should_have)}" if said.should_have else ""
    lines = [f"kept: {said.verdict.value}{about}{right}"]
    if said.tool is None and said.should_have is None:
        lines.append(_of_none(said.verdict.value, used))
    if not counts:
        lines.append(
            "It is kept and does not count yet: flags.learn_from_feedback is off. "
            "`fingerpost eval own --compare` says whether it would help."
        )
    return lines


def _of_none(verdict: str, used: Sequence[str]) -> str:
    """Why it speaks of no tool."""
    if used:
        return "Several tools were used, so it speaks of none in particular; name one to say which."
    if verdict == "good":
        return "No tool was used, and that was right: it speaks of no tool."
    return "No tool was used, so it speaks of none; say which one it should have used, if there is one."
