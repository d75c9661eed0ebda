"""`fingerpost install`: add Fingerpost to the configuration of an MCP client, or remove it.

An edited file is parsed again before it is written. If anything but the entry changed, nothing is written
and the error contains the entry to paste.
"""

from __future__ import annotations

import copy
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import datetime
from difflib import get_close_matches, unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click

from fingerpost.catalog import escape_invisible_except
from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.redaction import scrub
from fingerpost.settings.client_files import (
    CLIENT_FILE_LOCATIONS,
    get_base_folders,
    read_drafts,
    shorten_path,
)
from fingerpost.settings.document import SettingsDocument, parse_json, parse_toml, read_document
from fingerpost.settings.problems import Problem
from fingerpost.settings.servers_file import (
    PRIVATE_MODE,
    NotEditable,
    drop_json,
    drop_toml,
    put_json,
    put_toml,
    write_atomically,
)
from fingerpost.settings.sources import SERVERS_FILE_VARIABLE, Sources, find_config
from fingerpost.settings.variables import VariableScope, expand, register_literal_secrets
from fingerpost.surfaces.cli.common import read_settings
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import print_note, print_table, style_change
from fingerpost.surfaces.cli.terminal_input import confirm
from fingerpost.surfaces.http.authenticator import is_exposed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fingerpost.settings import GatewaySettings, Loaded

ServerEntry = dict[str, object]


@frozen
class InstallClient:
    """An MCP client. `servers_path` is the path of the servers in its file."""

    name: str
    label: str
    servers_path: tuple[str, ...] = ("mcpServers",)
    files: tuple[str, ...] = ()  # names of files known to `discover` that may be written; empty: any
    extra: Mapping[str, object] = field(default_factory=dict[str, object])  # in a stdio entry
    url: str | None = "url"  # the member for a URL; None: URLs are not supported in this file
    http_extra: Mapping[str, object] = field(default_factory=dict[str, object])
    variable: str | None = None  # syntax for an environment variable; None: not supported

    @property
    def is_toml(self) -> bool:
        return self.name == "codex"


CLIENTS: Final = {
    client.name: client
    for client in (
        InstallClient(name="claude-desktop", label="Claude Desktop", url=None),
        InstallClient(
            name="claude-code",
            label="Claude Code",
            extra={"type": "stdio"},
            http_extra={"type": "http"},
            variable="${%s}",
        ),
        InstallClient(name="cursor", label="Cursor", variable="${env:%s}"),
        InstallClient(
            name="vscode",
            label="VS Code",
            servers_path=("servers",),
            files=("mcp.json",),
            extra={"type": "stdio"},
            http_extra={"type": "http"},
            variable="${env:%s}",
        ),
        InstallClient(name="windsurf", label="Windsurf", url="serverUrl", variable="${env:%s}"),
        InstallClient(name="zed", label="Zed", servers_path=("context_servers",), extra={"source": "custom"}),
        InstallClient(name="gemini-cli", label="Gemini CLI", url="httpUrl", variable="${%s}"),
        InstallClient(name="codex", label="Codex", servers_path=("mcp_servers",)),
        InstallClient(name="cline", label="Cline", http_extra={"type": "streamableHttp"}),
        InstallClient(
            name="roo-code", label="Roo Code", http_extra={"type": "streamable-http"}, variable="${env:%s}"
        ),
    )
}


# Connection members, which are not kept from an older entry.
CONNECTION_KEYS: Final = frozenset(
    {"type", "source", "command", "args", "url", "serverUrl", "httpUrl", "headers", "bearer_token_env_var"}
)


@frozen(kw_only=False)
class ClientFile:
    """A configuration file of a client, and whether the client seems installed."""

    client: InstallClient
    file: Path
    scope: Literal["user", "project"]
    present: bool


def list_client_files(
    home: Path, cwd: Path, platform: str, environ: Mapping[str, str], *, project: bool = False
) -> tuple[ClientFile, ...]:
    """Return the configuration file of each client: an existing one, else the default."""
    folders = get_base_folders(home, cwd, platform, environ)
    found: list[ClientFile] = []
    for client in CLIENTS.values():
        candidates = [
            folders[location.base] / location.path
            for location in CLIENT_FILE_LOCATIONS
            if location.client == client.name
            and (location.base == "project") == project
            and (not client.files or Path(location.path).name in client.files)
        ]
        if candidates:
            existing = [file for file in candidates if _is_client_present(file, home, cwd)]
            scope: Literal["user", "project"] = "project" if project else "user"
            found.append(ClientFile(client, (existing or candidates)[0], scope, present=bool(existing)))
    return tuple(found)


