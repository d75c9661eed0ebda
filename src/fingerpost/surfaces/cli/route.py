"""`fingerpost route` and `fingerpost why`: which tools a request is offered, and the reasons."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from rich.text import Text

from fingerpost.call.build import find_absence
from fingerpost.records import ToolCall
from fingerpost.records.codec import to_plain
from fingerpost.redaction import scrub_json
from fingerpost.surfaces.cli.catalog import get_certainty, style_effect
from fingerpost.surfaces.cli.common import connect_servers, settle_tools, use_router
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import (
    clean_text,
    get_output,
    print_json,
    print_lines,
    print_table,
)
from fingerpost.surfaces.cli.terminal_input import get_person

if TYPE_CHECKING:
    from fingerpost.records import Candidate, Narrowing, ServerChoice, Signals
    from fingerpost.router import NarrowKeywords, Route, Router


async def narrow(router: Router, text: str, **wanted: Unpack[NarrowKeywords]) -> Narrowing:
    """Narrow the current tools for `text` and return the result.

    No model is asked, not even for servers, unless `ask_model` says so.
    """
    await settle_tools(router)
    wanted.setdefault("ask_model", False)
    wanted.setdefault("caller", get_person())
    return await router.narrow(text, **wanted)


# Each signal has a colour, and a shade for terminals without colours.
SIGNAL_STYLES = {"meaning": ("cyan", "█"), "words": ("green", "▓"), "server": ("blue", "▒")}
OTHER_SIGNAL_STYLE = ("magenta", "░")
NEED_TEXTS = {
    "tool": ("Yes", "bold green"),
    "none": ("No tool needed", "bold blue"),
    "unclear": ("Unclear", "bold yellow"),
}
BAR_WIDTH = 30


@use_router()
async def show_route(
    router: Router, *, request: tuple[str, ...], common: CommonOptions, **options: Any
) -> int:
    """Show which tools would be offered to a model for REQUEST, and why."""
    text = " ".join(request)
    await connect_servers(router, options["server"], wait=options["wait"])
    wanted = ("server", "max_tools", "profile", "ask_model", "effort")
    narrowing = await narrow(router, text, **{name: options[name] for name in wanted})
    if common.as_json:
        offered = [candidate.tool for candidate in narrowing.shortlist.offered]
        print_json(scrub_json({"request": text, "offered": offered, "narrowing": to_plain(narrowing)}))
    else:
        show_narrowing(narrowing, explain=options["explain"])
        if options["explain"]:
            _show_effects(router, narrowing)
            _show_rules(router)
    return 0 if narrowing.shortlist.offered else 1


def show_narrowing(narrowing: Narrowing, *, explain: bool, trace: bool = True) -> None:
    """Print the need and the offered tools with their scores; `explain` adds the others."""
    screen = get_output()
    for line in _format_overview(narrowing):
        screen.print(line)
    _show_offered(narrowing, explain=explain)
    if explain:
        _show_rest(narrowing)
    if trace and narrowing.packet_id is not None:
        screen.print(f"trace {narrowing.packet_id}", style="dim", highlight=False)


def _format_overview(narrowing: Narrowing) -> Iterator[Text]:
    need = narrowing.need
    reasons = "".join(f"; {clean_text(reason)}" for reason in need.reasons)
    chance = f" (chance that one is: {need.score * 100:.0f} %){reasons}"
    yield Text.assemble(("Tool needed?   ", "dim"), NEED_TEXTS[need.verdict], chance)
    if signals_text := ", ".join(_describe_signals(narrowing.signals)):
        yield Text.assemble(("Understood as  ", "dim"), clean_text(signals_text))
    shortlist = narrowing.shortlist
    for number, need in enumerate(shortlist.needs if len(shortlist.needs) > 1 else (), start=1):
        yield Text.assemble((f"Part {number}         ", "dim"), clean_text(need))
    if (choice := narrowing.servers) is not None and choice.left_out:
        count = f"{len(choice.servers)} of {len(choice.servers) + len(choice.left_out)}"
        chosen = f"{', '.join(choice.servers)} ({count}, chosen by {choice.by})"
        yield Text.assemble(("Servers        ", "dim"), clean_text(chosen))
        if choice.widened:
            yield Text.assemble(("Added servers  ", "dim"), clean_text(", ".join(choice.widened)))
    for failure in shortlist.failed_scorers:
        text = f"the scorer {failure.scorer}: it {failure.reason}"
        yield Text.assemble(("Left out       ", "dim"), (clean_text(text), "yellow"))
    fits = "one of these fits" if shortlist.offered else "any tool fits"
    how = "words and meaning" if shortlist.dense else "words alone"
    yield Text.assemble(
        ("Offered        ", "dim"),
        f"{len(shortlist.offered)} of {shortlist.considered} tools by {how} in "
        f"{narrowing.milliseconds:.1f} ms; {shortlist.fit * 100:.0f} % likely that {fits}",
    )


def _describe_signals(signals: Signals) -> Iterator[str]:
    """Yield the signals of the request as text."""
    if signals.language != "en":
        yield f"language {signals.language}"
    if signals.gloss:
        yield f"in English: {signals.gloss}"
    for intent in signals.intents[:3]:
        yield f"about {intent.category} ({', '.join(intent.words[:3])})" if intent.words else intent.category
    if signals.urgent:
        yield "urgent"
    yield from (f"names the {mention.kind} {mention.name}" for mention in signals.mentions[:4])
    yield from (f"contains a {entity.kind}: {entity.text}" for entity in signals.entities[:4])


def _show_offered(narrowing: Narrowing, *, explain: bool) -> None:
    screen = get_output()
    offered = narrowing.shortlist.offered
    if not offered:
        screen.print(Text("No tool is offered.", style="yellow"))
        return
    several = len(narrowing.shortlist.needs) > 1
    largest = max(candidate.score for candidate in offered)
    width = max(min(BAR_WIDTH, screen.width // 5), 6)
    print_table(
        None,
        ("offered", "score", "sure", "speed", "made of", *(["need"] if several else []), "because"),
        (
            (
                Text(clean_text(candidate.tool), style="bold"),
                f"{candidate.score:.2f}",
                candidate.confidence,
                candidate.latency.replace("_", " "),
                draw_score_bar(candidate, largest, width=width, coloured=screen.is_terminal),
                *([str(candidate.need + 1)] if several else []),
                Text(clean_text(format_reasons(candidate, all_of_them=explain)), style="dim"),
            )
            for candidate in offered
        ),
    )
    screen.print(_format_legend(offered, coloured=screen.is_terminal))


def draw_score_bar(candidate: Candidate, largest: float, *, width: int = BAR_WIDTH, coloured: bool) -> Text:
    """Return the score as a bar with one segment per signal."""
    line = Text(no_wrap=True, overflow="crop")
    drawn, so_far = 0, 0.0
    for part in candidate.parts:
        if part.points <= 0:
            continue
        so_far += part.points
        end = min(round(width * so_far / largest), width) if largest > 0 else 0
        colour, shade = SIGNAL_STYLES.get(part.signal, OTHER_SIGNAL_STYLE)
        line.append(("█" if coloured else shade) * max(end - drawn, 0), style=colour if coloured else "")
        drawn = max(end, drawn)
    return line


def format_reasons(candidate: Candidate, *, all_of_them: bool) -> str:
    """Return the parts of the score that have a note, or all."""
    parts = [
        f"{part.signal} {part.points:+.2f}" + (f" ({part.note})" if part.note else "")
        for part in candidate.parts
        if all_of_them or (part.note and part.signal != "server")
    ]
    return ", ".join(parts)


def _format_legend(candidates: Sequence[Candidate], *, coloured: bool) -> Text:
    line = Text()
    signals = dict.fromkeys(part.signal for candidate in candidates for part in candidate.parts)
    for signal in signals:
        colour, shade = SIGNAL_STYLES.get(signal, OTHER_SIGNAL_STYLE)
        line.append(f"{'█' if coloured else shade} ", style=colour if coloured else "")
        line.append(f"{signal}  ", style="dim")
    return line


def _show_effects(router: Router, narrowing: Narrowing) -> None:
    """Show the effect of each offered tool, whether it is certain, and why."""
    rows: list[tuple[str | Text, ...]] = []
    for candidate in narrowing.shortlist.offered:
        if (card := router.tools.get(candidate.tool)) is not None:
            certain = get_certainty(card)
            reason = Text(clean_text(certain.reason or card.effect.reason), style="dim")
            rows.append((card.key, style_effect(card), "yes" if certain.value else "no", reason))
    if rows:
        print_table("effects", ("tool", "effect", "certain", "why"), rows)


def _show_rules(router: Router) -> None:
    """Show the rules in code. They judge calls, so they hide no tool."""
    if labels := [rule.label for rule in router.extensions.rules]:
        text = f"{', '.join(labels)}: in code, for every call"
        get_output().print(Text.assemble(("Rules          ", "dim"), clean_text(text)))


def _show_rest(narrowing: Narrowing) -> None:
    losers = [candidate for candidate in narrowing.shortlist.candidates if not candidate.offered]
    if losers:
        print_table(
            "not offered",
            ("tool", "score", "sure", "speed", "why not", "made of"),
            (
                (
                    candidate.tool,
                    f"{candidate.score:.2f}",
                    candidate.confidence,
                    candidate.latency.replace("_", " "),
                    candidate.lost,
                    Text(clean_text(format_reasons(candidate, all_of_them=True)), style="dim"),
                )
                for candidate in losers
            ),
        )
    if hidden := narrowing.shortlist.hidden:
        print_table("hidden", ("tool", "by", "reason"), ((one.tool, one.rule, one.reason) for one in hidden))


@use_router()
async def show_reasons(
    router: Router, *, tool: str, request: tuple[str, ...], common: CommonOptions, wait: float
) -> int:
    """Say why TOOL is or is not offered for REQUEST."""
    await connect_servers(router, wait=wait)
    offered, sentences = await explain_tool(router, tool, " ".join(request))
    lines = [clean_text(line) for line in sentences]
    if common.as_json:
        print_json({"tool": tool, "offered": offered, "because": lines})
    else:
        print_lines(lines)
    return 0 if offered else 1


async def explain_tool(
    router: Router, tool: str, text: str, route: Route | None = None
) -> tuple[bool, list[str]]:
    """Return whether the tool is offered for `text`, or was in `route`, and sentences that say why."""
    card = router.tools.find(tool)
    if card is None:
        return False, list(_explain_missing(router, tool))
    narrowing = await _narrow_again(router, text, card.key, route)
    hidden = next((entry for entry in narrowing.shortlist.hidden if entry.tool == card.key), None)
    if hidden is not None:
        return False, [f"{hidden.tool} is hidden by {hidden.rule}: {hidden.reason}."]
    found = next((one for one in narrowing.shortlist.candidates if one.tool == card.key), None)
    was_offered = route is not None and card.key in route.packet.context.available_tools
    if was_offered and (found is None or not found.offered):
        earlier = f"{card.key} is offered: an earlier request of this conversation or a second look added it."
        return True, [earlier]
    choice = narrowing.servers
    if choice is not None and card.server in choice.left_out:
        return False, list(_explain_left_out(card.key, card.server, choice))
    if found is None:
        return False, [f"{card.key} was not considered: the request is empty."]
    return found.offered, list(_explain_considered(found, narrowing))


async def _narrow_again(router: Router, text: str, tool: str, route: Route | None) -> Narrowing:
    """Narrow again with details about the tool; with a route, among the servers it had."""
    if route is None or route.narrowing is None:
        return await narrow(router, text, about=tool)
    history = route.packet.context.history
    return await narrow(router, text, about=tool, history=history, chosen_servers=route.narrowing.servers)


def _explain_missing(router: Router, tool: str) -> Iterator[str]:
    """Yield why a tool is not in the catalog."""
    if unavailable := find_absence(
        ToolCall(name=tool, arguments={}), router.catalog, router.servers.statuses
    ):
        yield f"{unavailable.tool} is not offered: {unavailable.reason}."
        yield repeat_options(unavailable.fix)
        return
    yield f"No tool is called {tool!r}."
    if near := router.tools.near(tool):
        yield "Did you mean " + ", ".join(near) + "?"


def _explain_left_out(tool: str, server: str, choice: ServerChoice) -> Iterator[str]:
    yield f"{tool} is not offered: of many servers a few were chosen for the request, and {server} was not."
    yield f"Chosen by {choice.by}: {', '.join(choice.servers)}" + (
        f" ({choice.reasoning})." if choice.reasoning else "."
    )
    if choice.widened:
        yield f"Later requests of the conversation widened the choice by {', '.join(choice.widened)}."
    yield 'Name the server in the request to include it; smart_routing.mode = "off" keeps all.'


def _explain_considered(found: Candidate, narrowing: Narrowing) -> Iterator[str]:
    offered = narrowing.shortlist.offered
    if found.offered:
        rank = [one.tool for one in offered].index(found.tool) + 1
        yield f"{found.tool} is offered, number {rank} of {len(offered)}, with a score of {found.score:.2f}."
    else:
        yield f"{found.tool} is not offered: {found.lost}."
    reasons = format_reasons(found, all_of_them=True)
    yield f"Its score is made of {reasons or 'no signals'}."
    if not found.offered and offered:
        yield from _compare_with(found, offered[-1] if found.need != offered[0].need else offered[0])
    if narrowing.need.verdict == "none":
        yield "Also, the request seems to need no tool: " + "; ".join(narrowing.need.reasons) + "."


def _compare_with(found: Candidate, winner: Candidate) -> Iterator[str]:
    """Yield the signals by which the winner is ahead."""
    own = _sum_by_signal(found)
    gains = {signal: points - own.get(signal, 0.0) for signal, points in _sum_by_signal(winner).items()}
    ahead = sorted((item for item in gains.items() if item[1] >= 0.01), key=lambda item: -item[1])
    if ahead:
        by = ", ".join(f"{signal} (by {points:.2f})" for signal, points in ahead[:3])
        yield f"{winner.tool}, which is offered, scored {winner.score:.2f}: it is ahead in {by}."


def _sum_by_signal(candidate: Candidate) -> dict[str, float]:
    points: dict[str, float] = defaultdict(float)
    for part in candidate.parts:
        points[part.signal] += part.points
    return points
