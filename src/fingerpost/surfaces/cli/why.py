"""`fingerpost why TOOL "request"`: was it offered, and if not, what stood in its way? In sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fingerpost.call.names import absent
from fingerpost.records import ToolCall
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.narrowing import narrow
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.screen import plain, print_json, print_lines

if TYPE_CHECKING:
    from fingerpost.records import Candidate, HiddenTool, Narrowing, ServerChoice
    from fingerpost.router import Route, Router


def show_reasons(*, tool: str, request: tuple[str, ...], **options: Any) -> int:
    """Say why TOOL is or is not offered for REQUEST."""
    text = " ".join(request)
    loaded = read_settings(Asked(options["config"], options["servers"], options["as_json"]))

    async def work() -> int:
        async with open_router(loaded) as router:
            await connect(router, wait=options["wait"])
            offered, sentences = await explain_tool(router, tool, text)
            if options["as_json"]:
                print_json({"tool": tool, "offered": offered, "because": [plain(line) for line in sentences]})
            else:
                print_lines([plain(line) for line in sentences])
            return 0 if offered else 1

    return run(work)


async def explain_tool(
    router: Router, tool: str, text: str, route: Route | None = None
) -> tuple[bool, list[str]]:
    """Whether it is offered for `text`, or was for the request of `route`; and the sentences that say why."""
    card = router.tools.find(tool)
    if card is None:
        return False, list(_missing(router, tool))
    narrowing = await _narrowed(router, text, card.key, route)
    hidden = next((entry for entry in narrowing.shortlist.hidden if entry.tool == card.key), None)
    if hidden is not None:
        return False, [_hidden(hidden)]
    found = next((one for one in narrowing.shortlist.candidates if one.tool == card.key), None)
    was_offered = route is not None and card.key in route.packet.context.available_tools
    if was_offered and (found is None or not found.offered):
        earlier = f"{card.key} is offered: an earlier request of this conversation or a second look added it."
        return True, [earlier]
    choice = narrowing.servers
    if choice is not None and card.server in choice.left_out:
        return False, list(_left_out(card.key, card.server, choice))
    if found is None:
        return False, [f"{card.key} was not considered: the request is empty."]
    return found.offered, list(_considered(found, narrowing))


async def _narrowed(router: Router, text: str, tool: str, route: Route | None) -> Narrowing:
    """What speaks for and against the tool; for a request that was made, among the servers it had."""
    if route is None or route.narrowing is None:
        return await narrow(router, text, about=tool)
    history = route.packet.context.history
    return await narrow(router, text, about=tool, history=history, servers=route.narrowing.servers)


def _missing(router: Router, tool: str) -> Iterator[str]:
    """Why a tool is not in the catalog: held back, switched off, refused, its server away, or unknown."""
    if away := absent(ToolCall(name=tool, arguments={}), router.catalog, router.servers.statuses):
        yield f"{away.tool} is not offered: {away.reason}."
        yield repeatable(away.fix)
        return
    yield f"No tool is called {tool!r}."
    if near := router.tools.near(tool):
        yield "Did you mean " + ", ".join(near) + "?"


def _hidden(hidden: HiddenTool) -> str:
    return f"{hidden.tool} is hidden by {hidden.rule}: {hidden.reason}."


def _left_out(tool: str, server: str, choice: ServerChoice) -> Iterator[str]:
    yield f"{tool} is not offered: of many servers a few were chosen for the request, and {server} was not."
    yield f"Chosen by {choice.by}: {', '.join(choice.servers)}" + (
        f" ({choice.reasoning})." if choice.reasoning else "."
    )
    if choice.widened:
        yield f"Later requests of the conversation widened the choice by {', '.join(choice.widened)}."
    yield 'Naming the server in the request lets it in; smart_routing.mode = "off" keeps all.'


def _considered(found: Candidate, narrowing: Narrowing) -> Iterator[str]:
    offered = narrowing.shortlist.offered
    if found.offered:
        place = [one.tool for one in offered].index(found.tool) + 1
        yield f"{found.tool} is offered, number {place} of {len(offered)}, with a score of {found.score:.2f}."
    else:
        yield f"{found.tool} is not offered: {found.lost}."
    yield f"Its score is made of {_made_of(found)}."
    if not found.offered and offered:
        yield from _compared(found, offered[-1] if found.need != offered[0].need else offered[0])
    if narrowing.need.verdict == "none":
        yield "Besides, the request seems to need no tool: " + "; ".join(narrowing.need.reasons) + "."


def _made_of(candidate: Candidate) -> str:
    said = [
        f"{part.signal} {part.points:+.2f}" + (f" ({part.note})" if part.note else "")
        for part in candidate.parts
    ]
    return ", ".join(said) or "nothing: no signal speaks for it"


def _compared(found: Candidate, winner: Candidate) -> Iterator[str]:
    """By which signals another tool did better."""
    own = _by_signal(found)
    gains = {signal: points - own.get(signal, 0.0) for signal, points in _by_signal(winner).items()}
    ahead = sorted((item for item in gains.items() if item[1] >= 0.01), key=lambda item: -item[1])
    if ahead:
        by = ", ".join(f"{signal} (by {points:.2f})" for signal, points in ahead[:3])
        yield f"{winner.tool}, which is offered, scored {winner.score:.2f}: it is ahead in {by}."


def _by_signal(candidate: Candidate) -> dict[str, float]:
    points: dict[str, float] = {}
    for part in candidate.parts:
        points[part.signal] = points.get(part.signal, 0.0) + part.points
    return points