def _is_client_present(file: Path, home: Path, cwd: Path) -> bool:
    """Return whether the file or its own folder exists."""
    try:
        if file.is_file():
            return True
        return file.parent.is_dir() and file.parent not in (home, cwd)
    except OSError:
        return False


def build_http_entry(client: InstallClient, url: str, *, key_variable: str | None) -> ServerEntry:
    """Return the entry for a client that connects; the key is a reference to a variable."""
    assert client.url is not None
    entry: ServerEntry = {**client.http_extra, client.url: url}
    if key_variable is None:
        return entry
    if client.is_toml:
        entry["bearer_token_env_var"] = key_variable
    elif client.variable is not None:
        entry["headers"] = {"Authorization": f"Bearer {client.variable % key_variable}"}
    return entry


_BOM: Final = b"\xef\xbb\xbf"
_BACKUP_SUFFIX: Final = ".backup-"


@frozen(kw_only=False)
class ConfigFileChange:
    """The content of a file before and after. None means no file."""

    file: Path
    before: bytes | None = field(repr=False)
    after: bytes | None = field(repr=False)

    @property
    def needed(self) -> bool:
        return self.before != self.after


def plan_install(client: InstallClient, file: Path, name: str, entry: ServerEntry) -> ConfigFileChange:
    """Return the change that sets the server `name` to `entry`. Raises `ConfigError`."""
    data = _read_bytes(file)
    document = _read_client_file(client, file) if data is not None else None
    values = _get_values(document)
    present = _look_up(values, client.servers_path).get(name)
    older = cast("ServerEntry", present) if isinstance(present, dict) else {}
    kept = {key: value for key, value in older.items() if key not in CONNECTION_KEYS}  # such as switches
    entry = {**kept, **entry}
    if present == entry:
        return ConfigFileChange(file, data, data)
    expected = copy.deepcopy(values)
    node = expected
    for key in client.servers_path:
        inner: Any = node.setdefault(key, {})
        if not isinstance(inner, dict):
            raise _build_paste_error(client, file, name, entry, f'"{key}" is not a table of servers')
        node = cast("dict[str, Any]", inner)
    node[name] = entry
    return _plan_checked_edit(
        client, file, data, lambda text: _put_entry(client, text, name, entry), expected, (name, entry)
    )


def plan_removal(client: InstallClient, file: Path, name: str) -> ConfigFileChange:
    """Return the change that removes the server `name`, or restores the backup if nothing else changed."""
    data = _read_bytes(file)
    values = _get_values(_read_client_file(client, file)) if data is not None else {}
    present = _look_up(values, client.servers_path).get(name)
    if data is None or present is None:
        return ConfigFileChange(file, data, data)
    entry = cast("ServerEntry", present)
    original = _find_original(client, file, data, name, entry)
    if original is not None:
        return ConfigFileChange(file, data, original[0])
    expected = copy.deepcopy(values)
    del _look_up(expected, client.servers_path)[name]
    drop = drop_toml if client.is_toml else drop_json
    return _plan_checked_edit(
        client, file, data, lambda text: drop(text, client.servers_path, name), expected, None
    )


def format_change(change: ConfigFileChange, shown: str, client: InstallClient) -> list[str]:
    """Return the change as lines of a unified diff, secrets masked."""
    _remember_secrets(change, client)
    before, after = (_decode(data or b"").splitlines() for data in (change.before, change.after))
    lines = unified_diff(before, after, f"{shown} (now)", f"{shown} (then)", lineterm="")
    return [escape_invisible_except(scrub(line), keep="\t\\") for line in lines]


def apply_change(change: ConfigFileChange, now: datetime) -> Path | None:
    """Write the change atomically. Return the path of the backup, if there was a file."""
    target = change.file.resolve()  # keep symbolic links
    if _read_bytes(target) != change.before:
        message = f"{change.file} was changed by another program meanwhile"
        raise ConfigError(message, hint="run the command again")
    try:
        mode = target.stat().st_mode & 0o777 if change.before is not None else PRIVATE_MODE
        backup = None
        if change.before is not None:
            backup = _find_free_backup(target, now)
            write_atomically(backup, change.before, mode)
        if change.after is None:
            target.unlink()
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, change.after, mode)
    except OSError as error:
        message = f"{change.file} cannot be written: {error.strerror or error}"
        raise ConfigError(message, hint="check the permissions of the file and its folder") from error
    return backup


