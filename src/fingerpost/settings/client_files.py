"""Server entries of other MCP clients: finding, reading and merging their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from fingerpost.data_files import read_data_table, read_sections
from fingerpost.frozen import frozen
from fingerpost.records import ServerAuth
from fingerpost.redaction import MASK, is_secret_name, scrub
from fingerpost.settings.document import SettingsDocument, as_list, as_table, read_document
from fingerpost.settings.problems import KeyPath, Problem, find_nearest, format_path
from fingerpost.settings.sources import is_file
from fingerpost.settings.variables import (
    PromptInput,
    VariableScope,
    find_written_secrets,
    register_literal_secrets,
)

# Tables of servers in a file. A VS Code settings.json may also use the flat key.
SERVER_TABLES: tuple[KeyPath, ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp.servers",),
    ("context_servers",),
    ("mcp_servers",),
)

_NAMES: Final = {
    title: {line.split()[0]: line.split()[1] for line in text.strip().splitlines()}
    for title, text in read_sections("fingerpost.settings", "names.txt").items()
}
FIELD_NAMES: Final = _NAMES["fields"]  # a client's name → ours
# Fields with their own translation rules.
SPECIAL_FIELDS = frozenset({"disabled", "env_vars", "bearer_token_env_var", "env_http_headers"})
# Client fields that would otherwise be reported as typos of ours.
IGNORED_FIELDS = frozenset({"disabledTools", "disabled_tools", "enabledTools", "enabled_tools"})


@frozen
class ServerDraft:
    """A server entry with our field names, as written: variables are not expanded, nothing is checked."""

    name: str
    values: Mapping[str, object] = field(repr=False)
    document: SettingsDocument = field(repr=False)
    path: KeyPath  # of the entry in the document
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])  # our name → the file's name
    inputs: Mapping[str, PromptInput] = field(default_factory=dict[str, PromptInput])


@frozen(kw_only=False)
class ServerTable:
    """One table of servers in a file."""

    path: KeyPath
    servers: Mapping[str, object] = field(repr=False)


def find_server_tables(document: SettingsDocument) -> tuple[ServerTable, ...]:
    """Return the tables of servers in a file. The bare form (`{"name": {"command": …}}`) counts as one."""
    found: list[ServerTable] = []
    for path in SERVER_TABLES:
        node: object = document.values
        for part in path:
            node = (as_table(node) or {}).get(str(part))
        if (servers := as_table(node)) is not None:
            found.append(ServerTable(path, servers))
    if not found and document.values and all(_is_entry(entry) for entry in document.values.values()):
        found.append(ServerTable((), document.values))
    return tuple(found)


def _is_entry(value: object) -> bool:
    entry = as_table(value)
    return entry is not None and any(name in entry for name in ("command", "url", "serverUrl", "httpUrl"))


def read_drafts(document: SettingsDocument) -> tuple[tuple[ServerDraft, ...], tuple[Problem, ...]]:
    """Return every server entry of a client's file. Later tables do not replace earlier ones."""
    problems = [*_find_repeated(document)]
    drafts: dict[str, ServerDraft] = {}
    inputs = _read_inputs(document)
    for entries in find_server_tables(document):
        for name, entry in entries.servers.items():
            path = (*entries.path, name)
            values = as_table(entry)
            if values is None:
                problems.append(_build_not_a_table(document, path))
            elif not _is_extension_entry(values) and name not in drafts:
                drafts[name] = build_draft(name, values, document, path, inputs)
                problems += _find_misspelled(document, path, values)
    return tuple(drafts.values()), tuple(problems)


def build_draft(
    name: str,
    entry: Mapping[str, object],
    document: SettingsDocument,
    path: KeyPath,
    inputs: Mapping[str, PromptInput],
) -> ServerDraft:
    """Return one client entry with our field names."""
    values: dict[str, object] = {}
    renamed: dict[str, str] = {}
    for theirs, ours in FIELD_NAMES.items():
        value = entry.get(theirs)
        if value is not None and ours not in values:
            values[ours] = value
            renamed[ours] = theirs
    if "httpUrl" in entry:
        values.setdefault("transport", "http")
    _split_command(values)
    _translate_values(values, entry)
    _translate_variable_names(values, entry)
    return ServerDraft(name=name, values=values, document=document, path=path, renamed=renamed, inputs=inputs)


