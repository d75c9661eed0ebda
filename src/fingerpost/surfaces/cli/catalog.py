"""`fingerpost servers`, `tools` and `tool`: the state of servers, their entries, and the tools they offer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import click
from anyio import move_on_after
from anyio.to_thread import run_sync
from rich.live import Live
from rich.text import Text

from fingerpost.call.build import find_absence
from fingerpost.errors import ServerUnavailable
from fingerpost.events import AccessChanged, ServerEntryChanged, encode
from fingerpost.records import LOCAL_NAME, DataLabel, Effect, Known, ServerState, Source, ToolCall
from fingerpost.records.codec import to_plain
from fingerpost.router.configuration import (
    ConfiguredEntries,
    EntryChange,
    EntryDraft,
    ServerTrial,
    try_server,
)
from fingerpost.schemas import get_properties
from fingerpost.settings.document import as_table
from fingerpost.settings.servers_file import Entry, ServersFile, change_entry, mask_entry, parse_pasted
from fingerpost.surfaces.cli.common import (
    connect_servers,
    format_tools,
    list_replaced_builtin,
    read_settings,
    run_on_router,
    run_on_store,
    use_router,
)
from fingerpost.surfaces.cli.options import CommonOptions, repeat_options
from fingerpost.surfaces.cli.screen import (
    build_table,
    clean_text,
    cut_sentence,
    format_count,
    format_effect,
    get_output,
    print_dim,
    print_json,
    print_note,
    print_table,
    print_warning,
)
from fingerpost.surfaces.cli.terminal_input import get_person

if TYPE_CHECKING:
    from rich.table import Table

    from fingerpost.records import ServerStatus, ToolCard
    from fingerpost.router import Router
    from fingerpost.settings import CallSettings, Loaded, Settings
    from fingerpost.store import Store


MAX_STDERR_LINES = 10
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
    loaded = read_settings(common)

    async def work(router: Router) -> int:
        if watch:
            await _watch_servers(router, as_json=common.as_json)
            return 0
        with move_on_after(wait):
            await connect_servers(router, wait=wait, wake=connect)
            # Known servers that run from the start count as connected before they are up.
            for status in router.servers.statuses:
                if status.state is ServerState.CONNECTING:
                    with suppress(ServerUnavailable):  # its status has the reason
                        await router.servers.ensure(status.name, timeout=wait)
        statuses = router.servers.statuses
        if common.as_json:
            print_json([_convert_status(router, status) for status in statuses])
        else:
            get_output().print(_build_status_table(router))
            for name in sorted(router.catalog.trusted_entries):
                print_note(
                    clean_text(
                        f"{name}: its entry is not the one seen before; its tools are trusted as they are now"
                    )
                )
            for name in list_replaced_builtin(loaded):
                print_note(f"{name}: your server of this name is used, and Fingerpost's own is left out")
        enabled = [status for status in statuses if status.state != "disabled"]
        return 0 if not enabled or any(status.state.is_usable for status in enabled) else 1

    return run_on_router(loaded, work)


@use_router(standalone=True)
async def sign_in(router: Router, *, name: str, common: CommonOptions) -> int:
    """Sign in to the server NAME with OAuth; the browser opens, the token is kept in the store."""
    status = await router.sign_in(name, open_browser=_open_browser)
    click.echo(f"signed in; {name} is {status.state} with {status.tools} tools")
    return 0


_SIGNED_OUT: Final = {
    "revoked": "Signed out; the authorization server has revoked the tokens.",
    "not revoked": "Signed out here. The authorization server did not confirm that it revoked the tokens: "
    "end the session there, too.",
}


@use_router(standalone=True)
async def sign_out(router: Router, *, name: str, user: str | None, common: CommonOptions) -> int:
    """Delete the stored sign-in to the server NAME and revoke its tokens."""
    if user is None and router.servers.get_spec(name).auth == "per_user":
        user = LOCAL_NAME
    result = await router.servers.sign_out(name, user=user)
    if user is not None and result != "not signed in":
        event = AccessChanged(what="sign-in", name=f"of {user} to {name}", change="removed")
        await router.store.journal.append(event)
    if common.as_json:
        print_json({"server": name, "result": result})
    elif result == "not signed in":
        click.echo(f"There is no stored sign-in to {clean_text(name)}.", err=True)
    else:
        click.echo(_SIGNED_OUT[result])
    return 1 if result == "not signed in" else 0


class EntryOptions(TypedDict):
    """The options of `servers add` and `servers edit` that make an entry."""

    target: tuple[str, ...]
    entry: str | None
    env: tuple[str, ...]
    headers: tuple[str, ...]
    cwd: Path | None
    transport: str | None
    lifecycle: str | None
    trust_hints: bool | None
    review: bool | None
    enable: bool | None


def add_server(
    *, name: str | None, no_check: bool, common: CommonOptions, **options: Unpack[EntryOptions]
) -> int:
    """Add the server NAME to the servers file, after connecting to it once."""
    loaded = read_settings(common)
    pasted: Mapping[str, Entry] = {name or "": {}}
    if options["entry"] is not None:
        pasted = parse_pasted(_read_pasted(options["entry"]))
        if name is not None and len(pasted) == 1:
            pasted = {name: next(iter(pasted.values()))}
    elif not options["target"]:
        raise click.UsageError("give a command or an address: NAME -- COMMAND, NAME URL, or --entry JSON")
    if "" in pasted or (name is not None and name not in pasted):
        message = "the name of the server is missing" if "" in pasted else f"there is no {name!r} in the JSON"
        raise click.UsageError(message)
    entries = _open_entries(loaded)
    drafts: list[EntryDraft] = []
    for server, entry in pasted.items():
        entries.check_free(server, loaded)
        drafts.append(entries.check(server, change_entry(entry, _collect_changes(options, entry))))
    return max(_save(loaded, draft, "added", common, check=not no_check) for draft in drafts)


def edit_server(
    *,
    name: str,
    unset: tuple[str, ...],
    no_check: bool,
    common: CommonOptions,
    **options: Unpack[EntryOptions],
) -> int:
    """Change the entry of the server NAME with the options, or in an editor."""
    loaded = read_settings(common)
    entries = _open_entries(loaded)
    written = entries.find(name, loaded).values
    entry = _unset_fields(written, unset)
    if options["entry"] is not None:
        pasted = parse_pasted(_read_pasted(options["entry"]))
        entry = pasted.get(name) or next(iter(pasted.values()))
    changes = _collect_changes(options, entry)
    if changes or unset or options["entry"] is not None:
        entry = change_entry(entry, changes)
    else:
        text = click.edit(json.dumps(dict(written), indent=2, ensure_ascii=False) + "\n", extension=".json")
        entry = written if text is None else next(iter(parse_pasted(text).values()))
    if entry == written:
        click.echo("Nothing changed.")
        return 0
    return _save(loaded, entries.check(name, entry), "changed", common, check=not no_check)


def remove_server(*, name: str, common: CommonOptions) -> int:
    """Remove the entry of the server NAME."""
    loaded = read_settings(common)
    entries = _open_entries(loaded)
    entries.find(name, loaded)
    entries.file.remove_entry(name)
    event = ServerEntryChanged(server=name, change="removed", by=get_person(), file=entries.file.shown)

    async def work(store: Store, settings: Settings) -> None:
        del settings
        await store.journal.append(event)

    run_on_store(loaded, work)
    if common.as_json:
        print_json({"removed": name, "file": str(entries.file.path)})
    else:
        click.echo(f"{clean_text(name)} is removed from {entries.file.path}.")
    return 0


def _open_entries(loaded: Loaded) -> ConfiguredEntries:
    assert loaded.places is not None  # they were loaded from files
    return ConfiguredEntries(loaded.places, loaded.settings)


def _read_pasted(text: str) -> str:
    return sys.stdin.read() if text == "-" else text


def _collect_changes(options: EntryOptions, entry: Entry) -> dict[str, object]:
    """Return the fields of an entry that the options set, with our names."""
    changes: dict[str, object] = {}
    if target := options["target"]:
        is_address = len(target) == 1 and target[0].startswith(("http://", "https://"))
        parts = {"url": target[0]} if is_address else {"command": target[0], "args": list(target[1:])}
        changes = {"command": None, "args": None, "url": None, **parts}
        if not is_address and options["cwd"] is None and "cwd" not in entry:
            changes |= _find_folder(target)
    for field, given in (
        ("env", _read_variables(options["env"])),
        ("headers", _read_headers(options["headers"])),
    ):
        if given:
            changes[field] = {**(as_table(entry.get(field)) or {}), **given}
    if (folder := options["cwd"]) is not None:
        changes["cwd"] = str(folder.absolute())
    given = {
        "transport": options["transport"],
        "lifecycle": options["lifecycle"],
        "trust_hints": options["trust_hints"],
        "review_new": options["review"],
        "enabled": options["enable"],
    }
    return changes | {field: value for field, value in given.items() if value is not None}


def _find_folder(command: Sequence[str]) -> dict[str, object]:
    """Return this folder as `cwd` if the command names a file in it: it would not be found from elsewhere."""
    local = [word for word in command if not word.startswith(("/", "-", "~")) and Path(word).is_file()]
    return {"cwd": str(Path.cwd())} if local else {}


def _read_variables(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `KEY=VALUE`. `KEY` alone refers to the variable of this name."""
    split = ((key, equals, value) for key, equals, value in (pair.partition("=") for pair in pairs))
    return {key: value if equals else f"${{{key}}}" for key, equals, value in split}


