"""`fingerpost install`: add Fingerpost to the configuration of an MCP client, or remove it.

An edited file is parsed again before it is written. If anything but the entry changed, nothing is written
and the error contains the entry to paste. `--replace` moves the client's other servers to Fingerpost's
servers file; what was moved is recorded for `--undo`.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from datetime import datetime
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click

from fingerpost.errors import ConfigError
from fingerpost.frozen import frozen
from fingerpost.settings.client_files import (
    FoundClientFile,
    McpClient,
    ServerDraft,
    discover_client_files,
    get_base_folders,
    is_other_server,
    merge_servers,
    read_clients,
    read_drafts,
    shorten_path,
)
from fingerpost.settings.document import SettingsDocument, parse_json, read_document
from fingerpost.settings.problems import Problem
from fingerpost.settings.servers_file import (
    PRIVATE_MODE,
    NotEditable,
    ServersFile,
    drop_json,
    drop_toml,
    put_json,
    put_toml,
    write_atomically,
)
from fingerpost.settings.sources import (
    CONFIG_FILE_VARIABLE,
    OTHER_NAMES,
    PREFIX,
    SERVERS_FILE_VARIABLE,
    Sources,
    find_config,
    get_default_store_file,
)
from fingerpost.settings.variables import VariableScope, expand
from fingerpost.surfaces.cli.client_import import (
    BACKUP_SUFFIX,
    BOM,
    REVIEW_NEXT,
    ConfigFileChange,
    decode_text,
    explain_invalid_target,
    find_free_backup,
    plan_merge,
    read_bytes,
    read_existing,
    show_change,
    write_change,
)
from fingerpost.surfaces.cli.common import read_settings
from fingerpost.surfaces.cli.options import CommonOptions
from fingerpost.surfaces.cli.screen import print_note, print_table
from fingerpost.surfaces.cli.terminal_input import confirm
from fingerpost.surfaces.http.authenticator import is_exposed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fingerpost.settings import GatewaySettings, Loaded

ServerEntry = dict[str, object]


# Connection members, which are not kept from an older entry.
CONNECTION_KEYS: Final = frozenset(
    {"type", "source", "command", "args", "url", "serverUrl", "httpUrl", "headers", "bearer_token_env_var"}
)


# Variables that are written into a stdio entry. The last two decide where the settings and the store are.
_FOLDER_VARIABLES: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME")
_OWN_VARIABLES: Final = ("PATH", *_FOLDER_VARIABLES)


@frozen(kw_only=False)
class ClientFile:
    """A configuration file of a client, and whether the client seems installed."""

    client: McpClient
    file: Path
    scope: Literal["user", "project"]
    present: bool


def list_client_files(
    home: Path, cwd: Path, platform: str, environ: Mapping[str, str], *, project: bool = False
) -> tuple[ClientFile, ...]:
    """Return the configuration file of each client: an existing one, else the default."""
    folders = get_base_folders(home, cwd, platform, environ)
    found: list[ClientFile] = []
    for client in read_clients().values():
        candidates = [
            folders[base] / path
            for base, path in client.list_files()
            if (base == "project") == project and (not client.written or Path(path).name in client.written)
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


def build_http_entry(client: McpClient, url: str, *, key_variable: str | None) -> ServerEntry:
    """Return the entry for a client that connects; the key is a reference to a variable."""
    entry: ServerEntry = {**client.http_extra, client.url: url}
    if key_variable is None:
        return entry
    if client.is_toml:
        entry["bearer_token_env_var"] = key_variable
    elif client.variable is not None:
        entry["headers"] = {"Authorization": f"Bearer {client.variable % key_variable}"}
    return entry


def plan_install(
    client: McpClient, file: Path, name: str, entry: ServerEntry, drop: Iterable[str] = ()
) -> ConfigFileChange:
    """Return the change that sets the server `name` and removes those in `drop`. Raises `ConfigError`."""
    drop = tuple(drop)
    data = read_bytes(file)
    document = _read_client_file(client, file) if data is not None else None
    values = _get_values(document)
    present = _look_up(values, client.servers_path).get(name)
    entry = _keep_options(entry, cast("ServerEntry", present) if isinstance(present, dict) else {})
    if present == entry and not drop:
        return ConfigFileChange(file, data, data)
    expected = copy.deepcopy(values)
    node = expected
    for key in client.servers_path:
        inner: Any = node.setdefault(key, {})
        if not isinstance(inner, dict):
            raise _build_paste_error(client, file, name, entry, f'"{key}" is not a table of servers')
        node = cast("dict[str, Any]", inner)
    for other in drop:
        node.pop(other, None)
    node[name] = entry

    def edit(text: str) -> str:
        for other in drop:
            text = _drop_entry(client, text, other)
        return _put_entry(client, text, name, entry)

    return _plan_checked_edit(client, file, data, edit, expected, (name, entry))


def _keep_options(entry: ServerEntry, older: ServerEntry) -> ServerEntry:
    """Return the entry with what the older one says about other things than the connection."""
    kept = {key: value for key, value in older.items() if key not in CONNECTION_KEYS}  # such as switches
    old_env, new_env = (cast("ServerEntry", one.get("env") or {}) for one in (kept, entry))
    env = {**{name: value for name, value in old_env.items() if name not in _OWN_VARIABLES}, **new_env}
    return {**kept, **entry, "env": env} if env else {**kept, **entry}


def plan_removal(client: McpClient, file: Path, name: str) -> ConfigFileChange:
    """Return the change that removes the server `name`, or restores the backup if nothing else changed."""
    data = read_bytes(file)
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
    return _plan_checked_edit(
        client, file, data, lambda text: _drop_entry(client, text, name), expected, None
    )


def is_switched_off(client: McpClient, change: ConfigFileChange, name: str) -> bool:
    """Return whether the entry is disabled; a switch of an older entry is kept."""
    entry = _look_up(_parse_values(client, decode_text(change.after or b"")), client.servers_path).get(name)
    switches = cast("ServerEntry", entry) if isinstance(entry, dict) else {}
    return switches.get("disabled") is True or switches.get("enabled") is False


def format_snippet(client: McpClient, name: str, entry: ServerEntry) -> str:
    """Return the entry as the text of a new file."""
    return _put_entry(client, "", name, entry).rstrip()


def _plan_checked_edit(
    client: McpClient,
    file: Path,
    data: bytes | None,
    edit: Callable[[str], str],
    expected: Mapping[str, Any],
    pasted: tuple[str, ServerEntry] | None,
) -> ConfigFileChange:
    mark = BOM if data is not None and data.startswith(BOM) else b""
    try:
        text = edit(decode_text(data or b""))
        sound = _parse_values(client, text) == expected
    except (NotEditable, ValueError, TypeError, IndexError):
        text, sound = "", False
    if not sound:
        if pasted is not None:
            raise _build_paste_error(
                client, file, *pasted, "it is written in a form that cannot be changed safely"
            )
        message = f"the entry cannot be removed from {file} safely"
        raise ConfigError(message, hint="remove it with an editor; nothing was changed")
    return ConfigFileChange(file, data, mark + text.encode())


def _build_paste_error(
    client: McpClient, file: Path, name: str, entry: ServerEntry, reason: str
) -> ConfigError:
    message = f"{file} was not changed: {reason}"
    return ConfigError(message, hint=f"add this to it with an editor:\n{format_snippet(client, name, entry)}")


def _find_original(
    client: McpClient, file: Path, data: bytes, name: str, entry: ServerEntry
) -> tuple[bytes | None] | None:
    """Return the content before the installation, if only the entry was added since."""
    candidates: list[bytes | None] = [None]
    for backup in sorted(file.resolve().parent.glob(f"{file.resolve().name}{BACKUP_SUFFIX}*"), reverse=True):
        candidates.insert(-1, read_bytes(backup))
    for content in candidates:
        try:
            text = _put_entry(client, decode_text(content or b""), name, entry)
            without = name not in _look_up(
                _parse_values(client, decode_text(content or b"")), client.servers_path
            )
        except (NotEditable, ValueError, TypeError, IndexError):
            continue
        mark = BOM if content is not None and content.startswith(BOM) else b""
        if without and mark + text.encode() == data:
            return (content,)
    return None


def _put_entry(client: McpClient, text: str, name: str, entry: ServerEntry) -> str:
    return (put_toml if client.is_toml else put_json)(text, client.servers_path, name, entry)


def _drop_entry(client: McpClient, text: str, name: str) -> str:
    return (drop_toml if client.is_toml else drop_json)(text, client.servers_path, name)


def _read_client_file(client: McpClient, file: Path) -> SettingsDocument:
    document = read_document(file, str(file), toml=client.is_toml)
    if isinstance(document, Problem):
        raise ConfigError(str(document), hint=document.fix, problems=(document,))
    return document


def _parse_values(client: McpClient, text: str) -> dict[str, Any]:
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


_RECORDS_FILE_NAME: Final = "moved-servers.json"  # beside the default store


@frozen
class FileVersion:
    """A written file: its hash, and the backup of what was there before (None: no file)."""

    file: str
    backup: str | None
    written: str


@frozen
class MoveRecord:
    """What `install --replace` changed, kept for `--undo`."""

    name: str  # of our entry
    client: FileVersion
    servers: FileVersion
    moved: ServerEntry = field(repr=False)  # the entries of the client's file, as they were
    added: ServerEntry = field(repr=False)  # the entries of the servers file, as written


@frozen
class MovePlan:
    """The changes of `install --replace`."""

    client: ConfigFileChange
    servers: ConfigFileChange
    moved: ServerEntry = field(repr=False)
    added: ServerEntry = field(repr=False)
    renamed: tuple[str, ...] = ()


def find_other_servers(client: McpClient, file: Path, name: str) -> dict[str, ServerDraft]:
    """Return the other servers in the client's file: they can be called without Fingerpost."""
    if not file.is_file():
        return {}
    drafts, _ = read_drafts(_read_client_file(client, file))
    return {
        draft.name: draft
        for draft in drafts
        if draft.path == (*client.servers_path, draft.name) and draft.name != name and is_other_server(draft)
    }