def _split_command(values: dict[str, object]) -> None:
    """Split a `command` given as a list, or as Zed's older table with path, args and env."""
    if words := as_list(values.get("command")):
        values["command"] = words[0]
        values["args"] = [*words[1:], *as_list(values.get("args"))]
    elif (nested := as_table(values.get("command"))) is not None and "path" in nested:
        values["command"] = nested["path"]
        for name in ("args", "env"):
            if nested.get(name) is not None:
                values.setdefault(name, nested[name])


def _translate_values(values: dict[str, object], entry: Mapping[str, object]) -> None:
    """Translate other spellings and forms of the same values."""
    transport = values.get("transport")
    if isinstance(transport, str):
        values["transport"] = _NAMES["transports"].get(transport.lower(), transport)
    if isinstance(entry.get("disabled"), bool) and "enabled" not in values:
        values["enabled"] = not entry["disabled"]
    auth = entry.get("auth")
    if isinstance(auth, str) and auth in get_args(ServerAuth):  # ours; other clients name OAuth so
        values |= {"auth": auth, "oauth": entry.get("oauth")}
    if (oauth := as_table(values.get("oauth"))) is not None:
        values["oauth"] = {
            ours: oauth[theirs] for theirs, ours in _NAMES["oauth"].items() if oauth.get(theirs) is not None
        }
    elif isinstance(values.get("oauth"), bool | str):
        del values["oauth"]  # the default sign-in, which is used anyway
    for name in ("env", "headers"):
        if (texts := as_table(values.get(name))) is not None:
            values[name] = {key: to_text(text) for key, text in texts.items() if text is not None}
    if isinstance(values.get("args"), list):
        values["args"] = [to_text(word) for word in as_list(values["args"])]


def _translate_variable_names(values: dict[str, object], entry: Mapping[str, object]) -> None:
    """Translate Codex fields that contain names of variables instead of references."""
    env = {str(name): f"${{{name}}}" for name in as_list(entry.get("env_vars"))}
    if env:
        values["env"] = {**env, **(as_table(values.get("env")) or {})}
    headers = {key: f"${{{name}}}" for key, name in (as_table(entry.get("env_http_headers")) or {}).items()}
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        values["headers"] = {**(as_table(values.get("headers")) or {}), **headers}


