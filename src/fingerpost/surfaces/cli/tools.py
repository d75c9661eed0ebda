"""`fingerpost tools` lists, `fingerpost tool NAME` explains one with the source of every value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from fingerpost.call.names import absent
from fingerpost.records import Known, Source, ToolCall
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.house import Asked, connect, open_router, read_settings, run
from fingerpost.surfaces.cli.options import repeatable
from fingerpost.surfaces.cli.screen import count, first_sentence, output, plain, print_json, table

if TYPE_CHECKING:
    from fingerpost.catalog import Snapshot
    from fingerpost.records import ToolCard
    from fingerpost.router import Router
    from fingerpost.settings import CallSettings

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
    loaded = read_settings(Asked(config, servers, as_json))

    async def work() -> int:
        async with open_router(loaded) as router:
            if server is not None:
                router.servers.status(server)  # an unknown name is answered with the near ones
            await connect(router, *([server] if server else []), wait=wait)
            cards = _matching(router.tools, " ".join(query), server)
            if as_json:
                _print_cards(cards)
            else:
                _show_cards(router, cards)
            return 0 if cards else 1

    return run(work)


def show_tool(*, name: str, config: Path | None, servers: Path | None, as_json: bool, wait: float) -> int:
    """Show everything known about the tool NAME, and where each piece comes from."""
    loaded = read_settings(Asked(config, servers, as_json))

    async def work() -> int:
        async with open_router(loaded) as router:
            owner = name.partition("/")[0]
            known = any(status.name == owner for status in router.servers.statuses)
            await connect(router, *([owner] if known and "/" in name else []), wait=wait)
            card = router.tools.find(name)
            if card is None:
                return _say_unknown(router, name)
            if as_json:
                print_json(card_as_json(card))
            else:
                _show_card(router, card)
            return 0

    return run(work)


def _matching(snapshot: Snapshot, query: str, server: str | None) -> list[ToolCard]:
    cards = snapshot.search(query) if query else snapshot.cards
    return [card for card in cards if server is None or card.server == server]


def card_as_json(card: ToolCard) -> dict[str, Any]:
    """A card for programs: identity first, then the definition exactly as the server sent it."""
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
    print_json([card_as_json(card) for card in cards])


def _show_cards(router: Router, cards: list[ToolCard]) -> None:
    owners = len({card.server for card in cards})
    made = table(
        f"{count(len(cards), 'tool')} of {count(owners, 'server')}",
        "tool",
        "effect",
        "category",
        "what it does",
    )
    for card in cards:
        made.add_row(
            Text(plain(card.key), style="bold"),
            effect_text(card),
            card.intelligence.category.value,
            first_sentence(card.description),
        )
    screen = output()
    screen.print(made)
    for line in _what_is_missing(router):
        screen.print(repeatable(line), style="yellow", soft_wrap=True)


def effect_words(card: ToolCard) -> str:
    """ "read", or "read?" where it is not certain and a person is asked."""
    return card.effect.value if card.certain else f"{card.effect.value}?"


def certainty_of(card: ToolCard) -> Known[bool]:
    """Whether it is certain that the tool does no more than its effect says, and why not."""
    why_not = card.doubt and f"{card.doubt}; say otherwise with `pins reads`"
    return Known(card.certain, card.effect.source, why_not)


def effect_text(card: ToolCard) -> Text:
    return Text(effect_words(card), style=EFFECT_COLOURS[card.effect_of(None)])


def _what_is_missing(router: Router) -> Iterator[str]:
    """A list that looks complete and is not would mislead: say what is left out, and where to look."""
    for state, advice in (("down", "see `fingerpost servers`"), ("connecting", "give it longer with --wait")):
        names = [plain(status.name) for status in router.servers.statuses if status.state == state]
        if names:
            yield f"not listed: the tools of {', '.join(names)} ({state}; {advice})"
    if changed := router.catalog.quarantined:
        yield f"not listed: {len(changed)} new or changed since they were first seen (see `fingerpost pins`)"
    if refused := [drop for drop in router.catalog.dropped if not drop.switched_off]:
        yield f"not listed: {len(refused)} that could not be taken (see `fingerpost doctor`)"
    if off := [drop for drop in router.catalog.dropped if drop.switched_off]:
        yield f"not listed: {len(off)} switched off in the settings"
    if shut := router.catalog.shut.cards:
        yield f"not listed: {len(shut)} switched off in the console (see `fingerpost why TOOL`)"


def _say_unknown(router: Router, name: str) -> int:
    if away := absent(ToolCall(name=name, arguments={}), router.catalog, router.servers.statuses):
        click.echo(plain(f"{away.tool} is not available: {away.reason}."), err=True)
        click.echo(f"  fix: {plain(repeatable(away.fix))}", err=True)
        return 1
    click.echo(f"No tool is called {plain(name)!r}.", err=True)
    if near := router.tools.near(name):
        click.echo("  Did you mean: " + ", ".join(plain(card) for card in near), err=True)
    return 1


def _show_card(router: Router, card: ToolCard) -> None:
    screen = output()
    screen.print(Text(plain(card.key), style="bold"), Text(f"  seen by models as {card.exposed_name}"))
    screen.print(Text(plain(card.description)))
    facts = table(None, "what", "value", "from", "because")
    for label, known in _facts(card, router.settings.call):
        facts.add_row(
            label, Text(plain(_shown(known.value))), known.source, Text(plain(known.reason), style="dim")
        )
    screen.print(facts)
    _show_parameters(card)
    screen.print(Text(f"fingerprint {card.fingerprint}", style="dim"))
    status = router.servers.status(card.server)
    screen.print(Text(f"server {plain(card.server)} is {status.state}, via {status.transport}", style="dim"))


def _facts(card: ToolCard, call: CallSettings) -> Iterator[tuple[str, Known[Any]]]:
    know = card.intelligence
    yield "effect", replace(card.effect, value=effect_words(card))
    yield "certain", certainty_of(card)
    yield "category", know.category
    yield "priority", know.priority
    yield "falls back to", know.hierarchy
    yield "conflicts with", know.conflicts
    yield "speed", replace(know.latency.typical, value=know.latency.tier.value.replace("_", " "))
    yield "typical time (ms)", know.latency.typical
    yield "time-out (ms)", know.latency.timeout
    yield "show progress after (ms)", know.latency.feedback_delay
    size = know.response.size.value.replace("_", " ")
    yield "size of an answer", replace(know.response.typical_tokens, value=size)
    yield "typical answer (tokens)", know.response.typical_tokens
    yield "longest answer (tokens)", know.response.max_tokens
    yield "structured answer", know.response.structured
    yield "needs a summary", know.response.needs_summary
    yield "words that speak for it", know.signals.keywords
    yield "weight of these words", know.signals.weight
    yield "exclusive intent", know.signals.exclusive_intent
    usual = Known(call.retries, Source.DEFAULT, "call.retries")
    yield "retries", usual if card.retry.retries.value is None else card.retry.retries
    yield "retried after", card.retry.conditions
    yield "a write may be repeated", card.retry.repeatable
    yield "reads from memory for (s)", card.cache_seconds


def _shown(value: Any) -> str:
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
        output().print("takes no parameters")
        return
    made = table(None, "parameter", "", "type", "example", "what it is")
    for names, need in ((hints.required, "required"), (hints.optional, "optional")):
        for name in names:
            kind, meaning = _parameter(card, name)
            example = str(hints.examples.get(name, ""))
            made.add_row(plain(name), need, plain(kind), Text(plain(example)), Text(first_sentence(meaning)))
    output().print(made)


def _parameter(card: ToolCard, name: str) -> tuple[str, str]:
    """What the server's own schema says: the type and the description, when they are there."""
    match card.definition.get("inputSchema"):
        case {"properties": {**properties}}:
            schema = properties.get(name)
        case _:
            schema = None
    if not isinstance(schema, dict):
        return "", ""
    kind, meaning = schema.get("type", ""), schema.get("description", "")
    return str(kind), str(meaning)