def plan_move(
    client_file: ClientFile, name: str, entry: ServerEntry, others: Mapping[str, ServerDraft], servers: Path
) -> MovePlan:
    """Return the changes that move the other servers to the servers file. Raises `ConfigError`."""
    if (reason := explain_invalid_target(servers)) is not None and servers.suffix == ".toml":
        raise ConfigError(reason)
    client = client_file.client
    source = FoundClientFile(
        client=client.name, file=client_file.file, shown=str(client_file.file), drafts=tuple(others.values())
    )
    existing = read_existing(servers)
    known = {draft.name for one in existing for draft in one.drafts}
    merged = merge_servers((*existing, source))
    # A project's file may come from someone else; of the user's own file the tools were in use already.
    review = client_file.scope == "project"
    written = _look_up(_get_values(_read_client_file(client, client_file.file)), client.servers_path)
    options = {"review_new": True} if review else {}
    return MovePlan(
        client=plan_install(client, client_file.file, name, entry, others),
        servers=plan_merge(servers, merged, review=review),
        moved={server: written[server] for server in others},
        added={
            server: {**given, **options} for server, given in merged.servers.items() if server not in known
        },
        renamed=tuple(f"{one.name} becomes {one.new_name}" for one in merged.renamed),
    )


def record_move(plan: MovePlan, name: str, now: datetime) -> None:
    """Record the changes for `--undo`, together with those of earlier moves from the same file."""
    earlier = find_move(plan.client.file, name)
    client, servers = (_describe_version(change, now) for change in (plan.client, plan.servers))
    moved, added = dict(plan.moved), dict(plan.added)
    if earlier is not None:
        moved, added = {**earlier.moved, **moved}, {**earlier.added, **added}
        client = _join_versions(earlier.client, plan.client, client)
        servers = _join_versions(earlier.servers, plan.servers, servers)
    others = [one for one in _read_records() if one != earlier]
    _write_records([*others, MoveRecord(name=name, client=client, servers=servers, moved=moved, added=added)])