def to_text(value: object) -> object:
    """Convert numbers and booleans in `env`, `headers` and `args` to text: `"PORT": 8080`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _is_extension_entry(entry: Mapping[str, object]) -> bool:
    """Return whether this is Zed's settings of an extension's server, which cannot be started."""
    return "settings" in entry and set(entry) <= {"settings", "enabled", "source"}


def _read_inputs(document: SettingsDocument) -> dict[str, PromptInput]:
    found: dict[str, PromptInput] = {}
    inside = as_table(document.values.get("mcp")) or {}
    for entry in (*as_list(document.values.get("inputs")), *as_list(inside.get("inputs"))):
        given = as_table(entry) or {}
        identifier, description, default = given.get("id"), given.get("description"), given.get("default")
        if isinstance(identifier, str):
            found[identifier] = PromptInput(
                description=description if isinstance(description, str) else None,
                default=default if isinstance(default, str) else None,
            )
    return found


def _find_repeated(document: SettingsDocument) -> Iterator[Problem]:
    for twice in document.repeated:
        yield Problem(
            message=f"is written twice, first on line {twice.first}",
            fix="remove one of the two, or rename it",
            path=format_path(twice.path),
            origin=document.get_origin(twice.path),
        )


def build_no_servers_problem(document: SettingsDocument) -> Problem:
    """Build the problem for a file without a table of servers."""
    fix = 'write the servers as {"mcpServers": {"name": {"command": "…"}}}'
    # A known table that contains something else.
    misused = (path for path in SERVER_TABLES if len(path) == 1 and path[0] in document.values)
    if (table_path := next(misused, None)) is not None:
        origin, path = document.get_origin(table_path), format_path(table_path)
        return Problem(message="must be an object of servers by name", fix=fix, path=path, origin=origin)
    near = find_nearest("mcpServers", document.values, cutoff=0.75)
    return Problem(
        message="contains no servers",
        fix=f"did you mean mcpServers instead of {near}?" if near else fix,
        origin=document.get_origin((near,) if near else ()),
    )


def _build_not_a_table(document: SettingsDocument, path: KeyPath) -> Problem:
    return Problem(
        message="must be an object with a command or a url",
        fix='write {"command": "…", "args": ["…"]} or {"url": "https://…"}',
        path=format_path(path),
        origin=document.get_origin(path),
    )


def _find_misspelled(
    document: SettingsDocument, path: KeyPath, entry: Mapping[str, object]
) -> Iterator[Problem]:
    known = FIELD_NAMES.keys() | SPECIAL_FIELDS
    is_usable = any(FIELD_NAMES.get(name) in ("command", "url") for name in entry)
    effect = "it is ignored" if is_usable else "the server was skipped"
    for name in entry:
        if name in known or name in IGNORED_FIELDS:
            continue
        if near := find_nearest(name, known, cutoff=0.75):
            yield Problem(
                message=f'unknown key "{name}" in server "{path[-1]}"; {effect}',
                fix=f"did you mean {near}?",
                origin=document.get_origin((*path, name)),
                warning=True,
            )


@frozen
class McpClient:
    """An MCP client of `clients.toml`. `servers_path` is the path of the servers in its file."""

    name: str
    label: str
    files: tuple[str, ...]  # each starts with its base folder
    written: tuple[str, ...] = ()  # names of the files that may be written; empty: any
    servers_path: tuple[str, ...] = ("mcpServers",)
    extra: Mapping[str, object] = field(default_factory=dict[str, object])  # in a stdio entry
    url: str = "url"  # the member for a URL; empty: URLs are not supported in this file
    http_extra: Mapping[str, object] = field(default_factory=dict[str, object])
    variable: str | None = None  # syntax for an environment variable; None: not supported

    @property
    def is_toml(self) -> bool:
        return self.name == "codex"

    def list_files(self) -> Iterator[tuple[str, str]]:
        """Yield the base folder and the path of each file."""
        of_editors = [file for file in self.files if "{editor}" in file]
        files = [file.replace("{editor}", editor) for editor in _EDITORS for file in of_editors]
        for file in (*files, *(file for file in self.files if file not in of_editors)):
            base, _, path = file.partition("/")
            yield base, path


_EDITORS = ("Code", "Code - Insiders", "VSCodium")


@cache
def read_clients() -> Mapping[str, McpClient]:
    """Return the known clients by name."""
    tables: dict[str, dict[str, Any]] = read_data_table("fingerpost.settings", "clients.toml")
    clients: dict[str, McpClient] = {}
    for name, table in tables.items():
        for key in ("files", "written", "servers_path"):
            if key in table:
                table[key] = tuple(table[key])
        clients[name] = McpClient(name=name, **table)
    return clients


@frozen
class FoundClientFile:
    """A client file with servers, or one that cannot be read."""

    client: str
    file: Path
    shown: str  # with ~ for the home folder
    drafts: tuple[ServerDraft, ...] = field(default=(), repr=False)
    problems: tuple[Problem, ...] = ()


def discover_client_files(
    home: Path, cwd: Path, platform: str, environ: Mapping[str, str]
) -> tuple[FoundClientFile, ...]:
    """Return all known client files that exist and contain servers. `platform` is as in `sys.platform`."""
    folders = get_base_folders(home, cwd, platform, environ)
    found: list[FoundClientFile] = []
    seen: set[Path] = set()
    for client in read_clients().values():
        for base, file in client.list_files():
            path = folders[base] / file
            # In the home folder the project files are the same as the user's files. List each file once.
            if path in seen or not is_file(path):
                continue
            seen.add(path)
            if (one := _read_client_file(client.name, path, shorten_path(path, home))) is not None:
                found.append(one)
    return tuple(found)


def get_base_folders(home: Path, cwd: Path, platform: str, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return the base folders of client files."""
    xdg = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if platform == "darwin":
        config, dotconfig = home / "Library" / "Application Support", home / ".config"
    elif platform == "win32":
        config = dotconfig = Path(environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        config = dotconfig = xdg
    return {"home": home, "config": config, "dotconfig": dotconfig, "project": cwd}


def _read_client_file(client: str, path: Path, shown: str) -> FoundClientFile | None:
    document = read_document(path, shown)
    if isinstance(document, Problem):
        return FoundClientFile(client=client, file=path, shown=shown, problems=(document,))
    drafts, problems = read_drafts(document)
    drafts = (*drafts, *_read_project_drafts(document))
    if not drafts and not problems:
        return None
    for draft in drafts:
        register_literal_secrets(draft.values)
    return FoundClientFile(client=client, file=path, shown=shown, drafts=drafts, problems=problems)


def _read_project_drafts(document: SettingsDocument) -> Iterator[ServerDraft]:
    """Read the per-project servers of Claude Code: `projects.<folder>.mcpServers`."""
    for folder, project in (as_table(document.values.get("projects")) or {}).items():
        inside = replace(document, values=as_table(project) or {}, repeated=())
        for entries in find_server_tables(inside):
            if entries.path != ("mcpServers",):
                continue
            for name, entry in entries.servers.items():
                if (values := as_table(entry)) is not None:
                    project_document = replace(document, folder=Path(folder))
                    yield build_draft(
                        name, values, project_document, ("projects", folder, "mcpServers", name), {}
                    )


def shorten_path(path: Path, home: Path) -> str:
    """Return a path with ~ for the home folder."""
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)