def is_switched_off(client: InstallClient, change: ConfigFileChange, name: str) -> bool:
    """Return whether the entry is disabled; a switch of an older entry is kept."""
    entry = _look_up(_parse_values(client, _decode(change.after or b"")), client.servers_path).get(name)
    switches = cast("ServerEntry", entry) if isinstance(entry, dict) else {}
    return switches.get("disabled") is True or switches.get("enabled") is False


def format_snippet(client: InstallClient, name: str, entry: ServerEntry) -> str:
    """Return the entry as the text of a new file."""
    return _put_entry(client, "", name, entry).rstrip()


def _plan_checked_edit(
    client: InstallClient,
    file: Path,
    data: bytes | None,
    edit: Callable[[str], str],
    expected: Mapping[str, Any],
    pasted: tuple[str, ServerEntry] | None,
) -> ConfigFileChange:
    mark = _BOM if data is not None and data.startswith(_BOM) else b""
    try:
        text = edit(_decode(data or b""))
        sound = _parse_values(client, text) == expected
    except (NotEditable, ValueError, TypeError, IndexError):
        text, sound = "", False
    if not sound:
        if pasted is not None:
            raise _build_paste_error(
                client, file, *pasted, "its way of writing is not one we can change safely"
            )
        message = f"the entry cannot be taken out of {file} safely"
        raise ConfigError(message, hint="remove it by hand; nothing was changed")
    return ConfigFileChange(file, data, mark + text.encode())


def _build_paste_error(
    client: InstallClient, file: Path, name: str, entry: ServerEntry, reason: str
) -> ConfigError:
    message = f"{file} was left as it is: {reason}"
    return ConfigError(message, hint=f"add this to it by hand:\n{format_snippet(client, name, entry)}")


def _find_original(
    client: InstallClient, file: Path, data: bytes, name: str, entry: ServerEntry
) -> tuple[bytes | None] | None:
    """Return the content before the installation, if only the entry was added since."""
    candidates: list[bytes | None] = [None]
    for backup in sorted(file.resolve().parent.glob(f"{file.resolve().name}{_BACKUP_SUFFIX}*"), reverse=True):
        candidates.insert(-1, _read_bytes(backup))
    for content in candidates:
        try:
            text = _put_entry(client, _decode(content or b""), name, entry)
            without = name not in _look_up(
                _parse_values(client, _decode(content or b"")), client.servers_path
            )
        except (NotEditable, ValueError, TypeError, IndexError):
            continue
        mark = _BOM if content is not None and content.startswith(_BOM) else b""
        if without and mark + text.encode() == data:
            return (content,)
    return None


def _put_entry(client: InstallClient, text: str, name: str, entry: ServerEntry) -> str:
    return (put_toml if client.is_toml else put_json)(text, client.servers_path, name, entry)


def _read_client_file(client: InstallClient, file: Path) -> SettingsDocument:
    document = read_document(file, str(file), toml=client.is_toml)
    if isinstance(document, Problem):
        raise ConfigError(str(document), hint=document.fix, problems=(document,))
    return document


def _parse_values(client: InstallClient, text: str) -> dict[str, Any]:
    if client.is_toml:
        return tomllib.loads(text)
    document = parse_json(text, "file", Path())
    if isinstance(document, Problem):
        raise ValueError(str(document))
    return _get_values(document)


def _get_values(document: SettingsDocument | None) -> dict[str, Any]:
    return dict(document.values) if document is not None else {}


