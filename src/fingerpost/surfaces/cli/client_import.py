"""`fingerpost import`: merge the server configurations of other MCP clients into one file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from fingerpost.errors import ConfigError
from fingerpost.settings import load
from fingerpost.settings.client_files import (
    FoundClientFile,
    MergedServers,
    discover_client_files,
    find_server_tables,
    mask_secrets,
    merge_servers,
    read_drafts,
)
from fingerpost.settings.document import SettingsDocument, as_list, as_table, parse_json, read_document
from fingerpost.settings.problems import Problem
from fingerpost.settings.servers_file import PRIVATE_MODE, put_json, write_atomically
from fingerpost.settings.variables import register_literal_secrets
from fingerpost.surfaces.cli.screen import (
    clean_text,
    format_count,
    get_output,
    print_json,
    print_table,
    style_change,
)
from fingerpost.surfaces.cli.terminal_input import confirm, is_at_terminal

REVIEW_NEXT: Final = (
    "Their tools wait for your review: `fingerpost pins` lists them, "
    "`fingerpost pins accept SERVER` accepts them."
)


def explain_invalid_target(target: Path) -> str | None:
    """Return why this file cannot be written, or None."""
    if target.suffix == ".toml":
        return 'servers are written as JSON; name a .json file and set servers_file = "…" in fingerpost.toml'
    return None if target.absolute().parent.is_dir() else f"the folder {target.parent} does not exist"


def read_existing(target: Path | None) -> tuple[FoundClientFile, ...]:
    """Return the servers in the target; they keep their names."""
    document = _read_target(target)
    if target is None or document is None:
        return ()
    drafts, _ = read_drafts(document)
    for draft in drafts:
        register_literal_secrets(draft.values)
    return (FoundClientFile(client="here", file=target, shown=str(target), drafts=drafts),)


def _read_target(target: Path | None) -> SettingsDocument | None:
    if target is None or not target.exists():
        return None
    document = read_document(target, str(target), toml=False)
    if isinstance(document, Problem):
        raise ConfigError(str(document), hint=document.fix, problems=(document,))
    return document


def merge_text(target: Path, merged: MergedServers, *, review: bool) -> tuple[str, str]:
    """Return the text before and after. What the file has already, comments included, stays as it is.

    With `review` the tools of new entries wait until a person accepts them.
    """
    document = _read_target(target)
    old = target.read_text("utf-8-sig") if document is not None else ""
    tables = () if document is None else find_server_tables(document)
    path = tuple(map(str, tables[0].path)) if tables else ("mcpServers",)
    known = frozenset(tables[0].servers) if tables else frozenset[str]()
    text = old
    for name, entry in merged.servers.items():
        if name not in known:
            text = put_json(text, path, name, {**entry, "review_new": True} if review else entry)
    written = as_list(document.values.get("inputs")) if document is not None else []
    if inputs := _find_new_inputs(written, as_list(merged.build_document().get("inputs"))):
        text = put_json(text, (), "inputs", [*written, *inputs])
    return old, text


def _find_new_inputs(old: list[object], added: list[object]) -> list[object]:
    known = {(as_table(entry) or {}).get("id") for entry in old}
    return [entry for entry in added if (as_table(entry) or {}).get("id") not in known]


def build_difference(old: str, new: str, secrets: Sequence[str], name: str) -> list[str]:
    """Return the change as lines of a unified diff, secrets masked."""
    before, after = (_format_masked(text, secrets).splitlines() for text in (old, new))
    return list(unified_diff(before, after, f"{name} (now)", f"{name} (then)", lineterm=""))


def _format_masked(text: str, secrets: Sequence[str]) -> str:
    document = parse_json(text, "", Path()) if text.strip() else None
    if not isinstance(document, SettingsDocument):
        return ""
    return json.dumps(mask_secrets(document.values, secrets), indent=2, ensure_ascii=False)


def replace_file(target: Path, text: str, *, private: bool) -> Path | None:
    """Write the file atomically. Return the path of the backup, if there was a file."""
    target = target.resolve()
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o777 if target.exists() and not private else PRIVATE_MODE
    backup = _back_up(target, mode) if target.exists() else None
    write_atomically(target, text.encode(), mode)
    return backup


def _back_up(target: Path, mode: int) -> Path:
    number, backup = 1, target.with_name(f"{target.name}.bak")
    while backup.exists():
        number += 1
        backup = target.with_name(f"{target.name}.bak{number}")
    write_atomically(backup, target.read_bytes(), mode)
    return backup


def import_servers(*, target: Path | None, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Find and merge the configurations of other MCP clients."""
    if target is not None and (reason := explain_invalid_target(target)) is not None:
        raise click.BadParameter(reason, param_hint="--write")
    if target is not None and as_json and not yes:
        message = "--json with --write needs --yes, because no question can be asked"
        raise click.UsageError(message)
    is_named, (target, private) = target is not None, _choose_target(target)
    everything = discover_client_files(Path.home(), Path.cwd(), sys.platform, os.environ)
    existing = read_existing(target)
    found = tuple(one for one in everything if one.file.resolve() != target.resolve())
    merged = merge_servers((*existing, *found))
    if as_json:
        _print_found_json(found, merged)
    else:
        _print_found(found, merged)
    if not merged.servers:
        return 1
    if yes or is_named or (is_at_terminal() and not as_json and not dry_run):
        _write_merged(target, merged, yes=yes, quiet=as_json, private=private, dry_run=dry_run)
    elif not as_json and len(set(merge_text(target, merged, review=True))) == 1:
        click.echo(f"Nothing new: {target} has all of them.")
    elif not as_json:
        click.echo(f"Nothing is written. `fingerpost import --yes` adds them to {target}.")
    return 0


