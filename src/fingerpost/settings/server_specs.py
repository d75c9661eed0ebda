"""From a server entry as written to one that can be connected.

Variables are expanded, secrets remembered, the values checked. An entry that
cannot be used says why and costs nobody else anything.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

from fingerpost.frozen import frozen
from fingerpost.records import OAuthSpec, ServerSpec, Transport
from fingerpost.settings.addresses import LINK_LOCAL_FIX, LINK_LOCAL_MESSAGE, is_link_local
from fingerpost.settings.client_files import ServerDraft, to_text
from fingerpost.settings.document import SettingsDocument, as_table, read_text
from fingerpost.settings.dotenv import read_dotenv
from fingerpost.settings.model import ServerSettings
from fingerpost.settings.problems import KeyPath, Problem, ValueOrigin, format_path
from fingerpost.settings.secrets import find_literal_secrets, remember_literals, remember_variables
from fingerpost.settings.validate import ValidationContext, validate
from fingerpost.settings.variables import Expansion, TakenVariable, VariableScope, expand

_PROGRAM_FIELDS = ("args", "env", "env_file", "cwd")
_ADDRESS_FIELDS = ("headers", "oauth")
# Where secrets go; a command or a folder from a variable is no secret.
_SECRET_FIELDS = frozenset({"env", "headers", "url", "args", "oauth"})


@frozen(kw_only=False)
class ResolvedServer:
    """What became of one entry."""

    draft: ServerDraft
    settings: ServerSettings | None = None
    spec: ServerSpec | None = None
    problems: tuple[Problem, ...] = ()
    secrets: frozenset[str] = frozenset()  # dotted paths whose value came out of a secret variable


@dataclass(slots=True)
class _ServerEntry:
    """An entry while it is worked on."""

    draft: ServerDraft
    scope: VariableScope
    problems: list[Problem] = field(default_factory=list[Problem])
    secrets: set[str] = field(default_factory=set[str])

    def get_origin(self, path: KeyPath = ()) -> ValueOrigin:
        renamed = (self.draft.renamed.get(str(path[0]), path[0]), *path[1:]) if path else ()
        return self.draft.document.get_origin((*self.draft.path, *renamed))

    def report(self, message: str, fix: str, path: KeyPath = (), *, warning: bool = False) -> None:
        name = format_path(("servers", self.draft.name, *path))
        problem = Problem(message=message, fix=fix, path=name, origin=self.get_origin(path), warning=warning)
        self.problems.append(problem)


def read_toml_drafts(document: SettingsDocument) -> tuple[tuple[ServerDraft, ...], tuple[Problem, ...]]:
    """The `[servers.<name>]` tables of our own file."""
    servers = document.values.get("servers")
    if servers is None:
        return (), ()
    entries = as_table(servers)
    if entries is None:
        return (), (_build_not_tables(document, ("servers",)),)
    drafts: list[ServerDraft] = []
    problems: list[Problem] = []
    for name, entry in entries.items():
        values = as_table(entry)
        if values is None:
            problems.append(_build_not_tables(document, ("servers", name)))
        else:
            drafts.append(ServerDraft(name=name, values=values, document=document, path=("servers", name)))
    return tuple(drafts), tuple(problems)


def resolve_server(
    draft: ServerDraft, environ: Mapping[str, str], home: Path, connect_timeout: float
) -> ResolvedServer:
    """The entry as settings and as a spec, or its problems."""
    scope = VariableScope(environ=environ, folder=draft.document.folder, home=home, inputs=draft.inputs)
    entry = _ServerEntry(draft, scope)
    _check_name(entry)
    values = _expand_values(entry)
    _merge_env_file(entry, values)
    where = ValidationContext(entry.get_origin, ("servers", draft.name))
    server, wrong = validate(ServerSettings, values, where)
    entry.problems += wrong
    if server is None:
        return ResolvedServer(draft, problems=tuple(entry.problems))
    remember_literals(values)
    entry.secrets |= {format_path(("servers", draft.name, *path)) for path, _ in find_literal_secrets(values)}
    server = server.model_copy(update=_resolve_paths(server, scope))
    transport = _resolve_transport(entry, server)
    if transport is None or any(not problem.warning for problem in entry.problems):
        return ResolvedServer(draft, problems=tuple(entry.problems))
    spec = _build_spec(entry, server, transport, connect_timeout)
    return ResolvedServer(draft, server, spec, tuple(entry.problems), frozenset(entry.secrets))


def _check_name(entry: _ServerEntry) -> None:
    name = entry.draft.name
    if not name.strip():
        entry.report("has an empty name", "give the server a name")
    elif "/" in name:
        entry.report("has a / in its name, which separates server and tool", "write - instead of /")
    elif any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in name):
        entry.report("has a control character in its name", "write the name with visible characters")


def _expand_values(entry: _ServerEntry) -> dict[str, object]:
    """The values with variables replaced. A disabled server may lack its variables: nobody starts it."""
    disabled = entry.draft.values.get("enabled") is False
    values: dict[str, object] = {}
    for name, value in entry.draft.values.items():
        values[name] = _expand_value(entry, value, (name,), silent=disabled)
    return values


def _expand_value(entry: _ServerEntry, value: object, path: KeyPath, *, silent: bool) -> object:
    if isinstance(value, str):
        return _expand_text(entry, value, path, silent=silent)
    if (entries := as_table(value)) is not None:
        texts = path in {("env",), ("headers",)}
        return {
            key: _expand_value(entry, to_text(item) if texts else item, (*path, key), silent=silent)
            for key, item in entries.items()
        }
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [_expand_value(entry, item, (*path, i), silent=silent) for i, item in enumerate(items)]
    return value


def _expand_text(entry: _ServerEntry, text: str, path: KeyPath, *, silent: bool) -> str:
    result: Expansion = expand(text, entry.scope)
    if path[0] in _SECRET_FIELDS and remember_variables(str(path[-1]), result.taken):
        entry.secrets.add(format_path(("servers", entry.draft.name, *path)))
    for missing in result.missing if not silent else ():
        entry.report(missing.message, missing.fix, path)
    return result.text


def _merge_env_file(entry: _ServerEntry, values: dict[str, object]) -> None:
    """The variables of `env_file`, below those of `env`."""
    file = values.get("env_file")
    env = as_table(values.get("env", {}))
    if not isinstance(file, str) or env is None or values.get("enabled") is False:
        return
    text = read_text(_resolve_path(file, entry.scope), file)
    if isinstance(text, Problem):
        entry.report(f"names {file}, which {text.message}", text.fix, ("env_file",))
        return
    given, bad = read_dotenv(text)
    if bad:
        lines = ", ".join(str(line.line) for line in bad)
        entry.report(f"names {file}, whose line {lines} is not NAME=value", "correct it", ("env_file",))
    for name, value in given.items():
        if remember_variables(name, [TakenVariable(name=name, value=value)]):
            entry.secrets.add(format_path(("servers", entry.draft.name, "env", name)))
    values["env"] = {**given, **env}


def _resolve_paths(server: ServerSettings, scope: VariableScope) -> dict[str, str]:
    """`~` is the home folder; a relative `cwd` starts at the file it is written in."""
    places: dict[str, str] = {}
    if server.cwd is not None:
        places["cwd"] = str(_resolve_path(server.cwd, scope))
    if server.command is not None and server.command.startswith("~/"):
        places["command"] = str(scope.home / server.command[2:])
    return places


def _resolve_path(path: str, scope: VariableScope) -> Path:
    if path == "~" or path.startswith("~/"):
        return scope.home / path[2:]
    return scope.workspace / path


def _resolve_transport(entry: _ServerEntry, server: ServerSettings) -> Transport | None:
    """How to connect, after checking that the entry says one thing only."""
    if server.command and server.url:
        entry.report("has both a command and a url", "keep the one you mean", ("url",))
    elif server.command:
        return _check_program(entry, server)
    elif server.url:
        return _check_address(entry, server)
    else:
        entry.report(
            "has neither a command nor a url", "add a command for a program, or a url for an address"
        )
    return None


def _check_program(entry: _ServerEntry, server: ServerSettings) -> Transport | None:
    if server.transport not in {None, "stdio"}:
        message = f'has a command, but its transport "{server.transport}" needs a url'
        entry.report(message, 'use "stdio", or give a url instead of the command', ("transport",))
        return None
    _report_unused(entry, server, _ADDRESS_FIELDS, "a program")
    return "stdio"


def _check_address(entry: _ServerEntry, server: ServerSettings) -> Transport | None:
    assert server.url is not None
    if server.transport == "stdio":
        message = 'has a url, but its transport "stdio" needs a command'
        entry.report(message, 'use "http" or "sse", or give a command instead of the url', ("transport",))
        return None
    if (reason := find_url_fault(server.url)) is not None and server.enabled:
        entry.report(reason, "write it like https://example.org/mcp", ("url",))
        return None
    if is_link_local(urlsplit(server.url).hostname or "") and not server.allow_link_local and server.enabled:
        entry.report(LINK_LOCAL_MESSAGE, LINK_LOCAL_FIX, ("url",))
        return None
    _report_unused(entry, server, _PROGRAM_FIELDS, "an address")
    if server.transport is not None:
        return server.transport
    return "sse" if urlsplit(server.url).path.rstrip("/").endswith("/sse") else "http"


def find_url_fault(url: str) -> str | None:
    """Why a url cannot be connected to, or None when it can. Never quotes it: it may hold a key."""
    if any(character.isspace() or not character.isprintable() for character in url):
        return "is a url with a space or control character in it"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not a valid url"
    if parts.scheme not in {"http", "https"}:
        return "must start with http:// or https://"
    return None if parts.hostname else "is a url without a host"


def _report_unused(entry: _ServerEntry, server: ServerSettings, names: tuple[str, ...], what: str) -> None:
    for name in names:
        if getattr(server, name):
            entry.report(f"has no effect for {what}", "remove it", (name,), warning=True)


def _build_spec(
    entry: _ServerEntry, server: ServerSettings, transport: Transport, connect_timeout: float
) -> ServerSpec:
    oauth = server.oauth
    return ServerSpec(
        name=entry.draft.name,
        transport=transport,
        command=server.command,
        args=server.args,
        env=server.env,
        cwd=server.cwd,
        url=server.url,
        headers=server.headers,
        oauth=None
        if oauth is None
        else OAuthSpec(
            client_id=oauth.client_id,
            client_secret=oauth.client_secret,
            scopes=oauth.scopes,
            redirect_port=oauth.redirect_port,
        ),
        era=server.era,
        enabled=server.enabled,
        connect_timeout=server.connect_timeout or connect_timeout,
        prefix=server.prefix,
        isolate=server.isolate,
        forward_authorization=server.forward_authorization,
        trust_hints=server.trust_hints,
        new_tools=server.new_tools,
        allow_link_local=server.allow_link_local,
        origin=str(entry.get_origin()),
    )


def _build_not_tables(document: SettingsDocument, path: KeyPath) -> Problem:
    return Problem(
        message="must be a table for each server",
        fix='write [servers.name] and below it command = "…" or url = "…"',
        path=format_path(path),
        origin=document.get_origin(path),
    )