def find_move(file: Path, name: str) -> MoveRecord | None:
    """Return what was moved out of this file."""
    known = str(file.resolve())
    return next((one for one in _read_records() if (one.client.file, one.name) == (known, name)), None)


def forget_move(record: MoveRecord) -> None:
    """Remove the record of a move that was undone."""
    _write_records([one for one in _read_records() if one != record])


def plan_return(
    client: McpClient, record: MoveRecord
) -> tuple[ConfigFileChange, ConfigFileChange, tuple[str, ...]]:
    """Return the changes of both files that undo a move, and the servers that stay in the servers file.

    A file that is as it was written gets its old content. Of one that was changed since, only the entries are
    changed; raises `ConfigError` where that is not safe.
    """
    ours, kept = _plan_servers_return(record)
    file = Path(record.client.file)
    data = read_bytes(file)
    if (original := _find_version(record.client, data)) is not None:
        return ConfigFileChange(file, data, original[0]), ours, kept
    values = _get_values(_read_client_file(client, file)) if data is not None else {}
    present = _look_up(values, client.servers_path)
    changed = [name for name, entry in record.moved.items() if present.get(name, entry) != entry]
    old_file = f"the old file is {record.client.backup}" if record.client.backup else "nothing was changed"
    if changed:
        message = f"{file} was changed since, and has other entries for {', '.join(changed)}"
        raise ConfigError(message, hint=f"rename or remove them, then run this again; {old_file}")
    expected = copy.deepcopy(values)
    node = expected
    for key in client.servers_path:
        node = cast("dict[str, Any]", node.setdefault(key, {}))
    node.pop(record.name, None)
    missing = {name: cast("ServerEntry", record.moved[name]) for name in record.moved if name not in present}
    node.update(missing)

    def edit(text: str) -> str:
        text = _drop_entry(client, text, record.name)
        for name, entry in missing.items():
            text = _put_entry(client, text, name, entry)
        return text

    try:
        return _plan_checked_edit(client, file, data, edit, expected, None), ours, kept
    except ConfigError:
        message = f"{file} was changed since, and the entries cannot be put back safely"
        raise ConfigError(message, hint=f"add them with an editor; {old_file}") from None


