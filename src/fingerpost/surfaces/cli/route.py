"""`fingerpost route`: what would be offered for a request, drawn so that one sees why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fingerpost.records.codec import to_plain
from fingerpost.redaction import scrub_json
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.narrowing import narrow
from fingerpost.surfaces.cli.screen import output, plain, print_json, table
from fingerpost.surfaces.cli.tools import certainty_of, effect_text

if TYPE_CHECKING:
    from fingerpost.records import Candidate, Narrowing, Need, Signals
    from fingerpost.router import Router

# Each signal has a colour, and a shade for where there are no colours.
LOOKS = {"meaning": ("cyan", "█"), "words": ("green", "▓"), "server": ("blue", "▒")}
OTHER_LOOK = ("magenta", "░")
VERDICT_COLOURS = {"tool": "green", "none": "blue", "unclear": "yellow"}
BAR_WIDTH = 30


def show_route(*, request: tuple[str, ...], **options: Any) -> int:
    """Show which tools would be offered to a model for REQUEST, and why."""
    text, server = " ".join(request), options["server"]
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> int:
        async with open_router(loaded) as router:
            if server is not None:
                router.servers.status(server)  # an unknown name is answered with the near ones
            await connect(router, *([server] if server else []), wait=options["wait"])
            narrowing = await narrow(
                router,
                text,
                server=server,
                max_tools=options["max_tools"],
                profile=options["profile"],
                ask_model=options["ask_model"],
                effort=options["effort"],
            )
            if options["as_json"]:
                _print_json(text, narrowing)
            else:
                show_narrowing(narrowing, explain=options["explain"])
                if options["explain"]:
                    _show_effects(router, narrowing)
            return 0 if narrowing.shortlist.offered else 1

    return run(work)


def _print_json(text: str, narrowing: Narrowing) -> None:
    offered = [candidate.tool for candidate in narrowing.shortlist.offered]
    print_json(scrub_json({"request": text, "offered": offered, "narrowing": to_plain(narrowing)}))


def show_narrowing(narrowing: Narrowing, *, explain: bool, trace: bool = True) -> None:
    """The need, the tools offered with what their scores are made of, and with `explain` the losers."""
    screen = output()
    for line in _overview(narrowing):
        screen.print(line)
    _show_offered(narrowing, explain=explain)
    if explain:
        _show_rest(narrowing)
    if trace and narrowing.packet_id is not None:
        screen.print(f"trace {narrowing.packet_id}", style="dim", highlight=False)


def _overview(narrowing: Narrowing) -> Iterator[Text]:
    yield _need_line(narrowing.need)
    if said := ", ".join(_signals(narrowing.signals)):
        yield Text.assemble(("read     ", "dim"), plain(said))
    shortlist = narrowing.shortlist
    for number, wish in enumerate(shortlist.needs if len(shortlist.needs) > 1 else (), start=1):
        yield Text.assemble((f"need {number}   ", "dim"), plain(wish))
    if (choice := narrowing.servers) is not None and choice.left_out:
        every = len(choice.servers) + len(choice.left_out)
        yield Text.assemble(
            ("servers  ", "dim"), plain(f"{', '.join(choice.servers)} of {every}, chosen by {choice.by}")
        )
        if choice.widened:
            yield Text.assemble(("widened  ", "dim"), plain(f"by {', '.join(choice.widened)}"))
    how = "words and meaning" if shortlist.dense else "words alone"
    yield Text.assemble(
        ("found    ", "dim"),
        f"{len(shortlist.offered)} of {shortlist.considered} tools by {how} in "
        f"{narrowing.milliseconds:.1f} ms; one that suits is there with {shortlist.fit:.0%} certainty",
    )


def _need_line(need: Need) -> Text:
    verdicts = {"tool": "a tool is needed", "none": "no tool is needed", "unclear": "unclear"}
    return Text.assemble(
        ("need     ", "dim"),
        (verdicts[need.verdict], f"bold {VERDICT_COLOURS[need.verdict]}"),
        f" ({need.score:.0%})" + "".join(f"; {plain(reason)}" for reason in need.reasons),
    )


def _signals(signals: Signals) -> Iterator[str]:
    """What was read off the request, in words."""
    if signals.language != "en":
        yield f"language {signals.language}"
    if signals.gloss:
        yield f"in English words: {signals.gloss}"
    for intent in signals.intents[:3]:
        yield f"about {intent.category} ({', '.join(intent.words[:3])})" if intent.words else intent.category
    if signals.urgent:
        yield "urgent"
    yield from (f"names the {mention.kind} {mention.name}" for mention in signals.mentions[:4])
    yield from (f"holds a {entity.kind}: {entity.text}" for entity in signals.entities[:4])


def _show_offered(narrowing: Narrowing, *, explain: bool) -> None:
    screen = output()
    offered = narrowing.shortlist.offered
    if not offered:
        screen.print(Text("No tool is offered.", style="yellow"))
        return
    several = len(narrowing.shortlist.needs) > 1
    made = table(
        None, "offered", "score", "sure", "speed", "made of", *(["need"] if several else []), "because"
    )
    largest = max(candidate.score for candidate in offered)
    width = max(min(BAR_WIDTH, screen.width // 5), 6)
    for candidate in offered:
        made.add_row(
            Text(plain(candidate.tool), style="bold"),
            f"{candidate.score:.2f}",
            candidate.confidence,
            _speed(candidate),
            bar(candidate, largest, width=width, coloured=screen.is_terminal),
            *([str(candidate.need + 1)] if several else []),
            Text(plain(reasons(candidate, all_of_them=explain)), style="dim"),
        )
    screen.print(made)
    screen.print(_legend(offered, coloured=screen.is_terminal))


def _speed(candidate: Candidate) -> str:
    return candidate.latency.replace("_", " ")


def bar(candidate: Candidate, largest: float, *, width: int = BAR_WIDTH, coloured: bool) -> Text:
    """The score as a bar, one stretch for each signal that added to it."""
    line = Text(no_wrap=True, overflow="crop")
    drawn, so_far = 0, 0.0
    for part in candidate.parts:
        if part.points <= 0:
            continue
        so_far += part.points
        end = min(round(width * so_far / largest), width) if largest > 0 else 0
        colour, shade = LOOKS.get(part.signal, OTHER_LOOK)
        line.append(("█" if coloured else shade) * max(end - drawn, 0), style=colour if coloured else "")
        drawn = max(end, drawn)
    return line


def reasons(candidate: Candidate, *, all_of_them: bool) -> str:
    """The parts of the score that have something to say, or all of them."""
    said = [
        f"{part.signal} {part.points:+.2f}" + (f" ({part.note})" if part.note else "")
        for part in candidate.parts
        if all_of_them or (part.note and part.signal != "server")
    ]
    return ", ".join(said)


def _legend(candidates: Sequence[Candidate], *, coloured: bool) -> Text:
    line = Text()
    signals = dict.fromkeys(part.signal for candidate in candidates for part in candidate.parts)
    for signal in signals:
        colour, shade = LOOKS.get(signal, OTHER_LOOK)
        line.append(f"{'█' if coloured else shade} ", style=colour if coloured else "")
        line.append(f"{signal}  ", style="dim")
    return line


def _show_effects(router: Router, narrowing: Narrowing) -> None:
    """What each offered tool does to the world, and how certain that is, as on its own page."""
    cards = [router.tools.get(candidate.tool) for candidate in narrowing.shortlist.offered]
    made = table("effects", "tool", "effect", "certain", "why")
    for card in cards:
        if card is not None:
            certain = certainty_of(card)
            made.add_row(
                Text(plain(card.key)),
                effect_text(card),
                "yes" if certain.value else "no",
                Text(plain(certain.reason or card.effect.reason), style="dim"),
            )
    if made.row_count:
        output().print(made)


def _show_rest(narrowing: Narrowing) -> None:
    screen = output()
    losers = [candidate for candidate in narrowing.shortlist.candidates if not candidate.offered]
    if losers:
        made = table("not offered", "tool", "score", "sure", "speed", "why not", "made of")
        for candidate in losers:
            made.add_row(
                Text(plain(candidate.tool)),
                f"{candidate.score:.2f}",
                candidate.confidence,
                _speed(candidate),
                Text(plain(candidate.lost)),
                Text(plain(reasons(candidate, all_of_them=True)), style="dim"),
            )
        screen.print(made)
    if narrowing.shortlist.hidden:
        made = table("hidden", "tool", "by", "reason")
        for hidden in narrowing.shortlist.hidden:
            made.add_row(Text(plain(hidden.tool)), Text(plain(hidden.rule)), Text(plain(hidden.reason)))
        screen.print(made)