def _choose_target(named: Path | None) -> tuple[Path, bool]:
    """Return the file to write, and whether it is the user's own."""
    if named is not None:
        return named, False
    places = load().places
    assert places is not None  # they were loaded from files
    return places.servers, places.is_default_servers_file


def _print_found_json(found: tuple[FoundClientFile, ...], merged: MergedServers) -> None:
    print_json(
        {
            "found": [
                {"client": one.client, "file": one.shown, "servers": [draft.name for draft in one.drafts]}
                for one in found
            ],
            "servers": mask_secrets(merged.build_document()["mcpServers"], merged.secrets, ("mcpServers",)),
            "places": {name: list(places) for name, places in merged.origins.items()},
            "renamed": [
                {"name": one.name, "became": one.new_name, "place": one.origin} for one in merged.renamed
            ],
            "secrets": list(merged.secrets),
            "problems": [str(problem) for problem in merged.problems],
        }
    )


def _print_found(found: tuple[FoundClientFile, ...], merged: MergedServers) -> None:
    screen = get_output()
    if not merged.servers:
        screen.print("No servers of other MCP clients were found.")
    else:
        safe = as_table(mask_secrets(dict(merged.servers), merged.secrets, ("mcpServers",))) or {}
        print_table(
            None,
            ("server", "connects to", "known to", "from"),
            (
                (
                    name,
                    _format_target(entry),
                    ", ".join(merged.clients[name]),
                    ", ".join(merged.origins[name]),
                )
                for name, entry in safe.items()
            ),
        )
        screen.print(f"{format_count(len(merged.servers), 'server')} in {format_count(len(found), 'file')}")
    for one in merged.renamed:
        text = (
            f"{one.name} in {one.origin} differs from another server of that name: it becomes {one.new_name}"
        )
        screen.print(Text(f"renamed: {clean_text(text)}", style="yellow"))
    for secret in merged.secrets:
        text = f"{secret} is a secret in plain text; use ${{VARIABLE}} instead"
        screen.print(Text(f"warning: {clean_text(text)}", style="yellow"))
    for problem in merged.problems:
        screen.print(Text(f"warning: {clean_text(str(problem))}", style="yellow"))
        screen.print(Text(f"  fix: {clean_text(problem.fix)}"))


def _format_target(entry: object) -> str:
    values = as_table(entry) or {}
    if values.get("url"):
        return str(values["url"])
    return " ".join(str(word) for word in (values.get("command"), *as_list(values.get("args"))))


def _write_merged(
    target: Path, merged: MergedServers, *, yes: bool, quiet: bool, private: bool, dry_run: bool
) -> None:
    old, new = merge_text(target, merged, review=True)  # other programs chose these servers
    if old == new:
        click.echo(f"{target} already has all of them", err=quiet)
        return
    if not quiet:
        for line in build_difference(old, new, merged.secrets, str(target)):
            click.echo(style_change(line))
    if dry_run:
        return
    if not yes:
        confirm(f"Write {target}?", abort=True)
    backup = replace_file(target, new, private=private)
    kept = f" (the old one is {backup})" if backup else ""
    use = "" if private else f"; use it with --servers {target}"
    click.echo(f"wrote {target}{kept}{use}", err=quiet)
    click.echo(REVIEW_NEXT, err=quiet)