def _plan_servers_return(record: MoveRecord) -> tuple[ConfigFileChange, tuple[str, ...]]:
    file = Path(record.servers.file)
    data = read_bytes(file)
    if (original := _find_version(record.servers, data)) is not None:
        return ConfigFileChange(file, data, original[0]), ()
    if data is None:
        return ConfigFileChange(file, None, None), ()
    present = ServersFile(path=file, shown=str(file)).read_entries()
    text, kept = decode_text(data), list[str]()
    for name, entry in record.added.items():
        if name in present and present[name].values == entry:
            text = drop_json(text, tuple(map(str, present[name].table)), name)
        elif name in present:
            kept.append(name)
    return ConfigFileChange(file, data, text.encode()), tuple(kept)


def _describe_version(change: ConfigFileChange, now: datetime) -> FileVersion:
    target = change.file.resolve()
    backup = str(find_free_backup(target, now)) if change.before is not None else None
    return FileVersion(file=str(target), backup=backup, written=_hash(change.after))


def _join_versions(earlier: FileVersion, change: ConfigFileChange, later: FileVersion) -> FileVersion:
    """Return the oldest content and the newest hash, unless the file was changed between."""
    if earlier.file != later.file:
        return later
    is_unchanged = _hash(change.before) == earlier.written
    return FileVersion(
        file=later.file,
        backup=earlier.backup,
        written=later.written if is_unchanged else "",  # an empty hash: never as it was written
    )


def _find_version(version: FileVersion, data: bytes | None) -> tuple[bytes | None] | None:
    """Return the content before, if the file is as it was written and the backup exists."""
    if data is None or _hash(data) != version.written:
        return None
    if version.backup is None:
        return (None,)
    content = read_bytes(Path(version.backup))
    return None if content is None else (content,)


def _hash(data: bytes | None) -> str:
    return hashlib.sha256(data or b"").hexdigest()


def _get_records_file() -> Path:
    return get_default_store_file().with_name(_RECORDS_FILE_NAME)


def _read_records() -> list[MoveRecord]:
    content = read_bytes(_get_records_file())
    return [
        MoveRecord(
            name=one["name"],
            client=FileVersion(**one["client"]),
            servers=FileVersion(**one["servers"]),
            moved=one["moved"],
            added=one["added"],
        )
        for one in json.loads(content or b"[]")
    ]


def _write_records(records: Iterable[MoveRecord]) -> None:
    file = _get_records_file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps([asdict(record) for record in records], indent=2, ensure_ascii=False, default=str)
    write_atomically(file, text.encode(), PRIVATE_MODE)