def _look_up(values: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    node: Any = values
    for key in path:
        node = cast("Any", node).get(key) if isinstance(node, dict) else None
    return cast("dict[str, Any]", node) if isinstance(node, dict) else {}


def _remember_secrets(change: ConfigFileChange, client: InstallClient) -> None:
    """Register the secrets of other servers for masking."""
    for data in (change.before, change.after):
        parse = parse_toml if client.is_toml else parse_json
        document = parse(_decode(data or b""), "file", Path())
        if isinstance(document, SettingsDocument):
            drafts, _ = read_drafts(document)
            for draft in drafts:
                register_literal_secrets(draft.values)


def _read_bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        message = f"{file} cannot be read: {error.strerror or error}"
        raise ConfigError(message, hint="check the path and its permissions") from error


def _decode(data: bytes) -> str:
    return data.removeprefix(_BOM).decode("utf-8", "strict")


def _find_free_backup(target: Path, now: datetime) -> Path:
    name = f"{target.name}{_BACKUP_SUFFIX}{now:%Y%m%d-%H%M%S}"
    backup, number = target.with_name(name), 1
    while backup.exists():
        number += 1
        backup = target.with_name(f"{name}-{number}")
    return backup


KEY_VARIABLE = "FINGERPOST_KEY"
# Programs started from a desktop have these too.
COMMON_VARIABLES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"})


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
        return _list_clients(project=project, name=name)
    client_file = _find_client_file(client, project=project)
    if profile is not None and mode != "auto":
        message = "a profile has its own mode; give --mode or --profile"
        raise click.UsageError(message)
    if undo:
        return _remove_entry(client_file, name, yes=yes, dry_run=dry_run)
    loaded = read_settings(CommonOptions(config, servers))
    notes: list[str] = []
    if profile is not None and profile not in loaded.settings.profiles:
        notes.append(f"no profile is named {profile} in the settings at the moment")
    if way == "http":
        path = f"/p/{profile}" if profile else "" if mode == "auto" else f"/{mode}"
        entry = _describe_http_entry(client_file.client, path, loaded.settings.gateway, notes)
    else:
        mode_options = ["--profile", profile] if profile else [] if mode == "auto" else ["--mode", mode]
        entry = _describe_stdio_entry(client_file.client, mode_options, config, servers, loaded, notes)
    return _add_entry(client_file, name, entry, notes, yes=yes, dry_run=dry_run)


def _list_clients(*, project: bool, name: str) -> int:
    rows = [
        (
            client_file.client.name,
            shorten_path(client_file.file, Path.home()),
            _describe_install_state(client_file, name),
        )
        for client_file in _list_current_files(project=project)
        if client_file.present
    ]
    if not rows:
        click.echo("No MCP client was found here. `fingerpost install CLIENT` writes its file all the same.")
        return 1
    print_table(None, ("client", "file", "Fingerpost"), rows)
    click.echo("Write the entry with `fingerpost install CLIENT`.")
    return 0


def _describe_install_state(client_file: ClientFile, name: str) -> str:
    try:
        return "installed" if plan_removal(client_file.client, client_file.file, name).needed else "not yet"
    except ConfigError:
        return "its file cannot be read"  # `fingerpost install CLIENT` reports the reason


def _list_current_files(*, project: bool) -> tuple[ClientFile, ...]:
    return list_client_files(Path.home(), Path.cwd(), sys.platform, os.environ, project=project)


def _find_client_file(client: str, *, project: bool) -> ClientFile:
    known = {client_file.client.name: client_file for client_file in _list_current_files(project=project)}
    if client in known:
        return known[client]
    near = get_close_matches(client, known, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
    where = "a file of its own in a project" if project else "a file we know"
    message = f"{client!r} is no client with {where}; {hint}"
    raise click.BadParameter(message, param_hint="CLIENT")


def _describe_stdio_entry(
    client: InstallClient,
    mode_options: list[str],
    config: Path | None,
    servers: Path | None,
    loaded: Loaded,
    notes: list[str],
) -> ServerEntry:
    """Return the entry that starts `fingerpost stdio` with absolute paths of the settings. Adds notes."""
    if not loaded.specs:
        notes.append("no servers are configured yet: name a file with --servers, or run `fingerpost import`")
    if variables := _find_variables(loaded.files):
        notes.append(
            f"the settings use {', '.join(variables)}, set in this shell: {client.label} must have the same, "
            "and what is started from a desktop does not read your shell's profile"
        )
    files: list[str] = []
    sources = Sources(config=config, servers=None, overrides={}, environ=os.environ, cwd=Path.cwd())
    if (settings_file := find_config(sources)) is not None:
        files += ["--config", str(settings_file.absolute())]
    if (named := servers or os.environ.get(SERVERS_FILE_VARIABLE)) is not None:
        files += ["--servers", str(Path(named).expanduser().absolute())]
    beside = Path(sys.executable).with_name("fingerpost")
    # Desktop programs do not have the shell's PATH: write the full path of the command.
    command, first = (str(beside), []) if beside.is_file() else (sys.executable, ["-m", "fingerpost"])
    return {**client.extra, "command": command, "args": [*first, "stdio", *mode_options, *files]}


def _find_variables(files: Iterable[str]) -> list[str]:
    """Return the names of environment variables that these files use."""
    scope = VariableScope(environ=os.environ, folder=Path.cwd(), home=Path.home())
    names: set[str] = set()
    for file in files:
        text = Path(file).read_text(encoding="utf-8-sig", errors="replace")
        names.update(taken.name for taken in expand(text, scope).taken)
    return sorted(names - COMMON_VARIABLES)


def _describe_http_entry(
    client: InstallClient, path: str, gateway: GatewaySettings, notes: list[str]
) -> ServerEntry:
    """Return the entry that connects to the gateway. Adds notes."""
    if client.url is None:
        message = f"{client.label} starts programs only; its file takes no addresses"
        raise ConfigError(message, hint="leave --http away")
    if gateway.port == 0 and gateway.public_url is None:
        message = "the gateway's port is 0, another at each start"
        raise ConfigError(message, hint="set gateway.port to a fixed one")
    needs_key = (gateway.require_key or is_exposed(gateway)) and gateway.sign_in is None
    if needs_key and client.variable is None and not client.is_toml:
        notes.append(
            "a key is needed: make one with `fingerpost keys add NAME`, and add it to the entry's headers"
        )
    elif needs_key:
        notes.append(f"a key is needed in the variable {KEY_VARIABLE}: `fingerpost keys add NAME` makes one")
    notes.append("the gateway has to run: `fingerpost serve`")
    url = f"{_format_address(gateway)}/mcp{path}"
    return build_http_entry(client, url, key_variable=KEY_VARIABLE if needs_key else None)


def _format_address(gateway: GatewaySettings) -> str:
    if gateway.public_url is not None:
        return gateway.public_url.rstrip("/")
    host = "127.0.0.1" if gateway.host in ("0.0.0.0", "::") else gateway.host  # noqa: S104 - not bound here
    return f"http://[{host}]:{gateway.port}" if ":" in host else f"http://{host}:{gateway.port}"


def _add_entry(
    client_file: ClientFile, name: str, entry: ServerEntry, notes: list[str], *, yes: bool, dry_run: bool
) -> int:
    change = plan_install(client_file.client, client_file.file, name, entry)
    if is_switched_off(client_file.client, change, name):
        notes.append(
            f"the entry is switched off in {client_file.client.label}, and stays so: switch it on there"
        )
    if not change.needed:
        click.echo(f"{client_file.client.label} has this entry already.")
    else:
        _show_change(change, client_file)
    for note in notes:
        print_note(note)
    if dry_run or not change.needed:
        return 0
    _write_change(change, client_file, yes=yes)
    click.echo(f"Restart {client_file.client.label} to use it.")
    return 0


def _remove_entry(client_file: ClientFile, name: str, *, yes: bool, dry_run: bool) -> int:
    change = plan_removal(client_file.client, client_file.file, name)
    if not change.needed:
        click.echo(f"{client_file.client.label} has no entry named {name}.")
        return 0
    _show_change(change, client_file)
    if not dry_run:
        _write_change(change, client_file, yes=yes)
    return 0


def _show_change(change: ConfigFileChange, client_file: ClientFile) -> None:
    for line in format_change(change, shorten_path(client_file.file, Path.home()), client_file.client):
        click.echo(style_change(line))


def _write_change(change: ConfigFileChange, client_file: ClientFile, *, yes: bool) -> None:
    if not client_file.present and client_file.scope == "user" and not change.file.parent.is_dir():
        absent = f"{client_file.client.label} does not seem to be here; {change.file.parent} is made"
        print_note(absent)
    if not yes:
        verb = "Remove" if change.after is None else "Write"
        confirm(f"{verb} {change.file}?", abort=True)
    backup = apply_change(change, datetime.now().astimezone())
    kept = f"; the old one is {backup}" if backup else ""
    click.echo(f"{'Removed' if change.after is None else 'Wrote'} {change.file}{kept}.")
