"""`fingerpost servers`, `tools` and `tool`: the state of servers and the tools they offer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from fingerpost.call.build import find_absence
from fingerpost.events import encode
from fingerpost.records import Known, Source, ToolCall
from fingerpost.records.codec import to_plain
from fingerpost.schemas import get_properties
from fingerpost.surfaces.cli.common import connect_servers, run_on_router
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import (
    build_table,
    clean_text,
    cut_sentence,
    format_count,
    format_effect,
    get_output,
    print_json,
    print_table,
)

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.records import ServerStatus, ToolCard
    from fingerpost.router import Router
    from fingerpost.settings import CallSettings


UP_STATES = ("ready", "degraded", "asleep")
STATE_COLOURS = {
    "ready": "green",
    "degraded": "yellow",
    "down": "red",
    "connecting": "cyan",
    "idle": "dim",
    "asleep": "green",
    "disabled": "dim",
}


def show_servers(*, common: CommonOptions, wait: float, watch: bool, connect: bool) -> int:
    """Show how every configured server is doing; those that are not known, or all, are connected first."""

    async def work(router: Router) -> int:
        if watch:
            await _watch_servers(router, as_json=common.as_json)
            return 0
        await connect_servers(router, wait=wait, wake=connect)
        statuses = router.servers.statuses
        if common.as_json:
            print_json([to_plain(status) for status in statuses])
        else:
            get_output().print(_build_status_table(statuses))
        enabled = [status for status in statuses if status.state != "disabled"]
        return 0 if not enabled or any(status.state in UP_STATES for status in enabled) else 1

    return run_on_router(common, work)


def sign_in(*, name: str, common: CommonOptions) -> int:
    """Sign in to the server NAME with OAuth; the browser opens, the token is kept in the store."""

    async def work(router: Router) -> int:
        status = await router.sign_in(name, open_browser=_open_browser)
        click.echo(f"signed in; {name} is {status.state} with {status.tools} tools")
        return 0

    return run_on_router(common, work, standalone=True)


def _open_browser(url: str) -> None:
    click.echo(f"Open this address to sign in:\n  {url}")
    click.launch(url)


def _build_status_table(statuses: tuple[ServerStatus, ...]) -> Table:
    up = sum(status.state in UP_STATES for status in statuses)
    tools = sum(status.tools for status in statuses)
    table = build_table(
        f"{up} of {format_count(len(statuses), 'server')} up, {format_count(tools, 'tool')}",
        "server", "state", "via", "protocol", "connect", "tools", "note", right=(4, 5),
    )  # fmt: skip
    for status in statuses:
        table.add_row(
            Text(clean_text(status.name), style="bold"),
            Text(status.state, style=STATE_COLOURS[status.state]),
            status.transport,
            status.protocol or "",
            f"{status.connect_ms:.0f} ms" if status.connect_ms is not None else "",
            f"{status.tools}" if status.state in UP_STATES else "",
            Text(clean_text(status.reason or _describe(status)), style="" if status.reason else "dim"),
        )
    return table


def _describe(status: ServerStatus) -> str:
    parts = (status.product, status.hint if status.state == "asleep" else None)
    return "; ".join(part for part in parts if part)


async def _watch_servers(router: Router, *, as_json: bool) -> None:
    """Show every change until interrupted: a live table on a terminal, else one line each."""
    screen = get_output()
    with router.live.subscribe() as changes:
        router.servers.start()
        if screen.is_terminal and not as_json:
            with Live(
                _build_status_table(router.servers.statuses), console=screen, refresh_per_second=8
            ) as live:
                async for _ in changes:
                    live.update(_build_status_table(router.servers.statuses))
        async for event in changes:
            click.echo(encode(event) if as_json else f"{event.at:%H:%M:%S} {event.kind} {event.summary()}")


EFFECT_COLOURS = {"read": "green", "write": "yellow", "destroy": "red"}


def list_tools(*, query: tuple[str, ...], server: str | None, common: CommonOptions, wait: float) -> int:
    """List the tools of all servers, or those that match the words of QUERY."""

    async def work(router: Router) -> int:
        await connect_servers(router, server, wait=wait)
        found = router.tools.search(" ".join(query)) if query else router.tools.cards
        cards = [card for card in found if server is None or card.server == server]
        if common.as_json:
            print_json([convert_card(card) for card in cards])
        else:
            _show_cards(router, cards)
        return 0 if cards else 1

    return run_on_router(common, work)


def show_tool(*, name: str, common: CommonOptions, wait: float) -> int:
    """Show everything known about the tool NAME, and where each piece comes from."""

    async def work(router: Router) -> int:
        owner, slash, _ = name.partition("/")
        known = slash and any(status.name == owner for status in router.servers.statuses)
        await connect_servers(router, owner if known else None, wait=wait)
        card = router.tools.find(name)
        if card is None:
            return _report_unknown(router, name)
        if common.as_json:
            print_json(convert_card(card))
        else:
            _show_card(router, card)
        return 0

    return run_on_router(common, work)


def convert_card(card: ToolCard) -> dict[str, Any]:
    """Return the card as JSON, with the definition exactly as the server sent it."""
    return {
        "key": card.key,
        "server": card.server,
        "name": card.name,
        "exposed_name": card.exposed_name,
        "description": card.description,
        "effect": {**to_plain(card.effect), "certain": card.certain, "doubt": card.doubt},
        "fingerprint": card.fingerprint,
        "latency_tier": card.intelligence.latency.tier.value,
        "answer_size": card.intelligence.response.size.value,
        "intelligence": to_plain(card.intelligence),
        "retry": to_plain(card.retry),
        "cache_seconds": to_plain(card.cache_seconds),
        "definition": card.definition,
    }


def _show_cards(router: Router, cards: list[ToolCard]) -> None:
    owners = len({card.server for card in cards})
    print_table(
        f"{format_count(len(cards), 'tool')} of {format_count(owners, 'server')}",
        ("tool", "effect", "category", "what it does"),
        (
            (
                Text(clean_text(card.key), style="bold"),
                style_effect(card),
                card.intelligence.category.value,
                Text(cut_sentence(card.description)),
            )
            for card in cards
        ),
    )
    screen = get_output()
    for line in _list_missing(router):
        screen.print(repeat_options(line), style="yellow", soft_wrap=True)


def get_certainty(card: ToolCard) -> Known[bool]:
    """Return whether the effect of the tool is certain; the reason says why not."""
    why_not = card.doubt and f"{card.doubt}; say otherwise with `pins reads`"
    return Known(card.certain, card.effect.source, why_not)


def style_effect(card: ToolCard) -> Text:
    return Text(format_effect(card), style=EFFECT_COLOURS[card.effect_of(None)])


def _list_missing(router: Router) -> Iterator[str]:
    """Yield lines that say which tools are not listed, and why."""
    for state, advice in (("down", "see `fingerpost servers`"), ("connecting", "give it longer with --wait")):
        names = [clean_text(status.name) for status in router.servers.statuses if status.state == state]
        if names:
            yield f"not listed: the tools of {', '.join(names)} ({state}; {advice})"
    if changed := router.catalog.quarantined:
        yield f"not listed: {len(changed)} new or changed since they were first seen (see `fingerpost pins`)"
    if refused := [drop for drop in router.catalog.dropped if not drop.switched_off]:
        yield f"not listed: {len(refused)} that could not be taken (see `fingerpost doctor`)"
    if off := [drop for drop in router.catalog.dropped if drop.switched_off]:
        yield f"not listed: {len(off)} switched off in the settings"
    if disabled := router.catalog.disabled.cards:
        yield f"not listed: {len(disabled)} switched off in the console (see `fingerpost why TOOL`)"


def _report_unknown(router: Router, name: str) -> int:
    if unavailable := find_absence(
        ToolCall(name=name, arguments={}), router.catalog, router.servers.statuses
    ):
        click.echo(clean_text(f"{unavailable.tool} is not available: {unavailable.reason}."), err=True)
        click.echo(f"  fix: {clean_text(repeat_options(unavailable.fix))}", err=True)
        return 1
    click.echo(f"No tool is called {clean_text(name)!r}.", err=True)
    if near := router.tools.near(name):
        click.echo("  Did you mean: " + ", ".join(clean_text(card) for card in near), err=True)
    return 1


def _show_card(router: Router, card: ToolCard) -> None:
    screen = get_output()
    screen.print(Text(clean_text(card.key), style="bold"), Text(f"  seen by models as {card.exposed_name}"))
    screen.print(Text(clean_text(card.description)))
    print_table(
        None,
        ("what", "value", "from", "because"),
        (
            (label, _format_value(known.value), known.source, Text(clean_text(known.reason), style="dim"))
            for label, known in _list_facts(card, router.settings.call)
        ),
    )
    _show_parameters(card)
    screen.print(Text(f"fingerprint {card.fingerprint}", style="dim"))
    status = router.servers.get_status(card.server)
    screen.print(
        Text(f"server {clean_text(card.server)} is {status.state}, via {status.transport}", style="dim")
    )


def _list_facts(card: ToolCard, call: CallSettings) -> Iterator[tuple[str, Known[Any]]]:
    intelligence = card.intelligence
    yield "effect", replace(card.effect, value=format_effect(card))
    yield "certain", get_certainty(card)
    yield "category", intelligence.category
    yield "priority", intelligence.priority
    yield "falls back to", intelligence.hierarchy
    yield "conflicts with", intelligence.conflicts
    yield (
        "speed",
        replace(intelligence.latency.typical, value=intelligence.latency.tier.value.replace("_", " ")),
    )
    yield "typical time (ms)", intelligence.latency.typical
    yield "time-out (ms)", intelligence.latency.timeout
    yield "show progress after (ms)", intelligence.latency.feedback_delay
    size = intelligence.response.size.value.replace("_", " ")
    yield "size of an answer", replace(intelligence.response.typical_tokens, value=size)
    yield "typical answer (tokens)", intelligence.response.typical_tokens
    yield "longest answer (tokens)", intelligence.response.max_tokens
    yield "structured answer", intelligence.response.structured
    yield "needs a summary", intelligence.response.needs_summary
    yield "words that speak for it", intelligence.signals.keywords
    yield "weight of these words", intelligence.signals.weight
    yield "exclusive intent", intelligence.signals.exclusive_intent
    usual = Known(call.retries, Source.DEFAULT, "call.retries")
    yield "retries", usual if card.retry.retries.value is None else card.retry.retries
    yield "retried after", card.retry.conditions
    yield "a write may be repeated", card.retry.repeatable
    yield "reads from memory for (s)", card.cache_seconds


def _format_value(value: Any) -> str:
    match value:
        case True:
            return "yes"
        case False:
            return "no"
        case None | ():
            return "none"
        case tuple():
            return ", ".join(str(item) for item in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            return str(value)


def _show_parameters(card: ToolCard) -> None:
    hints = card.intelligence.parameters
    if not hints.required and not hints.optional:
        get_output().print("takes no parameters")
        return
    needs = {
        **dict.fromkeys(hints.required, "required"),
        **dict.fromkeys(hints.optional, "optional"),
    }
    schemas = get_properties(card.definition.get("inputSchema"))
    rows: list[tuple[str | Text, ...]] = []
    for name, need in needs.items():
        schema = schemas.get(name)
        described = schema if isinstance(schema, dict) else {}
        meaning = Text(cut_sentence(str(described.get("description", ""))))
        rows.append((name, need, str(described.get("type", "")), str(hints.examples.get(name, "")), meaning))
    print_table(None, ("parameter", "", "type", "example", "what it is"), rows)