def _read_headers(pairs: Sequence[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` and `NAME: VALUE`."""
    headers: dict[str, str] = {}
    for pair in pairs:
        found = re.fullmatch(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:=|:\s*)(.*)", pair)
        if found is None:
            raise click.BadParameter("write it as NAME=VALUE", param_hint="--header")
        headers[found[1]] = found[2]
    return headers


def _unset_fields(entry: Entry, fields: Sequence[str]) -> Entry:
    """Return the entry without these fields, such as `cwd` and `env.TOKEN`."""
    for field in fields:
        name, dot, key = field.partition(".")
        inner = as_table(entry.get(name))
        if name not in entry or (dot and key not in (inner or {})):
            message = f"{field} is not in the entry; it has {', '.join(entry)}"
            raise click.BadParameter(message, param_hint="--unset")
        rest = {other: value for other, value in entry.items() if other != name}
        left = {other: value for other, value in (inner or {}).items() if dot and other != key}
        entry = {**rest, name: left} if left else rest
    return entry


def _save(
    loaded: Loaded, draft: EntryDraft, change: EntryChange, common: CommonOptions, *, check: bool
) -> int:
    """Try the entry, show its tools, and save it."""
    file = _open_entries(loaded).file
    for problem in draft.warnings:
        print_warning(clean_text(f"{problem} (fix: {problem.fix})"))

    async def work(store: Store, settings: Settings) -> int:
        trial: ServerTrial | None = None
        if check and draft.spec.enabled:
            print_dim(f"connecting to {clean_text(draft.name)} …")
            trial = await try_server(draft.spec, settings, store.tokens)
            if not trial.is_connected and not trial.needs_sign_in:
                raise _build_trial_error(trial)
        await run_sync(file.put_entry, draft.name, draft.entry)
        by = await run_sync(get_person)
        await store.journal.append(
            ServerEntryChanged(server=draft.name, change=change, by=by, file=file.shown)
        )
        if trial is not None and trial.known is not None:
            await store.known_servers.put(trial.known)
        _report_saved(draft, trial, file, as_json=common.as_json)
        return 0

    return run_on_store(loaded, work)


def _build_trial_error(trial: ServerTrial) -> ServerUnavailable:
    """Print the end of what the program wrote, and build the error."""
    status = trial.status
    for line in status.stderr_tail.strip().splitlines()[-MAX_STDERR_LINES:]:
        print_dim(f"  {clean_text(line)}")
    reason = status.reason or "it did not answer in time"
    message = reason if reason.startswith(status.name) else f"{status.name} failed: {reason}"
    fix = f"{status.hint}. " if status.hint else ""
    hint = f"{fix}Nothing was saved; --no-check saves it anyway"
    return ServerUnavailable(message, server=status.name, hint=hint)


def _report_saved(draft: EntryDraft, trial: ServerTrial | None, file: ServersFile, *, as_json: bool) -> None:
    cards = () if trial is None else trial.cards
    if as_json:
        print_json(
            {
                "saved": draft.name,
                "file": str(file.path),
                "entry": mask_entry(draft.entry),
                "connected": None if trial is None else trial.is_connected,
                "tools": [
                    {"name": card.name, "effect": card.effect.value, "certain": card.certain}
                    for card in cards
                ],
            }
        )
        return
    if cards:
        print_table(
            format_count(len(cards), "tool"),
            ("tool", "effect", "what it does"),
            (
                (
                    Text(clean_text(card.name), style="bold"),
                    style_effect(card),
                    Text(cut_sentence(card.description)),
                )
                for card in cards
            ),
        )
    if trial is not None:
        for drop in trial.dropped:
            print_warning(clean_text(f"{drop.name} is left out: {drop.reason}"))
    name = clean_text(draft.name)
    click.echo(f"{name} is saved in {file.path}.")
    if draft.entry.get("cwd") == str(Path.cwd()):
        click.echo("It runs in this folder, because its command names a file here; --cwd changes that.")
    if trial is not None and trial.needs_sign_in:
        click.echo(repeat_options(f"It needs signing in: `fingerpost servers login {name}`."))


def _open_browser(url: str) -> None:
    click.echo(f"Open this address to sign in:\n  {url}")
    click.launch(url)


def _convert_status(router: Router, status: ServerStatus) -> dict[str, Any]:
    """Return the state of a server as JSON. `tools` is what it lists, `offered` what can be used."""
    offered, hidden = (
        router.catalog.count_offered(status.name),
        router.catalog.describe_quarantine(status.name),
    )
    return {**to_plain(status), "offered": offered, "hidden": hidden}


def _build_status_table(router: Router) -> Table:
    statuses = router.servers.statuses
    up = sum(status.state.is_usable for status in statuses)
    tools = len(router.tools.cards)
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
            format_tools(router, status) if status.state.is_usable else "",
            _build_note(router, status),
        )
    return table


def _build_note(router: Router, status: ServerStatus) -> Text:
    hidden = router.catalog.describe_quarantine(status.name)
    review = hidden and f"{hidden} (`fingerpost pins diff {status.name}`)"
    problem = "; ".join(part for part in (status.reason, review) if part)
    return Text(clean_text(problem or _describe(status)), style="" if problem else "dim")


def _describe(status: ServerStatus) -> str:
    parts = (status.product, status.hint if status.state == "asleep" else None)
    return "; ".join(part for part in parts if part)


async def _watch_servers(router: Router, *, as_json: bool) -> None:
    """Show every change until interrupted: a live table on a terminal, else one line each."""
    screen = get_output()
    with router.live.subscribe() as changes:
        router.servers.start()
        if screen.is_terminal and not as_json:
            with Live(_build_status_table(router), console=screen, refresh_per_second=8) as live:
                async for _ in changes:
                    live.update(_build_status_table(router))
        async for event in changes:
            click.echo(encode(event) if as_json else f"{event.at:%H:%M:%S} {event.kind} {event.summary()}")


EFFECT_COLOURS = {"read": "green", "write": "yellow", "destroy": "red"}


@use_router()
async def list_tools(
    router: Router, *, query: tuple[str, ...], server: str | None, common: CommonOptions, wait: float
) -> int:
    """List the tools of all servers, or those that match the words of QUERY."""
    await connect_servers(router, server, wait=wait)
    found = router.tools.search(" ".join(query)) if query else router.tools.cards
    cards = [card for card in found if server is None or card.server == server]
    if common.as_json:
        print_json([convert_card(card) for card in cards])
    else:
        _show_cards(router, cards)
    return 0 if cards else 1


@use_router()
async def show_tool(router: Router, *, name: str, common: CommonOptions, wait: float) -> int:
    """Show everything known about the tool NAME, and where each piece comes from."""
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


def convert_card(card: ToolCard) -> dict[str, Any]:
    """Return the card as JSON, with the definition exactly as the server sent it."""
    return {
        "key": card.key,
        "server": card.server,
        "name": card.name,
        "exposed_name": card.exposed_name,
        "description": card.description,
        "effect": {**to_plain(card.effect), "certain": card.certain, "doubt": card.doubt},
        "labels": {label: to_plain(card.get_label(label)) for label in DataLabel},
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
                style_effect(card).append(" (dry run)" if _find_switch(router, card) else ""),
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
    why_not = card.doubt and f"{card.doubt}; change it with `pins reads`"
    return Known(card.certain, card.effect.source, why_not)


def style_effect(card: ToolCard) -> Text:
    return Text(format_effect(card), style=EFFECT_COLOURS[card.effect_of(None)])


def _find_switch(router: Router, card: ToolCard) -> str:
    """Return the setting without which this tool of the built-in workspace only makes dry runs, or ""."""
    if card.server != "workspace" or "workspace" not in router.settings.builtin.enabled:
        return ""
    annotations = as_table(card.definition.get("annotations")) or {}
    if card.effect.value is not Effect.READ or annotations.get("readOnlyHint") is not False:
        return ""
    return "allow_write" if card.name in ("ai.write", "file_operations") else "allow_execute"


def _list_missing(router: Router) -> Iterator[str]:
    """Yield lines that say which tools are not listed, and why."""
    for state, advice in (("down", "see `fingerpost servers`"), ("connecting", "give it longer with --wait")):
        names = [
            clean_text(status.name)
            for status in router.servers.statuses
            if status.state == state and not router.catalog.count_offered(status.name)  # else they are known
        ]
        if names:
            yield f"not listed: the tools of {', '.join(names)} ({state}; {advice})"
    for status in router.servers.statuses:
        if hidden := router.catalog.describe_quarantine(status.name):
            name = clean_text(status.name)
            yield f"not listed: {name}: {hidden} (see `fingerpost pins diff {name}`)"
    if refused := [drop for drop in router.catalog.dropped if not drop.switched_off]:
        yield f"not listed: {len(refused)} that cannot be used (see `fingerpost doctor`)"
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
            for label, known in _list_facts(card, router.settings.call, _find_switch(router, card))
        ),
    )
    _show_parameters(card)
    screen.print(Text(f"fingerprint {card.fingerprint}", style="dim"))
    status = router.servers.get_status(card.server)
    screen.print(
        Text(f"server {clean_text(card.server)} is {status.state}, via {status.transport}", style="dim")
    )


_LABEL_TITLES: Final = {
    DataLabel.UNTRUSTED: "brings in untrusted content",
    DataLabel.PRIVATE: "reads private data",
    DataLabel.OUTBOUND: "sends data out",
}


def _list_facts(card: ToolCard, call: CallSettings, switch: str) -> Iterator[tuple[str, Known[Any]]]:
    intelligence = card.intelligence
    dry = f" (dry run only, until tool_routing.{switch} is on)" if switch else ""
    yield "effect", replace(card.effect, value=f"{format_effect(card)}{dry}")
    yield "certain", get_certainty(card)
    for label in DataLabel:
        yield _LABEL_TITLES[label], card.get_label(label)
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
    yield "words that select it", intelligence.signals.keywords
    yield "weight of these words", intelligence.signals.weight
    yield "exclusive intent", intelligence.signals.exclusive_intent
    usual = Known(call.retries, Source.DEFAULT, "call.retries")
    yield "retries", usual if card.retry.retries.value is None else card.retry.retries
    yield "retried after", card.retry.conditions
    yield "a write may be repeated", card.retry.repeatable
    yield "result cached for (s)", card.cache_seconds


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
    needs = {**dict.fromkeys(hints.required, "required"), **dict.fromkeys(hints.optional, "optional")}
    schemas = get_properties(card.definition.get("inputSchema"))
    rows: list[tuple[str | Text, ...]] = []
    for name, need in needs.items():
        schema = schemas.get(name)
        described = schema if isinstance(schema, dict) else {}
        meaning = Text(cut_sentence(str(described.get("description", ""))))
        rows.append((name, need, str(described.get("type", "")), str(hints.examples.get(name, "")), meaning))
    print_table(None, ("parameter", "", "type", "example", "what it is"), rows)