@frozen
class RenamedServer:
    """A server that was renamed because another one has the same name."""

    name: str
    new_name: str
    origin: str


@frozen
class MergedServers:
    """The merged servers and their sources."""

    servers: Mapping[str, Mapping[str, object]] = field(repr=False)
    origins: Mapping[str, tuple[str, ...]]  # name → every file and line that has it
    clients: Mapping[str, tuple[str, ...]]
    renamed: tuple[RenamedServer, ...] = ()
    inputs: Mapping[str, PromptInput] = field(default_factory=dict[str, PromptInput])
    secrets: tuple[str, ...] = ()  # paths of literal secrets: github.env.GITHUB_TOKEN
    problems: tuple[Problem, ...] = ()

    def build_document(self) -> dict[str, object]:
        """Return the content of the merged file."""
        content: dict[str, object] = {
            "mcpServers": {name: dict(entry) for name, entry in self.servers.items()}
        }
        if self.inputs:
            content["inputs"] = [_build_input_entry(name, given) for name, given in self.inputs.items()]
        return content


def merge_servers(found: Iterable[FoundClientFile]) -> MergedServers:
    """Merge the servers of all files. Equal ones are combined; others of one name are renamed."""
    found = tuple(found)
    servers: dict[str, Mapping[str, object]] = {}
    origins: dict[str, tuple[str, ...]] = {}
    clients: dict[str, tuple[str, ...]] = {}
    renamed: list[RenamedServer] = []
    inputs: dict[str, PromptInput] = {}
    for client, draft in _iterate_drafts(found):
        entry, origin = to_portable_entry(draft), str(draft.document.get_origin(draft.path))
        name = _find_free_name(draft.name, client, entry, servers)
        if name != draft.name and name not in servers:
            renamed.append(RenamedServer(name=draft.name, new_name=name, origin=origin))
        if name not in servers or "disabled" not in entry:
            servers[name] = entry
        origins[name] = (*origins.get(name, ()), origin)
        clients[name] = tuple(dict.fromkeys((*clients.get(name, ()), client)))
        for identifier, given in draft.inputs.items():
            if _has_reference(entry, identifier):
                inputs.setdefault(identifier, given)
    secrets = tuple(
        format_path((name, *path)) for name, entry in servers.items() for path in find_written_secrets(entry)
    )
    return MergedServers(
        servers=servers,
        origins=origins,
        clients=clients,
        renamed=tuple(renamed),
        inputs=inputs,
        secrets=secrets,
        problems=tuple(problem for file in found for problem in file.problems),
    )


def _iterate_drafts(found: Iterable[FoundClientFile]) -> Iterator[tuple[str, ServerDraft]]:
    """Yield every server that can be reached, with the client that has it."""
    for file in found:
        for draft in file.drafts:
            if is_other_server(draft):
                yield file.client, draft


def is_other_server(draft: ServerDraft) -> bool:
    """Return whether the entry is a server that can be connected, and not our own gateway."""
    return bool(draft.values.get("command") or draft.values.get("url")) and not _is_own_gateway(draft)


