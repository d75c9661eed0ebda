"""`fingerpost servers`, `tools` and `tool`: the state of servers and the tools they offer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.live import Live
from rich.text import Text

from fingerpost.call.build import find_absence
from fingerpost.events import encode
from fingerpost.records import Known, Source, ToolCall
from fingerpost.records.codec import to_plain
from fingerpost.schemas import get_properties
from fingerpost.surfaces.cli.common import (
    CommonOptions,
    connect_servers,
    open_router,
    read_settings,
    run_async,
)
from fingerpost.surfaces.cli.options import repeat_options
from fingerpost.surfaces.cli.screen import (
    build_table,
    clean_text,
    cut_sentence,
    format_count,
    format_effect,
    get_output,
    print_json,
)

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.catalog import Snapshot
    from fingerpost.records import ServerStatus, ToolCard
    from fingerpost.router import Router
    from fingerpost.settings import CallSettings


STATE_COLOURS = {
    "ready": "green",
    "degraded": "yellow",
    "down": "red",
    "connecting": "cyan",
    "idle": "dim",
    "disabled": "dim",
}


def show_servers(
    *, config: Path | None, servers: Path | None, as_json: bool, wait: float, watch: bool
) -> int:
    """Connect every configured server and show how it is doing."""
    options = CommonOptions(config, servers, as_json)
    loaded = read_settings(options)

    async def work() -> int:
        async with open_router(loaded) as router:
            if watch:
                await _watch_servers(router, as_json=as_json)
                return 0
            await connect_servers(router, wait=wait)
            _show_statuses(router.servers.statuses, as_json=as_json)
            return 0 if _is_any_up(router.servers.statuses) else 1

    return run_async(work)


def sign_in(*, name: str, config: Path | None, servers: Path | None, as_json: bool) -> int:
    """Sign in to the server NAME with OAuth; the browser opens, the token is kept in the store."""
    loaded = read_settings(CommonOptions(config, servers, as_json))

    async def work() -> int:
        async with open_router(loaded) as router:
            status = await router.sign_in(name, open_browser=_open_browser)
            click.echo(f"signed in; {name} is {status.state} with {status.tools} tools")
        return 0

    return run_async(work)


def _open_browser(url: str) -> None:
    click.echo(f"Open this address to sign in:\n  {url}")
    click.launch(url)


def _is_any_up(statuses: tuple[ServerStatus, ...]) -> bool:
    enabled = [status for status in statuses if status.state != "disabled"]
    return not enabled or any(status.state in ("ready", "degraded") for status in enabled)


def _show_statuses(statuses: tuple[ServerStatus, ...], *, as_json: bool) -> None:
    if as_json:
        print_json([to_plain(status) for status in statuses])
    else:
        get_output().print(_build_status_table(statuses))


def _build_status_table(statuses: tuple[ServerStatus, ...]) -> Table:
    up = sum(status.state in ("ready", "degraded") for status in statuses)
    tools = sum(status.tools for status in statuses)
    table = build_table(
        f"{up} of {format_count(len(statuses), 'server')} up, {format_count(tools, 'tool')}",
        "server", "state", "via", "protocol", "connect", "tools", "note",
    )  # fmt: skip
    for column in (4, 5):
        table.columns[column].justify = "right"
    for status in statuses:
        table.add_row(
            Text(clean_text(status.name), style="bold"),
            Text(status.state, style=STATE_COLOURS[status.state]),
            status.transport,
            status.protocol or "",
            f"{status.connect_ms:.0f} ms" if status.connect_ms is not None else "",
            f"{status.tools}" if status.state in ("ready", "degraded") else "",
            Text(clean_text(status.reason or status.product or ""), style="" if status.reason else "dim"),
        )
    return table


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
            if as_json:
                click.echo(encode(event))
            else:
                click.echo(f"{event.at:%H:%M:%S} {event.kind} {event.summary()}")


EFFECT_COLOURS = {"read": "green", "write": "yellow", "destroy": "red"}


def list_tools(
    *,
    query: tuple[str, ...],
    server: str | None,
    config: Path | None,
    servers: Path | None,
    as_json: bool,
    wait: float,
) -> int:
    """List the tools of all servers, or those that match the words of QUERY."""
    loaded = read_settings(CommonOptions(config, servers, as_json))

    async def work() -> int:
        async with open_router(loaded) as router:
            if server is not None:
                router.servers.get_status(server)  # an unknown name gets similar names in the error
            await connect_servers(router, *([server] if server else []), wait=wait)
            cards = _find_matching(router.tools, " ".join(query), server)
            if as_json:
                _print_cards(cards)
            else:
                _show_cards(router, cards)
            return 0 if cards else 1

    return run_async(work)


def show_tool(*, name: str, config: Path | None, servers: Path | None, as_json: bool, wait: float) -> int:
    """Show everything known about the tool NAME, and where each piece comes from."""
    loaded = read_settings(CommonOptions(config, servers, as_json))

    async def work() -> int:
        async with open_router(loaded) as router:
            owner = name.partition("/")[0]
            known = any(status.name == owner for status in router.servers.statuses)
            await connect_servers(router, *([owner] if known and "/" in name else []), wait=wait)
            card = router.tools.find(name)
            if card is None:
                return _report_unknown(router, name)
            if as_json:
                print_json(convert_card(card))
            else:
                _show_card(router, card)
            return 0

    return run_async(work)


def _find_matching(snapshot: Snapshot, query: str, server: str | None) -> list[ToolCard]:
    cards = snapshot.search(query) if query else snapshot.cards
    return [card for card in cards if server is None or card.server == server]


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


def _print_cards(cards: list[ToolCard]) -> None:
    print_json([convert_card(card) for card in cards])


def _show_cards(router: Router, cards: list[ToolCard]) -> None:
    owners = len({card.server for card in cards})
    table = build_table(
        f"{format_count(len(cards), 'tool')} of {format_count(owners, 'server')}",
        "tool",
        "effect",
        "category",
        "what it does",
    )
    for card in cards:
        table.add_row(
            Text(clean_text(card.key), style="bold"),
            style_effect(card),
            card.intelligence.category.value,
            cut_sentence(card.description),
        )
    screen = get_output()
    screen.print(table)
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
    facts = build_table(None, "what", "value", "from", "because")
    for label, known in _list_facts(card, router.settings.call):
        facts.add_row(
            label,
            Text(clean_text(_format_value(known.value))),
            known.source,
            Text(clean_text(known.reason), style="dim"),
        )
    screen.print(facts)
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
    table = build_table(None, "parameter", "", "type", "example", "what it is")
    for names, need in ((hints.required, "required"), (hints.optional, "optional")):
        for name in names:
            kind, meaning = _read_parameter(card, name)
            example = str(hints.examples.get(name, ""))
            table.add_row(
                clean_text(name),
                need,
                clean_text(kind),
                Text(clean_text(example)),
                Text(cut_sentence(meaning)),
            )
    get_output().print(table)


def _read_parameter(card: ToolCard, name: str) -> tuple[str, str]:
    """Return the type and description of a parameter from the schema, or empty texts."""
    schema = get_properties(card.definition.get("inputSchema")).get(name)
    if not isinstance(schema, dict):
        return "", ""
    kind, meaning = schema.get("type", ""), schema.get("description", "")
    return str(kind), str(meaning)
