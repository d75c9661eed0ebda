"""`fingerpost import`: merge the server configurations of other MCP clients into one file."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

import click
from rich.text import Text

from fingerpost.errors import ConfigError
from fingerpost.settings.client_files import (
    FoundClientFile,
    MergedServers,
    discover_client_files,
    find_server_tables,
    mask_secrets,
    merge_servers,
    read_drafts,
)
from fingerpost.settings.document import SettingsDocument, as_list, as_table, read_document
from fingerpost.settings.problems import Problem
from fingerpost.settings.servers_file import PRIVATE_MODE, write_atomically
from fingerpost.settings.variables import register_literal_secrets
from fingerpost.surfaces.cli.screen import clean_text, get_output, print_json, print_table, style_change
from fingerpost.surfaces.cli.terminal_input import confirm


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


def merge_content(target: Path, merged: MergedServers) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """Return the content before and after. Other keys and known servers are kept."""
    document = _read_target(target)
    if document is None:
        return {}, merged.build_document()
    old = dict(document.values)
    added = merged.build_document()
    servers_key = _find_servers_key(document)
    servers = {**(as_table(added["mcpServers"]) or {}), **(as_table(old.get(servers_key)) or {})}
    new = {**old, servers_key: servers}
    if inputs := _find_new_inputs(as_list(old.get("inputs")), as_list(added.get("inputs"))):
        new["inputs"] = [*as_list(old.get("inputs")), *inputs]
    return old, new


def _find_servers_key(document: SettingsDocument) -> str:
    """Return the key under which the file has its servers (`servers` for VS Code)."""
    for entries in find_server_tables(document):
        if len(entries.path) == 1:
            return str(entries.path[0])
    return "mcpServers"


def _find_new_inputs(old: list[object], added: list[object]) -> list[object]:
    known = {(as_table(entry) or {}).get("id") for entry in old}
    return [entry for entry in added if (as_table(entry) or {}).get("id") not in known]


def build_difference(
    old: Mapping[str, object], new: Mapping[str, object], secrets: Sequence[str], name: str
) -> list[str]:
    """Return the change as lines of a unified diff, secrets masked."""
    before, after = (_format_content(mask_secrets(content, secrets)).splitlines() for content in (old, new))
    if not old:
        before = []
    return list(unified_diff(before, after, f"{name} (now)", f"{name} (then)", lineterm=""))


def replace_file(target: Path, content: Mapping[str, object]) -> Path | None:
    """Write `content` atomically. Return the path of the backup, if there was a file."""
    target = target.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE_MODE
    backup = _back_up(target, mode) if target.exists() else None
    write_atomically(target, _format_content(content).encode(), mode)
    return backup


def _back_up(target: Path, mode: int) -> Path:
    number, backup = 1, target.with_name(f"{target.name}.bak")
    while backup.exists():
        number += 1
        backup = target.with_name(f"{target.name}.bak{number}")
    write_atomically(backup, target.read_bytes(), mode)
    return backup


def _format_content(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def import_servers(*, target: Path | None, yes: bool, as_json: bool) -> int:
    """Find and merge the configurations of other MCP clients."""
    if target is not None and (reason := explain_invalid_target(target)) is not None:
        raise click.BadParameter(reason, param_hint="--write")
    if target is not None and as_json and not yes:
        message = "--json with --write needs --yes: no person can be asked"
        raise click.UsageError(message)
    everything = discover_client_files(Path.home(), Path.cwd(), sys.platform, os.environ)
    existing = read_existing(target)
    found = tuple(one for one in everything if target is None or one.file.resolve() != target.resolve())
    merged = merge_servers((*existing, *found))
    if as_json:
        _print_found_json(found, merged)
    else:
        _print_found(found, merged)
    if target is not None and merged.servers:
        _write_merged(target, merged, yes=yes, quiet=as_json)
    return 0 if merged.servers else 1


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
        screen.print(f"{len(merged.servers)} servers in {len(found)} files")
    for one in merged.renamed:
        text = (
            f"{one.name} in {one.origin} differs from another server of that name: it becomes {one.new_name}"
        )
        screen.print(Text(f"renamed: {clean_text(text)}", style="yellow"))
    for secret in merged.secrets:
        text = f"{secret} is a secret written out; ${{VARIABLE}} keeps it out of files"
        screen.print(Text(f"warning: {clean_text(text)}", style="yellow"))
    for problem in merged.problems:
        screen.print(Text(f"warning: {clean_text(str(problem))}", style="yellow"))
        screen.print(Text(f"  fix: {clean_text(problem.fix)}"))


def _format_target(entry: object) -> str:
    values = as_table(entry) or {}
    if values.get("url"):
        return str(values["url"])
    return " ".join(str(word) for word in (values.get("command"), *as_list(values.get("args"))))


def _write_merged(target: Path, merged: MergedServers, *, yes: bool, quiet: bool) -> None:
    old, new = merge_content(target, merged)
    if old == new:
        click.echo(f"{target} already holds all of them", err=quiet)
        return
    if not quiet:
        for line in build_difference(old, new, merged.secrets, str(target)):
            click.echo(style_change(line))
    if not yes:
        confirm(f"Write {target}?", abort=True)
    backup = replace_file(target, new)
    kept = f" (the old one is {backup})" if backup else ""
    click.echo(f"wrote {target}{kept}; use it with --servers {target}", err=quiet)