KEY_VARIABLE = "FINGERPOST_KEY"
# Programs started from a desktop have these too.
COMMON_VARIABLES = frozenset({"HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "USER"})
_WRITTEN_VARIABLES: Final = frozenset({SERVERS_FILE_VARIABLE, CONFIG_FILE_VARIABLE, *OTHER_NAMES})
_WORKSPACE_VARIABLE: Final = "${workspaceFolder}"
_MAX_NAMED: Final = 8


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
    replace: bool,
    servers: Path | None,
    config: Path | None,
) -> int:
    """Write Fingerpost into the configuration of an MCP client."""
    if client is None:
        return _list_clients(project=project, name=name)
    client_file = _find_client_file(client, project=project)
    if profile is not None and mode != "auto":
        raise click.UsageError("a profile has its own mode; give --mode or --profile")
    if undo and replace:
        raise click.UsageError("--undo undoes --replace, too; leave --replace out")
    if undo:
        return _remove_entry(client_file, name, yes=yes, dry_run=dry_run)
    loaded = read_settings(CommonOptions(config, servers))
    notes: list[str] = []
    if profile is not None and profile not in loaded.settings.profiles:
        notes.append(f"there is no profile named {profile} in the settings")
    if way == "http":
        path = f"/p/{profile}" if profile else "" if mode == "auto" else f"/{mode}"
        entry = _describe_http_entry(client_file.client, path, loaded.settings.gateway, notes)
    else:
        mode_options = ["--profile", profile] if profile else [] if mode == "auto" else ["--mode", mode]
        entry = _describe_stdio_entry(client_file.client, mode_options, config, servers)
    plan = _plan_replacement(client_file, name, entry, loaded, notes) if replace else None
    if way != "http":
        _add_stdio_notes(client_file.client, loaded, plan, notes)
    notes += _describe_remaining(client_file, name, plan.moved if plan else {})
    if plan is None:
        return _add_entry(client_file, name, entry, notes, yes=yes, dry_run=dry_run)
    return _move_servers(client_file, name, plan, notes, yes=yes, dry_run=dry_run)


def _plan_replacement(
    client_file: ClientFile, name: str, entry: ServerEntry, loaded: Loaded, notes: list[str]
) -> MovePlan | None:
    others = find_other_servers(client_file.client, client_file.file, name)
    movable = _find_movable(client_file, others, notes)
    assert loaded.places is not None  # they were loaded from files
    return plan_move(client_file, name, entry, movable, loaded.places.servers) if movable else None


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
        click.echo("No MCP client was found here. `fingerpost install CLIENT` still writes its file.")
        return 1
    print_table(None, ("client", "file", "Fingerpost"), rows)
    click.echo(
        "`fingerpost install CLIENT --replace` connects it and moves its servers to Fingerpost; "
        "without --replace they stay there, too."
    )
    return 0


def _describe_install_state(client_file: ClientFile, name: str) -> str:
    try:
        return (
            "installed" if plan_removal(client_file.client, client_file.file, name).is_needed else "not yet"
        )
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
    where = "a project file" if project else "a known file"
    raise click.BadParameter(f"{client!r} is not a client with {where}; {hint}", param_hint="CLIENT")


def _describe_stdio_entry(
    client: McpClient, mode_options: list[str], config: Path | None, servers: Path | None
) -> ServerEntry:
    """Return the entry that starts `fingerpost stdio`. All paths are absolute, and PATH is that of this
    shell: a program started from a desktop has neither the folder nor the PATH of a shell.
    """
    files: list[str] = []
    sources = Sources(config=config, servers=None, overrides={}, environ=os.environ, cwd=Path.cwd())
    if (settings_file := find_config(sources)) is not None:
        files += ["--config", str(settings_file.absolute())]
    if (named := servers or os.environ.get(SERVERS_FILE_VARIABLE)) is not None:
        files += ["--servers", str(Path(named).expanduser().absolute())]
    command, *first = find_own_command(Path(sys.prefix), os.environ)
    env = {"PATH": _build_path(Path(sys.prefix), os.environ)}
    env |= {name: os.environ[name] for name in _FOLDER_VARIABLES if os.environ.get(name)}
    return {**client.extra, "command": command, "args": [*first, "stdio", *mode_options, *files], "env": env}


def find_own_command(prefix: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the command that starts Fingerpost, with its absolute path. `uvx` and `pipx run` delete the
    folder that they start programs from, so that they have to start it again.
    """
    path = environ.get("PATH")
    if _is_uv_cache(prefix) and (uv := environ.get("UV") or shutil.which("uv", path=path)):
        return [uv, "tool", "run", *_find_source("--from"), "fingerpost"]
    if _is_pipx_cache(prefix) and (pipx := shutil.which("pipx", path=path)):
        return [pipx, "run", *_find_source("--spec"), "fingerpost"]
    program = shutil.which("fingerpost", path=str(Path(sys.executable).parent))
    return [program] if program else [sys.executable, "-m", "fingerpost"]


def _is_uv_cache(prefix: Path) -> bool:
    return any(part.startswith(("archive-v", "environments-v")) for part in prefix.parts)


def _is_pipx_cache(prefix: Path) -> bool:
    return "pipx" in prefix.parts and prefix.parent.name == ".cache"


def _find_source(option: str) -> list[str]:
    """Return the option that names where Fingerpost was installed from, if it is not the package index."""
    try:
        text = distribution("fingerpost").read_text("direct_url.json")
    except PackageNotFoundError:
        return []
    url = json.loads(text).get("url") if text else None
    return [option, str(url)] if url else []


def _build_path(prefix: Path, environ: Mapping[str, str]) -> str:
    """Return the folders of PATH that exist and will still exist when the client starts us."""
    is_temporary = _is_uv_cache(prefix) or _is_pipx_cache(prefix)
    folders = [Path(folder) for folder in environ.get("PATH", os.defpath).split(os.pathsep) if folder]
    lasting = (
        str(folder)
        for folder in folders
        if folder.is_absolute()
        and folder.is_dir()
        and not (is_temporary and folder.resolve().is_relative_to(prefix.resolve()))
    )
    return os.pathsep.join(dict.fromkeys(lasting))


def _add_stdio_notes(client: McpClient, loaded: Loaded, plan: MovePlan | None, notes: list[str]) -> None:
    if not loaded.specs and plan is None:
        notes.append("no servers are configured yet: add one with `fingerpost servers add`")
    texts = [Path(file).read_text(encoding="utf-8-sig", errors="replace") for file in loaded.files]
    if plan is not None:
        texts.append(decode_text(plan.servers.after or b""))
    if variables := _find_variables(texts):
        notes.append(
            f"the settings use {', '.join(variables)}, set in this shell: {client.label} must have the same, "
            "and a program started from a desktop does not read your shell's profile"
        )
    ours = [name for name in sorted(os.environ) if name.startswith(PREFIX) and name not in _WRITTEN_VARIABLES]
    if ours:
        notes.append(
            f"{', '.join(ours)} is set in this shell only: write it into fingerpost.toml or the entry's env"
        )


def _find_variables(texts: Iterable[str]) -> list[str]:
    """Return the names of environment variables that these texts use."""
    scope = VariableScope(environ=os.environ, folder=Path.cwd(), home=Path.home())
    names = {taken.name for text in texts for taken in expand(text, scope).taken}
    return sorted(names - COMMON_VARIABLES)


def _find_movable(
    client_file: ClientFile, others: Mapping[str, ServerDraft], notes: list[str]
) -> dict[str, ServerDraft]:
    """Return the servers that work outside of the client. Adds a note for each other one."""
    label = client_file.client.label
    movable: dict[str, ServerDraft] = {}
    for name, draft in others.items():
        if client_file.scope == "user" and _WORKSPACE_VARIABLE in str(draft.values):
            notes.append(f"{name} stays in {label}: only {label} knows its {_WORKSPACE_VARIABLE}")
        else:
            movable[name] = draft
    return movable


def _describe_remaining(client_file: ClientFile, name: str, moved: Mapping[str, object]) -> list[str]:
    """Return a note about the servers that the client still reaches without Fingerpost."""
    label, home = client_file.client.label, Path.home()
    here = [one for one in find_other_servers(client_file.client, client_file.file, name) if one not in moved]
    notes: list[str] = []
    if here and not moved:
        notes.append(
            f"{label} still has {_join_names(here)} itself: their tools stay reachable without Fingerpost's "
            f"approval. Move them with `fingerpost install {client_file.client.name} --replace`"
        )
    for found in discover_client_files(home, Path.cwd(), sys.platform, os.environ):
        if found.client != client_file.client.name:
            continue
        # In this file these are servers of single projects.
        elsewhere = [
            draft.name
            for draft in found.drafts
            if is_other_server(draft)
            and (
                found.file != client_file.file or draft.path != (*client_file.client.servers_path, draft.name)
            )
        ]
        if elsewhere:
            inside = (
                f"for single projects in {found.shown}" if found.file == client_file.file else found.shown
            )
            notes.append(
                f"{label} also has {_join_names(elsewhere)} ({inside}): they stay reachable without "
                "Fingerpost's approval"
            )
    return notes


def _join_names(names: Iterable[str]) -> str:
    listed = [*dict.fromkeys(names)]
    more = f" and {len(listed) - _MAX_NAMED} more" if len(listed) > _MAX_NAMED else ""
    return ", ".join(listed[:_MAX_NAMED]) + more


def _describe_http_entry(
    client: McpClient, path: str, gateway: GatewaySettings, notes: list[str]
) -> ServerEntry:
    """Return the entry that connects to the gateway. Adds notes."""
    if not client.url:
        message = f"{client.label} can only start programs; its file has no place for an address"
        raise ConfigError(message, hint="leave out --http")
    if gateway.port == 0 and gateway.public_url is None:
        message = "the gateway's port is 0, so it changes at every start"
        raise ConfigError(message, hint="set gateway.port to a fixed port")
    needs_key = (gateway.require_key or is_exposed(gateway)) and gateway.sign_in is None
    if needs_key and client.variable is None and not client.is_toml:
        notes.append(
            "a key is needed: make one with `fingerpost keys add NAME`, and add it to the entry's headers"
        )
    elif needs_key:
        notes.append(f"a key is needed in the variable {KEY_VARIABLE}: `fingerpost keys add NAME` makes one")
    notes.append("the gateway must be running: `fingerpost serve`")
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
        notes.append(f"the entry is switched off in {client_file.client.label}: switch it on there")
    if not change.is_needed:
        undo = f"fingerpost install {client_file.client.name} --undo"
        click.echo(f"{client_file.client.label} has this entry already. `{undo}` removes it.")
    else:
        show_change(change)
    for note in notes:
        print_note(note)
    if dry_run or not change.is_needed:
        return 0
    if not client_file.present and client_file.scope == "user" and not change.file.parent.is_dir():
        print_note(f"{client_file.client.label} was not found here; {change.file.parent} is created")
    if not yes:
        confirm(f"Write {change.file}?", abort=True)
    write_change(change, datetime.now().astimezone())
    click.echo(f"Restart {client_file.client.label} to use it.")
    return 0


def _move_servers(
    client_file: ClientFile, name: str, plan: MovePlan, notes: list[str], *, yes: bool, dry_run: bool
) -> int:
    """Write the entry and move the client's other servers to the servers file."""
    label, count = client_file.client.label, len(plan.moved)
    for change in (plan.servers, plan.client):
        show_change(change)
    notes += (f"the servers file has another server of that name: {one}" for one in plan.renamed)
    for note in notes:
        print_note(note)
    if dry_run:
        return 0
    if not yes:
        confirm(f"Write {plan.client.file} and {plan.servers.file}?", abort=True)
    now = datetime.now().astimezone()
    record_move(plan, name, now)
    for change in (plan.servers, plan.client):  # first where the servers go to: none is lost
        write_change(change, now)
    servers = "1 server" if count == 1 else f"{count} servers"
    click.echo(f"Moved {servers} from {label} to {plan.servers.file}.")
    if client_file.scope == "project":
        click.echo(REVIEW_NEXT)
    undo = f"fingerpost install {client_file.client.name} --undo"
    click.echo(f"Restart {label} to use it. `{undo}` undoes all of this.")
    return 0


def _remove_entry(client_file: ClientFile, name: str, *, yes: bool, dry_run: bool) -> int:
    label = client_file.client.label
    record = find_move(client_file.file, name)
    if record is not None:
        change, ours, kept = plan_return(client_file.client, record)
        for server in kept:
            print_note(f"{server} was changed in {ours.file} since, and stays there, too")
    else:
        change, ours = plan_removal(client_file.client, client_file.file, name), None
    if not change.is_needed and not (ours and ours.is_needed):
        click.echo(f"{label} has no entry named {name}.")
        return 0
    changes = [one for one in (change, ours) if one is not None and one.is_needed]
    for one in changes:
        show_change(one)
    if dry_run:
        return 0
    if not yes:
        verb = "Remove" if all(one.after is None for one in changes) else "Write"
        confirm(f"{verb} {' and '.join(str(one.file) for one in changes)}?", abort=True)
    now = datetime.now().astimezone()
    for one in changes:
        write_change(one, now)
    if record is not None:
        forget_move(record)
    click.echo(f"Restart {label} to apply the change.")
    return 0
