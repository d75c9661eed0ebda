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
from fingerpost.settings.document import Document, items, table
from fingerpost.settings.problems import KeyPath, Problem, dotted, nearest
from fingerpost.settings.variables import Input

# Where a file keeps its servers. A VS Code settings.json may also use the flat key.
PLACES: tuple[KeyPath, ...] = (
    ("mcpServers",),
    ("servers",),
    ("mcp", "servers"),
    ("mcp.servers",),
    ("context_servers",),
    ("mcp_servers",),
)

# Client's name → ours. The first one present wins: Gemini's httpUrl is more precise than its url.
NAMES: dict[str, str] = {
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
SPECIAL = frozenset({"disabled", "env_vars", "bearer_token_env_var", "env_http_headers"})
# Client keys that a slip detector would take for one of ours.
HARMLESS = frozenset({"disabledTools", "disabled_tools", "enabledTools", "enabled_tools"})

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
class Draft:
    """A server entry under our names, as written: variables not yet expanded, nothing checked."""

    name: str
    values: Mapping[str, object] = field(repr=False)
    document: Document = field(repr=False)
    path: KeyPath  # of the entry in the document
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])  # our name → the file's
    inputs: Mapping[str, Input] = field(default_factory=dict[str, Input])


@frozen(kw_only=False)
class Entries:
    """One table of servers in a file."""

    path: KeyPath
    servers: Mapping[str, object] = field(repr=False)


def find_entries(document: Document) -> tuple[Entries, ...]:
    """The tables of servers a file holds; the bare form (`{"name": {"command": …}}`) counts as one."""
    found: list[Entries] = []
    for path in PLACES:
        node: object = document.values
        for part in path:
            node = (table(node) or {}).get(str(part))
        if (servers := table(node)) is not None:
            found.append(Entries(path, servers))
    if not found and document.values and all(_looks_like_entry(entry) for entry in document.values.values()):
        found.append(Entries((), document.values))
    return tuple(found)


def _looks_like_entry(value: object) -> bool:
    entry = table(value)
    return entry is not None and any(name in entry for name in ("command", "url", "serverUrl", "httpUrl"))


def read_drafts(document: Document) -> tuple[tuple[Draft, ...], tuple[Problem, ...]]:
    """Every server entry of a client's file. Later tables do not replace earlier ones."""
    problems = [*_repeated(document)]
    drafts: dict[str, Draft] = {}
    inputs = _inputs(document)
    for entries in find_entries(document):
        for name, entry in entries.servers.items():
            path = (*entries.path, name)
            values = table(entry)
            if values is None:
                problems.append(_not_a_table(document, path))
            elif not _belongs_to_extension(values) and name not in drafts:
                drafts[name] = draft_of(name, values, document, path, inputs)
                problems += _slips(document, path, values)
    return tuple(drafts.values()), tuple(problems)


def draft_of(
    name: str, entry: Mapping[str, object], document: Document, path: KeyPath, inputs: Mapping[str, Input]
) -> Draft:
    """One client entry under our names."""
    values: dict[str, object] = {}
    renamed: dict[str, str] = {}
    for theirs, ours in NAMES.items():
        value = entry.get(theirs)
        if value is not None and ours not in values:
            values[ours] = value
            renamed[ours] = theirs
    if "httpUrl" in entry:
        values.setdefault("transport", "http")
    _unfold_command(values)
    _translate(values, entry)
    _from_variables(values, entry)
    return Draft(name=name, values=values, document=document, path=path, renamed=renamed, inputs=inputs)


def _unfold_command(values: dict[str, object]) -> None:
    """`command` as a list, or as Zed's older table with path, args and env."""
    if words := items(values.get("command")):
        values["command"] = words[0]
        values["args"] = [*words[1:], *items(values.get("args"))]
    elif (nested := table(values.get("command"))) is not None and "path" in nested:
        values["command"] = nested["path"]
        for name in ("args", "env"):
            if nested.get(name) is not None:
                values.setdefault(name, nested[name])


