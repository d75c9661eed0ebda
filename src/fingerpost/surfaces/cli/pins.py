"""`fingerpost pins` and `scan`: trusted definitions, their changes, what is suspicious in definitions, and
tools marked as read-only.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click
from anyio.to_thread import run_sync
from rich.text import Text

from fingerpost import __version__
from fingerpost.catalog import find_differences
from fingerpost.catalog.pins import is_server_key
from fingerpost.records.codec import to_plain
from fingerpost.surfaces.cli.common import use_router, use_store
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import clean_text, get_output, print_json, print_table
from fingerpost.surfaces.cli.terminal_input import confirm, get_person

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fingerpost.records import (
        ChangedInstructions,
        DefinitionFinding,
        Quarantined,
        ScannedDefinition,
        ToolCard,
    )
    from fingerpost.router import Router
    from fingerpost.settings import Settings
    from fingerpost.store import Store


@use_router(wake=True)
async def list_pins(router: Router, *, common: CommonOptions) -> int:
    """Review tools whose definition changed since it was first seen."""
    changed = {entry.card.key: entry for entry in router.catalog.quarantined}
    known = {key: entry.pin for key, entry in changed.items() if entry.new}
    known |= {key: pin for key, pin in (await router.store.pins.list_all()).items() if not is_server_key(key)}
    texts = router.catalog.changed_instructions
    if common.as_json:
        print_json(
            [{**to_plain(pin), "state": _get_state(router, key)} for key, pin in sorted(known.items())]
        )
        return 1 if changed or texts else 0
    print_table(
        f"{len(known)} pinned, {len(changed) + len(texts)} to review",
        ("tool", "state", "pinned", "fingerprint"),
        (
            (
                key,
                _get_state(router, key),
                f"{pin.pinned_at:%Y-%m-%d %H:%M}" + (f" by {pin.accepted_by}" if pin.accepted_by else ""),
                pin.fingerprint[:12],
            )
            for key, pin in sorted(known.items(), key=lambda item: (item[0] not in changed, item[0]))
        ),
    )
    for text in texts:
        server = clean_text(text.server)
        why = "are suspicious" if text.findings else "changed"
        what = f"its instructions {why}, and are not passed on"
        click.echo(f"{server}: {what} (`pins diff {server}`)")
    if changed or texts:
        onward = (
            "Show a change with `fingerpost pins diff TOOL`; accept it with "
            "`fingerpost pins accept TOOL`. Give a server's name for all of its changes."
        )
        click.echo(repeat_options(onward))
    return 1 if changed or texts else 0


@use_router(wake=True)
async def show_changes(router: Router, *, tool: str, common: CommonOptions) -> int:
    """Show what changed in the definition of TOOL since it was pinned."""
    entries, text = _find_waiting(router, tool)
    _show_waiting(entries, text, as_json=common.as_json)
    return 1 if entries or text is not None else 0


@use_router(wake=True)
async def accept_changes(router: Router, *, tool: str, yes: bool, common: CommonOptions) -> int:
    """Trust the new definition of TOOL, after showing what changed."""
    entries, text = _find_waiting(router, tool)
    if not entries and text is None:
        return 0
    _show_waiting(entries, text, as_json=False)
    question = (
        "Trust this definition from now on?" if len(entries) == 1 and text is None else "Trust all of it?"
    )
    if not yes and not await run_sync(lambda: confirm(question)):
        click.echo("Nothing changed; the tool stays hidden.")
        return 1
    person = await run_sync(get_person)
    for entry in entries:
        pin = await router.accept(entry.card.key, by=person, fingerprint=entry.card.fingerprint)
        click.echo(f"{entry.card.key} is trusted as {pin.fingerprint[:12]} and offered again.")
    if text is not None:
        await router.accept_instructions(text.server, by=person, fingerprint=text.fingerprint)
        click.echo(f"The instructions of {text.server} are passed on again.")
    return 0


@use_router(wake=True)
async def mark_read_only(router: Router, *, tool: str, undo: bool, yes: bool, common: CommonOptions) -> int:
    """Say that TOOL only reads, so that it runs without a question."""
    card = router.tools.find(tool)
    if card is None:
        click.echo(f"No tool is called {clean_text(tool)!r}.", err=True)
        return 1
    _show_tool(card)
    question = "Require approval again?" if undo else "Does it only read, with any arguments?"
    if not yes and not await run_sync(lambda: confirm(question)):
        click.echo("Nothing changed.")
        return 1
    person = await run_sync(get_person)
    await router.say_only_reads(card.key, by=person, fingerprint=card.fingerprint, only_reads=not undo)
    result = (
        "is classified by its definition again" if undo else "is marked as read-only and needs no approval"
    )
    click.echo(f"{clean_text(card.key)} {result}.")
    return 0


@use_store
async def forget_pin(store: Store, _: Settings, *, tool: str, common: CommonOptions) -> int:
    """Remove the pin of TOOL (its key); the next definition seen is pinned instead."""
    # a pin can outlive its server
    if tool not in await store.pins.list_all():
        click.echo(f"{tool} is not pinned.", err=True)
        return 1
    await store.pins.remove(tool)
    click.echo(f"{tool} is no longer pinned.")
    return 0


@use_router(wake=True)
async def scan_definitions(router: Router, *, name: str | None, sarif: bool, common: CommonOptions) -> int:
    """Show what is suspicious in the definitions of all servers, or of one server or tool."""
    found = [one for one in router.catalog.findings if name in (None, one.server, one.tool)]
    if sarif:
        print_json(_build_sarif(found))
    elif common.as_json:
        print_json([{**to_plain(one.finding), "tool": one.tool, "held": one.held} for one in found])
    else:
        _show_scan(router, found, name)
    return 1 if any(one.held for one in found) else 0


def _show_scan(router: Router, found: list[ScannedDefinition], name: str | None) -> None:
    if not router.settings.flags.scan_definitions:
        _print_line("Definitions are not scanned: flags.scan_definitions is false.", style="yellow")
        return
    if not found:
        tools = len(router.catalog.full_snapshot.cards)
        _print_line(f"Nothing suspicious in {name or f'the definitions of {tools} tools'}.", style="green")
        return
    for tool, group in groupby(found, key=lambda one: one.tool):
        findings = list(group)
        held = findings[0].held
        if is_server_key(tool):
            subject = f"the instructions of {tool[:-1]}"
            state = "not passed on until they are accepted" if held else "passed on"
        else:
            subject, state = tool, "hidden until it is accepted" if held else "offered"
        _print_line(f"{subject} ({state})", style="bold")
        for one in findings:
            _print_finding(one.finding)
    advice = "If a definition is harmless, accept it with `fingerpost pins accept TOOL` (or SERVER)."
    is_held = any(one.held for one in found)
    click.echo(repeat_options(advice) if is_held else "Warnings hide nothing.")


def _print_finding(finding: DefinitionFinding) -> None:
    style = "red" if finding.severity == "serious" else "yellow"
    _print_line(f"{finding.severity}: it {finding.reason}", "  ", style=style)
    _print_line(f"{finding.where}: {finding.words}", "    ")


def _build_sarif(found: list[ScannedDefinition]) -> dict[str, Any]:
    """Return the findings in the format that code scanners exchange (SARIF 2.1.0)."""
    levels = {"serious": "error", "warning": "warning"}
    results = [
        {
            "ruleId": one.finding.kind,
            "level": levels[one.finding.severity],
            "message": {"text": f"{one.tool} {one.finding.reason}: {one.finding.words}"},
            "locations": [{"logicalLocations": [{"fullyQualifiedName": f"{one.tool}#{one.finding.where}"}]}],
        }
        for one in found
    ]
    rules = [{"id": kind} for kind in sorted({one.finding.kind for one in found})]
    tool = {"driver": {"name": "fingerpost", "version": __version__, "rules": rules}}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": tool, "results": results}],
    }


def _get_state(router: Router, key: str) -> str:
    for entry in router.catalog.quarantined:
        if entry.card.key == key:
            if entry.card.suspicious:
                return "suspicious"
            return "new" if entry.new else "changed"
    return "same" if router.tools.get(key) is not None else "not seen now"


def _find_waiting(router: Router, name: str) -> tuple[list[Quarantined], ChangedInstructions | None]:
    """Return what waits for review under a tool or server; print what there is if nothing does."""
    held = router.catalog.quarantined
    for entry in held:
        if name in (entry.card.key, entry.card.name, entry.card.exposed_name):
            return [entry], None
    texts = router.catalog.changed_instructions
    entries = [entry for entry in held if entry.card.server == name]
    text = next((one for one in texts if one.server == name), None)
    if not entries and text is None:
        names = ", ".join([*(entry.card.key for entry in held), *(one.server for one in texts)]) or "none"
        click.echo(f"{name} is not waiting for review. Waiting: {names}.", err=True)
    return entries, text


def _show_waiting(entries: list[Quarantined], text: ChangedInstructions | None, *, as_json: bool) -> None:
    for entry in entries:
        changes = find_differences(entry.pin.definition, entry.card.definition)
        if as_json:
            findings = [to_plain(finding) for finding in entry.card.findings]
            plain = [to_plain(change) for change in changes]
            print_json({"tool": entry.card.key, "changes": plain, "findings": findings})
            continue
        state = "is new" if entry.new else "changed" if changes else "is suspicious"
        what = f"{entry.card.key} {state}"
        _print_line(f"{what} since {entry.pin.pinned_at:%Y-%m-%d %H:%M}:", style="bold")
        for finding in entry.card.findings:
            _print_finding(finding)
        for change in changes:
            _print_line(change.path, "  ")
            _print_change([change.before], [change.after])
    if text is not None:
        _print_line(f"{text.server} has changed instructions:", style="bold")
        for finding in text.findings:
            _print_finding(finding)
        _print_change(text.before.splitlines(), text.after.splitlines())


def _print_change(before: Iterable[str | None], after: Iterable[str | None]) -> None:
    for lines, mark, style in ((before, "    - ", "red"), (after, "    + ", "green")):
        for line in lines:
            if line is not None:
                _print_line(line, mark, style=style)


def _print_line(text: str, before: str = "", *, style: str = "") -> None:
    get_output().print(Text(before + clean_text(text), style=style))


def _show_tool(card: ToolCard) -> None:
    """Print the definition of a tool and its assumed effect."""
    _print_line(card.key, style="bold")
    _print_line(card.description)
    _print_line(json.dumps(card.definition.get("inputSchema"), ensure_ascii=False, default=dict))
    judged = f"judged: {card.effect.value} ({card.effect.reason})"
    _print_line(f"{judged}; not certain: {card.doubt}" if card.doubt else judged, style="dim")
