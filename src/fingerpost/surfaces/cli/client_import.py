"""`fingerpost import`: merge the server configurations of other MCP clients into one file."""

from __future__ import annotations

import os
import sys
from dataclasses import field
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from fingerpost.catalog import escape_invisible_except
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.redaction import scrub
from fingerpost.settings import load
from fingerpost.settings.client_files import (
    FoundClientFile,
    MergedServers,
    discover_client_files,
    find_server_tables,
    mask_secrets,
    merge_servers,
    read_drafts,
    shorten_path,
)
from fingerpost.settings.document import (
    SettingsDocument,
    as_list,
    as_table,
    parse_json,
    parse_toml,
    read_document,
)
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

BOM: Final = b"\xef\xbb\xbf"
BACKUP_SUFFIX: Final = ".backup-"
REVIEW_NEXT: Final = (
    "Their tools wait for your review: `fingerpost pins` lists them, "
    "`fingerpost pins accept SERVER` accepts them."
)


@frozen(kw_only=False)
class ConfigFileChange:
    """The content of a file before and after. None means no file."""

    file: Path
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)
    private: bool = False  # only its owner may read it, even if others could before

    @property
    def is_needed(self) -> bool:
        return self.before != self.after


def format_change(change: ConfigFileChange, shown: str) -> list[str]:
    """Return the change as lines of a unified diff, secrets masked."""
    _remember_secrets(change)
    before, after = (decode_text(data or b"").splitlines() for data in (change.before, change.after))
    lines = unified_diff(before, after, f"{shown} (now)", f"{shown} (then)", lineterm="")
    return [escape_invisible_except(scrub(line), keep="\t\\") for line in lines]


def show_change(change: ConfigFileChange) -> None:
    for line in format_change(change, shorten_path(change.file, Path.home())):
        click.echo(style_change(line))


def apply_change(change: ConfigFileChange, now: datetime) -> Path | None:
    """Write the change atomically. Return the path of the backup, if there was a file."""
    target = change.file.resolve()  # keep symbolic links
    if read_bytes(target) != change.before:
        message = f"{change.file} was changed by another program meanwhile"
        raise ConfigError(message, hint="run the command again")
    try:
        is_private = change.private or change.before is None
        mode = PRIVATE_MODE if is_private else target.stat().st_mode & 0o777
        backup = None
        if change.before is not None:
            backup = find_free_backup(target, now)
            write_atomically(backup, change.before, mode)
        if change.after is None:
            target.unlink()
        else:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(target, change.after, mode)
    except OSError as error:
        message = f"{change.file} cannot be written: {error.strerror or error}"
        raise ConfigError(message, hint="check the permissions of the file and its folder") from error
    return backup


def write_change(change: ConfigFileChange, now: datetime, *, err: bool = False) -> None:
    """Write the change, if any, and print what was written."""
    if not change.is_needed:
        return
    backup = apply_change(change, now)
    kept = f"; the old one is {backup}" if backup else ""
    click.echo(f"{'Removed' if change.after is None else 'Wrote'} {change.file}{kept}.", err=err)


def _remember_secrets(change: ConfigFileChange) -> None:
    """Register the secrets of other servers for masking."""
    parse = parse_toml if change.file.suffix == ".toml" else parse_json
    for data in (change.before, change.after):
        document = parse(decode_text(data or b""), "file", Path())
        if isinstance(document, SettingsDocument):
            drafts, _ = read_drafts(document)
            for draft in drafts:
                register_literal_secrets(draft.values)


def read_bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}"
        raise ConfigError(message, hint="check the path and its permissions") from error


def decode_text(data: bytes) -> str:
    return data.removeprefix(BOM).decode("utf-8", "strict")


def find_free_backup(target: Path, now: datetime) -> Path:
    name = f"{target.name}{BACKUP_SUFFIX}{now:%Y%m%d-%H%M%S}"
    backup, number = target.with_name(name), 1
    while backup.exists():
        number += 1
        backup = target.with_name(f"{name}-{number}")
    return backup


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


def plan_merge(
    target: Path, merged: MergedServers, *, review: bool, private: bool = False
) -> ConfigFileChange:
    """Return the change that adds the servers. What the file has already, comments included, stays as it is.

    With `review` the tools of new entries wait until a person accepts them.
    """
    document = _read_target(target)
    before = read_bytes(target)
    old = text = decode_text(before or b"")
    tables = () if document is None else find_server_tables(document)
    path = tuple(map(str, tables[0].path)) if tables else ("mcpServers",)
    known = frozenset(tables[0].servers) if tables else frozenset[str]()
    for name, entry in merged.servers.items():
        if name not in known:
            text = put_json(text, path, name, {**entry, "review_new": True} if review else entry)
    written = as_list(document.values.get("inputs")) if document is not None else []
    if inputs := _find_new_inputs(written, as_list(merged.build_document().get("inputs"))):
        text = put_json(text, (), "inputs", [*written, *inputs])
    return ConfigFileChange(target, before, before if text == old else text.encode(), private)


def _find_new_inputs(old: list[object], added: list[object]) -> list[object]:
    known = {(as_table(entry) or {}).get("id") for entry in old}
    return [entry for entry in added if (as_table(entry) or {}).get("id") not in known]


def import_servers(*, target: Path | None, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Find and merge the configurations of other MCP clients."""
    if target is not None and (reason := explain_invalid_target(target)) is not None:
        raise click.BadParameter(reason, param_hint="--write")
    if target is not None and as_json and not yes:
        raise click.UsageError("--json with --write needs --yes, because no question can be asked")
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
    elif not as_json and not plan_merge(target, merged, review=True).is_needed:
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
    change = plan_merge(target, merged, review=True, private=private)  # other programs chose these servers
    if not change.is_needed:
        click.echo(f"{target} already has all of them", err=quiet)
        return
    if not quiet:
        show_change(change)
    if dry_run:
        return
    if not yes:
        confirm(f"Write {target}?", abort=True)
    write_change(change, datetime.now().astimezone(), err=quiet)
    if not private:
        click.echo(f"Use it with --servers {target}.", err=quiet)
    click.echo(REVIEW_NEXT, err=quiet)
