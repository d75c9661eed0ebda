"""`fingerpost install CLIENT`: one entry in the configuration of an MCP client, and out again."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fingerpost.errors import ConfigError
from fingerpost.settings.discover import short
from fingerpost.settings.environment import SERVERS_FILE
from fingerpost.settings.sources import Sources, config_path
from fingerpost.settings.variables import Scope, expand
from fingerpost.surfaces.cli.colour import styled
from fingerpost.surfaces.cli.house import Asked, read_settings
from fingerpost.surfaces.cli.install_change import difference, installing, is_switched_off, make, removing
from fingerpost.surfaces.cli.install_clients import connected, places, started
from fingerpost.surfaces.cli.person import confirmed
from fingerpost.surfaces.cli.screen import output, plain, table
from fingerpost.surfaces.web.access.exposure import is_exposed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fingerpost.settings import GatewaySettings
    from fingerpost.surfaces.cli.install_change import Change
    from fingerpost.surfaces.cli.install_clients import Client, Entry, Place

KEY_VARIABLE = "FINGERPOST_KEY"
# Programs that are started from a desktop have these as well.
EVERYWHERE = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"})


def install_client(
    *,
    client: str | None,
    mode: str,
    profile: str | None,
    way: str | None,
    name: str,
    project: bool,
    yes: bool,
    dry_run: bool,
    undo: bool,
    servers: Path | None,
    config: Path | None,
) -> int:
    """Write Fingerpost into the configuration of an MCP client."""
    if client is None:
        return _list(project=project, name=name)
    place = _place(client, project=project)
    if profile is not None and mode != "auto":
        message = "a profile has its own mode; give --mode or --profile"
        raise click.UsageError(message)
    if undo:
        return _undo(place, name, yes=yes, dry_run=dry_run)
    path = f"/p/{profile}" if profile else "" if mode == "auto" else f"/{mode}"
    if way == "http":
        entry, notes = _connecting(place.client, path, config, servers)
    else:
        wishes = ["--profile", profile] if profile else [] if mode == "auto" else ["--mode", mode]
        entry, notes = _starting(place.client, wishes, config, servers, profile)
    return _install(place, name, entry, notes, yes=yes, dry_run=dry_run)


def _list(*, project: bool, name: str) -> int:
    made = table(None, "client", "file", "Fingerpost")
    for place in _places(project=project):
        if place.present:
            made.add_row(place.client.name, plain(short(place.file, Path.home())), _standing(place, name))
    if made.row_count == 0:
        click.echo("No MCP client was found here. `fingerpost install CLIENT` writes its file all the same.")
        return 1
    output().print(made)
    click.echo("Write the entry with `fingerpost install CLIENT`.")
    return 0


def _standing(place: Place, name: str) -> str:
    try:
        return "installed" if removing(place.client, place.file, name).needed else "not yet"
    except ConfigError:
        return "its file cannot be read"  # `fingerpost install CLIENT` says why


def _places(*, project: bool) -> tuple[Place, ...]:
    return places(Path.home(), Path.cwd(), sys.platform, os.environ, project=project)


def _place(client: str, *, project: bool) -> Place:
    known = {place.client.name: place for place in _places(project=project)}
    if client in known:
        return known[client]
    near = get_close_matches(client, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    where = "a file of its own in a project" if project else "a file we know"
    message = f"{client!r} is no client with {where}; {hint}"
    raise click.BadParameter(message, param_hint="CLIENT")


def _starting(
    client: Client, wishes: list[str], config: Path | None, servers: Path | None, profile: str | None
) -> tuple[Entry, list[str]]:
    """The client starts `fingerpost stdio`, with the settings that hold here, wherever it starts it from."""
    loaded = read_settings(Asked(config, servers, as_json=False))
    notes = [_unknown_profile(profile)] if profile and profile not in loaded.settings.profiles else []
    if not loaded.specs:
        notes.append("no servers are configured yet: name a file with --servers, or run `fingerpost import`")
    if borrowed := _borrowed(loaded.files):
        notes.append(
            f"the settings use {', '.join(borrowed)}, set in this shell: {client.label} must have the same, "
            "and what is started from a desktop does not read your shell's profile"
        )
    files: list[str] = []
    if (settings_file := _settings_file(config)) is not None:
        files += ["--config", str(settings_file)]
    if (named := servers or os.environ.get(SERVERS_FILE)) is not None:
        files += ["--servers", str(Path(named).expanduser().absolute())]
    beside = Path(sys.executable).with_name("fingerpost")
    # Programs with windows do not have the shell's PATH: the command is written whole.
    command, first = (str(beside), []) if beside.is_file() else (sys.executable, ["-m", "fingerpost"])
    return started(client, command, [*first, "stdio", *wishes, *files]), notes


def _borrowed(files: Iterable[str]) -> list[str]:
    """The variables of this shell that these files take something from."""
    scope = Scope(environ=os.environ, folder=Path.cwd(), home=Path.home())
    names: set[str] = set()
    for file in files:
        text = Path(file).read_text(encoding="utf-8-sig", errors="replace")
        names.update(taken.name for taken in expand(text, scope).taken)
    return sorted(names - EVERYWHERE)


def _settings_file(config: Path | None) -> Path | None:
    sources = Sources(config=config, servers=None, overrides={}, environ=os.environ, cwd=Path.cwd())
    found = config_path(sources)
    return None if found is None else found.absolute()


def _connecting(
    client: Client, path: str, config: Path | None, servers: Path | None
) -> tuple[Entry, list[str]]:
    """The client connects to the address that the settings give the gateway."""
    if client.url is None:
        message = f"{client.label} starts programs only; its file takes no addresses"
        raise ConfigError(message, hint="leave --http away")
    settings = read_settings(Asked(config, servers, as_json=False)).settings
    gateway = settings.gateway
    if gateway.port == 0 and gateway.public_url is None:
        message = "the gateway's port is 0, another at each start"
        raise ConfigError(message, hint="set gateway.port to a fixed one")
    profile = path.removeprefix("/p/")
    notes = [_unknown_profile(profile)] if path.startswith("/p/") and profile not in settings.profiles else []
    needs_key = (gateway.require_key or is_exposed(gateway)) and gateway.sign_in is None
    if needs_key:
        notes.append(_key_note(client))
    notes.append("the gateway has to run: `fingerpost serve`")
    url = f"{_address(gateway)}/mcp{path}"
    return connected(client, url, key_variable=KEY_VARIABLE if needs_key else None), notes


def _key_note(client: Client) -> str:
    if client.variable is None and not client.is_toml:
        return "a key is needed: make one with `fingerpost keys add NAME`, and add it to the entry's headers"
    return f"a key is needed in the variable {KEY_VARIABLE}: `fingerpost keys add NAME` makes one"


def _unknown_profile(name: str) -> str:
    return f"no profile is named {name} in the settings at the moment"


def _address(gateway: GatewaySettings) -> str:
    if gateway.public_url is not None:
        return gateway.public_url.rstrip("/")
    host = "127.0.0.1" if gateway.host in ("0.0.0.0", "::") else gateway.host  # noqa: S104 - not bound here
    return f"http://[{host}]:{gateway.port}" if ":" in host else f"http://{host}:{gateway.port}"


def _install(place: Place, name: str, entry: Entry, notes: list[str], *, yes: bool, dry_run: bool) -> int:
    change = installing(place.client, place.file, name, entry)
    if is_switched_off(place.client, change, name):
        notes.append(f"the entry is switched off in {place.client.label}, and stays so: switch it on there")
    if not change.needed:
        click.echo(f"{place.client.label} has this entry already.")
    else:
        _show(change, place)
    for note in notes:
        click.echo(styled("note: ", fg="yellow") + note, err=True)
    if dry_run or not change.needed:
        return 0
    _write(change, place, yes=yes)
    click.echo(f"Restart {place.client.label} to use it.")
    return 0


def _undo(place: Place, name: str, *, yes: bool, dry_run: bool) -> int:
    change = removing(place.client, place.file, name)
    if not change.needed:
        click.echo(f"{place.client.label} has no entry named {name}.")
        return 0
    _show(change, place)
    if not dry_run:
        _write(change, place, yes=yes)
    return 0


def _show(change: Change, place: Place) -> None:
    for line in difference(change, short(place.file, Path.home()), place.client):
        click.echo(styled(line, fg={"+": "green", "-": "red", "@": "cyan"}.get(line[:1])))


def _write(change: Change, place: Place, *, yes: bool) -> None:
    if not place.present and place.scope == "user" and not change.file.parent.is_dir():
        absent = f"{place.client.label} does not seem to be here; {change.file.parent} is made"
        click.echo(styled("note: ", fg="yellow") + absent, err=True)
    if not yes:
        verb = "Remove" if change.after is None else "Write"
        confirmed(f"{verb} {change.file}?", abort=True)
    backup = make(change, datetime.now().astimezone())
    kept = f"; the old one is {backup}" if backup else ""
    click.echo(f"{'Removed' if change.after is None else 'Wrote'} {change.file}{kept}.")
