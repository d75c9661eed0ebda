"""Server entries as MCP clients write them, turned into the names of our own settings.

Claude Desktop, Claude Code, Cursor, Windsurf, Cline, Gemini CLI, VS Code, Zed and
Codex write the same things under slightly different names. The tables here are
what they differ in. Names we do not know are the client's own business, unless
they look like a slip of one we do know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from fingerpost.frozen import frozen
from fingerpost.settings.document import SettingsDocument, as_list, as_table
from fingerpost.settings.problems import KeyPath, Problem, find_nearest, format_path
from fingerpost.settings.variables import PromptInput

# Where a file keeps its servers. A VS Code settings.json may also use the flat key.
SERVER_TABLES: tuple[KeyPath, ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp.servers",),
    ("context_servers",),
    ("mcp_servers",),
)

# Client's name → ours. The first one present wins: Gemini's httpUrl is more precise than its url.
FIELD_NAMES: dict[str, str] = {
    "command": "command",
    "args": "args",
    "env": "env",
    "envFile": "env_file",
    "env_file": "env_file",
    "cwd": "cwd",
    "httpUrl": "url",
    "serverUrl": "url",
    "url": "url",
    "headers": "headers",
    "http_headers": "headers",
    "type": "transport",
    "transport": "transport",
    "transportType": "transport",
    "oauth": "oauth",
    "auth": "oauth",
    "era": "era",
    "enabled": "enabled",
    "connect_timeout": "connect_timeout",
    "connectTimeout": "connect_timeout",
    "startup_timeout_sec": "connect_timeout",
    # Of ours alone, but who knows them from fingerpost.toml writes them here as well.
    "isolate": "isolate",
    "prefix": "prefix",
    "forward_authorization": "forward_authorization",
    "allow_link_local": "allow_link_local",
    "trust_hints": "trust_hints",
    "new_tools": "new_tools",
}
# Read by other rules than renaming.
SPECIAL_FIELDS = frozenset({"disabled", "env_vars", "bearer_token_env_var", "env_http_headers"})
# Client keys that a slip detector would take for one of ours.
IGNORED_FIELDS = frozenset({"disabledTools", "disabled_tools", "enabledTools", "enabled_tools"})

OAUTH_NAMES = {
    "client_id": "client_id",
    "clientId": "client_id",
    "CLIENT_ID": "client_id",
    "client_secret": "client_secret",
    "clientSecret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "scopes": "scopes",
    "redirect_port": "redirect_port",
    "callbackPort": "redirect_port",
}
TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}


@frozen
class ServerDraft:
    """A server entry under our names, as written: variables not yet expanded, nothing checked."""

    name: str
    values: Mapping[str, object] = field(repr=False)
    document: SettingsDocument = field(repr=False)
    path: KeyPath  # of the entry in the document
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])  # our name → the file's
    inputs: Mapping[str, PromptInput] = field(default_factory=dict[str, PromptInput])


@frozen(kw_only=False)
class ServerTable:
    """One table of servers in a file."""

    path: KeyPath
    servers: Mapping[str, object] = field(repr=False)


def find_entries(document: SettingsDocument) -> tuple[ServerTable, ...]:
    """The tables of servers a file holds; the bare form (`{"name": {"command": …}}`) counts as one."""
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
    """Every server entry of a client's file. Later tables do not replace earlier ones."""
    problems = [*_find_repeated(document)]
    drafts: dict[str, ServerDraft] = {}
    inputs = _read_inputs(document)
    for entries in find_entries(document):
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
    """One client entry under our names."""
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
    _from_variables(values, entry)
    return ServerDraft(name=name, values=values, document=document, path=path, renamed=renamed, inputs=inputs)


def _split_command(values: dict[str, object]) -> None:
    """`command` as a list, or as Zed's older table with path, args and env."""
    if words := as_list(values.get("command")):
        values["command"] = words[0]
        values["args"] = [*words[1:], *as_list(values.get("args"))]
    elif (nested := as_table(values.get("command"))) is not None and "path" in nested:
        values["command"] = nested["path"]
        for name in ("args", "env"):
            if nested.get(name) is not None:
                values.setdefault(name, nested[name])


def _translate_values(values: dict[str, object], entry: Mapping[str, object]) -> None:
    """Words and shapes that mean the same."""
    transport = values.get("transport")
    if isinstance(transport, str):
        values["transport"] = TRANSPORTS.get(transport.lower(), transport)
    if isinstance(entry.get("disabled"), bool) and "enabled" not in values:
        values["enabled"] = not entry["disabled"]
    if (oauth := as_table(values.get("oauth"))) is not None:
        values["oauth"] = {
            ours: oauth[theirs] for theirs, ours in OAUTH_NAMES.items() if oauth.get(theirs) is not None
        }
    elif isinstance(values.get("oauth"), bool | str):
        del values["oauth"]  # "sign in as usual", which we do anyway
    for name in ("env", "headers"):
        if (texts := as_table(values.get(name))) is not None:
            values[name] = {key: to_text(text) for key, text in texts.items() if text is not None}
    if isinstance(values.get("args"), list):
        values["args"] = [to_text(word) for word in as_list(values["args"])]


def _from_variables(values: dict[str, object], entry: Mapping[str, object]) -> None:
    """Codex names variables instead of referring to them."""
    env = {str(name): f"${{{name}}}" for name in as_list(entry.get("env_vars"))}
    if env:
        values["env"] = {**env, **(as_table(values.get("env")) or {})}
    headers = {key: f"${{{name}}}" for key, name in (as_table(entry.get("env_http_headers")) or {}).items()}
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        values["headers"] = {**(as_table(values.get("headers")) or {}), **headers}


def to_text(value: object) -> object:
    """Numbers and switches in `env`, `headers` and `args` are meant as text: `"PORT": 8080`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _is_extension_entry(entry: Mapping[str, object]) -> bool:
    """Zed lists the settings of servers that its extensions start; there is nothing to start in them."""
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
            message=f"is given twice, first on line {twice.first}",
            fix="remove one of the two, or rename it",
            path=format_path(twice.path),
            origin=document.get_origin(twice.path),
        )


def build_no_servers_problem(document: SettingsDocument) -> Problem:
    """What to say about a file in which no place for servers was found."""
    fix = 'the servers stand in {"mcpServers": {"name": {"command": "…"}}}'
    if (place := _find_misused_table(document)) is not None:
        message = "must be an object with each server under its name"
        return Problem(message=message, fix=fix, path=format_path(place), origin=document.get_origin(place))
    near = find_nearest("mcpServers", document.values, cutoff=0.75)
    return Problem(
        message="holds no servers",
        fix=f"did you mean mcpServers instead of {near}?" if near else fix,
        origin=document.get_origin((near,) if near else ()),
    )


def _find_misused_table(document: SettingsDocument) -> KeyPath | None:
    """A name servers stand under, with something else under it."""
    return next((path for path in SERVER_TABLES if len(path) == 1 and path[0] in document.values), None)


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
    for name in entry:
        if name in known or name in IGNORED_FIELDS:
            continue
        if near := find_nearest(name, known, cutoff=0.75):
            yield Problem(
                message="is not read",
                fix=f"did you mean {near}?",
                path=format_path((*path, name)),
                origin=document.get_origin((*path, name)),
                warning=True,
            )