def _is_own_gateway(draft: ServerDraft) -> bool:
    """Return whether the entry starts our own gateway, as `fingerpost install` writes it."""
    words = [str(draft.values.get("command") or ""), *map(str, as_list(draft.values.get("args")))]
    address = urlsplit(str(draft.values.get("url") or ""))
    is_local = draft.name == "fingerpost" and address.hostname in ("127.0.0.1", "localhost", "::1")
    is_program = Path(words[0]).stem == "fingerpost" or words[1:3] == ["-m", "fingerpost"]
    is_fetched = Path(words[0]).stem in ("uv", "uvx", "pipx") and "fingerpost" in words[1:6]
    return is_program or is_fetched or is_local


def _find_free_name(
    wanted: str, client: str, entry: Mapping[str, object], servers: Mapping[str, Mapping[str, object]]
) -> str:
    """Return the name of an equal server, or the first free name."""
    name, count = wanted, 1
    while name in servers and _get_definition(servers[name]) != _get_definition(entry):
        name = f"{wanted}-{client}" if count == 1 else f"{wanted}-{client}-{count}"
        count += 1
    return name


def _get_definition(entry: Mapping[str, object]) -> dict[str, object]:
    """Return the fields that define a server. Whether it is disabled does not count."""
    return {name: value for name, value in entry.items() if name != "disabled"}


def to_portable_entry(draft: ServerDraft) -> dict[str, object]:
    """Return a standard `mcpServers` entry that does not depend on the file's location."""
    values = draft.values
    scope = VariableScope(environ={}, folder=draft.document.folder, home=draft.document.folder)
    entry: dict[str, object] = {}
    if url := values.get("url"):
        entry["type"] = values.get("transport") or _guess_transport(str(url))
    for ours, standard in _NAMES["standard"].items():
        if values.get(ours) not in (None, [], {}):
            entry[standard] = _resolve_workspace(values[ours], scope.workspace)
    for name in ("cwd", "envFile"):
        if isinstance(path := entry.get(name), str) and not path.startswith(("~", "${")):
            entry[name] = str(scope.workspace / path)
    if oauth := as_table(values.get("oauth")):
        entry["oauth"] = {_NAMES["standard oauth"][name]: value for name, value in oauth.items()}
    if values.get("auth") not in (None, "shared"):
        entry["auth"] = values["auth"]
    if values.get("enabled") is False:
        entry["disabled"] = True
    return entry


def _guess_transport(url: str) -> str:
    try:
        return "sse" if urlsplit(url).path.rstrip("/").endswith("/sse") else "http"
    except ValueError:
        return "http"


def _resolve_workspace(value: object, workspace: Path) -> object:
    """Replace `${workspaceFolder}` with the folder of the file that contains it."""
    if isinstance(value, str):
        for name in ("workspaceFolder", "workspaceRoot"):
            value = value.replace(f"${{{name}}}", str(workspace))
        return value.replace("${workspaceFolderBasename}", workspace.name)
    if (entries := as_table(value)) is not None:
        return {key: _resolve_workspace(item, workspace) for key, item in entries.items()}
    return [_resolve_workspace(item, workspace) for item in listed] if (listed := as_list(value)) else value


def _has_reference(value: object, identifier: str) -> bool:
    if isinstance(value, str):
        return f"${{input:{identifier}}}" in value
    entries = as_table(value)
    inside = entries.values() if entries is not None else as_list(value)
    return any(_has_reference(item, identifier) for item in inside)


def _build_input_entry(name: str, given: PromptInput) -> dict[str, object]:
    entry: dict[str, object] = {"id": name, "type": "promptString"}
    if given.description:
        entry["description"] = given.description
    if given.default is not None:
        entry["default"] = given.default
    return entry


def mask_secrets(content: object, secrets: Iterable[str], path: KeyPath = ()) -> object:
    """Return a merged file's content with literal secrets masked. References are kept."""
    hidden = frozenset(secrets)
    if isinstance(content, str):
        clean = scrub(content)
        named = "${" not in content and isinstance(path[-1], str) and is_secret_name(path[-1])
        return MASK if clean == content and (named or format_path(path[1:]) in hidden) else clean
    if (entries := as_table(content)) is not None:
        return {key: mask_secrets(item, hidden, (*path, key)) for key, item in entries.items()}
    if listed := as_list(content):
        return [mask_secrets(item, hidden, (*path, index)) for index, item in enumerate(listed)]
    return content