def _translate(values: dict[str, object], entry: Mapping[str, object]) -> None:
    """Words and shapes that mean the same."""
    transport = values.get("transport")
    if isinstance(transport, str):
        values["transport"] = TRANSPORTS.get(transport.lower(), transport)
    if isinstance(entry.get("disabled"), bool) and "enabled" not in values:
        values["enabled"] = not entry["disabled"]
    if (oauth := table(values.get("oauth"))) is not None:
        values["oauth"] = {
            ours: oauth[theirs] for theirs, ours in OAUTH_NAMES.items() if oauth.get(theirs) is not None
        }
    elif isinstance(values.get("oauth"), bool | str):
        del values["oauth"]  # "sign in as usual", which we do anyway
    for name in ("env", "headers"):
        if (texts := table(values.get(name))) is not None:
            values[name] = {key: as_text(text) for key, text in texts.items() if text is not None}
    if isinstance(values.get("args"), list):
        values["args"] = [as_text(word) for word in items(values["args"])]


def _from_variables(values: dict[str, object], entry: Mapping[str, object]) -> None:
    """Codex names variables instead of referring to them."""
    env = {str(name): f"${{{name}}}" for name in items(entry.get("env_vars"))}
    if env:
        values["env"] = {**env, **(table(values.get("env")) or {})}
    headers = {key: f"${{{name}}}" for key, name in (table(entry.get("env_http_headers")) or {}).items()}
    if token := entry.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{token}}}"
    if headers:
        values["headers"] = {**(table(values.get("headers")) or {}), **headers}


def as_text(value: object) -> object:
    """Numbers and switches in `env`, `headers` and `args` are meant as text: `"PORT": 8080`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _belongs_to_extension(entry: Mapping[str, object]) -> bool:
    """Zed lists the settings of servers that its extensions start; there is nothing to start in them."""
    return "settings" in entry and set(entry) <= {"settings", "enabled", "source"}


def _inputs(document: Document) -> dict[str, Input]:
    found: dict[str, Input] = {}
    inside = table(document.values.get("mcp")) or {}
    for entry in (*items(document.values.get("inputs")), *items(inside.get("inputs"))):
        given = table(entry) or {}
        identifier, description, default = given.get("id"), given.get("description"), given.get("default")
        if isinstance(identifier, str):
            found[identifier] = Input(
                description=description if isinstance(description, str) else None,
                default=default if isinstance(default, str) else None,
            )
    return found


def _repeated(document: Document) -> Iterator[Problem]:
    for twice in document.repeated:
        yield Problem(
            message=f"is given twice, first on line {twice.first}",
            fix="remove one of the two, or rename it",
            path=dotted(twice.path),
            origin=document.origin(twice.path),
        )


def no_servers(document: Document) -> Problem:
    """What to say about a file in which no place for servers was found."""
    fix = 'the servers stand in {"mcpServers": {"name": {"command": "…"}}}'
    if (place := _misused_place(document)) is not None:
        message = "must be an object with each server under its name"
        return Problem(message=message, fix=fix, path=dotted(place), origin=document.origin(place))
    near = nearest("mcpServers", document.values, cutoff=0.75)
    return Problem(
        message="holds no servers",
        fix=f"did you mean mcpServers instead of {near}?" if near else fix,
        origin=document.origin((near,) if near else ()),
    )


def _misused_place(document: Document) -> KeyPath | None:
    """A name servers stand under, with something else under it."""
    return next((path for path in PLACES if len(path) == 1 and path[0] in document.values), None)


def _not_a_table(document: Document, path: KeyPath) -> Problem:
    return Problem(
        message="must be an object with a command or a url",
        fix='write {"command": "…", "args": ["…"]} or {"url": "https://…"}',
        path=dotted(path),
        origin=document.origin(path),
    )


def _slips(document: Document, path: KeyPath, entry: Mapping[str, object]) -> Iterator[Problem]:
    known = NAMES.keys() | SPECIAL
    for name in entry:
        if name in known or name in HARMLESS:
            continue
        if near := nearest(name, known, cutoff=0.75):
            yield Problem(
                message="is not read",
                fix=f"did you mean {near}?",
                path=dotted((*path, name)),
                origin=document.origin((*path, name)),
                warning=True,
            )
